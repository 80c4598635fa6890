"""The clock: what is known of the instants of sources, and which instants a query is about.

A query runs from the first to the last instant of its own inputs; a static relation is there all that time. Where
windows are closed at the end, time passes after the last instant until those that have begun have ended, and no longer.
An input that has ended, or is idle, no longer holds up the others, and no time passes after the last instant of all.
Sources that some query reads together are a group; what happens in one group does not hold up another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner import operators as op
from planner.plan import Plan
from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch, Ints
from runtime.time.unended_windows import Unended, end_of_windows


@dataclass(slots=True)
class SourceTime:
    """What is known of one source; those that wait for each other have the same `group`."""

    is_timed: bool
    begins: tuple[str, ...] = ()
    """For a static relation, the sources whose first element brings it."""
    until: int = BEGINNING
    first: int | None = None
    last: int | None = None
    has_ended: bool = False
    is_resumed: bool = False
    """Whether it goes on after its end, and nothing has come since: its queries are still at their last instants."""
    is_idle: bool = False
    group: int = 0
    is_watched: bool = False
    recent: list[Ints] = field(default_factory=list)
    unended: Unended = field(default_factory=Unended)

    def note(self, batch: ChangeBatch) -> None:
        """Take in the instants of a batch."""
        self.until = batch.until
        if not len(batch):
            return
        lowest, highest = int(batch.start[0]), int(batch.start[-1])
        self.first = lowest if self.first is None else self.first
        self.last = highest
        if self.is_watched:
            self.recent.append(np.unique(batch.start))
        self.unended.note(self.unended.counted(batch.start))


@dataclass(frozen=True, slots=True)
class QueryTime:
    """What the last instant of a query depends on: its sources, and the slides of its windows.

    `sliding` names the tables below windows that slide, with their sources and these slides.
    """

    sources: Sequence[str]
    slides: Sequence[int] = ()
    sliding: Sequence[tuple[str, str, int]] = ()


def clock_of(plan: Plan, closes_windows: bool = False) -> SourceClock:
    """Return the clock of a plan's sources, watching those whose every element makes an Rstream speak."""
    watched = [source for each in plan.operators for source in each.watches]
    groups = _groups([*sources_of_queries(plan).values(), *_watched_together(plan)])
    queries = {each.query: _time_of(plan, each) for each in plan.outputs}
    slides: dict[str, set[int]] = {each.id: set() for each in plan.sources}
    for query in queries.values():
        for _, source, slide in query.sliding:
            slides[source].add(slide)
    sources = {
        each.id: SourceTime(
            each.time is not None, each.begins, group=groups[each.id], unended=Unended(sorted(slides[each.id]))
        )
        for each in plan.sources
    }
    return SourceClock(sources, watched, queries, closes_windows)


def _time_of(plan: Plan, output: op.Output) -> QueryTime:
    sliding = {
        (source.table, source.id, slide): None
        for window in plan.below(output)
        if (slide := getattr(window.window_spec, "slide", None)) is not None
        for source in plan.sources_below(window)
        if source.time is not None
    }
    return QueryTime([each.id for each in plan.sources_below(output)], output.slides, list(sliding))


def sources_of_queries(plan: Plan) -> dict[str, list[str]]:
    """Return the sources that each query of a plan is about."""
    return {each.query: [source.id for source in plan.sources_below(each)] for each in plan.outputs}


def _watched_together(plan: Plan) -> Iterator[list[str]]:
    """Yield the sources that an operator goes by, whether or not it reads them, with those that it reads."""
    for each in plan.operators:
        if each.goes_by or not each.inputs:
            yield [*each.goes_by, *(source.id for source in plan.sources_below(each))]


