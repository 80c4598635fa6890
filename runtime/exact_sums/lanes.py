"""Linear aggregates: COUNT, SUM, AVG, VARIANCE and STDDEV as functions of exact sums.

The law: sums of integers do not depend on the order of their terms, and what was added can be taken away again. So
each value is written as integers of its own, its lanes, which depend on nothing but the value; a group keeps the sums
of the lanes of its rows, times their weights, and the result is computed from these sums, rounded once.

| lane | what it sums |
|---|---|
| `n` | 1 for each value that is not NULL |
| `s<j>` | multiples of 2^(32 j) of the value; of a DECIMAL, of its unscaled value |
| `q<j>` | multiples of 2^(32 j) of its square, for VARIANCE and STDDEV |
| `nan`, `pinf`, `ninf` | 1 for each NaN, +infinity and -infinity, which have no other lanes |

A value's digits are balanced (from -2^31 to 2^31), so that small numbers of either sign take one lane only, and
lanes in which a batch has nothing are left out. Additions that wrap around do no harm as long as the sums fit in the
end: they do for groups of less than 2^30 rows at an instant, counted by weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.bound import AggregateCall
from cql.types import DOUBLE, DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints, Mask
from runtime.exact_sums.digits import (
    BITS,
    Doubles,
    Numbers,
    below_power_of_ten,
    divided,
    doubles,
    incremented,
    numbers,
    scaled,
    square_lanes,
    words128,
)

LaneKey = str
Lanes = Mapping[LaneKey, Ints]
Digits = dict[int, Ints]
"""The lanes of a sum by position: lane j counts multiples of 2^(32 j)."""

LINEAR = frozenset({"count", "sum", "avg", "variance", "stddev"})
"""The functions that are made of sums."""

_BLOCK = 2**14


@dataclass(frozen=True, slots=True)
class LinearCall:
    """An aggregate made of sums; `argument` is None for COUNT(*)."""

    function: str
    argument: DataType | None
    type: DataType

    def lanes(self, arguments: Sequence[pa.Array], length: int) -> dict[LaneKey, Ints]:
        """Return what each row adds to the sums of its group."""
        count = {"n": _present(arguments, length)}
        if self.function == "count":
            return count
        column = _without_nulls(arguments[0])
        if pa.types.is_decimal(column.type):
            return count | _named("s", _decimal_digits(column))
        values = column.to_numpy()
        if values.dtype != np.float64:
            return count | _named("s", _integer_digits(values))
        finite, specials = _without_specials(values)
        found = count | specials | _named("s", _blockwise(finite, _double_digits))
        if self.function in ("variance", "stddev"):
            found |= _named("q", _blockwise(finite, _square_digits))
        return found

    def result(self, lanes: Lanes, length: int) -> pa.Array:
        """Return the aggregate of each group from its sums; a lane that is missing is zero."""
        if length <= _BLOCK:
            return self._result(lanes, length)
        return pa.concat_arrays(
            [
                self._result({key: lane[block] for key, lane in lanes.items()}, block.stop - block.start)
                for block in _blocks(length)
            ]
        )

    def _result(self, lanes: Lanes, length: int) -> pa.Array:
        count = _lane(lanes, "n", length)
        match self.function:
            case "count":
                return pa.array(count)
            case "sum" | "avg" if self.type.kind is Kind.DECIMAL:
                return self._decimal(lanes, count)
            case "sum" if self.type.kind is Kind.DOUBLE:
                return _array(_double_sums(lanes, length), count > 0, self.type)
            case "sum":
                sums, fits = _integer_sums(lanes, length)
                return _array(sums, fits & (count > 0), self.type)
            case "avg":
                means = _double_sums(lanes, length) / np.maximum(count, 1)
                return _array(means, count > 0, self.type)
            case "variance":
                return _array(_variances(lanes, count), count > 1, self.type)
            case "stddev":
                return _array(np.sqrt(_variances(lanes, count)), count > 1, self.type)
        raise NotImplementedError(self.function)

    def _decimal(self, lanes: Lanes, count: Ints) -> pa.Array:
        assert self.argument is not None and self.type.scale >= self.argument.scale, "a DECIMAL keeps its scale"
        found = scaled(numbers(_positions(lanes, "s"), len(count)), 10 ** (self.type.scale - self.argument.scale))
        if self.function == "avg":
            divisor = np.maximum(count, 1)
            found, remainder = divided(found, divisor)
            found = incremented(found, 2 * remainder >= divisor)
        valid = (count > 0) & below_power_of_ten(found, self.type.precision)
        return _decimal_array(found, valid, self.type)


_DOUBLE_SUM = LinearCall("sum", DOUBLE, DOUBLE)


def double_sums(values: Doubles, group: Ints, groups: int) -> Doubles:
    """Return the sum of the values of each group as SUM has it, exact and rounded once; 0 of no values."""
    sums: Doubles = np.bincount(group, values, groups).astype(np.float64, copy=False)
    several = np.bincount(group, minlength=groups) > 2
    if not several.any():
        return sums
    chosen = several[group]
    number, count = (np.cumsum(several) - 1)[group[chosen]], int(several.sum())
    lanes: dict[LaneKey, Ints] = {}
    for key, lane in _DOUBLE_SUM.lanes([pa.array(values[chosen])], len(number)).items():
        lanes[key] = np.zeros(count, np.int64)
        np.add.at(lanes[key], number, lane)
    sums[several] = _DOUBLE_SUM.result(lanes, count).to_numpy()
    return sums


def linear_call(call: AggregateCall) -> LinearCall:
    """Return how a call is computed; DISTINCT, FILTER and the arguments themselves are not its concern."""
    assert call.function in LINEAR and not call.user_defined, f"{call.function} is not made of sums"
    return LinearCall(call.function, call.arguments[0].type if call.arguments else None, call.type)


# From values to lanes


def _present(arguments: Sequence[pa.Array], length: int) -> Ints:
    """Return 1 for each row without NULLs and 0 for the others."""
    present = np.ones(length, np.int64)
    for column in arguments:
        if column.null_count:
            present *= column.is_valid().to_numpy(zero_copy_only=False)
    return present


def _without_nulls(column: pa.Array) -> pa.Array:
    """Return a column with zeros for NULLs."""
    if not column.null_count:
        return column
    return column.fill_null(pa.scalar(0, column.type))


def _named(letter: str, digits: Digits) -> dict[LaneKey, Ints]:
    return {f"{letter}{position}": lane for position, lane in digits.items()}


def _integer_digits(values: npt.NDArray[np.signedinteger]) -> Digits:
    """Return the lanes of integers; those of 32 bits are their own only lane."""
    if values.dtype != np.int64:
        return {0: values.astype(np.int64)}
    low = values.astype(np.int32)
    if np.array_equal(low, values):
        return {0: values}
    return {0: low.astype(np.int64), 1: (values >> BITS) + (low < 0)}


def _decimal_digits(column: pa.Array) -> Digits:
    """Return the lanes of the unscaled values of DECIMALs."""
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :][: 2 * len(column)].reshape(-1, 2)
    if np.array_equal(words[:, 0] >> 63, words[:, 1]):
        return _integer_digits(np.ascontiguousarray(words[:, 0]))
    signed = words.view(np.int32).T.astype(np.int64)
    return {0: signed[0]} | {above + 1: word + (signed[above] < 0) for above, word in enumerate(signed[1:])}


def _without_specials(values: Doubles) -> tuple[Doubles, dict[LaneKey, Ints]]:
    """Return values with zeros for what is not finite, and the lanes of the latter."""
    finite = np.isfinite(values)
    if finite.all():
        return values, {}
    kinds = {"nan": np.isnan(values), "pinf": values == np.inf, "ninf": values == -np.inf}
    return np.where(finite, values, 0.0), {key: kind.astype(np.int64) for key, kind in kinds.items() if kind.any()}


def _blockwise(values: Doubles, digits: Callable[[Doubles], Iterator[tuple[int, Doubles]]]) -> Digits:
    """Return the lanes of a column, made block by block so that what is computed stays in the processor's cache."""
    found: Digits = {}
    for block in _blocks(len(values)):
        for position, digit in digits(values[block]):
            if position not in found:
                found[position] = np.zeros(len(values), np.int64)
            found[position][block] += digit.astype(np.int64)
    return found


