"""Queries without state, each a Spark query of its own: filters and projections of one stream.

Rows that Spark reads are never handed to Python: they go through Spark's own columns. Spark gives them in no order, so
none of them is late. Files that the engine reads are read, filtered and written by the tasks (`written.py`), which is
faster; rows that are late by their order are left out, as everywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow import parquet
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from cql.catalog import QueryDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.types import Kind
from planner.plan import Plan, QueryPlan
from runtime.connectors.batch_sinks import hidden_folder
from runtime.connectors.file_options import FileOptions
from runtime.connectors.intake import layout_of
from runtime.connectors.line_formats import free_names
from runtime.connectors.options import is_read_by_engine, sink_format
from runtime.connectors.parquet import ParquetOptions
from runtime.connectors.python_data import Callback, called
from runtime.connectors.registry import connector
from runtime.connectors.results import Result
from runtime.delivery.delivery import Delivery
from runtime.engine.statistics import Figures
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.lateness import goes_by_order
from runtime.network.record import NetworkRecord, delays_of
from runtime.network.reports import Report
from runtime.reports.losses import losses_text
from runtime.reports.progress import Progress
from runtime.spark.broadcast import Sent
from runtime.spark.file_to_file import WRITTEN, Writing, write_results
from runtime.spark.frames import FrameFunction
from runtime.spark.order_log import OrderLog
from runtime.spark.run_sources import opened_source
from runtime.spark.source_files import SourceFiles
from runtime.spark.source_pushdown import steps_of
from runtime.spark.sources import (
    BAD,
    INSTANT,
    FileReader,
    SourceFrame,
    carried,
    carrying,
)
from runtime.spark.streaming import SparkQuery, translated
from runtime.spark.workers import own_workers
from runtime.user_errors import callers

_NO_SPARK_TYPE = (Kind.INTERVAL, Kind.NULL)


def native_stream(
    query: QueryDef, compiled: QueryPlan, definitions: Definitions, has_function: bool
) -> StreamDef | None:
    """Return the stream of a query that runs without a network, in the order of arrival; None of any other query."""
    sources = compiled.sources
    output = compiled.operators[-1]
    if output.placement != "source" or len(sources) != 1:
        return None
    stream = definitions.table(sources[0].table)
    if goes_by_order(layout_of(stream)):
        return None
    is_frame = stream.name.casefold() in definitions.given
    is_file = not is_frame and stream.source is not None and is_read_by_engine(stream.source)
    goes_to_files = query.sink is not None and connector(query.sink.format).is_written_by_tasks
    if not isinstance(stream, StreamDef) or not (is_frame or stream.source) or not (goes_to_files or has_function):
        return None
    if is_file:
        return None if has_function else stream
    has_types = all(column.type.kind not in _NO_SPARK_TYPE for column in output.columns)
    return stream if has_types and steps_of(compiled.operators) is not None else None


def can_be_read_again(stream: StreamDef) -> bool:
    """Tell whether several queries of Spark that read a stream read the same."""
    return stream.source is not None and connector(stream.source.format).can_be_read_again


def folder_name(query: str) -> str:
    """Return the folder of a query in a checkpoint.

    >>> folder_name("hot"), folder_name("a/b")
    ('native/hot', 'native/a%2fb')
    """
    return "native/" + re.sub(r"[^\w-]", lambda found: f"%{ord(found[0]):02x}", query)


class NativeJob:
    """One query without state at work."""

    def __init__(self, spark: SparkSession, folder: Path, delivery: Delivery, counters: Counters) -> None:
        self._spark = spark
        self._folder = folder
        self._delivery = delivery
        self._query: SparkQuery | None = None
        self._source: SourceFrame | None = None
        self._files = SourceFiles({}, {}, folder)
        self._work: NativeWork | None = None
        self._read = self._bad = self._late = 0
        self.counters = counters

    # Running

    def start(self, record: NetworkRecord, definitions: Definitions) -> None:
        """Start the query, from where its checkpoint is."""
        (query,) = definitions.queries
        (self._table,) = record.plan.sources
        self._runs_dry = definitions.runs_dry(self._table.table)
        self.counters.begin(record.plan)
        self._source = source = opened_source(self._spark, definitions, self._table, self._folder)
        checkpoint = self._folder / "spark"
        if isinstance(source.reader, FileReader):
            assert source.tickets is not None, "files have tickets"
            feed, place = self._table.feed, definitions.place("table", self._table.table)
            self._files = SourceFiles({feed: source.tickets}, {feed: place}, checkpoint)
            delay = delays_of(definitions.catalog, [self._table])[self._table.id]
            order = OrderLog(self._folder, self._spark.sparkContext, feed, delay)
            self._work = InTasks(query, record.plan, source, definitions, self._delivery, self._files, order)
        else:
            self._work = InColumns(query, record.plan, source, definitions, self._delivery)
        with translated(), own_workers(self._spark.sparkContext):
            record.save(self._folder)
            self._files.open()
            self._query = SparkQuery(self._work.frame(), self._deliver, checkpoint, f"cql {query.name}")
            self._query.start()
        self._files.follow()

    def close_instants(self, read_all: bool) -> None:
        """Process all that the source has, and stop; no instant waits for another here."""
        if self._query is not None and read_all:
            self._files.look()
            self._query.process_available()
            self.check()
        self.stop()

    def process_available(self) -> None:
        """Process all that the source has now."""
        self._files.look()
        if self._query is not None and self._runs_dry:
            self._query.process_available()
        elif self._query is not None:
            self._query.process_current()

    def heartbeat(self, table: str, instant: int) -> None:
        """Nothing waits for a heartbeat."""

    def refresh(self, table: str) -> None:
        """There is no static relation here."""

    def stop(self) -> None:
        """Stop between two micro-batches."""
        if self._query is not None:
            self._query.stop()
            self._count()
            self._files.settle()
        self.abort()

    def abort(self) -> None:
        """Stop at once."""
        self._files.close()
        if self._query is not None:
            self._query.abort()
            self._query = None

    def check(self) -> bool:
        """Tell whether the query is running; raises if it has failed, or its source has disappeared."""
        if self._source is not None:
            self._source.check()
        self._files.check()
        return self._query is not None and self._query.check()

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        assert self._work is not None, "the job has been started"
        with carrying():
            self._work.deliver(frame, batch_id)
        self._count()

    def _count(self) -> None:
        """Count what micro-batches have done."""
        if self._query is None or self._work is None:
            return
        for done in self._work.done(self._query.recent_progress):
            self._read += done.read
            self._bad += done.bad
            self._late += done.late
            report = Report(
                place="spark/0",
                taken={self._table.feed: done.read},
                read={self._table.id: self._read},
                skipped={self._table.id: self._bad},
                read_late={self._table.id: self._late},
            )
            self.counters.count(done.batch_id, [report], {self._work.query.name: done.made}, done.seconds)

    # Telling

    def reads(self, table: str) -> bool:
        """Tell whether the query reads a table."""
        return table.casefold() == self._table.table.casefold()

    def progress(self) -> Progress:
        """Return how far the query is."""
        self._count()
        return self.counters.progress()

    def statistics(self) -> list[Figures]:
        """Return what is known of the source."""
        return [each for each in self.counters.figures() if each.kind == "source"]

    def losses(self) -> list[str]:
        """Return a line each if rows came too late or were bad."""
        progress = self.counters.progress()
        lost = ((table, progress.late[table], count) for table, count in progress.skipped.items())
        return self._files.notes + [line for each in lost for line in losses_text(*each)]


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a micro-batch did: rows read, bad ones beside them that were left out, late ones among them, and results."""

    batch_id: int
    read: int
    bad: int
    late: int
    made: int
    seconds: float


