"""Rows that are given in Python: Arrow tables, data frames, dictionaries, tuples; and results that stay there.

Columns go by name. The columns that have no name in STREAM's form are called `ts` and `op`, as in results.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cql.binder.inference import column_type
from cql.binder.literals import timestamp_microseconds
from cql.catalog import RelationDef, StreamDef
from cql.errors import Code, CqlError, fail, nearest
from cql.intervals import TimeDomain
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import ChangeBatch, Columns, concat, empty_batch
from runtime.columns.net_changes import netted_changes
from runtime.columns.texts import known_instants, marks
from runtime.connectors.intake import FileChunk, Intake, RowLayout, SourceRows, layout_of
from runtime.connectors.line_formats import free_names
from runtime.connectors.results import ResultColumn, Writer, repeated
from runtime.connectors.values import by_value, canonical, decimal_value, from_text

Table = StreamDef | RelationDef

Callback = Callable[[pa.Table, int], None]
"""A function of the user: takes changes, and the number of the batch that they come with."""

_INDEX = "__index_level_"
"""How the rows' labels of a data frame are called if they are more than numbers; they are no column."""

_EPOCH = datetime.datetime(1970, 1, 1)


def as_table(data: Any, names: Sequence[str] = ()) -> pa.Table:
    """Return data as an Arrow table; `names` are the columns of rows that are tuples.

    >>> as_table([{"k": 1}, {"k": 2, "v": "x"}]).to_pydict()
    {'k': [1, 2], 'v': [None, 'x']}
    """
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        found = pa.table(data)
        return found.select([name for name in found.column_names if not name.startswith(_INDEX)])
    rows = list(data)
    if rows and all(isinstance(row, pa.RecordBatch) for row in rows):
        return pa.Table.from_batches(rows)
    if all(isinstance(row, Mapping) for row in rows):
        found = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(names)
        return pa.table({name: _array(name, [row.get(name) for row in rows]) for name in found})
    if not all(isinstance(row, tuple | list) and len(row) == len(names) for row in rows):
        raise fail(
            Code.BAD_DATA,
            "these are no rows",
            hint="give a table of Arrow, a data frame, record batches, dictionaries, or tuples of all columns",
        )
    return pa.table({name: _array(name, [row[at] for row in rows]) for at, name in enumerate(names)})


