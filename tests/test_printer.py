"""The printer: printing and then parsing gives back the tree, and each thing has one spelling."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from cql import ast, printer
from cql.intervals import Interval, Unit
from cql.parsing import parse_expression, parse_query, parse_statement
from cql.parsing.parser import Dialect, _lark
from cql.printer import to_text
from tests import strategies
from tests.strategies import KEYWORDS

TREES = settings(
    max_examples=strategies.trees_to_try(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---------------------------------------------------------------------------------------------------- the law


@pytest.mark.fuzz
@TREES
@given(strategies.statements())
def test_printing_then_parsing_is_the_identity_on_statements(statement: ast.Statement) -> None:
    assert parse_statement(to_text(statement)) == statement


@pytest.mark.fuzz
@TREES
@given(strategies.queries())
def test_printing_then_parsing_is_the_identity_on_queries(query: ast.Query) -> None:
    assert parse_query(to_text(query)) == query


@pytest.mark.fuzz
@TREES
@given(strategies.expressions())
def test_printing_then_parsing_is_the_identity_on_expressions(expression: ast.Expression) -> None:
    assert parse_expression(to_text(expression)) == expression


# ----------------------------------------------------------------------------------------------- completeness


def test_every_node_class_has_a_printer() -> None:
    assert set(printer._PRINTERS) == strategies.node_classes()


def test_the_random_trees_have_nodes_of_every_class() -> None:
    missing = strategies.node_classes()
    for count in (50, 100, 200, 400, 1200):  # how many it takes differs with what else has been imported
        trees = [
            *strategies.sample(strategies.statements(2), count),
            *strategies.sample(strategies.expressions(2), min(count, 200)),
        ]
        missing = missing - {type(node) for tree in trees for node in strategies.nodes(tree)}
        if not missing:
            break
    assert missing == set()


# ------------------------------------------------------------------------------------------------------ names


def taken_for_keywords() -> set[str]:
    """The keywords for which the lexer looks in some state of the parser that accepts a name."""
    states = _lark(Dialect.CQL).parser.parser._parse_table.states.values()
    spellings = {terminal.name: terminal.pattern.value.upper() for terminal in _lark(Dialect.CQL).terminals}
    return {spellings.get(name) for state in states if "NAME" in state for name in state} & set(KEYWORDS)


def test_the_reserved_words_are_those_that_the_lexer_could_mistake() -> None:
    # SLIDE only where an interval has just ended; what the printer puts there is never a name.
    quoted = {word for word in KEYWORDS if printer.RESERVED_FOR_INPUTS.fullmatch(word)}
    assert quoted == taken_for_keywords() - {"SLIDE"}


@pytest.mark.parametrize("text", [*KEYWORDS, *strategies.WORDS, "ſelect", "İn", "lımıt", "li\u212ae"])
def test_any_word_can_be_a_name_in_any_place(text: str) -> None:
    name, column = ast.Name(text), ast.Column(ast.Name(text))
    window = ast.PartitionWindow(((name, name), (None, name)), 1)
    operand = ast.NamedInput(name, window)
    qualified = ast.Column(name, name)
    call = ast.WindowCall(ast.Call(name, (column, qualified)), (column,), (ast.SortKey(column),))
    items = (ast.SelectItem(column, name), ast.SelectItem(call), ast.Star(name), ast.SelectItem(column))
    inputs = (
        ast.Join(ast.JoinKind.LEFT, ast.NamedInput(name), ast.NamedInput(name, None, name), column),
        ast.NamedInput(name, window, name),
        ast.SampledInput(ast.NamedInput(name, None, name), ast.Number("10")),
        ast.NamedInput(name, None, name),
    )
    select = ast.Select(items, inputs, ast.Row((column, qualified)), (column, column), column)
    query = ast.With((ast.Cte(name, (name, name), select),), ast.SetOperation(ast.SetKind.UNION, True, operand, select))
    source = ast.SourceSpec(name, (ast.Option(name, ast.Number("1")),), True)
    columns = (ast.ColumnDef(name, ast.TypeName("INT")),)
    for statement in (
        ast.QueryStatement(query),
        ast.QueryStatement(ast.SetOperation(ast.SetKind.EXCEPT, False, operand, operand)),
        ast.Try(query),
        ast.Try(ast.SetOperation(ast.SetKind.EXCEPT, False, operand, operand)),
        ast.Explain("TEXT", ast.SetOperation(ast.SetKind.EXCEPT, False, operand, operand)),
        ast.Explain("JSON", ast.TopN(operand, (ast.SortKey(column, True),), None)),
        ast.Explain("DOT", name),
        ast.RegisterQuery(name, query, (ast.Option(name, column),), ast.SinkSpec(name)),
        ast.CreateView(name, (name,), query),
        ast.CreateStream(name, columns, name, None, source),
        ast.CreateRelation(name, (), name, name, source),
        ast.RegisterTable(ast.ObjectKind.RELATION, name, columns),
        ast.Drop(ast.ObjectKind.VIEW, name),
        ast.Show(text.upper()),
        ast.Describe(name),
        ast.SetSetting(name, ast.Extract(name, column)),
    ):
        assert parse_statement(to_text(statement)) == statement


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price", "price"),
        ("Größe_1", "Größe_1"),
        ("range", "range"),
        ("start", "start"),
        ("Select", '"Select"'),
        ("ſelect", '"ſelect"'),
        ("1st", '"1st"'),
        ("two words", '"two words"'),
        ('say "hi"', '"say ""hi"""'),
        ("`", '"`"'),
    ],
)
def test_a_name_has_quotes_only_where_it_needs_them(text: str, expected: str) -> None:
    assert to_text(ast.Name(text)) == expected


