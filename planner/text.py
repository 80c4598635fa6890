"""Expressions and logical plans as text for people: used by EXPLAIN, EXPLAIN RULES and golden files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from cql import bound
from cql.bound import Expr, Rel
from cql.intervals import TimeDomain, duration_text
from cql.types import Kind
from planner.logical import GroupTopN, KeyedJoin, MultiJoin, StreamJoin

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
        case bound.ColumnRef():
            known = expression.depth == 0 and expression.index < len(names)
            name = names[expression.index] if known else expression.name or f"${expression.index}"
            return "^" * expression.depth + name
        case bound.Literal():
            return literal_text(expression)
        case bound.Cast():
            return f"CAST({expression_text(expression.operand, names)} AS {expression.type})"
        case bound.Case():
            branches = " ".join(
                f"WHEN {expression_text(when, names)} THEN {expression_text(then, names)}"
                for when, then in expression.branches
            )
            return f"CASE {branches} ELSE {expression_text(expression.otherwise, names)} END"
        case bound.InSubquery():
            operands = ", ".join(expression_text(operand, names) for operand in expression.operands)
            return f"({operands}) IN <query>"
        case bound.Exists():
            return "EXISTS <query>"
        case bound.ScalarSubquery():
            return "<query>"
        case bound.Call() | bound.UserCall():
            return _call_text(expression, names)
    return str(expression)


def _call_text(call: bound.Call | bound.UserCall, names: Sequence[str]) -> str:
    parts = [expression_text(argument, names) for argument in call.arguments]
    nested = [
        f"({part})" if isinstance(a, bound.Call) and (a.function in _INFIX or a.function in _UNARY) else part
        for a, part in zip(call.arguments, parts, strict=True)
    ]
    if isinstance(call, bound.Call):
        if call.function in _INFIX and len(parts) > 1:
            loose = call.function in ("and", "or")
            shown = [
                part if loose and isinstance(a, bound.Call) and a.function not in ("and", "or") else inner
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


def literal_text(literal: bound.Literal) -> str:
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


def aggregate_text(call: bound.AggregateCall, names: Sequence[str]) -> str:
    """Return an aggregate call with the column names of its input."""
    inner = ", ".join(expression_text(argument, names) for argument in call.arguments) or "*"
    text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{inner})"
    return text + (f" FILTER ({expression_text(call.filter, names)})" if call.filter else "")


def window_text(spec: bound.WindowSpec, names: Sequence[str] = (), time: TimeDomain | None = None) -> str:
    """Return a window specification as CQL would write it."""
    match spec:
        case bound.PartitionRowsSpec():
            keys = ", ".join(names[at] if at < len(names) else f"${at}" for at in spec.columns)
            by_time = f" Range {duration_text(spec.ticks, time)}" if spec.ticks else ""
            return f"Partition By {keys} Rows {spec.rows}{by_time}"
        case bound.RangeSpec(ticks=1, slide=None):
            return "Now"
        case bound.RangeSpec():
            slide = f" Slide {duration_text(spec.slide, time)}" if spec.slide else ""
            return f"Range {duration_text(spec.ticks, time)}{slide}"
    return str(spec)


def sort_text(keys: Sequence[bound.SortKey], names: Sequence[str]) -> str:
    """Return an ORDER BY list; NULLs are mentioned where they are not at the default place."""
    parts = []
    for key in keys:
        text = names[key.column] + (" DESC" if key.descending else "")
        if key.nulls_first == key.descending:
            text += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
        parts.append(text)
    return ", ".join(parts)


def names_of(rel: Rel) -> list[str]:
    """Return the column names of a stream or relation."""
    return [f.name for f in rel.schema]


def headline(node: Rel) -> str:
    """Return one line for a node: what it does, without its inputs."""
    below = bound.direct_inputs(node)
    names = [name for rel in below for name in names_of(rel)]
    match node:
        case bound.StreamScan():
            return f"stream {node.name}"
        case bound.RelationScan():
            return f"relation {node.name}" + ("" if node.domain else " (static)")
        case bound.Window():
            return f"window [{window_text(node.spec, names, node.time)}]"
        case bound.Filter():
            return f"filter {expression_text(node.predicate, names)}"
        case bound.Project():
            return "project " + ", ".join(
                text if text == name else f"{text} AS {name}"
                for text, name in zip((expression_text(i, names) for i in node.items), node.names, strict=True)
            )
        case bound.Join():
            condition = "" if node.condition is None else f" on {expression_text(node.condition, names)}"
            return f"{node.kind.value} join{condition}"
        case KeyedJoin():
            return f"{node.kind.value} join" + _keys_text(node, names)
        case StreamJoin():
            return "stream join" + _keys_text(node, names)
        case MultiJoin():
            keys = " = ".join(
                "(" + ", ".join(expression_text(k, names_of(rel)) for k in keys) + ")"
                for rel, keys in zip(node.relations, node.keys, strict=True)
            )
            rest = f" and {expression_text(node.residual, names)}" if node.residual else ""
            return f"multiway join on {keys}{rest}"
        case bound.Aggregate():
            parts = [expression_text(key, names) for key in node.keys]
            calls = ", ".join(aggregate_text(call, names) for call in node.calls)
            empty = "" if node.keys else f", empty row {node.empty_row.name.lower().replace('_', ' ')}"
            return f"aggregate {calls}" + (f" by {', '.join(parts)}" if parts else "") + empty
        case bound.Distinct():
            return "distinct"
        case bound.SetOperation():
            return node.kind.value.lower() + (" all" if node.all else "")
        case bound.TopN():
            return f"top {node.limit} by {sort_text(node.keys, names)}"
        case GroupTopN():
            within = ", ".join(names[at] for at in node.partition)
            number = f" numbered as {node.number}" if node.number else ""
            return f"top {node.limit} of each ({within}) by {sort_text(node.keys, names)}{number}"
        case bound.RowNumber():
            within = ", ".join(names[at] for at in node.partition)
            return f"number rows of each ({within}) by {sort_text(node.keys, names)} as {node.name}"
        case bound.RelToStream():
            every = " at every tick" if node.every_tick else ""
            return node.kind.value.capitalize() + every
    return type(node).__name__


def _keys_text(node: KeyedJoin | StreamJoin, names: Sequence[str]) -> str:
    left, right = bound.direct_inputs(node)
    pairs = [
        f"{expression_text(a, names_of(left))} = {expression_text(b, names_of(right))}"
        for a, b in zip(node.left_keys, node.right_keys, strict=True)
    ]
    rest = [expression_text(node.residual, names)] if node.residual else []
    conditions = pairs + rest
    return " on " + " and ".join(conditions) if conditions else ""


def plan_text(node: Rel, depth: int = 0) -> str:
    """Return a logical plan as an indented tree, queries inside expressions included."""
    lines = ["  " * depth + headline(node)]
    lines += [plan_text(below, depth + 1) for below in bound.direct_inputs(node)]
    for query in bound.relations.subqueries(node):
        lines += ["  " * (depth + 1) + "query:", plan_text(query, depth + 2)]
    return "\n".join(lines)
