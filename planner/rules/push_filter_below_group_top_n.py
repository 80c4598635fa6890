"""A filter on the partition moves below the top-n of each partition."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Expr, Rel, RowNumber
from planner.expressions import columns_read, depends_on_row_only
from planner.logical import GroupTopN
from planner.predicates import filtered, push_through_filters


def push_filter_below_group_top_n(node: Rel) -> Rel | None:
    """Turn `σ[p(k)] top n of each k X` into `top n of each k σ[p(k)] X`, and so for numbered rows.

        From (Select A, B, Row_Number() Over (Partition By A Order By B) As n From S [Rows 9]) Where A = 1
        ->   number the rows that have A = 1

    Law: p keeps or drops whole partitions, and rows are ranked within theirs. A filter on other columns would
    let later rows move up, as would any filter below a top-n of all rows.
    """
    return push_through_filters(node, _below)


def _below(ranked: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(ranked, GroupTopN | RowNumber) or not depends_on_row_only(predicate):
        return None
    if not columns_read(predicate) <= set(ranked.partition):
        return None
    return replace(ranked, input=filtered(ranked.input, predicate))