def _blocks(length: int) -> list[slice]:
    return [slice(first, min(first + _BLOCK, length)) for first in range(0, length, _BLOCK)]


@dataclass(frozen=True, slots=True)
class _Band:
    """DOUBLEs from one magnitude up to another which, times 2^(32 shift), and their squares, are computed exactly."""

    least: float
    limit: float
    shift: int


_BANDS = (_Band(0.0, 2.0**-400, 20), _Band(2.0**-400, 2.0**480, 0), _Band(2.0**480, math.inf, -17))


def _bands(values: Doubles) -> Iterator[tuple[Doubles, int]]:
    """Yield, band by band, finite values brought into the exact range, and zeros for the others; and the shift."""
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    smallest = float(sizes.min(initial=largest, where=sizes > 0.0))
    for band in _BANDS:
        if band.least <= smallest and largest < band.limit:
            yield values * 2.0 ** (BITS * band.shift) if band.shift else values, band.shift
            return
    for band in _BANDS:
        within = (band.least <= sizes) & (sizes < band.limit)
        yield np.where(within, values, 0.0) * 2.0 ** (BITS * band.shift), band.shift


def _double_digits(values: Doubles) -> Iterator[tuple[int, Doubles]]:
    """Yield the lanes of finite DOUBLEs."""
    for part, shift in _bands(values):
        yield from _digits(part, -shift)


