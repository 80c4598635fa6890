"""Expressions over columns agree with the definition, row by row and bit by bit.

The judge is `tests/definition/scalars.py`. Columns hold NULLs, NaNs, both zeros, the ends of every range, and are
slices of longer arrays, so that whatever looks at buffers has to look at the right part of them.
"""

from __future__ import annotations

import datetime
import math
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql import Catalog, CqlError, bound
from cql import types as t
from cql.binder.literals import convert
from cql.bound import Call, Case, Cast, ColumnRef, Expr, Literal, UserCall
from cql.bound.relations import expressions
from cql.functions.scalars import EXTRACT_FIELDS, SCALARS, TRUNC_UNITS
from cql.types import DataType, Kind, castable, decimal
from runtime.columns.arrow_types import arrow_type
from runtime.expressions import compile_expression, compile_predicate, compile_projection
from runtime.expressions.program import KERNELS
from runtime.user_errors import UserFunctionFailed
from tests.definition import Value, user_code
from tests.definition.evaluator import _Run
from tests.definition.values import WIDE, fit
from tests.random_expressions import Expressions, Leaf
from tests.random_queries import FEATURES
from tests.strategies import inputs_to_try
from tests.test_definition_scalars import ALL, COLUMNS, TS, bound_in, bound_to

Columns = list[pa.Array]
Row = tuple[Value, ...]

NEW_YEAR = 1_767_225_600_000_000
YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999

VALUES: dict[Kind, tuple[Value, ...]] = {
    Kind.BOOLEAN: (True, False),
    Kind.BYTE: (0, 1, 2, 3, -1, 7, 127, -128),
    Kind.INT: (0, 1, 2, 3, 3, -1, -7, 10, 100_000, 2**31 - 1, -(2**31)),
    Kind.BIGINT: (0, 1, 2, 3, -1, 7, 10**9, 2**32, 2**53 + 1, -(10**18), 2**63 - 1, -(2**63)),
    Kind.DOUBLE: (
        0.0, -0.0, 0.5, 1.0, 2.0, 2.5, -1.5, 0.1, 1.005, 2.675, 1e7, 123456.789, 9007199254740993.0, 1e-5,
        1e19, -9.3e18, 2147483647.5, 1e300, -1e-300, math.nan, -math.nan, math.inf, -math.inf,
    ),
    Kind.STRING: (
        "", "a", "b", "ab", "a%", "a_b", " a ", "Straße", "ä", "\U0001f600x", "a\nb", "aXbXc", "x=1", "\t12 ",
        "12", "-7", "1.5", "1e3", "1e400", "nan", "true", "N", "2026-01-31 12:00:00.5", "0099-01-01", "3000000000",
    ),
    Kind.TIMESTAMP: (
        0, -1, 1, TS, NEW_YEAR, NEW_YEAR + 500_000, NEW_YEAR - 1, 1_609_632_000_000_000,
        YEAR_1, YEAR_9999, 951_782_400_000_000, -1_000_000,
    ),
    Kind.INTERVAL: (0, 1, -1, 1_000_000, 90_061_000_001, -86_400_000_000, 10**17, 2**63 - 1, -(2**63)),
}  # fmt: skip
DECIMALS = (
    "0", "1", "-1", "0.5", "2.5", "-2.5", "12.35", "99999999.99", "0.005", "123456789012345678", "1e37", "-9e37",
    "18446744073709551614", "8e25", "-36893488147419103230", "4.5e-12", "4611686018427387903.5",
)  # fmt: skip
TYPES = (
    t.BOOLEAN, t.BYTE, t.INT, t.INT, t.BIGINT, t.DOUBLE, t.DOUBLE, t.STRING, t.STRING, t.TIMESTAMP, t.TIMESTAMP,
    t.INTERVAL, decimal(10, 2), decimal(5, 5), decimal(20, 4), decimal(38, 0), decimal(38, 12),
)  # fmt: skip
"""The types of the columns of random batches."""


