"""Conversions between types: NULL where the other type has no such value.

Numbers are converted column by column. Texts, and DOUBLEs that become DECIMALs by way of their text, are converted
once per distinct value.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.expressions import arithmetic, decimals, plain, times
from runtime.expressions.distinct import rare
from runtime.expressions.plain import SECOND
from runtime.expressions.values import Kernel, ranged

_DOUBLES_TO_DECIMALS = rare(lambda value: Decimal(repr(value)))


def cast(source: DataType, target: DataType) -> Kernel:
    """Return the kernel that converts values of one type to another."""
    if source == target:
        return lambda _, x: x
    if target.kind is Kind.STRING:
        return _TO_TEXT.get(source.kind, _arrow_text)
    match source.kind:
        case Kind.STRING:
            return rare(lambda text: plain.from_text(text, target))
        case Kind.BOOLEAN:
            return _from_boolean
        case Kind.TIMESTAMP:
            return _from_timestamp
        case Kind.DOUBLE:
            return _from_double
        case Kind.DECIMAL:
            return _from_decimal
    return _from_integer


def _arrow_text(target: DataType, x: pa.Array) -> pa.Array:
    return x.cast(pa.string())


def _timestamp_text(target: DataType, x: pa.Array) -> pa.Array:
    """Return timestamps as texts; Arrow writes all six digits of the fraction."""
    return pc.ascii_rtrim(pc.ascii_rtrim(x.cast(pa.string()), "0"), ".")


_TO_TEXT: dict[Kind, Kernel] = {
    Kind.DOUBLE: rare(plain.double_text),
    Kind.DECIMAL: rare(plain.decimal_text),
    Kind.INTERVAL: rare(plain.interval_text),
    Kind.TIMESTAMP: _timestamp_text,
}


def _from_boolean(target: DataType, x: pa.Array) -> pa.Array:
    if target.kind is Kind.DECIMAL:
        return decimals.from_integers(x.cast(pa.int8()), target)
    return x.cast(arrow_type(target))


def _from_integer(target: DataType, x: pa.Array) -> pa.Array:
    match target.kind:
        case Kind.BOOLEAN:
            return pc.not_equal(x, pa.scalar(0, x.type))
        case Kind.DOUBLE:
            return x.cast(pa.float64(), safe=False)
        case Kind.DECIMAL:
            return decimals.from_integers(x, target)
        case Kind.TIMESTAMP:
            return arithmetic.multiply(target, x.cast(pa.int64()), pa.scalar(SECOND))
    return ranged(x, target)


def _from_timestamp(target: DataType, x: pa.Array) -> pa.Array:
    match target.kind:
        case Kind.DECIMAL:
            return decimals.fit(times.exact_seconds(x), target)
        case Kind.DOUBLE:
            return decimals.to_double(target, times.exact_seconds(x))
    return ranged(times.seconds(x), target)


def _from_double(target: DataType, x: pa.Array) -> pa.Array:
    match target.kind:
        case Kind.BOOLEAN:
            return pc.not_equal(x, 0.0)
        case Kind.DECIMAL:
            return _DOUBLES_TO_DECIMALS(target, x)
        case Kind.TIMESTAMP:
            return arithmetic.whole_doubles(target, pc.trunc(pc.multiply(x, float(SECOND))))
    return arithmetic.whole_doubles(target, pc.trunc(x))


def _from_decimal(target: DataType, x: pa.Array) -> pa.Array:
    match target.kind:
        case Kind.BOOLEAN:
            return pc.not_equal(x, pa.scalar(Decimal(0), x.type))
        case Kind.DOUBLE:
            return decimals.to_double(target, x)
        case Kind.DECIMAL:
            return decimals.fit(x, target)
        case Kind.TIMESTAMP:
            return rare(plain.seconds_from)(target, x)
    return decimals.to_integers(target, x)
