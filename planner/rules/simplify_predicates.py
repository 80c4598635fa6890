"""Conditions in their simplest form."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Aggregate, AggregateCall, Expr, Filter, Join, Project, Rel
from planner.logic import is_constant, simplified
from planner.logical import KeyedJoin, MultiJoin, StreamJoin


def simplify_predicates(node: Rel) -> Rel | None:
    """Simplify the expressions of a node; a filter that is always true disappears.

        Where not (A < 1 or not B = 2) and true   ->   Where A >= 1 and B = 2

    The laws of three-valued logic in `planner/logic.py`. In the condition of a filter, a join or an
    aggregate's FILTER only TRUE counts and NULL may become FALSE; a value in a select list or a group's key
    keeps its value, and its column can be NULL afterwards if it could before.
    """
    match node:
        case Filter():
            predicate = simplified(node.predicate, as_filter=True)
            if is_constant(predicate, True):
                return node.input
            return None if predicate is node.predicate else replace(node, predicate=predicate)
        case Join():
            condition = _condition(node.condition)
            return None if condition is node.condition else replace(node, condition=condition)
        case KeyedJoin() | StreamJoin() | MultiJoin():
            condition = _condition(node.residual)
            return None if condition is node.residual else replace(node, residual=condition)
        case Project():
            items = tuple(_value(item) for item in node.items)
            return None if _same(items, node.items) else replace(node, items=items)
        case Aggregate():
            keys = tuple(_value(key) for key in node.keys)
            calls = tuple(_aggregate(call) for call in node.calls)
            if _same(keys, node.keys) and _same(calls, node.calls):
                return None
            return replace(node, keys=keys, calls=calls)
    return None


def _condition(condition: Expr | None) -> Expr | None:
    if condition is None:
        return None
    simple = simplified(condition, as_filter=True)
    return None if is_constant(simple, True) else simple


def _value(expression: Expr) -> Expr:
    simple = simplified(expression)
    return simple if simple.nullable == expression.nullable else replace(simple, nullable=expression.nullable)


def _aggregate(call: AggregateCall) -> AggregateCall:
    arguments = tuple(simplified(argument) for argument in call.arguments)
    condition = _condition(call.filter)
    if condition is call.filter and _same(arguments, call.arguments):
        return call
    return replace(call, arguments=arguments, filter=condition)


def _same(after: tuple[object, ...], before: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(after, before, strict=True))
