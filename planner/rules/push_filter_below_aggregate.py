"""A filter on grouping keys moves below the aggregate."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Aggregate, Expr, Rel
from planner.expressions import columns_read, depends_on_row_only, substituted
from planner.predicates import becomes_too_large, filtered, push_through_filters


def push_filter_below_aggregate(node: Rel) -> Rel | None:
    """Turn `σ[p(k)] γ[k; f] X` into `γ[k; f] σ[p(k)] X`.

        Select A, Count(*) From S [Rows 9] Group By A Having A > 1   ->   .. Where A > 1 Group By A

    Law V13: p keeps or drops whole groups. Never without grouping keys: that aggregate has a row even where
    nothing is left of its input.
    """
    return push_through_filters(node, _below)


def _below(aggregate: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(aggregate, Aggregate) or not aggregate.keys or not depends_on_row_only(predicate):
        return None
    read = columns_read(predicate)
    if max(read, default=0) >= len(aggregate.keys):
        return None
    if not all(depends_on_row_only(aggregate.keys[at]) for at in read):
        return None
    pushed = substituted(predicate, aggregate.keys)
    return None if becomes_too_large(predicate, pushed) else replace(aggregate, input=filtered(aggregate.input, pushed))