def values_of(data_type: DataType) -> tuple[Value, ...]:
    if data_type.kind is not Kind.DECIMAL:
        return VALUES[data_type.kind]
    fitted = (fit(Decimal(text), data_type) for text in (*DECIMALS, str(10 ** (data_type.precision))))
    largest = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale)
    return (*(value for value in fitted if value is not None), fit(largest, data_type))


def random_column(rng: Random, data_type: DataType, rows: int) -> list[Value]:
    """Return values of a type, some or none of them NULL, many or few of them odd."""
    nulls = rng.choice((0.0, 0.0, 0.2, 0.9))
    pool = values_of(data_type)
    usual = pool[: rng.choice((3, 6, len(pool)))]
    return [None if rng.random() < nulls else rng.choice(usual) for _ in range(rows)]


def as_array(rng: Random, values: Sequence[Value], data_type: DataType) -> pa.Array:
    """Return values as a column that is a part of a longer one, with other values around."""
    before, after = rng.choice(((0, 0), (1, 0), (3, 9), (8, 1)))
    pool = values_of(data_type)
    around = [[rng.choice((None, *pool)) for _ in range(count)] for count in (before, after)]
    array = pa.array([*around[0], *values, *around[1]], arrow_type(data_type))
    return array.slice(before, len(values))


def random_batch(rng: Random, types: Sequence[DataType], rows: int) -> tuple[Columns, list[Row]]:
    """Return columns for the engine, and the same rows in the normal form of the definition."""
    columns = [random_column(rng, each, rows) for each in types]
    arrays = [as_array(rng, values, each) for values, each in zip(columns, types, strict=True)]
    fitted = [[fit(value, each) for value in values] for values, each in zip(columns, types, strict=True)]
    return arrays, list(zip(*fitted, strict=True))


def in_python(array: pa.Array) -> list[Value]:
    values: list[Value] = (array.view(pa.int64()) if pa.types.is_temporal(array.type) else array).to_pylist()
    return values


def bits(value: Value) -> object:
    """Return what tells two values of one type apart: of a double all its bits, of a DECIMAL its scale too."""
    if isinstance(value, float):
        return struct.pack("d", value)
    return str(value) if isinstance(value, Decimal) else value


class Judge(_Run):
    """The definition. Python has a negative zero among its decimals, DECIMAL has none."""

    def value(self, expression: Expr, row: Row, time: int, outer: tuple[Row, ...]) -> Value:
        value = super().value(expression, row, time, outer)
        return value.copy_abs() if isinstance(value, Decimal) and not value else value


def defined(expression: Expr, rows: Sequence[Row], functions: Mapping[str, Any] | None = None) -> list[Value]:
    """Return what an expression is for each row by definition."""
    judge = Judge(bound_to("1"), {"one": []}, functions or {}, every_tick=False, closes_windows=False)
    return [judge.value(expression, row, 0, ()) for row in rows]


def assert_agrees(expression: Expr, columns: Columns, rows: Sequence[Row], text: str = "") -> None:
    computed = compile_expression(expression)(columns, len(rows))
    assert computed.type == arrow_type(expression.type)
    computed.validate(full=True)
    expected, actual = defined(expression, rows), in_python(computed)
    wrong = [
        (row, want, have) for row, want, have in zip(rows, expected, actual, strict=True) if bits(want) != bits(have)
    ]
    assert not wrong, f"{text or expression}\nof {wrong[0][0]}\nis    {wrong[0][1]!r}\nnot   {wrong[0][2]!r}"
    if expression.type.kind is Kind.BOOLEAN:
        mask = compile_predicate([expression])(columns, len(rows))
        assert mask.tolist() == [value is True for value in expected], text or expression


# Every listed expression, over its own row and over many others

ONE_TYPES = [t.parse_type(type_text) for type_text, _ in COLUMNS.values()] + [t.INT]


def listed(text: str) -> Expr:
    (expression,) = expressions(bound.direct_inputs(bound_to(text))[0])
    return expression


