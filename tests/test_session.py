"""Running statements: all or nothing, every mistake reported once, names of bare queries, listings, settings."""

import pytest

from cql import Catalog, Code, CqlError, ast
from cql.catalog import QueryDef, RelationDef, StreamDef, ViewDef
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.parsing import parse_statement
from cql.parsing.splitting import split_statements
from cql.session import SHOWABLE, Session
from cql.settings import Settings
from cql.source import SourceText
from tests.binding import TABLES, marked, schema, tables


def session() -> Session:
    return Session(tables())


def failure(text: str, on: Session | None = None) -> list[tuple[str, str]]:
    """Return what is wrong with a script, and check that it changed nothing."""
    running = on or session()
    before = running.catalog.to_json()
    with pytest.raises(CqlError) as caught:
        running.run(text)
    assert running.catalog.to_json() == before
    assert caught.value.source is not None
    assert caught.value.source.text == text
    return marked(caught.value, text)


# What statements define


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("CREATE STREAM z (a INT, t BIGINT) TIMESTAMP BY T", "a INT, t BIGINT!"),
        (
            "CREATE STREAM z (d DECIMAL, e NUMERIC(5,1) NOT NULL, t TIMESTAMP) TIMESTAMP BY t",
            "d DECIMAL(10,0), e DECIMAL(5,1)!, t TIMESTAMP!",
        ),
        ("CREATE RELATION z (a INT NOT NULL, b CHAR(3))", "a INT!, b STRING"),
        ("CREATE RELATION z (t TIMESTAMP, a INT, g INT) TIMESTAMP BY t SIGN BY g", "a INT"),
        ("REGISTER STREAM z (a integer, b real, c byte, d char(10))", "a INT, b DOUBLE, c STRING, d STRING"),
        ("REGISTER RELATION z (a int)", "a INT"),
    ],
)
def test_tables(statement: str, columns: str) -> None:
    catalog = Catalog()
    catalog.execute(statement)
    table = catalog.table("Z")
    assert isinstance(table, StreamDef | RelationDef)
    assert schema(table.scan()) == columns


@pytest.mark.parametrize(
    ("delay", "time", "ticks"),
    [
        ("", "INT", 0),
        ("DELAY 5 SECONDS", "INT", 5),
        ("DELAY 5 SECONDS", "TIMESTAMP", 5_000_000),
        ("DELAY '1 minute'", "BIGINT", 60),
        ("DELAY INTERVAL '5' MILLISECONDS", "TIMESTAMP", 5_000),
    ],
)
def test_delay_in_ticks(delay: str, time: str, ticks: int) -> None:
    catalog = Catalog()
    catalog.execute(f"CREATE STREAM z (t {time}) TIMESTAMP BY t {delay}")
    assert catalog.streams["z"].delay == ticks


def test_formats_of_spark_are_known_in_any_case() -> None:
    catalog = tables("""
        CREATE STREAM z (a INT, t INT) TIMESTAMP BY t FROM CSV OPTIONS (PATH 'z.csv', Header true, maxColumns 10);
        CREATE RELATION y (a INT) FROM MyOwnFormat OPTIONS (anything.goes -1);
        REGISTER QUERY q AS SELECT a FROM z INTO Parquet OPTIONS (path 'out');
    """)
    source, own, sink = catalog.streams["z"].source, catalog.relations["y"].source, catalog.queries["q"].sink
    assert source is not None and own is not None and sink is not None
    assert (source.format, source.options) == ("csv", {"PATH": "z.csv", "Header": "true", "maxColumns": "10"})
    assert (own.format, own.options) == ("MyOwnFormat", {"anything.goes": "-1"})
    assert sink.format == "parquet"


