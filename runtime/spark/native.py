"""Queries without state, run by Spark alone: filters and projections of one stream as Spark's own columns.

Their rows never go to Python, and nothing is kept of them. A row that comes late is as good as any other here, because
no answer depends on the rows around it: it is delivered when it comes.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from cql.catalog import QueryDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.types import Kind
from planner import operators as op
from planner.plan import Plan, QueryPlan
from runtime.batch import BEGINNING
from runtime.formats.line_formats import free_names
from runtime.local import losses_text
from runtime.spark.definitions import BOUNDED, Definitions, opened_source
from runtime.spark.delivery import Delivery
from runtime.spark.prefixes import steps_of
from runtime.spark.progress import Counters, Progress
from runtime.spark.record import Record
from runtime.spark.sources import BAD, INSTANT, SourceFrame, carried, carrying
from runtime.spark.streaming import SparkQuery, translated
from runtime.statistics import Figures

_NO_SPARK_TYPE = (Kind.INTERVAL, Kind.NULL)


def native_stream(
    query: QueryDef, compiled: QueryPlan, definitions: Definitions, has_function: bool
) -> StreamDef | None:
    """Return the stream of a query that Spark alone can run, in the order of arrival; None of any other query."""
    sources = [each for each in compiled.operators if isinstance(each, op.Source)]
    output = compiled.operators[-1]
    if output.placement != "source" or len(sources) != 1:
        return None
    stream = definitions.table(sources[0].table)
    is_given = stream.name.casefold() in definitions.frames or stream.source is not None
    goes_to_files = query.sink is not None and query.sink.format == "parquet"
    has_types = all(column.type.kind not in _NO_SPARK_TYPE for column in output.columns)
    if not isinstance(stream, StreamDef) or not (is_given and has_types and (goes_to_files or has_function)):
        return None
    return None if steps_of(compiled.operators) is None else stream


def can_be_read_again(stream: StreamDef) -> bool:
    """Tell whether several queries of Spark that read a stream read the same."""
    return stream.source is not None and stream.source.format in (*BOUNDED, "kafka")


def folder_name(query: str) -> str:
    """Return the folder of a query in a checkpoint.

    >>> folder_name("hot"), folder_name("a/b")
    ('native/hot', 'native/a%2fb')
    """
    return "native/" + re.sub(r"[^\w-]", lambda found: f"%{ord(found[0]):02x}", query)


class NativeJob:
    """One query without state at work."""

    def __init__(self, spark: SparkSession, folder: Path, delivery: Delivery) -> None:
        self._spark = spark
        self._folder = folder
        self._delivery = delivery
        self._query: SparkQuery | None = None
        self._source: SourceFrame | None = None
        self._plan: Plan | None = None
        self._counted = -1
        self._read = self._bad = 0
        self._made: dict[int, int] = {}
        """How many rows micro-batches have made that have not been counted yet."""
        self.counters = Counters()

    # Running

    def start(self, record: Record, definitions: Definitions) -> None:
        """Start the query, from where its checkpoint is."""
        (self._definition,) = definitions.queries
        self._plan = record.plan
        self.counters.begin(record.plan)
        (source,) = record.plan.sources
        self._table = source
        self._fails = definitions.catalog.settings.on_bad_row == "fail"
        self._source = opened_source(self._spark, definitions, source, native=True)
        with translated():
            record.save(self._folder)
            name = f"cql {self._definition.name}"
            changes = self._changes(self._source.typed())
            self._query = SparkQuery(changes, self._deliver, self._folder / "spark", name)

    def close_instants(self, read_all: bool) -> None:
        """Process all that the source has, and stop; no instant waits for another here."""
        if self._query is not None and read_all:
            self._query.process_available()
        self.stop()

    def process_available(self) -> None:
        """Process all that the source has now."""
        if self._query is not None:
            self._query.process_available()

    def heartbeat(self, table: str, instant: int) -> None:
        """Nothing waits for a heartbeat."""

    def refresh(self, table: str) -> None:
        """There is no static relation here."""

    def stop(self) -> None:
        """Stop between two micro-batches."""
        if self._query is not None:
            self._query.stop()
            self._count()
            self._query = None

    def abort(self) -> None:
        """Stop at once."""
        if self._query is not None:
            self._query.abort()
            self._query = None

    def check(self) -> bool:
        """Tell whether the query is running; raises if it has failed, or its source has disappeared."""
        if self._source is not None:
            self._source.check()
        return self._query is not None and self._query.check()

    def _changes(self, frame: DataFrame) -> DataFrame:
        """Return the results for rows of the source: instant, sign and columns.

        Bad rows are counted where they do not end the run; counting more would make Spark look at rows one by one.
        """
        assert self._plan is not None, "the job has been started"
        steps = steps_of(self._plan.operators)
        assert steps is not None, "the query can be native"
        condition, columns = steps
        output = self._plan.operators[-1].columns
        ts, sign = free_names([column.name for column in output])
        is_clock = self._definition.tree.time is TimeDomain.TIMESTAMP
        instant = f.timestamp_micros(INSTANT) if is_clock else f.col(INSTANT)
        named = [
            (value.cast("timestamp") if column.type.kind is Kind.TIMESTAMP else value).alias(column.name)
            for value, column in zip(columns, output, strict=True)
        ]
        read = frame if self._fails else frame.observe("read", f.count(BAD).alias("bad"))
        return read.where(self._is_good()).where(condition).select(instant.alias(ts), f.lit("+").alias(sign), *named)

    def _is_good(self) -> Column:
        """Return whether a row is good; a bad one ends the run, if it is to."""
        bad = f.col(BAD)
        if not self._fails:
            return bad.isNull()
        mark = "(what is wrong)"
        error = fail(
            Code.BAD_DATA,
            f"'{self._table.table}' has a bad row: {mark}",
            hint="correct it, or leave bad rows out: SET on_bad_row = skip",
        )
        before, after = carried(error).split(mark)
        complaint = f.raise_error(f.concat(f.lit(before), bad, f.lit(after)))
        return f.when(bad.isNull(), f.lit(True)).otherwise(complaint.cast("boolean"))

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        with carrying():
            self._made[batch_id] = self._delivery.deliver_frame(batch_id, self._definition.name, frame)
        self._count()

    def _count(self) -> None:
        """Count what Spark says of micro-batches that are new."""
        for batch in self._query.recent_progress if self._query is not None else ():
            if batch.batchId <= self._counted:
                continue
            self._counted, name = batch.batchId, self._table.id
            observed = batch.observedMetrics.get("read")
            self._read += batch.numInputRows
            self._bad += observed["bad"] if observed is not None else 0
            values = {
                "place": "spark/0",
                "told": "",
                "taken": {self._table.feed: batch.numInputRows},
                "read": {name: self._read},
                "skipped": {name: self._bad},
                "late": {},
                "newest": None,
                "closed": BEGINNING,
                "work": {},
                "held": {},
            }
            rows_out = {self._definition.name: self._made.pop(batch.batchId, 0)}
            self.counters.count(batch.batchId, [values], rows_out, batch.durationMs["triggerExecution"] / 1000)

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
        """Return a line if rows could not be read."""
        skipped = self.counters.progress().skipped
        return [line for table, count in skipped.items() for line in losses_text(table, 0, count)]
