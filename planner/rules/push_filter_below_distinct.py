"""A filter moves below DISTINCT."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Distinct, Expr, Rel
from planner.expressions import is_correlated
from planner.predicates import filtered, push_through_filters


def push_filter_below_distinct(node: Rel) -> Rel | None:
    """Turn `σ[p] δ X` into `δ σ[p] X`.

        Select * From (Select Distinct A From S [Rows 9]) Where A > 1   ->   distinct over filter A > 1

    Law: p is the same for equal rows.
    """
    return push_through_filters(node, _below)


def _below(distinct: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(distinct, Distinct) or is_correlated(predicate):
        return None
    return replace(distinct, input=filtered(distinct.input, predicate))
