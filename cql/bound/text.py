"""Expressions, windows and orders as text for people: used by headlines of nodes, EXPLAIN RULES and golden files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cql.bound.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Exists,
    Expr,
    InSubquery,
    Literal,
    ScalarSubquery,
    UserCall,
)
from cql.bound.windows import PartitionRowsSpec, RangeSpec, WindowSpec
from cql.intervals import TimeDomain, duration_text
from cql.types import Kind

if TYPE_CHECKING:
    from cql.bound.relations import SortKey

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "mod": "%",
    "concat": "||",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "is_distinct": "IS DISTINCT FROM",
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
}


def expression_text(expression: Expr, names: Sequence[str] = ()) -> str:
    """Return an expression with the column names of its input; outer columns are marked with ^."""
    match expression:
        case ColumnRef():
            known = expression.depth == 0 and expression.index < len(names)
            name = names[expression.index] if known else expression.name or f"${expression.index}"
            return "^" * expression.depth + name
        case Literal():
            return literal_text(expression)
        case Cast():
            return f"CAST({expression_text(expression.operand, names)} AS {expression.type})"
        case Case():
            branches = " ".join(
                f"WHEN {expression_text(when, names)} THEN {expression_text(then, names)}"
                for when, then in expression.branches
            )
            return f"CASE {branches} ELSE {expression_text(expression.otherwise, names)} END"
        case InSubquery():
            operands = ", ".join(expression_text(operand, names) for operand in expression.operands)
            return f"({operands}) IN <query>"
        case Exists():
            return "EXISTS <query>"
        case ScalarSubquery():
            return "<query>"
        case Call() | UserCall():
            return _call_text(expression, names)
    return str(expression)


def _call_text(call: Call | UserCall, names: Sequence[str]) -> str:
    parts = [expression_text(argument, names) for argument in call.arguments]
    nested = [
        f"({part})" if isinstance(a, Call) and (a.function in _INFIX or a.function in _UNARY) else part
        for a, part in zip(call.arguments, parts, strict=True)
    ]
    if isinstance(call, Call):
        if call.function in _INFIX and len(parts) > 1:
            loose = call.function in ("and", "or")
            shown = [
                part if loose and isinstance(a, Call) and a.function not in ("and", "or") else inner
                for a, part, inner in zip(call.arguments, parts, nested, strict=True)
            ]
            return f" {_INFIX[call.function]} ".join(shown)
        if call.function in _UNARY:
            return _UNARY[call.function](nested[0])
        if call.function == "in":
            return f"{nested[0]} IN ({', '.join(parts[1:])})"
    return f"{call.function}({', '.join(parts)})"


_UNARY: dict[str, Callable[[str], str]] = {
    "not": lambda text: f"NOT {text}",
    "negate": lambda text: f"-{text}",
    "is_null": lambda text: f"{text} IS NULL",
}


def literal_text(literal: Literal) -> str:
    """Return a constant as CQL would write it."""
    value = literal.value
    if value is None:
        return "NULL"
    if literal.type.kind is Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if literal.type.kind is Kind.STRING:
        return "'" + str(value).replace("'", "''") + "'"
    if literal.type.kind is Kind.INTERVAL:
        length = duration_text(int(value), TimeDomain.TIMESTAMP).replace(",", "")
        return f"INTERVAL '{length.upper()}'"
    if literal.type.kind is Kind.TIMESTAMP:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(value))
        return f"TIMESTAMP '{moment}'"
    return str(value)


def aggregate_text(call: AggregateCall, names: Sequence[str]) -> str:
    """Return an aggregate call with the column names of its input."""
    inner = ", ".join(expression_text(argument, names) for argument in call.arguments) or "*"
    text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{inner})"
    return text + (f" FILTER ({expression_text(call.filter, names)})" if call.filter else "")


def window_text(spec: WindowSpec, names: Sequence[str] = (), time: TimeDomain | None = None) -> str:
    """Return a window specification as CQL would write it."""
    match spec:
        case PartitionRowsSpec():
            keys = ", ".join(names[at] if at < len(names) else f"${at}" for at in spec.columns)
            by_time = f" Range {duration_text(spec.ticks, time)}" if spec.ticks else ""
            return f"Partition By {keys} Rows {spec.rows}{by_time}"
        case RangeSpec(ticks=1, slide=None):
            return "Now"
        case RangeSpec():
            slide = f" Slide {duration_text(spec.slide, time)}" if spec.slide else ""
            return f"Range {duration_text(spec.ticks, time)}{slide}"
    return str(spec)


def sort_text(keys: Sequence[SortKey], names: Sequence[str]) -> str:
    """Return an ORDER BY list; NULLs are mentioned where they are not at the default place."""
    parts = []
    for key in keys:
        text = names[key.column] + (" DESC" if key.descending else "")
        if key.nulls_first == key.descending:
            text += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
        parts.append(text)
    return ", ".join(parts)


def keys_text(
    pairs: Sequence[tuple[Expr, Expr]],
    residual: Expr | None,
    left: Sequence[str],
    right: Sequence[str],
) -> str:
    """Return the condition of a join, as the end of a sentence; nothing if all pairs match."""
    conditions = [f"{expression_text(a, left)} = {expression_text(b, right)}" for a, b in pairs]
    if residual is not None:
        conditions.append(expression_text(residual, [*left, *right]))
    return " on " + " and ".join(conditions) if conditions else ""


def all_keys_text(keys: Sequence[Sequence[Expr]], residual: Expr | None, inputs: Sequence[Sequence[str]]) -> str:
    """Return the condition of a join of several inputs on keys that all of them share."""
    equal = " = ".join(
        "(" + ", ".join(expression_text(key, names) for key in own) + ")"
        for names, own in zip(inputs, keys, strict=True)
    )
    names = [name for own in inputs for name in own]
    return equal + (f" and {expression_text(residual, names)}" if residual else "")
