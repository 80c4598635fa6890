"""Estimates before anything has been measured: what an element costs an operator, and how many come out.

Each operator has its own (`Operator.estimate`). The unit of cost is one predicate on one element. The numbers only
have to rank operators sensibly until the runtime has measured the real ones.
"""

from __future__ import annotations

from typing import NamedTuple

from cql import bound
from cql.bound import Expr

ASSUMED_RATE = 1_000
"""Elements per second that a stream is taken to have when sizes of windows are estimated."""


class Estimate(NamedTuple):
    """Cost of one input element, and output elements for each input element."""

    cost: float
    selectivity: float


def predicate_selectivity(predicate: Expr) -> float:
    """Return the share of elements that a predicate is guessed to let pass."""
    if not isinstance(predicate, bound.Call):
        return 0.5
    match predicate.function:
        case "eq":
            return 0.1
        case "ne" | "is_distinct":
            return 0.9
        case "lt" | "le" | "gt" | "ge" | "like":
            return 0.33
        case "in":
            return min(0.5, 0.1 * (len(predicate.arguments) - 1))
        case "is_null":
            return 0.05
        case "not":
            return 1 - predicate_selectivity(predicate.arguments[0])
        case "and":
            result = 1.0
            for argument in predicate.arguments:
                result *= predicate_selectivity(argument)
            return result
        case "or":
            missing = 1.0
            for argument in predicate.arguments:
                missing *= 1 - predicate_selectivity(argument)
            return 1 - missing
    return 0.5
