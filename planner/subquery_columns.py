"""What subqueries yield, joined to the query around them as further columns.

A rule says how one subquery is joined to a relation; `with_lookups` does it for all of a node's expressions
and projects the further columns away again. In a condition of an outer join a subquery is computed on the side
it depends on, before the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from cql.bound import (
    Aggregate,
    Call,
    ColumnRef,
    Distinct,
    Exists,
    Expr,
    Filter,
    Join,
    JoinKind,
    Literal,
    Project,
    Rel,
    ScalarSubquery,
    conjuncts,
    expressions,
    has_subquery,
    transform_expression,
    walk,
    with_expressions,
)
from cql.errors import CqlError
from cql.types import BOOLEAN
from planner.correlation import Need, free_of_subqueries, placed, pulled
from planner.expressions import all_of, column, columns, columns_read, remapped, shifted
from planner.logical import JoinType, KeyedJoin

TRUE = Literal(True, type=BOOLEAN, nullable=False)

S = TypeVar("S", Exists, ScalarSubquery)


def with_lookups(node: Rel, kind: type[S], look_up: Callable[[Rel, S], tuple[Rel, Expr]]) -> Rel | None:
    """Return a node without those of its subqueries of a kind that can be joined to its input.

    `look_up` returns its relation with further columns, as many rows as before, and the subquery's value over
    them; or it raises. Subqueries inside subqueries come first.
    """
    found = [
        part
        for expression in expressions(node)
        for part in walk(expression)
        if isinstance(part, kind) and free_of_subqueries(part.query)
    ]
    wanted = list(dict.fromkeys(found))
    if not wanted:
        return None
    match node:
        case Join(kind=JoinKind.INNER):
            return without_subquery_conditions(node)
        case Join():
            return _beside(node, wanted, look_up)
        case Filter() | Project() | Aggregate():
            return _below(node, wanted, look_up)
    return None


def without_subquery_conditions(join: Join) -> Rel | None:
    """Return an inner join with the conditions that hold subqueries in a filter above it."""
    terms = [] if join.condition is None else conjuncts(join.condition)
    above = all_of(term for term in terms if has_subquery(term))
    if above is None:
        return None
    condition = all_of(term for term in terms if not has_subquery(term))
    return Filter(replace(join, condition=condition), above, span=above.span)


def existence(term: Expr) -> tuple[JoinType, Exists] | None:
    """Return the kind of join that a conjunct stands for and its EXISTS, or None."""
    match term:
        case Exists() if free_of_subqueries(term.query):
            return JoinType.SEMI, term
        case Call(function="not", arguments=(Exists() as exists,)) if free_of_subqueries(exists.query):
            return JoinType.ANTI, exists
    return None


def half_joined(kind: JoinType, relation: Rel, exists: Exists) -> KeyedJoin:
    """Return the rows of a relation for which a subquery has a row (SEMI) or none (ANTI); may raise."""
    inner = pulled(exists.query, Need.EXISTENCE)
    width = len(relation.schema)
    items = [shifted(item, width) for item in columns(inner.relation)]
    condition = all_of(placed(predicate, items) for predicate in inner.predicates)
    right = inner.relation
    if condition is None or all(at < width for at in columns_read(condition)):
        right = Distinct(Project(right, (TRUE,), ("found",), span=exists.span), span=exists.span)
    return KeyedJoin(kind, relation, right, residual=condition, span=exists.span)


def is_there(marker: Expr) -> Expr:
    """Return whether a marker, which is TRUE in its own relation, came out of an outer join as TRUE."""
    missing = Call("is_null", (marker,), type=BOOLEAN, nullable=False)
    return Call("not", (missing,), type=BOOLEAN, nullable=False)


def chosen_columns(rel: Rel, chosen: Iterable[int]) -> Project:
    """Return some columns of a relation."""
    items = tuple(column(rel, at) for at in chosen)
    return Project(rel, items, tuple(item.name for item in items), span=rel.span)


def _below(
    node: Filter | Project | Aggregate, wanted: list[S], look_up: Callable[[Rel, S], tuple[Rel, Expr]]
) -> Rel | None:
    relation, values = _extended(node.input, wanted, look_up)
    if not values:
        return None
    changed = with_expressions(replace(node, input=relation), lambda part: _replaced(part, values))
    return chosen_columns(changed, range(len(node.schema))) if isinstance(node, Filter) else changed


def _beside(join: Join, wanted: list[S], look_up: Callable[[Rel, S], tuple[Rel, Expr]]) -> Rel | None:
    assert join.condition is not None
    width = len(join.left.schema)
    sides: list[tuple[list[S], dict[S, S]]] = [([], {}), ([], {})]
    for subquery in wanted:
        read = columns_read(subquery)
        if all(at < width for at in read):
            sides[0][0].append(subquery)
        elif all(at >= width for at in read):
            there = remapped(subquery, lambda at: at - width)
            assert isinstance(there, type(subquery))
            sides[1][0].append(there)
            sides[1][1][there] = subquery
    left, left_values = _extended(join.left, sides[0][0], look_up)
    right, right_values = _extended(join.right, sides[1][0], look_up)
    if not left_values and not right_values:
        return None
    start = len(left.schema)
    values = left_values | {sides[1][1][s]: shifted(value, start) for s, value in right_values.items()}

    def place(at: int) -> int:
        return at if at < width else at - width + start

    condition = _replaced(join.condition, values, place)
    wider = replace(join, left=left, right=right, condition=condition)
    return chosen_columns(wider, map(place, range(len(join.schema))))


def _extended(
    relation: Rel, wanted: list[S], look_up: Callable[[Rel, S], tuple[Rel, Expr]]
) -> tuple[Rel, dict[S, Expr]]:
    values: dict[S, Expr] = {}
    for subquery in wanted:
        try:
            relation, values[subquery] = look_up(relation, subquery)
        except CqlError:
            continue
    return relation, values


def _replaced(expression: Expr, values: dict[S, Expr], place: Callable[[int], int] = lambda at: at) -> Expr:
    def change(part: Expr, depth: int) -> Expr | None:
        if depth == 0 and isinstance(part, Exists | ScalarSubquery) and part in values:
            return values[part]
        if isinstance(part, ColumnRef) and part.depth == depth:
            return replace(part, index=place(part.index))
        return None

    return transform_expression(expression, change)
