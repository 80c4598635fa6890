"""The first rows in an order, of all or of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cql.bound import SortKey
from cql.bound.text import sort_text
from planner.costs import Estimate
from planner.operators.node import Names, Operator, SortBy
from planner.operators.state_needs import Facts, InputRows, SynopsisNeed, by_keys

__all__ = ["TopN"]


class TopN(Operator):
    """The first rows of all, or of each partition; with `numbered` the last column is the row's number."""

    kind: Literal["top-n"] = "top-n"
    partition: tuple[int, ...]
    keys: tuple[SortBy, ...]
    limit: int
    numbered: bool = False

    @property
    def loses_soundly(self) -> bool:
        return False

    def headline(self, inputs: Names) -> str:
        within = f" of each ({', '.join(inputs[0][at] for at in self.partition)})" if self.partition else ""
        return f"top-n {self.limit}{within} by {self._order(inputs)}" + (", numbered" if self.numbered else "")

    def _order(self, inputs: Names) -> str:
        return sort_text([SortKey(k.column, k.descending, k.nulls_first) for k in self.keys], inputs[0])

    def estimate(self) -> Estimate:
        return Estimate(5.0, 0.5)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(by_keys(below[0].growth) if self.partition else "constant", False)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        holds = f"rows ({', '.join(inputs[0])}) in the order of {self._order(inputs)}"
        return (InputRows("input", 0, (), holds),)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return False

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False
