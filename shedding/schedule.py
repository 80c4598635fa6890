"""Verdicts: which units of time a query keeps and which it loses, and when that is decided.

Follows section 4 of the sheet `papers/windrop.md`: one coin for each granule of units; where shedding sets in within a
granule, one for the rest of it. What a lost granule owes is paid as soon as no more than `batch` units in a row are
lost by that. The paper's granules are batches, which is what lets rows of overlapping windows be dropped; where windows
do not overlap, a granule is one unit, so that what is kept is spread evenly and no work comes in heaps. The paper
tosses each coin for itself. Here what has been lost too little or too much so far counts as well: it is never off by
more than a granule, however the coins fall, and the queue of a machine that sheds as much as it has to stays short.

Coins are hashes of a seed and the absolute number of the granule, so that a schedule is a function of its decisions
alone: whoever goes on from the same state draws the same verdicts, in any process, any number of times.

Unit u ends at u * length and is about the last `length` ticks up to there. Units are decided in order, when somebody
first asks about them; a decision counts from the first unit that is not decided, or a later one. Before the first
decision everything is kept. This module knows nothing of plans and rows.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

KEPT_RUNS = 1024
"""How many runs of lost units a schedule remembers although nobody will ask about them, to tell what was lost."""

MOST_DECISIONS = 64
"""How many decisions it remembers."""

FROM_THE_START = -(2**62)
"""The unit of a decision that counts from the first unit that anybody asks about."""

_COINS = 1024
"""How many coins are tossed at once."""


class Decision(NamedTuple):
    """From a unit on, a share of all units is lost; all of them with a fraction of 1, whatever the gap."""

    unit: int
    fraction: float


class UnitRun(NamedTuple):
    """Units in a row, from the first up to, not including, the last."""

    first: int
    last: int


def coins(seed: int, numbers: Ints) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each granule, the same for ever.

    >>> bool((coins(1, np.arange(3)) == coins(1, np.arange(3))).all()), bool((coins(1, np.arange(9)) < 1).all())
    (True, True)
    """
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) + np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def most_lost(batch: int) -> float:
    """Return the largest share of units that can be lost when no more than `batch` in a row may be.

    >>> most_lost(1), most_lost(3)
    (0.5, 0.75)
    """
    return batch / (batch + 1)


@dataclass(slots=True)
class Compensation:
    """How a coin becomes verdicts: `run` units have been lost in a row, `owed` are still to be lost."""

    batch: int
    run: int = 0
    owed: int = 0

    def begin(self, is_lost: bool, fraction: float, units: int) -> None:
        """Take in the coin for so many units; a debt that could never be paid does not grow for ever."""
        if is_lost:
            self.owed += units
        if fraction > most_lost(self.batch):
            self.owed = min(self.owed, 2 * self.batch)

    def next(self, most: int) -> tuple[bool, int]:
        """Return whether the next units are lost, and how many of them, up to `most`, have that verdict."""
        if self.owed > 0 and self.run < self.batch:
            count = min(self.owed, self.batch - self.run, most)
            self.owed -= count
            self.run += count
            return True, count
        count = most if self.owed == 0 else 1
        self.run = 0
        return False, count


