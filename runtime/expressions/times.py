"""Timestamps: their parts, cutting them, formatting them. All of it in UTC, on microseconds since 1970."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cql.types import TIMESTAMP, DataType
from runtime.columns.arrow_types import arrow_type
from runtime.expressions import decimals, plain
from runtime.expressions.distinct import rare
from runtime.expressions.plain import SECOND
from runtime.expressions.values import Datum, Kernel, column, numbers, value_of

_PARTS = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dow": lambda timestamps: pc.day_of_week(timestamps, count_from_zero=False, week_start=7),
    "doy": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
}
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": 86_400 * SECOND,
}


def extract(target: DataType, field: Datum, timestamps: pa.Array) -> pa.Array:
    """Return a part of each timestamp; the second has its fraction."""
    part = value_of(field)
    if part == "second":
        found = numbers(timestamps)
        return decimals.shifted(found - found // (60 * SECOND) * (60 * SECOND), arrow_type(target), timestamps)
    return _PARTS[part](timestamps).cast(arrow_type(target))


def date_trunc(target: DataType, unit: Datum, timestamps: pa.Array) -> pa.Array:
    """Return timestamps cut to a unit; weeks start on Monday."""
    name = value_of(unit).lower()
    if name not in _MICROSECONDS:
        return pc.floor_temporal(timestamps, unit=name)
    found, size = numbers(timestamps), _MICROSECONDS[name]
    return column(found // size * size, arrow_type(target), timestamps)


def seconds(timestamps: pa.Array) -> pa.Array:
    """Return whole seconds since 1970, rounded down, as 64-bit integers."""
    return column(numbers(timestamps) // SECOND, pa.int64(), timestamps)


def epoch(target: DataType, timestamps: pa.Array) -> pa.Array:
    """Return whole seconds since 1970, rounded down."""
    return seconds(timestamps)


def exact_seconds(timestamps: pa.Array) -> pa.Array:
    """Return seconds since 1970 with their fractions, as DECIMALs."""
    return decimals.shifted(numbers(timestamps), pa.decimal128(19, 6), timestamps)


def date_format(target: DataType, timestamps: Datum, pattern: Datum) -> pa.Array:
    """Return timestamps as texts. What the pattern does not show is cut off first, so that fewer are distinct."""
    unit = next((unit for letters, unit in _SHOWN if set(letters) & set(value_of(pattern))), "day")
    return _DATE_FORMAT(target, date_trunc(TIMESTAMP, pa.scalar(unit), timestamps), pattern)


_DATE_FORMAT = rare(plain.date_format)
_SHOWN = (("S", "microsecond"), ("s", "second"), ("m", "minute"), ("Hha", "hour"))
"""The letters of date_format that show more than the day."""


KERNELS: dict[str, Kernel] = {
    "extract": extract,
    "date_trunc": date_trunc,
    "date_format": date_format,
    "epoch": epoch,
}
