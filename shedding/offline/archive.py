"""What a join that shed rows still owes: rows that were not fully joined, and the pairs that are missing.

Follows section 2.2 of the sheet `papers/join-shedding.md`. What is known of a run is which pairs were delivered. With
the archived input, exactly the missing pairs are found: those and the delivered ones together are the exact join, none
of them twice.
"""

from __future__ import annotations

import numpy as np

from shedding.offline.streams import Pairs, Stream, exact_pairs
from shedding.schedule import Mask


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


def incomplete(left: Stream, right: Stream, missing: Pairs) -> tuple[Mask, Mask]:
    """Return for both sides which rows were not fully joined; how many there are is the archive metric."""
    lacks = np.zeros(len(left), np.bool_), np.zeros(len(right), np.bool_)
    lacks[0][missing.left] = True
    lacks[1][missing.right] = True
    return lacks
