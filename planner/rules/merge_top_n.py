"""The first of the first are the first."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Rel, TopN
from planner.logical import GroupTopN


def merge_top_n(node: Rel) -> Rel | None:
    """Turn a top-n of a top-n into one.

        Select * From (Select * From S [Rows 9] Order By A Limit 5) As X Order By A Limit 3
        ->  Select * From S [Rows 9] Order By A Limit 3

    Law: ties fall to the other columns, so that the same keys put the rows into the same order, and the
    smaller number of them is kept. With other keys only if the outer one keeps all that the inner one leaves.
    """
    match node:
        case TopN(input=TopN() as inner):
            if node.keys == inner.keys:
                return replace(inner, limit=min(node.limit, inner.limit))
            return inner if node.limit >= inner.limit else None
        case GroupTopN(input=GroupTopN(number=None) as inner) if node.partition == inner.partition:
            if node.keys == inner.keys:
                return replace(inner, limit=min(node.limit, inner.limit), number=node.number)
            return inner if node.limit >= inner.limit and node.number is None else None
    return None
