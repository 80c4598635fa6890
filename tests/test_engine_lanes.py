"""Linear aggregates of the engine: their results are those of the definition, whatever the batches and their order.

DOUBLE results are compared exactly: sums are those of `math.fsum`, variances those of exact fractions rounded once.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql import types as t
from cql.bound import AggregateCall, ColumnRef
from cql.functions.aggregates import AGGREGATES
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints
from runtime.exact_sums.lanes import LINEAR, LaneKey, LinearCall, linear_call
from tests.definition import aggregates as definition
from tests.definition.values import NAN, canonical

GROUPS = int(os.environ.get("CQL_FUZZ", "100"))
"""How many random groups are tried, per type of argument."""

NUMBERS = (t.BYTE, t.INT, t.BIGINT, t.DOUBLE, t.decimal(5, 2), t.decimal(18, 0), t.decimal(20, 4), t.decimal(38, 10))

Sums = dict[LaneKey, Ints]


@pytest.fixture(autouse=True)
def wide_decimals() -> Iterator[None]:
    """Let no Decimal be rounded to the 28 digits that are Python's default."""
    with localcontext(prec=100):
        yield


def call_of(function: str, *types: DataType) -> LinearCall:
    signature = AGGREGATES[function].rule(types)
    arguments = tuple(ColumnRef(i, type=each) for i, each in enumerate(signature.arguments))
    return linear_call(AggregateCall(function, arguments, signature.result, bool(signature.nullable)))


def lanes_of(call: LinearCall, values: Sequence[Any]) -> Sums:
    assert call.argument is not None
    found = call.lanes([pa.array(values, arrow_type(call.argument))], len(values))
    assert all(lane.dtype == np.int64 and len(lane) == len(values) for lane in found.values())
    return found


def add(sums: Sums, lanes: Sums, weight: int = 1) -> None:
    """Add the lanes of a batch to the sums of one group."""
    for key, lane in lanes.items():
        sums[key] = sums.get(key, np.zeros(1, np.int64)) + weight * lane.sum()


def result(call: LinearCall, sums: Sums, length: int = 1) -> list[Any]:
    found = call.result(sums, length)
    found.validate(full=True)
    assert found.type == arrow_type(call.type)
    return [canonical(value) for value in found.to_pylist()]


def aggregate(call: LinearCall, values: Sequence[Any]) -> Any:
    sums: Sums = {}
    add(sums, lanes_of(call, values))
    return result(call, sums)[0]


