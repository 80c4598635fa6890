"""Runs queries in this process: from the sources of their tables through executors to their sinks.

Every table is read once, and fed to all that read it; the one that is furthest behind in time is read next, so that
no more of the others waits in memory than a chunk. Instants of different clocks cannot be compared, so queries on
integer time, on TIMESTAMP time and on no clock at all have executors of their own. A run ends wholly or not at all:
results appear when everything has been read and computed, and one that fails leaves nothing behind. While one thread
works, others may ask how far it is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType, TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.query import MOST_KEPT
from cql.session import Listing
from cql.source import NO_SPAN, Span
from planner import operators as op
from planner.plan import QueryPlan, combine
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, ChangeBatch, concat_columns
from runtime.connectors import Rows, SourceReader, Writer, open_sink, open_source
from runtime.connectors.keeping import Kept
from runtime.connectors.python_data import Callback, CallbackWriter
from runtime.connectors.sinks import Output
from runtime.connectors.tables import Screen
from runtime.engine.executor import Executor
from runtime.engine.statistics import Figures
from runtime.local.inputs import InputManager
from runtime.operators.memory_limited_joins import pairs_of
from runtime.reports.loss_warnings import LossWatch, Warn
from runtime.reports.losses import Loss, Pairs, cannot_shed, losses_of
from runtime.reports.progress import PART_NAMES, Course, Progress
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
from shedding.insert_drops import choices_of_query, compile_all, units_of_query

Table = StreamDef | RelationDef
NO_DATA: Mapping[str, Sequence[Rows]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Feed:
    """The rows of one table on their way to the sources of plans that stand for it."""

    table: Table
    rows: Iterator[Rows] | None
    """Where they come from; None if they are pushed from outside."""
    place: Span = NO_SPAN
    targets: list[tuple[Executor, str]] = field(default_factory=list)
    has_ended: bool = False
    read: int = 0
    newest: int | None = None
    """How many rows came, and the latest of their instants."""
    _late: int = 0
    _skipped: int = 0
    _manager: InputManager = field(init=False)

    def __post_init__(self) -> None:
        delay = self.table.delay if isinstance(self.table, StreamDef) else 0
        self._manager = InputManager([arrow_type(column.type) for column in self.table.columns], delay)

    @property
    def until(self) -> int:
        """The instant before which everything has been passed on."""
        return self._manager.until

    @property
    def late(self) -> int:
        return self._late

    @property
    def skipped(self) -> int:
        return self._skipped

    def load(self) -> None:
        """Pass on all rows of a static relation."""
        with placed(self.place):
            parts = [each.columns for each in self.rows or ()]
        types = [arrow_type(column.type) for column in self.table.columns]
        columns = concat_columns(parts) if parts else tuple(pa.nulls(0, each) for each in types)
        for executor, source in self.targets:
            executor.push_static(source, columns)
        self.read = len(columns[0]) if columns else 0
        self.count()
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

    def push(self, rows: Rows) -> None:
        """Pass on rows, in the order of time."""
        if len(rows.instants):
            newest = int(rows.instants.max())
            self.newest = newest if self.newest is None else max(self.newest, newest)
            self.read += len(rows.instants)
        self._pass_on(self._manager.add(rows))
        self.count()

    def heartbeat(self, instant: int) -> None:
        """Pass on that nothing comes before an instant any more."""
        self._pass_on(self._manager.heartbeat(instant))

    def end(self) -> None:
        """Pass on what was held back, and that there is no more."""
        self._pass_on(self._manager.finish())
        self.count()
        self.has_ended = True
        for executor, source in self.targets:
            executor.end(source)

    def _pass_on(self, batches: Iterable[ChangeBatch]) -> None:
        for batch in batches:
            for executor, source in self.targets:
                executor.push(source, batch)

    def count(self) -> None:
        """Count what was left out since the last time."""
        late = self._manager.late - self._late
        unread = self.rows.skipped if isinstance(self.rows, SourceReader) else 0
        ignored = max((executor.ignored().get(source, 0) for executor, source in self.targets), default=0)
        skipped = unread + ignored - self._skipped
        for executor, source in self.targets:
            executor.statistics.sources[source].record(0, late=late, skipped=skipped)
        self._late += late
        self._skipped += skipped


@dataclass(slots=True)
class _Part:
    """The queries on one clock: their executor, and where their results go."""

    executor: Executor
    feeds: list[Feed] = field(default_factory=list)
    writers: dict[str, Writer] = field(default_factory=dict)
    _rounds: int = 0
    _made: dict[str, int] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)
    _course: Course = field(init=False)
    time: TimeDomain | None = field(init=False)

    def __post_init__(self) -> None:
        times = (source.time for source in self.executor.plan.sources)
        self.time = next((time for time in times if time is not None), None)
        self._course = Course(PART_NAMES[self.time])

    def advance(self) -> None:
        """Compute everything that can be computed, and write what is complete."""
        started = perf_counter()
        made = dict.fromkeys(self.writers, 0)
        for _ in self.executor.steps():
            self._write(made)
        for feed in self.feeds:
            feed.count()
        self._write(made)
        self._note(made, perf_counter() - started)

    def _write(self, made: dict[str, int]) -> None:
        """Write what is complete, and count it."""
        for query, writer in self.writers.items():
            batch = self.executor.take(query)
            writer.write(batch)
            made[query] += len(batch)

    def _note(self, made: Mapping[str, int], seconds: float) -> None:
        """Remember a round in which something happened."""
        for query, count in made.items():
            self._made[query] = self._made.get(query, 0) + count
        taken = {feed.table.name: feed.read for feed in self.feeds}
        tables = {table: count - self._taken.get(table, 0) for table, count in taken.items()}
        if not any(tables.values()) and not any(made.values()):
            return
        self._taken = taken
        statistics = self.executor.statistics
        held = sum(size.nbytes or 0 for size in (*statistics.state.values(), *statistics.stores.values()))
        lost = sum(feed.late for feed in self.feeds), sum(feed.skipped for feed in self.feeds)
        self._course.note(
            self._rounds, seconds, tables, made, lost, held, self._newest(), self._closed_before(), self.time
        )
        self._rounds += 1

    def progress(self) -> Progress:
        """Return how far the queries are."""
        complete = self.executor.complete_until()
        return Progress(
            time=self.time,
            batch=self._rounds - 1,
            rows_in={feed.table.name: feed.read for feed in self.feeds},
            rows_out=dict(self._made),
            late={feed.table.name: feed.late for feed in self.feeds},
            skipped={feed.table.name: feed.skipped for feed in self.feeds},
            newest=self._newest(),
            closed=self._closed_before(),
            instants={query: until - 1 for query, until in complete.items() if until > BEGINNING},
            figures=self.executor.statistics_now().figures,
            course=self._course.batches,
        )

    def losses(self, queries: Iterable[QueryDef]) -> list[Loss]:
        """Return what those of some queries that are here have lost."""
        executor = self.executor
        work = executor.statistics.operators
        complete, clock = executor.complete_until(), executor.clock
        spans: dict[str, tuple[int, int]] = {}
        for name, query in clock.queries.items():
            firsts = [first for source in query.sources if (first := clock.sources[source].first) is not None]
            last = min(complete[name] - 1, clock.last_instant(name))
            if firsts and last >= min(firsts):
                spans[name] = min(firsts), last
        own = [query for query in queries if query.name in executor.plan.queries]
        pairs = {name: Pairs(*counts) for name, counts in pairs_of(executor.operators).items()}

        def passing(operator: str) -> tuple[int, int]:
            return work[operator].elements_in, work[operator].elements_out

        return losses_of(
            executor.plan, own, executor.schedules, executor.choices, passing, spans, pairs, lambda _: "by hand"
        )

    def _newest(self) -> int | None:
        return max((feed.newest for feed in self.feeds if feed.newest is not None), default=None)

    def _closed_before(self) -> int | None:
        closed = min(self.executor.complete_until().values(), default=BEGINNING)
        return closed if closed > BEGINNING else None


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
        data: Mapping[str, Sequence[Rows]] = NO_DATA,
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
        self.results: dict[str, Kept] = {}
        self._catalog = catalog
        self._definitions = {query.name: query for query in queries}
        self._data = data
        self._live = live
        self._places = places
        self._check_files_end()
        compiled = self._compiled()
        functions = {each.name: each.code for each in (*catalog.functions.values(), *catalog.aggregates.values())}
        policy = catalog.settings.scheduler
        plans = [combine(part) for part in by_clock(compiled)]
        settings = catalog.settings
        closes, most, on_bad_row = settings.end == "close", settings.memory_bytes, settings.on_bad_row
        self._parts = [
            _Part(
                Executor(plan, functions, policy=policy, closes_windows=closes, max_bytes=most, on_bad_row=on_bad_row)
            )
            for plan in plans
        ]
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
            for operator in part.executor.plan.operators:
                if isinstance(operator, op.Source):
                    key = operator.table.casefold()
                    if key not in feeds:
                        feeds[key] = self._opened_feed(key)
                    feeds[key].targets.append((part.executor, operator.id))
                    if feeds[key] not in part.feeds:
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
                for name in part.executor.plan.queries:
                    part.writers[name] = self._opened_writer(part, name, output, screen)
        except BaseException:
            self.abort()
            raise

    def _opened_writer(self, part: _Part, name: str, output: Output, screen: Screen) -> Writer:
        query = self._definitions[name]
        is_stream = part.executor.plan.output(name).is_stream
        if name in self._callbacks:
            return CallbackWriter(name, query.tree.schema, query.tree.time, self._callbacks[name])
        if self._live and (query.sink is None or query.sink.format == "memory"):
            self.results[name] = Kept(is_stream, self._keep)
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
                hint="SET files = drain, or run on Spark: --engine spark",
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
            part.advance()
        while bounded:
            with self._lock:
                min(bounded, key=lambda feed: feed.until).pull()
                part.advance()
            yield
            bounded = [feed for feed in bounded if not feed.has_ended]

    def push(self, table: str, rows: Rows) -> None:
        """Take rows of a table that has no source."""
        with self._reported(), self._lock:
            self._pushed(table).push(rows)
            self._advance()
            if self._watch is not None:
                self._watch.note({feed.table.name: (feed.late, feed.skipped) for feed in self._feeds.values()})

    def heartbeat(self, table: str, instant: int) -> None:
        """Learn that nothing before an instant comes from a table any more."""
        with self._reported(), self._lock:
            self._pushed(table).heartbeat(instant)
            self._advance()

    def shed(self, query: str, fraction: float) -> None:
        """Lose a share of what a query can lose, from the next unit on of which nothing has been read."""
        part = next((part for part in self._parts if query in part.executor.plan.queries), None)
        if part is None:
            raise fail(Code.BAD_DEFINITION, f"the query '{query}' does not run", hint="start() runs all queries")
        executor = part.executor
        units, choices = units_of_query(executor.plan, query), choices_of_query(executor.plan, query)
        if units is None and not choices:
            raise cannot_shed(query)
        with self._lock:
            for name in choices:
                executor.choices.decide(name, fraction)
            if units is not None and not choices:
                executor.schedules[units.schedule].decide(fraction)

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
            return {PART_NAMES[part.time]: part.progress() for part in self._parts}

    def statistics(self, query: str | None = None) -> list[Figures]:
        """Return the figures of all parts of the network, or of those that serve one query."""
        with self._lock:
            return self._statistics(query)

    def _statistics(self, query: str | None) -> list[Figures]:
        found: list[Figures] = []
        for part in self._parts:
            plan = part.executor.plan
            if query is None:
                found += part.executor.statistics_now().figures
            elif query.casefold() in map(str.casefold, plan.queries):
                ids = plan.part(query).ids
                found += [each for each in part.executor.statistics_now().figures if each.name in ids]
        return found

    def shedding(self) -> list[Loss]:
        """Return what the queries that shed have lost."""
        with self._lock:
            return [loss for part in self._parts for loss in part.losses(self._definitions.values())]

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out, and for each query whose windows did not end."""
        feeds = self._feeds.values()
        lost = [line for feed in feeds for line in losses_text(feed.table.name, feed.late, feed.skipped)]
        unended = [found for part in self._parts for found in part.executor.clock.unended().items()]
        return lost + [line for query, rows in unended for line in unended_text(query, rows)]

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
            plans = (part.executor.plan for part in self._parts)
            plan = next((plan for plan in plans if failure.operator in plan.by_id), None)
            raise explained(failure, users, plan, self._places) from failure.cause
        except MemoryExceeded as failure:
            plan = next(part.executor.plan for part in self._parts if failure.operator in part.executor.plan.by_id)
            raise too_much_memory(failure, plan, self._places) from None


def by_clock(queries: Iterable[QueryPlan]) -> list[list[QueryPlan]]:
    """Return the queries that can share an executor: those whose sources are on one clock, or on none."""
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


def losses_text(table: str, late: int, skipped: int) -> list[str]:
    """Return a line that says how many rows of a table were left out, and why; none if there were none."""
    reasons = [f"{late} {'row' if late == 1 else 'rows'} came too late"] if late else []
    reasons += [f"{skipped} {'row was' if skipped == 1 else 'rows were'} bad"] if skipped else []
    return [f"{table}: left out: {', '.join(reasons)}"] if reasons else []


def _path(options: Mapping[str, str]) -> str | None:
    return next((value for key, value in options.items() if key.casefold() == "path"), None)
