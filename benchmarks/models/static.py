"""The static join where it is said how many rows of each relation to keep, and of more than two relations.

Follows section 2.3 of the sheet `papers/join-shedding.md`. For three or more relations the best choice is NP-hard; here
the rows of each relation that make fewest results are left out, which loses at most as many times the least possible
loss as there are relations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shedding.offline.static import IMPOSSIBLE, KeptRows


def best_kept_of_each(left: Sequence[int], right: Sequence[int], left_kept: int, right_kept: int) -> KeptRows:
    """Return which rows to keep if it is said how many of each relation.

    >>> best_kept_of_each([1, 2], [1, 2], 1, 2)
    KeptRows(left=[0, 1], right=[0, 2], pairs=2)
    """
    left_kept, right_kept = min(left_kept, sum(left)), min(right_kept, sum(right))
    best = np.full((left_kept + 1, right_kept + 1), IMPOSSIBLE, np.int64)
    best[0, 0] = 0
    choices: list[npt.NDArray[np.int64]] = []
    for m, n in zip(left, right, strict=True):
        found, choice = np.full_like(best, IMPOSSIBLE), np.zeros((*best.shape, 2), np.int64)
        for p in range(min(m, left_kept) + 1):
            for q in range(min(n, right_kept) + 1):
                before = best[: left_kept + 1 - p, : right_kept + 1 - q]
                gained = np.where(before == IMPOSSIBLE, IMPOSSIBLE, before + p * q)
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
    return KeptRows([p for p, _ in taken], [q for _, q in taken], int(best[left_kept, right_kept]))


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
