"""A filter moves below a join, to the input that it reads."""

from __future__ import annotations

from cql.bound import Expr, Join, Rel, direct_inputs, has_subquery
from planner.expressions import columns_read, is_correlated, moved
from planner.joins import FILTERS_ABOVE, inputs_read, may_filter, starts, with_sides
from planner.logical import KeyedJoin, MultiJoin, StreamJoin
from planner.predicates import filtered, push_through_filters


def push_filter_below_join(node: Rel) -> Rel | None:
    """Turn `σ[p] (X ⋈ Y)` into `(σ[p] X) ⋈ Y` if p reads columns of X only.

        Select * From S1 [Rows 9], S2 [Rows 9] Where S1.B > 2   ->   filter B > 2 over the window of S1

    Law V10, for the inputs of a join whose rows are all subject to the filter: both of an inner join, the left
    one of a left, semi- or antijoin, the right one of a right join, none of a full join. What reads no column
    goes to every such input. What reads several inputs stays: `filter_into_join` deals with it.
    """
    return push_through_filters(node, _below)


def _below(join: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(join, Join | KeyedJoin | MultiJoin | StreamJoin) or is_correlated(predicate):
        return None
    read = inputs_read(join, columns_read(predicate))
    if len(read) > 1 or (not read and has_subquery(predicate)):
        return None
    sides = list(direct_inputs(join))
    places = [at for at, may in enumerate(may_filter(join, FILTERS_ABOVE)) if may and read in ([], [at])]
    for at in places:
        start = starts(join)[at]
        sides[at] = filtered(sides[at], moved(predicate, sides[at], lambda index: index - start))  # noqa: B023
    return with_sides(join, sides) if places else None
