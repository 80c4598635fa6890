"""Numbered rows of which only the first are wanted are a top-n."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Call, ColumnRef, Expr, Filter, Literal, Project, Rel, RowNumber, conjuncts
from planner.expressions import all_of
from planner.logical import GroupTopN

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def row_number_to_top_n(node: Rel) -> Rel | None:
    """Turn ROW_NUMBER and a condition on the number into a top-n of each partition.

        Select * From (Select A, B, Row_Number() Over (Partition By A Order By B) As n From S [Rows 9]) As X
        Where n <= 3   ->   the first 3 rows of each A by B, numbered as n

    Law: the rows with numbers up to k are the first k of their partition, whatever other conditions are asked of
    them. Conditions that all numbers from 1 to k satisfy go, others stay.
    """
    if not isinstance(node, Filter):
        return None
    numbering = _numbering(node.input)
    if numbering is None:
        return None
    owner, at = numbering
    terms = conjuncts(node.predicate)
    limits = [_largest(term, at) for term in terms]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    limit = max(1, min(known))
    if isinstance(owner, GroupTopN) and owner.limit <= limit:
        return None
    rest = all_of(term for term in terms if not _holds_up_to(term, at, limit))
    relation = _with_limit(node.input, limit)
    return relation if rest is None else replace(node, input=relation, predicate=rest)


def _numbering(rel: Rel) -> tuple[RowNumber | GroupTopN, int] | None:
    """Return what numbers the rows of a relation, through filters and projections, and the number's column."""
    match rel:
        case RowNumber() | GroupTopN(number=str()):
            return rel, len(rel.schema) - 1
        case Filter():
            return _numbering(rel.input)
        case Project():
            below = _numbering(rel.input)
            if below is None:
                return None
            places = [at for at, item in enumerate(rel.items) if _is_column(item, below[1])]
            return (below[0], places[0]) if places else None
    return None


def _with_limit(rel: Rel, limit: int) -> Rel:
    match rel:
        case RowNumber():
            return GroupTopN(rel.input, rel.partition, rel.keys, limit, rel.name, span=rel.span)
        case GroupTopN():
            return replace(rel, limit=limit)
        case Filter() | Project():
            return replace(rel, input=_with_limit(rel.input, limit))
    raise AssertionError(type(rel).__name__)


def _largest(term: Expr, at: int) -> int | None:
    """Return the largest number that a condition allows, or None if it sets no limit."""
    if not isinstance(term, Call):
        return None
    if term.function == "in" and _is_column(term.arguments[0], at):
        values = [_whole(argument) for argument in term.arguments[1:]]
        return None if None in values else max(value for value in values if value is not None)
    comparison = _comparison(term, at)
    if comparison is None:
        return None
    function, value = comparison
    return {"le": value, "eq": value, "lt": value - 1}.get(function)


def _holds_up_to(term: Expr, at: int, limit: int) -> bool:
    """Tell whether a condition holds for all numbers from 1 to a limit."""
    comparison = _comparison(term, at)
    if comparison is None:
        return False
    function, value = comparison
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


def _comparison(term: Expr, at: int) -> tuple[str, int] | None:
    """Return a comparison of the number with a constant, the number on the left."""
    if not isinstance(term, Call) or term.function not in _TURNED:
        return None
    left, right = term.arguments
    function = term.function
    if _is_column(right, at):
        left, right, function = right, left, _TURNED[function]
    value = _whole(right)
    return (function, value) if _is_column(left, at) and value is not None else None


def _is_column(expression: Expr, at: int) -> bool:
    return isinstance(expression, ColumnRef) and expression.depth == 0 and expression.index == at


def _whole(expression: Expr) -> int | None:
    if isinstance(expression, Literal) and expression.type.is_integer and expression.value is not None:
        return int(expression.value)
    return None
