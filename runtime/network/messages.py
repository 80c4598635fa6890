"""Packing: rows and heartbeats as pieces with an address, which is how they get from one place to another.

A piece says which fragment and bucket it is for and what it is: rows of an edge, as they are or combined, the heartbeat
of an edge, what is known of the time of a source, or results of a query. Between processes its rows are one Arrow
record batch in IPC format; within one process it carries them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from runtime.columns.batch import ChangeBatch, Ints
from runtime.network.overflow import kept_elsewhere

ROWS, COMBINED, HEARTBEAT, TIME, CONTROL = "rows", "combined", "heartbeat", "time", "control"
RESULT, COUNTS = "result", "counts"
"""The kinds of pieces; the last ones are on the way out."""

RESULTS = "results"
"""Where results of queries go: to nobody, they only pass through."""


class Piece(NamedTuple):
    """Something for a bucket of a fragment: `about` names an edge, a source or a query, `place` where it is from."""

    fragment: str
    bucket: int
    kind: str
    about: str
    place: str
    rows: int
    blob: Any
    """What it carries, in the form of its `Wire`."""


PIECE_SCHEMA = pa.schema(
    [
        ("fragment", pa.string()),
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("about", pa.string()),
        ("place", pa.string()),
        ("rows", pa.int64()),
        ("blob", pa.binary()),
    ]
)


def batch_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a record batch in IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def bytes_batch(blob: bytes | pa.RecordBatch) -> pa.RecordBatch:
    """Return the record batch that was written, if it was."""
    if isinstance(blob, pa.RecordBatch):
        return blob
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_next_batch()


def pack_changes(batch: ChangeBatch) -> bytes:
    """Return a change batch as bytes.

    What is sent most of the time decides how long it takes. So instants are written as their distance from the first
    one if that is short, and a column that has nothing but the instants, as the timestamp of a stream does, not at all.
    """
    start, about = _short(batch.start)
    arrays, names = [pa.array(start)], ["start"]
    for name, numbers in (("end", batch.end), ("weight", batch.weight)):
        if numbers is not None:
            arrays.append(pa.array(numbers))
            names.append(name)
    for at, column in enumerate(batch.columns):
        if _has_instants(column, batch.start):
            about[f"c{at}"] = str(column.type.unit) if pa.types.is_timestamp(column.type) else ""
        else:
            arrays.append(column)
            names.append(f"c{at}")
    packed = pa.record_batch(arrays, names=names)
    return batch_bytes(packed.replace_schema_metadata({**about, "columns": str(len(batch.columns))}))


def unpack_changes(blob: bytes | ChangeBatch, until: int) -> ChangeBatch:
    """Return the change batch that was packed, under a heartbeat."""
    if isinstance(blob, ChangeBatch):
        return blob.with_until(until)
    batch = bytes_batch(kept_elsewhere(blob))
    about = {key.decode(): value.decode() for key, value in batch.schema.metadata.items()}
    numbers = {
        name: np.asarray(batch.column(name)) for name in ("start", "end", "weight") if name in batch.schema.names
    }
    start = numbers["start"]
    if "first" in about:
        start = start.astype(np.int64) + int(about["first"])
    columns = [
        _as_instants(start, about[name]) if name in about else batch.column(name)
        for name in (f"c{at}" for at in range(int(about["columns"])))
    ]
    return ChangeBatch(tuple(columns), start, numbers.get("end"), numbers.get("weight"), until)


def _short(instants: Ints) -> tuple[np.ndarray[Any, Any], dict[str, str]]:
    """Return instants as short numbers, with the first of them, or as they are."""
    if not len(instants):
        return instants, {}
    first, last = int(instants.min()), int(instants.max())
    if last - first > np.iinfo(np.uint32).max:
        return instants, {}
    return (instants - first).astype(np.uint32), {"first": str(first)}


def _has_instants(column: pa.Array, instants: Ints) -> bool:
    """Tell whether a column has the instants of its rows."""
    kind = column.type
    is_time = pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    if not is_time or column.null_count:
        return False
    return bool(np.array_equal(np.asarray(column.view(pa.int64())), instants))


def _as_instants(instants: Ints, unit: str) -> pa.Array:
    array = pa.array(instants)
    return array.view(pa.timestamp(unit)) if unit else array


def pack_time(values: Mapping[str, Any], instants: Ints) -> bytes:
    """Return what is known of the time of some rows as bytes: named values, and instants."""
    return pack_values(values) + b"\n" + instants.tobytes()


def unpack_time(blob: bytes | tuple[dict[str, Any], Ints]) -> tuple[dict[str, Any], Ints]:
    """Return the values and instants that were packed."""
    if isinstance(blob, tuple):
        return blob
    values, _, instants = blob.partition(b"\n")
    return unpack_values(values), np.frombuffer(instants, np.int64)


def pack_values(values: Mapping[str, Any]) -> bytes:
    """Return some named values as bytes."""
    return json.dumps(values, sort_keys=True).encode()


def unpack_values(blob: bytes | dict[str, Any]) -> dict[str, Any]:
    """Return the values that were packed."""
    found: dict[str, Any] = blob if isinstance(blob, dict) else json.loads(blob)
    return found


class Wire(NamedTuple):
    """How pieces carry changes, what is known of time, and named values."""

    changes: Callable[[ChangeBatch], Any]
    time: Callable[[dict[str, Any], Ints], Any]
    values: Callable[[dict[str, Any]], Any]


BETWEEN_PROCESSES = Wire(pack_changes, pack_time, pack_values)
WITHIN_A_PROCESS = Wire(lambda batch: batch, lambda values, instants: (values, instants), lambda values: values)