BAD_STATEMENTS: dict[str, list[tuple[str, str]]] = {
    "CREATE STREAM z TIMESTAMP BY t": [("BAD_DEFINITION", "z")],
    "CREATE STREAM z (a INT, A INT, t INT) TIMESTAMP BY t": [("DUPLICATE_NAME", "A")],
    "CREATE STREAM z (a FOO, b BAR(1), t INT) TIMESTAMP BY t": [("UNKNOWN_TYPE", "FOO"), ("UNKNOWN_TYPE", "BAR(1)")],
    "CREATE STREAM z (a INT, t INT) TIMESTAMP BY u": [("UNKNOWN_COLUMN", "u")],
    "CREATE STREAM z (t STRING) TIMESTAMP BY t": [("BAD_TIMESTAMP", "t")],
    "CREATE STREAM z (t BYTE) TIMESTAMP BY t": [("BAD_TIMESTAMP", "t")],
    "CREATE STREAM z (t INT) TIMESTAMP BY t DELAY 5 MS": [("BAD_TIMESTAMP", "5 MS")],
    "CREATE STREAM z (t INT) TIMESTAMP BY t DELAY '-5 seconds'": [("BAD_TIMESTAMP", "'-5 seconds'")],
    "CREATE RELATION z (t INT, g INT) TIMESTAMP BY t SIGN BY g": [("BAD_DEFINITION", "z")],
    "CREATE RELATION z (a INT, t INT) TIMESTAMP BY t SIGN BY t": [("BAD_TIMESTAMP", "t")],
    "CREATE RELATION z (a INT, t INT, g DOUBLE) TIMESTAMP BY t SIGN BY g": [("BAD_TIMESTAMP", "g")],
    "CREATE RELATION z (a INT) FROM csv": [("BAD_DEFINITION", "FROM csv")],
    "CREATE RELATION z (a INT) FROM csv OPTIONS (path 'z', hedaer 'true')": [("UNKNOWN_OPTION", "hedaer")],
    "CREATE RELATION z (a INT) FROM csv OPTIONS (path 'z', PATH 'y')": [("DUPLICATE_NAME", "PATH")],
    "REGISTER STREAM z (a INT) FROM csv SCHEMA INFERRED OPTIONS (path 'z')": [
        ("CANNOT_INFER", "FROM csv SCHEMA INFERRED OPTIONS (path 'z')")
    ],
    "CREATE VIEW z (a, b) AS SELECT a FROM S": [("COLUMN_COUNT", "z")],
    "CREATE VIEW z (a, A) AS SELECT a, b FROM S": [("DUPLICATE_NAME", "A")],
    "CREATE VIEW z AS SELECT zz FROM S": [("UNKNOWN_COLUMN", "zz")],
    "REGISTER QUERY z AS SELECT a FROM S WITH (speed = 'high')": [("UNKNOWN_OPTION", "speed")],
    "REGISTER QUERY z AS SELECT a FROM S INTO csv OPTIONS (path 'a', path 'b')": [("DUPLICATE_NAME", "path")],
    "SET speed = high": [("UNKNOWN_OPTION", "speed")],
    "SET empty_aggregate = maybe": [("BAD_OPTION_VALUE", "maybe")],
    "SET empty_aggregate = 1 + 1": [("BAD_OPTION_VALUE", "1 + 1")],
    "SET empty_aggregate = NULL": [("BAD_OPTION_VALUE", "NULL")],
    "SHOW NOTHING": [("UNKNOWN_OPTION", "NOTHING")],
    "DESCRIBE nothing": [("UNKNOWN_TABLE", "nothing")],
    "EXPLAIN QUERY nothing": [("UNKNOWN_QUERY", "nothing")],
    "EXPLAIN SELECT zz FROM S": [("UNKNOWN_COLUMN", "zz")],
    "DROP STREAM nothing": [("UNKNOWN_TABLE", "nothing")],
}


@pytest.mark.parametrize("statement", BAD_STATEMENTS)
def test_a_statement_that_is_wrong_changes_nothing(statement: str) -> None:
    assert failure(statement) == BAD_STATEMENTS[statement]


@pytest.mark.parametrize("statement", BAD_STATEMENTS)
def test_a_single_statement_that_fails_changes_nothing(statement: str) -> None:
    running = session()
    before = running.catalog.to_json()
    with pytest.raises(CqlError):
        running.run_statement(parse_statement(statement))
    assert running.catalog.to_json() == before


# Scripts


def test_a_script_is_run_wholly_or_not_at_all() -> None:
    script = "CREATE VIEW v AS SELECT a FROM S; SET empty_aggregate = stream; SELECT zz FROM v; SELECT 1 FROM v;"
    running = session()
    assert failure(script, running) == [("UNKNOWN_COLUMN", "zz")]
    assert running.catalog.settings == Settings()
    assert [o.definition.name for o in running.run("SELECT a FROM S") if o.definition] == ["q1"]


