"""Projections on top of each other are one projection."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cql.bound import ColumnRef, Expr, Literal, Project, Rel, has_subquery, walk
from planner.expressions import is_correlated, substituted


def merge_projects(node: Rel) -> Rel | None:
    """Turn `π[f] π[e] X` into `π[f over e] X`.

        Select x + 1 From (Select A * 2 As x, B From S [Rows 9])   ->   Select A * 2 + 1 From S [Rows 9]

    Law: projections work row by row. Not where an expression that is more than a column or a constant would
    be computed more often than before, or a subquery would move or disappear.
    """
    if not isinstance(node, Project) or not isinstance(node.input, Project):
        return None
    inner = node.input
    if not uses_at_most_once(node.items, inner.items):
        return None
    return replace(node, input=inner.input, items=tuple(substituted(item, inner.items) for item in node.items))


def uses_at_most_once(readers: tuple[Expr, ...], items: tuple[Expr, ...]) -> bool:
    """Tell whether putting items into their readers computes nothing twice and moves no subquery."""
    if any(has_subquery(item) for item in items):
        return False
    if any(has_subquery(reader) or is_correlated(reader) for reader in readers):
        return all(isinstance(item, ColumnRef | Literal) for item in items)
    uses = Counter(part.index for reader in readers for part in walk(reader) if isinstance(part, ColumnRef))
    return all(uses[at] <= 1 or isinstance(item, ColumnRef | Literal) for at, item in enumerate(items))
