"""The catalog: JSON and back, dropping, names in any case, and functions of the user."""

import datetime
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, cast

import pytest

from cql import Catalog, Code, CqlError, bound
from tests.binding import bind, problems, schema, tables, types

SCRIPT = """
SET range_bounds = closed;
CREATE VIEW recent AS SELECT a, s FROM S [Range 10 Seconds];
SET range_bounds = half_open;
SET empty_aggregate = stream;
CREATE VIEW per_text (text, n) AS SELECT s, COUNT(*) FROM recent GROUP BY s;
CREATE STREAM clicks (url STRING NOT NULL, price DECIMAL(10,2), at TIMESTAMP) TIMESTAMP BY at DELAY 5 SECONDS
    FROM csv OPTIONS (path 'clicks.csv', header 'true');
REGISTER QUERY top AS SELECT text, n FROM per_text ORDER BY n DESC LIMIT 3 INTO json OPTIONS (path 'out');
SELECT "A", 'it''s' FROM S WHERE a IN (1, 2);
"""


# JSON


def test_a_catalog_goes_to_json_and_back() -> None:
    catalog = tables(SCRIPT)
    text = catalog.to_json()
    loaded = Catalog.from_json(text)
    assert loaded.to_json() == text
    assert loaded.streams == catalog.streams
    assert loaded.relations == catalog.relations
    for name, view in catalog.views.items():
        assert loaded.views[name].tree == view.tree
    for name, query in catalog.queries.items():
        assert loaded.queries[name].tree == query.tree
    assert loaded.settings == catalog.settings


def test_a_loaded_view_has_the_settings_it_was_defined_with() -> None:
    loaded = Catalog.from_json(tables(SCRIPT).to_json())
    windows = [str(node.spec) for node in _nodes(loaded.views["per_text"].tree) if isinstance(node, bound.Window)]
    assert windows == ["Range 11"]
    assert loaded.settings.range_bounds == "half_open"


def test_a_loaded_catalog_goes_on_as_before() -> None:
    loaded = Catalog.from_json(tables(SCRIPT).to_json())
    loaded.execute("CREATE VIEW more AS SELECT n FROM per_text; SELECT * FROM more")
    assert schema(loaded.queries["q2"].tree) == "n BIGINT!"


def _nodes(tree: bound.Rel) -> list[bound.Rel]:
    return [tree, *(node for below in bound.inputs(tree) for node in _nodes(below))]


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no catalog": lambda catalog: catalog.update(streams=7),
    "another version": lambda catalog: catalog.update(version=99),
    "unknown part": lambda catalog: catalog.update(tables={}),
    "unknown type": lambda catalog: catalog["streams"]["s"]["columns"][0].update(type="FOO"),
    "bad parameters": lambda catalog: catalog["streams"]["s"]["columns"][0].update(type="DECIMAL(99,1)"),
    "no timestamp": lambda catalog: catalog["streams"]["s"].update(timestamp="nowhere"),
    "unknown setting": lambda catalog: catalog["settings"].update(speed="high"),
    "unknown clock": lambda catalog: catalog["streams"]["s"].update(time="sundial"),
    "a view that does not parse": lambda catalog: catalog["views"]["recent"].update(text="SELECT FROM"),
    "a view of nothing": lambda catalog: catalog["views"]["recent"].update(text="SELECT a FROM nowhere"),
    "a view with too many names": lambda catalog: catalog["views"]["recent"].update(columns=["a", "b", "c"]),
    "a query that does not bind": lambda catalog: catalog["queries"]["top"].update(text="SELECT zz FROM S"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_json_that_is_no_catalog_is_an_error(what: str) -> None:
    content = json.loads(tables(SCRIPT).to_json())
    BROKEN[what](content)
    with pytest.raises(CqlError):
        Catalog.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"streams": {"s": null}}', "\ud800"])
def test_text_that_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(CqlError):
        Catalog.from_json(text)


def test_a_view_that_no_longer_binds_is_named() -> None:
    content = json.loads(tables(SCRIPT).to_json())
    content["views"]["recent"]["text"] = "SELECT zz FROM S"
    with pytest.raises(CqlError) as caught:
        Catalog.from_json(json.dumps(content))
    assert caught.value.render().startswith("<recent>:1:8: E202")


