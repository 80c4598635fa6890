"""Where a plan ends: the results of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from planner.costs import Estimate
from planner.operators.node import Names, Operator, TimeDemand
from planner.operators.state_needs import Facts, SynopsisNeed

__all__ = ["Output"]


class Output(Operator):
    """The result of a registered query, under its column names; `slides` are those of its windows."""

    kind: Literal["output"] = "output"
    query: str
    slides: tuple[int, ...] = ()

    @property
    def loses_soundly(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        return f"output {self.query}"

    def estimate(self) -> Estimate:
        return Estimate(1.0, 0.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return below[0]

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return ()

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return self.is_stream

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return TimeDemand("same")

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if name != "slides"}
