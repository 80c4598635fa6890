"""The static join: which rows of relations to keep so that most of their join is kept.

Follows section 2.3 of the sheet `papers/join-shedding.md`. The equi-join of two relations falls apart into complete
bipartite graphs, one for each key, with m rows on the one side and n on the other. Of such a graph p rows are best kept
in equal numbers on both sides. How many to keep of which key is a knapsack, solved exactly by dynamic programming. For
three or more relations this is NP-hard; there the rows of each relation that make fewest results are left out, which
loses at most as many times the least possible loss as there are relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shedding.schedule import Ints

_IMPOSSIBLE = -1


class Kept(NamedTuple):
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


def best_kept(left: Sequence[int], right: Sequence[int], kept: int) -> Kept:
    """Return which rows to keep, so many of both relations together, given how many rows of each key they have.

    >>> best_kept([1, 2], [1, 2], 4)
    Kept(left=[0, 2], right=[0, 2], pairs=4)
    """
    kept = min(kept, sum(left) + sum(right))
    best = np.full(kept + 1, _IMPOSSIBLE, np.int64)
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
    return Kept([a for a, _ in sides], [b for _, b in sides], int(best[kept]))


def _with(best: Ints, gains: Ints) -> tuple[Ints, Ints]:
    """Return what can be gained with one key more, and how many rows of it that takes."""
    found, choice = np.full(len(best), _IMPOSSIBLE, np.int64), np.zeros(len(best), np.int64)
    for taken, gain in enumerate(gains):
        before = best[: len(best) - taken]
        gained = np.where(before == _IMPOSSIBLE, _IMPOSSIBLE, before + gain)
        is_better = gained > found[taken:]
        found[taken:][is_better], choice[taken:][is_better] = gained[is_better], taken
    return found, choice


def _divided(m: int, n: int, kept: int) -> tuple[int, int]:
    """Return how many of so many rows to keep on each side: halves, and what one side lacks on the other."""
    few = min(m, n, kept // 2)
    return (few, kept - few) if m <= n and kept - few <= n else (kept - few, few)


def best_kept_of_each(left: Sequence[int], right: Sequence[int], left_kept: int, right_kept: int) -> Kept:
    """Return which rows to keep if it is said how many of each relation.

    >>> best_kept_of_each([1, 2], [1, 2], 1, 2)
    Kept(left=[0, 1], right=[0, 2], pairs=2)
    """
    left_kept, right_kept = min(left_kept, sum(left)), min(right_kept, sum(right))
    best = np.full((left_kept + 1, right_kept + 1), _IMPOSSIBLE, np.int64)
    best[0, 0] = 0
    choices: list[npt.NDArray[np.int64]] = []
    for m, n in zip(left, right, strict=True):
        found, choice = np.full_like(best, _IMPOSSIBLE), np.zeros((*best.shape, 2), np.int64)
        for p in range(min(m, left_kept) + 1):
            for q in range(min(n, right_kept) + 1):
                before = best[: left_kept + 1 - p, : right_kept + 1 - q]
                gained = np.where(before == _IMPOSSIBLE, _IMPOSSIBLE, before + p * q)
                is_better = gained > found[p:, q:]
                found[p:, q:][is_better], choice[p:, q:][is_better] = gained[is_better], (p, q)
        best = found
        choices.append(choice)
    taken, at = [], (left_kept, right_kept)
    for choice in reversed(choices):
        p, q = (int(each) for each in choice[at])
        taken.append((p, q))
        at = at[0] - p, at[1] - q
    taken.reverse()
    return Kept([p for p, _ in taken], [q for _, q in taken], int(best[left_kept, right_kept]))


def kept_of_many(counts: Sequence[Sequence[int]], deleted: Sequence[int]) -> list[list[int]]:
    """Return how many rows of each key to keep in three or more relations, if so many of each are to be deleted.

    Each relation on its own loses the rows that make fewest results; what others lose is not considered.

    >>> kept_of_many([[2, 1], [1, 3], [1, 1]], [1, 0, 1])
    [[1, 1], [1, 3], [0, 1]]
    """
    rows = np.array(counts, np.int64)
    kept = rows.copy()
    for relation, number in enumerate(deleted):
        results = np.prod(np.delete(rows, relation, axis=0), axis=0)
        for key in np.argsort(results, kind="stable"):
            gone = min(int(kept[relation, key]), number)
            kept[relation, key] -= gone
            number -= gone
    return [[int(each) for each in row] for row in kept]
