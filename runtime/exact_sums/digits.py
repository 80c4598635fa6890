"""Columns of exact numbers and their rounding: in digits of 32 bits they add, multiply and divide as on paper.

A number has one form only, a sign and digits from 0 to 2^32-1, so that what is computed from it depends on its value
alone, never on the sums that led to it. All loops are over digits; every step works on a whole column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import numpy as np
import numpy.typing as npt

from runtime.columns.batch import Ints, Mask

Doubles = npt.NDArray[np.float64]

BITS = 32
_DIGIT = 2**BITS - 1
_SMALLEST = -1074
"""The exponent of the smallest DOUBLE: all are its multiples."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Number i is the sum of `digits[j, i]` times 2^(32 (low + j)) for all j, with its sign."""

    low: int
    digits: Ints
    negative: Mask

    @property
    def length(self) -> int:
        return len(self.negative)


def numbers(lanes: Mapping[int, Ints], length: int) -> Numbers:
    """Return the sums of lanes: lane j counts multiples of 2^(32 j). They stay below 2^62 in magnitude."""
    low, high = min(lanes, default=0), max(lanes, default=0)
    digits = np.zeros((high - low + 2, length), np.int64)
    for position, lane in lanes.items():
        digits[position - low] = lane
    _carry(digits)
    negative = digits[-1] < 0
    if negative.any():
        _negate(digits, negative)
    return Numbers(low, digits, negative)


def _carry(digits: Ints) -> None:
    """Bring all digits but the highest into their range."""
    for digit, above in pairwise(digits):
        above += digit >> BITS
        digit &= _DIGIT


def _negate(digits: Ints, where: Mask) -> None:
    """Change the sign of some numbers and carry again."""
    ones = -where.astype(np.int64)
    digits ^= ones
    digits -= ones
    _carry(digits)


def scaled(number: Numbers, factor: int) -> Numbers:
    """Return numbers times a positive integer below 2^30."""
    digits = np.vstack([number.digits * factor, np.zeros((1, number.length), np.int64)])
    _carry(digits)
    return Numbers(number.low, digits, number.negative)


def square_lanes(number: Numbers) -> dict[int, Ints]:
    """Return lanes of the squares of numbers."""
    digits = number.digits.view(np.uint64)
    used = [position for position, digit in enumerate(digits) if digit.any()]
    lanes = np.zeros((2 * len(digits), number.length), np.uint64)
    for i, j in combinations_with_replacement(used, 2):
        product = digits[i] * digits[j]
        twice = np.uint64(i != j)
        lanes[i + j] += (product & np.uint64(_DIGIT)) << twice
        lanes[i + j + 1] += (product >> np.uint64(BITS)) << twice
    return {2 * number.low + position: lane for position, lane in enumerate(lanes.view(np.int64))}


def divided(number: Numbers, divisor: Ints, places: int = 0) -> tuple[Numbers, Ints]:
    """Return quotients, with so many more digits at the low end, and what remains; divisors are below 2^31.

    The quotient's magnitude is cut, not rounded; the remainder has no sign.
    """
    quotient = np.zeros((len(number.digits) + places, number.length), np.int64)
    quotient[places:] = number.digits
    remainder = np.zeros(number.length, np.int64)
    for digit in quotient[::-1]:
        dividend = (remainder << BITS) + digit
        np.floor_divide(dividend, divisor, out=digit)
        remainder = dividend - digit * divisor
    return Numbers(number.low - places, quotient, number.negative), remainder


def incremented(number: Numbers, by: Mask) -> Numbers:
    """Return numbers whose lowest digit grew by one, away from zero, where the mask says so."""
    digits = number.digits.copy()
    digits[0] += by
    _carry(digits)
    return Numbers(number.low, digits, number.negative)


def doubles(number: Numbers, inexact: Mask | None = None) -> Doubles:
    """Return the nearest DOUBLEs, ties to even; `inexact` marks magnitudes that are a little larger than written."""
    leading, exponent, cut = _leading_bits(number)
    if inexact is not None:
        cut |= inexact
    leading |= cut
    drop = np.maximum(10, _SMALLEST - exponent)
    leading[drop > 63] = 0
    drop = np.minimum(drop, 63)
    kept = leading >> drop
    rest = leading - (kept << drop)
    half = np.int64(1) << (drop - 1)
    kept += (rest > half) | ((rest == half) & (kept & 1 == 1))
    with np.errstate(over="ignore"):
        found: Doubles = np.ldexp(kept.astype(np.float64), exponent + drop)
    return np.negative(found, out=found, where=number.negative)


def _leading_bits(number: Numbers) -> tuple[Ints, Ints, Mask]:
    """Return the first 63 bits of each number, the exponent of the last one, and whether ones follow."""
    first, second, third, top = np.zeros((4, number.length), np.int64)
    cut, more = np.zeros((2, number.length), np.bool_)
    zeros = np.zeros((2, number.length), np.int64)
    for position, (lowest, lower, digit) in enumerate(_threes([*zeros, *number.digits])):
        here = digit != 0
        np.copyto(first, digit, where=here)
        np.copyto(second, lower, where=here)
        np.copyto(third, lowest, where=here)
        np.copyto(top, position, where=here)
        np.copyto(cut, more, where=here)
        more |= lowest != 0
    shift = np.frexp(first.astype(np.float64))[1].astype(np.int64) + 1
    following = ((second << BITS) | third).view(np.uint64)
    unsigned = shift.view(np.uint64)
    bits = (first << (2 * BITS - shift)) | (following >> unsigned).view(np.int64)
    cut |= (following & ((np.uint64(1) << unsigned) - np.uint64(1))) != 0
    return bits, BITS * (number.low + top - 2) + shift, cut


def _threes(rows: Sequence[Ints]) -> Iterator[tuple[Ints, Ints, Ints]]:
    return zip(rows, rows[1:], rows[2:], strict=False)


def below_power_of_ten(number: Numbers, power: int) -> Mask:
    """Tell which magnitudes are below 10^power; the lowest digit must be at position 0."""
    limit = 10**power
    result = np.zeros(number.length, np.bool_)
    for position, digit in enumerate(number.digits):
        bound = (limit >> (BITS * position)) & _DIGIT
        result = (digit < bound) | ((digit == bound) & result)
    return result if limit >> (BITS * len(number.digits)) == 0 else np.ones_like(result)


def words128(number: Numbers) -> npt.NDArray[np.uint32]:
    """Return integers below 2^127 as rows of four words of 32 bits, in two's complement, the lowest first."""
    lanes = np.zeros((5, number.length), np.int64)
    lanes[: min(4, len(number.digits))] = number.digits[:4]
    _negate(lanes, number.negative)
    return np.ascontiguousarray(lanes[:4].T.astype(np.uint32))
