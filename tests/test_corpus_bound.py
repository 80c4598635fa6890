"""The corpus, bound: canonical text, kind, clock and types of every view and query, as golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cql import bound
from cql.binder import bind_query
from cql.catalog import QueryDef, ViewDef
from cql.parsing import parse_query
from tests.corpus_catalog import corpus_catalog, golden_name
from tests.test_corpus import FILES, every_file


def described(definition: ViewDef | QueryDef) -> str:
    tree = definition.tree
    what = "query" if isinstance(definition, QueryDef) else "view"
    kind = "stream" if tree.is_stream else "relation that only grows" if tree.grows else "relation"
    clock = tree.time.value if tree.time else "no clock"
    columns = [f"    {f.name} {f.type}{'' if f.nullable else ' NOT NULL'}" for f in tree.schema]
    uses = ", ".join(definition.depends_on)
    return "\n".join([f"{what} {definition.name}: {kind}, {clock}, uses {uses}", f"  {definition.text}", *columns, ""])


@every_file
def test_a_script_binds(path: Path, golden: Callable[[str, str], None]) -> None:
    catalog = corpus_catalog(path)
    definitions = [*catalog.views.values(), *catalog.queries.values()]
    golden(golden_name("bound", path), "\n".join(described(d) for d in definitions))


@every_file
def test_canonical_text_means_the_same(path: Path) -> None:
    catalog = corpus_catalog(path)
    for query in catalog.queries.values():
        scratch = catalog.copy_for_trial()
        scratch.settings = query.settings
        assert bind_query(parse_query(query.text), scratch).tree == query.tree


@every_file
def test_a_catalog_survives_json(path: Path) -> None:
    catalog = corpus_catalog(path)
    loaded = type(catalog).from_json(catalog.to_json(), trusted=True)
    assert loaded.to_json() == catalog.to_json()
    for name, query in catalog.queries.items():
        assert loaded.queries[name].tree == query.tree


def test_every_bound_node_occurs() -> None:
    seen: set[type] = set()

    def note(rel: bound.Rel) -> None:
        seen.add(type(rel))
        for below in bound.inputs(rel):
            note(below)

    for path in FILES:
        for query in corpus_catalog(path).queries.values():
            note(query.tree)
    nodes = {getattr(bound, name) for name in bound.__all__}
    assert {node for node in nodes if isinstance(node, type) and issubclass(node, bound.Rel)} - {bound.Rel} <= seen
