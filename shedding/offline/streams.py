"""Two streams that are joined on a key within a window, as arrays, and the pairs that they make.

A pair is a row of each with the same key and instants that are at most `reach` apart: w - 1 for the paper's windows of
w ticks, w for `[Range w]`. Keys are numbers from 0 on, the same on both sides; what they stand for is up to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shedding.schedule import Ints


@dataclass(frozen=True, slots=True)
class Stream:
    """The instants of rows, in order, and their keys."""

    times: Ints
    keys: Ints
    _order: Ints = field(init=False, repr=False)
    _sorted_keys: Ints = field(init=False, repr=False)
    _sorted_times: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert len(self.times) == len(self.keys), "every row has an instant and a key"
        assert not np.any(self.times[1:] < self.times[:-1]), "rows are in the order of their instants"
        order = np.lexsort((self.times, self.keys))
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_sorted_keys", self.keys[order])
        object.__setattr__(self, "_sorted_times", self.times[order])

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def ticking(cls, keys: Ints) -> Stream:
        """Return a stream with one row for each tick, from 0 on."""
        return cls(np.arange(len(keys)), np.asarray(keys, np.int64))

    def upto(self, keys: Ints, times: Ints) -> Ints:
        """Return for each key and instant how many rows, in the order of keys and instants, are not behind it."""
        low: Ints = np.searchsorted(self._sorted_keys, keys, side="left")
        high: Ints = np.searchsorted(self._sorted_keys, keys, side="right")
        while (is_open := low < high).any():
            middle = (low + high) // 2
            is_upto = self._sorted_times[np.minimum(middle, len(self) - 1)] <= times
            low = np.where(is_open & is_upto, middle + 1, low)
            high = np.where(is_open & ~is_upto, middle, high)
        return low

    def count(self, keys: Ints, after: Ints, upto: Ints) -> Ints:
        """Return how many rows there are with each key, after one instant and up to another."""
        counted: Ints = np.maximum(self.upto(keys, upto) - self.upto(keys, after), 0)
        return counted

    def matches(self, keys: Ints, after: Ints, upto: Ints) -> tuple[Ints, Ints]:
        """Return those rows: numbers of what was asked, and of the rows."""
        first, last = self.upto(keys, after), self.upto(keys, upto)
        counts = np.maximum(last - first, 0)
        asked = np.repeat(np.arange(len(keys)), counts)
        begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
        return asked, self._order[begins + np.arange(len(asked))]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a left and a right row, by their numbers, in order."""

    left: Ints
    right: Ints

    @classmethod
    def of(cls, left: Ints, right: Ints) -> Pairs:
        order = np.lexsort((right, left))
        return cls(left[order], right[order])

    def __len__(self) -> int:
        return len(self.left)

    def rows(self) -> list[tuple[int, int]]:
        return list(zip(self.left.tolist(), self.right.tolist(), strict=True))


def exact_pairs(left: Stream, right: Stream, reach: int) -> Pairs:
    """Return all pairs.

    >>> exact_pairs(Stream.ticking(np.array([1, 1, 1, 3, 2])), Stream.ticking(np.array([2, 3, 1, 1, 3])), 2).rows()
    [(0, 2), (1, 2), (1, 3), (2, 2), (2, 3), (3, 1), (3, 4)]
    """
    return Pairs.of(*right.matches(left.keys, left.times - reach - 1, left.times + reach))


def count_exact(left: Stream, right: Stream, reach: int, since: int | None = None) -> int:
    """Return how many pairs there are; those that are complete before an instant do not count."""
    everything = int(right.count(left.keys, left.times - reach - 1, left.times + reach).sum())
    if since is None:
        return everything
    early_left, early_right = (Stream(s.times[s.times < since], s.keys[s.times < since]) for s in (left, right))
    return everything - count_exact(early_left, early_right, reach)
