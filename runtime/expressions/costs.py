"""What expressions cost for each row, before anything is measured, in comparisons of two numbers."""

from __future__ import annotations

from cql.bound import Call, Case, Cast, Expr, UserCall, children
from cql.types import Kind

DEAR = 16.0
"""From which cost on it pays to choose the rows first for which an expression is computed."""

_BRANCH = 3.0
"""What it costs to choose between the results of a CASE."""

_USER = 200.0

_COSTS = {
    "like": 30.0,
    "regexp_like": 60.0,
    "regexp_extract": 100.0,
    "overlap": 200.0,
    "inner_product": 200.0,
    "upper": 20.0,
    "lower": 20.0,
    "substr": 20.0,
    "trim": 20.0,
    "replace": 30.0,
    "concat": 20.0,
    "split_part": 60.0,
    "date_format": 60.0,
    "power": 10.0,
    "ln": 10.0,
    "exp": 10.0,
}
"""Functions that cost more than a comparison."""

_CAST_TEXT = 40.0
"""What it costs to read a value from a text or to write one."""


def dear_parts(expression: Expr) -> set[Expr]:
    """Return the parts of an expression, itself included, that should be computed for as few rows as possible."""
    found: set[Expr] = set()
    _add_dear_parts(expression, found)
    return found


def _add_dear_parts(expression: Expr, found: set[Expr]) -> float:
    total = _own(expression) + sum(_add_dear_parts(child, found) for child in children(expression))
    if total >= DEAR:
        found.add(expression)
    return total


def _own(expression: Expr) -> float:
    match expression:
        case UserCall():
            return _USER
        case Call(function=name):
            return _COSTS.get(name, 1.0)
        case Cast(operand=operand) if operand.type != expression.type:
            return _CAST_TEXT if Kind.STRING in (operand.type.kind, expression.type.kind) else 1.0
        case Case(branches=branches):
            return _BRANCH * len(branches)
    return 0.0
