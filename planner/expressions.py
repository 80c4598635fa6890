"""Small tools for rules: shifting and replacing column references, asking what an expression reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cql import bound
from cql.bound import ColumnRef, Expr, Rel, transform_expression, walk
from cql.types import BOOLEAN


def column(rel: Rel, index: int) -> ColumnRef:
    """Return a reference to a column of a relation."""
    field = rel.schema[index]
    return ColumnRef(index, 0, field.name, type=field.type, nullable=field.nullable)


def columns(rel: Rel) -> tuple[ColumnRef, ...]:
    """Return references to all columns of a relation."""
    return tuple(column(rel, index) for index in range(len(rel.schema)))


def columns_read(expression: Expr) -> frozenset[int]:
    """Return the positions of the columns that an expression reads; it must not contain subqueries."""
    return frozenset(part.index for part in walk(expression) if isinstance(part, ColumnRef) and part.depth == 0)


def is_correlated(expression: Expr) -> bool:
    """Tell whether an expression reads columns of a query around it."""
    return any(isinstance(part, ColumnRef) and part.depth > 0 for part in walk(expression))


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
