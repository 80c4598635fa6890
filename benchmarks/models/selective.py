"""Selective processing: how much and where by the paper's rules, what is found, and how small cells should be.

Follows Part 1 of the sheet `papers/join-shedding.md`; `shedding/selective.py` has the terms. The product takes the
fraction from its control loop, weighs the cells of both windows by their utility, and estimates its recall otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shedding.fitting import Floats
from shedding.selective import LEAST

BOOST = 1.2
"""By which factor the fraction grows again, at most, from one step to the next."""


def adapted(fraction: float, fetched: float, offered: float, boost: float = BOOST) -> float:
    """Return the next fraction, if so many of the tuples that were offered could be fetched: down at once, up slowly.

    >>> adapted(1.0, 40, 100), adapted(0.5, 120, 100), adapted(0.9, 0, 0), adapted(0.5, 0, 100)
    (0.4, 0.6, 1.0, 0.0001)
    """
    share = fetched / offered if offered > 0 else 1.0
    return max(LEAST, share * fraction if share < 1 else min(1.0, boost * fraction))


def by_direction(fraction: float, lengths: tuple[float, float], means: tuple[float, float]) -> tuple[float, float]:
    """Return the fractions of both windows: the denser one first, with as many comparisons as one fraction for both.

    >>> by_direction(0.3, (10, 10), (0.2, 0.1)), by_direction(0.75, (10, 10), (0.1, 0.2))
    ((0.6, 0.0), (0.5, 1.0))
    """
    first, second = lengths
    budget = fraction * (first + second)
    if means[0] >= means[1]:
        part = min(1.0, budget / first)
    else:
        part = min(1.0, max(0.0, (budget - second) / first))
    return part, min(1.0, max(0.0, (budget - part * first) / second))


@dataclass
class Recall:
    """How much of the exact answer is found, by what full probes found inside and outside of what was selected.

    A full probe stands for 1 / sampling tuples, all but itself selective ones. Selections are made before the probes
    that judge them, so that a choice by chance is not taken for a good one.

    >>> recall = Recall()
    >>> recall.add(inside=30.0, total=40.0, sampling=0.1)
    >>> recall.add(inside=0.0, total=10.0, sampling=0.1)
    >>> round(recall.value(), 3)
    0.64
    """

    found: float = 0.0
    exact: float = 0.0

    def add(self, inside: float, total: float, sampling: float) -> None:
        """Take in what full probes found."""
        if sampling > 0:
            self.found += total + inside * (1 - sampling) / sampling
            self.exact += total / sampling

    def value(self) -> float | None:
        """Return the recall; None if nothing is known."""
        return self.found / self.exact if self.exact > 0 else None


# How small cells should be


def cell_masses(density: Floats, length: float, cell: float, steps: int = 200) -> Floats:
    """Return the matches in each of 1 + ceil(length / cell) cells that slide by whole cells, on average over time.

    `density` has the match density at evenly spaced ages from 0 to `length`.

    >>> cell_masses(np.ones(1001), 1.0, 0.5).round(3).tolist()
    [0.25, 0.5, 0.25]
    """
    ages = np.linspace(0.0, length, len(density))
    area = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(ages))))
    count = 1 + int(np.ceil(length / cell - 1e-9))
    ends = (np.arange(steps)[:, None] + 0.5) / steps * cell + np.arange(count) * cell
    masses: Floats = np.mean(np.interp(ends, ages, area) - np.interp(ends - cell, ages, area), axis=0)
    return masses


def captured(masses: Floats, fraction: float, length: float, cell: float) -> float:
    """Return the matches that are found in a fraction of a window if its best cells are taken first."""
    best = np.sort(masses)[::-1]
    return float((best * np.clip(fraction * length / cell - np.arange(len(best)), 0.0, 1.0)).sum())


def largest_area(density: Floats, length: float, width: float) -> float:
    """Return the largest area under a density over any set of ages of some total width.

    >>> round(largest_area(np.array([0.0, 1.0, 2.0, 1.0]), 4.0, 2.0), 3)
    3.0
    """
    step = length / len(density)
    best = np.sort(density)[::-1]
    return float((best * step * np.clip(width / step - np.arange(len(best)), 0.0, 1.0)).sum())


def optimality(density: Floats, length: float, cell: float, fraction: float) -> float:
    """Return what cells of some size find of what infinitely small ones would.

    >>> optimality(np.ones(1001), 1.0, 0.05, 0.5) > 0.99
    True
    """
    found = captured(cell_masses(density, length, cell), fraction, length, cell)
    return found / largest_area(density, length, length * min(1.0, fraction))
