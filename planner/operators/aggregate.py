"""Aggregates: one row for each group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from cql.bound import AggregateCall, EmptyRow
from cql.bound.text import aggregate_text, expression_text
from planner.costs import Estimate
from planner.json_codec import CallField, ExprField
from planner.operators.node import Names, Operator
from planner.operators.state_needs import Facts, InputRows, OwnState, SynopsisNeed, by_keys

__all__ = ["Aggregate"]


class Aggregate(Operator):
    """One row for each group, or one row for all.

    `seen` lists the sources whose first element brings the row of an ungrouped aggregate; a row that is always there
    comes with the first element of the query, of the sources that `begins` lists.
    """

    kind: Literal["aggregate"] = "aggregate"
    keys: tuple[ExprField, ...]
    calls: tuple[CallField, ...]
    empty_row: EmptyRow
    seen: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()

    has_rows_of_input: ClassVar[bool] = False

    @property
    def goes_by(self) -> tuple[str, ...]:
        return (*self.begins, *self.seen)

    @property
    def loses_soundly(self) -> bool:
        return False

    def headline(self, inputs: Names) -> str:
        calls = ", ".join(aggregate_text(call, inputs[0]) for call in self.calls)
        keys = ", ".join(expression_text(key, inputs[0]) for key in self.keys)
        empty = "" if self.keys else f", empty row {self.empty_row.name.lower().replace('_', ' ')}"
        return f"aggregate {calls}" + (f" by {keys}" if keys else "") + empty

    def estimate(self) -> Estimate:
        return Estimate(3.0 + len(self.calls), 2.0 if self.keys else 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(by_keys(below[0].growth) if self.keys else "constant", False)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        held, leave = "a row and accumulators for each group", "with the last row of a group"
        groups = OwnState("groups", 0, held, leave, self.facts(below).growth, self.keys)
        if not below[0].only_inserts and any(_looks_again(call) for call in self.calls):
            return groups, InputRows("input", 0, self.keys)
        if any(_keeps_values(call) for call in self.calls):
            held, leave = "how often each value occurs in each group", "with the last of a value"
            return groups, OwnState("values", 0, held, leave, by_keys(below[0].growth), self.keys)
        return (groups,)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return False

    def is_netted(self, below: Sequence[bool]) -> bool:
        return True

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if value or name != "begins"}


def _looks_again(call: AggregateCall) -> bool:
    """Tell whether an aggregate has to look at the rows of a group again when one of them leaves."""
    return call.function in ("min", "max", "arg_min", "arg_max") or call.user_defined


def _keeps_values(call: AggregateCall) -> bool:
    """Tell whether an aggregate has to remember which values it has seen."""
    return call.distinct or call.function == "approx_count_distinct"
