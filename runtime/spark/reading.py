"""Packing on Spark: what runs in `mapInArrow`, where rows of sources and control messages become pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from runtime.fragments.packing import CONTROL, PIECE_SCHEMA, Piece
from runtime.fragments.reading import SourceReader
from runtime.spark.processor import Task
from runtime.spark.sources import PartReader, carrying

Arrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LABELLED = pa.schema([("label", pa.int32()), *PIECE_SCHEMA])
"""Pieces as Spark sees them."""


def read_source(task: Task, source: str, rows: PartReader) -> Arrow:
    """Return the function that reads and packs the rows of a source."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = SourceReader(task.layout, source, task.functions)
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        with carrying():
            for number, part in enumerate(rows.parts(batches)):
                place = f"{part.place}/{partition:08}/{number:08}"
                found = part.rows
                pieces = reader.pack(found.columns, found.instants, found.signs, place)
                yield from _as_batches(task, pieces)
                yield from _as_batches(task, reader.time(found.instants, part.skipped, place))

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