class NativeWork(ABC):
    """How the results of a query come about."""

    def __init__(
        self, query: QueryDef, plan: Plan, source: SourceFrame, definitions: Definitions, delivery: Delivery
    ) -> None:
        self.query = query
        self._plan = plan
        self._source = source
        self._definitions = definitions
        self._delivery = delivery
        self._options = None if query.sink is None else sink_format(query.sink)[1]
        self._counted = -1

    @abstractmethod
    def frame(self) -> DataFrame:
        """Return what the streaming query computes."""

    @abstractmethod
    def deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Deliver what a micro-batch has computed."""

    def done(self, recent: Sequence[Any]) -> list[BatchCounts]:
        """Return what micro-batches have done that was not told before, given what Spark says of the last ones."""
        new = [self._done(batch) for batch in recent if batch.batchId > self._counted]
        self._counted = max([self._counted, *(each.batch_id for each in new)])
        return new

    @abstractmethod
    def _done(self, batch: Any) -> BatchCounts:
        """Return what a micro-batch has done, given what Spark says of it."""


class InTasks(NativeWork):
    """Tasks read files, compute and write files; the driver puts these in their places."""

    def __init__(
        self,
        query: QueryDef,
        plan: Plan,
        source: SourceFrame,
        definitions: Definitions,
        delivery: Delivery,
        files: SourceFiles,
        order: OrderLog,
    ) -> None:
        super().__init__(query, plan, source, definitions, delivery)
        self._files = files
        self._order = order
        self._told: dict[int, tuple[int, int, int, int]] = {}
        """Of micro-batches that have not been counted yet: rows read, left out, late, and made."""

    def frame(self) -> DataFrame:
        """Return what tasks say of themselves."""
        tree, catalog = self.query.tree, self._definitions.catalog
        assert isinstance(self._source.reader, FileReader), "files become files"
        assert isinstance(self._options, FileOptions), "files become files"
        coded = (*catalog.functions.values(), *catalog.aggregates.values())
        work = Writing(
            self._plan,
            self._source.reader,
            Result(self.query.name, tuple(tree.schema), tree.is_stream, tree.time),
            self._options,
            {each.name: each.code for each in coded},
            callers(self._definitions.queries),
            dict(self._definitions.places),
            self._order.feed,
            self._order.delay,
        )
        name = hashlib.sha256(cloudpickle.dumps(work)).hexdigest()
        return self._source.frame.mapInArrow(write_results(Sent.of(name, work)), from_arrow_schema(WRITTEN))

    def deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Let the tasks write, and put their files in their places."""

        self._files.settle()

        def write() -> list[Path]:
            try:
                said = self._order.in_order(batch_id, lambda: sorted(frame.collect(), key=lambda each: each.file or ""))
            except Exception as error:
                self._files.reject(error)
                raise
            places = (place for each in said for place, _, _ in json.loads(each.spans))
            self._files.read(batch_id, ((self._order.feed, place) for place in places))
            read, bad, late, made = (sum(each[what] for each in said) for what in ("read", "skipped", "late", "rows"))
            self._told[batch_id] = read, bad, late, made
            return [Path(each.file) for each in said if each.file is not None]

        self._delivery.deliver_files(batch_id, self.query.name, write)

    def _done(self, batch: Any) -> BatchCounts:
        read, bad, late, made = self._told.pop(batch.batchId, (0, 0, 0, 0))
        return BatchCounts(batch.batchId, read, bad, late, made, batch.durationMs["triggerExecution"] / 1000)


