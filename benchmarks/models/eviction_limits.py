"""Eviction by age limits: up to which age a join may hold the rows of each key so that a budget suffices.

The threshold form of section 4.3 of the sheet `papers/join-shedding.md`. What a stored row is worth depends on its key
and its age only, so how often keys arrive says for each key up to which age its rows are held. The product evicts what
is worth least when a budget is exceeded (`shedding/eviction.py`); on average it holds what these limits say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shedding.eviction import ArrivalRates, Floats, Policy, looked_up
from shedding.schedule import Ints, Mask, coins


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """What a side holds: rows younger than a limit for their key, and of those a share, by coins for their ids."""

    policy: Policy
    keys: Ints
    limits: Floats
    other: float
    """The limit of keys that are not named."""
    share: float = 1.0
    seed: int = 0

    def ages(self, keys: Ints) -> Floats:
        """Return for how many ticks rows with some keys are held."""
        return looked_up(self.keys, self.limits, self.other, keys)

    def keeps(self, keys: Ints, ages: npt.NDArray[Any], ids: Ints) -> Mask:
        """Return which rows stay, by their keys, ages and ids; ids are for ever, in all buckets."""
        kept: Mask = ages < self.ages(keys)
        return kept & (coins(self.seed, ids) < self.share) if self.share < 1 else kept

    def held(self, side: ArrivalRates, batch: float = 0.0) -> Floats:
        """Return for how many ticks a row meets its partners on average, for each key of a side and all other ones.

        If rows are evicted only at the end of a micro-batch of `batch` ticks, each is held half a batch longer.
        """
        limits = np.append(self.ages(side.keys), self.other)
        kept, gone = (np.minimum(side.window, held + batch / 2) for held in (limits, 0.0 * limits))
        return self.share * kept + (1 - self.share) * gone


def window_demand(side: ArrivalRates) -> float:
    """Return what the whole window of a side takes of the budget."""
    return float(side.arrivals.sum()) * side.window * side.size


def cuts(
    policy: Policy, sides: Sequence[ArrivalRates], budget: float, *, pooled: bool = False, seed: int = 0
) -> list[Cut]:
    """Return what each side holds so that all of it takes no more than a budget, on average.

    Each side gets the same part of it; pooled, they compete.

    >>> side = ArrivalRates(np.array([1, 2]), np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.1, 0.0]), window=10)
    >>> [cut] = cuts(Policy.PROB, [side], budget=14)
    >>> cut.ages(np.array([1, 2])).tolist(), round(expected_recall([side], [cut]), 3)
    ([10.0, 4.0], 0.9)
    >>> [cut] = cuts(Policy.LIFE, [side], budget=14)
    >>> cut.ages(np.array([1, 2])).tolist(), round(expected_recall([side], [cut]), 3)
    ([9.0, 5.0], 0.833)
    """
    if pooled:
        return _cuts(policy, sides, budget, seed)
    return [cut for side in sides for cut in _cuts(policy, [side], budget / len(sides), seed)]


def _cuts(policy: Policy, sides: Sequence[ArrivalRates], budget: float, seed: int) -> list[Cut]:
    """Return what sides hold that compete for a budget."""
    demand = sum(window_demand(side) for side in sides)
    if demand <= budget or policy is Policy.RAND:
        share = min(1.0, budget / demand) if demand else 1.0
        return [Cut(policy, np.empty(0, np.int64), np.empty(0), side.window, share, seed) for side in sides]
    demands = np.concatenate([side.arrivals * side.size for side in sides])
    worths = np.concatenate([side.partners / side.size for side in sides])
    windows = np.concatenate([np.full(len(side.arrivals), side.window) for side in sides])
    limits_by = _limits_by_rate if policy is Policy.PROB else _limits_by_expectation
    limits = np.split(limits_by(demands, worths, windows, budget), np.cumsum([len(side.arrivals) for side in sides]))
    return [_named(policy, side.keys, part, seed) for side, part in zip(sides, limits, strict=False)]


def _named(policy: Policy, keys: Ints, limits: Floats, seed: int) -> Cut:
    """Return a cut that names only keys that are not as all others."""
    others = float(limits[-1])
    differs = limits[:-1] != others
    return Cut(policy, keys[differs], limits[:-1][differs], others, 1.0, seed)


def _limits_by_rate(demands: Floats, worths: Floats, windows: Floats, budget: float) -> Floats:
    """PROB: the most frequent keys are held for the whole window; of the last ones that fit, the newest rows."""
    worth, group = np.unique(-worths, return_inverse=True)
    needed = np.bincount(group, demands * windows, len(worth))
    left = budget - (np.cumsum(needed) - needed)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(needed > 0, np.clip(left / needed, 0.0, 1.0), (left > 0).astype(np.float64))
    limits: Floats = parts[group] * windows
    return limits


def _limits_by_expectation(demands: Floats, worths: Floats, windows: Floats, budget: float) -> Floats:
    """LIFE: rows are held until they can expect less than a threshold.

    A key is held for windows - threshold / worths ticks. Sorted by what a new row of a key can expect, all up to some
    key are held for a while, and for those the budget is a linear function of the threshold.
    """
    expected = worths * windows
    order = np.argsort(-expected, kind="stable")
    order = order[expected[order] > 0]
    whole = np.cumsum((demands * windows)[order])
    slopes = np.cumsum(demands[order] / worths[order])
    following = np.append(expected[order][1:], 0.0)
    at = int(np.argmax(whole - following * slopes >= budget)) if len(order) else 0
    if not len(order) or whole[-1] <= budget:
        return np.where(expected > 0, windows, 0.0)
    threshold = (whole[at] - budget) / slopes[at] if slopes[at] else expected[order][at]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, np.clip(windows - threshold / worths, 0.0, windows), 0.0)


def expected_recall(sides: Sequence[ArrivalRates], held: Sequence[Cut], batch: float = 0.0) -> float:
    """Return the share of all pairs that is found on average, if rows are evicted at the end of `batch` ticks."""
    found = exact = 0.0
    for side, cut in zip(sides, held, strict=True):
        pairs = side.arrivals * side.partners
        found += float((pairs * cut.held(side, batch)).sum())
        exact += float(pairs.sum()) * side.window
    return found / exact if exact else 1.0