def test_a_later_statement_sees_what_earlier_ones_did() -> None:
    running = session()
    outcomes = running.run("""
        CREATE VIEW v AS SELECT a FROM S;
        CREATE VIEW w AS SELECT a AS b FROM v;
        REGISTER QUERY top AS SELECT b FROM w;
        DROP QUERY top;
        DROP VIEW w;
        CREATE VIEW w AS SELECT 1 AS c FROM v;
        SELECT c FROM w;
    """)
    assert [type(outcome.definition) for outcome in outcomes] == [
        *(ViewDef, ViewDef, QueryDef, type(None), type(None), ViewDef, QueryDef)
    ]
    assert schema(running.catalog.queries["q1"].tree) == "c INT!"


def test_all_independent_mistakes_are_reported_in_order() -> None:
    script = """
        CREATE STREAM z (a FOO, t INT) TIMESTAMP BY t;
        SELECT zz, yy FROM S;
        SELECT a FROM S WHERE;
        CREATE VIEW v AS SELECT a FROM nowhere;
        SET speed = high;
    """
    assert failure(script) == [
        ("UNKNOWN_TYPE", "FOO"),
        ("UNKNOWN_COLUMN", "zz"),
        ("UNKNOWN_COLUMN", "yy"),
        ("SYNTAX", ""),
        ("UNKNOWN_TABLE", "nowhere"),
        ("UNKNOWN_OPTION", "speed"),
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CREATE STREAM z (a FOO, t INT) TIMESTAMP BY t; SELECT * FROM z;", [("UNKNOWN_TYPE", "FOO")]),
        ("CREATE STREAM z (a FOO, t INT) TIMESTAMP BY t; SELECT 1 FROM Z; DROP STREAM z", [("UNKNOWN_TYPE", "FOO")]),
        (
            "CREATE VIEW z AS SELECT zz FROM S; CREATE VIEW y AS SELECT * FROM z; SELECT a FROM y, S;",
            [("UNKNOWN_COLUMN", "zz")],
        ),
        ("REGISTER QUERY z AS SELECT zz FROM S; DROP QUERY z; EXPLAIN QUERY z;", [("UNKNOWN_COLUMN", "zz")]),
        ('CREATE VIEW "my v" AS SELECT zz FROM S; SELECT * FROM "My V";', [("UNKNOWN_COLUMN", "zz")]),
        ("SELECT zz FROM S; SELECT a FROM S; DROP QUERY q1; DROP QUERY q2;", [("UNKNOWN_COLUMN", "zz")]),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_what_follows_from_an_earlier_mistake_is_not_reported(script: str, expected: list[tuple[str, str]]) -> None:
    assert failure(script) == expected


def test_names_that_nothing_should_have_defined_are_reported_each_time() -> None:
    assert failure("DESCRIBE nothing; DROP VIEW nothing; SELECT * FROM nothing;") == [("UNKNOWN_TABLE", "nothing")] * 3


def test_a_failed_script_leaves_nothing_behind_for_the_next() -> None:
    running = session()
    failure("CREATE VIEW v AS SELECT zz FROM S;", running)
    assert failure("SELECT * FROM v;", running) == [("UNKNOWN_TABLE", "v")]


def test_run_script_goes_on_and_returns_what_is_wrong() -> None:
    running = session()
    outcomes, found = running.run_script(SourceText("x", "SELECT zz FROM S; SELECT a FROM S; SHOW STREAMS"))
    assert [diagnostic.code for diagnostic in found] == [Code.UNKNOWN_COLUMN]
    assert [type(outcome.statement) for outcome in outcomes] == [ast.QueryStatement, ast.Show]
    assert list(running.catalog.queries) == ["q2"]


@pytest.mark.parametrize("text", ["", "   ", "-- nothing\n", ";;;", "/* nothing */ ;"])
def test_a_script_of_nothing_does_nothing(text: str) -> None:
    assert session().run(text) == []


# Bare queries


def test_bare_queries_are_numbered_in_order() -> None:
    running = session()
    running.run("SELECT a FROM S; REGISTER QUERY q3 AS SELECT a FROM U; SELECT b FROM S; SELECT x FROM S;")
    running.run("SELECT s FROM S;")
    assert {name: query.text for name, query in running.catalog.queries.items()} == {
        "q1": "SELECT a FROM S",
        "q3": "SELECT a FROM U",
        "q2": "SELECT b FROM S",
        "q4": "SELECT x FROM S",
        "q5": "SELECT s FROM S",
    }


def test_a_bare_query_that_fails_takes_no_number() -> None:
    running = session()
    with pytest.raises(CqlError):
        running.run_statement(parse_statement("SELECT zz FROM S"))
    outcome = running.run_statement(parse_statement("SELECT a FROM S"))
    assert outcome.definition is not None
    assert outcome.definition.name == "q1"


# Listings


def listing(statement: str, on: Session | None = None) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    (outcome,) = (on or session()).run(statement)
    assert outcome.listing is not None
    for row in outcome.listing.rows:
        assert len(row) == len(outcome.listing.columns)
        assert all(isinstance(cell, str) for cell in row)
    return outcome.listing.columns, outcome.listing.rows


def test_show_streams() -> None:
    columns, rows = listing("SHOW streams")
    assert columns == ("stream", "columns", "timestamp", "delay", "source")
    assert rows[1] == ("U", "a INT, c STRING, t INT", "t", "0 seconds", "")
    assert rows[3] == ("O", "a INT, b INT", "(first column)", "0 seconds", "")
    session_with_delays = session()
    session_with_delays.run("CREATE STREAM m (at TIMESTAMP) TIMESTAMP BY at DELAY 1 MINUTE")
    (outcome,) = session_with_delays.run("SHOW STREAMS")
    assert outcome.listing is not None
    assert outcome.listing.rows[-1] == ("m", "at TIMESTAMP", "at", "1 minute", "")


def test_show_relations() -> None:
    _, rows = listing("SHOW RELATIONS")
    assert rows == (("R", "a INT, r STRING", "static", ""), ("L", "a INT, l STRING", "signed log", ""))


def test_show_views_and_queries() -> None:
    running = session()
    running.run("""
        create view v as select a from S [rows 2];
        select a from v;
        register query w as select a from S into json options (path 'o');
    """)
    assert listing("SHOW VIEWS", running)[1] == (("v", "relation", "a INT", "SELECT a FROM S [ROWS 2]"),)
    assert listing("SHOW QUERIES", running)[1] == (
        ("q1", "relation", "a INT", "", "SELECT a FROM v"),
        ("w", "stream", "a INT", "json", "SELECT a FROM S"),
    )


def test_show_functions_lists_all_that_can_be_called() -> None:
    running = session()

    @running.catalog.function
    def twice(x: int) -> int:
        return 2 * x

    _, rows = listing("SHOW FUNCTIONS", running)
    assert [row[0] for row in rows] == [*CALLABLE, *AGGREGATES, "twice"]
    assert rows[-1][1:3] == ("your scalar", "twice(BIGINT) -> BIGINT")


def test_show_settings_tells_values_and_choices() -> None:
    running = session()
    running.run("SET Range_Bounds = 'CLOSED'; SET rstream_clock = tick")
    shown = {row[0]: row[1:3] for row in listing("SHOW SETTINGS", running)[1]}
    assert set(shown) == set(Settings.model_fields)
    assert shown["empty_aggregate"] == ("sql", "sql or stream")
    assert shown["rstream_clock"] == ("tick", "auto, tick or element")
    assert shown["range_bounds"] == ("closed", "half_open or closed")


@pytest.mark.parametrize("what", [what for what in SHOWABLE if what not in ("STATS", "SHEDDING", "DECISIONS")])
def test_everything_showable_can_be_shown_of_nothing(what: str) -> None:
    listing(f"SHOW {what}", Session())


def test_what_runs_is_left_to_the_caller() -> None:
    running = session()
    first, *_, start, _, stats, stop = running.run(
        "SELECT a FROM S; SET sharing = off; START; SELECT b FROM S; SHOW SHEDDING; STOP"
    )
    assert isinstance(start.request, Catalog)
    assert list(start.request.queries.values()) == [first.definition]
    assert start.request.settings.sharing == "off"
    for outcome in (stats, stop):
        assert outcome.definition is outcome.listing is outcome.request is None


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("u", (("a", "INT", "yes", ""), ("c", "STRING", "yes", ""), ("t", "INT", "no", "timestamp"))),
        ("R", (("a", "INT", "no", ""), ("r", "STRING", "yes", ""))),
        ("v", (("n", "BIGINT", "no", ""),)),
        ("W", (("n", "BIGINT", "no", ""),)),
    ],
)
def test_describe(name: str, rows: tuple[tuple[str, ...], ...]) -> None:
    running = session()
    running.run("CREATE VIEW v AS SELECT COUNT(*) AS n FROM S; REGISTER QUERY w AS SELECT n FROM v")
    assert listing(f"DESCRIBE {name}", running) == (("column", "type", "null", "note"), rows)


