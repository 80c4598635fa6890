"""A filter above an inner join is part of its condition."""

from __future__ import annotations

from cql.bound import Expr, Join, Rel
from planner.expressions import depends_on_row_only
from planner.joins import condition_of, kind_of, with_condition
from planner.logical import JoinType, KeyedJoin, MultiJoin, StreamJoin
from planner.predicates import push_through_filters


def filter_into_join(node: Rel) -> Rel | None:
    """Turn `σ[p] (X ⋈[q] Y)` into `X ⋈[p and q] Y`.

        Select * From S1 [Rows 9], S2 [Rows 9] Where S1.A = S2.A   ->   .. S1 [Rows 9] Join S2 [Rows 9] On ..

    Law: the definition of the inner join. Other kinds keep rows without a match, which the filter would drop
    and the condition would not. Predicates with subqueries stay outside, where they can become joins.
    """
    return push_through_filters(node, _into)


def _into(join: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(join, Join | KeyedJoin | MultiJoin | StreamJoin) or kind_of(join) is not JoinType.INNER:
        return None
    if not depends_on_row_only(predicate):
        return None
    condition = condition_of(join)
    return with_condition(join, [predicate] if condition is None else [condition, predicate])
