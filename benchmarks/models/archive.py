"""What a join that shed rows has found and still owes, by until when it held its rows.

Follows section 2.2 of the sheet `papers/join-shedding.md`, with its correction of the archive metric. The pairs that
are found and those that are missing together are the exact join, none of them twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shedding.offline.archive import incomplete
from shedding.offline.streams import Pairs, Stream
from shedding.schedule import Ints


@dataclass(frozen=True, slots=True)
class Holding:
    """For each row of both sides the last instant at which it was there to be joined with what arrived."""

    left: Ints
    right: Ints

    @classmethod
    def complete(cls, left: Stream, right: Stream, reach: int) -> Holding:
        """Return the holding of an exact join."""
        return cls(left.times + reach, right.times + reach)


def delivered_pairs(left: Stream, right: Stream, reach: int, held: Holding) -> Pairs:
    """Return the pairs that are found: the earlier row was held when the later one arrived, or both came at once."""
    asked, found = right.matches(left.keys, left.times - 1, np.minimum(held.left, left.times + reach))
    later, earlier = left.matches(right.keys, right.times, np.minimum(held.right, right.times + reach))
    return Pairs.of(np.concatenate((asked, earlier)), np.concatenate((found, later)))


def count_delivered(left: Stream, right: Stream, reach: int, held: Holding, since: int | None = None) -> int:
    """Return how many pairs are found; those that are complete before an instant do not count."""
    begin = min(left.times.min(initial=0), right.times.min(initial=0)) if since is None else since
    first = np.maximum(left.times - 1, begin - 1)
    count = right.count(left.keys, first, np.minimum(held.left, left.times + reach)).sum()
    first = np.maximum(right.times, begin - 1)
    return int(count + left.count(right.keys, first, np.minimum(held.right, right.times + reach)).sum())


def missing_pairs(left: Stream, right: Stream, reach: int, held: Holding) -> Pairs:
    """Return the pairs that are not found: the later row arrived when the earlier one was held no more.

    >>> left, right = Stream.ticking(np.array([1, 1, 1, 3, 2])), Stream.ticking(np.array([2, 3, 1, 1, 3]))
    >>> held = Holding(np.array([0, 3, 4, 5, 6]), right.times + 2)
    >>> missing_pairs(left, right, 2, held).rows()
    [(0, 2)]
    """
    asked, found = right.matches(left.keys, np.maximum(held.left, left.times), left.times + reach)
    later, earlier = left.matches(right.keys, np.maximum(held.right, right.times), right.times + reach)
    return Pairs.of(np.concatenate((asked, earlier)), np.concatenate((found, later)))


def archive_metric(left: Stream, right: Stream, reach: int, missing: Pairs) -> int:
    """Return how many rows have to be joined again; rows whose partners may still arrive do not count."""
    end = max(left.times.max(initial=0), right.times.max(initial=0))
    masks = incomplete(left, right, missing)
    return sum(
        int((mask & (stream.times + reach <= end)).sum()) for mask, stream in zip(masks, (left, right), strict=True)
    )