# Names


def test_names_are_found_in_any_case() -> None:
    catalog = tables("CREATE VIEW Kept AS SELECT a FROM s; REGISTER QUERY Top AS SELECT A FROM KEPT;")
    assert catalog.table("KEPT").name == "Kept"
    assert catalog.query("tOP").name == "Top"
    assert catalog.find("r") is catalog.relations["r"]
    assert catalog.find("nowhere") is None
    assert [table.name for table in catalog.tables()] == ["S", "U", "E", "O", "R", "L", "Kept"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE STREAM s (a INT, t INT) TIMESTAMP BY t",
        "CREATE RELATION S (a INT)",
        "CREATE VIEW s AS SELECT * FROM U",
        "REGISTER STREAM r (a INT)",
        "REGISTER QUERY TOP AS SELECT * FROM S",
    ],
)
def test_a_name_is_given_once(statement: str) -> None:
    catalog = tables("REGISTER QUERY top AS SELECT * FROM S;")
    with pytest.raises(CqlError) as caught:
        catalog.execute(statement)
    assert [d.code for d in caught.value.diagnostics] == [Code.DUPLICATE_NAME]


def test_queries_have_names_of_their_own() -> None:
    catalog = tables("REGISTER QUERY S AS SELECT * FROM S;")
    assert catalog.query("s").depends_on == ("S",)


@pytest.mark.parametrize("name", ["nowhere", "S", ""])
def test_an_unknown_query_is_an_error(name: str) -> None:
    with pytest.raises(CqlError) as caught:
        tables().query(name)
    assert [d.code for d in caught.value.diagnostics] == [Code.UNKNOWN_QUERY]


# Dropping


def test_what_is_dropped_is_gone_and_its_name_free() -> None:
    catalog = tables("CREATE VIEW v AS SELECT a FROM S; REGISTER QUERY q AS SELECT * FROM v;")
    catalog.execute("DROP QUERY Q; DROP VIEW V; DROP STREAM s; CREATE RELATION s (z INT);")
    assert (list(catalog.views), list(catalog.queries)) == ([], [])
    assert schema(bind("SELECT * FROM S", catalog)) == "z INT"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("DROP STREAM S", Code.IN_USE),
        ("DROP VIEW v", Code.IN_USE),
        ("DROP RELATION l", Code.IN_USE),
        ("DROP RELATION S", Code.UNKNOWN_TABLE),
        ("DROP STREAM nowhere", Code.UNKNOWN_TABLE),
        ("DROP QUERY S", Code.UNKNOWN_QUERY),
        ("DROP VIEW q", Code.UNKNOWN_TABLE),
    ],
)
def test_what_cannot_be_dropped_stays(statement: str, code: Code) -> None:
    catalog = tables("""
        CREATE VIEW v AS SELECT S.a FROM S WHERE a IN (SELECT a FROM L);
        REGISTER QUERY q AS WITH w AS (SELECT * FROM V) SELECT * FROM w;
    """)
    before = catalog.to_json()
    with pytest.raises(CqlError) as caught:
        catalog.execute(statement)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert catalog.to_json() == before


def test_dependants_are_those_that_name_a_table() -> None:
    catalog = tables("CREATE VIEW v AS SELECT a FROM S; REGISTER QUERY q AS SELECT v.a FROM v, U;")
    assert {name: catalog.dependants(name) for name in ("s", "V", "U", "R")} == {
        "s": ["v"],
        "V": ["q"],
        "U": ["q"],
        "R": [],
    }


# Functions of the user


def plus_one(x: int) -> int:
    return x + 1


class Total:
    def __init__(self) -> None:
        self.sum = 0.0

    def add(self, x: float) -> None:
        self.sum += x

    def remove(self, x: float) -> None:
        self.sum -= x

    def result(self) -> float:
        return self.sum


