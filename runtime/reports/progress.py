"""How far a run is, and how it got there: the figures that the REPL, the API and plots show, of either engine.

A run works in micro-batches; in this process, one is a round of the executor. Of each, one line is remembered, up to
`MOST_BATCHES`; everything else is what holds now. This module knows nothing of how a run works.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cql.intervals import TimeDomain
from runtime.columns.batch import FOREVER
from runtime.engine.statistics import Figures

MOST_BATCHES = 1_000
"""Of how many micro-batches the course is remembered."""

RECENT = 5
"""Over how many micro-batches rates are taken."""

PART_NAMES = {TimeDomain.INTEGER: "integer", TimeDomain.TIMESTAMP: "timestamp", None: "timeless"}
"""The parts of a run, by their clocks."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-batch did, and how things were after it.

    `part` is the clock of its queries (integer, timestamp, timeless), or native/NAME for a query that Spark runs alone.
    """

    part: str
    id: int
    at: float
    """When it was done, in seconds since 1970."""
    seconds: float
    """How long it took."""
    rows_in: int
    rows_out: int
    late: int
    """Rows that it left out because they came too late."""
    skipped: int
    """Rows that it left out because they were bad."""
    tables: Mapping[str, int]
    """Its rows, by table."""
    queries: Mapping[str, int]
    """Its results, by query."""
    state_bytes: int
    lag: float | None
    """By how many seconds of the streams' time complete results were behind the newest row."""
    behind_now: float | None
    """In TIMESTAMP time, by how many seconds complete results were behind the clock on the wall."""


@dataclass(frozen=True)
class Progress:
    """How far the queries on one clock are. Rates are those of the last micro-batches; instants are ticks."""

    time: TimeDomain | None = None
    batch: int = -1
    """The last micro-batch."""
    rows_in: dict[str, int] = field(default_factory=dict)
    """By table, since the network was started."""
    rows_out: dict[str, int] = field(default_factory=dict)
    """By query."""
    late: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    newest: int | None = None
    """The latest instant that was read."""
    closed: int | None = None
    """The instant before which all results are complete."""
    instants: dict[str, int] = field(default_factory=dict)
    """The last instant that is complete, by query."""
    figures: tuple[Figures, ...] = ()
    """What each source, operator, queue, synopsis and store has done and holds, as `engine.stats()` has it."""
    course: tuple[Batch, ...] = ()
    """The last micro-batches, oldest first."""

    def spans(self, first: int | None) -> dict[str, tuple[int, int]]:
        """Return the first instant of each query, given that of all sources, and the last one that is complete."""
        if first is None:
            return {}
        newest = FOREVER if self.newest is None else self.newest
        lasts = ((query, min(last, newest)) for query, last in self.instants.items())
        return {query: (first, last) for query, last in lasts if last >= first}

    @property
    def operators(self) -> tuple[Figures, ...]:
        """What each operator has done: elements in and out, selectivity, seconds, and the bytes that it holds."""
        return tuple(each for each in self.figures if each.kind == "operator")

    @property
    def stores(self) -> tuple[Figures, ...]:
        """What each store holds."""
        return tuple(each for each in self.figures if each.kind == "store")

    @property
    def state_bytes(self) -> int:
        """What operators and stores hold."""
        return sum(each.bytes_now or 0 for each in (*self.operators, *self.stores))

    @property
    def batch_seconds(self) -> float:
        """How long the last micro-batch took."""
        return self.course[-1].seconds if self.course else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows read per second of work in the last micro-batches."""
        recent = self.course[-RECENT:]
        seconds = sum(batch.seconds for batch in recent)
        return sum(batch.rows_in for batch in recent) / seconds if seconds else 0.0

    @property
    def lag(self) -> float | None:
        """By how many seconds of the streams' time complete results are behind the newest row."""
        return lag_of(self.newest, self.closed, self.time)

    @property
    def behind_now(self) -> float | None:
        """In TIMESTAMP time, by how many seconds complete results are behind the clock on the wall."""
        return behind_now(self.closed, self.time)


def lag_of(newest: int | None, closed: int | None, clock: TimeDomain | None) -> float | None:
    """Return how many seconds there are from an instant back to another one, which is complete.

    >>> lag_of(20, 15, TimeDomain.INTEGER), lag_of(20, 21, TimeDomain.INTEGER), lag_of(20, None, TimeDomain.INTEGER)
    (5.0, 0.0, None)
    """
    if newest is None or closed is None or clock is None:
        return None
    return max(newest - closed, 0) * clock.microseconds_per_tick / 1e6


def behind_now(closed: int | None, clock: TimeDomain | None) -> float | None:
    """Return how many seconds ago an instant was, if it is one of the clock on the wall."""
    if closed is None or clock is not TimeDomain.TIMESTAMP:
        return None
    return time.time() - closed / 1e6


class BatchHistory:
    """The last micro-batches of a part of a run."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._batches: deque[Batch] = deque(maxlen=MOST_BATCHES)
        self._lost = (0, 0)

    def note(
        self,
        batch_id: int,
        seconds: float,
        tables: Mapping[str, int],
        queries: Mapping[str, int],
        lost: tuple[int, int],
        state_bytes: int,
        newest: int | None,
        closed: int | None,
        clock: TimeDomain | None,
    ) -> None:
        """Remember a micro-batch; `lost` is how many rows came too late or were bad up to now."""
        late, skipped = (max(now - before, 0) for now, before in zip(lost, self._lost, strict=True))
        self._lost = lost
        self._batches.append(
            Batch(
                part=self._part,
                id=batch_id,
                at=time.time(),
                seconds=seconds,
                rows_in=sum(tables.values()),
                rows_out=sum(queries.values()),
                late=late,
                skipped=skipped,
                tables={table: count for table, count in tables.items() if count},
                queries={query: count for query, count in queries.items() if count},
                state_bytes=state_bytes,
                lag=lag_of(newest, closed, clock),
                behind_now=behind_now(closed, clock),
            )
        )

    @property
    def batches(self) -> tuple[Batch, ...]:
        """What is remembered, oldest first."""
        return tuple(self._batches)


def in_order(courses: Sequence[Sequence[Batch]]) -> list[Batch]:
    """Return the micro-batches of several parts in the order in which they were done."""
    return sorted((batch for course in courses for batch in course), key=lambda batch: batch.at)