@pytest.mark.parametrize("text", ALL)
def test_listed_expression(text: str) -> None:
    expression = listed(text)
    row = tuple(fit(value, each) for (_, value), each in zip(COLUMNS.values(), ONE_TYPES, strict=False))
    columns = [pa.array([value], arrow_type(each)) for value, each in zip(row, ONE_TYPES, strict=False)]
    assert_agrees(expression, columns, [row], text)
    rng = Random(text)
    for rows in (0, 1, 30, 30):
        assert_agrees(expression, *random_batch(rng, ONE_TYPES, rows), text)


def test_every_function_has_a_kernel() -> None:
    assert KERNELS.keys() == SCALARS.keys()


# Random expressions, as users write them


class _NoSubqueries:
    def value_query(self, kind: str, around: Sequence[Leaf]) -> str | None:
        return None

    def condition_query(self, around: Sequence[Leaf]) -> str | None:
        return None


KINDS = {"INT": "int", "BIGINT": "int", "BYTE": "int", "DOUBLE": "dbl", "STRING": "str", "BOOLEAN": "bool"}
KINDS |= {"TIMESTAMP": "time", "DECIMAL(10,2)": "dec", "DECIMAL(38,0)": "dec"}
LEAVES = [Leaf(name, KINDS[type_text]) for name, (type_text, _) in COLUMNS.items()]
TOGETHER = 10
"""How many expressions are bound in one query, which is quicker."""


def written(rng: Random) -> list[tuple[str, Expr]]:
    """Return random expressions as text and bound; none if one is a bare NULL, which is converted in a second step."""
    maker = Expressions(rng, frozenset(FEATURES), _NoSubqueries())
    texts = [maker.value(rng.choice(sorted(set(KINDS.values()))), LEAVES, 3) for _ in range(TOGETHER)]
    try:
        tree = bound_to(", ".join(f"{text} AS c{at}" for at, text in enumerate(texts)) + ", 0")
        made = list(zip(texts, expressions(bound.direct_inputs(tree)[0]), strict=False))
    except CqlError:
        made = [(text, listed(text)) for text in texts if _binds(text)]
    return [] if any(_reads_null(expression) for _, expression in made) else made


def _reads_null(expression: Expr) -> bool:
    return any(isinstance(part, ColumnRef) and part.type == t.NULL for part in bound.walk(expression))


def _binds(text: str) -> bool:
    try:
        bound_to(text)
    except CqlError:
        return False
    return True


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(4))
def test_random_written_expressions_agree(part: int) -> None:
    compared = 0
    wanted = inputs_to_try(1600) // 4
    rng = Random(part)
    while compared < wanted:
        made = written(rng)
        columns, rows = random_batch(rng, ONE_TYPES, rng.choice((1, 8, 12)))
        for text, expression in made:
            assert_agrees(expression, columns, rows, text)
        together = compile_projection([expression for _, expression in made])(columns, len(rows))
        assert [column.type for column in together] == [arrow_type(expression.type) for _, expression in made]
        compared += len(made)


# Random expressions over all functions, types and conversions

