"""A top-n does not number rows if nobody reads the numbers."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Filter, Project, Rel, expressions
from planner.expressions import columns_read
from planner.logical import GroupTopN


def drop_unused_row_number(node: Rel) -> Rel | None:
    """Turn a numbered top-n into one without numbers below a projection that leaves the number out.

        Select A, B From (Select A, B, Row_Number() Over (Partition By A Order By B) As n From S) As X
        Where n <= 3   ->   the first 3 rows of each A by B

    Law: the number is the last column, so that no other column changes its place. Filters may lie between
    that do not read it either.
    """
    if not isinstance(node, Project):
        return None
    changed = _unnumbered(node)
    return None if changed is node else changed


def _unnumbered(reader: Project | Filter) -> Rel:
    below = reader.input
    read = frozenset().union(*(columns_read(expression) for expression in expressions(reader)))
    if isinstance(below, GroupTopN) and below.number is not None and len(below.schema) - 1 not in read:
        return replace(reader, input=replace(below, number=None))
    if isinstance(below, Filter) and len(below.schema) - 1 not in read:
        changed = _unnumbered(below)
        return reader if changed is below else replace(reader, input=changed)
    return reader
