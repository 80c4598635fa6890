"""`cql offline`: bounds for a join that sheds rows, and what it did not deliver, from csv files.

It reads, checks and prints; `shedding/offline` computes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cql.errors import Code, CqlError, fail, nearest
from cql.source import SourceText
from runtime.connectors.tables import table_text
from shedding.offline.archive import incomplete, undelivered_pairs
from shedding.offline.optimum import optimum
from shedding.offline.static import best_kept
from shedding.offline.streams import Pairs, Stream, count_exact
from shedding.schedule import Ints


@dataclass(frozen=True, slots=True)
class Inputs:
    """The two inputs of a join, and what the numbers of their keys stand for."""

    left: Stream
    right: Stream
    names: list[str]

    @classmethod
    def read(cls, left: str, right: str, on: str, time: str | None) -> Inputs:
        """Return what two files hold; keys that are missing join with nothing."""
        tables = [_table(name) for name in (left, right)]
        keys = [_column(table, name, on) for table, name in zip(tables, (left, right), strict=True)]
        names = pc.unique(pa.concat_arrays(keys)).drop_null()
        streams = []
        for number, (table, name, each) in enumerate(zip(tables, (left, right), keys, strict=True)):
            codes = pc.index_in(each, names).fill_null(len(names) + number)
            times = np.arange(1, len(each) + 1) if time is None else _instants(table, name, time)
            streams.append(Stream(times, codes.to_numpy(zero_copy_only=False).astype(np.int64)))
        return cls(streams[0], streams[1], names.to_pylist())


def _table(name: str) -> pa.Table:
    """Return a csv file as a table of texts."""
    try:
        with open(name, "rb") as file:
            columns = csv.open_csv(file).schema.names
        options = csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True)
        return csv.read_csv(name, convert_options=options)
    except OSError as error:
        raise _wrong(name, Code.NO_FILE, f"'{name}' cannot be read: {error.strerror or error}") from None
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise _wrong(name, Code.BAD_FILE, f"this is not a csv file: {reason}") from None


def _column(table: pa.Table, name: str, column: str) -> pa.Array:
    if column not in table.schema.names:
        near = nearest(column, table.schema.names)
        hint = None if near else "its columns are " + ", ".join(table.schema.names)
        raise _wrong(name, Code.UNKNOWN_COLUMN, f"there is no column '{column}'", hint, near)
    return table.column(column).combine_chunks()


def _numbers(table: pa.Table, name: str, column: str) -> Ints:
    texts = _column(table, name, column)
    try:
        found = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        found = None
    if found is None or found.null_count:
        raise _wrong(name, Code.BAD_DATA, f"the column '{column}' has values that are not whole numbers")
    numbers: Ints = found.to_numpy(zero_copy_only=False)
    return numbers


def _instants(table: pa.Table, name: str, column: str) -> Ints:
    times = _numbers(table, name, column)
    late = np.flatnonzero(times[1:] < times[:-1])
    if len(late):
        message = f"row {late[0] + 2} is earlier than the row before it, by the column '{column}'"
        raise _wrong(name, Code.BAD_DATA, message, "sort the file by it")
    return times


def _wrong(name: str, code: Code, message: str, hint: str | None = None, near: Sequence[str] = ()) -> CqlError:
    return fail(code, message, hint=hint, candidates=near).within(SourceText(name, ""))


# ---------------------------------------------------------------------------------------------------- the tools


def show_optimum(inputs: Inputs, window: int, memory: Sequence[int], pooled: bool, since: int | None) -> None:
    """Print the most pairs that can be found for each size of memory, beside all there are."""
    exact = count_exact(inputs.left, inputs.right, window, since)
    found = optimum(inputs.left, inputs.right, window, memory, pooled=pooled, since=since)
    shares = [f"{pairs / exact:.3f}" if exact else "1.000" for pairs in found]
    columns = {"memory": pa.array(memory, pa.int64()), "pairs": pa.array(found, pa.int64()), "of all": pa.array(shares)}
    print(table_text(pa.table(columns)), end="")
    print(f"{exact} pairs in all", file=sys.stderr)


def show_static(inputs: Inputs, keep: int) -> None:
    """Print how many rows to keep of each key of which there is a choice, those that are kept first."""
    count = len(inputs.names) + 2
    rows = [np.bincount(stream.keys, minlength=count).tolist() for stream in (inputs.left, inputs.right)]
    kept = best_kept(rows[0], rows[1], keep)
    shown = [at for at in range(len(inputs.names)) if rows[0][at] and rows[1][at]]
    shown.sort(key=lambda at: (-kept.left[at] * kept.right[at], inputs.names[at]))
    columns: dict[str, list[int]] = {
        "left": rows[0],
        "right": rows[1],
        "keep left": kept.left,
        "keep right": kept.right,
    }
    numbers = {name: pa.array([values[at] for at in shown], pa.int64()) for name, values in columns.items()}
    print(table_text(pa.table({"key": pa.array([inputs.names[at] for at in shown], pa.string()), **numbers})), end="")
    everything = sum(m * n for m, n in zip(*rows, strict=True))
    print(f"{kept.pairs} of {everything} pairs are kept", file=sys.stderr)


def show_missing(inputs: Inputs, window: int, log: str) -> None:
    """Print the pairs that were not delivered as csv, and how many rows were not fully joined."""
    left, right = inputs.left, inputs.right
    delivered = _delivered(log, inputs)
    try:
        missing = undelivered_pairs(left, right, window, delivered)
    except ValueError as error:
        hint = "the log has to be of the same files, column and window"
        raise _wrong(log, Code.BAD_DATA, str(error), hint) from None
    keys = pa.array(inputs.names, pa.string()).take(pa.array(left.keys[missing.left]))
    table = pa.table({"left": missing.left + 1, "right": missing.right + 1, "key": keys})
    options = csv.WriteOptions(quoting_style="needed")
    sys.stdout.flush()
    print(_csv_text(table, options), end="")
    rows = sum(int(mask.sum()) for mask in incomplete(left, right, missing))
    summary = f"{len(delivered)} pairs were delivered, {len(missing)} are missing; {rows} rows were not fully joined"
    print(summary, file=sys.stderr)


def _csv_text(table: pa.Table, options: csv.WriteOptions) -> str:
    out = pa.BufferOutputStream()
    csv.write_csv(table, out, options)
    text: str = out.getvalue().to_pybytes().decode()
    return text


def _delivered(log: str, inputs: Inputs) -> Pairs:
    """Return the pairs of a log."""
    table = _table(log)
    sides = [_numbers(table, log, column) - 1 for column in ("left", "right")]
    for column, numbers, stream in zip(("left", "right"), sides, (inputs.left, inputs.right), strict=True):
        outside = np.flatnonzero((numbers < 0) | (numbers >= len(stream)))
        if len(outside):
            message = f"there is no row {numbers[outside[0]] + 1} on the {column}, which has {len(stream)}"
            raise _wrong(log, Code.BAD_DATA, message, "rows are counted from 1 on, without the line of column names")
    return Pairs(sides[0], sides[1])
