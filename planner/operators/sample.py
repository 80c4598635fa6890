"""Samples: the rows of a relation that a hash of their values chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from planner.costs import Estimate
from planner.operators.node import Names
from planner.operators.stateless import Stateless

__all__ = ["Sample"]


class Sample(Stateless):
    """Passes `percent` of all rows, more or less: those with the smallest hashes of their values."""

    kind: Literal["sample"] = "sample"
    percent: float

    is_row_by_row: ClassVar[bool] = True

    def headline(self, inputs: Names) -> str:
        return f"sample of {self.percent:g} percent"

    def estimate(self) -> Estimate:
        return Estimate(1.0, self.percent / 100)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return below[0]
