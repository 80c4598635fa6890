"""How large a bound query may get, the views that it uses included.

What works on bound trees recurses, and Python's stack is finite. What stands for two of something doubles
it: twenty views, each of which uses the one before twice, are a million operators, and twenty BETWEENs
inside each other a million comparisons.
"""

from __future__ import annotations

from cql import bound
from cql.errors import Code, fail
from cql.source import Span

MAX_LEVELS = 150
"""How many operators, from the result down to an input, may lie one on another; UNION, EXCEPT and INTERSECT of sets are
two each."""

MAX_OPERATORS = 10_000
"""How many operators a query may have, counted as if no part of it were shared."""


MAX_COPIED = 5_000
"""How large the copies of an operand that BETWEEN, CASE or NULLIF compares several times may be together."""


def check_copies(operand: bound.Expr, copies: int, span: Span) -> None:
    """Raise if an expression is too large to stand in several places."""
    waiting: list[bound.Expr | bound.Rel] = [operand]
    size = 0
    while waiting:
        part = waiting.pop()
        size += 1
        if size > 1 and size * copies > MAX_COPIED:
            raise fail(
                Code.TOO_DEEP,
                "this is too large to be compared several times",
                span,
                hint="compute it in a subquery or view first",
            )
        if isinstance(part, bound.Rel):
            waiting += [*bound.direct_inputs(part), *bound.expressions(part)]
            continue
        waiting += bound.children(part)
        if isinstance(part, bound.InSubquery | bound.Exists | bound.ScalarSubquery):
            waiting.append(part.query)


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
        own = 2 if isinstance(rel, bound.SetOperation) and not rel.all else 1
        levels = own + max((sizes[id(each)][0] for each in below), default=0)
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
