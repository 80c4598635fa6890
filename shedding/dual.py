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

import numpy as np

from shedding.fitting import Floats


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast the machine is: V_j and V_w, and what a result costs, as a share of what a probe does.

    >>> Speeds(probes=100.0, updates=1000.0).ratio
    0.1
    """

    probes: float
    updates: float
    output: float = 0.0

    @property
    def ratio(self) -> float:
        """What an update costs, as a share of what a probe does: alpha."""
        return self.probes / self.updates

    def speed(self, probed: float, found: float) -> float:
        """Return V_q, if a share of tuples probe, and so much is found for each tuple, whether it probes or not."""
        return self.probes / (self.ratio + probed + self.output * found)


@dataclass(frozen=True, slots=True)
class Mix:
    """The cut-off M*, the speed V_opt at which it pays best, the share k_r* it leaves out, and what it brings."""

    cutoff: int
    speed: float
    rear: float
    output: float


def outputs(probabilities: Floats, speeds: Speeds) -> Floats:
    """Return the results per unit of time, O(M), for each cut-off M below which probes are left out."""
    probed, found = tails(probabilities)
    return np.array([speeds.speed(share, each) * each for share, each in zip(probed, found, strict=True)])


def best_mix(probabilities: Floats, speeds: Speeds) -> Mix:
    """Return the cut-off with most results: the smallest M that is at least what a probe's time brings on average.

    A cost of results changes how fast that is and what it brings, but not the cut-off.

    >>> best_mix(np.array([0.2, 0.3, 0.1, 0.4]), Speeds(1.0, 10.0)).cutoff
    3
    """
    free = outputs(probabilities, Speeds(speeds.probes, speeds.updates))
    cutoff = int(np.argmax(np.arange(len(free)) >= free / speeds.probes))
    probed, found = tails(probabilities)
    speed = speeds.speed(float(probed[cutoff]), float(found[cutoff]))
    return Mix(cutoff, speed, max(0.0, 1 - float(probed[cutoff])), speed * float(found[cutoff]))


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


def tails(probabilities: Floats) -> tuple[Floats, Floats]:
    """Return S(M) and T(M): the share of tuples with N >= M, and what their probes find for each tuple."""
    found = np.arange(len(probabilities)) * probabilities
    return np.cumsum(probabilities[::-1])[::-1], np.cumsum(found[::-1])[::-1]
