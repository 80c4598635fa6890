"""Ticks: the instants at which an Rstream speaks, which may be billions between two rows.

They are counted where that is enough, and listed for stretches of time only that are short enough: those in which no
more rows are there, once for each tick, than are put out in one go. Where no row is there, time passes at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner import operators as op
from runtime.columns.batch import Ints
from runtime.operators.base import Clock


@dataclass(frozen=True, slots=True)
class Ticks:
    """The instants at which an Rstream speaks."""

    node: op.RStream
    clock: Clock

    def listed(self, since: int, until: int) -> Ints:
        """Return those of a stretch of time, sorted."""
        if self.node.every_tick:
            return np.arange(since, until)
        found = [self._slides(tick, since, until) for tick in self.node.clock if tick.slide is not None]
        found += [self.clock.instants(tick.source, since, until) for tick in self.node.clock if tick.slide is None]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _slides(self, tick: op.Tick, since: int, until: int) -> Ints:
        first = self.clock.first_instant(tick.source)
        if first is None or tick.slide is None or first >= until:
            return np.empty(0, np.int64)
        begin = max(first, since)
        return np.arange(-(-begin // tick.slide) * tick.slide, until, tick.slide)

    def counted(self, borders: Ints) -> Ints:
        """Return how many there are from the first of some instants, in order, up to each; or a few more."""
        if self.node.every_tick:
            since: Ints = borders - borders[0]
            return since
        total: Ints = np.zeros(len(borders), np.int64)
        for tick in self.node.clock:
            if tick.slide is None:
                instants = self.clock.instants(tick.source, int(borders[0]), int(borders[-1]))
                total += np.searchsorted(instants, borders)
            else:
                slides = -(-borders // tick.slide)
                total += slides - slides[0]
        return total

    def stretches(self, start: Ints, end: Ints, times: Ints | None, most: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of time in which rows with some lifetimes are there, in order.

        Each has at most so many rows, a row once for each tick or as many `times`, or is about one tick.
        """
        if not len(start):
            return
        borders = np.unique(np.concatenate([start, end]))
        alive = _alive(borders, start, end, times)
        ticks = np.diff(self.counted(borders)).astype(np.float64)
        through = np.append(0.0, np.cumsum(np.maximum(alive, 1) * ticks))
        at, begin = 0, int(borders[0])
        while at < len(alive):
            following = int(borders[at + 1])
            if alive[at] == 0:
                at, begin = at + 1, following
                continue
            last = int(np.searchsorted(through, through[at] + most, side="right")) - 1
            if last > at and begin == borders[at]:
                at, stop = last, int(borders[last])
            else:
                stop = self._after(begin, following, max(most // int(alive[at]), 1))
                at += stop == following
            yield begin, stop
            begin = stop

    def _after(self, begin: int, end: int, most: int) -> int:
        """Return the latest instant, up to an end, before which there are at most so many ticks since a beginning."""
        low, high = begin + 1, end
        while low < high:
            middle = low + (high - low + 1) // 2
            is_enough = int(self.counted(np.array([begin, middle]))[1]) > most
            low, high = (low, middle - 1) if is_enough else (middle, high)
        return low


def _alive(borders: Ints, start: Ints, end: Ints, times: Ints | None) -> Ints:
    """Return how many rows are there between borders."""
    change = np.zeros(len(borders), np.int64)
    weights = np.ones(len(start), np.int64) if times is None else times
    np.add.at(change, np.searchsorted(borders, start), weights)
    np.subtract.at(change, np.searchsorted(borders, end), weights)
    return np.cumsum(change)[:-1]
