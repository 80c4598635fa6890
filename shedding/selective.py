"""Selective processing: which part of the opposite window a probing tuple is compared with, when time is short.

Follows Part 1 of the sheet `papers/join-shedding.md` (Gedik, Wu, Yu, Liu), with its corrections. A window is cut into
cells by age. A share of the probing tuples, drawn by a hash, is compared with the whole window: from their matches
the density of each cell is learned, and from that which cells are worth the time. What may be spent is a fraction r
of all comparisons, found from how long micro-batches take. No tuple is dropped, so the answer is a subset of the exact
one, and r = 1 gives the exact one.

Window i, or side i, holds the tuples of stream i and is probed by those of the other stream; the types of a side are
those of the tuples that probe it. Ages are in ticks, relative to the instant of the probing tuple. This module knows
nothing of plans, operators or Spark: it is told what was counted and says what to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from shedding.fitting import Floats
from shedding.schedule import Ints, Mask, coins

LEAST = 1e-4
"""The smallest fraction: from 0 it could not grow again."""

SAMPLING = 0.1
"""Which share of what may be processed goes to full probes."""

LIKE_OTHERS = 30.0
"""With so many matches, what is known of a type counts as much as what is known of all."""

HALVES = 2.0
"""After how many steps counts of full probes weigh half."""


# How much


def fraction_within(share: float, sampling: float = SAMPLING) -> float:
    """Return the fraction that costs a share of all comparisons, full probes of a share r * sampling included.

    A probe costs r, or 1 if it is a full one: r + r * sampling * (1 - r) on average.

    >>> r = fraction_within(0.3)
    >>> round(r, 3), round(r + r * 0.1 * (1 - r), 9)
    (0.28, 0.3)
    """
    if share >= 1:
        return 1.0
    whole = 1 + sampling
    return max(LEAST, 2 * share / (whole + sqrt(whole * whole - 4 * sampling * share)))


# Where


def edges(length: int, cells: int) -> Ints:
    """Return the ages at which cells begin, youngest first, and where the last one ends: an age of `length` is inside.

    >>> edges(20, 3).tolist(), edges(1, 5).tolist()
    ([0, 7, 14, 21], [0, 1, 2])
    """
    cells = max(1, min(cells, length + 1))
    return np.arange(cells + 1, dtype=np.int64) * (length + 1) // cells


def ranked(densities: Floats) -> Ints:
    """Return cells from the densest to the thinnest; of equally dense ones the youngest first.

    >>> ranked(np.array([0.1, 0.3, 0.1, 0.2])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(-densities, kind="stable")


def taken(fraction: float, densities: Floats) -> Floats:
    """Return which share of each cell is processed if a fraction of all cells is, the densest first.

    >>> taken(0.375, np.array([0.1, 0.3, 0.1, 0.2])).tolist()
    [0.0, 1.0, 0.0, 0.5]
    """
    found = np.zeros(len(densities))
    found[ranked(densities)] = np.clip(fraction * len(densities) - np.arange(len(densities)), 0.0, 1.0)
    return found


@dataclass(frozen=True)
class WindowProfile:
    """What is known of a window: its length, the density of its cells, and of the types of tuples that probe it.

    `utilities` is what a comparison with a tuple of each type is worth on average, `frequencies` the share of tuples
    that are of that type. `rows` is how many there are in each cell, in a unit that both windows have in common;
    without it, all ages have as many.
    """

    length: float
    densities: Floats
    utilities: Floats
    frequencies: Floats
    rows: Floats | None = None

    @property
    def in_cells(self) -> Floats:
        """How many comparisons there are with each cell."""
        return np.full(len(self.densities), self.length / len(self.densities)) if self.rows is None else self.rows

    def of_one_type(self) -> WindowProfile:
        """Return it with all tuples alike."""
        return replace(self, utilities=np.ones(1), frequencies=np.ones(1))


def by_utility(fraction: float, sides: Sequence[WindowProfile]) -> list[Floats]:
    """Return the fraction of each window for each type, so that what is found is worth most: a fractional knapsack.

    An item is a cell of a window for one type; it weighs its rows times the frequency of the type, and is worth that
    times the utility of the type and the density of the cell. Cells of a type are taken in the order of density, so
    the best items together are fractions. With a single type, this weighs the cells of both windows against each
    other. Types that have not been seen weigh nothing and are taken as far as they would be worth it.

    >>> even, peaked = np.array([0.1, 0.1]), np.array([0.3, 0.1])
    >>> one = np.ones(1)
    >>> sides = [WindowProfile(10, even, 0.1 * one, one), WindowProfile(10, peaked, 0.2 * one, one)]
    >>> [found.tolist() for found in by_utility(0.25, sides)]
    [[0.0], [0.5]]
    """
    if fraction >= 1:
        return [np.ones(len(side.utilities)) for side in sides]
    worths, volumes, cells = [], [], []
    for side in sides:
        count, total, densest = len(side.densities), side.densities.sum(), ranked(side.densities)
        shape = side.densities[densest] * count / total if total > 0 else np.ones(count)
        worths.append(np.outer(side.utilities, shape).ravel())
        volumes.append(np.outer(side.frequencies, side.in_cells[densest]).ravel())
        cells.append(np.full(len(side.utilities), count))
    order = np.argsort(-np.concatenate(worths), kind="stable")
    volume = np.concatenate(volumes)[order]
    left = fraction * sum(float(side.in_cells.sum()) for side in sides) - (np.cumsum(volume) - volume)
    shares = (left > 0).astype(float)
    np.divide(np.clip(left, 0.0, volume), volume, out=shares, where=volume > 0)
    counts = np.concatenate(cells)
    owners = np.repeat(np.arange(len(counts)), counts)[order]
    parts = np.minimum(np.bincount(owners, shares, len(counts)) / counts, 1.0)
    return np.split(parts, np.cumsum([len(side.utilities) for side in sides])[:-1])


# What a probing tuple looks at


class Ages(NamedTuple):
    """Ages from a least one up to, not including, another, in ticks."""

    least: int
    end: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What tuples of one type look at in the opposite window: some ages, and everything if they are full probes.

    >>> selection = Selection((Ages(0, 5), Ages(10, 12)), sampling=0.5, seed=3)
    >>> selection.covers(np.array([0, 5, 11, 12])).tolist()
    [True, False, True, False]
    >>> Selection.of(selection.values()) == selection
    True
    """

    ages: tuple[Ages, ...]
    """Disjoint and in order, the youngest first."""
    sampling: float
    """The share of tuples that are full probes."""
    seed: int

    def covers(self, ages: Ints) -> Mask:
        """Return which ages are looked at."""
        if not self.ages:
            return np.zeros(len(ages), np.bool_)
        at = np.searchsorted(np.array([each.least for each in self.ages]), ages, side="right") - 1
        return (at >= 0) & (ages < np.array([each.end for each in self.ages])[at])

    def shares(self, borders: Ints) -> Floats:
        """Return which share of each of some cells is looked at.

        >>> Selection((Ages(0, 5), Ages(10, 12)), sampling=0.5, seed=3).shares(np.array([0, 10, 14])).tolist()
        [0.5, 0.5]
        """
        found = np.zeros(len(borders) - 1)
        for least, end in self.ages:
            found += np.clip(np.minimum(borders[1:], end) - np.maximum(borders[:-1], least), 0, None)
        return found / np.diff(borders)

    def is_full(self, ordinals: Ints) -> Mask:
        """Return which probing tuples are full probes, by their ordinals in their stream."""
        return coins(self.seed, ordinals) < self.sampling

    def values(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"ages": [list(each) for each in self.ages], "sampling": self.sampling, "seed": self.seed}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Selection:
        """Return the selection with some values of JSON."""
        return cls(tuple(Ages(*each) for each in values["ages"]), values["sampling"], values["seed"])


def selected(fraction: float, densities: Floats, borders: Ints) -> tuple[Ages, ...]:
    """Return the ages that a fraction of a window's cells takes up: the densest ones, of the last its young part.

    >>> selected(0.375, np.array([0.1, 0.3, 0.1, 0.2]), np.array([0, 10, 20, 30, 41]))
    (Ages(least=10, end=20), Ages(least=30, end=36))
    """
    shares = taken(fraction, densities)
    ends = borders[:-1] + np.rint(shares * np.diff(borders)).astype(np.int64)
    found: list[Ages] = []
    for least, end in zip(borders[:-1].tolist(), ends.tolist(), strict=True):
        if found and found[-1].end == least < end:
            found[-1] = Ages(found[-1].least, end)
        elif least < end:
            found.append(Ages(least, end))
    return tuple(found)


# Learning from full probes


@dataclass
class Counts:
    """What full probes of one side have counted, for each type: matches and comparisons by cell, and what is worth.

    `probes` counts all tuples of a type, not only full probes; `inside` the worth of the matches that the selection in
    force would have found as well.
    """

    matches: Floats
    comparisons: Floats
    worth: Floats
    inside: Floats
    probes: Floats

    @classmethod
    def none(cls, types: int, cells: int) -> Counts:
        """Return counts of nothing."""
        return cls(np.zeros((types, cells)), np.zeros((types, cells)), *(np.zeros(types) for _ in range(3)))

    def plus(self, other: Counts) -> Counts:
        """Return the counts of both."""
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return Counts(*(mine + theirs for mine, theirs in pairs))

    def times(self, factor: float) -> Counts:
        """Return counts that weigh some factor as much."""
        return Counts(*(factor * each for each in self._arrays()))

    def values(self) -> list[Any]:
        """Return them as JSON has them."""
        return [each.tolist() for each in self._arrays()]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Counts:
        """Return the counts with some values of JSON."""
        return cls(*(np.array(each, float) for each in values))

    def _arrays(self) -> tuple[Floats, ...]:
        return self.matches, self.comparisons, self.worth, self.inside, self.probes


def compared(instants: Ints, types: Ints, stored: Ints, borders: Ints, count: int) -> Floats:
    """Return how many comparisons full probes make, by type and cell, with tuples whose instants are in order.

    >>> compared(np.array([20, 30]), np.array([0, 1]), np.array([5, 12, 19, 20]), np.array([0, 10, 21]), 2).tolist()
    [[3.0, 1.0], [0.0, 3.0]]
    """
    below = np.searchsorted(stored, instants[:, None] - borders[None, :], side="right")
    found = np.zeros((count, len(borders) - 1))
    np.add.at(found, types, below[:, :-1] - below[:, 1:])
    return found


def matched(
    ages: Ints, types: Ints, worth: Floats, borders: Ints, selections: Sequence[Selection]
) -> tuple[Floats, Floats, Floats]:
    """Return what full probes found: matches by type and cell, their worth by type, and that of what is selected."""
    count, cells = len(selections), len(borders) - 1
    cell = np.searchsorted(borders, ages, side="right") - 1
    matches = np.bincount(types * cells + cell, minlength=count * cells).reshape(count, cells).astype(float)
    is_inside = np.zeros(len(ages), np.bool_)
    for type_, selection in enumerate(selections):
        of_type = types == type_
        is_inside[of_type] = selection.covers(ages[of_type])
    total = np.bincount(types, worth, minlength=count).astype(float)
    inside = np.bincount(types[is_inside], worth[is_inside], minlength=count).astype(float)
    return matches, total, inside


@dataclass
class Learned:
    """What full probes have told about one side: densities, utilities and frequencies, newer counts before older ones.

    What was never counted keeps what was known before: at first that all is alike.
    """

    counts: Counts
    densities: Floats
    utilities: Floats
    frequencies: Floats

    @classmethod
    def nothing(cls, types: int, cells: int) -> Learned:
        """Return what is known at first."""
        return cls(Counts.none(types, cells), np.zeros(cells), np.ones(types), np.full(types, 1 / types))

    def learn(self, counts: Counts, halves: float = HALVES) -> None:
        """Take in what was counted in one more step; with `halves` of 0, it is all that counts."""
        self.counts = self.counts.times(0.5 ** (1 / halves) if halves > 0 else 0.0).plus(counts)
        comparisons, probes = self.counts.comparisons, self.counts.probes
        self.densities = _ratio(self.counts.matches.sum(axis=0), comparisons.sum(axis=0), self.densities)
        if self.is_known:
            self.utilities = _utilities(self.counts)
        if probes.sum() > 0:
            self.frequencies = probes / probes.sum()

    @property
    def is_known(self) -> bool:
        """Tell whether there were any full probes."""
        return bool(self.counts.comparisons.any())

    def side(self, length: float, rows: Floats | None = None) -> WindowProfile:
        """Return what is known, for a window of some length, perhaps with so many rows in its cells."""
        return WindowProfile(length, self.densities, self.utilities, self.frequencies, rows)


def _utilities(counts: Counts) -> Floats:
    """Return what a comparison is worth for each type; types with few matches are taken to be much like the others.

    Otherwise, of many types, those would be chosen that had luck.
    """
    matches, comparisons = counts.matches.sum(axis=1), counts.comparisons.sum(axis=1)
    if matches.sum() == 0:
        return np.zeros(len(matches))
    chance = matches.sum() / comparisons.sum()
    chances = (matches + LIKE_OTHERS) / (comparisons + LIKE_OTHERS / chance)
    worth: Floats = chances * (counts.worth + counts.worth.sum() / matches.sum()) / (matches + 1)
    return worth


def _ratio(parts: Any, wholes: Any, otherwise: Any) -> Floats:
    """Return parts of wholes, or something else where there is no whole."""
    parts, wholes = np.asarray(parts, float), np.asarray(wholes, float)
    return np.asarray(np.where(wholes > 0, parts / np.where(wholes > 0, wholes, 1.0), otherwise), float)


# All together


@dataclass
class Adaptation:
    """Selective processing of one join: learns from the counts of each step, and says what to look at in the next.

    >>> adaptation = Adaptation(lengths=(20, 20), cells=(4, 4), seed=5)
    >>> adaptation.selections(1.0)[0][0].ages
    (Ages(least=0, end=21),)
    >>> cells, one = np.array([[9.0, 1, 1, 1]]), np.ones(1)
    >>> young = Counts(cells, np.full((1, 4), 100.0), 12 * one, 9 * one, 50 * one)
    >>> old = Counts(cells[:, ::-1] / 9, np.full((1, 4), 100.0), 1.3 * one, 0 * one, 50 * one)
    >>> adaptation.learn((young, old))
    >>> [side[0].ages for side in adaptation.selections(0.125)]
    [(Ages(least=0, end=5),), ()]
    """

    lengths: tuple[int, int]
    cells: tuple[int, int]
    types: tuple[int, int] = (1, 1)
    seed: int = 0
    sampling: float = SAMPLING
    halves: float = HALVES
    learned: tuple[Learned, Learned] = field(init=False)
    in_force: tuple[tuple[Selection, ...], tuple[Selection, ...]] = field(init=False)
    """By side and type of the probing tuple."""

    def __post_init__(self) -> None:
        count = [len(self.borders(side)) - 1 for side in (0, 1)]
        self.learned = Learned.nothing(self.types[0], count[0]), Learned.nothing(self.types[1], count[1])
        self.in_force = self.selections(1.0)

    def borders(self, side: int) -> Ints:
        """Return the ages at which the cells of a side begin and end."""
        return edges(self.lengths[side], self.cells[side])

    def learn(self, counts: tuple[Counts, Counts]) -> None:
        """Take in what was counted while the selections in force were used."""
        for side in (0, 1):
            self.learned[side].learn(counts[side], self.halves)

    def selections(self, fraction: float) -> tuple[tuple[Selection, ...], tuple[Selection, ...]]:
        """Put the selections for a fraction of all comparisons in force, by side and type; return them."""
        self._select(fraction, (None, None))
        return self.in_force

    def select(self, share: float, younger: Callable[[Ints], Floats]) -> float:
        """Put selections in force that take a share of all comparisons, if so many rows are younger than some ages.

        Returns the share that they are expected to take: ages differ in how many rows have them.

        >>> adaptation, one = Adaptation(lengths=(1999, 1999), cells=(2, 2), sampling=0.0), np.ones(1)
        >>> old = Counts(np.array([[0.0, 40.0]]), np.full((1, 2), 400.0), 40 * one, 40 * one, one)
        >>> adaptation.learn((old, old))
        >>> for old_rows in (1, 3):
        ...     share = adaptation.select(0.25, lambda ages: np.interp(ages, [0, 1000, 2000], [0, 1, 1 + old_rows]))
        ...     print(round(share, 2), adaptation.in_force[0][0].ages)
        0.25 (Ages(least=1000, end=2000),)
        0.25 (Ages(least=1000, end=1667),)
        """
        first, second = (np.diff(younger(self.borders(side))) for side in (0, 1))
        most = max(first.max(), second.max())
        if most > 0:
            first, second = first / most, second / most
        is_foreseen = first.any() and second.any()
        self._select(fraction_within(share, self.sampling), (first, second) if is_foreseen else (None, None))
        return self._share_of((first, second))

    def _select(self, fraction: float, rows: tuple[Floats | None, Floats | None]) -> None:
        """Put the selections for a fraction of all comparisons in force, with so many rows in the cells.

        As long as nothing is known of one side, both have that fraction.
        """
        sides = [known.side(*of) for known, of in zip(self.learned, zip(self.lengths, rows, strict=True), strict=True)]
        if all(learned.is_known for learned in self.learned):
            parts = by_utility(fraction, sides)
        else:
            parts = [np.repeat(by_utility(fraction, [each.of_one_type()])[0], len(each.utilities)) for each in sides]
        self.in_force = self._of_side(0, fraction, parts[0]), self._of_side(1, fraction, parts[1])

    def _share_of(self, rows: Sequence[Floats]) -> float:
        """Return which share of all comparisons the selections in force take, with so many rows in the cells."""
        taken, total = 0.0, 0.0
        for side, in_cells in enumerate(rows):
            for selection, frequency in zip(self.in_force[side], self.learned[side].frequencies, strict=True):
                own = frequency * in_cells
                total += own.sum()
                shares = selection.shares(self.borders(side))
                taken += (own * (selection.sampling + (1 - selection.sampling) * shares)).sum()
        return float(taken / total) if total > 0 else 1.0

    def _of_side(self, side: int, fraction: float, parts: Floats) -> tuple[Selection, ...]:
        densities, borders = self.learned[side].densities, self.borders(side)
        ages = {part: selected(part, densities, borders) for part in set(parts.tolist())}
        return tuple(Selection(ages[part], fraction * self.sampling, 2 * self.seed + side) for part in parts.tolist())

    def expected(self, side: int, comparisons: Floats) -> tuple[float, float]:
        """Return what full probes are expected to find with comparisons by type and cell: its worth, and that of what
        selective probes would miss of it.

        Densities are what lasts; of which ages the rows of windows are changes as soon as more of them come.

        >>> adaptation = Adaptation(lengths=(19, 19), cells=(2, 2))
        >>> one = np.ones(1)
        >>> old = Counts(np.array([[0.0, 40.0]]), np.full((1, 2), 400.0), 40 * one, 40 * one, one)
        >>> adaptation.learn((old, old))
        >>> _ = adaptation.selections(0.125)
        >>> [adaptation.expected(0, np.array([each])) for each in ([100.0, 100.0], [300.0, 20.0])]
        [(10.0, 5.0), (2.0, 1.0)]
        """
        counts = self.learned[side].counts
        if not counts.comparisons.any():
            return 0.0, 0.0
        average = counts.matches.sum() / counts.comparisons.sum()
        matches = _ratio(counts.matches, counts.comparisons, average) * comparisons
        worth = matches * _ratio(counts.worth, counts.matches.sum(axis=1), 1.0)[:, None]
        outside = np.array([1 - selection.shares(self.borders(side)) for selection in self.in_force[side]])
        return float(worth.sum()), float((worth * outside).sum())

    def worth_of(self, side: int, matches: float) -> float:
        """Return what so many matches are worth on average, as far as is known."""
        counts = self.learned[side].counts
        return matches * float(counts.worth.sum()) / max(float(counts.matches.sum()), 1.0)

    def average(self, of_ages: Callable[[Ints], Floats]) -> float:
        """Return the average for all pairs of something that depends on how far their rows are apart."""
        values, weights = list[Floats](), list[Floats]()
        for side in (0, 1):
            borders = self.borders(side)
            values.append(of_ages((borders[:-1] + borders[1:]) // 2))
            weights.append(self.learned[side].densities * np.diff(borders))
        known = np.concatenate(weights)
        return float(np.average(np.concatenate(values), weights=known if known.any() else None))
