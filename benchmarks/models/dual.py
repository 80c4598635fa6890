"""Dual windows: what is shed at which speed, by formulas, and which probes are left out tuple by tuple.

Follows Part 3 of the sheet `papers/join-shedding.md`; `shedding/dual.py` has the best mix and the terms. The product
measures how many results probes have; here that follows from how probable values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma

import numpy as np

from shedding.dual import Speeds, best_mix, cut, tails
from shedding.fitting import Floats
from shedding.schedule import Ints


def unshed_speed(speeds: Speeds, mean: float) -> float:
    """Return V_0, the largest speed without shedding, if a probe finds so much on average.

    >>> unshed_speed(Speeds(probes=100.0, updates=1000.0), 8.0)
    90.9090909090909
    """
    return speeds.speed(1.0, mean)


def uniform_counts(window: int, domain: int) -> Floats:
    """Return how probable each N from 0 to W is, if values are uniform.

    >>> uniform_counts(4, 2).round(9).tolist()
    [0.0625, 0.25, 0.375, 0.25, 0.0625]
    """
    return _binomial(window, np.array([1 / domain])).ravel()


def independent_counts(window: int, first: Floats, second: Floats) -> Floats:
    """Return how probable each N is for tuples of two streams whose values have some probabilities, on average.

    >>> found = independent_counts(60, np.array([0.5, 0.5]), np.array([0.25, 0.75]))
    >>> round(float(found @ np.arange(61)), 6)
    30.0
    """
    return (first @ _binomial(window, second) + second @ _binomial(window, first)) / 2


def _binomial(window: int, chances: Floats) -> Floats:
    """Return for each chance how probable each number of hits in a window is."""
    hits = np.arange(window + 1)
    ways = np.array([lgamma(window + 1) - lgamma(n + 1) - lgamma(window - n + 1) for n in range(window + 1)])
    inside = np.clip(chances, 1e-300, 1 - 1e-16)[:, None]
    found: Floats = np.exp(ways + hits * np.log(inside) + (window - hits) * np.log1p(-inside))
    return found


def counted(counts: Ints, window: int) -> Floats:
    """Return the shares of each N that was recorded; without any, that nothing is ever found."""
    if not len(counts):
        return np.concatenate(([1.0], np.zeros(window)))
    return np.bincount(counts, minlength=window + 1) / len(counts)


def rear_share(probabilities: Floats, speeds: Speeds, speed: float) -> float:
    """Return k_r, the share of probes to leave out at some speed, those that find least first.

    >>> found = np.array([0.0, 1.0])
    >>> [round(rear_share(found, Speeds(100.0, 1000.0), v), 9) for v in (50, 1000 / 11, 100, 200, 1000, 5000)]
    [0.0, 0.0, 0.1, 0.6, 1.0, 1.0]
    """
    probed, found = tails(probabilities)
    costs = speeds.ratio + probed + speeds.output * found
    allowed = speeds.probes / speed
    if allowed <= speeds.ratio:
        return 1.0
    probed, costs = np.append(probed, 0.0), np.append(costs, speeds.ratio)
    return float(1 - np.interp(allowed, costs[::-1], probed[::-1]))


def rear_output(probabilities: Floats, speeds: Speeds, speed: float) -> float:
    """Return the results per unit of time with rear shedding only, at some speed."""
    cutoff, tied = cut(probabilities, rear_share(probabilities, speeds, speed))
    _, found = tails(probabilities)
    kept = float(found[cutoff]) - tied * cutoff * float(probabilities[cutoff])
    return max(0.0, speed * kept)


# Deciding


@dataclass(frozen=True, slots=True)
class Shares:
    """A decision: the share of tuples to drop before the queue, and of probes to leave out of the others'.

    `cutoff` and `tied` say the same as `rear` where counts are distributed as they were: leave out all probes with
    N < cutoff, and a share of those with N = cutoff.
    """

    front: float = 0.0
    rear: float = 0.0
    cutoff: int = 0
    tied: float = 0.0


def shares(probabilities: Floats, speeds: Speeds, offered: float, *, may_drop: bool = True) -> Shares:
    """Return what to shed at an offered speed: nothing up to V_0, probes up to V_opt, and tuples above.

    Without `may_drop` only probes are left out, so that the answer stays a subset of the exact one.

    >>> shares(uniform_counts(400, 50), Speeds(1.0, 10.0), 0.9)
    Shares(front=0.0, rear=0.0, cutoff=0, tied=0.0)
    >>> found = shares(uniform_counts(400, 50), Speeds(1.0, 10.0), 4.0)
    >>> round(found.front, 2), round(found.rear, 2), found.cutoff
    (0.51, 0.59, 9)
    """
    _, found = tails(probabilities)
    if offered <= unshed_speed(speeds, float(found[0])):
        return Shares()
    mix = best_mix(probabilities, speeds)
    if may_drop and offered > mix.speed:
        return Shares(1 - mix.speed / offered, mix.rear, mix.cutoff, 0.0)
    rear = rear_share(probabilities, speeds, offered)
    return Shares(0.0, rear, *cut(probabilities, rear))


# Leaving out probes


def skip_chance(poorer: int, equal: int, quota: float) -> float:
    """Return how probably a tuple leaves out its probe, if so many in its window find less, and as much as it.

    >>> [skip_chance(0, 20, 60), skip_chance(20, 50, 60), skip_chance(70, 30, 60)]
    [1.0, 0.8, 0.0]
    """
    if poorer >= quota:
        return 0.0
    return 1.0 if poorer + equal <= quota else (quota - poorer) / equal


class Ranks:
    """How many tuples of a window find less than some number: counts in a binary indexed tree.

    >>> ranks = Ranks(10)
    >>> for found, count in enumerate((4, 3, 6, 8)):
    ...     ranks.add(found, count)
    >>> ranks.below(4), ranks.of(2), ranks.below(2)
    (21, 6, 7)
    """

    def __init__(self, most: int) -> None:
        self._tree = [0] * (most + 2)
        self._counts = [0] * (most + 1)

    def add(self, found: int, count: int = 1) -> None:
        """Let so many tuples that find so much come, or go."""
        self._counts[found] += count
        at = found + 1
        while at < len(self._tree):
            self._tree[at] += count
            at += at & -at

    def below(self, found: int) -> int:
        """Return how many find less."""
        total, at = 0, found
        while at > 0:
            total += self._tree[at]
            at &= at - 1
        return total

    def of(self, found: int) -> int:
        """Return how many find just that."""
        return self._counts[found]
