"""Numbers: sums, products, quotients, rounding, powers.

Integers are first computed with Arrow's checked kernels; only a batch in which one overflows is looked at more
closely. DOUBLEs follow IEEE 754; their powers and logarithms are those of the C library, as in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Mask
from runtime.expressions import decimals, plain
from runtime.expressions.distinct import rare
from runtime.expressions.values import (
    RANGES,
    Datum,
    Kernel,
    column,
    constant,
    integers,
    is_constant,
    null,
    numbers,
    ranged,
    value_of,
    without,
)

_MOD_DECIMALS = rare(plain.EXACT.remainder)
_ROUND = rare(plain.round_half_up)


# Sums and products


def add(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return sums."""
    match target.kind:
        case Kind.DOUBLE:
            return pc.add(a, b)
        case Kind.DECIMAL:
            return decimals.add(target, a, b)
    return whole(pc.add_checked, np.add, _sum_overflows, target, a, b)


def subtract(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return differences."""
    match target.kind:
        case Kind.DOUBLE:
            return pc.subtract(a, b)
        case Kind.DECIMAL:
            return decimals.subtract(target, a, b)
    return whole(pc.subtract_checked, np.subtract, _difference_overflows, target, a, b)


def multiply(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return products."""
    match target.kind:
        case Kind.DOUBLE:
            return pc.multiply(a, b)
        case Kind.DECIMAL:
            return decimals.multiply(target, a, b)
    return whole(pc.multiply_checked, np.multiply, _product_overflows, target, a, b)


def whole(
    checked: Callable[[Datum, Datum], Datum],
    wrapping: Callable[[Any, Any], Any],
    overflows: Callable[[Any, Any, Any], Mask],
    target: DataType,
    a: Datum,
    b: Datum,
) -> pa.Array:
    """Return what an operation on integers, TIMESTAMPs or INTERVALs yields, NULL beyond the range of the type."""
    a, b = integers(a), integers(b)
    try:
        return ranged(checked(a, b), target)
    except pa.ArrowInvalid:
        x, y = (numbers(operand.cast(pa.int64())) for operand in (a, b))
        with np.errstate(all="ignore"):
            result = wrapping(x, y)
            return ranged(column(result, pa.int64(), a, b, absent=overflows(x, y, result)), target)


def _sum_overflows(a: Any, b: Any, result: Any) -> Mask:
    overflows: Mask = (a ^ result) & (b ^ result) < 0
    return overflows


def _difference_overflows(a: Any, b: Any, result: Any) -> Mask:
    overflows: Mask = (a ^ b) & (a ^ result) < 0
    return overflows


def _product_overflows(a: Any, b: Any, result: Any) -> Mask:
    least = RANGES[Kind.BIGINT][0]
    undone = result // np.where(b == 0, 1, b)
    overflows: Mask = ((undone != a) & (b != 0)) | ((b == -1) & (a == least))
    return overflows


# Quotients


def divide(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return quotients, those of integers cut towards zero; NULL by zero."""
    divisor = _without_zeros(b)
    match target.kind:
        case Kind.DOUBLE:
            return pc.divide(a, divisor)
        case Kind.DECIMAL:
            return decimals.divide(target, a, divisor)
    try:
        return pc.divide_checked(a, divisor)
    except pa.ArrowInvalid:
        least = constant(RANGES[target.kind][0], target)
        overflows = pc.and_(pc.equal(a, least), pc.equal(divisor, constant(-1, target)))
        return without(pc.divide(a, divisor), overflows)


def mod(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return remainders, which have the sign of the dividend; NULL by zero."""
    divisor = _without_zeros(b)
    if is_constant(divisor) and not divisor.is_valid:
        return null(target)
    if target.kind is Kind.DECIMAL:
        return _MOD_DECIMALS(target, a, divisor)
    with np.errstate(all="ignore"):
        return column(np.fmod(numbers(a), numbers(divisor)), arrow_type(target), a, divisor)


def _without_zeros(divisor: Datum) -> Datum:
    """Return divisors with NULL for zero."""
    if is_constant(divisor):
        return divisor if divisor.as_py() else pa.scalar(None, divisor.type)
    zeros = pc.equal(divisor, pa.scalar(0, divisor.type))
    return without(divisor, zeros) if pc.any(zeros).as_py() else divisor


# Sign and rounding


def negate(target: DataType, x: pa.Array) -> pa.Array:
    """Return the opposites."""
    return _unless_least(pc.negate_checked, target, x)


def absolute(target: DataType, x: pa.Array) -> pa.Array:
    """Return the absolute values."""
    return _unless_least(pc.abs_checked, target, x)


def _unless_least(checked: Callable[[pa.Array], pa.Array], target: DataType, x: pa.Array) -> pa.Array:
    """Return what an operation yields; of the least integer there is no opposite."""
    given = integers(x)
    try:
        result = checked(given)
    except pa.ArrowInvalid:
        least = pa.scalar(RANGES[target.kind][0], given.type)
        result = checked(without(given, pc.equal(given, least)))
    return result.view(arrow_type(target)) if target.kind is Kind.INTERVAL else result


def round_half_up(target: DataType, x: pa.Array, digits: Datum | None = None) -> pa.Array:
    """Return numbers of so many digits after the point, halves away from zero."""
    count = 0 if digits is None else value_of(digits)
    if count < 0:
        return _ROUND(target, x, digits)
    match target.kind:
        case Kind.DOUBLE:
            return _rounded_doubles(target, x, count)
        case Kind.DECIMAL:
            return decimals.fit(x, target)
    return x


def _rounded_doubles(target: DataType, x: pa.Array, count: int) -> pa.Array:
    """Return rounded doubles, where the shortest text of a double decides on which side of a half it lies.

    Scaled by a power of ten, a double is less than two parts in 2**52 away from what its text says; only those so
    close to a half, or with digits beyond 2**50, need their text. The others are a quotient of two exact doubles.
    """
    power = 10.0 ** min(count, 15)
    found = numbers(x)
    with np.errstate(all="ignore"):
        scaled = np.abs(found) * power
        below = np.floor(scaled)
        result = np.copysign((below + (scaled - below >= 0.5)) / power, found)
        sure = (np.abs(scaled - below - 0.5) > scaled * 2.0**-50) & (scaled < 2.0**50)
    if count > 15:
        sure[:] = False
    rounded = column(result, x.type, x)
    if sure.all():
        return rounded
    unsure = np.flatnonzero(~sure)
    exactly = _ROUND(target, x.take(pa.array(unsure)), pa.scalar(count))
    return pc.replace_with_mask(rounded, pa.array(~sure), exactly)


def floor(target: DataType, x: pa.Array) -> pa.Array:
    """Return the largest whole numbers not above some others."""
    if pa.types.is_decimal(x.type):
        return decimals.floor(target, x)
    return whole_doubles(target, pc.floor(x)) if pa.types.is_floating(x.type) else ranged(x, target)


def ceil(target: DataType, x: pa.Array) -> pa.Array:
    """Return the smallest whole numbers not below some others."""
    if pa.types.is_decimal(x.type):
        return decimals.ceil(target, x)
    return whole_doubles(target, pc.ceil(x)) if pa.types.is_floating(x.type) else ranged(x, target)


def whole_doubles(target: DataType, x: pa.Array) -> pa.Array:
    """Return doubles without a fraction as whole numbers of a type, NULL beyond its range and for NaN."""
    low, high = RANGES[target.kind]
    found = numbers(x)
    absent = ~((found >= low) & (found < high + 1))
    if not absent.any():
        return ranged(column(found.astype(np.int64), pa.int64(), x), target)
    return ranged(column(np.where(absent, 0.0, found).astype(np.int64), pa.int64(), x, absent=absent), target)


# Powers


def power(target: DataType, x: Datum, y: Datum) -> pa.Array:
    """Return powers as Java has them: 1 to an unknown or infinite power is unknown."""
    base, exponent = pc.add(x, 0.0), y
    one = pc.equal(pc.abs(base), 1.0)
    unknown = pc.and_(one, pc.invert(pc.is_finite(exponent)))
    return pc.if_else(unknown, np.nan, pc.power(base, exponent))


def sqrt(target: DataType, x: pa.Array) -> pa.Array:
    """Return square roots; NaN below 0."""
    return pc.sqrt(x)


def ln(target: DataType, x: pa.Array) -> pa.Array:
    """Return natural logarithms; NULL up to 0."""
    return pc.ln(without(x, pc.less_equal(x, 0.0)))


def exp(target: DataType, x: pa.Array) -> pa.Array:
    """Return powers of e."""
    return pc.exp(x)


KERNELS: dict[str, Kernel] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "mod": mod,
    "negate": negate,
    "abs": absolute,
    "round": round_half_up,
    "floor": floor,
    "ceil": ceil,
    "power": power,
    "sqrt": sqrt,
    "ln": ln,
    "exp": exp,
}
