"""What a join that shed rows still owes: rows that were not fully joined, and the pairs that are missing.

Follows section 2.2 of the sheet `papers/join-shedding.md`, with its correction of the archive metric. What is known of
a run is for each row the last instant whose arrivals it met while it was held, or which pairs were delivered. With the
archived input, exactly the missing pairs are found: those and the delivered ones together are the exact join, none of
them twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shedding.offline.streams import Pairs, Stream, exact_pairs
from shedding.schedule import Ints, Mask


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


def undelivered_pairs(left: Stream, right: Stream, reach: int, delivered: Pairs) -> Pairs:
    """Return the pairs of an exact join that were not delivered, by the log of those that were.

    Raises ValueError if something was delivered that the join does not have, or was delivered twice.
    """
    exact = exact_pairs(left, right, reach)
    width = max(len(right), 1)
    ours, theirs = exact.left * width + exact.right, delivered.left * width + delivered.right
    if len(np.unique(theirs)) < len(theirs):
        raise ValueError("a pair was delivered twice")
    is_delivered = np.isin(ours, theirs)
    if is_delivered.sum() < len(theirs):
        raise ValueError("a pair was delivered that is not one of the join")
    return Pairs(exact.left[~is_delivered], exact.right[~is_delivered])


def incomplete(left: Stream, right: Stream, reach: int, missing: Pairs) -> tuple[Mask, Mask]:
    """Return for both sides which rows were not fully joined; how many there are is the archive metric."""
    lacks = np.zeros(len(left), np.bool_), np.zeros(len(right), np.bool_)
    lacks[0][missing.left] = True
    lacks[1][missing.right] = True
    return lacks


def archive_metric(left: Stream, right: Stream, reach: int, missing: Pairs) -> int:
    """Return how many rows have to be joined again; rows whose partners may still arrive do not count."""
    end = max(left.times.max(initial=0), right.times.max(initial=0))
    masks = incomplete(left, right, reach, missing)
    return sum(
        int((mask & (stream.times + reach <= end)).sum()) for mask, stream in zip(masks, (left, right), strict=True)
    )
