"""A filter moves below a projection."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import ColumnRef, Expr, Literal, Project, Rel, has_subquery
from planner.expressions import columns_read, is_correlated, substituted
from planner.predicates import becomes_too_large, filtered, push_through_filters


def push_filter_below_project(node: Rel) -> Rel | None:
    """Turn `σ[p] π[e] X` into `π[e] σ[p over e] X`.

        Select * From (Select A + 1 As x From S [Rows 9]) Where x > 3   ->   filter A + 1 > 3, then project

    Law: a projection works row by row. Not where it would compute a subquery twice, nor, for a predicate with
    a subquery, where anything but columns would go into it, nor where the predicate would become too large.
    """
    return push_through_filters(node, _below)


def _below(project: Rel, predicate: Expr) -> Rel | None:
    if not isinstance(project, Project) or is_correlated(predicate):
        return None
    used = [project.items[at] for at in columns_read(predicate)]
    if has_subquery(predicate):
        movable = all(isinstance(item, ColumnRef | Literal) for item in used)
    else:
        movable = not any(has_subquery(item) for item in used)
    if not movable:
        return None
    pushed = substituted(predicate, project.items)
    return None if becomes_too_large(predicate, pushed) else replace(project, input=filtered(project.input, pushed))