@dataclass(slots=True)
class Schedule:
    """The verdicts of one group of queries.

    >>> schedule = Schedule(length=10, batch=2, seed=1)
    >>> schedule.decide(0.5, 0)
    Decision(unit=0, fraction=0.5)
    >>> int(schedule.kept(np.arange(12)).sum())
    6
    >>> Schedule.from_json(schedule.to_json()) == schedule
    True
    """

    length: int
    batch: int
    seed: int = 0
    granule: int = 0
    """How many units a coin is about; a batch of them if nothing is said."""
    next_unit: int | None = None
    """The first unit that is not decided; None as long as nobody has asked."""
    decisions: list[Decision] = field(default_factory=list)
    """The last decisions, in the order of their units: the one in force, some before it, and those that come later."""
    lost: list[UnitRun] = field(default_factory=list)
    """The last runs of lost units."""
    lost_units: int = 0
    """How many units have been lost in all."""
    first_unit: int | None = None
    """The first unit that anybody has asked about."""
    remembered_since: int | None = None
    """The first unit of what is remembered, if some has been forgotten."""
    level: float = 0.0
    """How many units more should have been lost than a coin has fallen for, less than a granule either way."""
    _debt: Compensation = field(init=False)
    _starts: Ints = field(init=False, compare=False, repr=False)
    _ends: Ints = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.granule = self.granule or self.batch
        self._debt = Compensation(self.batch)
        self._index()

    # Deciding

    @property
    def fraction(self) -> float:
        """The share of units that is being lost."""
        return next((d.fraction for d in reversed(self.decisions) if self._is_in_force(d)), 0.0)

    @property
    def wanted(self) -> float:
        """The share of units that is to be lost by the last decision."""
        return self.decisions[-1].fraction if self.decisions else 0.0

    @property
    def is_feasible(self) -> bool:
        """Tell whether the gap allows as much to be lost as is wanted, or everything is on purpose."""
        return self.wanted >= 1 or self.wanted <= most_lost(self.batch)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing was ever decided, and nothing lost."""
        return not self.decisions and not self.lost

    def decide(self, fraction: float, unit: int | None = None) -> Decision:
        """Lose a share of the units from one on, or from the first one that is not decided.

        A decision that others are to follow names its unit: only then is it the same for all of them.
        """
        assert 0 <= fraction <= 1, f"a fraction is between 0 and 1, not {fraction}"
        first = FROM_THE_START if self.next_unit is None else self.next_unit
        decision = Decision(first if unit is None else max(unit, first), fraction)
        earlier = [d for d in self.decisions if d.unit < decision.unit]
        self.decisions = [*earlier[1 - MOST_DECISIONS :], decision]
        return decision

    def first_open(self, instant: int, size: int) -> int:
        """Return the first unit that needs nothing up to an instant, if each needs the `size` ticks up to its end."""
        return -(-(instant + size) // self.length)

    def decide_until(self, unit: int, since: int | None = None) -> None:
        """Draw the verdicts of all units before one; `since` is the first of those that are asked about."""
        asked = unit - 1 if since is None else since
        self.first_unit = asked if self.first_unit is None else min(asked, self.first_unit)
        if self.next_unit is None:
            first = next((d.unit for d in self.decisions), asked)
            self.next_unit = asked if first == FROM_THE_START else first
        if unit <= self.next_unit:
            return
        before = len(self.lost), self.lost_units
        at = self.next_unit
        while at < unit:
            following = next((d.unit for d in self.decisions if d.unit > at), unit)
            at = self._draw(at, min(unit, following))
        self.next_unit = unit
        if before != (len(self.lost), self.lost_units):
            self._index()

    def _draw(self, first: int, last: int) -> int:
        """Draw the verdicts of units that one decision is about; return the unit after them."""
        decision = next((d for d in reversed(self.decisions) if d.unit <= first), Decision(first, 0.0))
        debt = self._debt
        if decision.fraction >= 1:
            self._lose(first, last)
            debt.run, debt.owed = self.batch, 0
            return last
        if decision.fraction == 0 and first == decision.unit:
            debt.owed, self.level = 0, 0.0
        tossed, base = np.empty(0), 0
        begins = first == decision.unit and self._fraction_before(first) == 0
        while first < last:
            if decision.fraction == 0 and debt.owed == 0:
                debt.run = 0
                return last
            number, into = divmod(first, self.granule)
            if into == 0 or begins:
                begins = False
                if not base <= number < base + len(tossed):
                    tossed, base = coins(self.seed, np.arange(number, number + _COINS)), number
                units = self.granule - into
                debt.begin(
                    self._falls(float(tossed[number - base]), decision.fraction, units), decision.fraction, units
                )
            is_lost, count = debt.next(min(last, (number + 1) * self.granule) - first)
            if is_lost:
                self._lose(first, first + count)
            first += count
        return last

    def _falls(self, coin: float, fraction: float, units: int) -> bool:
        """Tell whether a coin about some units says that they are lost."""
        self.level += fraction * units
        is_lost = self.level > coin * units
        self.level -= units if is_lost else 0
        return is_lost

    def _fraction_before(self, unit: int) -> float:
        """Return the fraction that was in force before a unit."""
        return next((d.fraction for d in reversed(self.decisions) if d.unit < unit), 0.0)

    def _lose(self, first: int, last: int) -> None:
        self.lost_units += last - first
        if self.lost and self.lost[-1].last == first:
            self.lost[-1] = UnitRun(self.lost[-1].first, last)
        else:
            self.lost.append(UnitRun(first, last))

    def forget_before(self, unit: int) -> None:
        """Learn that nobody will ask for verdicts on units before one any more."""
        unneeded = bisect_left(self.lost, unit, key=lambda run: run.last)
        surplus = min(unneeded, len(self.lost) - KEPT_RUNS)
        if surplus > KEPT_RUNS:
            self.remembered_since = self.lost[surplus].first
            del self.lost[:surplus]
            self._index()

    def _is_in_force(self, decision: Decision) -> bool:
        return self.next_unit is not None and decision.unit < self.next_unit

    def _index(self) -> None:
        self._starts = np.array([run.first for run in self.lost], np.int64)
        self._ends = np.array([run.last for run in self.lost], np.int64)

    # Asking

    def kept(self, units: Ints) -> Mask:
        """Return which units are kept."""
        return ~self.all_lost(units, units)

    def loses_any(self, first: int, last: int) -> bool:
        """Tell whether any unit from a first to a last one is lost."""
        self.decide_until(last + 1, first)
        return bool(len(self._ends)) and int(self._ends[-1]) > first

    def lost_since(self, unit: int) -> int | None:
        """Return the first of the units in a row that are lost up to one; None if that one is kept."""
        self.decide_until(unit + 1)
        at = int(np.searchsorted(self._starts, unit, side="right")) - 1
        return int(self._starts[at]) if at >= 0 and self._ends[at] > unit else None

    def all_lost(self, first: Ints, last: Ints) -> Mask:
        """Return for each stretch of units, from a first to a last one, whether all of it is lost."""
        if not len(first):
            return np.zeros(0, np.bool_)
        self.decide_until(int(last.max()) + 1, int(first.min()))
        if not len(self._starts):
            return np.zeros(len(first), np.bool_)
        at = np.searchsorted(self._starts, first, side="right") - 1
        return (at >= 0) & (self._ends[at] > last)

    def next_kept(self, units: Ints, before: int) -> Ints:
        """Return the first kept units that are not before some units; `before` where there is none before that."""
        if not len(units):
            return units
        self.decide_until(before, int(units.min()))
        if not len(self._starts):
            return np.minimum(units, before)
        at = np.searchsorted(self._starts, units, side="right") - 1
        is_lost = (at >= 0) & (self._ends[at] > units)
        return np.minimum(np.where(is_lost, self._ends[at], units), before)

    def runs(self, first: int, last: int) -> Iterator[tuple[UnitRun, bool]]:
        """Yield the runs of kept and lost units from one up to, not including, another, each with whether it is kept.

        Of what was lost long ago nothing is remembered; then the runs begin later.
        """
        self.decide_until(last, first)
        if self.remembered_since is not None:
            first = max(first, self.remembered_since)
        for run in self.lost:
            begin, end = max(run.first, first), min(run.last, last)
            if begin < end:
                if first < begin:
                    yield UnitRun(first, begin), True
                yield UnitRun(begin, end), False
                first = end
        if first < last:
            yield UnitRun(first, last), True

    def fractions(self, units: Ints) -> npt.NDArray[np.float64]:
        """Return the share that is to be lost at each unit."""
        found = np.zeros(len(units))
        if len(units):
            self.decide_until(int(units.max()) + 1, int(units.min()))
        for decision in self.decisions:
            found[units >= decision.unit] = decision.fraction
        return found

    # Keeping

    def values(self) -> dict[str, Any]:
        """Return everything that is needed to go on, in another process as well, as JSON has it."""
        return {
            "length": self.length,
            "batch": self.batch,
            "seed": self.seed,
            "granule": self.granule,
            "level": self.level,
            "next": self.next_unit,
            "first": self.first_unit,
            "since": self.remembered_since,
            "debt": [self._debt.run, self._debt.owed],
            "decisions": [list(each) for each in self.decisions],
            "lost": [list(each) for each in self.lost],
            "lost_units": self.lost_units,
        }

    def to_json(self) -> str:
        """Return its values as text."""
        return json.dumps(self.values())

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Return the schedule that was written."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Schedule:
        """Return the schedule with some values of JSON."""
        made = cls(
            values["length"],
            values["batch"],
            values["seed"],
            values["granule"],
            values["next"],
            [Decision(*each) for each in values["decisions"]],
            [UnitRun(*each) for each in values["lost"]],
            values["lost_units"],
            values["first"],
            values["since"],
            values["level"],
        )
        made._debt.run, made._debt.owed = values["debt"]
        return made
