"""Spark as the host of a network: the network is one Spark Structured Streaming query.

Every table is read once and packed; the pieces go through one stateful operator for each stage of the network; what
comes out is collected on the driver. Time is in the pieces, not in Spark's watermarks, and control messages are read
like a source, so everything that decides about results is in Spark's log and in every repetition.

Spark knows the sources of a query by name (source evolution), and finds the state of parts that stay under their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cql.settings import OnBadRow
from planner import operators as op
from runtime.columns.batch import Columns
from runtime.connectors import open_source
from runtime.connectors.intake import layout_of
from runtime.network.changes import Changes
from runtime.network.control_log import ControlLog
from runtime.network.definitions import Definitions, Table
from runtime.network.directives import Directives
from runtime.network.host import Computed, MicroBatch
from runtime.network.lateness import goes_by_order
from runtime.network.messages import COUNTS, unpack_values
from runtime.network.record import NetworkRecord, feeds_of
from runtime.network.reports import Report
from runtime.network.task import Task
from runtime.spark.broadcast import Sent
from runtime.spark.labelled_task import LabelledTask
from runtime.spark.processor import FragmentProcessor
from runtime.spark.reading import LABELLED, read_control, read_feed, read_prefixed
from runtime.spark.run_sources import opened_source
from runtime.spark.source_files import SourceFiles
from runtime.spark.source_pushdown import prefixed
from runtime.spark.sources import SourceFrame, carrying, is_read_by_engine, spark_path, static_frame
from runtime.spark.streaming import SparkQuery, translated
from runtime.spark.task_properties import tell
from runtime.spark.workers import own_workers

CONTROL_SOURCE = "control"
"""What Spark's log knows the control messages by."""