def _array(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except pa.ArrowException as error:
        raise fail(Code.BAD_DATA, f"the values of the column '{name}' have no common type: {_reason(error)}") from None


def rows_of(table: Table, data: Any, newest: int | None = None) -> SourceRows:
    """Return data as rows of a table, of which `newest` is the latest instant so far; raises if it does not fit."""
    layout = layout_of(table)
    names = _names(layout)
    given = as_table(data, names)
    unknown = [name for name in given.column_names if name not in names]
    if unknown:
        raise fail(
            Code.BAD_DATA,
            f"'{table.name}' has no column '{unknown[0]}'",
            hint=None if nearest(unknown[0], names) else f"its columns are {', '.join(names)}",
            candidates=nearest(unknown[0], names),
        )
    arrays = [
        _column(table.name, name, given[name].combine_chunks(), column.type)
        if name in given.column_names
        else pa.nulls(given.num_rows, arrow_type(column.type))
        for name, column in zip(names, layout.fields, strict=True)
    ]
    numbers = partial(np.arange, 1, given.num_rows + 1)
    chunk = FileChunk(f"the data for '{table.name}'", "row", arrays, {}, numbers, partial(_raw, arrays))
    return Intake(layout, "fail", newest).take(chunk)


def _raw(arrays: Sequence[pa.Array], at: int, row: int) -> str:
    return str(arrays[at][row].as_py())


def _names(layout: RowLayout) -> list[str]:
    ts, op = free_names([column.name for column in layout.fields])
    unnamed = {layout.instant: ts, layout.sign: op}
    return [column.name or unnamed[at] for at, column in enumerate(layout.fields)]


def _column(table: str, name: str, array: pa.Array, declared: DataType) -> pa.Array:
    """Return an array as values of the declared type."""
    wanted = arrow_type(declared)
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        if not _fits(column_type(array.type, name), declared):
            raise _misfit(table, name, declared, f"these are {column_type(array.type, name)}")
        if declared.kind is Kind.TIMESTAMP and not pa.types.is_temporal(array.type):
            found, bad = from_text(array.cast(pa.string()), declared)
        elif declared.kind is Kind.DECIMAL and array.type != wanted:
            found, bad = by_value(array, declared, _decimal)
        else:
            found, bad = array.cast(wanted, safe=declared.is_integer), None
    except pa.ArrowException as error:
        raise _misfit(table, name, declared, _reason(error)) from None
    if bad is not None:
        raise _misfit(table, name, declared, f"{array[int(bad.argmax())].as_py()!r} is not")
    return canonical(found)


def _fits(found: DataType, declared: DataType) -> bool:
    """Tell whether values of one type can be values of another without anyone asking for it."""
    if found.kind is declared.kind:
        return True
    match declared.kind:
        case Kind.TIMESTAMP:
            return found.kind is Kind.STRING
        case Kind.DOUBLE | Kind.DECIMAL:
            return found.is_numeric
    return found.is_integer and declared.is_integer


def _decimal(value: Any, data_type: DataType) -> Any:
    return decimal_value(repr(value) if isinstance(value, float) else value, data_type)


def _misfit(table: str, name: str, declared: DataType, what: str) -> CqlError:
    message = f"the column '{name}' of '{table}' is {declared}, and {what}"
    return fail(Code.BAD_DATA, message, hint="convert the data first, or declare the column otherwise")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def instant_of(value: Any, time: TimeDomain) -> int:
    """Return an instant as a number of ticks: an integer, or, in TIMESTAMP time, a datetime or its text.

    >>> instant_of("1970-01-01 00:00:01", TimeDomain.TIMESTAMP)
    1000000
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = None
    if time is TimeDomain.TIMESTAMP and isinstance(value, str):
        found = timestamp_microseconds(value)
    elif time is TimeDomain.TIMESTAMP and isinstance(value, datetime.datetime):
        naive = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        found = (naive - _EPOCH) // datetime.timedelta(microseconds=1)
    if found is None:
        wanted = "a datetime or its text" if time is TimeDomain.TIMESTAMP else "an integer, in seconds"
        raise fail(Code.BAD_TIMESTAMP, f"{value!r} is no instant", hint=f"give {wanted}")
    return found


def changes_table(
    batches: Sequence[ChangeBatch], names: Sequence[str], types: Sequence[DataType], time: TimeDomain | None
) -> pa.Table:
    """Return changes as a table: instant, + or -, and the columns of the row."""
    batch = repeated(_joined(batches, types))
    return _table(
        [*free_names(names), *names], (known_instants(batch.start, time), marks(batch.weights), *batch.columns)
    )


def contents_table(batches: Sequence[ChangeBatch], names: Sequence[str], types: Sequence[DataType]) -> pa.Table:
    """Return what is there after some changes."""
    batch = _joined(batches, types)
    start, weight, columns = netted_changes(np.zeros(len(batch), np.int64), batch.weights, batch.columns)
    return _table(names, repeated(ChangeBatch(columns, start, None, weight, 0)).columns)


def _joined(batches: Iterable[ChangeBatch], types: Sequence[DataType]) -> ChangeBatch:
    found = [batch for batch in batches if len(batch)]
    return concat(found) if found else empty_batch([arrow_type(each) for each in types], 0)


def _table(names: Sequence[str], columns: Columns) -> pa.Table:
    return pa.Table.from_arrays(list(columns), names=list(names))


class CallbackWriter(Writer):
    """Hands changes to a function of the user."""

    def __init__(self, query: str, result: Sequence[ResultColumn], time: TimeDomain | None, callback: Callback) -> None:
        self._query = query
        self._columns = result
        self._time = time
        self._callback = callback
        self._count = 0

    def _write(self, batch: ChangeBatch) -> None:
        names = [column.name for column in self._columns]
        table = changes_table([batch], names, [column.type for column in self._columns], self._time)
        called(self._query, self._callback, table, self._count)
        self._count += 1

    def close(self) -> None:
        """There is nothing to complete."""

    def abort(self) -> None:
        """There is nothing to give up."""


def called(query: str, callback: Callable[[Any, int], None], changes: Any, batch_id: int) -> None:
    """Call a function of the user with changes; raises an error for the user if it fails."""
    try:
        callback(changes, batch_id)
    except Exception as error:
        raise fail(
            Code.FUNCTION_FAILED,
            f"the function that takes the results of '{query}' failed in batch {batch_id}: "
            f"{type(error).__name__}: {error}",
            hint="on Spark the batch comes again, under the same id, when the network is started again",
        ) from error
