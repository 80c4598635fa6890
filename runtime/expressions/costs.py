"""What expressions cost for each row, before anything is measured, in comparisons of two numbers."""

from __future__ import annotations

from cql.bound import Call, Case, Cast, Expr, UserCall, children
from cql.types import Kind

DEAR = 32.0
"""From which cost on it pays to choose the rows first for which an expression is computed."""

_BRANCH = 3.0
"""What it costs to choose between the results of a CASE."""

_USER = 5_000.0

_COSTS = {
    "like": 50.0,
    "regexp_like": 1_500.0,
    "regexp_extract": 1_500.0,
    "overlap": 6_000.0,
    "inner_product": 6_000.0,
    "upper": 35.0,
    "lower": 35.0,
    "length": 25.0,
    "substr": 40.0,
    "trim": 20.0,
    "replace": 1_000.0,
    "concat": 350.0,
    "split_part": 10_000.0,
    "date_format": 6_000.0,
    "in": 15.0,
    "round": 250.0,
    "power": 35.0,
    "ln": 10.0,
    "exp": 10.0,
}
"""Functions that cost more than a comparison, as measured with columns of different values."""

_TO_TEXT, _FROM_TEXT = 50.0, 15_000.0
"""What it costs to write a value as a text, and to read one."""


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
            if operand.type.kind is Kind.STRING:
                return _FROM_TEXT
            return _TO_TEXT if expression.type.kind is Kind.STRING else 1.0
        case Case(branches=branches):
            return _BRANCH * len(branches)
    return 0.0
