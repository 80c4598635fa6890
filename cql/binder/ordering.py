"""ORDER BY items: directions, NULLs, and positions in the select list."""

from __future__ import annotations

from cql import ast, bound
from cql.errors import Code, fail


def sort_key(key: ast.SortKey, column: int) -> bound.SortKey:
    """Return a bound sort key; NULLs come first in ascending and last in descending order by default."""
    nulls_first = not key.descending if key.nulls_first is None else key.nulls_first
    return bound.SortKey(column, key.descending, nulls_first)


def position(node: ast.Expression, count: int) -> int | None:
    """Return the index that a plain whole number means as a position in the select list, or None."""
    if not isinstance(node, ast.Number) or not node.text.isdigit():
        return None
    digits = node.text.lstrip("0")
    if not digits or len(digits) > len(str(count)) or int(digits) > count:
        raise fail(
            Code.BAD_ORDER,
            f"there is no column {node.text} in the select list",
            node.span,
            hint=f"positions go from 1 to {count}",
        )
    return int(digits) - 1
