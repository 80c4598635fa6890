"""From text to values: a field of a text file is read as CAST reads a text, and what CAST makes NULL of is bad.

Only white space may stand around a value: CAST passes over other control characters, too; in a file they are damage.

Whole columns are converted by Arrow where it agrees with CAST; where a column holds anything else, its distinct
values are converted one by one. Doubles have their normal form: one NaN, and no -0.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.binder.literals import timestamp_microseconds
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Mask

Converted = tuple[pa.Array, Mask | None]
"""Values of a type, and where the text was none of it; None: nowhere."""

FIRST_INSTANT, LAST_INSTANT = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 0001 to 9999 in microseconds."""

_WHITE_SPACE = " \t\n\v\f\r"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ENDLESS = re.compile(r"[+-]?inf(inity)?|nan", re.IGNORECASE)
_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)
_BITS = {Kind.BYTE: 7, Kind.INT: 31, Kind.BIGINT: 63}
_MOST_DIGITS = 4000
_EXACT = Context(prec=_MOST_DIGITS, rounding=ROUND_HALF_UP)


def from_text(texts: pa.Array, data_type: DataType) -> Converted:
    """Return strings as values of a type.

    >>> from cql.types import INT
    >>> values, bad = from_text(pa.array(["7", None, " +8", "x"]), INT)
    >>> values.to_pylist(), bad.tolist()
    ([7, None, 8, None], [False, False, False, True])
    """
    if data_type.kind is Kind.STRING:
        return texts, None
    fast = _by_arrow(texts, data_type)
    return (fast, None) if fast is not None else by_value(texts, data_type, text_value)


def by_value(values: pa.Array, data_type: DataType, convert: Callable[[Any, DataType], Any]) -> Converted:
    """Convert the distinct values of an array one by one; None means that a value is bad."""
    encoded = values.dictionary_encode()
    converted = [convert(value, data_type) for value in encoded.dictionary.to_pylist()]
    found = canonical(pa.array(converted, arrow_type(data_type)).take(encoded.indices))
    bad = np.asarray(pc.and_(found.is_null(), values.is_valid()))
    return found, bad if bad.any() else None


def decoded(texts: pa.Array) -> Converted:
    """Return bytes as strings; what is not UTF-8 is bad."""
    try:
        return texts.cast(pa.string()), None
    except pa.ArrowInvalid:
        return by_value(texts, DataType(Kind.STRING), lambda value, _: _decoded(value))


def canonical(array: pa.Array) -> pa.Array:
    """Return doubles in normal form, and other values as they are."""
    if not pa.types.is_float64(array.type):
        return array
    values = np.asarray(array.fill_null(0.0) if array.null_count else array) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, mask=np.asarray(array.is_null()) if array.null_count else None)


def _by_arrow(texts: pa.Array, data_type: DataType) -> pa.Array | None:
    """Return the values if Arrow can read all texts and reads them as CAST does."""
    try:
        if data_type.kind is Kind.TIMESTAMP:
            return _timestamps(texts)
        if data_type.is_integer and _holds(texts, b"xX"):
            return None
        if data_type.kind is Kind.DOUBLE and _holds(texts, b"nN"):
            return None
        return canonical(texts.cast(arrow_type(data_type)))
    except pa.ArrowInvalid:
        return None


def _holds(texts: pa.Array, characters: bytes) -> bool:
    """Return whether the memory behind some texts has one of some characters in it."""
    data = texts.buffers()[2]
    memory = data.to_pybytes() if data else b""
    return any(character in memory for character in characters)


def _timestamps(texts: pa.Array) -> pa.Array | None:
    """Return timestamps of the common forms: a day, minutes, seconds, all with or all without a Z."""
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    if lengths["max"] is None:
        return pa.nulls(len(texts), pa.timestamp("us"))
    is_zoned = pc.all(pc.ends_with(texts, "Z")).as_py()
    if lengths["max"] - is_zoned > 10 and (lengths["min"] - is_zoned) < 16:
        return None
    zoned = texts.cast(pa.timestamp("us", "UTC" if is_zoned else None))
    found = zoned.cast(pa.timestamp("us"))
    return found if pc.min(found.view(pa.int64())).as_py() >= FIRST_INSTANT else None


def text_value(text: str, data_type: DataType) -> Any:
    """Return the value of a type that a text means, or None."""
    stripped = text.strip(_WHITE_SPACE)
    if data_type.kind is Kind.BOOLEAN:
        return _BOOLEANS.get(stripped.lower())
    if data_type.kind is Kind.TIMESTAMP:
        instant = timestamp_microseconds(stripped)
        return instant if instant is not None and FIRST_INSTANT <= instant <= LAST_INSTANT else None
    if len(stripped) > _MOST_DIGITS:
        return None
    if data_type.is_integer:
        return whole_value(int(stripped), data_type) if _INTEGER.fullmatch(stripped) else None
    if data_type.kind is Kind.DOUBLE:
        return float(stripped) if _NUMBER.fullmatch(stripped) or _ENDLESS.fullmatch(stripped) else None
    return decimal_value(stripped, data_type) if _NUMBER.fullmatch(stripped) else None


def whole_value(value: int, data_type: DataType) -> int | None:
    """Return an integer if it is in the range of its type."""
    limit = 2 ** _BITS[data_type.kind]
    return value if -limit <= value < limit else None


def decimal_value(number: str | int | Decimal, data_type: DataType) -> Decimal | None:
    """Return a number rounded half up to the scale of its type, or None beyond its precision."""
    whole_digits = data_type.precision - data_type.scale
    try:
        value = Decimal(number)
        if value and value.adjusted() > whole_digits:
            return None
        rounded = value.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    except InvalidOperation:
        return None
    return rounded if rounded.copy_abs() < 10**whole_digits else None


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