def test_explain_hands_over_what_to_explain() -> None:
    running = session()
    running.run("REGISTER QUERY w AS SELECT a FROM S")
    by_name, all_of_them, bare = running.run("EXPLAIN QUERY W; EXPLAIN JSON ALL; EXPLAIN SELECT a FROM S")
    assert by_name.request is running.catalog.queries["w"]
    assert all_of_them.request == (running.catalog.queries["w"],)
    assert bare.request == running.catalog.queries["w"].tree
    assert list(running.catalog.queries) == ["w"]


# Settings


def test_a_setting_holds_for_the_statements_after_it() -> None:
    running = session()
    running.run("SELECT COUNT(*) FROM S; SET empty_aggregate = stream; SELECT COUNT(*) FROM S;")
    assert [query.settings.empty_aggregate for query in running.catalog.queries.values()] == ["sql", "stream"]


@pytest.mark.parametrize(("value", "kept"), [("stream", "stream"), ("'STREAM'", "stream"), ("Sql", "sql")])
def test_values_of_settings_in_any_spelling(value: str, kept: str) -> None:
    running = session()
    running.run(f"SET EMPTY_AGGREGATE = {value}")
    assert running.catalog.settings.empty_aggregate == kept


SCRIPT = """
CREATE STREAM a (v INT, t INT) TIMESTAMP BY t FROM csv OPTIONS (path 'in/a.csv');
SET paths_from = script;
CREATE STREAM b (v INT, t INT) TIMESTAMP BY t FROM csv OPTIONS (path 'in/b.csv', header true);
CREATE RELATION c (v INT) FROM parquet OPTIONS (path '/data/c');
CREATE RELATION d (v INT) FROM parquet OPTIONS (path 's3a://data/d');
REGISTER STREAM e (v INT) FROM stream OPTIONS (path '12:00.dat');
REGISTER QUERY q AS SELECT v FROM a INTO csv OPTIONS (path 'out');
"""


