"""What joins with too little time look at: decided from how much they are to leave out, and what they have counted.

A join asks what is in force and counts what it does; whoever decides, in the same process or on the driver of a
cluster, learns from that and says what is in force next. Everything goes through JSON, so that it can be sent, and
written down before it is gone by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import operators as op
from planner.plan import Plan
from shedding.dual import Speeds, best_mix, cut
from shedding.selective import Adaptation, Ages, Counts, Floats, Ints, Selection
from shedding.utilities import TYPES

CELLS = 20
"""Into how many cells by age a window is cut."""

HALVES = 8.0
"""After how many micro-batches what joins counted weighs half."""

MOST_EXCESS = 10.0
"""How many times as much, or as little, as was meant to be is taken to be looked at, at most."""

MOST_MATCHES = 1024
"""Rows that find more others than so many are taken to find so many."""

ENOUGH_MATCHES = 5.0
"""From how many matches on full probes say more of how wrong expectations are than that they are right."""

ENOUGH_SAMPLED = 0.005
"""From which share of full probes on they stand for all others of their micro-batch."""

LEAST_KEPT = 1e-4
"""The share of all pairs that is taken to come to a join at least."""

_FADES = 0.5 ** (1 / HALVES)

ByAge = Callable[[Ints], Floats]
"""Something of pairs that depends on how many ticks their rows are apart."""

NOTHING: Mapping[str, ByAge] = {}


def evenly(ages: Ints) -> Floats:
    """Return how many rows are younger than some ages if they come evenly, in whatever unit."""
    return ages.astype(float)


@dataclass(frozen=True)
class Selections:
    """What rows of each input look at, by the type of the row; `windows` are those that are looked at."""

    of_window: tuple[tuple[Selection, ...], tuple[Selection, ...]]

    def are_everything(self, windows: tuple[int, int]) -> bool:
        """Tell whether nothing is left out of windows of some lengths."""
        whole = ((Ages(0, windows[0]),), (Ages(0, windows[1]),))
        return all(each.ages == ages for side, ages in zip(self.of_window, whole, strict=True) for each in side)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Selections:
        """Return the selections that were decided."""
        first, second = (tuple(Selection.of(each) for each in side) for side in values["selections"])
        return cls((first, second))


@dataclass(frozen=True)
class Cutoff:
    """Rows that find fewer others than so many do not look, nor do a share of those that find just as many."""

    matches: int = 0
    tied: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Cutoff:
        """Return the cut-off that was decided."""
        return cls(values["cutoff"], values["tied"])


class Decider(ABC):
    """Decides for one join. `fraction` is the share of its work that it is to leave out."""

    fraction = 0.0

    @abstractmethod
    def decide(self, fraction: float, younger: ByAge = evenly) -> None:
        """Leave out a share of the work of rows that will see so many others that are younger than some ages."""

    @abstractmethod
    def learn(self, counted: Sequence[Mapping[str, Any]], kept: ByAge | None = None) -> None:
        """Take in what the buckets of the join have counted in a micro-batch.

        `kept` is the share of pairs whose rows were not lost before they came to the join, by how far these are apart.
        """

    @abstractmethod
    def in_force(self) -> dict[str, Any]:
        """Return what the join goes by."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """Return everything that is needed to go on, as JSON has it."""

    @abstractmethod
    def take_over(self, values: Mapping[str, Any]) -> None:
        """Go on from values."""

    @abstractmethod
    def recall(self) -> float | None:
        """Return how much of all pairs, by what they are worth, has been found so far; None if that is not known."""


class Selecting(Decider):
    """Decides what a `selective-join` looks at."""

    def __init__(self, join: op.SelectiveJoin) -> None:
        types = TYPES if join.types[1] else 1, TYPES if join.types[0] else 1
        lengths = join.windows[0] - 1, join.windows[1] - 1
        self._adaptation = Adaptation(lengths, (CELLS, CELLS), types, join.seed, halves=HALVES)
        self._meant = 1.0
        """Which share of all that could be looked at is meant to be."""
        self._found = self._missed = 0.0
        """What pairs were worth that were found, and that were missed, as full probes tell."""
        self._taken_for_inside = [[0.0, 0.0], [0.0, 0.0]]
        """Of what full probes of late were expected to find inside of selections, what was outside; and all of it."""
        self._looked = [0.0, 0.0]
        """How many rows were looked at of late, and were meant to be."""

    def decide(self, fraction: float, younger: ByAge = evenly) -> None:
        self.fraction = fraction
        self._meant = self._adaptation.select((1 - fraction) / self._excess if fraction > 0 else 1.0, younger)

    @property
    def _excess(self) -> float:
        """How many times as much is looked at as is meant to be: it is not known quite how many rows have which age."""
        looked, meant = self._looked
        return min(max(looked / meant, 1 / MOST_EXCESS), MOST_EXCESS) if looked and meant else 1.0

    def learn(self, counted: Sequence[Mapping[str, Any]], kept: ByAge | None = None) -> None:
        total, looked = (sum(each["work"][at] for each in counted) for at in (0, 1))
        if self.fraction > 0:
            self._looked = [_FADES * self._looked[0] + looked, _FADES * self._looked[1] + self._meant * total]
        sides = []
        for side in (0, 1):
            counts = Counts.none(self._adaptation.types[side], len(self._adaptation.borders(side)) - 1)
            for each in counted:
                counts = counts.plus(Counts.of(each["counts"][side]))
            sides.append(counts)
        found = sum(each["found"] for each in counted)
        missed = sum(
            self._missed_in(side, sides[side], sum(each["total"][side] for each in counted)) for side in (0, 1)
        )
        self._found += found
        self._adaptation.learn((sides[0], sides[1]))
        share = 1.0 if kept is None else max(self._adaptation.average(kept), LEAST_KEPT)
        self._missed += missed + (found + missed) * (1 / share - 1)

    def _missed_in(self, side: int, counts: Counts, total: float) -> float:
        """Return what was missed in a micro-batch, in which an exact join would have made so many comparisons.

        Its full probes stand for all others, among which they were drawn. If they are too few, those before it tell,
        but they are what the selection was made by: of what they have inside of it, others have some outside. How much
        that is, full probes tell by what they have missed since.
        """
        own = counts.comparisons if counts.comparisons.any() else self._adaptation.learned[side].counts.comparisons
        compared, sampling = float(own.sum()), self._adaptation.in_force[side][0].sampling
        if self.fraction <= 0:
            return 0.0
        whole, outside_of_it = self._adaptation.expected(side, own)
        worth, missed = float(counts.worth.sum()), float((counts.worth - counts.inside).sum())
        if whole:
            expected = outside_of_it / whole
            outside, inside = (_FADES * each for each in self._taken_for_inside[side])
            outside, inside = outside + missed - expected * worth, inside + (1 - expected) * worth
            self._taken_for_inside[side] = [outside, inside]
            share = expected + (1 - expected) * outside / (inside + self._adaptation.worth_of(side, ENOUGH_MATCHES))
            found = whole * float(min(max(share, 0.0), 1.0))
        else:
            found = missed
        if sampling >= ENOUGH_SAMPLED:
            return missed * (1 - sampling) / sampling
        return (1 - sampling) * found * total / compared if compared else 0.0

    def in_force(self) -> dict[str, Any]:
        sides = self._adaptation.in_force
        return {"fraction": self.fraction, "selections": [[each.values() for each in side] for side in sides]}

    def values(self) -> dict[str, Any]:
        counts = [learned.counts.values() for learned in self._adaptation.learned]
        return {
            **self.in_force(),
            "counts": counts,
            "pairs": [self._found, self._missed],
            "taken_for_inside": self._taken_for_inside,
            "looked": self._looked,
            "meant": self._meant,
        }

    def take_over(self, values: Mapping[str, Any]) -> None:
        self.fraction, self._looked, self._meant = values["fraction"], list(values["looked"]), values["meant"]
        self._adaptation.in_force = Selections.of(values).of_window
        self._found, self._missed = values["pairs"]
        self._taken_for_inside = [list(each) for each in values.get("taken_for_inside", self._taken_for_inside)]
        for learned, counts in zip(self._adaptation.learned, values["counts"], strict=True):
            learned.learn(Counts.of(counts), halves=0.0)

    def recall(self) -> float | None:
        return _share(self._found, self._missed)


def _share(found: float, missed: float) -> float | None:
    return found / (found + missed) if found + missed else None


class Skipping(Decider):
    """Decides which rows of a `dual-join` do not look for others: those that find fewest."""

    def __init__(self) -> None:
        self._histogram = np.zeros(MOST_MATCHES + 1)
        """How many rows found so many others, of late."""
        self._costs = [0.0, 0.0, 0.0, 0.0]
        """Rows that looked, the seconds that took; rows that were kept, and the seconds that took."""
        self._cutoff = Cutoff()
        self._found = self._missed = 0.0

    def decide(self, fraction: float, younger: ByAge = evenly) -> None:
        self.fraction = fraction
        share = self._share_of_rows(fraction)
        self._cutoff = Cutoff() if share <= 0 else Cutoff(*cut(self._shares(), share))

    def _shares(self) -> Any:
        total = self._histogram.sum()
        return self._histogram / total if total else np.concatenate(([1.0], np.zeros(MOST_MATCHES)))

    def _share_of_rows(self, fraction: float) -> float:
        """Return the share of rows, those that find fewest, whose looking is a fraction of all the work.

        Looking costs as much as a result does.
        """
        shares = self._shares()
        work = np.cumsum(np.append(0.0, shares * (1 + np.arange(len(shares)))))
        return float(np.interp(fraction * work[-1], work, np.cumsum(np.append(0.0, shares))))

    @property
    def best_fraction(self) -> float:
        """The fraction beyond which it pays more to drop rows before they come: the paper's optimal speed."""
        looked, looking, kept, keeping = self._costs
        if not looking or not keeping or not self._histogram.any():
            return 1.0
        shares = self._shares()
        mix = best_mix(shares, Speeds(looked / looking, kept / keeping))
        work = shares * (1 + np.arange(len(shares)))
        return float(work[: mix.cutoff].sum() / work.sum())

    def learn(self, counted: Sequence[Mapping[str, Any]], kept: ByAge | None = None) -> None:
        self._histogram *= _FADES
        self._costs = [_FADES * each for each in self._costs]
        for each in counted:
            self._histogram[: len(each["histogram"])] += each["histogram"]
            self._costs = [a + b for a, b in zip(self._costs, each["costs"], strict=True)]
            self._found += each["found"]
            self._missed += each["missed"]

    def in_force(self) -> dict[str, Any]:
        return {"fraction": self.fraction, "cutoff": self._cutoff.matches, "tied": self._cutoff.tied}

    def values(self) -> dict[str, Any]:
        last = int(np.flatnonzero(self._histogram).max(initial=-1)) + 1
        return {
            **self.in_force(),
            "histogram": self._histogram[:last].tolist(),
            "costs": self._costs,
            "pairs": [self._found, self._missed],
        }

    def take_over(self, values: Mapping[str, Any]) -> None:
        self.fraction = values["fraction"]
        self._cutoff = Cutoff.of(values)
        self._histogram[: len(values["histogram"])] = values["histogram"]
        self._costs = list(values["costs"])
        self._found, self._missed = values["pairs"]

    def recall(self) -> float | None:
        return _share(self._found, self._missed)


