"""Columns that a source gives by name, as values of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cql.catalog import ColumnModel, RelationDef, StreamDef
from cql.errors import Code, fail, nearest
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.connectors.intake import FileChunk, RowLayout, layout_of
from runtime.connectors.parquet_files import converted, fits
from runtime.connectors.values import Converted, decoded, from_text


class NamedColumns:
    """Which columns of a source are those of a table; raises if one is missing or cannot have the declared type."""

    def __init__(self, table: StreamDef | RelationDef, format_name: str, columns: Sequence[ColumnModel]) -> None:
        self._layout = layout_of(table)
        self._unit = f"the {format_name} source of '{table.name}'"
        self._layout.check_named(format_name)
        self._names = [_found(table.name, column, columns) for column in self._layout.fields]

    @property
    def layout(self) -> RowLayout:
        """How the columns of the table are laid out."""
        return self._layout

    def chunk(self, batch: pa.RecordBatch, first: int) -> FileChunk:
        """Return rows of the source, of which the first has a number."""
        found = [batch.column(name) for name in self._names]
        columns = [as_type(array, column.type) for array, column in zip(found, self._layout.fields, strict=True)]
        bad = {at: wrong for at, (_, wrong) in enumerate(columns) if wrong is not None}
        numbers = np.arange(first, first + len(batch), dtype=np.int64)

        def raw(at: int, row: int) -> str:
            return str(found[at][row].as_py())

        return FileChunk(self._unit, "row", [array for array, _ in columns], bad, lambda: numbers, raw)


def as_type(array: pa.Array, data_type: DataType) -> Converted:
    """Return an array of any type that fits as values of a type; texts are read as CAST reads them."""
    if pa.types.is_binary(array.type):
        return decoded(array)
    if pa.types.is_string(array.type) and data_type.kind is not Kind.STRING:
        return from_text(array, data_type)
    return converted(array, data_type)


def _found(table: str, column: ColumnModel, columns: Sequence[ColumnModel]) -> str:
    """Return the name that a column of a table has in its source."""
    same = [each for each in columns if each.name.casefold() == column.name.casefold()]
    if not same:
        known = [each.name for each in columns]
        raise fail(
            Code.BAD_FILE,
            f"the source of '{table}' has no column '{column.name}'",
            hint=f"its columns are {', '.join(known)}",
            candidates=nearest(column.name, known),
        )
    (found,) = same
    if found.type.kind is not Kind.STRING and not fits(arrow_type(found.type), column.type):
        raise fail(
            Code.BAD_FILE,
            f"the source of '{table}' has {found.type} in the column '{found.name}', which is declared {column.type}",
            hint="declare the column as the source has it, and CAST it in the query",
        )
    return found.name
