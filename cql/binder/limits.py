"""How large a bound query may get, the views that it uses included.

What works on bound trees recurses, and Python's stack is finite; a view that uses another one twice
doubles it, and twenty such views one on another are a million operators.
"""

from __future__ import annotations

from cql import bound
from cql.errors import Code, fail
from cql.source import Span

MAX_LEVELS = 150
"""How many operators, from the result down to an input, may lie one on another."""

MAX_OPERATORS = 10_000
"""How many operators a query may have, counted as if no part of it were shared."""


def check_size(tree: bound.Rel, span: Span) -> None:
    """Raise if a query is too large to be worked on; needs no recursion itself."""
    sizes: dict[int, tuple[int, int]] = {}
    waiting = [tree]
    while waiting:
        rel = waiting[-1]
        below = bound.inputs(rel)
        unknown = [each for each in below if id(each) not in sizes]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        levels = 1 + max((sizes[id(each)][0] for each in below), default=0)
        sizes[id(rel)] = levels, 1 + sum(sizes[id(each)][1] for each in below)
    levels, operators = sizes[id(tree)]
    if levels > MAX_LEVELS:
        raise fail(
            Code.TOO_DEEP,
            f"this query, with the views it uses, has {levels} operators one on another",
            span,
            hint=f"there may be up to {MAX_LEVELS}; use fewer inputs, or fewer views on views",
        )
    if operators > MAX_OPERATORS:
        raise fail(
            Code.TOO_DEEP,
            f"this query, with the views it uses, has {operators:,} operators",
            span,
            hint=f"there may be up to {MAX_OPERATORS:,}; a view that is used twice counts twice",
        )