class SparkHost:
    """Runs the micro-batches of a network on Spark; its checkpoint is a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._checkpoint = folder / "spark"
        self._control = ControlLog(folder / "control")
        self._query: SparkQuery | None = None
        self._frames: list[SourceFrame] = []
        self._files = SourceFiles({}, {}, folder)

    @property
    def processors(self) -> int:
        """How many tasks can run at once."""
        return self._spark.sparkContext.defaultParallelism

    @property
    def has_pace(self) -> bool:
        """Whether `allow` limits what a micro-batch reads: of files only."""
        return bool(self._files)

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of files that are not what they were."""
        return self._files.notes

    # Life

    def open(self, record: NetworkRecord, task: Task, definitions: Definitions) -> None:
        """Make the frames of a network; raises if a source cannot be opened."""
        self._task = LabelledTask.of(task, record, self._folder)
        self._sent = Sent.of(self._task.network, self._task)
        self._spark.conf.set("spark.sql.shuffle.partitions", str(record.buckets))
        with translated(), own_workers(self._spark.sparkContext):
            self._pieces = self._through_stages(self._read(record, definitions), record.stages)

    def _read(self, record: NetworkRecord, definitions: Definitions) -> DataFrame:
        """Return the frame of all pieces that control messages and sources give."""
        feeds = feeds_of(record)
        pieces = self._messages().mapInArrow(read_control(self._sent), from_arrow_schema(LABELLED))
        self._frames = []
        tickets = {}
        for feed, (source, *_) in feeds.items():
            if source.time is None:
                continue
            opened = opened_source(self._spark, definitions, source, self._folder)
            self._frames.append(opened)
            if opened.tickets is not None:
                tickets[feed] = opened.tickets
            pieces = pieces.unionAll(self._packed(feed, source, opened))
        places = {feed: definitions.place("table", sources[0].table) for feed, sources in feeds.items()}
        self._files = SourceFiles(tickets, places, self._checkpoint)
        return pieces

    def _messages(self) -> DataFrame:
        """Return the control messages as Spark reads them, each a text with the number of its file."""
        return (
            self._spark.readStream.name(CONTROL_SOURCE)
            .schema("value string")
            .option("maxFileAge", "3650d")
            .text(spark_path(str(self._control.folder), streaming=True))
            .selectExpr("_metadata.file_name AS name", "value")
        )

    def _packed(self, feed: str, source: op.Source, opened: SourceFrame) -> DataFrame:
        """Return the rows of a table as pieces; what stands above it is done by Spark if the rows are in its hands."""
        schema, layout = from_arrow_schema(LABELLED), self._task.layout
        native = opened.native
        lowered = None if native is None else prefixed(layout, feed, native, layout.on_bad_row)
        if lowered is None:
            read = opened.frame.coalesce(1) if goes_by_order(layout_of(opened.table)) else opened.frame
            return read.mapInArrow(read_feed(self._sent, feed, source.table, opened.reader), schema)
        frame, reader = lowered
        return frame.mapInArrow(read_prefixed(self._sent, feed, source.table, reader), schema)

    def _through_stages(self, pieces: DataFrame, stages: int) -> DataFrame:
        """Return the frame that ends in the results."""
        schema = from_arrow_schema(LABELLED)
        for stage in range(stages):
            pieces = pieces.groupBy("label").transformWithStateInPandas(
                FragmentProcessor(self._sent, stage), outputStructType=schema, outputMode="append", timeMode="none"
            )
        return pieces

    def start(self, run: Callable[[MicroBatch], None]) -> None:
        """Run micro-batches from where the checkpoint is."""

        def run_frame(frame: DataFrame, batch_id: int) -> None:
            self._files.settle()
            with carrying():
                run(SparkMicroBatch(query, self._files, frame, batch_id))

        with translated(), own_workers(self._spark.sparkContext):
            self._files.open()
            query = SparkQuery(self._pieces, run_frame, self._checkpoint, f"cql {self._task.network}")
            self._query = query
            query.start()
        self._files.follow()

    def check(self) -> bool:
        """Tell whether the query is running; raises if it has failed, or a source has disappeared."""
        for each in self._frames:
            each.check()
        self._files.check()
        return self._query is not None and self._query.check()

    def stop_after_this(self) -> None:
        """Let the micro-batch that is running be the last."""
        assert self._query is not None, "a micro-batch is running"
        self._query.stop_after_this()

    def stop(self) -> None:
        """Stop between two micro-batches: the one that is running is completed."""
        if self._query is not None:
            self._query.stop()
            self._files.settle()
        self.abort()

    def abort(self) -> None:
        """Stop at once; what the micro-batch that is running would have done is done after the next start."""
        self._files.close()
        if self._query is not None:
            self._query.abort()
            self._query = None

    # Working

    def look(self) -> None:
        """Let Spark know of all files that there are now."""
        self._files.look()

    def allow(self, times: float | None) -> None:
        """Let the next micro-batch have some times as much of the files as the last one; None: all there is."""
        self._files.allow(times)

    def process_available(self) -> None:
        """Process everything that the sources have now."""
        if self._query is not None:
            self._query.process_available()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; raises if the query fails before."""
        if self._query is not None:
            self._query.wait_for(condition)

    def is_committed(self, batch_id: int) -> bool:
        """Tell whether Spark's checkpoint has a micro-batch behind it."""
        return (self._checkpoint / "commits" / str(batch_id)).exists()

    def read_table(self, table: Table, on_bad_row: OnBadRow) -> Iterable[Columns]:
        """Return the rows of a static relation; Spark reads what the engine cannot."""
        if table.source is not None and not is_read_by_engine(table.source):
            return static_frame(self._spark, table, on_bad_row).collected()
        return (part.columns for part in open_source(table, on_bad_row))

    # Control messages

    def tell(self, message: Mapping[str, Any]) -> str:
        """Give a control message to all places, with the next micro-batch, and return its name."""
        return self._control.tell(message)

    def last_message(self) -> Mapping[str, Any]:
        """Return the message that was given last, or an empty one."""
        return self._control.last()

    def forget_before(self, name: str) -> None:
        """Remove messages that have taken effect for good; the last one stays."""
        self._control.forget_before(name)


class SparkMicroBatch:
    """A micro-batch that Spark has planned: a frame whose rows are results and reports."""

    def __init__(self, query: SparkQuery, files: SourceFiles, frame: DataFrame, batch_id: int) -> None:
        self.id = batch_id
        self._query = query
        self._files = files
        self._frame = frame
        self._is_computed = False

    @property
    def backlog(self) -> Sequence[float]:
        """What each source has for it."""
        return self._query.amounts()

    def compute(self, directives: Directives) -> Computed:
        """Run it, and collect its results and reports."""
        tell(self._frame.sparkSession.sparkContext, directives)
        frame = self._query.recomputed(self._frame) if self._is_computed else self._frame
        self._is_computed = True
        return _collected(frame)

    def accept(self, reports: Sequence[Report]) -> None:
        """Take in which files it has read."""
        read = ((feed, place) for report in reports for feed, own in report.places.items() for place in own)
        self._files.read(self.id, read)

    def reject(self, error: Exception) -> None:
        """Let its files be corrected."""
        self._files.reject(error)


def _collected(frame: DataFrame) -> Computed:
    """Return the changes that a frame has, by query, and the reports."""
    results: dict[str, Changes] = {}
    reports: list[Report] = []
    for kind, about, place, rows, blob in sorted(_rows(frame)):
        if kind == COUNTS:
            reports.append(Report.of_values(unpack_values(blob)))
        else:
            results.setdefault(about, Changes()).add(place.rpartition("/")[0], rows, blob)
    return Computed(results, reports)


def _rows(frame: DataFrame) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Yield the pieces of a frame."""
    table: pa.Table = frame.select("kind", "about", "place", "rows", "blob").toArrow()
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
