"""Built-in aggregates: argument types, result types, and whether the result can be NULL.

FIRST and LAST are bound to `arg_min` and `arg_max` over the stream's timestamp column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cql import types as t
from cql.functions.scalars import BadArguments, Signature
from cql.types import DataType, Kind


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    name: str
    rule: Callable[[Sequence[DataType]], Signature]
    usage: str
    description: str
    takes_distinct: bool = False


def _one(given: Sequence[DataType]) -> DataType:
    if len(given) != 1:
        raise BadArguments("it takes one argument")
    return given[0]


def _number(given: Sequence[DataType]) -> DataType:
    actual = _one(given)
    if actual.kind is Kind.NULL:
        return t.INT
    if not actual.is_numeric:
        raise BadArguments(f"it takes a number, not {actual}")
    return actual


def _count(given: Sequence[DataType]) -> Signature:
    if len(given) > 1:
        raise BadArguments("it takes one argument, or *")
    return Signature(tuple(given), t.BIGINT, False)


def _sum(given: Sequence[DataType]) -> Signature:
    actual = _number(given)
    if actual.is_integer:
        return Signature((actual,), t.BIGINT, True)
    if actual.kind is Kind.DECIMAL:
        return Signature((actual,), t.decimal(min(actual.precision + 10, t.MAX_PRECISION), actual.scale), True)
    return Signature((actual,), t.DOUBLE, True)


def _avg(given: Sequence[DataType]) -> Signature:
    actual = _number(given)
    if actual.kind is Kind.DECIMAL:
        scale = min(actual.scale + 4, t.MAX_PRECISION)
        return Signature((actual,), t.decimal(min(actual.precision + 4, t.MAX_PRECISION), scale), True)
    return Signature((actual,), t.DOUBLE, True)


def _extreme(given: Sequence[DataType]) -> Signature:
    actual = _one(given)
    return Signature((actual,), actual, True)


def _spread(given: Sequence[DataType]) -> Signature:
    _number(given)
    return Signature((t.DOUBLE,), t.DOUBLE, True)


def _arg(given: Sequence[DataType]) -> Signature:
    if len(given) != 2:
        raise BadArguments("it takes the value to return and the value to order by")
    return Signature(tuple(given), given[0], True)


AGGREGATES: dict[str, AggregateFunction] = {
    f.name: f
    for f in (
        AggregateFunction("count", _count, "count(*), count([DISTINCT] x)", "rows, or values that are not NULL", True),
        AggregateFunction("sum", _sum, "sum([DISTINCT] x)", "sum; NULL of nothing and beyond the result's range", True),
        AggregateFunction("avg", _avg, "avg([DISTINCT] x)", "mean", True),
        AggregateFunction("min", _extreme, "min(x)", "smallest value", True),
        AggregateFunction("max", _extreme, "max(x)", "largest value", True),
        AggregateFunction("stddev", _spread, "stddev(x)", "sample standard deviation; NULL below two values"),
        AggregateFunction("variance", _spread, "variance(x)", "sample variance; NULL below two values"),
        AggregateFunction("arg_min", _arg, "arg_min(x, by)", "x where `by` is smallest; ties: the smallest x"),
        AggregateFunction("arg_max", _arg, "arg_max(x, by)", "x where `by` is largest; ties: the largest x"),
        AggregateFunction("first", _extreme, "first(x)", "x of the earliest row by the stream's timestamp"),
        AggregateFunction("last", _extreme, "last(x)", "x of the latest row by the stream's timestamp"),
        AggregateFunction(
            "approx_count_distinct", _count, "approx_count_distinct(x)", "about how many different values"
        ),
    )
}
