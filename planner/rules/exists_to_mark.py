"""EXISTS as a value becomes a column of an outer join."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import SetKind
from cql.bound import Distinct, Exists, Expr, Filter, Literal, Project, Rel, SetOperation, conjuncts
from cql.types import BOOLEAN
from planner.correlation import Need, correlation, key_names, placed, pulled
from planner.expressions import all_of, column, columns
from planner.logical import JoinType, KeyedJoin
from planner.subquery_columns import TRUE, existence, half_joined, is_there, with_lookups

FALSE = Literal(False, type=BOOLEAN, nullable=False)


def exists_to_mark(node: Rel) -> Rel | None:
    """Turn EXISTS as a value (a column, inside OR or CASE, in an outer join's condition) into a join.

        Select A, Exists (Select * From R Where R.A = S.A) From S
        ->  Select S.A, found Is Not Null
            From S Left Join (Select Distinct A, True As found From R) On S.A = R.A

    The right side has one row for each value of what the query compares with `=`, so the outer join keeps each
    row once, and its marker is NULL exactly if there is no such row. With other comparisons a row is marked as
    it passes a semi-join or an antijoin: each row passes one of the two. Conjuncts of a filter are left to
    `exists_to_semijoin`.
    """
    if not isinstance(node, Filter):
        return with_lookups(node, Exists, _marked)
    terms = conjuncts(node.predicate)
    others = all_of(term for term in terms if existence(term) is None)
    if others is None:
        return None
    changed = with_lookups(replace(node, predicate=others), Exists, _marked)
    conditions = all_of(term for term in terms if existence(term) is not None)
    if changed is None or conditions is None:
        return changed
    return replace(node, input=changed, predicate=conditions)


def _marked(relation: Rel, exists: Exists) -> tuple[Rel, Expr]:
    inner = pulled(exists.query, Need.EXISTENCE)
    found = correlation(inner.predicates)
    if found.others:
        return _marked_either_way(relation, exists)
    names = (*key_names(found.inner), "found")
    marks = Distinct(Project(inner.relation, (*found.inner, TRUE), names, span=exists.span), span=exists.span)
    joined = KeyedJoin(
        JoinType.LEFT,
        relation,
        marks,
        tuple(placed(outer, ()) for outer in found.outer),
        columns(marks)[:-1],
        all_of(placed(predicate, ()) for predicate in found.outside),
        span=exists.span,
    )
    return joined, is_there(columns(joined)[-1])


def _marked_either_way(relation: Rel, exists: Exists) -> tuple[Rel, Expr]:
    sides = []
    for kind, mark in ((JoinType.SEMI, TRUE), (JoinType.ANTI, FALSE)):
        half = half_joined(kind, relation, exists)
        names = (*(f.name for f in relation.schema), "found")
        sides.append(Project(half, (*columns(half), mark), names, span=exists.span))
    both = SetOperation(SetKind.UNION, True, sides[0], sides[1], span=exists.span)
    return both, column(both, len(relation.schema))
