"""Operators that lose units of time, or a share of all rows: at the sources, and below the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from cql.intervals import TimeDomain, duration_text
from planner.costs import Estimate
from planner.operators.node import Adapted, Model, Names, Operator
from planner.operators.state_needs import Facts, OwnState, SynopsisNeed, all_rows_of

__all__ = ["ByUnits", "Hold", "KeepWindows", "KeptUnits", "RandomDrop", "SourceDrop", "Units", "WindowDrop"]


class Units(Model):
    """Time cut into units of `length` ticks, each of which is kept or lost as a whole.

    Unit u ends at u * length. No more than `batch` units in a row are lost; `seed` decides which. Whoever has the same
    `schedule` loses the same ones.
    """

    schedule: str
    length: int
    batch: int
    seed: int


class ByUnits(Operator):
    """An operator that goes by the schedule of units that are lost."""

    units: Units

    adapts: ClassVar[Adapted] = "rows"

    @property
    def loses_soundly(self) -> bool:
        return False

    def estimate(self) -> Estimate:
        return Estimate(0.25, 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return all_rows_of(below)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return ()

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return self.is_stream

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class SourceDrop(ByUnits):
    """Passes a part of the rows of a source, before anything else is done about them."""

    goes_by_instants: ClassVar[bool]
    """Whether rows of one instant have one fate, whatever their values."""

    @property
    def reach(self) -> int:
        """How many ticks ahead of a row's instant verdicts are asked for."""
        return self.units.length

    @property
    def saved(self) -> float:
        """The share of all rows that it leaves out where all units that can be are lost, for each unit lost."""
        return 1.0

    def details(self, time: TimeDomain | None, users: Sequence[str]) -> Iterator[str]:
        yield from self.words(time)
        yield f"affects {', '.join(users)}; other queries read the source itself"

    def words(self, time: TimeDomain | None) -> Iterator[str]:
        """Yield lines about which rows it passes."""
        raise NotImplementedError


class WindowDrop(SourceDrop):
    """Passes the rows that kept units need: those of the last `size` ticks up to the end of each.

    Passing more does no harm: where queries share it, its size is the largest of theirs, and not part of its id.
    `formula` is the size by the rule of the paper, which does not look at where windows line up.
    """

    kind: Literal["window-drop"] = "window-drop"
    size: int
    formula: int

    goes_by_instants: ClassVar[bool] = True

    @property
    def reach(self) -> int:
        return self.size

    @property
    def freed(self) -> int:
        """How many ticks of rows nobody needs when as many units in a row are lost as may be."""
        return max(0, (self.units.batch + 1) * self.units.length - self.size)

    @property
    def saved(self) -> float:
        return min(self.freed / (self.units.batch * self.units.length), 1.0)

    def headline(self, inputs: Names) -> str:
        return f"window-drop: rows that kept units of {self.units.schedule} need"

    def words(self, time: TimeDomain | None) -> Iterator[str]:
        units, formula = self.units, duration_text(self.formula, time)
        rule = "by the paper's rule as well" if self.formula == self.size else f"by the paper's rule {formula}"
        yield (
            f"kept: the last {duration_text(self.size, time)} of each kept unit ({rule}); "
            f"units of {duration_text(units.length, time)}, at most {units.batch} lost in a row"
        )
        if self.freed:
            share = 50 * self.freed / (units.batch * units.length)
            yield f"saves {share:.0f} % of the rows when half of the units are lost"
        else:
            fewest = self.size // units.length
            yield f"saves no rows: windows overlap too much, that would take a gap of {fewest} units"

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if name not in ("size", "formula")}

    def merged(self, equal: Operator) -> Operator:
        drops = [self, *([equal] if isinstance(equal, WindowDrop) else [])]
        return max(drops, key=lambda drop: (drop.size, drop.formula))


class RandomDrop(SourceDrop):
    """Passes a share of the rows, chosen by a hash of their instants and values."""

    kind: Literal["random-drop"] = "random-drop"

    goes_by_instants: ClassVar[bool] = False

    def headline(self, inputs: Names) -> str:
        return "random-drop: passes a share of all rows"

    def words(self, time: TimeDomain | None) -> Iterator[str]:
        yield f"rows are chosen by a hash of their instants and values, with seed {self.units.seed}"


class KeptUnits(ByUnits):
    """What a query puts out at the instants of kept units; what it is made of changes every `grain` ticks."""

    grain: int

    def details(self, time: TimeDomain | None, users: Sequence[str]) -> Iterator[str]:
        every = f"; answers change every {duration_text(self.grain, time)}" if self.grain > 1 else ""
        units = self.units
        yield f"units of {duration_text(units.length, time)}, at most {units.batch} lost in a row{every}"


class KeepWindows(KeptUnits):
    """Passes the elements of a stream at the instants of kept units; what it is made of changes every `grain` ticks."""

    kind: Literal["keep-windows"] = "keep-windows"

    def headline(self, inputs: Names) -> str:
        return f"keep-windows: elements of kept units of {self.units.schedule}"


class Hold(KeptUnits):
    """A relation as it is at the instants of kept units; in between it stays as it was.

    It changes at multiples of `grain` ticks only.
    """

    kind: Literal["hold"] = "hold"

    def headline(self, inputs: Names) -> str:
        return f"hold: as it is in kept units of {self.units.schedule}"

    def estimate(self) -> Estimate:
        return Estimate(2.0, 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(below[0].growth, False)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return (OwnState("lost", 0, "changes at instants of lost units", "with the next kept unit", "window"),)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return below[0]
