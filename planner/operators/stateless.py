"""Select and project: linear, and without state; rows keep their lifetimes and weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from cql.bound import Expr
from cql.bound.text import expression_text
from planner.costs import Estimate, predicate_selectivity
from planner.json_codec import ExprField
from planner.operators.node import Names, Operator, TimeDemand
from planner.operators.state_needs import Facts, SynopsisNeed, all_rows_of

__all__ = ["Project", "Select", "Stateless"]


class Stateless(Operator):
    """An operator that knows nothing of rows but the one that it is given, and passes it on with its lifetime."""

    @property
    def loses_soundly(self) -> bool:
        return True

    def facts(self, below: Sequence[Facts]) -> Facts:
        return all_rows_of(below)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return ()

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return all(below)


class Select(Stateless):
    """Passes what satisfies all predicates; they commute and may be evaluated in any order."""

    kind: Literal["select"] = "select"
    predicates: tuple[ExprField, ...]

    is_row_by_row: ClassVar[bool] = True

    def headline(self, inputs: Names) -> str:
        return "select " + " AND ".join(expression_text(predicate, inputs[0]) for predicate in self.predicates)

    def estimate(self) -> Estimate:
        return Estimate(float(len(self.predicates)), prod(map(predicate_selectivity, self.predicates), start=1.0))

    def is_netted(self, below: Sequence[bool]) -> bool:
        return below[0]

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return TimeDemand("same")


class Project(Stateless):
    """Computes expressions of each row; duplicates stay."""

    kind: Literal["project"] = "project"
    items: tuple[ExprField, ...]

    is_row_by_row: ClassVar[bool] = True

    @property
    def computed(self) -> tuple[Expr, ...]:
        return self.items

    def headline(self, inputs: Names) -> str:
        return "project " + ", ".join(expression_text(item, inputs[0]) for item in self.items)

    def estimate(self) -> Estimate:
        return Estimate(0.5 + 0.25 * len(self.items), 1.0)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return TimeDemand("same")
