"""Semantic eviction: which stored rows of an equi-join stay when the memory for them is short.

Follows section 2.5 of the sheet `papers/join-shedding.md`. What a stored row is worth depends on its key and its age
only: how often partners with that key arrive, and for how long it will still be in the window.

| policy | what stays |
|---|---|
| RAND | a share of all rows, by a coin for each row |
| PROB | rows of the keys whose partners arrive most often; of the last such keys the newest rows |
| LIFE | rows that can expect most partners in the time that they have left |

Each is for a budget that is divided evenly among the sides of the join, or, pooled, for one that the sides compete for
(RANDV, PROBV, LIFEV in the paper).

Keys are 64-bit hashes of join keys. Time is counted in ticks. A row that is held for n ticks meets the partners of the
n ticks after its own; the window of a side is for how many ticks its rows have to be held for an exact join: w where a
pair may be w ticks apart, w - 1 where it has to be closer.

Everything here is a function of its inputs and a seed. It knows nothing of plans, operators and Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from shedding.schedule import Ints, Mask, coins

Floats = npt.NDArray[np.float64]

FORGOTTEN = 1 / 16
"""Keys of which less than so much of an arrival is left are forgotten."""

_SAMPLED = 256
"""How many keys are sampled to learn about those that are not tracked."""

_SAMPLE_SEED = 0x5EED

ROW_OVERHEAD = 72
"""Bytes that a row takes beside its values, at most: when it starts and ends, its weight, its key's code and its own,
its size, its entries in an index, and what is kept free for the next ones."""


class Policy(StrEnum):
    """What decides about a row."""

    RAND = "rand"
    PROB = "prob"
    LIFE = "life"


# ----------------------------------------------------------------------------------------- how often keys arrive


@dataclass(slots=True, eq=False)
class Frequencies:
    """How often keys arrive on a stream: exponentially decaying counts of those that arrive most often.

    At most `capacity` keys are tracked, by the rule of SpaceSaving: a key that is not tracked may have arrived `floor`
    times without having been noticed, and starts from there. The true count of a tracked key is never more than its
    weight and never less than its weight without its error. A sample of keys, chosen by their hashes, tells how often
    the others arrive.

    >>> seen = Frequencies(capacity=10, half_life=100)
    >>> seen.observe(np.array([7, 7, 7, 8]), ticks=2)
    >>> seen.rates(np.array([7, 8, 9])).tolist(), seen.rate
    ([1.5, 0.5, 0.0], 2.0)
    >>> Frequencies.of(seen.values()) == seen
    True
    """

    capacity: int = 4096
    half_life: float = float("inf")
    """After so many ticks an arrival counts half."""
    elapsed: float = 0.0
    """Ticks, those of long ago counting less, as arrivals do."""
    total: float = 0.0
    floor: float = 0.0
    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    weights: Floats = field(default_factory=lambda: np.empty(0))
    errors: Floats = field(default_factory=lambda: np.empty(0))
    sampled_below: float = 1.0
    """Keys whose coin is below this are sampled."""
    sampled_keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    sampled_weights: Floats = field(default_factory=lambda: np.empty(0))

    # Learning

    def observe(self, keys: Ints, ticks: float) -> None:
        """Learn which keys arrived, once for each arrival, in so many ticks."""
        self.advance(ticks)
        self.add(*np.unique(keys, return_counts=True))

    def advance(self, ticks: float) -> None:
        """Let time pass."""
        left = 0.5 ** (ticks / self.half_life)
        self.elapsed = self.elapsed * left + ticks
        self.total *= left
        self.floor *= left
        self.weights = self.weights * left
        self.errors = self.errors * left
        self.sampled_weights = self.sampled_weights * left

    def add(self, keys: Ints, counts: npt.NDArray[Any]) -> None:
        """Count arrivals in the ticks that have passed; each key is named once."""
        weights = counts.astype(np.float64)
        self.total += float(weights.sum())
        self._track(keys.astype(np.int64), weights)
        self._sample(keys.astype(np.int64), weights)

    def _track(self, keys: Ints, weights: Floats) -> None:
        """Add weights; a key that is not tracked may have arrived as often before as the floor says."""
        together = np.union1d(self.keys, keys)
        mine, others = np.searchsorted(together, self.keys), np.searchsorted(together, keys)
        summed, missed = np.full(len(together), self.floor), np.full(len(together), self.floor)
        summed[mine], missed[mine] = self.weights, self.errors
        summed[others] += weights
        stays = np.zeros(len(together), np.bool_)
        stays[np.lexsort((together, -summed))[: self.capacity]] = True
        stays &= summed >= FORGOTTEN
        self.floor = float(summed[~stays].max(initial=self.floor))
        self.keys, self.weights, self.errors = together[stays], summed[stays], missed[stays]

    def _sample(self, keys: Ints, weights: Floats) -> None:
        together, at = np.unique(np.concatenate((self.sampled_keys, keys)), return_inverse=True)
        summed = np.bincount(at, np.concatenate((self.sampled_weights, weights)), len(together)).astype(np.float64)
        tossed = coins(_SAMPLE_SEED, together)
        stays = (tossed < self.sampled_below) & (summed >= FORGOTTEN)
        if stays.sum() > _SAMPLED:
            self.sampled_below = float(np.partition(tossed[stays], _SAMPLED)[_SAMPLED])
            stays &= tossed < self.sampled_below
        elif stays.sum() < _SAMPLED // 4:
            self.sampled_below = min(1.0, 2 * self.sampled_below)
        self.sampled_keys, self.sampled_weights = together[stays], summed[stays]

    # Asking

    @property
    def rate(self) -> float:
        """Arrivals per tick."""
        return self.total / self.elapsed if self.elapsed else 0.0

    @property
    def rate_of_others(self) -> float:
        """Arrivals per tick of a key that is not tracked, on average over those that arrive at all."""
        others = self.sampled_weights[~np.isin(self.sampled_keys, self.keys)]
        return float(others.mean()) / self.elapsed if len(others) else 0.0

    def rates(self, keys: Ints) -> Floats:
        """Return how often keys arrive, in arrivals per tick."""
        if not self.elapsed:
            return np.zeros(len(keys))
        return looked_up(self.keys, (self.weights - self.errors) / self.elapsed, self.rate_of_others, keys)

    def shares(self, keys: Ints) -> Floats:
        """Return which share of all arrivals has each of the keys."""
        return self.rates(keys) / self.rate if self.rate else np.zeros(len(keys))

    # Keeping

    def values(self) -> dict[str, Any]:
        """Return everything that is needed to go on, as JSON has it."""
        return {
            "capacity": self.capacity,
            "half_life": None if np.isinf(self.half_life) else self.half_life,
            "elapsed": self.elapsed,
            "total": self.total,
            "floor": self.floor,
            "keys": self.keys.tolist(),
            "weights": self.weights.tolist(),
            "errors": self.errors.tolist(),
            "sampled_below": self.sampled_below,
            "sampled_keys": self.sampled_keys.tolist(),
            "sampled_weights": self.sampled_weights.tolist(),
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Frequencies:
        """Return the frequencies with some values of JSON."""
        return cls(
            values["capacity"],
            float("inf") if values["half_life"] is None else values["half_life"],
            values["elapsed"],
            values["total"],
            values["floor"],
            np.array(values["keys"], np.int64),
            np.array(values["weights"], np.float64),
            np.array(values["errors"], np.float64),
            values["sampled_below"],
            np.array(values["sampled_keys"], np.int64),
            np.array(values["sampled_weights"], np.float64),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frequencies) and self.values() == other.values()


def looked_up(known: Ints, values: Floats, default: float, keys: Ints) -> Floats:
    """Return the values of keys, given those of known ones in order; `default` for the rest."""
    if not len(known):
        return np.full(len(keys), default)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, values[at], default)


# ------------------------------------------------------------------------------------------- who is held, how long


@dataclass(frozen=True, slots=True)
class ArrivalRates:
    """One side of a join: how often each key arrives on it, and how often its partners do, in arrivals per tick.

    The last of the rates are about all keys that are not named: how often any of them arrives, and how often the
    partners of one of them do. `size` is what a row takes of the budget: 1 if that is a number of rows, or its bytes.
    """

    keys: Ints
    arrivals: Floats
    partners: Floats
    window: float
    size: float = 1.0

    @classmethod
    def of(cls, own: Frequencies, partner: Frequencies, window: float, size: float = 1.0) -> ArrivalRates:
        """Return the side on which `own` arrives, to be joined with `partner`.

        >>> left, right = Frequencies(), Frequencies()
        >>> left.observe(np.array([1, 1, 2]), 1); right.observe(np.array([2, 2]), 1)
        >>> side = ArrivalRates.of(left, right, window=10)
        >>> side.keys.tolist(), side.arrivals.tolist(), side.partners.tolist()
        ([1, 2], [2.0, 1.0, 0.0], [0.0, 2.0, 0.0])
        """
        keys = np.union1d(own.keys, partner.keys)
        arrivals = own.rates(keys)
        others = max(0.0, own.rate - float(arrivals.sum()))
        return cls(
            keys, np.append(arrivals, others), np.append(partner.rates(keys), partner.rate_of_others), window, size
        )

    def partners_of(self, keys: Ints) -> Floats:
        """Return how many partners of each key arrive per tick."""
        return looked_up(self.keys, self.partners[:-1], float(self.partners[-1]), keys)

    def expected(self, keys: Ints, ages: npt.NDArray[Any]) -> Floats:
        """Return how many more partners rows of some ages can expect: what is lost with those that are evicted."""
        return self.partners_of(keys) * np.maximum(self.window - ages, 0.0)


# ----------------------------------------------------------------------------------------------- a hard limit


def priorities(
    policy: Policy, side: ArrivalRates, keys: Ints, ages: npt.NDArray[Any], ids: Ints, seed: int = 0
) -> Floats:
    """Return what rows are worth to a policy, for each unit of the budget that they take."""
    match policy:
        case Policy.RAND:
            return 1.0 - coins(seed, ids)
        case Policy.PROB:
            return side.partners_of(keys) / side.size
        case Policy.LIFE:
            return side.expected(keys, ages) / side.size


def within_budget(worth: Floats, ages: npt.NDArray[Any], sizes: npt.NDArray[Any], budget: float) -> Mask:
    """Return which rows stay if no more than a budget can: the worthiest, and of equal ones the newest.

    >>> within_budget(np.array([1.0, 3.0, 3.0]), np.array([0, 5, 2]), np.ones(3), 1).tolist()
    [False, False, True]
    """
    order = np.lexsort((ages, -worth))
    stays = np.zeros(len(worth), np.bool_)
    stays[order] = np.cumsum(sizes[order]) <= budget
    return stays
