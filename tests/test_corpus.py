"""The corpus: whole scripts of every origin, which all have to be understood.

A file under `tests/corpus` is one script, `.cql` or, in STREAM's own format, `.script`. Its header says what
it is and where it comes from; a line `-- needs functions: f(TYPE, ..) TYPE, ..` lists what a user would have
registered before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from cql import ast
from cql.ast.rewrite import rewrite
from cql.errors import render
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.parsing import ParsedScript, parse_script
from cql.source import SourceText

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path for path in CORPUS.rglob("*") if path.suffix in (".cql", ".script"))
NEXMARK = range(23)

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CORPUS).as_posix())


@cache
def parsed(path: Path) -> ParsedScript:
    return parse_script(SourceText(path.relative_to(CORPUS).as_posix(), path.read_text(encoding="utf-8")))


def queries(path: Path) -> list[ast.Query]:
    return [
        statement.query
        for statement in parsed(path).statements
        if isinstance(statement, ast.RegisterQuery | ast.QueryStatement)
    ]


@dataclass(frozen=True)
class NeededFunction:
    """A user's function that a script calls."""

    name: str
    arguments: tuple[str, ...]
    returns: str


def needed_functions(text: str) -> list[NeededFunction]:
    return [
        NeededFunction(name, tuple(re.findall(r"\w+", arguments)), returns)
        for line in re.findall(r"^-- needs functions: (.*)$", text, re.MULTILINE)
        for name, arguments, returns in re.findall(r"(\w+)\(([^)]*)\) (\w+)", line)
    ]


# ------------------------------------------------------------------------------------------------ each script


@every_file
def test_a_script_parses(path: Path) -> None:
    script = parsed(path)
    assert not script.diagnostics, "\n".join(render(found, script.source) for found in script.diagnostics)
    assert queries(path) or path.stem == "drop"


@every_file
def test_a_script_says_what_it_is(path: Path) -> None:
    assert re.match(r"(?:#\n)*(?:--|#) \w", path.read_text(encoding="utf-8"))


@every_file
def test_every_place_lies_within_the_script(path: Path) -> None:
    script = parsed(path)
    for statement in script.statements:
        for node in nodes(statement):
            assert 0 <= node.span.start <= node.span.end <= len(script.source.text), node


def nodes(tree: ast.Node) -> list[ast.Node]:
    found: list[ast.Node] = []

    def note(node: ast.Node) -> ast.Node:
        found.append(node)
        return node

    rewrite(tree, note)
    return found


# --------------------------------------------------------------------------- STREAM's scripts and their twins


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".script"], ids=lambda path: path.stem)
def test_a_stream_script_and_its_twin_in_cql_say_the_same(path: Path) -> None:
    def without_declaration(statement: ast.Statement) -> ast.Statement:
        return replace(statement, kind=None, types=()) if isinstance(statement, ast.CreateView) else statement

    said = [without_declaration(statement) for statement in parsed(path).statements]
    assert said == list(parsed(path.with_suffix(".cql")).statements)


# -------------------------------------------------------------------------------------------- what is covered


def test_nexmark_has_every_query_or_says_why_not() -> None:
    excused = set(
        re.findall(r"^\| q(\d+) \|", (CORPUS / "nexmark/README.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for number in NEXMARK:
        path = CORPUS / f"nexmark/q{number}.cql"
        if not path.exists():
            assert str(number) in excused
            continue
        names = [s.name.text for s in parsed(path).statements if isinstance(s, ast.RegisterQuery)]
        assert names[0] == f"q{number}"


@pytest.mark.parametrize(
    ("folder", "at_least"),
    [("thesis", 20), ("stream", 50), ("auction", 11), ("linearroad", 5), ("language", 200)],
)
def test_a_folder_holds_enough_queries(folder: str, at_least: int) -> None:
    assert sum(len(queries(path)) for path in FILES if path.parent.name == folder) >= at_least


def kinds_of_query_nodes() -> Iterator[type[ast.Node]]:
    """Every node that a query can consist of, without the classes that only group others."""
    for name in ast.__all__:
        kind = getattr(ast, name)
        if is_dataclass(kind) and not issubclass(kind, ast.Statement) and not kind.__subclasses__():
            if kind.__module__ in ("cql.ast.queries", "cql.ast.expressions") and fields(kind):
                yield kind


def test_every_kind_of_query_node_occurs() -> None:
    seen = {type(node) for path in FILES for statement in parsed(path).statements for node in nodes(statement)}
    assert set(kinds_of_query_nodes()) - seen == set()


@pytest.mark.parametrize("function", sorted({*CALLABLE, *AGGREGATES}))
def test_every_function_is_called_in_the_language_folder(function: str) -> None:
    called = {
        node.function.key
        for path in FILES
        if path.parent.name == "language"
        for query in parsed(path).statements
        for node in nodes(query)
        if isinstance(node, ast.Call)
    }
    assert function in called


def test_needed_functions_are_read_from_a_comment() -> None:
    assert needed_functions((CORPUS / "thesis/packet_filter.cql").read_text(encoding="utf-8")) == [
        NeededFunction("lookup", ("STRING",), "BOOLEAN"),
        NeededFunction("match", ("STRING", "STRING"), "BOOLEAN"),
    ]
