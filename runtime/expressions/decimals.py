"""DECIMALs: exact arithmetic, and rounding to the scale of a type.

Arrow's sums and products have just the digits they need, which are those of our types as long as they are at most
38. What needs more is computed with up to 76 digits and then fitted, and what needs still more in Python.

Arrow's division (and with it rounding, casting to a smaller scale, ..) can be wrong if the divisor has more than 32
bits: 8e32 with 17 digits after the point, rounded to two, gives 799999999999999999999999999999999.99. So digits are cut
off nine at a time. Halves are rounded away from zero, which only the first digit that is cut off decides.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.types import MAX_PRECISION, DataType
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints
from runtime.expressions import plain
from runtime.expressions.distinct import per_distinct, rare
from runtime.expressions.values import RANGES, Datum, column, nulls_of, without

_WIDEST = 76
_SAFE_DIGITS = 9
"""How many digits Arrow can cut off at once: ten to that power has 30 bits."""

_EXACT_INTEGERS = 2**53
"""Up to here every integer is a double."""


def add(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return sums."""
    return _with_digits(_digits_of_sum(a.type, b.type), pc.add, plain.EXACT.add, target, a, b)


def subtract(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return differences."""
    return _with_digits(_digits_of_sum(a.type, b.type), pc.subtract, plain.EXACT.subtract, target, a, b)


def multiply(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return products."""
    digits = a.type.precision + b.type.precision + 1
    return _with_digits(digits, pc.multiply, plain.EXACT.multiply, target, a, b)


def _digits_of_sum(a: pa.DataType, b: pa.DataType) -> int:
    whole: int = max(a.precision - a.scale, b.precision - b.scale)
    scale: int = max(a.scale, b.scale)
    return whole + scale + 1


def _with_digits(
    digits: int,
    operation: Callable[[Datum, Datum], Datum],
    in_python: Callable[[Decimal, Decimal], Decimal],
    target: DataType,
    a: Datum,
    b: Datum,
) -> Datum:
    if digits <= MAX_PRECISION:
        return operation(a, b)
    if digits <= _WIDEST:
        return fit(operation(_with_room(a), _with_room(b)), target)
    return rare(in_python)(target, a, b)


def divide(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return quotients by numbers that are not zero.

    Arrow cuts them after a number of digits that follows from the types, here one more than the result has.
    """
    whole = a.type.precision - a.type.scale
    scale = max(a.type.scale, target.scale + b.type.scale - b.type.precision)
    if whole + scale + b.type.precision + 1 > _WIDEST or not _is_safe_divisor(b):
        return rare(plain.EXACT.divide)(target, a, b)
    kind = pa.decimal128 if whole + scale + b.type.precision + 1 <= MAX_PRECISION else pa.decimal256
    dividend, divisor = a.cast(kind(whole + scale, scale)), b.cast(kind(b.type.precision, b.type.scale))
    return fit(pc.divide(dividend, divisor), target)


def _is_safe_divisor(b: Datum) -> bool:
    largest = pc.max(pc.abs(b)).as_py()
    return largest is None or largest.scaleb(b.type.scale) < 2**32


def _with_room(datum: Datum) -> Datum:
    """Return numbers such that sums and products of them may have up to 76 digits."""
    return datum.cast(pa.decimal256(datum.type.precision, datum.type.scale))


def _wide(array: pa.Array) -> pa.Array:
    """Return numbers of a type with room for at least one more digit."""
    return array.cast(_widest(array.type.precision, array.type.scale))


def _widest(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(MAX_PRECISION, scale) if precision < MAX_PRECISION else pa.decimal256(_WIDEST, scale)


def fit(array: pa.Array, target: DataType) -> pa.Array:
    """Return numbers of another precision and scale: rounded half away from zero, NULL if there are too many digits."""
    given, whole = array.type, target.precision - target.scale
    if given == arrow_type(target):
        return array
    rounds = given.scale > target.scale
    if rounds:
        array = pc.round(_cut(_wide(array), target.scale + 1), target.scale, "half_towards_infinity")
    if given.precision - given.scale + rounds > whole:
        limit = pa.scalar(Decimal(10**whole), array.type)
        array = without(array, pc.greater_equal(pc.abs(array), limit))
    return array.cast(arrow_type(target))


def _cut(wide: pa.Array, scale: int) -> pa.Array:
    """Return numbers cut towards zero to so many digits after the point, if they have more."""
    kind = pa.decimal128 if wide.type.bit_width == 128 else pa.decimal256
    while wide.type.scale > scale:
        wide = wide.cast(kind(wide.type.precision, max(scale, wide.type.scale - _SAFE_DIGITS)), safe=False)
    return wide


def floor(target: DataType, x: pa.Array) -> pa.Array:
    """Return the largest whole numbers not above some others."""
    return _whole(target, x, pc.less, pc.subtract)


def ceil(target: DataType, x: pa.Array) -> pa.Array:
    """Return the smallest whole numbers not below some others."""
    return _whole(target, x, pc.greater, pc.add)


def _whole(target: DataType, x: pa.Array, beyond: Callable[..., pa.Array], step: Callable[..., pa.Array]) -> pa.Array:
    """Return numbers without their fractions, one step further where the number lies beyond that."""
    wide = _wide(x)
    cut = _cut(wide, 0)
    steps = beyond(wide, cut.cast(wide.type)).cast(pa.int8()).cast(pa.decimal256(3, 0))
    return step(cut.cast(pa.decimal256(MAX_PRECISION + 1, 0)), steps).cast(arrow_type(target))


def from_integers(array: pa.Array, target: DataType) -> pa.Array:
    """Return whole numbers as DECIMALs."""
    return fit(array.cast(pa.int64()).cast(pa.decimal128(19, 0)), target)


def shifted(unscaled: Ints, arrow: pa.DataType, *operands: Datum) -> pa.Array:
    """Return DECIMALs from their digits, the point left out: 125 is 1.25 if the scale is 2."""
    words = np.stack([unscaled, unscaled >> 63], axis=1)
    nulls = nulls_of(*operands)
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    return pa.Array.from_buffers(arrow, len(unscaled), [validity, pa.py_buffer(words)])


def to_double(target: DataType, array: pa.Array) -> pa.Array:
    """Return DECIMALs as the nearest doubles."""
    scale = array.type.scale
    known = array.fill_null(pa.scalar(Decimal(0), array.type)) if array.null_count else array
    words = _words(known)
    if scale <= 22 and bool((words[:, 1] == words[:, 0] >> 63).all()):
        quotients = quotient(words[:, 0], scale)
        if quotients is not None:
            return column(quotients, arrow_type(target), array)
    return per_distinct(lambda value: None if value is None else float(value), target, array)


def _words(array: pa.Array) -> Ints:
    """Return the low and the high half of each number."""
    words = np.frombuffer(array.buffers()[1], np.int64) if len(array) else np.zeros(0, np.int64)
    return words.reshape(-1, 2)[array.offset : array.offset + len(array)]


def quotient(integers: Ints, scale: int) -> npt.NDArray[np.float64] | None:
    """Return integers divided by a power of ten up to 22, rounded once; None if one is too large for that."""
    if len(integers) and (integers.min() < -_EXACT_INTEGERS or integers.max() > _EXACT_INTEGERS):
        return None
    return integers.astype(np.float64) / 10.0**scale


def to_integers(target: DataType, array: pa.Array) -> pa.Array:
    """Return DECIMALs cut towards zero as integers of a type, NULL beyond its range."""
    cut = _cut(_wide(array), 0)
    low, high = (pa.scalar(Decimal(bound), cut.type) for bound in RANGES[target.kind])
    return without(cut, pc.or_(pc.less(cut, low), pc.greater(cut, high))).cast(arrow_type(target))
