"""Expressions as Spark columns agree with the engine, row by row and bit by bit, whatever the session's settings.

Hundreds of expressions are computed in one Spark job, over rows with NULLs, NaNs, both zeros and the ends of every
range. The engine itself is judged by the definition (`tests/test_engine_expressions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from cql import bound
from cql import types as t
from cql.bound import Cast, ColumnRef, Expr, UserCall
from cql.functions.scalars import SCALARS
from cql.types import DataType, Kind, castable, decimal
from runtime.columns.arrow_types import arrow_type
from runtime.expressions import compile_predicate, compile_projection
from runtime.spark.columns import LEFT_TO_ENGINE, LOWERED, lowered, lowered_predicate, spark_type
from tests.definition.values import WIDE
from tests.strategies import inputs_to_try
from tests.test_definition_scalars import ALL
from tests.test_engine_expressions import (
    CALLS,
    ONE_ROW,
    ONE_TYPES,
    TYPES,
    VALUES,
    Maker,
    call,
    column,
    listed,
    literal,
    random_batch,
    values_of,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SETTINGS = {
    "as it comes": {},
    "as others set it": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
    },
}
"""Settings of sessions; a query must not notice."""

AT_ONCE = 150
"""How many expressions one job computes."""


@pytest.fixture(params=SETTINGS)
def any_spark(own_session: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """A session with each of the settings."""
    for name, value in SETTINGS[request.param].items():
        own_session.conf.set(name, value)
    return own_session


@dataclass(frozen=True)
class Rows:
    """Columns of some types, for the engine and for Spark."""

    types: Sequence[DataType]
    arrays: list[pa.Array]

    @property
    def count(self) -> int:
        return len(self.arrays[0])

    def in_spark(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql.types import StructType

        schema = StructType()
        for at, each in enumerate(self.types):
            schema = schema.add(f"c{at}", spark_type(each))
        return spark.createDataFrame(pa.table({f"c{at}": each for at, each in enumerate(self.arrays)}), schema)


def compare(spark: SparkSession, given: Sequence[Expr], rows: Rows) -> int:
    """Assert that Spark computes some expressions as the engine does; return how many of them it can compute."""
    frame = rows.in_spark(spark)
    columns = [frame[name] for name in frame.columns]
    pairs = [(each, made) for each in given if (made := lowered(each, columns)) is not None]
    for start in range(0, len(pairs), AT_ONCE):
        some = pairs[start : start + AT_ONCE]
        theirs = frame.select(*(made.alias(f"v{at}") for at, (_, made) in enumerate(some))).toArrow()
        ours = compile_projection([each for each, _ in some])(rows.arrays, rows.count)
        for (each, _), want, have in zip(some, ours, theirs.columns, strict=True):
            assert have.type == arrow_type(each.type), each
            assert_same(each, rows, want, have.combine_chunks())
    return len(pairs)


def assert_same(expression: Expr, rows: Rows, want: pa.Array, have: pa.Array) -> None:
    if bits(want).equals(bits(have)):
        return
    at = next(at for at in range(rows.count) if bits(want)[at].as_py() != bits(have)[at].as_py())
    row = [each[at].as_py() for each in rows.arrays]
    used = {part.index: row[part.index] for part in bound.walk(expression) if isinstance(part, ColumnRef)}
    pytest.fail(f"{expression}\nof {used}\nis    {want[at]!r}\nnot   {have[at]!r}", pytrace=False)


def bits(array: pa.Array) -> pa.Array:
    """Return a column such that it tells all doubles apart."""
    return array.view(pa.int64()) if pa.types.is_floating(array.type) else array


def some_rows(seed: int, types: Sequence[DataType], count: int = 60) -> Rows:
    """Return random rows: some with NULLs and few values, some with many odd ones."""
    rng = Random(seed)
    batches = [random_batch(rng, types, count // 3)[0] for _ in range(3)]
    return Rows(types, [pa.concat_arrays(parts) for parts in zip(*batches, strict=True)])


def columns_of(*values: tuple[DataType, Sequence[object]]) -> Rows:
    return Rows([each for each, _ in values], [pa.array(found, arrow_type(each)) for each, found in values])


# What is lowered, and what is not


def test_every_function_is_lowered_or_left_to_the_engine_for_a_reason() -> None:
    assert LOWERED | LEFT_TO_ENGINE.keys() == SCALARS.keys()
    assert not LOWERED & LEFT_TO_ENGINE.keys()
    assert all(LEFT_TO_ENGINE.values())


def can_be_lowered(spark: SparkSession, text: str) -> bool:
    from pyspark.sql import functions as f

    return lowered(listed(text), [f.col(f"c{at}") for at in range(len(ONE_TYPES))]) is not None


LEFT = (
    "power(x, 2)",
    "upper(s)",
    "s = lower(s)",
    "date_format(ts, 'yyyy')",
    "overlap(s, 'a b') > 0",
    "inner_product(s, s)",
    "round(x, 2)",
    "round(i, -1)",
    "wide + 1",  # which digits are given up depends on settings of Spark
    "wide % 0.5",
    "CAST(x AS STRING)",  # Java before version 19 does not find the shortest text
    "CAST(x AS DECIMAL(10,2))",
    "CAST(CAST(d AS DECIMAL(20,7)) AS STRING)",
    "CAST(s AS DECIMAL(10,2))",
    "CAST(s AS TIMESTAMP)",
    "CAST(CAST(x AS STRING) AS INT) = 3",
    "CAST(ts - old AS STRING)",
    "date_trunc('millisecond', ts)",
    "s LIKE s",
    "regexp_like(s, '(a|b)c')",  # Java would try all ways to match
    "regexp_like(s, 'a*c')",
    "regexp_like(s, 'a?c')",
    "regexp_like(s, 'a{1,2}c')",
    r"regexp_like(s, '\bc')",
    r"regexp_like(s, '[\s]c')",
    "regexp_like(s, '[[a]]')",
    "regexp_extract(s, '([a-z]+)=(.*)$', 2)",
)
USUAL = (
    "i",
    "i + 1 > 7 AND s LIKE 'a%' OR n IS NULL",
    "d * 2 + 0.5",
    "x / 2",
    "i / 2",
    "ts + INTERVAL '1' MINUTE < TIMESTAMP '2026-01-01'",
    "ts - old",
    "ts - old < INTERVAL '1' DAY",
    "date_trunc('hour', ts)",
    "EXTRACT(YEAR FROM ts) = 2015",
    "x > power(2, 10)",  # a constant, whatever its function
    "s IN ('a', 'b', upper('c'))",
    "CASE WHEN i > 1 THEN 'a' ELSE s END",
    "regexp_like(s, '^[a-z]{2}-.$|x')",
    "s LIKE '%a%b_%c'",
    "round(d, 1)",
    "CAST(d AS STRING)",
    "CAST(i AS DOUBLE) = x",
)


@pytest.mark.parametrize("text", LEFT)
def test_what_spark_cannot_say_exactly_is_left_to_the_engine(spark: SparkSession, text: str) -> None:
    assert not can_be_lowered(spark, text)


@pytest.mark.parametrize("text", USUAL)
def test_what_queries_usually_say_is_lowered(spark: SparkSession, text: str) -> None:
    assert can_be_lowered(spark, text)


def test_user_functions_and_columns_of_other_queries_are_left_to_the_engine(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    columns = [f.col("c0")]
    assert lowered(UserCall("f", (column(0, t.INT),), type=t.INT), columns) is None
    assert lowered(call("add", t.INT, column(0, t.INT), UserCall("f", (), type=t.INT)), columns) is None
    assert lowered(ColumnRef(0, 1, type=t.INT), columns) is None


# Values


def test_constants_of_all_types(any_spark: SparkSession) -> None:
    types = dict.fromkeys(TYPES)
    given: list[Expr] = [literal(value, each) for each in types for value in (*values_of(each), None)]
    assert compare(any_spark, [*given, literal(None, t.NULL)], columns_of((t.INT, [1]))) == len(given) + 1


def test_listed_expressions(any_spark: SparkSession) -> None:
    rows = some_rows(1, ONE_TYPES)
    own = [pa.array([value], arrow_type(each)) for value, each in zip(ONE_ROW, ONE_TYPES, strict=False)]
    own.append(pa.array([0], pa.int32()))
    both = Rows(ONE_TYPES, [pa.concat_arrays(pair) for pair in zip(own, rows.arrays, strict=True)])
    count = compare(any_spark, [listed(text) for text in ALL], both)
    assert count > 0.75 * len(ALL)


def test_functions_over_columns_of_all_types(any_spark: SparkSession) -> None:
    rng = Random(2)
    given = [Maker(rng).call(name, form, depth) for _, name, forms in CALLS for form in forms for depth in (0, 0, 1)]
    compare(any_spark, given, some_rows(2, TYPES))


def test_casts_between_all_types(any_spark: SparkSession) -> None:
    types = list(dict.fromkeys(TYPES))
    longest = max(len(values_of(each)) for each in types) + 1
    padded = [(each, (list(values_of(each)) + [None] * longest)[:longest]) for each in types]
    casts = [
        Cast(column(at, source), type=target)
        for at, source in enumerate(types)
        for target in types
        if castable(source, target)
    ]
    compare(any_spark, casts, columns_of(*padded))


def test_integers_that_overflow_are_null_and_no_others(spark: SparkSession) -> None:
    for data_type in (t.BYTE, t.INT, t.BIGINT):
        half = 2 ** (arrow_type(data_type).bit_width - 1)
        root = math.isqrt(half)
        edges = [-half, -half + 1, half - 1, half - 2, root, root + 1, -root, -root - 1, -2, -1, 0, 1, 2, 3, 7, None]
        pairs = [(a, b) for a in edges for b in edges]
        rows = columns_of((data_type, [a for a, _ in pairs]), (data_type, [b for _, b in pairs]))
        a, b, zero, least, minus_one = (
            column(0, data_type),
            column(1, data_type),
            *(literal(value, data_type) for value in (0, -half, -1)),
        )
        given: list[Expr] = [
            call(name, data_type, *operands)
            for name in ("add", "subtract", "multiply", "divide", "mod")
            for operands in ((a, b), (a, zero), (zero, b), (a, minus_one), (least, b))
        ]
        given += [call(name, data_type, a) for name in ("negate", "abs")]
        assert compare(spark, given, rows) == len(given)


def test_doubles_compare_with_one_nan_and_one_zero(spark: SparkSession) -> None:
    odd = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -math.nan, None]
    pairs = [(x, y) for x in odd for y in odd]
    rows = columns_of((t.DOUBLE, [x for x, _ in pairs]), (t.DOUBLE, [y for _, y in pairs]))
    a, b = column(0, t.DOUBLE), column(1, t.DOUBLE)
    given = [call(name, t.BOOLEAN, a, b) for name in ("eq", "ne", "lt", "le", "gt", "ge", "is_distinct", "in")]
    given += [call(name, t.DOUBLE, a, b) for name in ("least", "greatest", "nullif", "coalesce", "divide", "mod")]
    many = [literal(value, t.DOUBLE) for value in (*odd[1:2], math.nan, *map(float, range(2, 14)))]
    given += [call("in", t.BOOLEAN, a, *many), call("in", t.BOOLEAN, a, *many, literal(None, t.DOUBLE))]
    given += [call(name, t.DOUBLE, a) for name in ("negate", "abs", "sqrt")]
    assert compare(spark, [a, *given], rows) == len(given) + 1


def random_decimal(rng: Random, data_type: DataType) -> Decimal:
    """Return a number of any length, often one whose last digit is a half of the one before."""
    digits = rng.randrange(10 ** rng.randint(1, data_type.precision))
    digits -= digits % 10 - 5 if rng.random() < 0.5 else 0
    return Decimal(rng.choice((1, -1)) * digits).scaleb(-data_type.scale, context=WIDE)


def test_decimals_are_computed_exactly_and_rounded_once(spark: SparkSession) -> None:
    rng = Random(3)
    types = [decimal(38, 12), decimal(20, 4), decimal(18, 9), decimal(10, 2), decimal(9, 0), decimal(5, 5)]
    rows = columns_of(*((each, [random_decimal(rng, each) for _ in range(300)]) for each in types))
    given: list[Expr] = []
    for at, left in enumerate(types):
        for other, right in enumerate(types):
            for name, sign in {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "mod": "%"}.items():
                result = t.arithmetic_type(sign, left, right)
                assert result is not None
                given.append(call(name, result, column(at, left), column(other, right)))
            given.append(Cast(column(at, left), type=right))
        given += [Cast(column(at, left), type=each) for each in (t.INT, t.BIGINT, t.DOUBLE, t.TIMESTAMP)]
        whole = decimal(left.precision - left.scale + (left.scale > 0), 0)
        given += [call(name, whole, column(at, left)) for name in ("floor", "ceil")]
    assert compare(spark, given, rows) > 0.6 * len(given)


def test_timestamps_of_all_times(any_spark: SparkSession) -> None:
    """Also of those that a clock in New York skips, or shows twice."""
    rng = Random(4)
    skipped = 1_615_690_800_000_000 - 3 * 3600 * 10**6
    found = [*VALUES[Kind.TIMESTAMP], *(skipped + half * 1800 * 10**6 for half in range(12)), None]
    found += [rng.randrange(-62_135_596_800_000_000, 253_402_300_800_000_000) for _ in range(300)]
    texts = [text for text in ALL if "ts" in text or "old" in text]
    place = ONE_TYPES.index(t.TIMESTAMP)
    rows = columns_of(*((each, found if at == place else [None] * len(found)) for at, each in enumerate(ONE_TYPES)))
    given: list[Expr] = [_moved(listed(text), place) for text in texts]
    assert compare(any_spark, given, rows) > 30


def _moved(expression: Expr, place: int) -> Expr:
    """Return an expression that reads one column of timestamps only."""
    if isinstance(expression, ColumnRef) and expression.type == t.TIMESTAMP:
        return ColumnRef(place, type=t.TIMESTAMP)
    return bound.with_children(expression, lambda child: _moved(child, place))


TEXTS = (
    "", "a", "ab", "aab", "ba", "aXb", "a\nb", "a\n", "\n", "a\r", "a\r\n", "a\u2028", "a\u0085b", "ä", "ß", "a1", "٣",
    "\U0001f600", "\U0001f600a", "x=1;y=22", "key = value", "2026-01-31", "a.b", "a_b", "50%", "\\", "a\\b", "[a]",
    "{a}", "A-Z", " ", "\u00a0", "\t", "\x0b", "\x1c", "aaaa", "abcabc", None,
)  # fmt: skip
REGEXES = (
    "a", "^a", "a$", "^a$", "^$", "a.b", "a.", ".", "^.$", "ab|b.", "^a|b$|ä", "[ab]", "[^a]", "[a-z]=", r"\d", r"\w",
    r"\s", r"\S\s\S", r"[\w-]", r"\.", r"a\\b", r"\[a\]", r"\d{4}-\d{2}", "a{2}", "ß|ä", "[ßä]", "\U0001f600",
    "^\U0001f600a", "", r"[;]y", "[.]", r"\W", r"\D", r"^\S{2}$", "^.a", "[^a][^b]", r"\_", "a|", r"^\D$",
)  # fmt: skip


def test_regular_expressions_that_java_matches_in_one_way(spark: SparkSession) -> None:
    text = column(0, t.STRING)
    given: list[Expr] = [call("regexp_like", t.BOOLEAN, text, literal(regex, t.STRING)) for regex in REGEXES]
    assert compare(spark, given, columns_of((t.STRING, TEXTS))) == len(given)


def test_no_pattern_takes_for_ever(spark: SparkSession) -> None:
    """Java tries all ways to divide a text among what may be longer or shorter."""
    texts = columns_of((t.STRING, ["a" * 50_000 + "b", "a" * 50_000 + "bc", None]))
    given: list[Expr] = [
        call("like", t.BOOLEAN, column(0, t.STRING), literal(pattern, t.STRING))
        for pattern in ("%a%a%a%a%a%c", "a%a_%a%bc", "%" + "a%" * 100 + "c", "%a%a%a%a%a%c%")
    ]
    assert compare(spark, given, texts) == len(given)
    slow = call("regexp_like", t.BOOLEAN, column(0, t.STRING), literal("^(a+)+$", t.STRING))
    assert compare(spark, [slow], texts) == 0, "the engine matches it"


PATTERNS = (
    "a%", "%b", "%a%", "a_b", "_", "__", "%", "", r"a\%", r"50\%", r"a\\b", "\\", "a\\", "%\n%", "\U0001f600_",
    "\U0001f600%", "[a]", "{_}", ".%", "ä", "a__a", "%a%a%", r"\a%", "50!%", "!", "%a%_", "%a_%b%", "a%.%", "%_%_",
    "_%%a", "%\n%_", r"%\%%_",
)  # fmt: skip


def test_patterns_of_like(spark: SparkSession) -> None:
    given: list[Expr] = [
        call("like", t.BOOLEAN, column(0, t.STRING), literal(pattern, t.STRING), *escape)
        for pattern in PATTERNS
        for escape in ([], *([literal(each, t.STRING)] for each in ("!", "\\", "%", "a", "_")))
    ]
    assert compare(spark, given, columns_of((t.STRING, TEXTS))) == len(given)


def test_parts_of_texts(spark: SparkSession) -> None:
    rng = Random(5)
    places = (0, 1, 2, 3, -1, -2, -7, 2**31 - 1, -(2**31), None)
    rows = columns_of(
        (t.STRING, [rng.choice(TEXTS) for _ in range(400)]),
        (t.STRING, [rng.choice(("", "a", "b", "ab", "aa", ".", "\U0001f600", None)) for _ in range(400)]),
        (t.INT, [rng.choice(places) for _ in range(400)]),
        (t.INT, [rng.choice(places) for _ in range(400)]),
    )
    text, other, n, m = column(0, t.STRING), column(1, t.STRING), column(2, t.INT), column(3, t.INT)
    given: list[Expr] = [
        call("substr", t.STRING, text, n, m),
        call("substr", t.STRING, text, n),
        call("split_part", t.STRING, text, other, n),
        call("replace", t.STRING, text, other, literal("<>", t.STRING)),
        call("replace", t.STRING, text, other, text),
        call("concat", t.STRING, text, other, text),
        call("concat", t.STRING, text),
        call("trim", t.STRING, call("concat", t.STRING, literal(" ", t.STRING), text, literal("\t ", t.STRING))),
        call("length", t.INT, text),
        *(call("split_part", t.STRING, text, literal("a", t.STRING), literal(each, t.INT)) for each in places),
    ]
    assert compare(spark, given, rows) == len(given)


NUMBER_TEXTS = (
    "1", " 1", "1 ", "\t1\n", "\x001\x7f", "\u00a01", "1\u3000", "+1", "-1", "--1", "+", "-", "", " ", "1.5", "1.",
    ".5", ".", "1e3", "1E+3", "1e", "1e400", "1e-400", "-0", "-0.0", "0x10", "1d", "1f", "1D", "0x1p3", "1_000",
    "1,000", "١", "inf", "-INF", "+Infinity", "infinit", "nan", "NaN", "-nan", "+NaN", "NULL", "127", "128", "-128",
    "2147483648", "00000000000000000000000000000000000000000000000007", "9223372036854775807", "-9223372036854775808",
    "9223372036854775808", "1" * 50, "1e99999999999", "0.1e1", "t", "TRUE", "y", "Yes", "f", "FALSE", "n", "No", "0",
    "on", "true ", "2.2250738585072011e-308", "9007199254740993", "179769313486231580793728971405301e276", None,
)  # fmt: skip


def test_texts_that_are_numbers(spark: SparkSession) -> None:
    targets = (t.BYTE, t.INT, t.BIGINT, t.DOUBLE, t.BOOLEAN)
    given = [Cast(column(0, t.STRING), type=target) for target in targets]
    assert compare(spark, given, columns_of((t.STRING, NUMBER_TEXTS))) == len(targets)


def test_a_column_of_doubles_comes_out_with_one_nan_and_one_zero(any_spark: SparkSession) -> None:
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    rows = Rows([t.DOUBLE], [pa.array([-0.0, 0.0, -math.nan, *odd_nan, 1.5])])
    assert compare(any_spark, [column(0, t.DOUBLE)], rows) == 1


# Predicates


def test_a_predicate_is_true_where_all_are_and_null_is_not_true(spark: SparkSession) -> None:
    truths = [(x, y) for x in (True, False, None) for y in (True, False, None)]
    rows = columns_of((t.BOOLEAN, [x for x, _ in truths]), (t.BOOLEAN, [y for _, y in truths]), (t.INT, list(range(9))))
    frame = rows.in_spark(spark)
    columns = [frame[name] for name in frame.columns]
    a, b, unknown = column(0, t.BOOLEAN), column(1, t.BOOLEAN), literal(None, t.BOOLEAN)
    for predicates in ([], [a], [a, b], [a, unknown], [call("or", t.BOOLEAN, a, b), b]):
        condition = lowered_predicate(predicates, columns)
        assert condition is not None
        kept = [row[2] for row in frame.where(condition).collect()]
        assert kept == np.flatnonzero(compile_predicate(predicates)(rows.arrays, 9)).tolist()


def test_a_predicate_is_lowered_as_a_whole_or_not_at_all(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    user = UserCall("f", (), type=t.BOOLEAN)
    assert lowered_predicate([column(0, t.BOOLEAN), user], [f.col("c0")]) is None


# Random expressions


@pytest.mark.fuzz
def test_random_typed_expressions_agree(spark: SparkSession) -> None:
    rng = Random(6)
    wanted = inputs_to_try(400)
    given = [Maker(rng).of(rng.choice("nnnsbbtv"), rng.choice((1, 2, 2, 3))) for _ in range(wanted)]
    assert compare(spark, given, some_rows(6, TYPES)) > 0.3 * wanted


@pytest.mark.fuzz
def test_random_written_expressions_agree(spark: SparkSession) -> None:
    rng = Random(7)
    given: list[Expr] = []
    while len(given) < inputs_to_try(300):
        given += [expression for _, expression in written(rng)]
    assert compare(spark, given, some_rows(7, ONE_TYPES)) > 0.5 * len(given)
