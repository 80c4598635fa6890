"""Parquet files: columns go by name, and their types have to be those declared or narrower.

| declared | found in the file |
|---|---|
| BYTE, INT, BIGINT | integers of any width; a value out of range is bad |
| DOUBLE | floating-point numbers of any width, integers |
| DECIMAL | decimals and integers; a value with too many digits is bad |
| TIMESTAMP | timestamps of any unit, in UTC if they have a zone, cut to microseconds; dates |
| STRING, BOOLEAN | texts, truth values |
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from cql.catalog import ColumnModel
from cql.errors import nearest
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints
from runtime.connectors.intake import FileChunk, RowLayout
from runtime.connectors.paths import damaged, reading
from runtime.connectors.values import (
    FIRST_INSTANT,
    LAST_INSTANT,
    Converted,
    by_value,
    canonical,
    decimal_value,
    whole_value,
)

ROWS = 1 << 18
"""How many rows a chunk has at most: each has a cost of its own, and more than these do not fit into caches."""


class ParquetReader:
    """Reads Parquet files."""

    def __init__(self, layout: RowLayout) -> None:
        self._fields = layout.fields

    def read(self, path: Path) -> Iterator[FileChunk]:
        """Yield the chunks of a file."""
        with reading(path), parquet.ParquetFile(path) as file:
            names = [_found(path, file.schema_arrow, column) for column in self._fields]
            first = 1
            for batch in file.iter_batches(ROWS, columns=list(dict.fromkeys(names))):
                chunk = self._chunk(str(path), [_plain(batch.column(name)) for name in names], first)
                yield chunk
                first += chunk.length

    def _chunk(self, file: str, found: list[pa.Array], first: int) -> FileChunk:
        columns = [converted(array, column.type) for array, column in zip(found, self._fields, strict=True)]
        bad = {at: wrong for at, (_, wrong) in enumerate(columns) if wrong is not None}
        arrays = [array for array, _ in columns]
        return FileChunk(file, "row", arrays, bad, partial(_numbers, first, len(arrays[0])), partial(_raw, found))


def _numbers(first: int, length: int) -> Ints:
    return np.arange(first, first + length, dtype=np.int64)


def _raw(found: list[pa.Array], at: int, row: int) -> str:
    return str(found[at][row].as_py())


def _found(path: Path, schema: pa.Schema, column: ColumnModel) -> str:
    """Return the name in the file of a column; raises if it is missing or has a type that does not fit."""
    same = [name for name in schema.names if name.casefold() == column.name.casefold()]
    if column.name not in same and len(same) != 1:
        guesses = nearest(column.name, schema.names)
        hint = f"did you mean {guesses[0]}?" if guesses else f"its columns are {', '.join(schema.names[:8])}"
        raise damaged(path, f"has no column '{column.name}'", hint)
    name = column.name if column.name in same else same[0]
    if not fits(schema.field(name).type, column.type):
        raise damaged(
            path,
            f"has {schema.field(name).type} in the column '{name}', which is declared {column.type}",
            "declare the column as the file has it, and CAST it in the query",
        )
    return str(name)


def fits(found: pa.DataType, declared: DataType) -> bool:
    """Return whether values of a type of Arrow can be values of a type."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        return fits(found.value_type, declared)
    if kinds.is_null(found):
        return True
    match declared.kind:
        case Kind.BOOLEAN:
            return bool(kinds.is_boolean(found))
        case Kind.STRING:
            return bool(kinds.is_string(found) or kinds.is_large_string(found) or kinds.is_string_view(found))
        case Kind.TIMESTAMP:
            return bool(kinds.is_timestamp(found) or kinds.is_date(found))
        case Kind.DOUBLE:
            return bool(kinds.is_floating(found) or kinds.is_integer(found))
        case Kind.DECIMAL:
            return bool(kinds.is_decimal(found) or kinds.is_integer(found))
    return bool(kinds.is_integer(found))


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def converted(array: pa.Array, data_type: DataType) -> Converted:
    """Return an array as values of a type."""
    wanted = arrow_type(data_type)
    if data_type.kind is Kind.TIMESTAMP:
        return _timestamps(array)
    try:
        return canonical(array.cast(wanted, safe=data_type.kind is not Kind.DOUBLE)), None
    except pa.ArrowInvalid:
        return by_value(array, data_type, decimal_value if data_type.kind is Kind.DECIMAL else whole_value)


def _timestamps(array: pa.Array) -> Converted:
    """Return timestamps in microseconds; those beyond the years 0001 to 9999 are bad."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = pc.floor_temporal(array, unit="microsecond")
    if not len(array) - array.null_count:
        return pa.nulls(len(array), pa.timestamp("us")), None
    bad = None
    try:
        found = array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        found = array.cast(pa.timestamp("us"), safe=False)
        coarse = np.asarray(array.cast(pa.timestamp("s"), safe=False).view(pa.int64()).fill_null(0))
        bad = (coarse < FIRST_INSTANT // 10**6) | (coarse > LAST_INSTANT // 10**6)
    bounds = pc.min_max(found.view(pa.int64())).as_py()
    if bad is None and bounds["min"] >= FIRST_INSTANT and bounds["max"] <= LAST_INSTANT:
        return found, None
    values = np.asarray(found.view(pa.int64()).fill_null(0))
    outside = (values < FIRST_INSTANT) | (values > LAST_INSTANT)
    marks = outside if bad is None else outside | bad
    return pc.if_else(pa.array(marks), pa.scalar(None, found.type), found), marks
