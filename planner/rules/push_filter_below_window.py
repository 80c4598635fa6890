"""A filter moves below a window over time."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Expr, PartitionRowsSpec, RangeSpec, Rel, UnboundedSpec, Window
from planner.expressions import columns_read, depends_on_row_only
from planner.predicates import filtered, push_through_filters


def push_filter_below_window(node: Rel) -> Rel | None:
    """Turn `σ[p] (S [Range w])` into `(σ[p] S) [Range w]`.

        Select * From S [Range 10] Where A > 1   ->   the window holds only what passes

    Law V1: how long an element stays in a window of time (Range, Slide, Now, Unbounded) does not depend on
    other elements. V2: nor does it in a partitioned window on elements of other partitions, so p may go below
    it if it reads partitioning columns only (N2). Never below [Rows n] (N1). The predicate must be about the
    element alone: a subquery's value changes while the element stays.
    """
    return push_through_filters(node, _below)


def _below(window: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(window, Window) or not depends_on_row_only(predicate):
        return None
    match window.spec:
        case UnboundedSpec() | RangeSpec():
            pass
        case PartitionRowsSpec(columns=columns) if columns_read(predicate) <= set(columns):
            pass
        case _:
            return None
    return replace(window, input=filtered(window.input, predicate))
