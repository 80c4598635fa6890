"""A network at work: its record, its results, its controllers, and what happens with each micro-batch.

A host reads, runs the workers and keeps their state; it hands over one micro-batch after another. What is decided about
a micro-batch is written down before it is computed, and its results are delivered before the host commits it, so a
micro-batch that is done again after a crash gives the same results and does no harm.

A network changes by stopping between two micro-batches and going on from the same checkpoint with another plan: sources
are known by name, and the state of parts that stay is found under their ids.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from cql.catalog import StreamDef
from planner import operators as op
from planner.plan import Plan, combine
from runtime.connectors.intake import layout_of
from runtime.controllers.decision_log import Decision, DecisionLog
from runtime.controllers.idle_watch import IDLENESS, IdleWatch, idle_decision
from runtime.controllers.shedder import Shedder
from runtime.delivery.delivery import Delivery
from runtime.engine.statistics import Figures
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.directives import Directives, FeedOrder
from runtime.network.host import Computed, Host, MicroBatch
from runtime.network.kept_order import KeptOrder
from runtime.network.lateness import goes_by_order
from runtime.network.layout import NetworkLayout
from runtime.network.record import NetworkRecord, delays_of, feeds_of
from runtime.network.reports import Report, complete_after, counted_by_joins, demands_of_joins, overtaken_places
from runtime.network.static_tables import StaticTables
from runtime.network.task import Task
from runtime.reports.losses import Loss, losses_text
from runtime.reports.progress import Progress
from runtime.time.unended_windows import unended_text
from runtime.user_errors import callers
from shedding.insert_drops import loses_anything
from shedding.joins import check_memory


class Network:
    """A network of queries on a host. All of its timed sources are on one clock."""

    def __init__(self, host: Host, folder: Path, delivery: Delivery, counters: Counters) -> None:
        self.plan = combine(())
        """What it runs, or ran last."""
        self._host = host
        self._folder = folder
        self._delivery = delivery
        self._decisions = DecisionLog(folder / "decisions")
        self._static = StaticTables(folder / "static")
        self._kept_order = KeptOrder(folder, host.is_committed)
        self._overflow = folder.absolute() / "overflow"
        self._is_started = False
        self._last_message = ""
        """The control message after whose micro-batch the network stops, if it is to stop."""
        self._told_lately = ("", "")
        """The last control messages that had taken effect before the last two micro-batches."""
        self._feeds: dict[str, list[op.Source]] = {}
        self._batch = -1
        """The id of the last micro-batch since the start."""
        self._order: dict[str, FeedOrder] = {}
        """What is known of the order of each feed, for the tasks of the next micro-batch."""
        self._keeps_order = False
        """Whether it depends on the rows before it whether a row is good, so that the order is kept."""
        self._complete: dict[str, int] = {}
        """How far edges were complete after the last micro-batch since the start."""
        self._dry: set[str] = set()
        """The tables that do not always have more."""
        self._idle_watch: IdleWatch | None = None
        self._shedder: Shedder | None = None
        self.counters = counters

    # Running

    def start(self, record: NetworkRecord, definitions: Definitions) -> None:
        """Start, from where the checkpoint is; results are delivered as they come."""
        self._begin(record, definitions)
        before = NetworkRecord.load(self._folder)
        told = {} if before is None else before.static
        static = self._static.contents(record.plan.sources, definitions, told, self._host.read_table)
        record = record.model_copy(update={"static": static.versions})
        self._host.open(record, self._task(record, definitions, static.packed), definitions)
        news = self._announce(static.news)
        record.save(self._folder)
        self._set_pace()
        self._is_started = True
        self._host.start(self.run)
        self._watch_idleness(definitions.catalog.settings.idle_seconds)
        self._wait_until_told(news)

    def _begin(self, record: NetworkRecord, definitions: Definitions) -> None:
        """Forget the run before, and make ready what decides and counts."""
        self.plan = record.plan
        self._feeds = feeds_of(record)
        self._dry = {table for table in self._timed if definitions.runs_dry(table)}
        layouts = [layout_of(definitions.table(table)) for table in self._timed]
        self._keeps_order = any(map(goes_by_order, layouts))
        self._last_message = ""
        self._complete = {}
        self._order = self._kept_order.last()
        self.counters.begin(record.plan)
        check_memory(record.plan, record.buckets)
        self._shedder = self._new_shedder(record, definitions) if loses_anything(record.plan) else None

    def _new_shedder(self, record: NetworkRecord, definitions: Definitions) -> Shedder:
        return Shedder(
            self._decisions,
            record.plan,
            definitions.queries,
            delay=_longest_delay(definitions, record.plan),
            buckets=record.buckets,
            processors=self._host.processors,
            figures=self.counters.figures(),
        )

    def _task(self, record: NetworkRecord, definitions: Definitions, static: Mapping[str, Mapping[int, bytes]]) -> Task:
        """Return what workers need to know, wherever they run."""
        catalog = definitions.catalog
        settings = catalog.settings
        delays = delays_of(catalog, record.plan.sources)
        coded = (*catalog.functions.values(), *catalog.aggregates.values())
        return Task(
            layout=NetworkLayout(record.plan, record.buckets, delays, settings.end == "close", settings.on_bad_row),
            functions={each.name: each.code for each in coded},
            callers=callers(definitions.queries),
            places=dict(definitions.places),
            static=static,
            policy=settings.scheduler,
            max_bytes=settings.memory_bytes,
            overflow=self._overflow,
        )

    def _announce(self, versions: Mapping[str, int]) -> str:
        """Tell all places that tables go on that had ended, and of new versions of static relations.

        Returns the name of the message about these; an empty text if there is none.
        """
        ended = self._host.last_message().get("ended")
        if ended:
            self._host.tell({"resumed": ended})
        return self._host.tell({"static": versions}) if versions else ""

    def _set_pace(self) -> None:
        """Let the next micro-batch have as much as will do no harm, as long as nobody knows what rows cost."""
        if self._shedder is not None and self._host.has_pace:
            self._host.allow(self._shedder.most_times())

    def _watch_idleness(self, timeout: float | None) -> None:
        if timeout is not None and len(self._timed) > 1:
            self._idle_watch = IdleWatch(self._timed, timeout, self._tell_idle)
            self._idle_watch.start()

    def _tell_idle(self, tables: Mapping[str, float]) -> None:
        """Tell all places that tables are idle, once that is written down."""
        batch = self._batch + 1
        decided = [idle_decision(batch, table, seconds) for table, seconds in tables.items()]
        self._decisions.add(IDLENESS, batch, decided)
        self._host.tell({"idle": list(tables)})

    def _wait_until_told(self, message: str) -> None:
        """Wait until a control message has taken effect."""
        if self._is_started:
            self._host.wait_for(lambda: self.counters.told >= message)

    def close_instants(self, read_all: bool) -> None:
        """Take what the sources have had for all that there is: their last instants are closed and delivered.

        With `read_all`, everything that they have is read first; sources without an end would never be done. The
        network stops after the micro-batch in which that happens.
        """
        if not self._is_started:
            return
        if read_all:
            self._host.look()
            self._host.process_available()
            self.check()
        self._last_message = message = self._host.tell({"ended": self._timed})
        self._wait_until_told(message)
        self.stop()

    def process_available(self) -> None:
        """Process all that the sources have now; instants that are open stay open.

        Beside a source that always has more, a host would never say that everything is done. What was there before a
        control message is given is in the micro-batch after the one that brings the message, at the latest. Files may
        be read a few at a time; they are done when such a micro-batch brings none of their rows.
        """
        if not self._is_started:
            return
        self._host.look()
        if self._dry == set(self._timed):
            self._host.process_available()
            return
        self._wait_until_told(self._host.tell({}))
        read: dict[str, int] | None = None
        while self.check() and read != (now := self._read_dry()):
            read = now
            self._wait_until_told(self._host.tell({}))

    def _read_dry(self) -> dict[str, int]:
        """Return how many rows were read of each table that does not always have more."""
        return {table: count for table, count in self.counters.rows_in().items() if table.casefold() in self._dry}

    def heartbeat(self, table: str, instant: int) -> None:
        """Say that nothing before an instant comes from a table any more."""
        self._wait_until_told(self._host.tell({"heartbeats": {table.casefold(): instant}}))

    def refresh(self, table: str) -> None:
        """Let a static relation be read again when the network is started the next time."""
        self._static.forget(table)

    def stop(self) -> None:
        """Stop between two micro-batches: the one that is running is completed."""
        self._host.stop()
        self._end()

    def abort(self) -> None:
        """Stop at once; what the micro-batch that is running would have done is done after the next start."""
        self._host.abort()
        self._end()

    def _end(self) -> None:
        self._is_started = False
        if self._idle_watch is not None:
            self._idle_watch.stop()
            self._idle_watch = None

    def check(self) -> bool:
        """Tell whether the network is running; raises if it has failed, or a source has disappeared."""
        return self._host.check()

    # Micro-batches

    def run(self, batch: MicroBatch) -> None:
        """Called by the host with each micro-batch: decide, compute, deliver, count and learn."""
        started, self._batch = perf_counter(), batch.id
        self._forget_messages()
        results, reports = self._computed(batch)
        self._note_order(batch.id, reports)
        batch.accept(reports)
        self._delivery.deliver(batch.id, results)
        shutil.rmtree(self._overflow, ignore_errors=True)
        rows_out = {query: changes.rows for query, changes in results.items()}
        self.counters.count(batch.id, reports, rows_out, perf_counter() - started)
        self._learn(reports)
        if self._last_message and self.counters.told >= self._last_message:
            self._host.stop_after_this()

    def _forget_messages(self) -> None:
        """Let go of control messages that have taken effect before the micro-batch before the last one."""
        self._host.forget_before(self._told_lately[0])
        self._told_lately = (self._told_lately[1], self.counters.told)

    def _computed(self, batch: MicroBatch) -> Computed:
        """Return what a micro-batch comes to.

        It is computed again if tasks that read a source side by side have kept rows that are late by its order: what
        was before each of its places is known then.
        """
        schedules = {} if self._shedder is None else self._shedder.begin(batch.id, batch.backlog)
        try:
            computed = batch.compute(Directives(schedules, self._complete, self._order))
            if before := overtaken_places(computed.reports):
                known = {feed: FeedOrder(self._newest(feed), places) for feed, places in before.items()}
                self._order = {**self._order, **known}
                computed = batch.compute(Directives(schedules, self._complete, self._order))
                assert not overtaken_places(computed.reports), "late rows are left out where they are read"
        except Exception as error:
            if not self._delivery.has_delivered(batch.id):
                batch.reject(error)
            raise
        return computed

    def _newest(self, feed: str) -> int | None:
        return self._order[feed].newest if feed in self._order else None

    def _note_order(self, batch_id: int, reports: Sequence[Report]) -> None:
        """Take in how far sources and edges are."""
        self._complete = complete_after(reports)
        self._order = {feed: FeedOrder(newest) for report in reports for feed, newest in report.order.items()}
        if self._keeps_order:
            self._kept_order.keep(batch_id, self._order)

    def _learn(self, reports: Sequence[Report]) -> None:
        """Let those who decide learn from a micro-batch."""
        if self._shedder is not None:
            counts = counted_by_joins(reports), demands_of_joins(reports)
            self._shedder.done(self.counters.progress(), self.counters.shed(), *counts, self.counters.first)
            self._set_pace()
        if self._idle_watch is not None:
            self._idle_watch.note({table.casefold(): count for table, count in self.counters.rows_in().items()})

    # Telling

    @property
    def _timed(self) -> list[str]:
        """The tables that change, by their names in lower case."""
        timed = (sources[0] for sources in self._feeds.values() if sources[0].time is not None)
        return list(dict.fromkeys(source.table.casefold() for source in timed))

    def reads(self, table: str) -> bool:
        """Tell whether the network reads a table."""
        return any(table.casefold() == source.table.casefold() for own in self._feeds.values() for source in own)

    def progress(self) -> Progress:
        """Return how far the network is."""
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

    def decisions(self) -> list[Decision]:
        """Return what was decided last, oldest first."""
        return self._decisions.newest()

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out, and for each query whose windows did not end."""
        progress = self.progress()
        tables = progress.rows_in
        lost = [line for each in tables for line in losses_text(each, progress.late[each], progress.skipped[each])]
        unended = [line for query, rows in sorted(self.counters.unended.items()) for line in unended_text(query, rows)]
        return [*self._host.notes, *lost, *unended]


def _longest_delay(definitions: Definitions, plan: Plan) -> float:
    """Return by how many seconds rows may come late, so that answers wait for them."""
    tables = [definitions.table(source.table) for source in plan.sources]
    ticks = [(table.delay, table.time) for table in tables if isinstance(table, StreamDef)]
    return max((delay * clock.microseconds_per_tick / 1e6 for delay, clock in ticks), default=0.0)
