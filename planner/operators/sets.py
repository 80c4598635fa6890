"""Set operations on bags, and the elimination of duplicates. All but the union count how often each row is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from planner.costs import Estimate
from planner.operators.node import Names, Operator
from planner.operators.state_needs import Facts, OwnState, SynopsisNeed, all_rows_of, by_keys, wildest
from planner.operators.stateless import Stateless

__all__ = ["DuplicateEliminate", "Except", "Intersect", "Union"]


class Union(Stateless):
    """All rows of both inputs."""

    kind: Literal["union"] = "union"

    def headline(self, inputs: Names) -> str:
        return self.kind

    def estimate(self) -> Estimate:
        return Estimate(2.0, 1.0)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class _Counting(Operator):
    """An operator without parameters that counts rows that are equal."""

    def headline(self, inputs: Names) -> str:
        return self.kind

    def estimate(self) -> Estimate:
        return Estimate(2.0, 1.0)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return False


class _Comparing(_Counting):
    """A set operation on two bags."""

    counted: ClassVar[str]
    """What is counted of each row."""

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        growth = wildest([facts.growth for facts in below])
        return (OwnState("counts", 0, f"{self.counted} occurrences of each row", "at zero", growth),)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class Except(_Comparing):
    """The rows of the left input, each as often as it occurs there more than on the right."""

    kind: Literal["except"] = "except"

    counted: ClassVar[str] = "left minus right"

    @property
    def loses_soundly(self) -> bool:
        return False

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(below[0].growth, False)


class Intersect(_Comparing):
    """The rows of both inputs, each as often as it occurs in the one where it is rarer."""

    kind: Literal["intersect"] = "intersect"

    counted: ClassVar[str] = "left and right"

    @property
    def loses_soundly(self) -> bool:
        return True

    def facts(self, below: Sequence[Facts]) -> Facts:
        return all_rows_of(below)


class DuplicateEliminate(_Counting):
    """Every row once."""

    kind: Literal["duplicate-eliminate"] = "duplicate-eliminate"

    @property
    def loses_soundly(self) -> bool:
        return False

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(by_keys(below[0].growth), below[0].only_inserts)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        growth = by_keys(below[0].growth)
        return (OwnState("counts", 0, "how often each row occurs", "with the last of a row", growth),)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return True
