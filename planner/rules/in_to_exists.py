"""IN becomes EXISTS, with SQL's three-valued logic spelled out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cql.bound import (
    Aggregate,
    Call,
    Case,
    Exists,
    Expr,
    Filter,
    InSubquery,
    Join,
    Literal,
    Rel,
    conjunction,
    expressions,
    has_subquery,
    walk,
    with_children,
    with_expressions,
)
from cql.types import BOOLEAN
from planner.correlation import deepened
from planner.expressions import columns, equality
from planner.logical import KeyedJoin

TRUE = Literal(True, type=BOOLEAN, nullable=False)
FALSE = Literal(False, type=BOOLEAN, nullable=False)
UNKNOWN = Literal(None, type=BOOLEAN)


def in_to_exists(node: Rel) -> Rel | None:
    """Turn `x IN (query)` into an EXISTS of the rows of the query that match.

        Select * From S Where A In (Select A From R)
        ->  Select * From S Where Exists (Select A From R Where R.A = S.A)

    `x IN Q` is TRUE if a row of Q equals x, else NULL if of some row that is not known, else FALSE. Where only
    TRUE counts (conditions, and AND and OR in them), IN is EXISTS (a row that equals x), and NOT IN is NOT
    EXISTS (a row of which it is not known that it differs from x). For a single column the latter says: no row
    equals x, no row is NULL, and if x is NULL there is no row; each is an antijoin that knows its key.
    Anywhere else a CASE gives the three values.
    """
    if not any(isinstance(part, InSubquery) for e in expressions(node) for part in walk(e)):
        return None
    changed: Rel
    match node:
        case Filter() | Join() | KeyedJoin():
            changed = with_expressions(node, _truth)
        case Aggregate():
            changed = with_expressions(replace(node, calls=()), _value)
            calls = tuple(
                replace(
                    call,
                    arguments=tuple(_value(argument) for argument in call.arguments),
                    filter=None if call.filter is None else _truth(call.filter),
                )
                for call in node.calls
            )
            changed = replace(changed, calls=calls)  # type: ignore[call-arg]
        case _:
            changed = with_expressions(node, _value)
    return None if changed == node else changed


def _truth(expression: Expr) -> Expr:
    """Return an expression that is TRUE where the given one is, and FALSE or NULL elsewhere."""
    match expression:
        case InSubquery() if _is_ready(expression):
            return _exists(expression, _equalities(expression))
        case Call(function="not", arguments=(InSubquery() as membership,)) if _is_ready(membership):
            return _none_matches(membership)
        case Call(function="and" | "or"):
            return with_children(expression, _truth)
    return _value(expression)


def _value(expression: Expr) -> Expr:
    """Return an expression with the same value, NULL included."""
    if isinstance(expression, Case):
        branches = tuple((_truth(when), _value(then)) for when, then in expression.branches)
        return replace(expression, branches=branches, otherwise=_value(expression.otherwise))
    expression = with_children(expression, _value)
    if isinstance(expression, InSubquery) and _is_ready(expression):
        return _three_values(expression)
    return expression


def _is_ready(membership: InSubquery) -> bool:
    """Tell whether the operands hold no subqueries: otherwise these come first."""
    return not any(has_subquery(operand) for operand in membership.operands)


def _none_matches(membership: InSubquery) -> Expr:
    terms = _equalities(membership)
    nullable = [term for term in terms if term.nullable]
    if len(terms) > 1 and nullable:
        return _not(_exists(membership, _perhaps(terms)))
    found = [_not(_exists(membership, terms))]
    if nullable:
        operand, candidate = membership.operands[0], columns(membership.query)[0]
        if candidate.nullable:
            found.append(_not(_exists(membership, [_is_null(candidate)])))
        if operand.nullable:
            found.append(_not(_exists(membership, [_is_null(deepened(operand))])))
    return conjunction(found)


def _three_values(membership: InSubquery) -> Expr:
    terms = _equalities(membership)
    matches = _exists(membership, terms)
    if not any(term.nullable for term in terms):
        return matches
    unknown: list[Expr] = []
    if len(terms) > 1:
        unknown.append(_exists(membership, _perhaps(terms)))
    else:
        operand, candidate = membership.operands[0], columns(membership.query)[0]
        if operand.nullable:
            unknown.append(conjunction([_is_null(operand), _exists(membership, [])]))
        if candidate.nullable:
            unknown.append(_exists(membership, [_is_null(candidate)]))
    branches = ((matches, TRUE), *((condition, UNKNOWN) for condition in unknown))
    return Case(branches, FALSE, type=BOOLEAN, nullable=True, span=membership.span)


def _equalities(membership: InSubquery) -> list[Expr]:
    """Return what a row of the query has to satisfy to equal the operands."""
    pairs = zip(membership.operands, columns(membership.query), strict=True)
    return [replace(equality(deepened(operand), candidate), span=membership.span) for operand, candidate in pairs]


def _perhaps(terms: Iterable[Expr]) -> list[Expr]:
    """Return conditions that are TRUE where the given ones are TRUE or NULL."""
    return [
        Call("coalesce", (term, TRUE), type=BOOLEAN, nullable=False, span=term.span) if term.nullable else term
        for term in terms
    ]


def _exists(membership: InSubquery, terms: list[Expr]) -> Expr:
    query = membership.query
    if terms:
        query = Filter(query, conjunction(terms), span=membership.span)
    return Exists(query, type=BOOLEAN, nullable=False, span=membership.span)


def _is_null(expression: Expr) -> Expr:
    return Call("is_null", (expression,), type=BOOLEAN, nullable=False, span=expression.span)


def _not(expression: Expr) -> Expr:
    return Call("not", (expression,), type=BOOLEAN, nullable=expression.nullable, span=expression.span)
