"""Queries without state, run by Spark alone: filters and projections of one stream as Spark's own columns.

Their rows never go to Python, and nothing is kept of them. A row that comes late is as good as any other here, because
no answer depends on the rows around it: it is delivered when it comes.
"""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from cql.catalog import QueryDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.types import Kind
from planner import operators as op
from planner.plan import Plan, QueryPlan
from runtime.formats.line_formats import free_names
from runtime.local import losses_text
from runtime.spark.definitions import BOUNDED, Definitions, opened_source
from runtime.spark.delivery import Delivery
from runtime.spark.prefixes import steps_of
from runtime.spark.progress import Counters, Progress
from runtime.spark.record import Record
from runtime.spark.sources import BAD, INSTANT, SourceFrame, carrying
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
            self._query = SparkQuery(self._source.typed(), self._deliver, self._folder / "spark", name)

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

    # Delivering

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        started = perf_counter()
        read, made = Observation(), Observation()
        bad = f.col(BAD)
        observed = frame.observe(
            read,
            f.count(f.lit(1)).alias("rows"),
            f.count(bad).alias("bad"),
            f.min(bad).alias("example"),
            f.max(INSTANT).alias("newest"),
        )
        changes = self._changes(observed.where(bad.isNull())).observe(made, f.count(f.lit(1)).alias("rows"))
        with carrying():
            self._delivery.deliver_frame(batch_id, self._definition.name, changes, lambda: self._check(read))
        self._count(batch_id, read, made, perf_counter() - started)

    def _changes(self, frame: DataFrame) -> DataFrame:
        """Return the results for some rows: instant, sign and columns."""
        assert self._plan is not None, "the job has been started"
        steps = steps_of(self._plan.operators)
        assert steps is not None, "the query can be native"
        condition, columns = steps
        names = [column.name for column in self._plan.operators[-1].columns]
        ts, sign = free_names(names)
        is_clock = self._definition.tree.time is TimeDomain.TIMESTAMP
        instant = f.timestamp_micros(INSTANT) if is_clock else f.col(INSTANT)
        types = [column.type.kind for column in self._plan.operators[-1].columns]
        stored = [
            column.cast("timestamp") if kind is Kind.TIMESTAMP else column
            for column, kind in zip(columns, types, strict=True)
        ]
        named = [column.alias(name) for column, name in zip(stored, names, strict=True)]
        return frame.where(condition).select(instant.alias(ts), f.lit("+").alias(sign), *named)

    def _check(self, read: Observation) -> None:
        """Raise if there were bad rows, and they are to end the run."""
        found = read.get
        if found["bad"] and self._fails:
            raise fail(
                Code.BAD_DATA,
                f"'{self._table.table}' has {found['bad']} bad rows, such as one of which {found['example']}",
                hint="correct them, or leave bad rows out: SET on_bad_row = skip",
            )

    def _count(self, batch_id: int, read: Observation, made: Observation, seconds: float) -> None:
        found, name = read.get, self._table.id
        values = {
            "place": "spark/0",
            "told": "",
            "taken": {self._table.feed: found["rows"]},
            "read": {name: self.counters.rows_in().get(self._table.table, 0) + found["rows"]},
            "skipped": {name: self.counters.progress().skipped.get(self._table.table, 0) + found["bad"]},
            "late": {},
            "newest": found["newest"],
            "closed": found["newest"] or 0,
            "work": {},
            "held": {},
        }
        self.counters.count(batch_id, [values], {self._definition.name: made.get["rows"]}, seconds)

    # Telling

    def reads(self, table: str) -> bool:
        """Tell whether the query reads a table."""
        return table.casefold() == self._table.table.casefold()

    def progress(self) -> Progress:
        """Return how far the query is."""
        return self.counters.progress()

    def statistics(self) -> list[Figures]:
        """Return what is known of the source."""
        return [each for each in self.counters.figures() if each.kind == "source"]

    def losses(self) -> list[str]:
        """Return a line if rows could not be read."""
        skipped = self.counters.progress().skipped
        return [line for table, count in skipped.items() for line in losses_text(table, 0, count)]