CALLS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *((kind, name, (kind + kind,)) for kind in "nstvb" for name in ("least", "greatest", "coalesce", "nullif")),
    *(("b", name, ("nn", "ss", "tt", "vv", "bb")) for name in ("eq", "ne", "lt", "le", "gt", "ge", "is_distinct")),
    ("b", "in", ("nnn", "ss", "ttt", "bb", "iiiii", "sssss", "vvvv", "nnnnn")),
    ("b", "is_null", ("n", "s", "t", "v", "b")),
    *(("b", name, ("bb", "bbb")) for name in ("and", "or")),
    ("b", "not", ("b",)),
    ("b", "like", ("sp", "ss", "spe")),
    ("b", "regexp_like", ("sr",)),
    *(("n", name, ("nn",)) for name in ("add", "subtract", "multiply", "divide", "mod", "power")),
    *(("n", name, ("n",)) for name in ("negate", "abs", "round", "floor", "ceil", "sqrt", "ln", "exp")),
    ("n", "round", ("nd",)),
    ("n", "length", ("s",)),
    ("n", "extract", ("ft",)),
    ("n", "epoch", ("t",)),
    ("i", "length", ("s",)),
    *(("i", name, ("ii",)) for name in ("add", "subtract", "multiply", "divide", "mod")),
    ("t", "add", ("tv", "vt")),
    ("t", "subtract", ("tv",)),
    ("t", "date_trunc", ("ut",)),
    ("v", "add", ("vv",)),
    ("v", "subtract", ("tt", "vv")),
    ("v", "multiply", ("vi", "iv")),
    ("v", "negate", ("v",)),
    *(("s", name, ("s",)) for name in ("upper", "lower", "trim")),
    ("s", "substr", ("si", "sii", "sd", "sdd")),
    ("s", "replace", ("sss", "spp")),
    ("s", "concat", ("s", "ss", "sss")),
    ("s", "split_part", ("ssi", "spi")),
    ("s", "regexp_extract", ("sr", "srd")),
    ("s", "date_format", ("tg",)),
    ("n", "overlap", ("ss",)),
    ("n", "inner_product", ("ss",)),
)
"""What yields values of a kind: Number, Integer, String, Timestamp, interVal, Boolean; and of which kinds."""

