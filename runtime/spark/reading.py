"""Packing on Spark: what runs in `mapInArrow`, where rows of sources and control messages become pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from cql.source import NO_SPAN
from runtime.network.messages import CONTROL, PIECE_SCHEMA, Piece
from runtime.network.source_stage import FeedReader
from runtime.spark.broadcast import Sent
from runtime.spark.labelled_task import LabelledTask
from runtime.spark.source_pushdown import PrefixReader
from runtime.spark.sources import PartReader, carrying, on_time
from runtime.spark.task_properties import directives_now
from runtime.user_errors import UserFunctionFailed, explained, placed

Arrow = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LABELLED = pa.schema([("label", pa.int32()), *PIECE_SCHEMA])
"""Pieces as Spark sees them."""


def read_feed(sent: Sent[LabelledTask], feed: str, table: str, rows: PartReader) -> Arrow:
    """Return the function that reads and packs the rows of a table for the sources that a feed is for."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = sent.get()
        reader = _reader(task, feed)
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        judge = directives_now().judge(feed, reader.delay)
        with carrying(), placed(task.places.get(("table", table.casefold()), NO_SPAN)):
            try:
                for number, part in enumerate(rows.parts(batches, judge.newest)):
                    place = f"{part.place}/{partition:08}/{number:08}"
                    found, late = on_time(part, judge)
                    pieces = reader.pack(found.columns, found.instants, found.signs, place)
                    yield from _as_batches(task, pieces)
                    source_place = part.place if part.is_ordered else None
                    times = reader.time(found.instants, part.skipped, place, late, source_place)
                    yield from _as_batches(task, times)
            except UserFunctionFailed as failure:
                raise explained(failure, task.callers, task.layout.plan, task.places) from None

    return pack


def read_prefixed(sent: Sent[LabelledTask], feed: str, table: str, rows: PrefixReader) -> Arrow:
    """Return the function that packs what Spark has made of the rows of a table."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = sent.get()
        reader = _reader(task, feed)
        partition = TaskContext.get().partitionId()  # type: ignore[union-attr]
        with carrying(), placed(task.places.get(("table", table.casefold()), NO_SPAN)):
            for number, read in enumerate(rows.reads(batches)):
                place = f"{read.place}/{partition:08}/{number:08}"
                yield from _as_batches(task, reader.pack_made(dict(read.made), place))
                yield from _as_batches(task, reader.time(read.instants, read.skipped, place))

    return pack


def read_control(sent: Sent[LabelledTask]) -> Arrow:
    """Return the function that hands control messages, each a JSON text with the name of its file, to all places."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = sent.get()
        for batch in batches:
            for name, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from _as_batches(
                    task,
                    (
                        Piece(fragment, bucket, CONTROL, "", name, 0, text.encode())
                        for fragment, bucket in task.layout.places
                    ),
                )

    return pack


def _reader(task: LabelledTask, feed: str) -> FeedReader:
    """Return the reader that this process has for a feed; it knows what is lost in this micro-batch, and complete."""
    reader = task.made(("reader", feed), lambda: FeedReader(task.layout, feed, task.functions))
    directives = directives_now()
    reader.follow(directives.schedules)
    reader.complete_until(directives.complete)
    return reader


def _as_batches(task: LabelledTask, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    rows = list(pieces)
    if rows:
        labels = pa.array([task.labels[piece.fragment, piece.bucket] for piece in rows], pa.int32())
        columns = [
            pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), PIECE_SCHEMA, strict=True)
        ]
        yield pa.record_batch([labels, *columns], schema=LABELLED)
