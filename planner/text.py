"""Logical plans as text for people: used by EXPLAIN RULES and golden files."""

from __future__ import annotations

from cql import bound
from cql.bound import Rel


def plan_text(node: Rel, depth: int = 0) -> str:
    """Return a logical plan as an indented tree, queries inside expressions included."""
    inputs = [[column.name for column in below.schema] for below in bound.direct_inputs(node)]
    lines = ["  " * depth + node.headline(inputs)]
    lines += [plan_text(below, depth + 1) for below in bound.direct_inputs(node)]
    for query in bound.relations.subqueries(node):
        lines += ["  " * (depth + 1) + "query:", plan_text(query, depth + 2)]
    return "\n".join(lines)
