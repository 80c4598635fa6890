"""Ordinals: which is the n-th smallest of the values that are present, at any instant.

The values present at an instant are the sum of all changes up to it. The changes, in the order of time, are split
by the bits of their values, the highest first, which gives a wavelet matrix: at each bit running sums tell how many
of the values present have it clear, so that the n-th smallest, or how many are smaller than a value, is found
with one look at each bit. All questions are answered at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runtime.columns.batch import FOREVER, Ints
from runtime.columns.row_codes import changes
from runtime.columns.sort_codes import distinct_from_previous, order_of
from runtime.state.sorted_runs import FrontRows


class Ordinals:
    """Changes of small non-negative values by signed weights, in an order.

    Questions are about the sum of the changes from position `first` up to, not including, position `last`, which may
    have no value less than zero times.
    """

    def __init__(self, values: Ints, weights: Ints) -> None:
        self._total = _running(weights)
        self._levels: list[tuple[int, Ints, Ints]] = []
        for bit in reversed(range(int(values.max(initial=0)).bit_length())):
            high = (values >> bit & 1).astype(np.bool_)
            self._levels.append((1 << bit, _running(~high), _running(np.where(high, 0, weights))))
            order = np.concatenate([np.flatnonzero(~high), np.flatnonzero(high)])
            values, weights = values[order], weights[order]
        self._leaves = _running(weights)

    def total(self, first: Ints, last: Ints) -> Ints:
        """Return how many values there are."""
        return self._total[last] - self._total[first]

    def nth(self, first: Ints, last: Ints, number: Ints) -> Ints:
        """Return the value with a number, counted from 1 in ascending order; -1 if there are fewer."""
        exists = number <= self.total(first, last)
        value = np.zeros(len(first), np.int64)
        for bit, clear, weight in self._levels:
            left = weight[last] - weight[first]
            is_high = number > left
            number = np.where(is_high, number - left, number)
            value += np.where(is_high, bit, 0)
            first, last = _below(clear, first, is_high), _below(clear, last, is_high)
        return np.where(exists, value, -1)

    def count(self, first: Ints, last: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Return how many smaller values there are, and how often the value itself."""
        smaller = np.zeros(len(first), np.int64)
        for bit, clear, weight in self._levels:
            is_high = value & bit != 0
            smaller += np.where(is_high, weight[last] - weight[first], 0)
            first, last = _below(clear, first, is_high), _below(clear, last, is_high)
        return smaller, self._leaves[last] - self._leaves[first]


def _running(numbers: npt.NDArray[np.generic]) -> Ints:
    """Return the sums of all numbers before each position, and of all."""
    sums = np.empty(len(numbers) + 1, np.int64)
    sums[0] = 0
    np.cumsum(numbers, out=sums[1:])
    return sums


def _below(clear: Ints, position: Ints, is_high: npt.NDArray[np.bool_]) -> Ints:
    """Return where a position goes on the next level: those with a clear bit come first there."""
    low = clear[position]
    return np.where(is_high, clear[-1] + position - low, low)


class Timeline:
    """Groups over time: their positions, which are what was there before and the instants of changes, in order.

    A position of a group, `before` or at an instant, has the changes from `first` up to `last` behind it, and the
    position before it those up to `previous`.
    """

    def __init__(self, front: FrontRows, until: int) -> None:
        ending = np.flatnonzero(front.end < until)
        group = np.concatenate([front.group, front.group[ending]])
        timed = np.concatenate([~front.kept, np.ones(len(ending), np.bool_)])
        time = np.concatenate([front.start, front.end[ending]])
        time = np.where(timed, time, time[timed].min(initial=FOREVER))
        order = order_of([group, timed.astype(np.int64), time])
        group, timed, time = group[order], timed[order], time[order]
        begins = distinct_from_previous([group, timed, time])
        starts = np.flatnonzero(begins)
        self.group, self.time, self.is_timed = group[starts], time[starts], timed[starts]
        self.last = np.append(starts[1:], len(order))[: len(starts)]
        self.first = np.searchsorted(group, self.group)
        self.previous = np.where(changes(self.group), self.first, starts)
        self.position: Ints = np.cumsum(begins) - 1
        self.rank = np.concatenate([front.rank, front.rank[ending]])[order]
        self.weight = np.concatenate([front.weight, -front.weight[ending]])[order]
        self.ordinals = Ordinals(self.rank, self.weight)
        self._key_base, self._key_row = _rows_of_keys(front.group, front.rank)

    def row(self, position: Ints, rank: Ints) -> Ints:
        """Return a row of the front that has the key of some rank in the group of some position."""
        key = self._key_base[self.group[position]] + rank
        return np.asarray(self._key_row[key])


def _rows_of_keys(group: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return where the keys of each group begin among all keys, and a row that has each key."""
    keys = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(keys, group, rank + 1)
    base: Ints = np.cumsum(keys) - keys
    row: Ints = np.zeros(int(keys.sum()), np.int64)
    row[base[group] + rank] = np.arange(len(group))
    return base, row
