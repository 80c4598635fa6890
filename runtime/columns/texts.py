"""From values to text, a column at a time, and from columns of text to lines.

Lines are joined by Arrow; the memory behind the array that comes out is what is written. Texts that need quoting are
looked at by distinct value, all others as a whole.

| type | in JSON | elsewhere |
|---|---|---|
| NULL | `null` | as the format has it |
| DOUBLE | a number; `"NaN"`, `"Infinity"`, `"-Infinity"` | the same without quotes |
| DECIMAL | a number, with its whole scale | the same |
| TIMESTAMP | `"2026-01-31T12:00:00.500000Z"` | the same without quotes |
| INTERVAL | the number of its microseconds | the same; in tables for people, in words |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.intervals import TimeDomain
from cql.visible import OBEYED_BYTES, visible
from runtime.columns.batch import BEGINNING, Ints

_NOT_IN_JSON = re.compile(rb'["\\]|' + OBEYED_BYTES.pattern)


def known_instants(instants: Ints, time: TimeDomain | None) -> pa.Array:
    """Return sorted instants as values of their clock; NULL for what was there before all instants."""
    is_before = instants == BEGINNING if len(instants) and instants[0] == BEGINNING else None
    values = pa.array(instants, mask=is_before)
    return values.view(pa.timestamp("us")) if time is TimeDomain.TIMESTAMP else values


def instant_texts(instants: Ints, time: TimeDomain | None) -> pa.Array:
    """Return instants as texts: numbers for integer time, ISO 8601 for TIMESTAMP time."""
    return plain_texts(known_instants(instants, time))


def timestamp_texts(array: pa.Array) -> pa.Array:
    """Return timestamps in ISO 8601, in UTC and with microseconds."""
    texts = pc.binary_replace_slice(array.cast(pa.string()), 10, 11, "T")
    return pc.binary_join_element_wise(texts, "Z", "")


def plain_texts(array: pa.Array) -> pa.Array:
    """Return values as texts; NULL stays NULL, and a text is what it is."""
    if pa.types.is_timestamp(array.type):
        return timestamp_texts(array)
    if pa.types.is_duration(array.type):
        return array.view(pa.int64()).cast(pa.string())
    if pa.types.is_float64(array.type):
        return _double_texts(array)
    if pa.types.is_decimal(array.type):
        return _decimal_texts(array)
    return array.cast(pa.string())


def json_texts(array: pa.Array) -> pa.Array:
    """Return values as they are written in JSON.

    >>> json_texts(pa.array(['a"b', None])).to_pylist()
    ['"a\\\\"b"', 'null']
    """
    texts = plain_texts(array)
    if pa.types.is_string(array.type):
        texts = escaped(texts, _NOT_IN_JSON, lambda text: json_text(text)[1:-1])
    if pa.types.is_string(array.type) or pa.types.is_timestamp(array.type):
        texts = quoted(texts)
    elif pa.types.is_float64(array.type):
        texts = pc.if_else(pc.is_finite(array), texts, quoted(texts))
    return texts.fill_null("null")


def json_text(value: str | int) -> str:
    """Return a text or number in JSON, as it may be shown on a terminal."""
    return visible(json.dumps(value, ensure_ascii=False))


def quoted(texts: pa.Array) -> pa.Array:
    """Return texts between double quotes."""
    return pc.binary_join_element_wise('"', texts, '"', "")


def escaped(texts: pa.Array, special: re.Pattern[bytes], escape: Callable[[str], str]) -> pa.Array:
    """Return texts in which those that hold something special are escaped."""
    data = texts.buffers()[2]
    return by_distinct(texts, escape) if data and special.search(data) else texts


def by_distinct(values: pa.Array, text: Callable[..., str]) -> pa.Array:
    """Return a text for each value, computed once for each distinct one; NULL stays NULL."""
    encoded = values.dictionary_encode()
    made = pa.array([text(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return made.take(encoded.indices)


def marks(weights: Ints) -> pa.Array:
    """Return + for what is added and - for what is removed."""
    return pa.array(["-", "+"]).take(pa.array((weights > 0).astype(np.int8)))


def lines(parts: Sequence[pa.Array | str]) -> bytes:
    """Return lines of texts: the parts, of which one at least is an array without NULLs, joined row by row."""
    joined = pc.binary_join_element_wise(*parts, "\n", "")
    if not len(joined):
        return b""
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return bytes(joined.buffers()[2][int(offsets[0]) : int(offsets[-1])])


def _double_texts(array: pa.Array) -> pa.Array:
    """Return doubles as the shortest decimal texts that mean them, always with a point or an exponent."""
    texts = array.cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return texts
    texts = pc.if_else(pc.is_nan(array), "NaN", texts)
    return pc.if_else(pc.is_inf(array), pc.if_else(pc.greater(array, 0.0), "Infinity", "-Infinity"), texts)


def _decimal_texts(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    data = texts.buffers()[2]
    return by_distinct(array, lambda value: f"{value:f}") if data and b"E" in data.to_pybytes() else texts