def _square_digits(values: Doubles) -> Iterator[tuple[int, Doubles]]:
    """Yield the lanes of the squares of finite DOUBLEs."""
    for part, shift in _bands(values):
        square, error = _exact_square(part)
        yield from _digits(square, -2 * shift)
        yield from _digits(error, -2 * shift)


def _exact_square(values: Doubles) -> tuple[Doubles, Doubles]:
    """Return squares and their rounding errors: Dekker's product, with Veltkamp's splitting in halves of 26 bits."""
    square = values * values
    wide = values * (2.0**27 + 1.0)
    high = wide - (wide - values)
    low = values - high
    error = low * low - ((square - high * high) - 2.0 * (high * low))
    return square, error


def _digits(values: Doubles, offset: int) -> Iterator[tuple[int, Doubles]]:
    """Yield the lanes of DOUBLEs, moved by an offset; each is overwritten when the next one is made.

    From the top, each digit is what rounds to a multiple of its unit, and the rest, at most half a unit, is exact.
    """
    rest = values.copy()
    digit = np.empty_like(values)
    position = _highest(rest)
    while position is not None:
        unit = 2.0 ** (BITS * position)
        np.rint(np.multiply(rest, 1.0 / unit, out=digit), out=digit)
        yield position + offset, digit
        rest -= np.multiply(digit, unit, out=digit)
        position = _highest(rest)


def _highest(values: Doubles) -> int | None:
    """Return the highest position at which a value has a digit, which is then at most 2^31; None if all are zero."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if largest == 0.0:
        return None
    fraction, exponent = math.frexp(largest)
    return -((BITS - 1 - exponent + (fraction == 0.5)) // BITS)


# From sums of lanes to results


def _lane(lanes: Lanes, key: LaneKey, length: int) -> Ints:
    found = lanes.get(key)
    return np.zeros(length, np.int64) if found is None else found


def _positions(lanes: Lanes, letter: str) -> Digits:
    return {int(key[1:]): lane for key, lane in lanes.items() if key[0] == letter}


def _array(values: npt.NDArray[np.generic], valid: Mask, data_type: DataType) -> pa.Array:
    return pa.array(values, arrow_type(data_type), mask=~valid)


def _integer_sums(lanes: Lanes, length: int) -> tuple[Ints, Mask]:
    """Return sums of integers and which of them fit in 64 bits."""
    low = _lane(lanes, "s0", length)
    if "s1" not in lanes:
        return low, np.ones(length, np.bool_)
    high = lanes["s1"] + (low >> BITS)
    fits = (high >= -(2**31)) & (high < 2**31)
    return (high << BITS) + (low & (2**BITS - 1)), fits


def _double_sums(lanes: Lanes, length: int) -> Doubles:
    """Return sums as the nearest DOUBLEs; NaN and both infinities together make NaN."""
    digits = _positions(lanes, "s")
    if digits.keys() <= {0}:
        sums = _lane(lanes, "s0", length).astype(np.float64)
    else:
        sums = doubles(numbers(digits, length))
    return _or_special(sums, lanes, {"nan": np.nan, "pinf": np.inf, "ninf": -np.inf})


def _or_special(values: Doubles, lanes: Lanes, specials: Mapping[LaneKey, float]) -> Doubles:
    """Return values, but where there are special ones the sum of these."""
    special = np.zeros(len(values))
    for key, each in specials.items():
        if key in lanes:
            with np.errstate(invalid="ignore"):
                special[lanes[key] > 0] += each
    return np.where(special == 0.0, values, special)


def _variances(lanes: Lanes, count: Ints) -> Doubles:
    """Return (n Σx² - (Σx)²) / (n (n-1)), computed exactly and rounded once."""
    length = len(count)
    squares = numbers(_positions(lanes, "q"), length)
    difference = {squares.low + j: count * digit for j, digit in enumerate(squares.digits)}
    for position, lane in square_lanes(numbers(_positions(lanes, "s"), length)).items():
        difference[position] = difference[position] - lane if position in difference else -lane
    # The divisors take less than 60 bits away: four more digits leave all the bits that a DOUBLE can show.
    quotient, first = divided(numbers(difference, length), np.maximum(count, 1), places=4)
    quotient, second = divided(quotient, np.maximum(count - 1, 1))
    variances = doubles(quotient, inexact=(first > 0) | (second > 0))
    return _or_special(variances, lanes, dict.fromkeys(("nan", "pinf", "ninf"), np.nan))


def _decimal_array(found: Numbers, valid: Mask, data_type: DataType) -> pa.Array:
    """Return integers as the unscaled values of DECIMALs; what is not valid becomes NULL."""
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(data_type), len(valid), [validity, pa.py_buffer(words128(found))])
