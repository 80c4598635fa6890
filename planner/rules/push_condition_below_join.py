"""A conjunct of a join's condition that reads one input is a filter of that input."""

from __future__ import annotations

from cql.bound import Expr, Join, Rel, conjuncts, direct_inputs
from planner.expressions import columns_read, depends_on_row_only, moved
from planner.joins import (
    FILTERS_IN_CONDITION,
    AnyJoin,
    condition_of,
    inputs_read,
    may_filter,
    starts,
    with_condition,
    with_sides,
)
from planner.logical import KeyedJoin, MultiJoin, StreamJoin
from planner.predicates import filtered


def push_condition_below_join(node: Rel) -> Rel | None:
    """Turn `X ⋈[p and q] Y` into `X ⋈[p] (σ[q] Y)` if q reads columns of Y only.

        From S1 [Rows 9] Left Join S2 [Rows 9] On S1.A = S2.A and S2.B > 2   ->   filter B > 2 over S2's window

    Law: a row that fails q matches nothing. That drops the rows of both inputs of an inner or a semijoin, of
    the right one of a left or antijoin, of the left one of a right join; a row that is kept without a match
    has to stay.
    """
    if not isinstance(node, Join | KeyedJoin | MultiJoin | StreamJoin):
        return None
    condition = condition_of(node)
    if condition is None:
        return None
    sides, rest = list(direct_inputs(node)), []
    for term in conjuncts(condition):
        places = _places(node, term)
        for at in places:
            start = starts(node)[at]
            sides[at] = filtered(sides[at], moved(term, sides[at], lambda index: index - start))  # noqa: B023
        if not places:
            rest.append(term)
    if len(rest) == len(conjuncts(condition)):
        return None
    return with_condition(with_sides(node, sides), rest)


def _places(join: AnyJoin, term: Expr) -> list[int]:
    """Return the inputs to filter by a conjunct; without columns, all that may be."""
    read = inputs_read(join, columns_read(term))
    if len(read) > 1 or not depends_on_row_only(term):
        return []
    return [at for at, may in enumerate(may_filter(join, FILTERS_IN_CONDITION)) if may and read in ([], [at])]
