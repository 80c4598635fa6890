"""Three-valued logic: the simplest form of a condition, and a canonical order of conditions.

Comparisons are NULL where an operand is, and otherwise follow a total order (NaN is the largest DOUBLE and
equals itself), so that NOT a < b is a >= b. AND and OR are monotone: where only TRUE counts, as in a filter,
NULL may be read as FALSE, and so it may in their operands. Nothing that contains a subquery is dropped: the
streams and relations in it are part of the clock of the query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from cql.bound import Call, Case, Expr, Literal, has_subquery
from cql.bound.text import expression_text
from cql.source import Span
from cql.types import BOOLEAN
from planner.expressions import with_operands

_POSITIONS = [f"${at:04}" for at in range(2000)]

_COMPARE: dict[str, Any] = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_DUAL = {"and": "or", "or": "and"}


def order_key(expression: Expr) -> str:
    """Return what expressions over one relation are sorted by: their text, with positions for columns."""
    return expression_text(expression, _POSITIONS)


def in_order(terms: Iterable[Expr]) -> list[Expr]:
    """Return conditions without repetitions, in an order that does not depend on how they were written."""
    found = list(dict.fromkeys(terms))
    return sorted(found, key=order_key) if len(found) > 1 else found


def is_constant(expression: Expr | None, value: bool | None) -> bool:
    """Tell whether an expression is the literal TRUE, FALSE or NULL."""
    return isinstance(expression, Literal) and expression.value is value


def simplified(expression: Expr, as_filter: bool = False) -> Expr:
    """Return the simplest form of an expression, itself if that is it.

    `as_filter` says that only TRUE counts, so that NULL may become FALSE; otherwise the value stays the same.
    """
    match expression:
        case Call(function="and" | "or"):
            return _connective(expression, as_filter)
        case Call(function="not"):
            return _negation(expression, as_filter)
        case Call(function="in"):
            return _list(_with_simple_operands(expression), as_filter)
        case Call():
            return _call(_with_simple_operands(expression), as_filter)
        case Case():
            return _case(expression)
    return _with_simple_operands(expression)


def _with_simple_operands(expression: Expr) -> Expr:
    return with_operands(expression, simplified)


# AND and OR


def _connective(call: Call, as_filter: bool) -> Expr:
    is_and = call.function == "and"
    terms = in_order(_flat(call.function, [simplified(part, as_filter) for part in call.arguments]))
    kept = _decisive([term for term in terms if not is_constant(term, is_and)], not is_and, as_filter)
    if not kept:
        return _truth(is_and, call.span)
    if len(kept) == 1:
        return kept[0]
    if len(kept) == len(call.arguments) and all(a is b for a, b in zip(kept, call.arguments, strict=True)):
        return call
    return replace(call, arguments=tuple(kept), nullable=any(term.nullable for term in kept))


def _decisive(terms: list[Expr], absorbing: bool, as_filter: bool) -> list[Expr]:
    """Return the terms that decide: as a filter NULL is FALSE, and one absorbing term replaces all without a query."""
    if as_filter and absorbing:
        terms = [term for term in terms if not is_constant(term, None)]
    elif as_filter:
        terms = [_truth(False, term.span) if is_constant(term, None) else term for term in terms]
    decisive = next((term for term in terms if is_constant(term, absorbing)), None)
    return terms if decisive is None else in_order([*(term for term in terms if has_subquery(term)), decisive])


def _flat(name: str, terms: Iterable[Expr]) -> Iterable[Expr]:
    for term in terms:
        if isinstance(term, Call) and term.function == name:
            yield from _flat(name, term.arguments)
        else:
            yield term


def _truth(value: bool | None, span: Span) -> Literal:
    return Literal(value, type=BOOLEAN, nullable=value is None, span=span)


# NOT


def _negation(call: Call, as_filter: bool) -> Expr:
    inside = call.arguments[0]
    pushed = _negated(inside)
    if pushed is not None:
        return simplified(pushed, as_filter)
    simple = simplified(inside)
    if simple is inside:
        return call
    return simplified(replace(call, arguments=(simple,), nullable=simple.nullable), as_filter)


def _negated(condition: Expr) -> Expr | None:
    """Return the negation of a condition with the NOT moved inside or gone, or None if it has to stay."""
    match condition:
        case Literal():
            return replace(condition, value=None if condition.value is None else not condition.value)
        case Call(function="not"):
            return condition.arguments[0]
        case Call(function="and" | "or"):
            parts = tuple(
                Call("not", (part,), type=BOOLEAN, nullable=part.nullable, span=part.span)
                for part in condition.arguments
            )
            return replace(condition, function=_DUAL[condition.function], arguments=parts)
        case Call() if condition.function in _OPPOSITE:
            return replace(condition, function=_OPPOSITE[condition.function])
    return None


# Comparisons and lists


def _call(expression: Expr, as_filter: bool) -> Expr:
    assert isinstance(expression, Call)
    if expression.function in _COMPARE:
        return _comparison(expression, as_filter)
    if expression.function == "is_null":
        return _null_test(expression)
    return expression


def _comparison(call: Call, as_filter: bool) -> Expr:
    left, right = call.arguments
    if is_constant(left, None) or is_constant(right, None):
        return call if has_subquery(call) else _truth(False if as_filter else None, call.span)
    if isinstance(left, Literal) and isinstance(right, Literal):
        if left.value == left.value and right.value == right.value:
            return _truth(_COMPARE[call.function](left.value, right.value), call.span)
        return call
    if isinstance(left, Literal) or (not isinstance(right, Literal) and order_key(left) > order_key(right)):
        return replace(call, function=_TURNED[call.function], arguments=(right, left))
    return call


def _null_test(call: Call) -> Expr:
    operand = call.arguments[0]
    if isinstance(operand, Literal):
        return _truth(operand.value is None, call.span)
    if not operand.nullable and not has_subquery(operand):
        return _truth(False, call.span)
    return call


def _list(expression: Expr, as_filter: bool) -> Expr:
    assert isinstance(expression, Call)
    value, *items = expression.arguments
    if has_subquery(expression):
        return expression
    if as_filter:
        items = [item for item in items if not is_constant(item, None)]
    if is_constant(value, None) or not items:
        return _truth(False if as_filter else None, expression.span)
    items = _sorted_constants(items)
    if len(items) == 1:
        both = (value, items[0])
        equal = replace(expression, function="eq", arguments=both, nullable=any(e.nullable for e in both))
        return _comparison(equal, as_filter)
    if len(items) == len(expression.arguments) - 1 and all(
        a is b for a, b in zip(items, expression.arguments[1:], strict=True)
    ):
        return expression
    arguments = (value, *items)
    return replace(expression, arguments=arguments, nullable=any(e.nullable for e in arguments))


def _sorted_constants(items: list[Expr]) -> list[Expr]:
    """Return the items of a list, each once, in the order of their values if they are constants."""
    found = list({repr(item): item for item in items}.values())
    values = [item.value for item in found if isinstance(item, Literal)]
    if len(values) < len(found) or not all(isinstance(v, int | Decimal | str) for v in values):
        return found
    return sorted(found, key=lambda item: item.value)  # type: ignore[attr-defined]


# CASE


def _case(case: Case) -> Expr:
    branches: list[tuple[Expr, Expr]] = []
    otherwise = simplified(case.otherwise)
    for when, then in case.branches:
        condition, result = simplified(when, as_filter=True), simplified(then)
        if is_constant(condition, False) and not has_subquery(result):
            continue
        branches.append((condition, result))
    unchanged = len(branches) == len(case.branches) and all(
        new[0] is old[0] and new[1] is old[1] for new, old in zip(branches, case.branches, strict=True)
    )
    if unchanged and otherwise is case.otherwise:
        return case
    if not branches:
        return otherwise
    nullable = otherwise.nullable or any(then.nullable for _, then in branches)
    return replace(case, branches=tuple(branches), otherwise=otherwise, nullable=nullable)