def defined(call: LinearCall, values: Sequence[Any]) -> Any:
    return definition.AGGREGATES[call.function]([(canonical(value),) for value in values], call.type)


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are the same, of the same type, a zero having no sign."""
    if isinstance(left, float) and isinstance(right, float):
        return (left, math.copysign(1, left)) == (right, math.copysign(1, right)) or (left != left and right != right)
    return type(left) is type(right) and left == right


@pytest.mark.parametrize(
    ("function", "data_type", "values", "expected"),
    [
        ("count", t.STRING, ["a", None, "b"], 2),
        ("count", t.NULL, [None, None], 0),
        ("sum", t.BYTE, [127, 127, None], 254),
        ("sum", t.INT, [2**31 - 1] * 3, 3 * (2**31 - 1)),
        ("sum", t.INT, [None], None),
        ("sum", t.BIGINT, [], None),
        ("sum", t.BIGINT, [2**63 - 1, -1, 1], 2**63 - 1),
        ("sum", t.BIGINT, [2**63 - 1, 1], None),
        ("sum", t.BIGINT, [-(2**63), 1, -1], -(2**63)),
        ("sum", t.BIGINT, [-(2**63), -1], None),
        ("sum", t.DOUBLE, [1e300, 1e-300, -1e300], 1e-300),
        ("sum", t.DOUBLE, [1e16, 1.0, 1e-16], 1.0000000000000002e16),
        ("sum", t.DOUBLE, [5e-324, 5e-324], 1e-323),
        ("sum", t.DOUBLE, [1.7976931348623157e308, 1e300], math.inf),
        ("sum", t.DOUBLE, [1.7976931348623157e308, 1e300, -1e300], 1.7976931348623157e308),
        ("sum", t.DOUBLE, [1.7976931348623157e308, 1e300, -math.inf], -math.inf),
        ("sum", t.DOUBLE, [math.inf, -math.inf], NAN),
        ("sum", t.DOUBLE, [1.0, math.nan, math.inf], NAN),
        ("sum", t.DOUBLE, [-0.0, -0.0], 0.0),
        ("sum", t.decimal(38, 0), [Decimal(10**38 - 1)] * 2 + [Decimal(1 - 10**38)], Decimal(10**38 - 1)),
        ("sum", t.decimal(38, 0), [Decimal(10**38 - 1), Decimal(1)], None),
        ("sum", t.decimal(4, 2), [Decimal("-99.99"), None, Decimal("0.01")], Decimal("-99.98")),
        ("avg", t.INT, [1, 2], 1.5),
        ("avg", t.BIGINT, [2**63 - 1, 2**63 - 1], 2.0**63),
        ("avg", t.DOUBLE, [1.7976931348623157e308] * 2, math.inf),
        ("avg", t.decimal(3, 1), [Decimal("0.1"), Decimal("0.1"), Decimal("0.0")], Decimal("0.06667")),
        ("avg", t.decimal(3, 0), [Decimal(-1), Decimal(0)] * 16, Decimal("-0.5000")),
        ("variance", t.DOUBLE, [1.0], None),
        ("variance", t.DOUBLE, [1e300, 1e300], 0.0),
        ("variance", t.DOUBLE, [1e300, -1e300], math.inf),
        ("variance", t.DOUBLE, [1e8, 1e8 + 1], 0.5),
        ("variance", t.DOUBLE, [1.0, math.inf], NAN),
        ("variance", t.DOUBLE, [0.0, 1e-160], 5e-321),
        ("stddev", t.DOUBLE, [1.0, 3.0, None], math.sqrt(2)),
    ],
)
def test_what_a_call_returns(function: str, data_type: DataType, values: list[Any], expected: Any) -> None:
    call = call_of(function, data_type)
    assert same(aggregate(call, values), expected)
    assert same(defined(call, values), expected)


def test_an_average_of_decimals_is_rounded_half_up() -> None:
    call = LinearCall("avg", t.decimal(3, 2), t.decimal(5, 2))
    for sign in (1, -1):
        values = [sign * Decimal("0.01"), sign * Decimal("0.02")]
        assert aggregate(call, values) == sign * Decimal("0.02") == defined(call, values)


def test_count_takes_rows_without_nulls() -> None:
    star = LinearCall("count", None, t.BIGINT)
    assert star.lanes([], 3)["n"].tolist() == [1, 1, 1]
    both = [pa.array([1, None, 3]), pa.array(["a", "b", None])]
    assert star.lanes(both, 3)["n"].tolist() == [1, 0, 0]


@pytest.mark.parametrize("function", sorted(LINEAR))
@pytest.mark.parametrize("data_type", NUMBERS, ids=str)
def test_no_rows_and_missing_lanes_are_zeros(function: str, data_type: DataType) -> None:
    call = call_of(function, data_type)
    assert call.result(lanes_of(call, []), 0).to_pylist() == []
    nothing = 0 if function == "count" else None
    assert result(call, {}, 3) == [nothing] * 3
    three_nulls = lanes_of(call, [None, None, None])
    assert not any(lane.any() for lane in three_nulls.values())


def test_small_numbers_take_one_lane() -> None:
    assert set(lanes_of(call_of("sum", t.INT), [-5, 7])) == {"n", "s0"}
    assert set(lanes_of(call_of("sum", t.BIGINT), [-5, 2**31 - 1])) == {"n", "s0"}
    assert set(lanes_of(call_of("sum", t.DOUBLE), [-5.0, 2.0**31])) == {"n", "s0"}
    assert set(lanes_of(call_of("sum", t.decimal(38, 2)), [Decimal("-5.00"), Decimal("7.00")])) == {"n", "s0"}


def test_slices_and_nulls_hide_what_is_stored_beneath() -> None:
    for data_type in NUMBERS:
        call = call_of("sum", data_type)
        column = pa.array([9, 1, None, 2, 9], arrow_type(data_type)).slice(1, 3)
        sums: Sums = {}
        add(sums, call.lanes([column], 3))
        assert result(call, sums) == [3]
    beneath = pa.Array.from_buffers(pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, math.nan]))])
    lanes = call_of("variance", t.DOUBLE).lanes([beneath], 2)
    assert "nan" not in lanes and lanes["s0"].tolist() == [1, 0]


# Random groups


def _random_double(rng: random.Random) -> float:
    draw = rng.random()
    if draw < 0.3:
        return float(rng.randint(-1000, 1000)) / rng.choice((1, 4, 100))
    if draw < 0.6:
        return rng.choice((-1, 1)) * rng.random() * 10 ** rng.uniform(-9, 9)
    if draw < 0.9:
        return rng.choice((-1, 1)) * rng.uniform(1, 2) * 2.0 ** rng.randint(-1074, 1022)
    return rng.choice((5e-324, -1e-310, 1.7976931348623157e308, -1e308, 2.0**-1022, 2.0**31, 2.0**-33, -0.0, 1e300))


def _random_integer(rng: random.Random, bits: int) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    near = rng.choice((0, 2**31, -(2**31), 2**32, low, high))
    return max(low, min(high, near + rng.randint(-3, 3) if rng.random() < 0.5 else rng.randint(low, high)))


def _random_decimal(rng: random.Random, precision: int, scale: int) -> Decimal:
    limit = 10**precision - 1
    draws: tuple[Callable[[], int], ...] = (
        lambda: rng.randint(-limit, limit),
        lambda: rng.randint(-9, 9),
        lambda: rng.choice((limit, -limit)),
        lambda: max(-limit, min(limit, rng.choice((-1, 1)) * 2 ** rng.randint(0, 126) + rng.randint(-1, 1))),
    )
    return Decimal(rng.choice(draws)()).scaleb(-scale)


def _random_value(rng: random.Random, data_type: DataType, specials: bool) -> Any:
    if rng.random() < 0.1:
        return None
    match data_type.kind:
        case Kind.DOUBLE if specials and rng.random() < 0.05:
            return rng.choice((math.nan, math.inf, -math.inf))
        case Kind.DOUBLE:
            return _random_double(rng)
        case Kind.DECIMAL:
            return _random_decimal(rng, data_type.precision, data_type.scale)
    return _random_integer(rng, {Kind.BYTE: 8, Kind.INT: 32, Kind.BIGINT: 64}[data_type.kind])


def _random_values(rng: random.Random, data_type: DataType) -> list[Any]:
    specials = rng.random() < 0.3
    values = [_random_value(rng, data_type, specials) for _ in range(rng.choice((0, 1, 2, 3, 10, 40)))]
    if rng.random() < 0.3 and data_type.kind is not Kind.BYTE:
        values += [None if value is None else -value for value in values if value != -(2**63)]
        if data_type.kind is Kind.INT:
            values = [value for value in values if value != 2**31]
    return values


def _batches(rng: random.Random, values: list[Any]) -> list[list[Any]]:
    shuffled = rng.sample(values, len(values))
    cuts = sorted(rng.randint(0, len(values)) for _ in range(rng.randint(0, 4)))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]


@pytest.mark.fuzz
@pytest.mark.parametrize("data_type", NUMBERS, ids=str)
def test_results_are_those_of_the_definition_after_any_additions_and_removals(data_type: DataType) -> None:
    for seed in range(GROUPS):
        rng = random.Random(f"{data_type} {seed}")
        stay, leave = _random_values(rng, data_type), _random_values(rng, data_type)
        steps = [(batch, 1) for batch in _batches(rng, stay + leave)] + [(batch, -1) for batch in _batches(rng, leave)]
        for function in sorted(LINEAR):
            call = call_of(function, data_type)
            if call.argument != data_type:
                continue
            sums: Sums = {}
            for batch, weight in rng.sample(steps, len(steps)):
                add(sums, lanes_of(call, batch), weight)
            found, expected = result(call, sums)[0], defined(call, stay)
            assert same(found, expected), f"seed {seed}: {function} of {stay} is {expected}, not {found}"


@pytest.mark.fuzz
def test_sums_of_doubles_are_rounded_to_the_nearest_ties_to_even() -> None:
    rng = random.Random(1)
    call = call_of("sum", t.DOUBLE)
    for _ in range(GROUPS):
        top = rng.randint(-1000, 900)
        odd = float(2 * rng.randint(2**51, 2**52 - 1) + rng.randint(0, 1))
        values = [math.ldexp(odd, top), math.ldexp(rng.choice((-1, 1)), top - 1)]
        values.append(rng.choice((0.0, 5e-324, -5e-324, math.ldexp(1.0, top - 70))))
        assert aggregate(call, values) == math.fsum(values), values


@pytest.mark.fuzz
def test_groups_of_one_column_do_not_mix() -> None:
    rng = random.Random(2)
    for function in sorted(LINEAR):
        call = call_of(function, t.DOUBLE)
        groups = [_random_values(rng, t.DOUBLE) for _ in range(GROUPS)]
        slots = np.repeat(np.arange(GROUPS), [len(group) for group in groups])
        sums: Sums = {}
        for key, lane in lanes_of(call, [value for group in groups for value in group]).items():
            sums[key] = np.zeros(GROUPS, np.int64)
            np.add.at(sums[key], slots, lane)
        for found, group in zip(result(call, sums, GROUPS), groups, strict=True):
            assert same(found, defined(call, group)), (function, group)


def test_columns_longer_than_a_block_are_like_short_ones() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=50_000) * 10.0 ** rng.integers(-20, 20, 50_000)
    call = call_of("sum", t.DOUBLE)
    lanes = lanes_of(call, values)
    assert result(call, lanes, 50_000) == values.tolist()
    total = {key: np.array([lane.sum()]) for key, lane in lanes.items()}
    assert result(call, total) == [math.fsum(values)]
    mean = sum(map(Fraction, values)) / 50_000
    spread = call_of("variance", t.DOUBLE)
    total = {key: np.array([lane.sum()]) for key, lane in lanes_of(spread, values).items()}
    assert result(spread, total) == [float(sum((Fraction(x) - mean) ** 2 for x in values) / 49_999)]
