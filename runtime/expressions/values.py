"""Operands of kernels, and the way between Arrow, NumPy and Python.

A kernel takes the type of its result and its operands, at least one of which is a column; the others may be
constants, which stay scalars. It returns a column, or a constant if the column does not matter. Inside an
expression a DOUBLE may be either zero and any NaN: whatever could tell them apart takes them for one, and `canonical`
leaves one of each in what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Mask

Datum: TypeAlias = "pa.Array | pa.Scalar"
Kernel = Callable[..., Datum]
Value = bool | int | float | Decimal | str | None
"""A value in Python; TIMESTAMP and INTERVAL are microseconds."""

RANGES: dict[Kind, tuple[int, int]] = {
    Kind.BYTE: (-(2**7), 2**7 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.BIGINT: (-(2**63), 2**63 - 1),
    Kind.INTERVAL: (-(2**63), 2**63 - 1),
    Kind.TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""The whole numbers that a type holds; a TIMESTAMP those of the years 0001 to 9999."""

_NEGATIVE_ZERO = np.float64(-0.0).view(np.int64)


def is_constant(datum: Datum) -> bool:
    """Tell whether an operand is the same for all rows."""
    return isinstance(datum, pa.Scalar)


def constant(value: Value, data_type: DataType) -> pa.Scalar:
    """Return a value of a type as a constant."""
    return pa.scalar(value, arrow_type(data_type))


def null(data_type: DataType) -> pa.Scalar:
    """Return NULL of a type."""
    return constant(None, data_type)


def value_of(datum: Datum) -> Any:
    """Return the value of an operand that has to be constant, even where it is a column of one row."""
    return (datum if is_constant(datum) else datum[0]).as_py()


def spread(datum: Datum, length: int) -> pa.Array:
    """Return an operand as a column."""
    return pa.repeat(datum, length) if is_constant(datum) else datum


def integers(datum: Datum) -> Datum:
    """Return TIMESTAMPs and INTERVALs as microseconds, without copying; anything else as it is."""
    if not pa.types.is_temporal(datum.type):
        return datum
    return pa.scalar(datum.value, pa.int64()) if is_constant(datum) else datum.view(pa.int64())


def numbers(datum: Datum) -> Any:
    """Return integers or doubles for NumPy, without copying if none is NULL; NULL becomes some number."""
    if is_constant(datum):
        return integers(datum).as_py()
    array = integers(datum)
    return (array.fill_null(0) if array.null_count else array).to_numpy()


def truths(conditions: pa.BooleanArray) -> Mask:
    """Return where conditions are true, not NULL."""
    if not len(conditions):
        return np.zeros(0, np.bool_)
    known = conditions.fill_null(False) if conditions.null_count else conditions
    last = known.offset + len(known)
    bits = np.unpackbits(np.frombuffer(known.buffers()[1], np.uint8), count=last, bitorder="little")
    return bits[known.offset :].view(np.bool_)


def nulls_of(*data: Datum) -> Mask | None:
    """Return where some of the columns are NULL; None if nowhere."""
    masks = [truths(datum.is_null()) for datum in data if not is_constant(datum) and datum.null_count]
    return np.logical_or.reduce(masks) if masks else None


def column(numbers: npt.NDArray[Any], arrow: pa.DataType, *operands: Datum, absent: Mask | None = None) -> pa.Array:
    """Return computed numbers as a column: NULL where an operand is, or where `absent` says so."""
    nulls = nulls_of(*operands)
    if absent is not None:
        nulls = absent if nulls is None else nulls | absent
    if pa.types.is_temporal(arrow):
        return pa.array(numbers, pa.int64(), mask=nulls).view(arrow)
    return pa.array(numbers, arrow, mask=nulls)


def without(array: pa.Array, absent: pa.BooleanArray) -> pa.Array:
    """Return a column with NULL where a condition holds; where it is NULL, the column is too."""
    return pc.if_else(absent, pa.scalar(None, array.type), array)


def ranged(array: pa.Array, data_type: DataType) -> pa.Array:
    """Return whole numbers, TIMESTAMPs or INTERVALs as those of a type, NULL beyond its range."""
    arrow, (low, high) = arrow_type(data_type), RANGES[data_type.kind]
    whole = integers(array)
    if whole.type.bit_width > arrow.bit_width or data_type.kind is Kind.TIMESTAMP:
        found = numbers(whole)
        if len(found) and not (low <= found.min() and found.max() <= high):
            whole = column(found, whole.type, whole, absent=(found < low) | (found > high))
    if pa.types.is_temporal(arrow):
        return pc.cast(whole, pa.int64()).view(arrow)
    return pc.cast(whole, arrow)


def has_nan(datum: Datum) -> bool:
    """Tell whether one of some doubles is NaN."""
    if is_constant(datum):
        return datum.is_valid and math.isnan(datum.as_py())
    found = numbers(datum)
    with np.errstate(invalid="ignore"):
        return bool(len(found)) and bool(np.isnan(found.min()))


def canonical(array: pa.Array) -> pa.Array:
    """Return doubles with one NaN and one zero; the same column if it is so already."""
    found = numbers(array)
    if not len(found) or not (found.view(np.int64).min() == _NEGATIVE_ZERO or has_nan(array)):
        return array
    made = found + 0.0
    made[np.isnan(made)] = np.nan
    return column(made, array.type, array)
