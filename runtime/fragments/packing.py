"""Packing: rows and heartbeats as pieces with an address, which is how they get from one place to another.

A piece says which fragment and bucket it is for and what it is: rows of an edge, the heartbeat of an edge, what is
known of the time of a source, or results of a query. Its rows are one Arrow record batch in IPC format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from runtime.batch import ChangeBatch, Ints

ROWS, HEARTBEAT, TIME, CONTROL, RESULT, COUNTS = "rows", "heartbeat", "time", "control", "result", "counts"
"""The kinds of pieces."""

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
    blob: bytes


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


def bytes_batch(blob: bytes) -> pa.RecordBatch:
    """Return the record batch that was written."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_next_batch()


def pack_changes(batch: ChangeBatch) -> bytes:
    """Return a change batch as bytes."""
    arrays = [pa.array(batch.start)]
    names = ["start"]
    for name, numbers in (("end", batch.end), ("weight", batch.weight)):
        if numbers is not None:
            arrays.append(pa.array(numbers))
            names.append(name)
    names += [f"c{at}" for at in range(len(batch.columns))]
    return batch_bytes(pa.record_batch([*arrays, *batch.columns], names=names))


def unpack_changes(blob: bytes, until: int) -> ChangeBatch:
    """Return the change batch that was packed, under a heartbeat."""
    batch = bytes_batch(blob)
    numbers = {
        name: np.asarray(batch.column(name)) for name in ("start", "end", "weight") if name in batch.schema.names
    }
    columns = tuple(batch.columns[len(numbers) :])
    return ChangeBatch(columns, numbers["start"], numbers.get("end"), numbers.get("weight"), until)


def pack_time(values: Mapping[str, Any], instants: Ints) -> bytes:
    """Return what is known of the time of some rows as bytes: named values, and instants."""
    return pack_values(values) + b"\n" + instants.tobytes()


def unpack_time(blob: bytes) -> tuple[dict[str, Any], Ints]:
    """Return the values and instants that were packed."""
    values, _, instants = blob.partition(b"\n")
    return unpack_values(values), np.frombuffer(instants, np.int64)


def pack_values(values: Mapping[str, Any]) -> bytes:
    """Return some named values as bytes."""
    return json.dumps(values, sort_keys=True).encode()


def unpack_values(blob: bytes) -> dict[str, Any]:
    """Return the values that were packed."""
    found: dict[str, Any] = json.loads(blob)
    return found
