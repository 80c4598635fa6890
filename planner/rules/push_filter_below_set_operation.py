"""A filter moves below UNION, EXCEPT and INTERSECT."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Expr, Rel, SetOperation
from planner.expressions import depends_on_row_only, moved
from planner.predicates import filtered, push_through_filters


def push_filter_below_set_operation(node: Rel) -> Rel | None:
    """Turn `σ[p] (X op Y)` into `(σ[p] X) op (σ[p] Y)`.

        Select * From (Select A From S1 Union All Select A From S2) Where A > 1   ->   a filter on both sides

    Law V11: set operations count equal rows, and p is the same for equal rows. It holds for the bag and the
    set forms of all three. Not for predicates with subqueries, which would be computed twice.
    """
    return push_through_filters(node, _below)


def _below(operation: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(operation, SetOperation) or not depends_on_row_only(predicate):
        return None
    left, right = (filtered(side, moved(predicate, side)) for side in (operation.left, operation.right))
    return replace(operation, left=left, right=right)
