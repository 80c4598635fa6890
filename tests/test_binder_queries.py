"""What queries are bound to: schemas, stream or relation, growth, windows in ticks, scopes; what is refused.

The tables of `tests/binding.py`: streams S and U on integer time, E on TIMESTAMP time, O in STREAM's form;
R is a static relation, L a log of changes.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from cql import Catalog, Code, CqlError, ast, bound
from cql.bound import ColumnRef, EmptyRow, Rel
from tests.binding import bind, kind, nodes, only, problems, schema, tables, types


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return tables("""
        CREATE VIEW kept AS SELECT a, s FROM S WHERE a > 1;
        CREATE VIEW counts AS SELECT s, COUNT(*) AS n FROM S GROUP BY s;
        CREATE VIEW of_kept (p, q) AS SELECT s, a FROM kept;
    """)


# The outermost result: a stream if the query says so or the result only grows (sheet 2.5), else a relation.

KINDS = {
    "SELECT * FROM S": "stream",
    "SELECT * FROM S [Range Unbounded]": "stream",
    "SELECT * FROM S [Rows Unbounded]": "stream",
    "SELECT * FROM S [Range 10 Seconds]": "relation",
    "SELECT * FROM S [Now]": "relation",
    "SELECT * FROM S [Rows 5]": "relation",
    "SELECT * FROM S [Partition By a Rows 1]": "relation",
    "SELECT * FROM R": "stream",
    "SELECT * FROM L": "relation",
    "SELECT a + 1 FROM S WHERE a > 1": "stream",
    "SELECT DISTINCT a FROM S": "stream",
    "SELECT S.a FROM S, U WHERE S.a = U.a": "stream",
    "SELECT S.a FROM S JOIN R ON S.a = R.a": "stream",
    "SELECT S.a FROM S, U [Rows 1]": "relation",
    "SELECT S.a FROM S, L": "relation",
    "SELECT S.a FROM S LEFT JOIN R ON S.a = R.a": "relation",
    "SELECT S.a FROM R RIGHT JOIN S ON S.a = R.a": "relation",
    "SELECT S.a FROM S FULL JOIN U ON S.a = U.a": "relation",
    "SELECT COUNT(*) FROM S": "relation",
    "SELECT a FROM S GROUP BY a": "relation",
    "SELECT 1 FROM S HAVING COUNT(*) > 1": "relation",
    "SELECT a FROM S UNION SELECT a FROM U": "stream",
    "SELECT a FROM S UNION ALL SELECT a FROM U": "stream",
    "SELECT a FROM S INTERSECT SELECT a FROM R": "stream",
    "SELECT a FROM S INTERSECT ALL SELECT a FROM R": "stream",
    "SELECT a FROM S EXCEPT SELECT a FROM R": "relation",
    "SELECT a FROM S EXCEPT ALL SELECT a FROM U": "relation",
    "SELECT a FROM S UNION SELECT a FROM U [Rows 1]": "relation",
    "SELECT a FROM S ORDER BY a LIMIT 3": "relation",
    "SELECT a FROM (SELECT a, ROW_NUMBER() OVER (ORDER BY b) AS n FROM S) WHERE n = 1": "relation",
    # A row that satisfies EXISTS or IN goes on to do so while what it looks into only grows.
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U WHERE U.a = S.a)": "stream",
    "SELECT a FROM S WHERE a IN (SELECT a FROM R)": "stream",
    "SELECT a FROM S WHERE a IN (SELECT a FROM L)": "relation",
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U [Rows 1])": "relation",
    "SELECT a FROM S WHERE NOT EXISTS (SELECT 1 FROM U)": "relation",
    "SELECT a FROM S WHERE a NOT IN (SELECT a FROM R)": "relation",
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U) OR a = 1": "relation",
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U) AND a = 1": "stream",
    "SELECT a FROM S WHERE a = (SELECT MAX(a) FROM U)": "relation",
    "SELECT a FROM S WHERE (SELECT MAX(a) FROM U) IN (SELECT a FROM R)": "relation",
    "SELECT a FROM S WHERE a IN (SELECT a FROM R WHERE a IN (SELECT a FROM L))": "relation",
    "SELECT S.a FROM S JOIN U ON EXISTS (SELECT 1 FROM R WHERE R.a = S.a)": "stream",
    "SELECT S.a FROM S JOIN U ON (SELECT MAX(a) FROM L) IN (SELECT a FROM R)": "relation",
    "SELECT a, EXISTS (SELECT 1 FROM U) FROM S": "relation",
    "SELECT a, (SELECT MAX(a) FROM R) FROM S": "relation",
    # Streams inside: an unbounded window over what a relation-to-stream operator gives only grows.
    "SELECT a FROM Istream(SELECT a FROM S [Rows 5])": "stream",
    "SELECT a FROM Rstream(SELECT a FROM L)": "stream",
    "SELECT a FROM Dstream(SELECT a FROM S [Rows 5]) [Rows 1]": "relation",
    "Istream(SELECT COUNT(*) FROM S)": "stream",
    "Dstream(SELECT a FROM S [Rows 5])": "stream",
    "Rstream(SELECT a FROM S [Now])": "stream",
    "SELECT Istream(a) FROM S [Rows 5]": "stream",
    "WITH v AS (SELECT a FROM S) SELECT * FROM v": "stream",
    "WITH v AS (SELECT a FROM S) SELECT * FROM v [Rows 2]": "relation",
    "S UNION S": "stream",
    "SELECT * FROM kept": "stream",
    "SELECT * FROM kept [Now]": "relation",
    "SELECT * FROM counts": "relation",
    "SELECT * FROM of_kept": "stream",
}


@pytest.mark.parametrize("query", KINDS)
def test_stream_or_relation(query: str, catalog: Catalog) -> None:
    assert kind(bind(query, catalog)) == KINDS[query]


def test_a_result_that_only_grows_is_the_stream_of_its_inserts(catalog: Catalog) -> None:
    tree = bind("SELECT a FROM S", catalog)
    assert isinstance(tree, bound.RelToStream)
    assert tree.kind is ast.RelToStreamKind.ISTREAM
    assert tree.input.grows
    assert not tree.input.is_stream


def test_a_relation_to_stream_operator_is_not_put_on_twice(catalog: Catalog) -> None:
    tree = bind("Rstream(SELECT a FROM S)", catalog)
    assert [node.kind for node in nodes(tree) if isinstance(node, bound.RelToStream)] == [ast.RelToStreamKind.RSTREAM]


# Windows

WINDOWS = {
    "S": "Unbounded",
    "S [Rows Unbounded]": "Unbounded",
    "S [Range Unbounded]": "Unbounded",
    "S [Now]": "Now",
    "S [Range 1 Second]": "Now",
    "S [Range 10]": "Range 10",
    "S [Range 10 Seconds]": "Range 10",
    "S [Range 2 Minutes]": "Range 120",
    "S [Range '1 hour 30 minutes']": "Range 5400",
    "S [Range 10 Slide 2]": "Range 10 Slide 2",
    "S [Range 10 Slide 10]": "Range 10 Slide 10",
    "S [Range 10 Slide 1]": "Range 10",
    "S [Rows 5]": "Rows 5",
    "S [Rows 5] AS X": "Rows 5",
    "S AS X [Rows 5]": "Rows 5",
    "S [Partition By a Rows 2]": "Partition By $0 Rows 2",
    "S [Partition By S.s, a, S.a Rows 2 Range 10 Seconds]": "Partition By $3, $0 Rows 2 Range 10",
    "S [Partition By X.a Rows 2] AS X": "Partition By $0 Rows 2",
    "O [Range 3]": "Range 3",
    "E [Range 10 Seconds]": "Range 10000000",
    "E [Range 1 us]": "Now",
    "E [Range 5 ms Slide 1 ms]": "Range 5000 Slide 1000",
    "E [Now]": "Now",
    "kept [Range 5 Seconds]": "Range 5",
    "(SELECT a FROM S) [Range 5 Seconds] AS q": "Range 5",
    "Istream(SELECT a FROM L) [Range 5 Seconds]": "Range 5",
    "Istream(SELECT a FROM R) [Rows 2]": "Rows 2",
    "Istream(SELECT a FROM R) [Now]": "Now",
}


@pytest.mark.parametrize("source", WINDOWS)
def test_window_in_ticks(source: str, catalog: Catalog) -> None:
    tree = bind(f"SELECT 1 FROM {source}", catalog)
    window = next(node for node in nodes(tree) if isinstance(node, bound.Window))
    assert str(window.spec) == WINDOWS[source]


CLOSED_WINDOWS = {
    "S [Range 10 Seconds]": "Range 11",
    "S [Range 0 Seconds]": "Now",
    "S [Range 10 Slide 5]": "Range 11 Slide 5",
    "S [Partition By a Rows 1 Range 10]": "Partition By $0 Rows 1 Range 11",
    "S [Now]": "Now",
    "E [Range 1 Second]": "Range 1000001",
}


@pytest.mark.parametrize("source", CLOSED_WINDOWS)
def test_closed_bounds_are_one_tick_longer(source: str) -> None:
    closed = tables("SET range_bounds = closed;")
    window = cast(bound.Window, only(bind(f"SELECT 1 FROM {source}", closed), bound.Window))
    assert str(window.spec) == CLOSED_WINDOWS[source]


BAD_WINDOWS = {
    "R [Rows 5]": ("WINDOW_ON_RELATION", "Rows 5"),
    "L [Now]": ("WINDOW_ON_RELATION", "Now"),
    "counts [Rows 5]": ("WINDOW_ON_RELATION", "Rows 5"),
    "(SELECT COUNT(*) FROM S) [Rows 5]": ("WINDOW_ON_RELATION", "Rows 5"),
    "S [Range 5 Slide 6]": ("BAD_WINDOW", "6"),
    "S [Range 0]": ("BAD_WINDOW", "0"),
    "S [Range 10 Slide 0]": ("BAD_WINDOW", "0"),
    "S [Range '-5 seconds']": ("BAD_WINDOW", "'-5 seconds'"),
    "S [Range 500 ms]": ("BAD_WINDOW", "500 ms"),
    "S [Range 999999999999999 Days]": ("BAD_WINDOW", "999999999999999 Days"),
    "S [Rows 0]": ("BAD_WINDOW", "Rows 0"),
    "S [Partition By zz Rows 1]": ("UNKNOWN_COLUMN", "zz"),
    "S [Partition By U.a Rows 1]": ("UNKNOWN_TABLE", "U"),
    "S [Partition By a Rows 0]": ("BAD_WINDOW", "Partition By a Rows 0"),
    # What never changes has no clock to measure a length of time by.
    "Istream(SELECT a FROM R) [Range 5 Seconds]": ("BAD_WINDOW", "5 Seconds"),
}


@pytest.mark.parametrize("source", BAD_WINDOWS)
def test_a_window_that_makes_no_sense(source: str, catalog: Catalog) -> None:
    assert problems(f"SELECT 1 FROM {source}", catalog) == [BAD_WINDOWS[source]]


# Time

MIXED = {
    "SELECT * FROM S, E": [("MIXED_TIME", "E")],
    "SELECT * FROM E, L": [("MIXED_TIME", "L")],
    "SELECT a FROM E UNION SELECT a FROM U": [("MIXED_TIME", "U")],
    "SELECT a FROM S WHERE a IN (SELECT a FROM E)": [("MIXED_TIME", "E")],
    "SELECT * FROM R, S, kept, E": [("MIXED_TIME", "E")],
    "SELECT * FROM E JOIN of_kept ON a = q": [("MIXED_TIME", "of_kept")],
    "WITH v AS (SELECT * FROM E) SELECT * FROM S, v": [("MIXED_TIME", "S")],
}


@pytest.mark.parametrize("query", MIXED)
def test_a_query_has_one_clock(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == MIXED[query]


def test_the_clock_of_a_result_is_that_of_its_inputs(catalog: Catalog) -> None:
    clocks = {source: bind(f"SELECT 1 FROM {source}", catalog).time for source in ("S", "L", "E", "R", "R, E", "O")}
    assert {source: clock and clock.name for source, clock in clocks.items()} == {
        "S": "INTEGER",
        "L": "INTEGER",
        "E": "TIMESTAMP",
        "R": None,
        "R, E": "TIMESTAMP",
        "O": "INTEGER",
    }


@pytest.mark.parametrize(
    ("setting", "over_integers", "over_timestamps"),
    [("auto", True, False), ("tick", True, True), ("element", False, False)],
)
def test_when_rstream_speaks(setting: str, over_integers: bool, over_timestamps: bool) -> None:
    catalog = tables(f"SET rstream_clock = {setting};")
    for source, expected in (("S", over_integers), ("E", over_timestamps)):
        tree = bind(f"Rstream(SELECT a FROM {source} [Rows 1])", catalog)
        assert isinstance(tree, bound.RelToStream)
        assert tree.every_tick is expected
    istream = cast(bound.RelToStream, bind("Istream(SELECT a FROM S [Rows 1])", catalog))
    assert istream.every_tick is False


# Aggregates of nothing


@pytest.mark.parametrize(
    ("query", "setting", "expected"),
    [
        ("SELECT COUNT(*) FROM S", "sql", [EmptyRow.ONCE_SEEN]),
        ("SELECT COUNT(*) FROM S", "stream", [EmptyRow.NEVER]),
        ("SELECT a FROM S WHERE a > (SELECT MAX(a) FROM U)", "sql", [EmptyRow.ALWAYS]),
        ("SELECT a FROM S WHERE a > (SELECT MAX(a) FROM U)", "stream", [EmptyRow.NEVER]),
        (
            "SELECT a FROM S WHERE EXISTS (SELECT n FROM (SELECT COUNT(*) AS n FROM U))",
            "sql",
            [EmptyRow.ALWAYS],
        ),
        ("SELECT n FROM (SELECT COUNT(*) AS n FROM S)", "sql", [EmptyRow.ONCE_SEEN]),
        ("SELECT a FROM S JOIN (SELECT MAX(a) AS m FROM U) ON a = m", "sql", [EmptyRow.ONCE_SEEN]),
    ],
)
def test_empty_aggregate(query: str, setting: str, expected: Sequence[EmptyRow]) -> None:
    tree = bind(query, tables(f"SET empty_aggregate = {setting};"))
    assert [node.empty_row for node in nodes(tree) if isinstance(node, bound.Aggregate)] == expected


# Schemas

SCHEMAS = {
    "SELECT a, b FROM S": "a INT, b BIGINT!",
    "SELECT A, S.B FROM s": "A INT, B BIGINT!",
    "SELECT a AS k, b AS k FROM S": "k INT, k_1 BIGINT!",
    "SELECT a, a, a AS a_1 FROM S": "a INT, a_2 INT, a_1 INT",
    "SELECT * FROM S": "a INT, b BIGINT!, x DOUBLE, s STRING, f BOOLEAN, t INT!",
    "SELECT * FROM L": "a INT, l STRING",
    "SELECT * FROM O": "a INT, b INT",
    "SELECT R.*, S.a FROM S, R": "a INT!, r STRING, a_1 INT",
    "SELECT *, 1 FROM R": "a INT!, r STRING, 1 INT!",
    "SELECT * FROM R AS p, R AS q": "a INT!, r STRING, a_1 INT!, r_1 STRING",
    "SELECT a + 1, 'x' FROM S": "a + 1 INT, 'x' STRING!",
    "SELECT COUNT(*), Sum(b), MAX(a) + 1 FROM S": "count(*) BIGINT!, sum(b) BIGINT, MAX(a) + 1 INT",
    # Outer joins make the other side's columns NULL.
    "SELECT b, R.a FROM S LEFT JOIN R ON S.a = R.a": "b BIGINT!, a INT",
    "SELECT b, R.a FROM S RIGHT JOIN R ON S.a = R.a": "b BIGINT, a INT!",
    "SELECT b, R.a FROM S FULL JOIN R ON S.a = R.a": "b BIGINT, a INT",
    "SELECT b, R.a FROM S JOIN R ON S.a = R.a": "b BIGINT!, a INT!",
    "SELECT b, R.a FROM S CROSS JOIN R": "b BIGINT!, a INT!",
    "SELECT p.a, q.a, b FROM R p LEFT JOIN R q ON p.a = q.a LEFT JOIN S ON b = q.a": "a INT!, a_1 INT, b BIGINT",
    "SELECT p.a, q.a FROM S RIGHT JOIN (R p JOIN R q ON p.a = q.a) ON S.a = p.a": "a INT!, a_1 INT!",
    "SELECT b, q.a FROM R p LEFT JOIN R q ON p.a = q.a, S": "b BIGINT!, a INT",
    # Set operations: common types; a column is never NULL if it is on neither side that rows can come from.
    "SELECT a FROM R UNION SELECT b FROM S": "a BIGINT!",
    "SELECT a FROM R UNION SELECT a FROM S": "a INT",
    "SELECT a FROM R INTERSECT SELECT a FROM S": "a INT!",
    "SELECT a FROM S EXCEPT SELECT a FROM R": "a INT",
    "SELECT a FROM S UNION SELECT x FROM S": "a DOUBLE",
    "SELECT NULL FROM S UNION SELECT a FROM S": "NULL INT",
    "SELECT a, s FROM S UNION ALL SELECT * FROM R": "a INT, s STRING",
    "SELECT a FROM R UNION (SELECT a FROM R EXCEPT SELECT b FROM S)": "a BIGINT!",
    "R UNION R": "a INT!, r STRING",
    # A bare NULL is a STRING once the query is done, and anything before.
    "SELECT NULL AS n FROM S": "n STRING",
    "SELECT n + 1 AS m, n FROM (SELECT NULL AS n FROM S)": "m INT, n STRING",
    "Istream(SELECT NULL AS n FROM S [Now])": "n STRING",
    "SELECT DISTINCT NULL AS n FROM S": "n STRING",
    # Keys and aggregates
    "SELECT b, COUNT(*) AS n FROM S GROUP BY b": "b BIGINT!, n BIGINT!",
    "SELECT b + 1, MAX(b) FROM S GROUP BY b + 1": "b + 1 BIGINT, max(b) BIGINT",
    "SELECT COUNT(*) FILTER (WHERE a > 1) AS n FROM S": "n BIGINT!",
    # Subqueries
    "SELECT (SELECT MAX(a) FROM R) AS m FROM S": "m INT",
    "SELECT (SELECT COUNT(*) FROM R) AS m FROM S": "m BIGINT",
    "SELECT EXISTS (SELECT 1 FROM R) AS e FROM S": "e BOOLEAN!",
    "SELECT b IN (SELECT a FROM R) AS i FROM S": "i BOOLEAN!",
    "SELECT b IN (SELECT a FROM S) AS i FROM S": "i BOOLEAN",
    "SELECT a NOT IN (SELECT a FROM R) AS i FROM S": "i BOOLEAN",
    "SELECT * FROM (SELECT a AS k FROM R)": "k INT!",
    "SELECT q.k FROM (SELECT a AS k FROM R) AS q": "k INT!",
    # Numbered rows
    "SELECT * FROM (SELECT ROW_NUMBER() OVER (ORDER BY a) AS n, a FROM R)": "n BIGINT!, a INT!",
    "SELECT * FROM (SELECT a, ROW_NUMBER() OVER (PARTITION BY r ORDER BY a) FROM R)": ("a INT!, row_number BIGINT!"),
    # Local views and views
    "WITH v (k) AS (SELECT a FROM R) SELECT * FROM v": "k INT!",
    "WITH v AS (SELECT a FROM R), w AS (SELECT a AS z FROM v) SELECT * FROM w": "z INT!",
    "WITH S AS (SELECT a AS mine FROM R) SELECT * FROM S": "mine INT!",
    "WITH S AS (SELECT a AS mine FROM S) SELECT * FROM S": "mine INT",
    "SELECT * FROM kept": "a INT, s STRING",
    "SELECT * FROM of_kept": "p STRING, q INT",
    "SELECT * FROM COUNTS": "s STRING, n BIGINT!",
}


@pytest.mark.parametrize("query", SCHEMAS)
def test_schema(query: str, catalog: Catalog) -> None:
    assert schema(bind(query, catalog)) == SCHEMAS[query]


# Names

BAD_NAMES: dict[str, list[tuple[str, str]]] = {
    "SELECT a FROM nowhere": [("UNKNOWN_TABLE", "nowhere")],
    "SELECT zz FROM S": [("UNKNOWN_COLUMN", "zz")],
    "SELECT S.zz FROM S": [("UNKNOWN_COLUMN", "S.zz")],
    "SELECT U.a FROM S": [("UNKNOWN_TABLE", "U")],
    "SELECT S.a FROM S AS X": [("UNKNOWN_TABLE", "S")],
    "SELECT a FROM S, U": [("AMBIGUOUS_COLUMN", "a")],
    "SELECT q.a FROM (SELECT 1 AS a, 2 AS b FROM S) q, R": [],
    "SELECT a FROM (SELECT S.a, U.a FROM S, U)": [],
    "SELECT a FROM S, (SELECT a FROM U)": [("AMBIGUOUS_COLUMN", "a")],
    "SELECT zz.* FROM S": [("UNKNOWN_TABLE", "zz")],
    "SELECT 1 FROM S, S": [("DUPLICATE_NAME", "S")],
    "SELECT 1 FROM S, U AS s": [("DUPLICATE_NAME", "U AS s")],
    "SELECT 1 FROM S JOIN S ON S.a = S.a": [("DUPLICATE_NAME", "S")],
    "SELECT 1 FROM S, U AS x JOIN R AS s ON x.a = s.a": [("DUPLICATE_NAME", "R AS s")],
    "SELECT at FROM L": [("UNKNOWN_COLUMN", "at")],
    "SELECT sign FROM L": [("UNKNOWN_COLUMN", "sign")],
    "SELECT b FROM kept": [("UNKNOWN_COLUMN", "b")],
    "SELECT a AS k FROM S WHERE k > 1": [("UNKNOWN_COLUMN", "k")],
    "SELECT a AS k, k + 1 FROM S": [("UNKNOWN_COLUMN", "k")],
    "WITH v AS (SELECT a FROM S), V AS (SELECT a FROM S) SELECT * FROM v": [("DUPLICATE_NAME", "V")],
    """WITH v AS (SELECT a FROM S) SELECT * FROM (
         WITH v AS (SELECT a FROM v), V AS (SELECT a FROM v) SELECT * FROM v)""": [("DUPLICATE_NAME", "V")],
    "WITH v AS (SELECT * FROM w), w AS (SELECT a FROM S) SELECT * FROM v": [("UNKNOWN_TABLE", "w")],
    "WITH v (k, l) AS (SELECT a FROM S) SELECT * FROM v": [("COLUMN_COUNT", "v")],
    "WITH v (k, K) AS (SELECT a, b FROM S) SELECT * FROM v": [("DUPLICATE_NAME", "K")],
    # Several mistakes in one query are all reported, each once, in the order of the text.
    "SELECT zz, a, yy FROM S WHERE xx = 1 GROUP BY a, ww HAVING vv > 1": [
        ("UNKNOWN_COLUMN", name) for name in ("zz", "yy", "xx", "ww", "vv")
    ],
    "SELECT 1 FROM nowhere, nothing": [("UNKNOWN_TABLE", "nowhere"), ("UNKNOWN_TABLE", "nothing")],
    "SELECT zz AS k FROM S GROUP BY k": [("UNKNOWN_COLUMN", "zz")],
    "SELECT zz FROM S UNION SELECT yy FROM S": [("UNKNOWN_COLUMN", "zz"), ("UNKNOWN_COLUMN", "yy")],
    "SELECT zz + yy * upper(a) FROM S": [
        ("UNKNOWN_COLUMN", "zz"),
        ("UNKNOWN_COLUMN", "yy"),
        ("BAD_ARGUMENTS", "upper(a)"),
    ],
}


@pytest.mark.parametrize("query", BAD_NAMES)
def test_names(query: str, catalog: Catalog) -> None:
    if BAD_NAMES[query]:
        assert problems(query, catalog) == BAD_NAMES[query]
    else:
        bind(query, catalog)


def test_names_are_found_in_any_case_and_any_script() -> None:
    catalog = tables('CREATE STREAM "Straße" ("ÄÖ" INT, "a b" INT, t INT) TIMESTAMP BY t;')
    assert schema(bind('SELECT äö, "A B" FROM STRASSE', catalog)) == "äö INT, A B INT"


# Groups

GROUPED = {
    "SELECT a, COUNT(*) FROM S GROUP BY a": "INT, BIGINT!",
    "SELECT S.a, COUNT(*) FROM S GROUP BY a": "INT, BIGINT!",
    "SELECT a + 1, COUNT(*) FROM S GROUP BY a + 1": "INT, BIGINT!",
    "SELECT (a + 1) * 2 FROM S GROUP BY a + 1": "INT",
    "SELECT a + b FROM S GROUP BY a, b": "BIGINT",
    "SELECT b, COUNT(*) FROM S GROUP BY 1": "BIGINT!, BIGINT!",
    "SELECT COUNT(*), a + 1 FROM S GROUP BY 02": "BIGINT!, INT",
    "SELECT a + 1 AS k, COUNT(*) FROM S GROUP BY k": "INT, BIGINT!",
    "SELECT b AS a, COUNT(*) FROM S GROUP BY a, b": "BIGINT!, BIGINT!",
    "SELECT * FROM R GROUP BY a, r": "INT!, STRING",
    "SELECT * FROM R GROUP BY 2, 1": "INT!, STRING",
    "SELECT 1, 'a', NULL FROM S GROUP BY a": "INT!, STRING!, STRING",
    "SELECT COUNT(*) FROM S GROUP BY 'a'": "BIGINT!",
    "SELECT COUNT(*) FROM S GROUP BY NULL, -1, 1.5": "BIGINT!",
    "SELECT MAX(a) - MIN(a) FROM S": "INT",
    "SELECT a FROM S GROUP BY a HAVING COUNT(*) > 1 AND a > 2": "INT",
    "SELECT COUNT(*) AS n FROM S HAVING n > 1": "BIGINT!",
    "SELECT a AS k, SUM(b) AS n FROM S GROUP BY a HAVING k > 1 AND n > 2": "INT, BIGINT",
    "SELECT 1 FROM S HAVING TRUE": "INT!",
    "SELECT a FROM S GROUP BY a HAVING NULL": "INT",
    "SELECT CASE a WHEN 1 THEN COUNT(*) ELSE 0 END FROM S GROUP BY a": "BIGINT!",
    "SELECT a FROM S GROUP BY a ORDER BY COUNT(*) DESC LIMIT 3": "INT",
    "SELECT a, COUNT(*) FROM S GROUP BY a ORDER BY a + COUNT(*) LIMIT 3": "INT, BIGINT!",
    "SELECT EXISTS (SELECT 1 FROM R WHERE R.a = S.a) FROM S GROUP BY a": "BOOLEAN!",
    "SELECT a FROM S GROUP BY a, EXISTS (SELECT 1 FROM R)": "INT",
}


@pytest.mark.parametrize("query", GROUPED)
def test_groups(query: str, catalog: Catalog) -> None:
    assert types(bind(query, catalog)) == GROUPED[query]


BAD_GROUPS = {
    "SELECT a, b FROM S GROUP BY a": [("NOT_GROUPED", "b")],
    "SELECT a, COUNT(*) FROM S": [("NOT_GROUPED", "a")],
    "SELECT * FROM R GROUP BY a": [("NOT_GROUPED", "*")],
    "SELECT a + 1 FROM S GROUP BY a + 2": [("NOT_GROUPED", "a")],
    "SELECT a FROM S GROUP BY a HAVING b > 1": [("NOT_GROUPED", "b")],
    "SELECT a FROM S GROUP BY a ORDER BY b LIMIT 1": [("NOT_GROUPED", "b")],
    "SELECT b, x FROM S GROUP BY a HAVING f ORDER BY s LIMIT 1": [
        *(("NOT_GROUPED", "b"), ("NOT_GROUPED", "x"), ("NOT_GROUPED", "f"), ("NOT_GROUPED", "s"))
    ],
    "SELECT a FROM S GROUP BY a HAVING EXISTS (SELECT 1 FROM R WHERE R.a = S.b)": [("NOT_GROUPED", "S.b")],
    "SELECT a FROM S GROUP BY a HAVING (SELECT MAX(S.b) FROM R) > 1": [("NOT_GROUPED", "S.b")],
    "SELECT COUNT(*) FROM S GROUP BY 1": [("AGGREGATE_NOT_ALLOWED", "COUNT(*)")],
    "SELECT a FROM S GROUP BY COUNT(*)": [("AGGREGATE_NOT_ALLOWED", "COUNT(*)")],
    "SELECT COUNT(*) AS n FROM S GROUP BY n": [("AGGREGATE_NOT_ALLOWED", "COUNT(*)")],
    "SELECT a FROM S WHERE COUNT(*) > 1": [("AGGREGATE_NOT_ALLOWED", "COUNT(*)")],
    "SELECT S.a FROM S JOIN U ON COUNT(*) > 1": [("AGGREGATE_NOT_ALLOWED", "COUNT(*)")],
    "SELECT a FROM S GROUP BY 3": [("BAD_ORDER", "3")],
    "SELECT a FROM S GROUP BY 0": [("BAD_ORDER", "0")],
    f"SELECT a FROM S GROUP BY {'9' * 5000}": [("BAD_ORDER", "9" * 5000)],
    "SELECT a AS k, b AS k FROM S GROUP BY k": [("AMBIGUOUS_COLUMN", "k")],
    "SELECT a FROM S GROUP BY a HAVING a": [("TYPE_MISMATCH", "a")],
}


@pytest.mark.parametrize("query", BAD_GROUPS, ids=lambda query: query[:60])
def test_what_groups_refuse(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == BAD_GROUPS[query]


def test_an_aggregate_that_is_written_twice_is_computed_once(catalog: Catalog) -> None:
    tree = bind("SELECT COUNT(*), count( * ) + 1, SUM(a) FROM S HAVING COUNT(*) > 1", catalog)
    aggregate = cast(bound.Aggregate, only(tree, bound.Aggregate))
    assert [call.function for call in aggregate.calls] == ["count", "sum"]


def test_aggregates_differ_by_filter_and_distinct(catalog: Catalog) -> None:
    tree = bind("SELECT COUNT(a), COUNT(DISTINCT a), COUNT(a) FILTER (WHERE f) FROM S", catalog)
    assert len(cast(bound.Aggregate, only(tree, bound.Aggregate)).calls) == 3


def test_first_and_last_go_by_the_timestamp(catalog: Catalog) -> None:
    tree = bind("SELECT FIRST(s), LAST(s) FROM S", catalog)
    calls = cast(bound.Aggregate, only(tree, bound.Aggregate)).calls
    assert [(call.function, [cast(ColumnRef, a).index for a in call.arguments]) for call in calls] == [
        ("arg_min", [3, 5]),
        ("arg_max", [3, 5]),
    ]


@pytest.mark.parametrize("source", ["S, U", "R", "O", "kept", "(SELECT * FROM S) q"])
def test_first_needs_one_timestamp(source: str, catalog: Catalog) -> None:
    ((code, place),) = problems(f"SELECT FIRST(1) FROM {source}", catalog)
    assert (code, place) == ("BAD_ARGUMENTS", "FIRST(1)")


# Order and limits

ORDERED = {
    # query -> sort keys as columns of what is ordered, and the columns that leave
    "SELECT a, b FROM S ORDER BY b LIMIT 3": ("+1", 2),
    "SELECT a, b FROM S ORDER BY 2 DESC, a LIMIT 3": ("-1 +0", 2),
    "SELECT a AS b, b AS c FROM S ORDER BY b LIMIT 3": ("+0", 2),
    "SELECT a FROM S ORDER BY b LIMIT 3": ("+1", 1),
    "SELECT a AS sort0 FROM S ORDER BY b LIMIT 3": ("+1", 1),
    "SELECT *, a + 1 AS z FROM R ORDER BY 2 LIMIT 3": ("+1", 3),
    "SELECT * FROM R ORDER BY 2 LIMIT 3": ("+1", 2),
    "SELECT DISTINCT a, b FROM S ORDER BY b LIMIT 3": ("+1", 2),
    "SELECT a, COUNT(*) AS n FROM S GROUP BY a ORDER BY n DESC LIMIT 3": ("-1", 2),
    "SELECT a FROM S UNION SELECT a FROM U ORDER BY a LIMIT 3": ("+0", 1),
    "SELECT a FROM S UNION SELECT a FROM U ORDER BY 1 DESC LIMIT 3": ("-0", 1),
}


@pytest.mark.parametrize("query", ORDERED)
def test_top_n(query: str, catalog: Catalog) -> None:
    tree = bind(query, catalog)
    top = cast(bound.TopN, only(tree, bound.TopN))
    keys = " ".join(f"{'-' if key.descending else '+'}{key.column}" for key in top.keys)
    assert (keys, len(tree.schema)) == ORDERED[query]
    assert top.limit == 3


@pytest.mark.parametrize(
    ("order", "nulls_first"),
    [("a", True), ("a DESC", False), ("a NULLS LAST", False), ("a DESC NULLS FIRST", True)],
)
def test_nulls_are_the_smallest_values_unless_said_otherwise(order: str, nulls_first: bool, catalog: Catalog) -> None:
    top = cast(bound.TopN, only(bind(f"SELECT a FROM S ORDER BY {order} LIMIT 1", catalog), bound.TopN))
    assert top.keys[0].nulls_first is nulls_first


BAD_ORDERS = {
    "SELECT a FROM S ORDER BY a": [("BAD_ORDER", "a")],
    "SELECT a FROM S LIMIT 3": [("BAD_ORDER", "3")],
    "SELECT a FROM S ORDER BY a LIMIT 0": [("BAD_ORDER", "0")],
    "SELECT a FROM S ORDER BY 2 LIMIT 1": [("BAD_ORDER", "2")],
    f"SELECT a FROM S ORDER BY {'9' * 5000} LIMIT 1": [("BAD_ORDER", "9" * 5000)],
    "SELECT DISTINCT a FROM S ORDER BY a, b LIMIT 1": [("BAD_ORDER", "b")],
    "SELECT a FROM S UNION SELECT a FROM U ORDER BY a + 1 LIMIT 1": [("BAD_ORDER", "a + 1")],
    "SELECT a AS k, b AS k FROM S ORDER BY k LIMIT 1": [("AMBIGUOUS_COLUMN", "k")],
}


@pytest.mark.parametrize("query", BAD_ORDERS, ids=lambda query: query[:60])
def test_what_order_by_refuses(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == BAD_ORDERS[query]


def test_one_alias_for_one_expression_twice_is_not_ambiguous(catalog: Catalog) -> None:
    assert types(bind("SELECT a AS k, a AS k FROM S ORDER BY k LIMIT 1", catalog)) == "INT, INT"


# Numbered rows


def test_row_number_becomes_a_column(catalog: Catalog) -> None:
    query = """SELECT * FROM (
                 SELECT s, ROW_NUMBER() OVER (PARTITION BY f ORDER BY SUM(a) DESC, s) AS n, SUM(a) AS sort0
                 FROM S GROUP BY s, f) WHERE n <= 3"""
    tree = bind(query, catalog)
    numbered = cast(bound.RowNumber, only(tree, bound.RowNumber))
    assert schema(tree) == "s STRING, n BIGINT!, sort0 BIGINT"
    assert numbered.partition == (2,)
    assert [(key.column, key.descending) for key in numbered.keys] == [(1, True), (0, False)]
    assert [column.name for column in numbered.schema] == ["s", "sort0", "sort0_1", "n"]


BAD_NUMBERS = {
    "SELECT ROW_NUMBER() OVER (ORDER BY a) FROM S": "ROW_NUMBER() OVER (ORDER BY a)",
    "SELECT 1 FROM (SELECT ROW_NUMBER() OVER () AS n FROM S)": "ROW_NUMBER() OVER ()",
    "SELECT 1 FROM (SELECT ROW_NUMBER(a) OVER (ORDER BY a) AS n FROM S)": "ROW_NUMBER(a) OVER (ORDER BY a)",
    "SELECT 1 FROM (SELECT ROW_NUMBER() OVER (ORDER BY a) + 1 AS n FROM S)": "ROW_NUMBER() OVER (ORDER BY a)",
    "SELECT 1 FROM (SELECT a, ROW_NUMBER() OVER (ORDER BY COUNT(*)) AS n FROM S GROUP BY a)": (
        "ROW_NUMBER() OVER (ORDER BY COUNT(*))"
    ),
    "SELECT 1 FROM S WHERE ROW_NUMBER() OVER (ORDER BY a) = 1": "ROW_NUMBER() OVER (ORDER BY a)",
    "SELECT a FROM S WHERE a IN (SELECT ROW_NUMBER() OVER (ORDER BY c) FROM U)": ("ROW_NUMBER() OVER (ORDER BY c)"),
}


@pytest.mark.parametrize("query", BAD_NUMBERS)
def test_where_row_number_has_no_meaning(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == [("BAD_ROW_NUMBER", BAD_NUMBERS[query])]


# Set operations

BAD_SETS = {
    "SELECT a FROM S UNION SELECT a, c FROM U": "COLUMN_COUNT",
    "SELECT a FROM S EXCEPT SELECT s FROM S": "TYPE_MISMATCH",
    "S INTERSECT U": "COLUMN_COUNT",
    "SELECT ts FROM E UNION SELECT a FROM E": "TYPE_MISMATCH",
}


@pytest.mark.parametrize("query", BAD_SETS)
def test_the_sides_of_a_set_operation_have_to_match(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == [(BAD_SETS[query], query)]


def test_set_operations_associate_to_the_left_and_intersect_binds_tighter(catalog: Catalog) -> None:
    tree = bind("SELECT a FROM S EXCEPT SELECT a FROM U UNION ALL SELECT a FROM S INTERSECT SELECT a FROM U", catalog)
    operations = [node for node in nodes(tree) if isinstance(node, bound.SetOperation)]
    assert [(node.kind.name, node.all) for node in operations] == [
        ("UNION", True),
        ("EXCEPT", False),
        ("INTERSECT", False),
    ]


# Subqueries: a reference's depth counts the subqueries inside expressions between it and the row it means.

DEPTHS: dict[str, set[tuple[str, int]]] = {
    # Of the columns outside, only S has b and s, only U has c.
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U WHERE U.a = S.b)": {("b", 1)},
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U WHERE c = s)": {("s", 1)},
    "SELECT a FROM S WHERE a IN (SELECT a FROM U WHERE a = b)": {("b", 1)},
    "SELECT a FROM S WHERE a > (SELECT MAX(U.a) FROM U WHERE c = S.s)": {("s", 1)},
    "SELECT (SELECT MAX(U.a + S.b) FROM U) FROM S": {("b", 1)},
    "SELECT COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM U WHERE U.a = S.b)) FROM S": {("b", 1)},
    "SELECT S.a FROM S JOIN U ON EXISTS (SELECT 1 FROM R WHERE R.a = S.b AND R.r = U.c)": {
        ("b", 1),
        ("c", 1),
    },
    "SELECT b FROM S GROUP BY b HAVING EXISTS (SELECT 1 FROM U WHERE U.a = S.b)": {("b", 1)},
    "SELECT a FROM S ORDER BY (SELECT MAX(U.a) FROM U WHERE U.a = S.b) LIMIT 1": {("b", 1)},
    # A query in FROM adds nothing: it is evaluated for the same row around it.
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM (SELECT a FROM U WHERE U.a = S.b) q)": {("b", 1)},
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM (SELECT a FROM U) q WHERE q.a = S.b)": {("b", 1)},
    # Each subquery in an expression adds one.
    """SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U WHERE EXISTS (
         SELECT 1 FROM R WHERE R.a = S.b AND R.r = U.c))""": {("b", 2), ("c", 1)},
    """SELECT a FROM S WHERE EXISTS (SELECT 1 FROM (
         SELECT a FROM U WHERE EXISTS (SELECT 1 FROM R WHERE R.a = S.b AND R.r = U.c)) q)""": {
        ("b", 2),
        ("c", 1),
    },
    """SELECT b FROM S GROUP BY b HAVING EXISTS (SELECT c FROM U GROUP BY c HAVING EXISTS (
         SELECT 1 FROM R WHERE R.a = S.b AND R.r = U.c))""": {("b", 2), ("c", 1)},
    "SELECT a FROM S WHERE a IN (SELECT a FROM U UNION SELECT a FROM R WHERE R.a = S.b)": {("b", 1)},
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U GROUP BY S.b, c HAVING c = S.s AND COUNT(*) > S.b)": {
        ("b", 1),
        ("s", 1),
    },
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U JOIN R ON U.a = S.b)": {("b", 1)},
    # Names are looked up from the inside out.
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM S WHERE S.a = b)": set(),
    "SELECT S.a FROM S WHERE EXISTS (SELECT 1 FROM U AS S WHERE S.a = b)": {("b", 1)},
}


@pytest.mark.parametrize("query", DEPTHS)
def test_depth_of_correlated_references(query: str, catalog: Catalog) -> None:
    outer = {(ref.name, ref.depth) for ref in _references(bind(query, catalog)) if ref.depth}
    assert outer == DEPTHS[query]


def _references(tree: Rel) -> Iterator[ColumnRef]:
    for node in nodes(tree):
        for expression in bound.expressions(node):
            yield from (part for part in bound.walk(expression) if isinstance(part, ColumnRef))


def test_a_regrouped_reference_means_the_column_of_the_group(catalog: Catalog) -> None:
    tree = bind("SELECT s FROM S GROUP BY b, s HAVING EXISTS (SELECT 1 FROM U WHERE U.c = S.s AND U.a > S.b)", catalog)
    outer = {(ref.name, ref.index) for ref in _references(tree) if ref.depth == 1}
    assert outer == {("s", 1), ("b", 0)}


SUBQUERIES = {
    "SELECT a FROM S WHERE (a, s) IN (SELECT a, r FROM R)": "INT",
    "SELECT a FROM O WHERE O IN (SELECT a, a FROM R)": "INT",
    "SELECT ts FROM E WHERE '2026-01-31' IN (SELECT ts FROM E)": "TIMESTAMP!",
    "SELECT a FROM S WHERE a IN (SELECT x FROM S)": "INT",
    "SELECT a FROM S WHERE NULL IN (SELECT a FROM R)": "INT",
    "SELECT a FROM S WHERE EXISTS (S UNION S)": "INT",
    "SELECT (SELECT a FROM U ORDER BY t DESC LIMIT 1) FROM S": "INT",
    "SELECT (SELECT n FROM (SELECT COUNT(*) AS n FROM U)) FROM S": "BIGINT",
    "SELECT (SELECT DISTINCT MAX(a) FROM U HAVING MAX(a) > 1) FROM S": "INT",
    "SELECT a FROM S WHERE EXISTS (Istream(SELECT a FROM U [Rows 1]))": "INT",
    "SELECT a FROM S WHERE EXISTS (WITH v AS (SELECT a FROM U) SELECT 1 FROM v WHERE v.a = S.a)": "INT",
    "SELECT SUM((SELECT MAX(a) FROM U WHERE U.a = S.a)) FROM S": "BIGINT",
}


@pytest.mark.parametrize("query", SUBQUERIES)
def test_subqueries(query: str, catalog: Catalog) -> None:
    assert types(bind(query, catalog)) == SUBQUERIES[query]


BAD_SUBQUERIES = {
    "SELECT (SELECT a FROM U) FROM S": [("BAD_SUBQUERY", "(SELECT a FROM U)")],
    "SELECT (SELECT a FROM U GROUP BY a) FROM S": [("BAD_SUBQUERY", "(SELECT a FROM U GROUP BY a)")],
    "SELECT (SELECT a FROM U ORDER BY a LIMIT 2) FROM S": [("BAD_SUBQUERY", "(SELECT a FROM U ORDER BY a LIMIT 2)")],
    "SELECT (SELECT MAX(a), 1 FROM U) FROM S": [("BAD_SUBQUERY", "(SELECT MAX(a), 1 FROM U)")],
    "SELECT a FROM S WHERE a IN (SELECT a, c FROM U)": [("COLUMN_COUNT", "a IN (SELECT a, c FROM U)")],
    "SELECT a FROM S WHERE s IN (SELECT a FROM U)": [("TYPE_MISMATCH", "s IN (SELECT a FROM U)")],
    "SELECT a FROM S, (SELECT S.a AS q FROM U)": [("UNKNOWN_TABLE", "S")],
    "WITH v AS (SELECT S.a AS q FROM U) SELECT 1 FROM S, v": [("UNKNOWN_TABLE", "S")],
    "SELECT a FROM S WHERE EXISTS (SELECT 1 FROM R WHERE R.a = MAX(S.b))": [("AGGREGATE_NOT_ALLOWED", "MAX(S.b)")],
}


@pytest.mark.parametrize("query", BAD_SUBQUERIES)
def test_what_subqueries_refuse(query: str, catalog: Catalog) -> None:
    assert problems(query, catalog) == BAD_SUBQUERIES[query]


# Relation to stream


def test_both_notations_of_relation_to_stream_are_one(catalog: Catalog) -> None:
    for word in ("Istream", "Dstream", "Rstream"):
        outside = bind(f"{word}(SELECT a FROM S [Rows 5] WHERE a > 1)", catalog)
        inside = bind(f"SELECT {word}(a) FROM S [Rows 5] WHERE a > 1", catalog)
        assert outside == inside


def test_a_stream_inside_from_can_be_windowed_again(catalog: Catalog) -> None:
    tree = bind("SELECT COUNT(*) FROM Istream(SELECT a FROM S [Rows 5]) [Range 10 Seconds] q", catalog)
    assert [str(node.spec) for node in nodes(tree) if isinstance(node, bound.Window)] == [
        "Range 10",
        "Rows 5",
    ]


def test_a_window_on_a_growing_subquery_implies_istream(catalog: Catalog) -> None:
    implied = bind("SELECT a FROM (SELECT a FROM S) [Rows 5]", catalog)
    said = bind("SELECT a FROM Istream(SELECT a FROM S) [Rows 5]", catalog)
    assert implied == said


# Views


def test_a_view_is_what_its_text_is(catalog: Catalog) -> None:
    by_view = bind("SELECT q FROM of_kept", catalog)
    written_out = bind("SELECT a FROM (SELECT s, a FROM (SELECT a, s FROM S WHERE a > 1))", catalog)
    assert types(by_view) == types(written_out)
    assert kind(by_view) == kind(written_out) == "stream"


def test_a_view_keeps_the_settings_it_was_made_under() -> None:
    catalog = tables("""
        SET range_bounds = closed;
        CREATE VIEW closed AS SELECT a FROM S [Range 10];
        SET range_bounds = half_open;
    """)
    tree = bind("SELECT closed.a FROM closed, S [Range 10]", catalog)
    assert [str(node.spec) for node in nodes(tree) if isinstance(node, bound.Window)] == [
        "Range 11",
        "Range 10",
    ]


# Odd inputs


def test_long_lists_are_fine(catalog: Catalog) -> None:
    assert len(bind(f"SELECT {', '.join(['a'] * 1000)} FROM S", catalog).schema) == 1000
    sums = ", ".join(f"SUM(a + {n})" for n in range(300))
    assert len(bind(f"SELECT {sums} FROM S", catalog).schema) == 300
    assert len(bind(f"SELECT A0.a FROM {', '.join(f'S A{n}' for n in range(60))}", catalog).schema) == 1


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT A0.a FROM {', '.join(f'S A{n}' for n in range(3000))}",
        f"SELECT A0.a FROM {', '.join(f'S A{n}' for n in range(150))}",
        "SELECT a FROM " + "(SELECT a FROM " * 90 + "S" + ")" * 90,
        "SELECT a FROM S WHERE " + "EXISTS (SELECT 1 FROM S WHERE " * 90 + "a = 1" + ")" * 90,
        " UNION ".join(["SELECT a FROM S"] * 300),
    ],
    ids=lambda query: query[:40],
)
def test_a_query_that_is_too_large_is_an_error_and_no_traceback(query: str, catalog: Catalog) -> None:
    ((code, _),) = problems(query, catalog)
    assert code == "TOO_DEEP"


def test_deep_and_doubling_views_are_errors_and_no_tracebacks() -> None:
    catalog = tables()
    deep = "".join(f"CREATE VIEW v{n + 1} AS SELECT a FROM {f'v{n}' if n else 'S'} WHERE a > {n};" for n in range(80))
    doubling = "".join(
        f"CREATE VIEW v{n + 1} AS SELECT p.a FROM {f'v{n} p, v{n} q' if n else 'S p'};" for n in range(40)
    )
    for script in (deep, doubling):
        with pytest.raises(CqlError) as caught:
            catalog.execute(script)
        assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [Code.TOO_DEEP]