def _groups(together: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return a number for each name, the same for those that are connected by being together.

    >>> _groups([["a", "b"], ["c"], ["b", "d"]])
    {'a': 0, 'b': 0, 'c': 1, 'd': 0}
    """
    found: list[list[str]] = []
    for names in together:
        touched = [group for group in found if not set(group).isdisjoint(names)]
        found = [group for group in found if group not in touched]
        found.append(sorted({*names, *(name for group in touched for name in group)}))
    ordered = sorted(found)
    return dict(sorted((name, at) for at, group in enumerate(ordered) for name in group))


class SourceClock:
    """The instants of all sources of a network."""

    def __init__(
        self,
        sources: Mapping[str, SourceTime],
        watched: Iterable[str] = (),
        queries: Mapping[str, QueryTime] | None = None,
        closes_windows: bool = False,
    ) -> None:
        self.sources = dict(sources)
        self.queries = dict(queries or {})
        self._closes_windows = closes_windows
        self._slides: dict[int, set[int]] = {}
        """The slides of windows of the queries of each group."""
        for query in self.queries.values():
            for name in query.sources:
                self._slides.setdefault(self.sources[name].group, set()).update(query.slides)
        for name in watched:
            self.sources[name].is_watched = True

    @property
    def timed(self) -> list[SourceTime]:
        return [each for each in self.sources.values() if each.is_timed]

    @property
    def earliest(self) -> int:
        """The first instant that any source has had so far; FOREVER if there was none, 0 without timed sources."""
        firsts = (each.first for each in self.timed if each.first is not None)
        return min(firsts, default=FOREVER if self.timed else 0)

    def beginning(self, sources: Iterable[str]) -> int | None:
        """Return the first instant of some sources, as soon as none of them can bring an earlier one; 0 of none."""
        timed = [self.sources[name] for name in sources]
        if not timed:
            return 0
        first = min((each.first for each in timed if each.first is not None), default=None)
        if first is None:
            return None
        known = all(each.first is not None or each.has_ended or each.until > first for each in timed)
        return first if known else None

    def passed(self, source: str) -> int:
        """Return the heartbeat of a source that does not hold up the others: ended, idle or a static relation."""
        group = self.sources[source].group
        own = [each for each in self.timed if each.group == group]
        running = [each.until for each in own if not (each.has_ended or each.is_idle)]
        if running:
            return min(running)
        if not all(each.has_ended for each in own):
            return max(each.until for each in own)
        lasts = [each.last for each in own if each.last is not None]
        return self._final(lasts, self._slides.get(group, ())) + 1 if lasts else BEGINNING + 1 if own else 1

    def _final(self, lasts: Iterable[int], slides: Iterable[int]) -> int:
        """Return the last instant that there is, given those of sources that have ended."""
        return end_of_windows(max(lasts), slides if self._closes_windows else ())

    def first_instant(self, source: str) -> int | None:
        """Return the first instant of a source; of a static relation, the one that it comes with."""
        found = self.sources[source]
        return found.first if found.is_timed else self.beginning(found.begins)

    def instants(self, source: str, since: int, until: int) -> Ints:
        """Return the different instants of a watched source in a stretch of time, sorted."""
        recent = self.sources[source].recent
        if not recent:
            return np.empty(0, np.int64)
        instants = np.unique(np.concatenate(recent))
        return instants[np.searchsorted(instants, since) : np.searchsorted(instants, until)]

    def forget_before(self, instant: int) -> None:
        """Drop instants that nobody will ask for any more."""
        for source in self.sources.values():
            if source.recent:
                source.recent = [each for each in source.recent if each[-1] >= instant]

    def position(self) -> dict[str, list[Any]]:
        """Return what is known of each source, without the instants that are remembered."""
        return {
            name: [
                each.until,
                each.first,
                each.last,
                each.has_ended,
                each.is_resumed,
                each.is_idle,
                each.unended.position,
            ]
            for name, each in self.sources.items()
        }

    def resume(self, position: Mapping[str, Sequence[Any]]) -> None:
        """Go on from what was known before of the sources that are still there."""
        for name in self.sources.keys() & position.keys():
            source = self.sources[name]
            source.until, source.first, source.last, *flags, unended = position[name]
            source.has_ended, source.is_resumed, source.is_idle = flags
            source.unended.note(unended)

    def last_instant(self, query: str) -> int:
        """Return the last instant of a query, FOREVER while that is not known."""
        own = [self.sources[name] for name in self.queries[query].sources if self.sources[name].is_timed]
        if not all(each.has_ended or each.is_resumed for each in own):
            return FOREVER
        lasts = [each.last for each in own if each.last is not None]
        return self._final(lasts, self.queries[query].slides) if lasts else BEGINNING if own else 0

    def unended(self) -> dict[str, dict[str, int]]:
        """Return how many rows of each table are in windows of a query that did not end, for queries that have."""
        found: dict[str, dict[str, int]] = {}
        for query, time in self.queries.items():
            last = self.last_instant(query)
            if last == FOREVER:
                continue
            rows: dict[str, int] = {}
            for table, source, slide in time.sliding:
                rows[table] = max(rows.get(table, 0), self.sources[source].unended.after(slide, last))
            found[query] = rows
        return found