class InColumns(NativeWork):
    """Spark computes everything from its own columns, and writes Parquet files or hands frames to a function."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._fails = self._definitions.catalog.settings.on_bad_row == "fail"
        self._made: dict[int, int] = {}
        """How many rows micro-batches have made that have not been counted yet."""

    def frame(self) -> DataFrame:
        """Return the results: instant, sign and columns.

        Bad rows are counted where they do not end the run; counting more would make Spark look at rows one by one.
        """
        steps = steps_of(self._plan.operators)
        assert steps is not None, "the query can be native"
        condition, columns = steps
        output = self._plan.operators[-1].columns
        ts, sign = free_names([column.name for column in output])
        is_clock = self.query.tree.time is TimeDomain.TIMESTAMP
        instant = f.timestamp_micros(INSTANT) if is_clock else f.col(INSTANT)
        named = [
            (value.cast("timestamp") if column.type.kind is Kind.TIMESTAMP else value).alias(column.name)
            for value, column in zip(columns, output, strict=True)
        ]
        typed = self._source.typed()
        read = typed if self._fails else typed.observe("read", f.count(BAD).alias("bad"))
        return read.where(self._is_good()).where(condition).select(instant.alias(ts), f.lit("+").alias(sign), *named)

    def _is_good(self) -> Column:
        """Return whether a row is good; a bad one ends the run, if it is to."""
        bad = f.col(BAD)
        if not self._fails:
            return bad.isNull()
        mark = "(what is wrong)"
        error = fail(
            Code.BAD_DATA,
            f"'{self._source.table.name}' has a bad row: {mark}",
            hint="correct it, or leave bad rows out: SET on_bad_row = skip",
        )
        before, after = carried(error).split(mark)
        complaint = f.raise_error(f.concat(f.lit(before), bad, f.lit(after)))
        return f.when(bad.isNull(), f.lit(True)).otherwise(complaint.cast("boolean"))

    def deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Hand the frame to the function, or let Spark write its files."""
        if self.query.name in self._definitions.callbacks:
            self._delivery.deliver_call(batch_id, self.query.name, partial(self._call, frame, batch_id))
            return

        def write() -> list[Path]:
            assert isinstance(self._options, ParquetOptions), "Spark writes files of Parquet"
            place = hidden_folder(Path(self._options.path).absolute(), batch_id) / "spark"
            frame.write.option("compression", self._options.compression).parquet(f"file:{place}")
            written = sorted(place.glob("part-*.parquet"))
            self._made[batch_id] = sum(parquet.read_metadata(path).num_rows for path in written)
            return written

        self._delivery.deliver_files(batch_id, self.query.name, write)

    def _call(self, frame: DataFrame, batch_id: int, function: Callback) -> None:
        """Call a function with a frame; it is computed as often as the function asks for it."""
        assert isinstance(function, FrameFunction), "a function that takes frames"
        called(self.query.name, function.function, frame, batch_id)

    def _done(self, batch: Any) -> BatchCounts:
        observed = batch.observedMetrics.get("read")
        bad = observed["bad"] if observed is not None else 0
        made = self._made.pop(batch.batchId, 0)
        return BatchCounts(batch.batchId, batch.numInputRows, bad, 0, made, batch.durationMs["triggerExecution"] / 1000)