# --------------------------------------------------------------------------------------------------- spelling


def check(parse: Callable[[str], ast.Node], text: str, expected: str) -> None:
    assert to_text(parse(text)) == expected
    assert parse(expected) == parse(text)
    assert to_text(parse(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a+b*c", "a + b * c"),
        ("(a+b)*c", "(a + b) * c"),
        ("(a-b)-c", "a - b - c"),
        ("a-(b-c)", "a - (b - c)"),
        ("a||(b||c)", "a || (b || c)"),
        ("- - a", "- -a"),
        ("a - -1", "a - -1"),
        ("-(a+b)", "-(a + b)"),
        ("((a))", "a"),
        ("a != b", "a <> b"),
        ("(a = b) = c", "(a = b) = c"),
        ("a and (b and c) or d", "a AND (b AND c) OR d"),
        ("(a or b) and c and d", "(a OR b) AND c AND d"),
        ("not (a = 1)", "NOT a = 1"),
        ("not (a and b)", "NOT (a AND b)"),
        ("(not a) = b", "(NOT a) = b"),
        ("a between 1 and 2+1 and b", "a BETWEEN 1 AND 2 + 1 AND b"),
        ("not a not between 1 and (2 and 3)", "NOT a NOT BETWEEN 1 AND (2 AND 3)"),
        ("a not in (1,'it''s',null)", "a NOT IN (1, 'it''s', NULL)"),
        ("a in ((select b from s))", "a IN (SELECT b FROM s)"),
        ("(a,b) in (select * from s)", "(a, b) IN (SELECT * FROM s)"),
        ("a in (s union t)", "a IN (s UNION t)"),
        ("((select max(b) from s))+1", "(SELECT max(b) FROM s) + 1"),
        ("not exists(select * from s)", "NOT EXISTS (SELECT * FROM s)"),
        ("a not like 'x!%' escape '!'", "a NOT LIKE 'x!%' ESCAPE '!'"),
        ("a is not null", "a IS NOT NULL"),
        ("a is not distinct from b", "a IS NOT DISTINCT FROM b"),
        ("case when a then 1 end", "CASE WHEN a THEN 1 END"),
        ("case a when 1 then b else (c or d) end", "CASE a WHEN 1 THEN b ELSE c OR d END"),
        ("cast(a as decimal ( 10,2 ))", "CAST(a AS DECIMAL(10, 2))"),
        ("extract(hour from ts)", "EXTRACT(hour FROM ts)"),
        ("Count( distinct a)filter(where b>1)", "Count(DISTINCT a) FILTER (WHERE b > 1)"),
        ("count(*)", "count(*)"),
        (
            "row_number() over (partition by a,b order by c desc nulls last, d asc)",
            "row_number() OVER (PARTITION BY a, b ORDER BY c DESC NULLS LAST, d)",
        ),
        ("interval '5' second", "INTERVAL '5 SECONDS'"),
        ("interval 1 day", "INTERVAL '1 DAY'"),
        ("interval '1h 30 min'", "INTERVAL '1 HOUR 30 MINUTES'"),
        ("timestamp '2026-01-31 12:00:00'", "TIMESTAMP '2026-01-31 12:00:00'"),
        ("timestamp", '"timestamp"'),
        ("`x y`.range", '"x y".range'),
        ("true", "TRUE"),
    ],
)
def test_expressions_have_one_spelling(text: str, expected: str) -> None:
    check(parse_expression, text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Select Istream(a,b x) From S", "ISTREAM(SELECT a, b AS x FROM S)"),
        ("select rstream(distinct *) from S", "RSTREAM(SELECT DISTINCT * FROM S)"),
        ("select istream(a) from S order by a limit 3", "ISTREAM(SELECT a FROM S ORDER BY a LIMIT 3)"),
        ("Istream(select a from S) limit 3", "ISTREAM(SELECT a FROM S) LIMIT 3"),
        (
            "select x.* from S x [range 10 sec slide 2], T [rows 5] y, U [now]",
            "SELECT x.* FROM S [RANGE 10 SECONDS SLIDE 2 SECONDS] AS x, T [ROWS 5] AS y, U [NOW]",
        ),
        (
            "select * from S [range interval '1 hour 5 min'], T [range '1 day'], U [range unbounded]",
            "SELECT * FROM S [RANGE INTERVAL '1 HOUR 5 MINUTES'], T [RANGE 1 DAY], U [RANGE UNBOUNDED]",
        ),
        (
            "select * from S [partition by S.a, b rows 1 range 5 days] where a=1 group by a,b having c",
            "SELECT * FROM S [PARTITION BY S.a, b ROWS 1 RANGE 5 DAYS] WHERE a = 1 GROUP BY a, b HAVING c",
        ),
        (
            "select * from (a inner join b on x=y) left outer join (c cross join d) on z",
            "SELECT * FROM a JOIN b ON x = y LEFT JOIN (c CROSS JOIN d) ON z",
        ),
        (
            "select * from (istream(select * from S)) [now] x, (select 1 from T) y",
            "SELECT * FROM ISTREAM(SELECT * FROM S) [NOW] AS x, (SELECT 1 FROM T) AS y",
        ),
        ("s union all t [now]", "s UNION ALL t [NOW]"),
        ("(a union b) union c", "a UNION b UNION c"),
        ("a union (b union distinct c)", "a UNION (b UNION c)"),
        ("a union (b intersect c)", "a UNION b INTERSECT c"),
        ("(a union b) intersect c", "(a UNION b) INTERSECT c"),
        ("(select a from s limit 1) except b", "(SELECT a FROM s LIMIT 1) EXCEPT b"),
        ("with v(x) as (select a from s) select * from v", "WITH v (x) AS (SELECT a FROM s) SELECT * FROM v"),
        ('"start" union "stop"', '"start" UNION "stop"'),
    ],
)
def test_queries_have_one_spelling(text: str, expected: str) -> None:
    check(parse_query, text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "create stream s (a int not null, ts timestamp) timestamp by ts delay 5 "
            "from csv options (path='x', header true, n -1)",
            "CREATE STREAM s (a INT NOT NULL, ts TIMESTAMP) TIMESTAMP BY ts DELAY 5 SECONDS "
            "FROM csv OPTIONS (path 'x', header TRUE, n -1)",
        ),
        (
            "create relation r (a int, at int, sg string) timestamp by at sign by sg",
            "CREATE RELATION r (a INT, at INT, sg STRING) TIMESTAMP BY at SIGN BY sg",
        ),
        (
            "create relation r from csv schema inferred options ('max.files' 1, 'a b' 2)",
            "CREATE RELATION r FROM csv SCHEMA INFERRED OPTIONS (max.files 1, 'a b' 2)",
        ),
        ("register relation r (a integer);", "REGISTER RELATION r (a INTEGER)"),
        ("create view v (x,y) as select a,b from s", "CREATE VIEW v (x, y) AS SELECT a, b FROM s"),
        (
            "register query q as select * from s with (mode=append, n=1+1) into csv options(path 'o')",
            "REGISTER QUERY q AS SELECT * FROM s WITH (mode = append, n = 1 + 1) INTO csv OPTIONS (path 'o')",
        ),
        ("select 1 from s;", "SELECT 1 FROM s"),
        ("drop view v", "DROP VIEW v"),
        ("try select 1 from s", "TRY SELECT 1 FROM s"),
        ("explain select 1 from s", "EXPLAIN SELECT 1 FROM s"),
        ("explain json query q", "EXPLAIN JSON QUERY q"),
        ("explain rules all", "EXPLAIN RULES ALL"),
        ("show streams", "SHOW STREAMS"),
        ("desc s", "DESCRIBE s"),
        ("set shedding.policy = random", "SET shedding.policy = random"),
        ("start", "START"),
        ("stop", "STOP"),
    ],
)
def test_statements_have_one_spelling(text: str, expected: str) -> None:
    check(parse_statement, text, expected)


def test_amounts_that_are_no_plain_numbers_are_written_as_interval_texts() -> None:
    window = ast.RangeWindow(ast.IntervalLiteral(Interval((("-1", Unit.HOUR),))))
    assert to_text(window) == "[RANGE INTERVAL '-1 HOURS']"


@pytest.mark.parametrize(
    "text",
    [
        "a" + " + a" * 150,
        "NOT " * 150 + "a",
        "a = (" * 99 + "a = a" + ")" * 99,
        "f(" * 75 + "a" + ")" * 75,
        "CASE WHEN " * 75 + "a" + " THEN b END" * 75,
        "(SELECT a FROM s WHERE b = " * 35 + "a" + ")" * 35,
    ],
    ids=lambda text: text[:15],
)
def test_the_deepest_trees_that_parse_can_be_printed_and_compared(text: str) -> None:
    expression = parse_expression(text)
    assert to_text(expression) == text
    assert parse_expression(text) == expression
