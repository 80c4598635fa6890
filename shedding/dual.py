"""Dual windows: which probes of a join over the last W rows to leave out, and when to drop rows before they queue.

Follows Part 3 of the sheet `papers/join-shedding.md` (Han, Xiao, Zhou, Wang, Huo, Hui). Every tuple waits in an
auxiliary window before it probes, so that what it will find, N, is known exactly. Probes that find little are left
out (rear shedding); their tuples stay in the window for others to find, so the answer is a subset of the exact one.
Above the speed at which that pays best, tuples are dropped at random before they queue (front shedding): then windows
of the last W rows reach further back, and the answer is no subset any more.

Speeds count tuples of both streams: V_s is offered, V_q is let into the queue; V_j and V_w are how many tuples could
be probed, or put into the windows, if nothing else were done. This module knows nothing of plans, operators or Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma
from typing import Any

import numpy as np

from shedding.fitting import Floats
from shedding.schedule import Ints, Mask, coins

HIGH = 0.8
"""How full the queue is when shedding sets in."""

LOW = 0.2
"""How full it is when shedding ends."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast the machine is: V_j and V_w, and what a result costs, as a share of what a probe does.

    >>> Speeds(probes=100.0, updates=1000.0).unshed(8.0)
    90.9090909090909
    """

    probes: float
    updates: float
    output: float = 0.0

    @property
    def ratio(self) -> float:
        """What an update costs, as a share of what a probe does: alpha."""
        return self.probes / self.updates

    def unshed(self, mean: float) -> float:
        """Return V_0, the largest speed without shedding, if a probe finds so much on average."""
        return self.speed(1.0, mean)

    def speed(self, probed: float, found: float) -> float:
        """Return V_q, if a share of tuples probe, and so much is found for each tuple, whether it probes or not."""
        return self.probes / (self.ratio + probed + self.output * found)

    def rear_share(self, speed: float) -> float:
        """Return k_r, the share of probes to leave out at some speed, if results cost nothing.

        >>> [round(Speeds(100.0, 1000.0).rear_share(v), 9) for v in (50, 1000 / 11, 100, 200, 1000, 5000)]
        [0.0, 0.0, 0.1, 0.6, 1.0, 1.0]
        """
        return min(1.0, max(0.0, 1 + self.ratio - self.probes / speed)) if speed > 0 else 0.0


# How many results a probe has


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


# The best mix


@dataclass(frozen=True, slots=True)
class Mix:
    """The cut-off M*, the speed V_opt at which it pays best, the share k_r* it leaves out, and what it brings."""

    cutoff: int
    speed: float
    rear: float
    output: float


def outputs(probabilities: Floats, speeds: Speeds) -> Floats:
    """Return the results per unit of time, O(M), for each cut-off M below which probes are left out."""
    probed, found = _above(probabilities)
    return np.array([speeds.speed(share, each) * each for share, each in zip(probed, found, strict=True)])


def best_mix(probabilities: Floats, speeds: Speeds) -> Mix:
    """Return the cut-off with most results: the smallest M that is at least what a probe's time brings on average.

    A cost of results changes how fast that is and what it brings, but not the cut-off.

    >>> best_mix(uniform_counts(400, 50), Speeds(1.0, 10.0)).cutoff
    9
    """
    free = outputs(probabilities, Speeds(speeds.probes, speeds.updates))
    cutoff = int(np.argmax(np.arange(len(free)) >= free / speeds.probes))
    probed, found = _above(probabilities)
    speed = speeds.speed(float(probed[cutoff]), float(found[cutoff]))
    return Mix(cutoff, speed, 1 - float(probed[cutoff]), speed * float(found[cutoff]))


def rear_output(probabilities: Floats, speeds: Speeds, speed: float) -> float:
    """Return the results per unit of time with rear shedding only, at some speed, if results cost nothing."""
    cutoff, tied = cut(probabilities, speeds.rear_share(speed))
    _, found = _above(probabilities)
    kept = float(found[cutoff]) - tied * cutoff * float(probabilities[cutoff])
    return max(0.0, speed * kept)


def cut(probabilities: Floats, share: float) -> tuple[int, float]:
    """Return the cut-off M below which all probes are left out, and the share of those with N = M, for a share of all.

    >>> cut(np.array([0.2, 0.5, 0.3]), 0.6)
    (1, 0.8)
    """
    upto = np.cumsum(probabilities)
    cutoff = min(int(np.searchsorted(upto, share - 1e-12)), len(upto) - 1)
    before = float(upto[cutoff - 1]) if cutoff else 0.0
    at = float(probabilities[cutoff])
    return cutoff, round(min(1.0, max(0.0, (share - before) / at)), 12) if at > 0 else 0.0


def _above(probabilities: Floats) -> tuple[Floats, Floats]:
    """Return S(M) and T(M): the share of tuples with N >= M, and what their probes find for each tuple."""
    found = np.arange(len(probabilities)) * probabilities
    return np.cumsum(probabilities[::-1])[::-1], np.cumsum(found[::-1])[::-1]


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

    def values(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"front": self.front, "rear": self.rear, "cutoff": self.cutoff, "tied": self.tied}


def shares(probabilities: Floats, speeds: Speeds, offered: float, *, may_drop: bool = True) -> Shares:
    """Return what to shed at an offered speed: nothing up to V_0, probes up to V_opt, and tuples above.

    Without `may_drop` only probes are left out, so that the answer stays a subset of the exact one.

    >>> shares(uniform_counts(400, 50), Speeds(1.0, 10.0), 0.9)
    Shares(front=0.0, rear=0.0, cutoff=0, tied=0.0)
    >>> found = shares(uniform_counts(400, 50), Speeds(1.0, 10.0), 4.0)
    >>> round(found.front, 2), round(found.rear, 2), found.cutoff
    (0.51, 0.59, 9)
    """
    _, found = _above(probabilities)
    if offered <= speeds.unshed(float(found[0])):
        return Shares()
    mix = best_mix(probabilities, speeds)
    if may_drop and offered > mix.speed:
        return Shares(1 - mix.speed / offered, mix.rear, mix.cutoff, 0.0)
    rear = _rear_share(probabilities, speeds, offered)
    return Shares(0.0, rear, *cut(probabilities, rear))


def _rear_share(probabilities: Floats, speeds: Speeds, speed: float) -> float:
    """Return the share of probes to leave out at some speed, the poorest first, if results have a cost, too."""
    probed, found = _above(probabilities)
    costs = speeds.ratio + probed + speeds.output * found
    allowed = speeds.probes / speed
    if allowed <= speeds.ratio:
        return 1.0
    probed, costs = np.append(probed, 0.0), np.append(costs, speeds.ratio)
    return float(1 - np.interp(allowed, costs[::-1], probed[::-1]))


@dataclass
class Trigger:
    """Whether to shed: from a queue that is nearly full until it is nearly empty.

    >>> trigger = Trigger(capacity=10)
    >>> [trigger.is_on(length) for length in (7, 8, 5, 2, 5)]
    [False, True, True, False, False]
    """

    capacity: int
    high: float = HIGH
    low: float = LOW
    _is_on: bool = False

    def is_on(self, length: int) -> bool:
        """Tell whether to shed, now that the queue has some length."""
        if length >= self.high * self.capacity:
            self._is_on = True
        elif length <= self.low * self.capacity:
            self._is_on = False
        return self._is_on


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


def skipped(found: Ints, share: float, seed: int, ordinals: Ints) -> Mask:
    """Return which tuples of a micro-batch leave out their probes: a share of them, those that will find least.

    Which of those that find the same is a matter of a hash of their ordinals. Probes that find nothing are left out
    in any case.

    >>> skipped(np.array([3, 0, 1, 1, 2]), 0.6, 7, np.arange(5)).tolist()
    [False, True, True, True, False]
    >>> skipped(np.array([3, 0, 1]), 0.0, 7, np.arange(3)).tolist()
    [False, True, False]
    """
    quota = int(np.rint(share * len(found)))
    order = np.lexsort((coins(seed, ordinals), found))
    mask: Mask = found == 0
    mask[order[:quota]] = True
    return mask
