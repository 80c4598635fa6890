"""Expressions to JSON values and back, for plans that are stored, shipped to executors and compared.

The encoding is canonical: equal expressions give equal JSON, and names that do not change the meaning
are left out. Operator ids are hashes of it.
"""

from __future__ import annotations

from collections.abc import Callable
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


def encode(expression: Expr) -> Json:
    """Return an expression as JSON values."""
    common = {"type": str(expression.type), "nullable": expression.nullable}
    match expression:
        case bound.ColumnRef(depth=0):
            return {"column": expression.index, **common}
        case bound.Literal():
            return {"value": _encode_value(expression.value), **common}
        case bound.Call():
            return {"call": expression.function, "args": [encode(a) for a in expression.arguments], **common}
        case bound.UserCall():
            return {"user": expression.function, "args": [encode(a) for a in expression.arguments], **common}
        case bound.Cast():
            return {"cast": encode(expression.operand), **common}
        case bound.Case():
            branches = [[encode(when), encode(then)] for when, then in expression.branches]
            return {"case": branches, "else": encode(expression.otherwise), **common}
    raise TypeError(f"{type(expression).__name__} has no place in an operator")


def decode(data: Json) -> Expr:
    """Return the expression that `encode` gave."""
    common: dict[str, Any] = {"type": type_from_text(data["type"]), "nullable": data["nullable"]}
    match data:
        case {"column": index}:
            return bound.ColumnRef(index, **common)
        case {"value": value}:
            return bound.Literal(_decode_value(value), **common)
        case {"call": name, "args": arguments}:
            return bound.Call(name, tuple(decode(a) for a in arguments), **common)
        case {"user": name, "args": arguments}:
            return bound.UserCall(name, tuple(decode(a) for a in arguments), **common)
        case {"cast": operand}:
            return bound.Cast(decode(operand), **common)
        case {"case": branches, "else": otherwise}:
            pairs = tuple((decode(when), decode(then)) for when, then in branches)
            return bound.Case(pairs, decode(otherwise), **common)
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
