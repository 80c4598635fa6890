"""A projection that changes nothing goes."""

from __future__ import annotations

from cql.bound import ColumnRef, Project, Rel


def remove_identity_project(node: Rel) -> Rel | None:
    """Turn `π[all columns, in order, under their names] X` into `X`.

        Select * From S [Rows 9]   ->   the window itself

    Law: the projection is the identity. Names count: the result of a query keeps the names it was given.
    """
    if not isinstance(node, Project):
        return None
    fields = node.input.schema
    if len(fields) != len(node.items):
        return None
    for at, (item, name, column) in enumerate(zip(node.items, node.names, fields, strict=True)):
        if not isinstance(item, ColumnRef) or item.depth or item.index != at or name != column.name:
            return None
    return node.input
