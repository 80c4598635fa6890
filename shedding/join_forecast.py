"""Foresight: how much joins that choose will look at, and which rows they will see, from what was read and lost before.

Rows find more to look at the fuller windows are, and how full these will be follows from the rows of the micro-batches
before and from those that wait. Of rows that are lost before joins see them, both are known, too. This module knows
nothing of Spark: it is told of micro-batches and says what to expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from planner import operators as op
from shedding.join_deciders import ByAge, evenly
from shedding.selective import Floats, Ints

REMEMBERED_BATCHES = 1000
"""Of how many micro-batches it is known how many rows they had, to tell how full windows are."""

LEAST_LOOKED_AT = 0.05
"""Rows of windows of time are lost, too, rather than looking at less than this share of what could be looked at.

What is left to look at then are the ages that match best, where all looks are worth about the same: with fewer rows, as
many looks find as much, and rows cost time as well."""

FEWEST_ROWS = 0.01
"""Which share of rows is not lost, however little time there is: otherwise nothing would be learned any more."""

MOMENTS = 4
"""At how many moments of a micro-batch it is foreseen how old the rows of windows will be."""


@dataclass
class FrontDrop:
    """Where rows are lost before a join of windows of time looks for any: a drop operator, and what it has passed."""

    drop: str
    schedule: str
    window: int
    """How many ticks the windows of the join are long."""
    _passed: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    """The newest instants of micro-batches, and which share of their rows was passed."""

    def note(self, share: float, newest: int) -> None:
        """Learn which share of the rows of a micro-batch was passed."""
        self._passed.append((newest, share))

    @property
    def passed(self) -> dict[int, float]:
        """Which share of the rows of micro-batches was passed, by their newest instants."""
        return dict(self._passed)

    @property
    def kept(self) -> tuple[float, float]:
        """The share of rows that was passed in the last micro-batch, and in those of a window."""
        if not self._passed:
            return 1.0, 1.0
        newest, last = self._passed[-1]
        recent = [share for at, share in self._passed if at > newest - self.window]
        return last, sum(recent) / len(recent) if recent else last

    def kept_pairs(self, ages: Ints) -> Floats:
        """Return which share of pairs that the last micro-batch completed came, by how far their rows are apart."""
        if not self._passed:
            return np.ones(len(ages))
        instants, shares = (np.array(each) for each in zip(*self._passed, strict=True))
        middle = (instants[-2:].min() + instants[-1]) // 2
        return np.asarray(shares[-1] * shares[np.searchsorted(instants[:-1], middle - ages)], float)

    def split(self, fraction: float, passing: float) -> tuple[float, float]:
        """Return the fraction of rows to lose, and of looks to leave out, to save a fraction of the time for looks.

        `passing` is what it takes to let all rows come, beside all looks of those that came last; what is saved may be
        a part of that, too. In the long run, a share k of rows takes k of that, and k * k of what looks take, since
        windows have as many rows fewer. With `LEAST_LOOKED_AT` of the looks, that gives the rows; then as many looks as
        there is time for now. As long as windows have more rows, of before, that is a smaller share.
        """
        last, before = self.kept
        left = max(passing + 1 - fraction, 0.0)
        looks = LEAST_LOOKED_AT / max(last * before, FEWEST_ROWS * FEWEST_ROWS)
        rows = 2 * left / (passing + sqrt(passing * passing + 4 * looks * left)) if left else 0.0
        rows = min(max(rows, FEWEST_ROWS), 1.0)
        looked = (left - passing * rows) * last / rows
        return 1 - rows, 1 - min(max(looked, 0.0), 1.0)


class Looks:
    """How much joins that choose look at for each row: more, the more rows are in their windows.

    What the next rows will look at follows from what those before did, and from how full windows will be.
    """

    def __init__(self, joins: Sequence[op.PartialJoin]) -> None:
        self._units = {join.schedule: join.usual_looks for join in joins}
        self._windows = {join.schedule: _reach(join) for join in joins}
        """How many ticks the windows of joins reach back, by their schedules."""
        self._for_each: dict[str, float] = {}
        """How many rows are looked at for a row, for each row in the window."""
        self._read: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """The newest instants of micro-batches, and how many rows they had."""

    def note(
        self, join: str, counted: Sequence[Mapping[str, Any]], rows: int, newest: int
    ) -> tuple[tuple[int, int], float]:
        """Learn from a micro-batch of so many rows; return the work of a join in it and what was done, and its unit."""
        if not self._read or self._read[-1][0] != newest:
            self._read.append((newest, rows))
        total, done = (sum(each["work"][at] for each in counted) for at in (0, 1))
        self._for_each[join] = total / rows / self._fullness(join, newest, newest, -rows)
        return (total, done), total / rows / self._units[join]

    def _fullness(self, join: str, first: int, last: int, more: float) -> float:
        """Return how many rows are in the windows of a join between two instants, with some more or fewer at the end.

        Of windows that count rows it is the same at all times.
        """
        window = self._windows[join]
        if not window:
            return 1.0
        counts = [sum(rows for newest, rows in self._read if newest > at - window) for at in (first, last)]
        return max((sum(counts) + more) / 2, 1.0)

    def younger(self, rows: float, ticks: float, passed: Mapping[int, float]) -> ByAge:
        """Return how many others are younger than some ages, for rows that are next and have come within some ticks.

        `passed` is the share of the rows of micro-batches that came to the join, by their newest instants.
        """
        if len(self._read) < 2 or ticks < 1:
            return evenly
        instants = np.array([newest for newest, _ in self._read], float)
        came = [count * passed.get(newest, 1.0) for newest, count in self._read]
        came[0] = 0.0
        now = float(instants[-1])
        ends, totals = np.append(instants, now + ticks), np.cumsum([*came, rows])
        looking = now + ticks * (np.arange(MOMENTS) + 0.5) / MOMENTS

        def count(ages: Ints) -> Floats:
            before = np.interp(looking[:, None] - ages[None, :], ends, totals)
            return np.asarray((np.interp(looking, ends, totals)[:, None] - before).mean(axis=0), float)

        return count

    def work(self, waiting: float, ticks: float) -> float:
        """Return what a row takes of those that wait and have come within some ticks; 1 without such joins."""
        if not self._for_each:
            return 1.0
        now, _ = self._read[-1]
        until = now + round(ticks)
        looks = [
            each * self._fullness(join, now, until, waiting) / self._units[join]
            for join, each in self._for_each.items()
        ]
        return sum(looks) / len(looks)


def _reach(join: op.PartialJoin) -> int:
    """Return how many ticks back a join looks; those that count rows look at as many at all times."""
    return 0 if join.counts_rows else max(join.windows)
