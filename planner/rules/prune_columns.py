"""Columns that nobody reads are not computed."""

from __future__ import annotations

from cql.bound import Rel
from planner.column_pruning import with_fewer_columns_below


def prune_columns(node: Rel) -> Rel | None:
    """Drop what a projection, an aggregate or a semijoin does not read of what is computed below it.

        Select A From (Select A, Count(*), Max(B) From S [Rows 9] Group By A)   ->   groups without aggregates

    Law: projections, aggregates, joins and UNION ALL treat each column on its own (`planner/column_pruning.py` has
    the details). Items of projections and aggregates disappear; new projections stand at most on the sides of
    a UNION ALL, which need the same columns.
    """
    return with_fewer_columns_below(node, project_joins=False)