def test_a_function_is_registered_by_decorator_or_call() -> None:
    catalog = tables()

    @catalog.function
    def twice(x: int) -> int:
        return 2 * x

    @catalog.function(name="Shout", arguments=["VARCHAR(10)", "INT"], returns="STRING")
    def anything(text, count):  # type: ignore[no-untyped-def]
        return text

    assert catalog.function(plus_one) is plus_one
    assert catalog.function(lambda: 7, name="seven", arguments=[], returns="INT")() == 7
    assert twice(4) == 8
    query = "SELECT TWICE(a), shout('a', 1), plus_one(1), seven() FROM S"
    assert types(bind(query, catalog)) == "BIGINT, STRING, BIGINT, INT"
    assert catalog.functions["twice"].code is twice


def test_types_come_from_annotations_where_none_are_declared() -> None:
    catalog = tables()

    @catalog.function
    def all_of_them(
        a: bool,
        b: int,
        c: float,
        d: str,
        e: datetime.datetime,
        f: int | None,
        g: Optional[str] = None,  # noqa: UP045
    ) -> float | None:
        return None

    @catalog.function(returns="DECIMAL(10,2)")
    def half_declared(x: int):  # type: ignore[no-untyped-def]
        return x

    made = catalog.functions["all_of_them"]
    assert made.arguments == ("BOOLEAN", "BIGINT", "DOUBLE", "STRING", "TIMESTAMP", "BIGINT", "STRING")
    assert made.returns == "DOUBLE"
    assert (catalog.functions["half_declared"].arguments, catalog.functions["half_declared"].returns) == (
        ("BIGINT",),
        "DECIMAL(10,2)",
    )


def test_an_aggregate_says_what_it_can_do() -> None:
    catalog = tables()
    catalog.aggregate(Total)

    @catalog.aggregate(name="longest", arguments=["STRING"], returns="STRING")
    class Longest:
        def add(self, text): ...  # type: ignore[no-untyped-def]
        def merge(self, other): ...  # type: ignore[no-untyped-def]
        def result(self): ...  # type: ignore[no-untyped-def]

    abilities = {name: (made.can_remove, made.can_merge) for name, made in catalog.aggregates.items()}
    assert abilities == {"total": (True, False), "longest": (False, True)}
    assert types(bind("SELECT total(a), LONGEST(s) FROM S", catalog)) == "DOUBLE, STRING"


BAD_FUNCTIONS: dict[str, Callable[[Catalog], object]] = {
    "no annotations": lambda c: c.function(lambda x: x, name="f"),
    "no name": lambda c: c.function(lambda x: x, arguments=["INT"], returns="INT"),
    "no name at all": lambda c: c.function(functools.partial(plus_one, 1), arguments=[], returns="INT"),
    "a name of two words": lambda c: c.function(plus_one, name="plus one"),
    "a list as annotation": lambda c: c.function(_annotated(x=list[int]), name="f"),
    "a choice as annotation": lambda c: c.function(_annotated(x=int | str), name="f"),
    "an unknown name as annotation": lambda c: c.function(_annotated(x="Nonsense"), name="f"),
    "too many arguments declared": lambda c: c.function(plus_one, arguments=["INT", "INT"], returns="INT"),
    "too few arguments declared": lambda c: c.function(plus_one, arguments=[], returns="INT"),
    "an argument that needs its name": lambda c: c.function(_needs_name, arguments=["INT"], returns="INT"),
    "arguments in one text": lambda c: c.function(plus_one, arguments="INT", returns="INT"),
    "not a function": lambda c: c.function(cast(Any, 42), name="f", arguments=[], returns="INT"),
    "a function of C without annotations": lambda c: c.function(max, name="largest"),
    "an aggregate without add": lambda c: c.aggregate(type("A", (), {"result": lambda self: 1})),
    "an aggregate that is no class": lambda c: c.aggregate(cast(Any, plus_one)),
    "an aggregate that needs a start": lambda c: c.aggregate(_aggregate(__init__=lambda self, start: None), **_INTS),
    "an aggregate whose add takes nothing": lambda c: c.aggregate(_aggregate(add=lambda self: None), **_INTS),
    "an aggregate whose remove takes two": lambda c: c.aggregate(_aggregate(remove=lambda self, x, y: 0), **_INTS),
    "an aggregate whose merge takes nothing": lambda c: c.aggregate(_aggregate(merge=lambda self: None), **_INTS),
    "an aggregate without annotations": lambda c: c.aggregate(_aggregate()),
}
_INTS: dict[str, Any] = {"arguments": ["INT"], "returns": "INT"}


