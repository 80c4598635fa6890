"""Small tools for rules: shifting and replacing column references, asking what an expression reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from cql import bound
from cql.bound import (
    ColumnRef,
    Exists,
    Expr,
    InSubquery,
    Rel,
    ScalarSubquery,
    children,
    has_subquery,
    transform_expression,
    walk,
    with_children,
)
from cql.functions.scalars import SCALARS
from cql.types import BOOLEAN, Kind, common_type


def column(rel: Rel, index: int) -> ColumnRef:
    """Return a reference to a column of a relation."""
    field = rel.schema[index]
    return ColumnRef(index, 0, field.name, type=field.type, nullable=field.nullable)


def columns(rel: Rel) -> tuple[ColumnRef, ...]:
    """Return references to all columns of a relation."""
    return tuple(
        ColumnRef(index, 0, field.name, type=field.type, nullable=field.nullable)
        for index, field in enumerate(rel.schema)
    )


def columns_read(expression: Expr) -> frozenset[int]:
    """Return the positions of the columns that an expression reads, inside its subqueries too."""
    return frozenset(part.index for part, depth in _references(expression) if part.depth == depth)


def is_correlated(expression: Expr) -> bool:
    """Tell whether an expression reads columns of a query around it, inside its subqueries too."""
    return any(part.depth > depth for part, depth in _references(expression))


def _references(expression: Expr, depth: int = 0) -> Iterator[tuple[ColumnRef, int]]:
    """Yield the columns that an expression mentions, each with the number of subqueries around it."""
    for part in walk(expression):
        if isinstance(part, ColumnRef):
            yield part, depth
        elif isinstance(part, InSubquery | Exists | ScalarSubquery):
            yield from _references_below(part.query, depth + 1)


def _references_below(rel: Rel, depth: int) -> Iterator[tuple[ColumnRef, int]]:
    for expression in bound.expressions(rel):
        yield from _references(expression, depth)
    for below in bound.direct_inputs(rel):
        yield from _references_below(below, depth)


def depends_on_row_only(expression: Expr) -> bool:
    """Tell whether an expression is the same at all instants and in all queries around it."""
    return not has_subquery(expression) and not is_correlated(expression)


def remapped(expression: Expr, place: Callable[[int], int]) -> Expr:
    """Return an expression with the positions of its own columns changed."""

    def change(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth == depth:
            return replace(part, index=place(part.index))
        return None

    return transform_expression(expression, change)


def shifted(expression: Expr, by: int) -> Expr:
    """Return an expression with its own columns moved by some positions."""
    return remapped(expression, lambda index: index + by) if by else expression


def moved(expression: Expr, to: Rel, place: Callable[[int], int] = lambda index: index) -> Expr:
    """Return an expression over columns of another relation, which may be NULL where its own were not."""
    schema = to.schema

    def change(part: Expr) -> Expr:
        if isinstance(part, ColumnRef):
            if part.depth:
                return part
            at = place(part.index)
            if at == part.index and part.nullable == schema[at].nullable:
                return part
            return replace(part, index=at, name=schema[at].name, nullable=schema[at].nullable)
        if isinstance(part, InSubquery | Exists | ScalarSubquery):
            return remapped(part, place)
        return with_operands(part, change)

    return change(expression)


def with_operands(expression: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with its operands changed and told anew whether it can be NULL; itself if none is."""
    before = children(expression)
    after = tuple(change(part) for part in before)
    if all(a is b for a, b in zip(before, after, strict=True)):
        return expression
    values = iter(after)
    result = with_children(expression, lambda _: next(values))
    if [part.nullable for part in before] != [part.nullable for part in after]:
        result = replace(result, nullable=_can_be_null(result))
    return result


def _can_be_null(expression: Expr) -> bool:
    """Tell whether an expression can be NULL, given whether its operands can: the binder's rules."""
    match expression:
        case bound.Call():
            fixed = SCALARS[expression.function].rule([a.type for a in expression.arguments]).nullable
            if fixed is not None:
                return fixed
            if expression.function in ("coalesce", "least", "greatest"):
                return all(argument.nullable for argument in expression.arguments)
            return any(argument.nullable for argument in expression.arguments)
        case bound.Cast(operand=operand):
            keeps_all = common_type(operand.type, expression.type) == expression.type
            return operand.nullable or not (keeps_all or expression.type.kind is Kind.STRING)
        case bound.Case():
            return expression.otherwise.nullable or any(then.nullable for _, then in expression.branches)
    return True


def substituted(expression: Expr, items: Sequence[Expr]) -> Expr:
    """Return an expression over a projection as one over the projection's input."""

    def change(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth == depth:
            item = items[part.index]
            return item if depth == 0 else _deeper(item, depth)
        return None

    return transform_expression(expression, change)


def _deeper(expression: Expr, by: int) -> Expr:
    def change(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth >= depth:
            return replace(part, depth=part.depth + by)
        return None

    return transform_expression(expression, change)


def equality(left: Expr, right: Expr) -> Expr:
    """Return `left = right`."""
    return bound.Call("eq", (left, right), type=BOOLEAN, nullable=left.nullable or right.nullable)


def all_of(terms: Iterable[Expr]) -> Expr | None:
    """Return the AND of some predicates, or None if there are none."""
    found = list(terms)
    return bound.conjunction(found) if found else None
