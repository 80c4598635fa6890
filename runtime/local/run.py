"""Runs queries in this process: from the sources of their tables through networks to their sinks.

Every table is read once, and fed to all that read it; the one that is furthest behind in time is read next, so that
no more of the others waits in memory than a chunk. Instants of different clocks cannot be compared, so queries on
integer time, on TIMESTAMP time and on no clock at all have networks of their own. A run ends wholly or not at all:
results appear when everything has been read and computed, and one that fails leaves nothing behind. While one thread
works, others may ask how far it is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from types import MappingProxyType, TracebackType
from typing import Any, Self, TextIO

import numpy as np
import pyarrow as pa

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.query import MOST_KEPT
from cql.session import Listing
from cql.source import NO_SPAN, Span
from planner.plan import QueryPlan, combine
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import concat_columns
from runtime.connectors import SourceReader, SourceRows, Writer, open_sink, open_source
from runtime.connectors.keeping import KeptResults
from runtime.connectors.python_data import Callback, CallbackWriter
from runtime.connectors.sinks import Output
from runtime.connectors.tables import Screen
from runtime.controllers.decision_log import Decision
from runtime.engine.statistics import Figures, of_parts
from runtime.local.network import LocalNetwork
from runtime.network.counters import Counters
from runtime.reports.loss_warnings import LossWatch, Warn
from runtime.reports.losses import Loss, cannot_shed, losses_of, losses_text
from runtime.reports.progress import PART_NAMES, Progress
from runtime.time.unended_windows import unended_text
from runtime.user_errors import (
    NOWHERE,
    MemoryExceeded,
    Places,
    RemovalFailed,
    UserFunctionFailed,
    callers,
    explained,
    placed,
    too_much_memory,
)
from shedding.insert_drops import compile_all

Table = StreamDef | RelationDef
NO_DATA: Mapping[str, Sequence[SourceRows]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Feed:
    """The rows of one table on their way to the networks that read it."""

    table: Table
    rows: Iterator[SourceRows] | None
    """Where they come from; None if they are pushed from outside."""
    place: Span = NO_SPAN
    readers: list[LocalNetwork] = field(default_factory=list)
    has_ended: bool = False
    _skipped: int = 0

    @property
    def key(self) -> str:
        return self.table.name.casefold()

    @property
    def until(self) -> int:
        """The instant before which no more rows come on time."""
        return min(network.until(self.key) for network in self.readers)

    def load(self) -> None:
        """Pass on all rows of a static relation."""
        with placed(self.place):
            parts = [each.columns for each in self.rows or ()]
        types = [arrow_type(column.type) for column in self.table.columns]
        columns = concat_columns(parts) if parts else tuple(pa.nulls(0, each) for each in types)
        skipped = self._newly_skipped()
        for network in self.readers:
            network.put_static(self.key, columns, skipped)
        self.has_ended = True

    def pull(self) -> None:
        """Pass on the next rows of the source, or that there are no more."""
        assert self.rows is not None, "the rows of this table are pushed"
        with placed(self.place):
            rows = next(self.rows, None)
        if rows is None:
            self.end()
        else:
            self.push(rows)

    def push(self, rows: SourceRows) -> None:
        """Pass on rows."""
        skipped = self._newly_skipped()
        for network in self.readers:
            network.read(self.key, rows, skipped)

    def _newly_skipped(self) -> int:
        """Return how many bad rows the source has left out since the last time."""
        before = self._skipped
        self._skipped = self.rows.skipped if isinstance(self.rows, SourceReader) else 0
        return self._skipped - before

    def heartbeat(self, instant: int) -> None:
        """Pass on that nothing comes before an instant any more."""
        for network in self.readers:
            network.tell(heartbeats={self.key: instant})

    def end(self) -> None:
        """Pass on that there is no more, and what was left out at the end."""
        types = [arrow_type(column.type) for column in self.table.columns]
        signs = np.empty(0, np.int64) if isinstance(self.table, RelationDef) else None
        self.push(SourceRows(tuple(pa.nulls(0, each) for each in types), np.empty(0, np.int64), signs))
        for network in self.readers:
            network.tell(ended=[self.key])
        self.has_ended = True


class _Part:
    """The queries on one clock: their network, and where their results go."""

    def __init__(self, network: LocalNetwork) -> None:
        self.network = network
        times = (source.time for source in network.plan.sources)
        self.name = PART_NAMES[next((time for time in times if time is not None), None)]
        self.feeds: list[Feed] = []
        self.writers: dict[str, Writer] = {}
        self.counters = Counters(self.name)
        self.counters.begin(network.plan)
        self._batches = count()

    def advance(self) -> None:
        """Compute everything that can be computed, and write what is complete."""
        started = perf_counter()
        rows = dict.fromkeys(self.writers, 0)
        for query, batch in self.network.run():
            self.writers[query].write(batch)
            rows[query] += len(batch)
        self.counters.count(next(self._batches), self.network.reports, rows, perf_counter() - started)

    def losses(self, queries: Iterable[QueryDef]) -> list[Loss]:
        """Return what those of some queries that are here have lost."""
        spans, shed = self.counters.progress().spans(self.counters.first), self.counters.shed()
        own = [query for query in queries if query.name in self.network.plan.queries]

        def passing(operator: str) -> tuple[int, int]:
            taken, passed = shed.get(operator, (0, 0))
            return taken, passed

        schedules, choices = self.network.schedules.all, self.network.choices
        return losses_of(
            self.network.plan, own, schedules, choices, passing, spans, self.counters.pairs(), lambda _: "by hand"
        )


class LocalRun:
    """Some queries of a catalog at work; a context that completes the results, or gives them up after a failure.

    `data` holds the rows of tables that have no source. With `live`, the rows of those that have neither are pushed,
    and results that go to no sink are kept in `results`; otherwise these are printed to `out`. `places` says where in
    a script ("table", name) and ("query", name) are defined, for errors. `callbacks` are functions that take results.
    Of results in `results`, at most `keep` rows of changes are kept. `warn` is told, while rows are pushed, of those
    that are left out.
    """

    notes: Sequence[str] = ()
    """What is to be said before a run begins: nothing is taken over from another one here."""

    def __init__(
        self,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        data: Mapping[str, Sequence[SourceRows]] = NO_DATA,
        live: bool = False,
        output: Output = "table",
        out: TextIO | None = None,
        places: Places = NOWHERE,
        callbacks: Mapping[str, Callback] | None = None,
        keep: int = MOST_KEPT,
        warn: Warn | None = None,
    ) -> None:
        self.failure: Exception | None = None
        """What has ended the run, if it has failed."""
        self._keep = keep
        self._watch = None if warn is None else LossWatch(warn)
        self._lock = threading.RLock()
        self._callbacks = callbacks or {}
        self.results: dict[str, KeptResults] = {}
        self._catalog = catalog
        self._definitions = {query.name: query for query in queries}
        self._data = data
        self._live = live
        self._places = places
        self._check_files_end()
        compiled = self._compiled()
        self._parts = [_Part(LocalNetwork(combine(part), catalog)) for part in by_clock(compiled)]
        self._feeds = self._opened_feeds()
        self._open_writers(output, Screen(out or sys.stdout))

    # Building

    def _compiled(self) -> list[QueryPlan]:
        def at(query: QueryDef) -> AbstractContextManager[None]:
            return placed(self._places.get(("query", query.name.casefold()), NO_SPAN))

        return compile_all(self._definitions.values(), self._catalog.settings.sharing == "on", at)

    def _opened_feeds(self) -> dict[str, Feed]:
        feeds: dict[str, Feed] = {}
        for part in self._parts:
            for key in dict.fromkeys(source.table.casefold() for source in part.network.plan.sources):
                if key not in feeds:
                    feeds[key] = self._opened_feed(key)
                feeds[key].readers.append(part.network)
                part.feeds.append(feeds[key])
        return feeds

    def _opened_feed(self, key: str) -> Feed:
        table = self._catalog.as_read(key)
        place = self._places.get(("table", key), NO_SPAN)
        if key in self._data:
            return Feed(table, iter(self._data[key]), place)
        if self._live and table.source is None and table.time is not None:
            return Feed(table, None, place)
        with placed(place):
            return Feed(table, open_source(table, self._catalog.settings.on_bad_row), place)

    def _open_writers(self, output: Output, screen: Screen) -> None:
        try:
            for part in self._parts:
                for name in part.network.plan.queries:
                    part.writers[name] = self._opened_writer(part, name, output, screen)
        except BaseException:
            self.abort()
            raise

    def _opened_writer(self, part: _Part, name: str, output: Output, screen: Screen) -> Writer:
        query = self._definitions[name]
        is_stream = part.network.plan.output(name).is_stream
        if name in self._callbacks:
            return CallbackWriter(name, query.tree.schema, query.tree.time, self._callbacks[name])
        if self._live and (query.sink is None or query.sink.format == "memory"):
            self.results[name] = KeptResults(is_stream, self._keep)
            return self.results[name]
        with placed(self._places.get(("query", name.casefold()), NO_SPAN)):
            self._check_alone(query)
            return open_sink(query, query.tree.schema, is_stream, query.tree.time, output, screen)

    def _check_alone(self, query: QueryDef) -> None:
        """Raise if another query writes to the same path: of two results, one would be lost."""
        for other in self._definitions.values():
            if other is query:
                return
            if query.sink and other.sink and _path(query.sink.options) == _path(other.sink.options) is not None:
                raise fail(
                    Code.CANNOT_WRITE,
                    f"the queries '{other.name}' and '{query.name}' both write to '{_path(query.sink.options)}'",
                    hint="give each a path of its own",
                )

    # Working

    def begin(self) -> None:
        """Read what can be read before rows are pushed."""
        self.drain()

    def process_available(self) -> None:
        """Do nothing: rows are processed when they are pushed."""

    def check(self) -> None:
        """Do nothing: what fails fails in the thread that does the work."""

    def close_instants(self) -> None:
        """Do nothing: the last instants are closed by `finish`."""

    def run_to_the_end(self) -> None:
        """Read all sources to their ends; there are none without an end here."""
        self.drain()

    def _check_files_end(self) -> None:
        if self._catalog.settings.files == "follow":
            raise fail(
                Code.NOT_AVAILABLE,
                "the local engine reads files to their ends, and does not follow folders",
                hint="SET files = drain; cql run follows them, on either engine",
            )

    def drain(self) -> None:
        """Read all bounded sources to their ends."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Read all bounded sources to their ends, with a pause after each chunk; not to go on is to stop early."""
        with self._reported():
            with self._lock:
                for feed in self._feeds.values():
                    if feed.table.time is None and not feed.has_ended:
                        feed.load()
            for part in self._parts:
                yield from self._steps(part)

    def _steps(self, part: _Part) -> Iterator[None]:
        bounded = [feed for feed in part.feeds if feed.rows is not None and not feed.has_ended]
        with self._lock:
            if part.network.has_work:
                part.advance()
        while bounded:
            with self._lock:
                min(bounded, key=lambda feed: feed.until).pull()
                part.advance()
            yield
            bounded = [feed for feed in bounded if not feed.has_ended]

    def push(self, table: str, rows: SourceRows) -> None:
        """Take rows of a table that has no source."""
        with self._reported(), self._lock:
            self._pushed(table).push(rows)
            self._advance()
            if self._watch is not None:
                self._watch.note(self._left_out())

    def heartbeat(self, table: str, instant: int) -> None:
        """Learn that nothing before an instant comes from a table any more."""
        with self._reported(), self._lock:
            self._pushed(table).heartbeat(instant)
            self._advance()

    def shed(self, query: str, fraction: float) -> None:
        """Lose a share of what a query can lose, from the next unit on of which nothing has been read."""
        part = next((part for part in self._parts if query in part.network.plan.queries), None)
        if part is None:
            raise fail(Code.BAD_DEFINITION, f"the query '{query}' does not run", hint="start() runs all queries")
        with self._lock:
            if not part.network.shed(query, fraction):
                raise cannot_shed(query)

    def finish(self) -> None:
        """End all sources, close the last instants and complete the results."""
        try:
            with self._reported(), self._lock:
                for feed in self._feeds.values():
                    if not feed.has_ended:
                        feed.end()
                self._advance()
            for writer in self._writers():
                writer.close()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Give the results up."""
        for writer in self._writers():
            with suppress(OSError):
                writer.abort()

    def _advance(self) -> None:
        for part in self._parts:
            part.advance()

    def _writers(self) -> Iterator[Writer]:
        return (writer for part in self._parts for writer in part.writers.values())

    def _pushed(self, table: str) -> Feed:
        feed = self._feeds.get(table.casefold())
        if feed is None:
            known = self._catalog.table(table)
            hint = "register the query before the engine starts"
            raise fail(Code.BAD_DEFINITION, f"no running query reads '{known.name}'", hint=hint)
        if feed.rows is not None:
            raise fail(Code.BAD_DEFINITION, f"'{feed.table.name}' has rows of its own; nothing can be pushed into it")
        return feed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abort()

    # Telling

    def has(self, query: str) -> bool:
        """Tell whether a query takes part."""
        return query in self._definitions

    @property
    def waits_for_rows(self) -> bool:
        """Tell whether the rows of a table have to be pushed."""
        return any(feed.rows is None and not feed.has_ended for feed in self._feeds.values())

    def progress(self) -> dict[str, Progress]:
        """Return how far the queries on each clock are."""
        with self._lock:
            return {part.name: part.counters.progress() for part in self._parts}

    def statistics(self, query: str | None = None) -> list[Figures]:
        """Return the figures of all parts of the network, or of those that serve one query."""
        with self._lock:
            return self._statistics(query)

    def _statistics(self, query: str | None) -> list[Figures]:
        found: list[Figures] = []
        for part in self._parts:
            plan = part.network.plan
            if query is None:
                found += part.counters.figures()
            elif query.casefold() in map(str.casefold, plan.queries):
                ids = plan.part(query).ids
                found += of_parts(part.counters.figures(), ids)
        return found

    def shedding(self) -> list[Loss]:
        """Return what the queries that shed have lost."""
        with self._lock:
            return [loss for part in self._parts for loss in part.losses(self._definitions.values())]

    def decisions(self) -> list[Decision]:
        """Return what was decided: nothing, in a process that is never overloaded."""
        return []

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out, and for each query whose windows did not end."""
        lost = [line for table, counts in self._left_out().items() for line in losses_text(table, *counts)]
        unended = [found for part in self._parts for found in part.counters.unended.items()]
        return lost + [line for query, rows in sorted(unended) for line in unended_text(query, rows)]

    def _left_out(self) -> dict[str, tuple[int, int]]:
        """Return how many late and bad rows of each table were left out."""
        found: dict[str, tuple[int, int]] = {}
        for progress in (part.counters.progress() for part in self._parts):
            for table, late in progress.late.items():
                before = found.get(table, (0, 0))
                found[table] = max(before[0], late), max(before[1], progress.skipped[table])
        return found

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn a failure of the user's code, or too much to keep, into an error that names the queries; place that of
        a log."""
        try:
            yield
        except RemovalFailed as failure:
            raise failure.placed(self._places) from None
        except UserFunctionFailed as failure:
            users = callers(list(self._definitions.values()))
            plans = (part.network.plan for part in self._parts)
            plan = next((plan for plan in plans if failure.operator in plan.by_id), None)
            raise explained(failure, users, plan, self._places) from failure.cause
        except MemoryExceeded as failure:
            plan = next(part.network.plan for part in self._parts if failure.operator in part.network.plan.by_id)
            raise too_much_memory(failure, plan, self._places) from None


def by_clock(queries: Iterable[QueryPlan]) -> list[list[QueryPlan]]:
    """Return the queries that can share a network: those whose sources are on one clock, or on none."""
    found: dict[TimeDomain | None, list[QueryPlan]] = {}
    for query in queries:
        times = (each.time for each in query.sources)
        found.setdefault(next((time for time in times if time is not None), None), []).append(query)
    return list(found.values())


def statistics_listing(figures: Iterable[Figures]) -> Listing:
    """Return statistics as SHOW STATS shows them; a figure that has no meaning for a part is left empty."""
    columns = {
        "part": "name",
        "kind": "kind",
        "what": "what",
        "batches": "batches",
        "in": "elements_in",
        "out": "elements_out",
        "seconds": "seconds",
        "candidates": "candidates",
        "held": "elements_now",
        "most held": "elements_peak",
        "bytes": "bytes_now",
        "most bytes": "bytes_peak",
        "late": "late",
        "skipped": "skipped",
    }
    rows = tuple(tuple(_figure(getattr(each, name)) for name in columns.values()) for each in figures)
    return Listing(tuple(columns), rows)


def _figure(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _path(options: Mapping[str, str]) -> str | None:
    return next((value for key, value in options.items() if key.casefold() == "path"), None)
