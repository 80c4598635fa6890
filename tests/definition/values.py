"""Values and rows: their normal form, their order, and the range of each type.

In normal form two values are the same value exactly if Python finds them equal inside a tuple, which is
how bags, groups and DISTINCT compare: there is one NaN (always the object `NAN`), one zero (never -0.0), and
NULL is None. TIMESTAMP and INTERVAL values are ints of microseconds.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from cql.types import DataType, Kind

Value = bool | int | float | Decimal | str | None
Row = tuple[Value, ...]
Number = int | float | Decimal | Fraction

NAN = math.nan
WIDE = Context(prec=1000, rounding=ROUND_HALF_UP)
"""Wide enough for every exact result: nothing is rounded before its type says so."""

RANGES = {
    Kind.BYTE: (-(2**7), 2**7 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.BIGINT: (-(2**63), 2**63 - 1),
    Kind.INTERVAL: (-(2**63), 2**63 - 1),
    Kind.TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),  # the years 0001 to 9999
}


def canonical(value: Value) -> Value:
    """Return a value in normal form."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def fit(value: Value | Fraction, data_type: DataType) -> Value:
    """Return a value as one of a type: rounded half up to its scale; NULL outside its range."""
    if value is None or isinstance(value, bool | str):
        return value
    if data_type.kind in RANGES:
        low, high = RANGES[data_type.kind]
        return int(value) if low <= value <= high else None
    if data_type.kind is Kind.DECIMAL:
        return _decimal(value, data_type.precision, data_type.scale)
    return canonical(_double(value))


def _decimal(value: Number, precision: int, scale: int) -> Decimal | None:
    if isinstance(value, Fraction):
        exact = WIDE.divide(Decimal(value.numerator), Decimal(value.denominator))
    else:
        exact = Decimal(value)
    if exact.adjusted() > precision - scale:
        return None
    rounded = exact.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    return rounded if rounded.copy_abs() < 10 ** (precision - scale) else None


def _double(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def order(value: Value) -> tuple[int, Value]:
    """Return what values of one type sort by: NULL first, NaN last, strings by code point."""
    if value is None:
        return 0, 0
    if value is NAN:
        return 2, 0
    return 1, value


def row_order(row: Row) -> list[tuple[int, Value]]:
    """Return what rows sort by: their columns from left to right."""
    return [order(value) for value in row]