CONSTANTS: dict[str, tuple[Value, ...]] = {
    "d": (0, 1, 2, 3, 5, 12, 17, -1, -2, -9, -40),
    "p": ("a%", "%b", "%a%", "a_b", "_%", "%", "", "a", r"a\%", "%a%b%", "__", "a\\", "ä%", ".%", "X"),
    "e": ("!", "\\", "%", "a"),
    "r": ("^a", "(a)(b)?", r"\d+", "[a-z]=([0-9])", "ß", "", "x|(y)"),
    "f": tuple(EXTRACT_FIELDS),
    "u": (*TRUNC_UNITS, "WEEK"),
    "g": ("yyyy-MM-dd HH:mm:ss.SSSSSS", "y yy M d H h m s S a E", "EEEE MMMM MMM 'o''clock' ''", "hh.SS"),
}
CONSTANT_TYPES = {"d": t.INT}
CLASSES: dict[str, tuple[Kind, ...]] = {
    "n": (Kind.BYTE, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL),
    "i": (Kind.INT,),
    "s": (Kind.STRING,),
    "t": (Kind.TIMESTAMP,),
    "v": (Kind.INTERVAL,),
    "b": (Kind.BOOLEAN,),
}


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes typed expressions over columns of `TYPES`."""

    rng: Random

    def of(self, kind: str, depth: int) -> Expr:
        """Return an expression of a kind."""
        rng = self.rng
        if kind in CONSTANTS:
            data_type = CONSTANT_TYPES.get(kind, t.STRING)
            return Literal(rng.choice(CONSTANTS[kind]), type=data_type, nullable=False)
        roll = rng.random()
        if depth <= 0 or roll < 0.15:
            return self._leaf(kind)
        if roll < 0.25:
            return self._case(kind, depth - 1)
        if roll < 0.4:
            return self._cast(kind, depth - 1)
        name, signatures = rng.choice([(name, forms) for yields, name, forms in CALLS if yields == kind])
        return self.call(name, rng.choice(signatures), depth - 1)

    def call(self, name: str, kinds: str, depth: int) -> Expr:
        """Return a call of a function with arguments of some kinds."""
        function = SCALARS[name]
        arguments = [self.of(kind, depth) for kind in kinds]
        signature = function.rule([argument.type for argument in arguments])
        converted = [convert(*pair) for pair in zip(arguments, signature.arguments, strict=True)]
        constants = [argument.value if isinstance(argument, Literal) else None for argument in converted]
        return Call(name, tuple(converted), type=function.result_type(signature, constants))

    def _leaf(self, kind: str) -> Expr:
        rng = self.rng
        places = [at for at, each in enumerate(TYPES) if each.kind in CLASSES[kind]]
        at = rng.choice(places)
        if rng.random() < 0.7:
            return ColumnRef(at, type=TYPES[at])
        value = None if rng.random() < 0.05 else rng.choice(values_of(TYPES[at]))
        return Literal(value, type=TYPES[at])

    def _case(self, kind: str, depth: int) -> Expr:
        count = self.rng.choice((1, 1, 2, 3))
        results = [self.of(kind, depth) for _ in range(count + 1)]
        common = results[0].type
        for result in results:
            found = t.common_type(common, result.type)
            assert found is not None
            common = found
        *then, otherwise = (convert(result, common) for result in results)
        return Case(tuple((self.of("b", depth), each) for each in then), otherwise, type=common)

    def _cast(self, kind: str, depth: int) -> Expr:
        target = self.rng.choice([each for each in TYPES if each.kind in CLASSES[kind]])
        operand = self.of(self.rng.choice("nnnsstb"), depth)
        if operand.type == target:
            return operand
        return Cast(operand, type=target) if castable(operand.type, target) else self._leaf(kind)


def is_judged(expression: Expr, rows: Sequence[Row]) -> bool:
    """Tell whether the definition has a value: it converts no infinite number of seconds to a TIMESTAMP."""
    try:
        defined(expression, rows)
    except OverflowError:
        return False
    return True


@pytest.mark.parametrize("at", range(len(CALLS)), ids=lambda at: CALLS[at][1] + "-" + CALLS[at][2][0])
def test_function_over_columns_of_all_types(at: int) -> None:
    _, name, forms = CALLS[at]
    rng = Random(at)
    for form in forms:
        for depth in (0, 0, 0, 0, 1):
            expression = Maker(rng).call(name, form, depth)
            columns, rows = random_batch(rng, TYPES, 40)
            assert_agrees(expression, columns, rows)


def test_the_calls_cover_all_functions() -> None:
    assert {name for _, name, _ in CALLS} == SCALARS.keys()


CAST_PAIRS = [(a, b) for a in dict.fromkeys(TYPES) for b in dict.fromkeys(TYPES) if a != b and castable(a, b)]


@pytest.mark.parametrize(("source", "target"), CAST_PAIRS, ids=str)
def test_cast_between_all_types(source: DataType, target: DataType) -> None:
    values = (None, *values_of(source))
    columns, rows = [pa.array(values, arrow_type(source))], [(fit(value, source),) for value in values]
    assert_agrees(Cast(ColumnRef(0, type=source), type=target), columns, rows)
    known = [pa.array(values[1:], arrow_type(source))]
    assert_agrees(Cast(ColumnRef(0, type=source), type=target), known, rows[1:])


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(4))
def test_random_typed_expressions_agree(part: int) -> None:
    rng = Random(part)
    judged = 0
    wanted = inputs_to_try(2400) // 4
    for _ in range(wanted):
        expression = Maker(rng).of(rng.choice("nnnsbbtv"), rng.choice((1, 2, 3)))
        columns, rows = random_batch(rng, TYPES, rng.choice((1, 10, 10)))
        if is_judged(expression, rows):
            assert_agrees(expression, columns, rows)
            judged += 1
    assert judged > 0.95 * wanted


# Corners


def column(at: int, data_type: DataType) -> ColumnRef:
    return ColumnRef(at, type=data_type)


def call(name: str, data_type: DataType, *arguments: Expr) -> Call:
    return Call(name, arguments, type=data_type)


def literal(value: Value, data_type: DataType) -> Literal:
    return Literal(value, type=data_type, nullable=value is None)


INTEGERS = [t.BYTE, t.INT, t.BIGINT, t.INTERVAL]


@pytest.mark.parametrize("data_type", INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "mod"])
def test_integers_that_overflow_are_null_and_no_others(name: str, data_type: DataType) -> None:
    if data_type == t.INTERVAL and name not in ("add", "subtract"):
        return
    bits_of = arrow_type(data_type).bit_width
    edges = [edge + step for edge in (-(2 ** (bits_of - 1)), 2 ** (bits_of - 1) - 1, 0) for step in (-2, -1, 0, 1, 2)]
    edges += [2 ** (bits_of // 2), 2 ** (bits_of // 2) - 1, -(2 ** (bits_of // 2)), 3, 7]
    inside = [edge for edge in edges if -(2 ** (bits_of - 1)) <= edge < 2 ** (bits_of - 1)]
    rows = [(a, b) for a in (*inside, None) for b in (*inside, None)]
    arrays = [pa.array(values, arrow_type(data_type)) for values in zip(*rows, strict=True)]
    a, b = column(0, data_type), column(1, data_type)
    assert_agrees(call(name, data_type, a, b), arrays, rows)
    for edge in inside:
        assert_agrees(call(name, data_type, a, literal(edge, data_type)), arrays, rows)
        assert_agrees(call(name, data_type, literal(edge, data_type), b), arrays, rows)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "is_distinct", "in", "least", "greatest"])
def test_doubles_compare_with_one_nan_that_is_largest(name: str) -> None:
    odd = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -math.nan]
    result = t.DOUBLE if name in ("least", "greatest") else t.BOOLEAN
    a, b = column(0, t.DOUBLE), column(1, t.DOUBLE)
    for extra in ([], [None]):
        raw = [(x, y) for x in [*odd, *extra] for y in [*odd, *extra]]
        rows = [(fit(x, t.DOUBLE), fit(y, t.DOUBLE)) for x, y in raw]
        arrays = [pa.array(values, pa.float64()) for values in zip(*raw, strict=True)]
        assert_agrees(call(name, result, a, b), arrays, rows)
        for value in (*odd, None):
            assert_agrees(call(name, result, a, literal(value, t.DOUBLE)), arrays, rows)
            assert_agrees(call(name, result, literal(value, t.DOUBLE), b), arrays, rows)


def test_a_column_of_doubles_comes_out_with_one_nan_and_one_zero() -> None:
    odd = pa.array([-0.0, 0.0, -math.nan, None, 1.5])
    made = compile_expression(column(0, t.DOUBLE))([odd], 5)
    assert [bits(value) for value in made.to_pylist()] == [bits(v) for v in (0.0, 0.0, math.nan, None, 1.5)]


def test_a_column_that_needs_no_change_is_not_copied() -> None:
    prices = pa.array([1.5, None, 2.5, -1.0])
    made = compile_expression(column(0, t.DOUBLE))([prices], 4)
    assert made.buffers()[1].address == prices.buffers()[1].address


def test_rounding_goes_by_the_shortest_text() -> None:
    rng = Random(0)
    digits = [0, 1, 2, 3, 6, 15, 16, 20]
    halves = [rng.randrange(10**6) / 10 ** rng.randrange(7) for _ in range(2000)]
    near = [np.nextafter(value, math.inf * rng.choice((-1, 1))) for value in halves]
    large = [rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 25) for _ in range(2000)]
    values = [float(value) for value in (*halves, *near, *large, 5e-324, 0.5, 1.5, 2.5, 4503599627370497.5)]
    rows = [(value,) for value in values]
    for count in digits:
        expression = call("round", t.DOUBLE, column(0, t.DOUBLE), literal(count, t.INT))
        assert_agrees(expression, [pa.array(values)], rows)


def odd_integers(rng: Random, digits: int, count: int) -> list[int]:
    """Return integers near powers of two and ten, where long division carries."""
    made: list[int] = []
    while len(made) < count:
        power = rng.choice((2 ** rng.randrange(128), 10 ** rng.randrange(digits), 2**64 - 1, 2**63 - 1, 2**32 - 1))
        value = power * rng.randrange(1, 10) * 10 ** rng.randrange(digits) // rng.choice((1, 2, 3, 5)) + rng.randrange(
            3
        )
        if value < 10**digits:
            made.append(value * rng.choice((1, -1)))
    return made


@pytest.mark.parametrize("scale", [1, 4, 9, 10, 12, 15, 17, 19, 22, 30])
def test_decimals_of_many_digits_are_rounded_exactly(scale: int) -> None:
    """Arrow's own rounding is wrong for some of these."""
    rng = Random(scale)
    source = decimal(38, scale)
    values = [Decimal(value).scaleb(-scale, context=WIDE) for value in odd_integers(rng, 38, 400)]
    columns, rows = [pa.array(values, arrow_type(source))], [(value,) for value in values]
    x = column(0, source)
    for target in (
        decimal(38, 0),
        decimal(38, 2),
        decimal(20, 2),
        decimal(38, 14),
        t.BIGINT,
        t.INT,
        t.DOUBLE,
        t.TIMESTAMP,
    ):
        assert_agrees(Cast(x, type=target), columns, rows)
    for name in ("floor", "ceil"):
        assert_agrees(call(name, decimal(38 - scale + 1, 0), x), columns, rows)
    for name in ("add", "subtract", "multiply", "divide", "mod"):
        for value in ("3", "0.7", "12345.678", "99999999999", "4611686018427387903"):
            digits = len(value.replace(".", ""))
            factor = literal(Decimal(value), decimal(digits, max(0, -int(Decimal(value).as_tuple().exponent))))
            result = t.arithmetic_type(
                {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "mod": "%"}[name], source, factor.type
            )
            assert result is not None
            assert_agrees(call(name, result, x, factor), columns, rows)


