"""EXISTS of a single group is the group's HAVING condition."""

from __future__ import annotations

from cql.bound import (
    Call,
    Exists,
    Expr,
    Literal,
    Project,
    Rel,
    ScalarSubquery,
    conjunction,
    expressions,
    walk,
    with_children,
    with_expressions,
)
from cql.types import BOOLEAN
from planner.correlation import refers_outside, single_group

FALSE = Literal(False, type=BOOLEAN, nullable=False)


def exists_of_aggregate(node: Rel) -> Rel | None:
    """Turn EXISTS of an aggregate without GROUP BY that refers outside into the value of its HAVING.

        Exists (Select 1 From R Where R.A = S.A Having Count(*) < 2)
        ->  coalesce((Select Count(*) < 2 From R Where R.A = S.A), False)

    Such an aggregate has exactly one row, also where no row of R matches; so a semi-join with the groups that
    there are would lose the rows of S without one. `scalar_subquery_to_join` knows what to do with a value.
    """
    if not any(isinstance(part, Exists) for e in expressions(node) for part in walk(e)):
        return None
    changed = with_expressions(node, _changed)
    return None if changed == node else changed


def _changed(expression: Expr) -> Expr:
    if isinstance(expression, Exists):
        group = single_group(expression.query)
        if group is None or not refers_outside(group.aggregate):
            return expression
        condition = conjunction(list(group.conditions))
        span = expression.span
        query = Project(group.aggregate, (condition,), ("holds",), span=span)
        value = ScalarSubquery(query, type=BOOLEAN, nullable=True, span=span)
        return Call("coalesce", (value, FALSE), type=BOOLEAN, nullable=False, span=span)
    return with_children(expression, _changed)
