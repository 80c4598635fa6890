"""A filter moves below Istream, Dstream and Rstream."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Expr, Rel, RelToStream
from planner.expressions import depends_on_row_only
from planner.predicates import filtered, push_through_filters


def push_filter_below_stream_operator(node: Rel) -> Rel | None:
    """Turn `σ[p] Istream(R)` into `Istream(σ[p] R)`, and so for Dstream and Rstream.

        Select * From (Istream(Select A From S [Rows 9])) [Range 5] Where A > 1   ->   a filter over S [Rows 9]

    Law V9: the operators count equal rows, and p is the same for equal rows. When an Rstream speaks depends
    on what arrives, not on what passes filters.
    """
    return push_through_filters(node, _below)


def _below(stream: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(stream, RelToStream) or not depends_on_row_only(predicate):
        return None
    return replace(stream, input=filtered(stream.input, predicate))