@pytest.mark.parametrize(("name", "start"), [("/some/where/x.cql", "/some/where/"), ("<stdin>", "")])
def test_paths_start_at_the_script_if_it_is_a_file_and_wants_it(name: str, start: str) -> None:
    running = Session()
    running.run(SCRIPT, name)
    tables = [*running.catalog.streams.values(), *running.catalog.relations.values()]
    assert {table.name: table.source and table.source.options["path"] for table in tables} == {
        "a": "in/a.csv",
        "b": f"{start}in/b.csv",
        "c": "/data/c",
        "d": "s3a://data/d",
        "e": f"{start}12:00.dat",
    }
    sink = running.catalog.queries["q"].sink
    assert sink is not None and sink.options == {"path": f"{start}out"}


def test_the_tables_of_all_tests_are_one_script() -> None:
    assert len(Session().run(TABLES)) == 6


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a#b;c\nd;e", ["a#b;c\nd", "e"]),
        ("a--x;y\n;b", ["a", "b"]),
        ("a/*;*/b;c", ["a/*;*/b", "c"]),
        ("1-1;2/3;--", ["1-1", "2/3"]),
    ],
)
def test_comments_hide_semicolons_wherever_they_start(text: str, pieces: list[str]) -> None:
    found = split_statements(text)
    assert [text[piece.span.start : piece.span.end] for piece in found] == pieces