def test_a_predicate_is_the_conjunction_of_all_and_null_is_not_true() -> None:
    a, b = column(0, t.BOOLEAN), column(1, t.BOOLEAN)
    rows = [(x, y) for x in (True, False, None) for y in (True, False, None)]
    arrays = [pa.array(values, pa.bool_()) for values in zip(*rows, strict=True)]
    assert compile_predicate([a, b])(arrays, 9).tolist() == [x is True and y is True for x, y in rows]
    assert compile_predicate([])(arrays, 9).tolist() == [True] * 9
    assert compile_predicate([literal(None, t.BOOLEAN), a])(arrays, 9).tolist() == [False] * 9
    assert compile_predicate([literal(True, t.BOOLEAN), a])(arrays, 9).tolist() == [x is True for x, _ in rows]
    assert compile_predicate([a], {})([pa.nulls(0, pa.bool_())], 0).tolist() == []


def test_constants_become_columns_of_the_length_of_the_batch() -> None:
    for value, data_type in [(1, t.INT), (None, t.INT), (None, t.NULL), ("x", t.STRING), (TS, t.TIMESTAMP)]:
        made = compile_expression(literal(value, data_type))([], 3)
        assert (made.type, in_python(made)) == (arrow_type(data_type), [value] * 3)


# User functions


