"""From relations to streams: what enters, what leaves, what is there."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Literal

from planner.costs import Estimate
from planner.operators.node import Names, Operator, Tick, TimeDemand
from planner.operators.state_needs import Facts, InputRows, OwnState, SynopsisNeed

__all__ = ["DStream", "IStream", "RStream"]


class _ToStream(Operator):
    """An operator that makes a stream of a relation."""

    def estimate(self) -> Estimate:
        return Estimate(2.0, 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts("stream", True)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return True

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class _OfChanges(_ToStream):
    """The changes of a relation in one direction."""

    @property
    def loses_soundly(self) -> bool:
        return False

    def headline(self, inputs: Names) -> str:
        return self.kind

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return (OwnState("instant", 0, "changes of the current instant", "with the instant", "constant"),)

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return super().time_demand(reads_streams) if any(reads_streams) else TimeDemand("difference")


class IStream(_OfChanges):
    """The rows that enter a relation, net of what leaves it at the same instant."""

    kind: Literal["i-stream"] = "i-stream"


class DStream(_OfChanges):
    """The rows that leave a relation, net of what enters it at the same instant."""

    kind: Literal["d-stream"] = "d-stream"


class RStream(_ToStream):
    """The whole relation, at every tick or at the instants of its clock."""

    kind: Literal["r-stream"] = "r-stream"
    every_tick: bool
    clock: tuple[Tick, ...]

    @property
    def loses_soundly(self) -> bool:
        return True

    @property
    def views(self) -> tuple[str, ...]:
        return ("relation",)

    @property
    def goes_by(self) -> tuple[str, ...]:
        return tuple(tick.source for tick in self.clock)

    @property
    def watches(self) -> tuple[str, ...]:
        return () if self.every_tick else tuple(tick.source for tick in self.clock if tick.slide is None)

    def headline(self, inputs: Names) -> str:
        return "r-stream at every tick" if self.every_tick else "r-stream at elements and slides"

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return (InputRows("relation", 0),)

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        if any(reads_streams):
            return super().time_demand(reads_streams)
        slides = [tick.slide or 1 for tick in self.clock]
        return TimeDemand("contents", slide=None if self.every_tick else gcd(*slides) or None)
