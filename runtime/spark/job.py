"""A network of queries as one Spark Structured Streaming query.

Every table is read once and packed; the pieces go through one stateful operator for each stage of the network; what
comes out is collected on the driver and delivered. Time is in the pieces, not in Spark's watermarks, and control
messages are read like a source, so everything that decides about results is in Spark's log and in every repetition.

A network changes by stopping between two micro-batches and going on from the same checkpoint with another plan: Spark
knows its sources by name (source evolution), and finds the state of parts that stay under their ids.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from planner import operators as op
from runtime.connectors.intake import layout_of
from runtime.engine.statistics import Figures
from runtime.local.run import losses_text
from runtime.network.counters import Counters
from runtime.network.layout import NetworkLayout
from runtime.network.messages import COUNTS, RESULTS, unpack_values
from runtime.network.partial_aggregates import complete_after
from runtime.network.reports import counted_by_joins, demands_of_joins
from runtime.reports.losses import Loss
from runtime.reports.progress import Progress
from runtime.spark.broadcast import Sent
from runtime.spark.bucket_labels import label
from runtime.spark.changes import Changes
from runtime.spark.control import Control
from runtime.spark.delivery import Delivery
from runtime.spark.idleness import IdleWatch
from runtime.spark.network_record import NetworkRecord, delays_of, feeds_of
from runtime.spark.order_log import KeptOrder
from runtime.spark.processor import FragmentProcessor
from runtime.spark.reading import LABELLED, read_control, read_feed, read_prefixed
from runtime.spark.run_spec import Definitions, opened_source
from runtime.spark.shedding import Shedder
from runtime.spark.source_files import SourceFiles
from runtime.spark.source_pushdown import prefixed
from runtime.spark.sources import SourceFrame, carrying, goes_by_order
from runtime.spark.static import StaticTables
from runtime.spark.streaming import SparkQuery, translated
from runtime.spark.task import Task
from runtime.spark.task_properties import tell_complete, tell_order
from runtime.spark.workers import own_workers
from runtime.time.unended_windows import unended_text
from runtime.user_errors import callers
from shedding.insert_drops import loses_anything
from shedding.joins import check_memory


class Job:
    """A network at work on Spark. All of its timed sources are on one clock."""

    def __init__(self, spark: SparkSession, folder: Path, delivery: Delivery, counters: Counters) -> None:
        self._spark = spark
        self._folder = folder
        self._delivery = delivery
        self._control = Control(folder / "control")
        self._static = StaticTables(folder / "static")
        self._kept_order = KeptOrder(folder)
        self._overflow = folder.absolute() / "overflow"
        self._query: SparkQuery | None = None
        self._last_message = ""
        self._told_lately = ("", "")
        """The last control messages that had taken effect before the last two micro-batches."""
        self._feeds: dict[str, list[op.Source]] = {}
        self._frames: list[SourceFrame] = []
        self._files = SourceFiles({}, {}, folder)
        self._order: dict[str, dict[str, Any]] = {}
        """What is known of the order of each feed, for the tasks of the next micro-batch."""
        self._complete: dict[str, int] = {}
        """How far edges were complete after the last micro-batch since the start."""
        self._dry: set[str] = set()
        """The tables that do not always have more."""
        self._idle_watch: IdleWatch | None = None
        self._shedder: Shedder | None = None
        self.counters = counters

    # Running

    def start(self, record: NetworkRecord, definitions: Definitions) -> None:
        """Start a network, from where its checkpoint is; results are delivered as they come."""
        self._feeds = feeds_of(record)
        self._dry = {table for table in self._timed if definitions.runs_dry(table)}
        self._last_message = ""
        self._complete = {}
        self._order = self._kept_order.last()
        self.counters.begin(record.plan)
        check_memory(record.plan, record.buckets)
        sheds = loses_anything(record.plan)
        self._shedder = self._made_shedder(record, definitions) if sheds else None
        saved = NetworkRecord.load(self._folder)
        told = {} if saved is None else saved.static
        static = self._static.contents(self._spark, record.plan.sources, definitions, told)
        self._task = task = self._made_task(record, definitions, static.packed)
        self._sent = Sent.of(task.network, task)
        record = record.model_copy(update={"static": static.versions})
        if self._control.last().get("ended"):
            self._control.tell({"resumed": self._control.last()["ended"]})
        news = self._control.tell({"static": static.news}) if static.news else ""
        self._spark.conf.set("spark.sql.shuffle.partitions", str(record.buckets))
        with translated(), own_workers(self._spark.sparkContext):
            pieces = self._pieces(record.stages, definitions)
            record.save(self._folder)
            self._pace_files()
            self._files.open()
            self._query = SparkQuery(pieces, self._deliver, self._folder / "spark", f"cql {self._task.network}")
            self._query.start()
        self._files.follow()
        timeout = definitions.catalog.settings.idle_seconds
        if timeout is not None and len(self._timed) > 1:
            names = self._timed
            self._idle_watch = IdleWatch(names, timeout, self._tell_idle)
            self._idle_watch.start()
        self._wait_until_told(news)

    def _made_shedder(self, record: NetworkRecord, definitions: Definitions) -> Shedder:
        return Shedder(
            self._folder / "shedding",
            record.plan,
            definitions,
            record.buckets,
            self._spark.sparkContext.defaultParallelism,
            self.counters.figures(),
        )

    def _pace_files(self) -> None:
        """Let the next micro-batch have as many files as will do no harm, as long as nobody knows what rows cost."""
        if self._shedder is not None and self._files:
            self._files.allow(self._shedder.most_times())

    def _wait_until_told(self, message: str) -> None:
        """Wait until a control message has taken effect."""
        if self._query is not None:
            self._query.wait_for(lambda: self.counters.told >= message)

    def _tell_idle(self, tables: list[str]) -> None:
        self._control.tell({"idle": tables})

    def close_instants(self, read_all: bool) -> None:
        """Take what the sources have had for all that there is: their last instants are closed and delivered.

        With `read_all`, everything that they have is read first; sources without an end would never be done. The job
        stops after the micro-batch in which that happens.
        """
        if self._query is None:
            return
        if read_all:
            self._files.look()
            self._query.process_available()
            self.check()
        self._last_message = message = self._control.tell({"ended": self._timed})
        self._wait_until_told(message)
        self.stop()

    def process_available(self) -> None:
        """Process all that the sources have now; instants that are open stay open.

        Beside a source that always has more, Spark would never say that everything is done. What was there before a
        control message is given is in the micro-batch after the one that brings the message, at the latest. Files may
        be read a few at a time; they are done when such a micro-batch brings none of their rows.
        """
        if self._query is None:
            return
        self._files.look()
        if self._dry == set(self._timed):
            self._query.process_available()
            return
        self._wait_until_told(self._control.tell({}))
        read: dict[str, int] | None = None
        while self.check() and read != (now := self._read_dry()):
            read = now
            self._wait_until_told(self._control.tell({}))

    def _read_dry(self) -> dict[str, int]:
        """Return how many rows were read of each table that does not always have more."""
        return {table: count for table, count in self.counters.rows_in().items() if table.casefold() in self._dry}

    def heartbeat(self, table: str, instant: int) -> None:
        """Say that nothing before an instant comes from a table any more."""
        self._wait_until_told(self._control.tell({"heartbeats": {table.casefold(): instant}}))

    def refresh(self, table: str) -> None:
        """Let a static relation be read again when the job is started the next time."""
        self._static.forget(table)

    def stop(self) -> None:
        """Stop between two micro-batches: the one that is running is completed."""
        if self._query is not None:
            self._query.stop()
            self._files.settle()
        self.abort()

    def abort(self) -> None:
        """Stop at once; what the micro-batch that is running would have done is done after the next start."""
        self._files.close()
        if self._idle_watch is not None:
            self._idle_watch.stop()
            self._idle_watch = None
        if self._query is not None:
            self._query.abort()
            self._query = None

    def check(self) -> bool:
        """Tell whether the job is running; raises if it has failed, or a source has disappeared."""
        for each in self._frames:
            each.check()
        self._files.check()
        query = self._query
        return query is not None and query.check()

    # Telling

    @property
    def _timed(self) -> list[str]:
        """The tables that change, by their names in lower case."""
        timed = (sources[0] for sources in self._feeds.values() if sources[0].time is not None)
        return list(dict.fromkeys(source.table.casefold() for source in timed))

    def reads(self, table: str) -> bool:
        """Tell whether the job reads a table."""
        return any(table.casefold() == source.table.casefold() for own in self._feeds.values() for source in own)

    def progress(self) -> Progress:
        """Return how far the job is."""
        return self.counters.progress()

    def statistics(self) -> list[Figures]:
        """Return what is known of sources, operators, synopses and stores."""
        return self.counters.figures()

    def shed(self, query: str, fraction: float) -> bool:
        """Lose a share of what a query can lose, whatever the load; tell whether it can lose anything."""
        return self._shedder is not None and self._shedder.shed(query, fraction)

    def shedding(self) -> list[Loss]:
        """Return what the queries that shed have lost."""
        if self._shedder is None:
            return []
        return self._shedder.losses(
            self.counters.progress(), self.counters.shed(), self.counters.first, self.counters.pairs()
        )

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out, and for each query whose windows did not end."""
        progress = self.progress()
        tables = progress.rows_in
        lost = [line for each in tables for line in losses_text(each, progress.late[each], progress.skipped[each])]
        unended = [line for query, rows in self.counters.unended.items() for line in unended_text(query, rows)]
        return self._files.notes + lost + unended

    # The Spark query

    def _made_task(
        self, record: NetworkRecord, definitions: Definitions, static: Mapping[str, Mapping[int, bytes]]
    ) -> Task:
        catalog = definitions.catalog
        delays = delays_of(catalog, record.plan.sources)
        closes, on_bad_row = catalog.settings.end == "close", catalog.settings.on_bad_row
        layout = NetworkLayout(record.plan, record.buckets, delays, closes, on_bad_row)
        coded = (*catalog.functions.values(), *catalog.aggregates.values())
        functions = {each.name: each.code for each in coded}
        policy = catalog.settings.scheduler
        settings = f"{policy}{closes}{on_bad_row}"
        content = f"{self._folder.absolute()}{record.model_dump_json()}{self._static.versions}{settings}"
        return Task(
            network=hashlib.sha256(content.encode() + cloudpickle.dumps(functions)).hexdigest()[:16],
            layout=layout,
            functions=functions,
            callers=callers(definitions.queries),
            places=dict(definitions.places),
            static=static,
            labels={place: label(*place, record.buckets) for place in (*layout.places, (RESULTS, 0))},
            policy=policy,
            max_bytes=catalog.settings.memory_bytes,
            overflow=self._overflow,
        )

    def _pieces(self, stages: int, definitions: Definitions) -> DataFrame:
        """Return the frame that ends in the results."""
        schema = from_arrow_schema(LABELLED)
        pieces = self._control.frame(self._spark).mapInArrow(read_control(self._sent), schema)
        self._frames = []
        tickets = {}
        for feed, (source, *_) in self._feeds.items():
            if source.time is None:
                continue
            found = opened_source(self._spark, definitions, source, self._folder)
            self._frames.append(found)
            if found.tickets is not None:
                tickets[feed] = found.tickets
            pieces = pieces.unionAll(self._packed(feed, source.table, found, definitions))
        places = {feed: definitions.place("table", sources[0].table) for feed, sources in self._feeds.items()}
        self._files = SourceFiles(tickets, places, self._folder / "spark")
        for stage in range(stages):
            pieces = pieces.groupBy("label").transformWithStateInPandas(
                FragmentProcessor(self._sent, stage), outputStructType=schema, outputMode="append", timeMode="none"
            )
        return pieces

    def _packed(self, feed: str, table: str, found: SourceFrame, definitions: Definitions) -> DataFrame:
        """Return the rows of a table as pieces; what stands above it is done by Spark if the rows are in its hands."""
        schema = from_arrow_schema(LABELLED)
        on_bad_row = definitions.catalog.settings.on_bad_row
        native = found.native
        lowered = None if native is None else prefixed(self._task.layout, feed, native, on_bad_row)
        if lowered is None:
            read = found.frame.coalesce(1) if goes_by_order(layout_of(found.table)) else found.frame
            return read.mapInArrow(read_feed(self._sent, feed, table, found.reader), schema)
        frame, reader = lowered
        return frame.mapInArrow(read_prefixed(self._sent, feed, table, reader), schema)

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Spark with the results of a micro-batch."""
        assert self._query is not None, "the job has been started"
        started = perf_counter()
        self._control.remove_before(self._told_lately[0])
        self._told_lately = (self._told_lately[1], self.counters.told)
        if self._shedder is not None:
            self._shedder.begin(batch_id, self._spark.sparkContext, self._query.amounts())
        self._files.settle()
        found, counted = self._computed(frame, batch_id)
        self._complete = complete_after(counted)
        self._order = {feed: {"newest": newest} for each in counted for feed, newest in each["order"].items()}
        if any(goes_by_order(layout_of(each.table)) for each in self._frames):
            self._kept_order.keep(batch_id, self._order)
        read = ((feed, place) for each in counted for feed, places in each["places"].items() for place in places)
        self._files.read(batch_id, read)
        with carrying():
            self._delivery.deliver(batch_id, found)
        shutil.rmtree(self._overflow, ignore_errors=True)
        rows_out = {query: changes.rows for query, changes in found.items()}
        self.counters.count(batch_id, counted, rows_out, perf_counter() - started)
        if self._shedder is not None:
            counts = counted_by_joins(counted), demands_of_joins(counted)
            self._shedder.done(self.counters.progress(), self.counters.shed(), *counts, self.counters.first)
            self._pace_files()
        if self._last_message and self.counters.told >= self._last_message:
            self._query.stop_after_this()
        if self._idle_watch is not None:
            self._idle_watch.note({table.casefold(): count for table, count in self.counters.rows_in().items()})

    def _computed(self, frame: DataFrame, batch_id: int) -> tuple[dict[str, Changes], list[dict[str, Any]]]:
        """Return the results of a micro-batch by query, and what its places have counted.

        It is computed again if tasks that read a source side by side have kept rows that are late by its order: what
        was before each of its places is known then.
        """
        assert self._query is not None, "the job has been started"
        context = self._spark.sparkContext
        tell_complete(context, self._complete)
        tell_order(context, self._order)
        try:
            found, counted = _collected(frame)
            before = {feed: places for each in counted for feed, places in each["overtaken"].items()}
            if before:
                for feed, places in before.items():
                    self._order.setdefault(feed, {})["before"] = places
                tell_order(context, self._order)
                found, counted = _collected(self._query.recomputed(frame))
                assert not any(each["overtaken"] for each in counted), "late rows are left out where they are read"
        except Exception as error:
            if not self._delivery.has_delivered(batch_id):
                self._files.reject(error)
            raise
        return found, counted


def _collected(frame: DataFrame) -> tuple[dict[str, Changes], list[dict[str, Any]]]:
    """Return the changes that a frame has, by query, and the counts."""
    found: dict[str, Changes] = {}
    counted: list[dict[str, Any]] = []
    for kind, about, place, rows, blob in sorted(_rows(frame)):
        if kind == COUNTS:
            counted.append(unpack_values(blob))
        else:
            found.setdefault(about, Changes()).add(place.rpartition("/")[0], rows, blob)
    return found, counted


def _rows(frame: DataFrame) -> Iterator[tuple[str, str, str, int, bytes]]:
    """Yield the pieces of a frame."""
    table: pa.Table = frame.select("kind", "about", "place", "rows", "blob").toArrow()
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