def compiled_with(
    function: Callable[..., Any], text: str, arguments: Sequence[str], returns: str
) -> tuple[Expr, dict[str, Any]]:
    catalog = Catalog()
    catalog.function(function, name="f", arguments=list(arguments), returns=returns)
    (expression,) = expressions(bound.direct_inputs(bound_in(catalog, text))[0])
    return expression, user_code(catalog)


ONE_ROW = tuple(fit(value, each) for (_, value), each in zip(COLUMNS.values(), ONE_TYPES, strict=False))


def user_value(function: Callable[..., Any], text: str, arguments: Sequence[str], returns: str) -> Value:
    """Return what a call comes to over three rows that are the same, which by definition it has to."""
    expression, functions = compiled_with(function, text, arguments, returns)
    columns = [pa.array([value] * 3, arrow_type(each)) for value, each in zip(ONE_ROW, ONE_TYPES, strict=False)]
    made = in_python(compile_expression(expression, functions)(columns, 3))
    assert [bits(value) for value in made] == [bits(v) for v in defined(expression, [ONE_ROW] * 3, functions)]
    return made[0]


def test_user_functions_see_null_as_none_and_timestamps_as_datetimes() -> None:
    assert user_value(lambda a: str(a), "f(n)", ["INT"], "STRING") == "None"
    assert user_value(lambda a: a.isoformat(), "f(old)", ["TIMESTAMP"], "STRING") == "1969-12-31T23:59:59.999999"
    assert user_value(lambda a: a.replace(year=1970), "f(ts) < ts", ["TIMESTAMP"], "TIMESTAMP") is True
    assert user_value(lambda a, b: a + b, "f(i, d)", ["INT", "DECIMAL(10,2)"], "DECIMAL(5,1)") == Decimal("19.4")
    assert user_value(lambda: 1.5, "f() + x", [], "DOUBLE") == 4.0
    assert user_value(lambda a, b, c: f"{a}{b}{c}", "f(s, i, 'x')", ["STRING", "INT", "STRING"], "STRING") is not None


