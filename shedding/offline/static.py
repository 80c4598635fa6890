"""The static join: which rows of relations to keep so that most of their join is kept.

Follows section 2.3 of the sheet `papers/join-shedding.md`. The equi-join of two relations falls apart into complete
bipartite graphs, one for each key, with m rows on the one side and n on the other. Of such a graph p rows are best kept
in equal numbers on both sides. How many to keep of which key is a knapsack, solved exactly by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shedding.schedule import Ints

IMPOSSIBLE = -1
"""What is gained by a number of rows that there are not."""


class KeptRows(NamedTuple):
    """How many rows to keep of each key, on the left and on the right, and how many pairs they make."""

    left: list[int]
    right: list[int]
    pairs: int


def pairs_kept(m: int, n: int, kept: int) -> int:
    """Return how many pairs `kept` rows of a key can make, of m on the one side and n on the other.

    >>> [pairs_kept(3, 2, p) for p in range(6)]
    [0, 0, 1, 2, 4, 6]
    """
    fewer, more = sorted((m, n))
    assert 0 <= kept <= m + n
    few = min(fewer, kept // 2)
    return few * min(more, kept - few)


def best_kept(left: Sequence[int], right: Sequence[int], kept: int) -> KeptRows:
    """Return which rows to keep, so many of both relations together, given how many rows of each key they have.

    >>> best_kept([1, 2], [1, 2], 4)
    KeptRows(left=[0, 2], right=[0, 2], pairs=4)
    """
    kept = min(kept, sum(left) + sum(right))
    best = np.full(kept + 1, IMPOSSIBLE, np.int64)
    best[0] = 0
    choices = []
    for m, n in zip(left, right, strict=True):
        gains = np.array([pairs_kept(m, n, p) for p in range(min(m + n, kept) + 1)], np.int64)
        best, choice = _with(best, gains)
        choices.append(choice)
    taken = []
    at = kept
    for choice in reversed(choices):
        taken.append(int(choice[at]))
        at -= taken[-1]
    sides = [_divided(m, n, p) for m, n, p in zip(left, right, reversed(taken), strict=True)]
    return KeptRows([a for a, _ in sides], [b for _, b in sides], int(best[kept]))


def _with(best: Ints, gains: Ints) -> tuple[Ints, Ints]:
    """Return what can be gained with one key more, and how many rows of it that takes."""
    found, choice = np.full(len(best), IMPOSSIBLE, np.int64), np.zeros(len(best), np.int64)
    for taken, gain in enumerate(gains):
        before = best[: len(best) - taken]
        gained = np.where(before == IMPOSSIBLE, IMPOSSIBLE, before + gain)
        is_better = gained > found[taken:]
        found[taken:][is_better], choice[taken:][is_better] = gained[is_better], taken
    return found, choice


def _divided(m: int, n: int, kept: int) -> tuple[int, int]:
    """Return how many of so many rows to keep on each side: halves, and what one side lacks on the other."""
    few = min(m, n, kept // 2)
    return (few, kept - few) if m <= n and kept - few <= n else (kept - few, few)
