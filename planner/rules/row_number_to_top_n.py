"""Numbered rows of which only the first are wanted are a top-n."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import (
    Call,
    ColumnRef,
    Distinct,
    Expr,
    Filter,
    Join,
    Literal,
    Project,
    Rel,
    RowNumber,
    SetOperation,
    conjuncts,
)
from planner.expressions import all_of
from planner.logical import GroupTopN, JoinType, KeyedJoin

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}

Limits = dict[int, int]
"""Columns, and the largest value that matters of each."""


def row_number_to_top_n(node: Rel) -> Rel | None:
    """Turn ROW_NUMBER and a condition on the number into a top-n of each partition.

        Select * From (Select A, B, Row_Number() Over (Partition By A Order By B) As n From S [Rows 9]) As X
        Where n <= 3   ->   the first 3 rows of each A by B, numbered as n

    Law: the rows with numbers up to k are the first k of their partition. The filter on the number may stand
    above whatever passes each row on by itself: filters, projections, DISTINCT, set operations, and joins, also
    outer ones, since a row that comes without a partner then has no number. Conditions that all numbers up to
    k satisfy go if only filters and projections lie between, others stay.
    """
    if not isinstance(node, Filter):
        return None
    terms = conjuncts(node.predicate)
    limits: Limits = {}
    for column, limit in filter(None, map(_limit, terms)):
        limits[column] = max(1, min(limit, limits.get(column, limit)))
    relation = _limited(node.input, limits)
    if relation is node.input:
        return None
    at = _number_column(relation)
    rest = all_of(term for term in terms if at is None or not _holds_up_to(term, at, limits.get(at, 0)))
    return relation if rest is None else replace(node, input=relation, predicate=rest)


def _limited(rel: Rel, limits: Limits) -> Rel:
    """Return a relation without rows that have a number above a limit; itself if it does not number rows."""
    if not limits:
        return rel
    match rel:
        case RowNumber() if len(rel.schema) - 1 in limits:
            limit = limits[len(rel.schema) - 1]
            return GroupTopN(rel.input, rel.partition, rel.keys, limit, rel.name, span=rel.span)
        case GroupTopN(number=str()) if limits.get(len(rel.schema) - 1, rel.limit) < rel.limit:
            return replace(rel, limit=limits[len(rel.schema) - 1])
        case Filter() | Distinct():
            below = _limited(rel.input, limits)
            return rel if below is rel.input else replace(rel, input=below)
        case Project():
            below = _limited(rel.input, _through(rel, limits))
            return rel if below is rel.input else replace(rel, input=below)
        case SetOperation():
            return _on_both_sides(rel, limits, limits)
        case KeyedJoin(kind=JoinType.SEMI | JoinType.ANTI):
            return _on_both_sides(rel, limits, {})
        case Join() | KeyedJoin():
            width = len(rel.left.schema)
            on_the_right = {at - width: limit for at, limit in limits.items() if at >= width}
            return _on_both_sides(rel, {at: limit for at, limit in limits.items() if at < width}, on_the_right)
    return rel


def _through(project: Project, limits: Limits) -> Limits:
    below: Limits = {}
    for at, limit in limits.items():
        item = project.items[at]
        if isinstance(item, ColumnRef) and item.depth == 0:
            below[item.index] = min(limit, below.get(item.index, limit))
    return below


def _on_both_sides(rel: SetOperation | Join | KeyedJoin, on_the_left: Limits, on_the_right: Limits) -> Rel:
    left, right = _limited(rel.left, on_the_left), _limited(rel.right, on_the_right)
    return rel if left is rel.left and right is rel.right else replace(rel, left=left, right=right)


def _number_column(rel: Rel) -> int | None:
    """Return the column of the number of a top-n below filters and projections, or None."""
    match rel:
        case GroupTopN(number=str()):
            return len(rel.schema) - 1
        case Filter():
            return _number_column(rel.input)
        case Project():
            below = _number_column(rel.input)
            places = [at for at, item in enumerate(rel.items) if below is not None and _is_column(item, below)]
            return places[0] if places else None
    return None


def _limit(term: Expr) -> tuple[int, int] | None:
    """Return a column and the largest value that a condition allows it, if it sets such a limit."""
    match term:
        case Call(function="in", arguments=(ColumnRef(depth=0) as column, *_)):
            values = [_whole(argument) for argument in term.arguments[1:]]
            known = [value for value in values if value is not None]
            return (column.index, max(known)) if len(known) == len(values) else None
    comparison = _comparison(term)
    if comparison is None:
        return None
    function, at, value = comparison
    limits = {"le": value, "eq": value, "lt": value - 1}
    return (at, limits[function]) if function in limits else None


def _holds_up_to(term: Expr, at: int, limit: int) -> bool:
    """Tell whether a condition is one on a column and holds for all numbers from 1 to a limit."""
    comparison = _comparison(term)
    if comparison is None or comparison[1] != at:
        return False
    function, _, value = comparison
    match function:
        case "le":
            return value >= limit
        case "lt":
            return value > limit
        case "ge":
            return value <= 1
        case "gt":
            return value < 1
    return value == limit == 1


def _comparison(term: Expr) -> tuple[str, int, int] | None:
    """Return a comparison of a column with a whole number: the operator, the column and the number."""
    if not isinstance(term, Call) or term.function not in _TURNED:
        return None
    left, right = term.arguments
    function = term.function
    if isinstance(right, ColumnRef):
        left, right, function = right, left, _TURNED[function]
    value = _whole(right)
    if not isinstance(left, ColumnRef) or left.depth or value is None:
        return None
    return function, left.index, value


def _is_column(expression: Expr, at: int) -> bool:
    return isinstance(expression, ColumnRef) and expression.depth == 0 and expression.index == at


def _whole(expression: Expr) -> int | None:
    if isinstance(expression, Literal) and expression.type.is_integer and expression.value is not None:
        return int(expression.value)
    return None
