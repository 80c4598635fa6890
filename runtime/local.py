"""Runs queries in this process: from the sources of their tables through executors to their sinks.

Every table is read once, and fed to all that read it; the one that is furthest behind in time is read next, so that
no more of the others waits in memory than a chunk. Instants of different clocks cannot be compared, so queries on
integer time, on TIMESTAMP time and on no clock at all have executors of their own. A run ends wholly or not at all:
results appear when everything has been read and computed, and one that fails leaves nothing behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Self, TextIO

import pyarrow as pa

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.session import Listing
from cql.source import NO_SPAN, Span
from planner import operators as op
from planner.network import compile_definition
from planner.plan import QueryPlan, combine
from runtime.batch import ChangeBatch, concat_columns
from runtime.executor import Executor
from runtime.failures import NOWHERE, Places, UserFunctionFailed, callers, explained, placed
from runtime.formats import Rows, SourceReader, Writer, open_sink, open_source
from runtime.formats.results import MemoryWriter
from runtime.formats.sinks import Output
from runtime.formats.tables import Screen
from runtime.inputs import InputManager
from runtime.memory import Callback, CallbackWriter
from runtime.statistics import Figures
from runtime.types import arrow_type

Table = StreamDef | RelationDef
NO_DATA: Mapping[str, Sequence[Rows]] = MappingProxyType({})


@dataclass(slots=True)
class Feed:
    """The rows of one table on their way to the sources of plans that stand for it."""

    table: Table
    rows: Iterator[Rows] | None
    """Where they come from; None if they are pushed from outside."""
    place: Span = NO_SPAN
    targets: list[tuple[Executor, str]] = field(default_factory=list)
    has_ended: bool = False
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
        self._count()
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
        self._pass_on(self._manager.add(rows))
        self._count()

    def heartbeat(self, instant: int) -> None:
        """Pass on that nothing comes before an instant any more."""
        self._pass_on(self._manager.heartbeat(instant))

    def end(self) -> None:
        """Pass on what was held back, and that there is no more."""
        self._pass_on(self._manager.finish())
        self._count()
        self.has_ended = True
        for executor, source in self.targets:
            executor.end(source)

    def _pass_on(self, batches: Iterable[ChangeBatch]) -> None:
        for batch in batches:
            for executor, source in self.targets:
                executor.push(source, batch)

    def _count(self) -> None:
        """Count what was left out since the last time."""
        late = self._manager.late - self._late
        skipped = (self.rows.skipped if isinstance(self.rows, SourceReader) else 0) - self._skipped
        for executor, source in self.targets:
            executor.statistics.sources[source].record(0, late=late, skipped=skipped)
        self._late += late
        self._skipped += skipped


@dataclass(slots=True)
class _Part:
    """The queries on one clock: their executor, and where their results go."""

    executor: Executor
    writers: dict[str, Writer] = field(default_factory=dict)

    def advance(self) -> None:
        """Compute everything that can be computed, and write what is complete."""
        self.executor.run()
        for query, writer in self.writers.items():
            writer.write(self.executor.take(query))


class LocalRun:
    """Some queries of a catalog at work; a context that completes the results, or gives them up after a failure.

    `data` holds the rows of tables that have no source. With `live`, the rows of those that have neither are pushed,
    and results that go to no sink are kept in `results`; otherwise these are printed to `out`. `places` says where in
    a script ("table", name) and ("query", name) are defined, for errors. `callbacks` are functions that take results.
    """

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
    ) -> None:
        self._callbacks = callbacks or {}
        self.results: dict[str, MemoryWriter] = {}
        self._catalog = catalog
        self._definitions = {query.name: query for query in queries}
        self._data = data
        self._live = live
        self._places = places
        compiled = [self._compiled(query) for query in self._definitions.values()]
        functions = {each.name: each.code for each in (*catalog.functions.values(), *catalog.aggregates.values())}
        policy = catalog.settings.scheduler
        self._parts = [_Part(Executor(combine(part), functions, policy=policy)) for part in by_clock(compiled)]
        self._feeds = self._opened_feeds()
        self._open_writers(output, Screen(out or sys.stdout))

    # Building

    def _compiled(self, query: QueryDef) -> QueryPlan:
        with placed(self._places.get(("query", query.name.casefold()), NO_SPAN)):
            return compile_definition(query, share=self._catalog.settings.sharing == "on")

    def _opened_feeds(self) -> dict[str, Feed]:
        feeds: dict[str, Feed] = {}
        for part in self._parts:
            for operator in part.executor.plan.operators:
                if isinstance(operator, op.Source):
                    key = operator.table.casefold()
                    if key not in feeds:
                        feeds[key] = self._opened_feed(key)
                    feeds[key].targets.append((part.executor, operator.id))
        return feeds

    def _opened_feed(self, key: str) -> Feed:
        table = self._catalog.table(key)
        assert isinstance(table, StreamDef | RelationDef), "plans read streams and relations"
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
        if name in self._callbacks:
            return CallbackWriter(name, query.tree.schema, query.tree.time, self._callbacks[name])
        if self._live and (query.sink is None or query.sink.format == "memory"):
            self.results[name] = MemoryWriter()
            return self.results[name]
        is_stream = part.executor.plan.output(name).is_stream
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

    def close_instants(self) -> None:
        """Do nothing: the last instants are closed by `finish`."""

    def run_to_the_end(self) -> None:
        """Read all sources to their ends; there are none without an end here."""
        self.drain()

    def drain(self) -> None:
        """Read all bounded sources to their ends."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Read all bounded sources to their ends, with a pause after each chunk; not to go on is to stop early."""
        with self._reported():
            for feed in self._feeds.values():
                if feed.table.time is None and not feed.has_ended:
                    feed.load()
            for part in self._parts:
                yield from self._steps(part)

    def _steps(self, part: _Part) -> Iterator[None]:
        mine = [feed for feed in self._feeds.values() if any(executor is part.executor for executor, _ in feed.targets)]
        bounded = [feed for feed in mine if feed.rows is not None and not feed.has_ended]
        part.advance()
        while bounded:
            min(bounded, key=lambda feed: feed.until).pull()
            part.advance()
            yield
            bounded = [feed for feed in bounded if not feed.has_ended]

    def push(self, table: str, rows: Rows) -> None:
        """Take rows of a table that has no source."""
        with self._reported():
            self._pushed(table).push(rows)
            self._advance()

    def heartbeat(self, table: str, instant: int) -> None:
        """Learn that nothing before an instant comes from a table any more."""
        with self._reported():
            self._pushed(table).heartbeat(instant)
            self._advance()

    def finish(self) -> None:
        """End all sources, close the last instants and complete the results."""
        try:
            with self._reported():
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

    def statistics(self, query: str | None = None) -> list[Figures]:
        """Return the figures of all parts of the network, or of those that serve one query."""
        found: list[Figures] = []
        for part in self._parts:
            plan = part.executor.plan
            if query is None:
                found += part.executor.statistics_now().figures
            elif query.casefold() in map(str.casefold, plan.queries):
                ids = plan.part(query).ids
                found += [each for each in part.executor.statistics_now().figures if each.name in ids]
        return found

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out."""
        feeds = self._feeds.values()
        return [line for feed in feeds for line in losses_text(feed.table.name, feed.late, feed.skipped)]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn a failure of the user's code into an error that names the queries that call it."""
        try:
            yield
        except UserFunctionFailed as failure:
            users = callers(list(self._definitions.values()))
            plans = (part.executor.plan for part in self._parts)
            plan = next((plan for plan in plans if failure.operator in plan.by_id), None)
            raise explained(failure, users, plan, self._places) from failure.cause


def by_clock(queries: Iterable[QueryPlan]) -> list[list[QueryPlan]]:
    """Return the queries that can share an executor: those whose sources are on one clock, or on none."""
    found: dict[TimeDomain | None, list[QueryPlan]] = {}
    for query in queries:
        times = (each.time for each in query.operators if isinstance(each, op.Source))
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
    reasons = [
        f"{count} {'row' if count == 1 else 'rows'} {why}"
        for count, why in ((late, "came too late"), (skipped, "could not be read"))
        if count
    ]
    return [f"{table}: left out: {', '.join(reasons)}"] if reasons else []


def _path(options: Mapping[str, str]) -> str | None:
    return next((value for key, value in options.items() if key.casefold() == "path"), None)
