"""Packing on Spark: what runs in `mapInArrow`, where rows of sources and control messages become pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from runtime.fragments.packing import CONTROL, PIECE_SCHEMA, Piece
from runtime.fragments.reading import SourceReader
from runtime.spark.processor import Task

Arrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LABELLED = pa.schema([("label", pa.int32()), *PIECE_SCHEMA])
"""Pieces as Spark sees them."""

INSTANT, SIGN, PLACE = "instant", "sign", "place"
"""The columns of a source's rows beyond its payload."""


def read_source(task: Task, source: str) -> Arrow:
    """Return the function that packs the rows of a source."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = SourceReader(task.layout, source, task.functions)
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        seen = []
        for number, batch in enumerate(batches):
            instants = np.asarray(batch.column(INSTANT))
            signs = np.asarray(batch.column(SIGN)).astype(np.int64) if SIGN in batch.schema.names else None
            columns = tuple(
                c for name, c in zip(batch.schema.names, batch.columns, strict=True) if name.startswith("c")
            )
            place = str(batch.column(PLACE)[0]) if PLACE in batch.schema.names and len(batch) else ""
            yield from _as_batches(task, reader.pack(columns, instants, signs, f"{place}/{partition:08}/{number:08}"))
            seen.append(instants)
        if seen:
            yield from _as_batches(task, reader.time(np.concatenate(seen), f"{partition:08}"))

    return pack


def read_control(task: Task) -> Arrow:
    """Return the function that hands control messages, a JSON text each, to all places."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, text in enumerate(batch.column(0).to_pylist()):
                yield from _as_batches(
                    task,
                    (
                        Piece(fragment, bucket, CONTROL, "", f"{number:08}", 0, text.encode())
                        for fragment, bucket in task.layout.places
                    ),
                )

    return pack


def _as_batches(task: Task, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    rows = list(pieces)
    if rows:
        labels = pa.array([task.labels[piece.fragment, piece.bucket] for piece in rows], pa.int32())
        columns = [
            pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), PIECE_SCHEMA, strict=True)
        ]
        yield pa.record_batch([labels, *columns], schema=LABELLED)