def test_numbers_that_user_functions_return_are_fitted() -> None:
    assert user_value(lambda a: 2 * a, "f(i * 200000000)", ["INT"], "INT") is None
    assert user_value(lambda a: 2.75, "f(i)", ["INT"], "INT") == 2
    assert user_value(lambda a: math.nan, "f(i)", ["INT"], "BIGINT") is None
    assert user_value(lambda a: -0.0, "f(i)", ["INT"], "DOUBLE") == 0.0
    expression, functions = compiled_with(lambda a: np.int64(5), "f(i)", ["INT"], "INT")
    assert compile_expression(expression, functions)([pa.array([7], pa.int32())], 1).to_pylist() == [5]


@pytest.mark.parametrize("returned", ["text", object(), datetime.datetime(2000, 1, 1), [1]])
def test_what_is_no_value_of_the_type_ends_the_run(returned: object) -> None:
    expression, functions = compiled_with(lambda a: returned, "f(i)", ["INT"], "INT")
    with pytest.raises(UserFunctionFailed, match=r"^f\(7\) failed: TypeError: it returned .*, which is no INT$"):
        compile_expression(expression, functions)([pa.array([7], pa.int32())], 1)


def test_a_failing_user_function_says_for_which_arguments() -> None:
    expression, functions = compiled_with(lambda a: 1 // a, "f(i)", ["INT"], "INT")
    with pytest.raises(UserFunctionFailed) as caught:
        compile_expression(expression, functions)([pa.array([1, 0], pa.int32())], 2)
    assert (caught.value.function, caught.value.arguments) == ("f", (0,))
    assert isinstance(caught.value.cause, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_common_parts_are_computed_once() -> None:
    calls: list[int] = []

    def seen(a: int) -> int:
        calls.append(a)
        return a

    part = call("add", t.INT, UserCall("f", (column(0, t.INT),), type=t.INT), literal(1, t.INT))
    twice = call("multiply", t.INT, part, replace(part, nullable=False))
    made = compile_projection([twice, part], {"f": seen})([pa.array([3], pa.int32())], 1)
    assert ([each.to_pylist() for each in made], calls) == ([[16], [4]], [3])


def test_case_keeps_rows_from_user_functions() -> None:
    expression, functions = compiled_with(
        lambda a: 12 // a,
        "CASE WHEN i = 0 THEN 0 WHEN f(i) > 3 THEN f(i) + 1 WHEN i = 5 THEN n ELSE -f(i) END",
        ["INT"],
        "INT",
    )
    columns = [pa.array([0, 1, 2, 5, 12, 0, 3], pa.int32()), pa.nulls(7, pa.int32())]
    made = compile_expression(expression, functions)(columns, 7)
    assert made.to_pylist() == [0, 13, 7, None, -1, 0, 5]


def test_user_functions_are_called_once_per_distinct_argument() -> None:
    calls: list[int] = []
    expression = UserCall("f", (column(0, t.INT),), type=t.INT)

    def seen(a: int) -> int:
        calls.append(a)
        return a

    made = compile_expression(expression, {"f": seen})
    assert made([pa.array([3, 1, 3, 3], pa.int32())], 4).to_pylist() == [3, 1, 3, 3]
    assert sorted(calls) == [1, 3]
    made([pa.array([], pa.int32())], 0)
    assert len(calls) == 2
