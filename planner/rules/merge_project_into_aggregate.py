"""An aggregate computes its own arguments."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Aggregate, Project, Rel, expressions, with_expressions
from planner.expressions import substituted
from planner.rules.merge_projects import uses_at_most_once


def merge_project_into_aggregate(node: Rel) -> Rel | None:
    """Turn `γ[k; f] π[e] X` into `γ[k over e; f over e] X`.

        Select x, Sum(y) From (Select A As x, B + 1 As y From S [Rows 9]) Group By x
        ->   Select A, Sum(B + 1) From S [Rows 9] Group By A

    Law: a projection works row by row and keeps duplicates. Not where an expression that is more than a column
    or a constant would be computed more often than before.
    """
    if not isinstance(node, Aggregate) or not isinstance(node.input, Project):
        return None
    project = node.input
    own = expressions(replace(node, input=project.input))
    if not uses_at_most_once(own, project.items):
        return None
    return with_expressions(
        replace(node, input=project.input), lambda expression: substituted(expression, project.items)
    )