class Choices:
    """What the joins of a plan that look at a part go by, and how that is decided."""

    def __init__(self, plan: Plan) -> None:
        self.joins = {each.schedule: each for each in plan.operators if isinstance(each, op.PartialJoin)}
        self.deciders: dict[str, Decider] = {
            name: Selecting(join) if isinstance(join, op.SelectiveJoin) else Skipping()
            for name, join in self.joins.items()
        }
        self.in_force: dict[str, Selections | Cutoff] = {}
        self.follow(self.for_tasks())

    def decide(self, name: str, fraction: float, younger: ByAge = evenly) -> None:
        """Let a join leave out a share of its work from now on; so many of its rows will be younger than some ages."""
        self.deciders[name].decide(fraction, younger)
        self.follow({name: self.deciders[name].in_force()})

    def renew(self) -> None:
        """Leave out as much as before, by what has been learned since."""
        for name, decider in self.deciders.items():
            if decider.fraction > 0:
                self.decide(name, decider.fraction)

    def learn(self, counted: Mapping[str, Iterable[Mapping[str, Any]]], kept: Mapping[str, ByAge] = NOTHING) -> None:
        """Take in what buckets of joins have counted in a micro-batch, and which share of all pairs came to them."""
        for name, each in counted.items():
            self.deciders[name].learn(list(each), kept.get(name))

    def follow(self, values: Mapping[str, Any]) -> None:
        """Go by what others have decided, as far as it is about joins that are here."""
        for name in self.joins.keys() & values.keys():
            kind = Selections if isinstance(self.joins[name], op.SelectiveJoin) else Cutoff
            self.in_force[name] = kind.of(values[name])

    def for_tasks(self) -> dict[str, Any]:
        """Return what joins go by, as JSON has it."""
        return {name: decider.in_force() for name, decider in self.deciders.items()}

    def to_values(self) -> dict[str, Any]:
        """Return everything that is needed to go on."""
        return {name: decider.values() for name, decider in self.deciders.items()}

    def take_over(self, values: Mapping[str, Any]) -> None:
        """Go on from what was written; joins that are not there any more are left."""
        for name in self.deciders.keys() & values.keys():
            self.deciders[name].take_over(values[name])
        self.follow(self.for_tasks())
