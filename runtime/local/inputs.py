"""The input manager: brings the rows of a source into the order of time, and says how far they are complete.

After an element at m, with a delay of d, elements at m - d may still come, and earlier ones may not: the heartbeat is
m - d, and what starts before it is released. An element before the heartbeat is late: it is dropped and counted.
Which elements are late depends on the order of the elements only, not on how they are cut into `SourceRows`: every
element is judged by those before it.

What is held back is kept as runs, each in the order of time and all in the order of arrival. A release takes the first
part of every run and merges these by a stable sort, so elements of one instant stay in the order of arrival and what
stays behind is never sorted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch, Ints, Mask, concat, empty_batch
from runtime.connectors.intake import SourceRows

_SMALL = 65_536
"""Runs shorter than this are merged, so that there are few of them however small the additions are."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows in the order of time; `size` is how many the memory behind them has room for."""

    rows: ChangeBatch
    size: int

    def before(self, bound: int) -> ChangeBatch:
        return self.rows.slice(0, _first_at(self.rows.start, bound))

    def since(self, bound: int) -> _Run:
        """Return the rest; memory of which less than half is in use is given back."""
        first = _first_at(self.rows.start, bound)
        if first == 0:
            return self
        left = len(self.rows) - first
        if 2 * left < self.size:
            return _Run(self.rows.take(np.arange(first, len(self.rows))), left)
        return _Run(self.rows.slice(first, len(self.rows)), self.size)


class InputManager:
    """Orders the rows of one stream, log of a relation, or static relation (all of it at `BEGINNING`).

    `late` counts the elements that were dropped; `until` is the heartbeat that was announced last. What is returned
    are batches in the order of time, each complete up to its heartbeat.
    """

    def __init__(self, types: Sequence[pa.DataType], delay: int = 0) -> None:
        self.late = 0
        self.until = BEGINNING
        self._types = tuple(types)
        self._delay = delay
        self._latest = BEGINNING
        self._runs: list[_Run] = []

    @property
    def held(self) -> int:
        """How many rows are held back."""
        return sum(len(run.rows) for run in self._runs)

    @property
    def nbytes(self) -> int:
        """How many bytes the rows that are held back take."""
        return sum(run.rows.nbytes for run in self._runs)

    def add(self, rows: SourceRows) -> list[ChangeBatch]:
        """Take rows in the order of their arrival and return what is complete now."""
        if not len(rows):
            return []
        arrived = ChangeBatch(rows.columns, rows.instants, None, rows.signs, self.until)
        if _is_sorted(rows.instants):
            first = _first_at(rows.instants, self.until)
            self.late += first
            arrived = arrived.slice(first, len(rows))
        else:
            in_time = self._in_time(rows.instants)
            self.late += len(rows) - int(in_time.sum())
            arrived = _sorted(arrived.filter(in_time))
        if len(arrived):
            self._latest = max(self._latest, int(arrived.start[-1]))
            self._runs.append(_Run(arrived, len(rows)))
        released = self._release(max(self._latest - self._delay, BEGINNING))
        self._merge_small_runs()
        return released

    def heartbeat(self, instant: int) -> list[ChangeBatch]:
        """Learn that nothing before an instant comes any more and return what is complete now."""
        return self._release(instant)

    def finish(self) -> list[ChangeBatch]:
        """Learn that nothing comes any more and return all that is left."""
        if not self._runs:
            return []
        last = max(int(run.rows.start[-1]) for run in self._runs)
        return self._release(min(last + 1, FOREVER))

    def _in_time(self, instants: Ints) -> Mask:
        """Return which elements are not before the heartbeat that the elements before them allow."""
        seen = np.maximum.accumulate(np.concatenate(([self._latest], instants[:-1])))
        bounds = np.where(seen < BEGINNING + self._delay, BEGINNING, seen - self._delay)
        return instants >= np.maximum(bounds, self.until)

    def _release(self, bound: int) -> list[ChangeBatch]:
        """Announce a heartbeat and return what starts before it."""
        if bound <= self.until:
            return []
        self.until = bound
        parts = [part for run in self._runs if len(part := run.before(bound))]
        self._runs = [rest for run in self._runs if len((rest := run.since(bound)).rows)]
        merged = _merged(parts) if parts else [empty_batch(self._types, bound)]
        heartbeats = [int(batch.start[-1]) + 1 for batch in merged[:-1]] + [bound]
        return [batch.with_until(until) for batch, until in zip(merged, heartbeats, strict=True)]

    def _merge_small_runs(self) -> None:
        runs = self._runs
        while len(runs) > 1 and len(runs[-2].rows) <= min(len(runs[-1].rows), _SMALL):
            later, earlier = runs.pop(), runs.pop()
            merged = _sorted(concat([earlier.rows, later.rows]))
            runs.append(_Run(merged, len(merged)))


def _merged(parts: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Return sorted parts in the order of time, those of one instant in the order of the parts and in one batch.

    Nothing but single instants is copied if the parts follow each other.
    """
    if any(later.start[0] < earlier.start[-1] for earlier, later in pairwise(parts)):
        return [_sorted(concat(parts))]
    groups = [[parts[0]]]
    for part in parts[1:]:
        tied = int(np.searchsorted(part.start, groups[-1][-1].start[-1], side="right"))
        if tied:
            groups[-1].append(part.slice(0, tied))
        if tied < len(part):
            groups.append([part.slice(tied, len(part))])
    return [concat(group) for group in groups]


def _sorted(rows: ChangeBatch) -> ChangeBatch:
    return rows if _is_sorted(rows.start) else rows.take(np.argsort(rows.start, kind="stable"))


def _is_sorted(instants: Ints) -> bool:
    return bool((instants[1:] >= instants[:-1]).all())


def _first_at(instants: Ints, bound: int) -> int:
    """Return the position of the first of some sorted instants that is not before a bound."""
    return int(np.searchsorted(instants, bound, side="left"))
