"""Expressions to JSON values and back, for plans that are stored, shipped to executors and compared.

The encoding is canonical: equal expressions give equal JSON, and names that do not change the meaning
are left out. Operator ids are hashes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from cql import bound
from cql.bound import Expr
from cql.types import DataType, Kind, parse_type

Json = dict[str, Any]

_SPECIAL_TYPES = {"NULL": DataType(Kind.NULL), "INTERVAL": DataType(Kind.INTERVAL)}


def type_from_text(text: str) -> DataType:
    """Return the type that `str(type)` gave."""
    return _SPECIAL_TYPES.get(text) or parse_type(text)


NESTED_LEVELS = 32
"""Up to how many levels an expression is written as it nests. What writes and reads JSON recurses, and gives up soon
after a hundred: deeper ones are written as a list in which operands come before what they are operands of."""


def encode(expression: Expr) -> Json:
    """Return an expression as JSON values."""
    if _levels(expression) <= NESTED_LEVELS:
        return _encoded(expression, [encode(part) for part in bound.children(expression)])
    nodes: list[Json] = []
    places: list[int] = []
    waiting = [(expression, False)]
    while waiting:
        part, is_ready = waiting.pop()
        below = bound.children(part)
        if not is_ready:
            waiting += [(part, True), *((each, False) for each in reversed(below))]
            continue
        first = len(places) - len(below)
        nodes.append(_encoded(part, places[first:]))
        places[first:] = [len(nodes) - 1]
    return {"nodes": nodes}


def _levels(expression: Expr) -> int:
    count, level = 0, [expression]
    while level:
        count, level = count + 1, [part for each in level for part in bound.children(each)]
    return count


def _encoded(expression: Expr, operands: Sequence[Any]) -> Json:
    """Return an expression as JSON values, given what stands for its operands."""
    common = {"type": str(expression.type), "nullable": expression.nullable}
    match expression:
        case bound.ColumnRef(depth=0):
            return {"column": expression.index, **common}
        case bound.Literal():
            return {"value": _encode_value(expression.value), **common}
        case bound.Call():
            return {"call": expression.function, "args": [*operands], **common}
        case bound.UserCall():
            return {"user": expression.function, "args": [*operands], **common}
        case bound.Cast():
            return {"cast": operands[0], **common}
        case bound.Case():
            branches = [[when, then] for when, then in zip(operands[:-1:2], operands[1::2], strict=True)]
            return {"case": branches, "else": operands[-1], **common}
    raise TypeError(f"{type(expression).__name__} has no place in an operator")


def decode(data: Json) -> Expr:
    """Return the expression that `encode` gave."""
    if "nodes" not in data:
        return _decoded(data, decode)
    made: list[Expr] = []
    for node in data["nodes"]:
        made.append(_decoded(node, made.__getitem__))
    return made[-1]


def _decoded(data: Json, operand: Callable[[Any], Expr]) -> Expr:
    """Return an expression, given how to find its operands."""
    common: dict[str, Any] = {"type": type_from_text(data["type"]), "nullable": data["nullable"]}
    match data:
        case {"column": index}:
            return bound.ColumnRef(index, **common)
        case {"value": value}:
            return bound.Literal(_decode_value(value), **common)
        case {"call": name, "args": arguments}:
            return bound.Call(name, tuple(map(operand, arguments)), **common)
        case {"user": name, "args": arguments}:
            return bound.UserCall(name, tuple(map(operand, arguments)), **common)
        case {"cast": inside}:
            return bound.Cast(operand(inside), **common)
        case {"case": branches, "else": otherwise}:
            pairs = tuple((operand(when), operand(then)) for when, then in branches)
            return bound.Case(pairs, operand(otherwise), **common)
    raise ValueError(f"not an expression: {data}")


def encode_call(call: bound.AggregateCall) -> Json:
    """Return an aggregate call as JSON values."""
    return {
        "function": call.function,
        "args": [encode(a) for a in call.arguments],
        "type": str(call.type),
        "nullable": call.nullable,
        "distinct": call.distinct,
        "filter": None if call.filter is None else encode(call.filter),
        "user_defined": call.user_defined,
    }


def decode_call(data: Json) -> bound.AggregateCall:
    """Return the aggregate call that `encode_call` gave."""
    return bound.AggregateCall(
        data["function"],
        tuple(decode(a) for a in data["args"]),
        type_from_text(data["type"]),
        data["nullable"],
        data["distinct"],
        None if data["filter"] is None else decode(data["filter"]),
        data["user_defined"],
    )


def encode_window(spec: bound.WindowSpec) -> Json:
    """Return a window specification as JSON values."""
    match spec:
        case bound.RangeSpec():
            return {"range": spec.ticks, "slide": spec.slide}
        case bound.RowsSpec():
            return {"rows": spec.rows}
        case bound.PartitionRowsSpec():
            return {"partition": list(spec.columns), "rows": spec.rows, "range": spec.ticks}
    return {}


def decode_window(data: Json) -> bound.WindowSpec:
    """Return the window specification that `encode_window` gave."""
    match data:
        case {"partition": columns, "rows": rows, "range": ticks}:
            return bound.PartitionRowsSpec(tuple(columns), rows, ticks)
        case {"range": ticks, "slide": slide}:
            return bound.RangeSpec(ticks, slide)
        case {"rows": rows}:
            return bound.RowsSpec(rows)
    return bound.UnboundedSpec()


def _encode_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, float):
        return {"double": repr(value)}
    return value


def _decode_value(value: Any) -> Any:
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"double": text}:
            return float(text)
    return value


def _decoding(decoder: Callable[[Json], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: decoder(value) if isinstance(value, dict) else value)


TypeField = Annotated[
    DataType,
    BeforeValidator(lambda value: type_from_text(value) if isinstance(value, str) else value),
    PlainSerializer(str),
]
ExprField = Annotated[Expr, _decoding(decode), PlainSerializer(encode)]
CallField = Annotated[bound.AggregateCall, _decoding(decode_call), PlainSerializer(encode_call)]
WindowField = Annotated[bound.WindowSpec, _decoding(decode_window), PlainSerializer(encode_window)]