def _annotated(**annotations: Any) -> Callable[..., Any]:
    def code(x):  # type: ignore[no-untyped-def]
        return x

    code.__annotations__ = annotations | {"return": int}
    return code


def _needs_name(*, x: int) -> int:
    return x


def _aggregate(**methods: Any) -> type:
    return type("A", (), {"add": lambda self, x: None, "result": lambda self: None} | methods)


@pytest.mark.parametrize("what", BAD_FUNCTIONS)
def test_a_bad_definition_is_an_error_and_registers_nothing(what: str) -> None:
    catalog = tables()
    with pytest.raises(CqlError) as caught:
        BAD_FUNCTIONS[what](catalog)
    assert [d.code for d in caught.value.diagnostics] == [Code.BAD_DEFINITION]
    assert not catalog.functions
    assert not catalog.aggregates


@pytest.mark.parametrize("declared", ["FOO", "DECIMAL(99,1)", "", "INTERVAL", 7])
def test_an_unknown_type_is_an_error(declared: Any) -> None:
    for types_declared in ({"arguments": [declared], "returns": "INT"}, {"arguments": ["INT"], "returns": declared}):
        with pytest.raises(CqlError) as caught:
            tables().function(plus_one, **types_declared)
        assert [d.code for d in caught.value.diagnostics] == [Code.UNKNOWN_TYPE]


@pytest.mark.parametrize("name", ["upper", "UPPER", "ceiling", "Count", "plus_one", "Plus_One", "total"])
def test_a_function_has_a_name_of_its_own(name: str) -> None:
    catalog = tables()
    catalog.function(plus_one)
    catalog.aggregate(Total)
    for register in (lambda: catalog.function(plus_one, name=name), lambda: catalog.aggregate(Total, name=name)):
        with pytest.raises(CqlError) as caught:
            register()
        assert [d.code for d in caught.value.diagnostics] == [Code.DUPLICATE_NAME]


def test_functions_go_to_json_as_the_place_of_their_code() -> None:
    catalog = tables()
    catalog.function(plus_one)
    catalog.aggregate(Total)
    catalog.execute("REGISTER QUERY q AS SELECT plus_one(a), total(x) FROM S GROUP BY a")
    loaded = Catalog.from_json(catalog.to_json(), trusted=True)
    assert loaded.functions["plus_one"].code is plus_one
    assert loaded.aggregates["total"].code is Total
    assert loaded.queries["q"].tree == catalog.queries["q"].tree


def test_code_is_imported_only_for_those_who_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    catalog = tables()
    catalog.function(plus_one)
    text = catalog.to_json().replace(__name__, "never_imported")
    with pytest.raises(CqlError) as caught:
        Catalog.from_json(text)
    assert [d.code for d in caught.value.diagnostics] == [Code.NOT_TRUSTED]
    assert "plus_one at never_imported:plus_one" in str(caught.value.diagnostics[0].message)
    with pytest.raises(CqlError) as caught:
        _ = Catalog.model_validate_json(text).functions["plus_one"].code
    assert [d.code for d in caught.value.diagnostics] == [Code.NOT_TRUSTED]
    assert "never_imported" not in sys.modules


@pytest.mark.parametrize("location", ["nowhere:f", "tests.test_catalog:nothing", ":", "", "json"])
def test_code_that_is_gone_is_an_error_when_it_is_needed(location: str) -> None:
    catalog = tables()
    catalog.function(plus_one)
    content = json.loads(catalog.to_json())
    content["functions"]["plus_one"]["location"] = location
    loaded = Catalog.from_json(json.dumps(content), trusted=True)
    with pytest.raises(CqlError) as caught:
        _ = loaded.functions["plus_one"].code
    assert [d.code for d in caught.value.diagnostics] == [Code.UNKNOWN_FUNCTION]


def test_functions_of_one_catalog_are_unknown_to_another() -> None:
    tables().function(plus_one)
    assert problems("SELECT plus_one(a) FROM S") == [("UNKNOWN_FUNCTION", "plus_one")]
