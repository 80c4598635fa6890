"""Rewriting trees of frozen nodes: every node is offered to a function, children first.

Nodes that nothing changed in are kept, not copied, so that a rewrite that finds nothing to do returns
the tree it was given. This module knows no particular node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from cql.ast.node import Node

N = TypeVar("N", bound=Node)


def rewrite(node: N, change: Callable[[Node], Node]) -> N:
    """Return the tree with `change` applied to each of its nodes, from the leaves to the root.

    >>> from cql.ast import Binary, Column, Name
    >>> tree = Binary("+", Column(Name("a")), Column(Name("b")))
    >>> louder = rewrite(tree, lambda n: replace(n, text=n.text.upper()) if isinstance(n, Name) else n)
    >>> louder.left.name.text, louder.right.name.text
    ('A', 'B')

    `change` returns a node that may stand where the one it got stood.
    """
    changed: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        new_value = _rewrite_value(value, change)
        if new_value is not value:
            changed[field.name] = new_value
    return cast(N, change(replace(node, **changed) if changed else node))


def _rewrite_value(value: Any, change: Callable[[Node], Node]) -> Any:
    """Return a field's value with the nodes in it rewritten; tuples may hold nodes and further tuples."""
    if isinstance(value, Node):
        return rewrite(value, change)
    if type(value) is tuple:
        new_items = tuple(_rewrite_value(item, change) for item in value)
        return new_items if any(new is not old for new, old in zip(new_items, value, strict=True)) else value
    return value
