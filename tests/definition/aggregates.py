"""What the aggregates compute: each takes the argument rows of a group and the type of the result.

A result is a function of the bag of rows, never of their order: sums are exact and rounded once, ties are
broken by value. Rows whose (first) argument is NULL do not take part.

| aggregate | meaning |
|---|---|
| `count(*)`, `count(x)` | rows; values that are not NULL |
| `sum` | exact; NULL of no values, and beyond the range of the result's type |
| `avg` | of integers and DOUBLEs the DOUBLE sum divided by the count; of DECIMALs exact, rounded half up |
| `min`, `max` | NaN is the largest DOUBLE, FALSE is less than TRUE, strings compare by code point |
| `stddev`, `variance` | of a sample; NULL below two values; NaN as soon as a value is infinite or NaN |
| `arg_min(x, by)`, `arg_max` | x of the row with the smallest (largest) pair (by, x), a NULL x being the |
| | smallest; rows where `by` is NULL do not take part |
| `approx_count_distinct` | here exactly how many different values that are not NULL |
| DISTINCT | each different argument once |
| FILTER | only rows for which the condition is true |
| of the user | `add` for each row in ascending order, NULLs as None, then `result()`; NULL without a row |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from cql.types import DataType, Kind
from tests.definition.values import NAN, Row, Value, canonical, fit, order

Numbers = Sequence[Any]
"""Values of one numeric type, none of them NULL."""


def _sum(numbers: Numbers, data_type: DataType) -> Value:
    if not numbers:
        return None
    endless = [n for n in numbers if isinstance(n, float) and not math.isfinite(n)]
    if endless:
        return canonical(sum(endless))
    return fit(sum(map(Fraction, numbers)), data_type)


def _avg(numbers: Numbers, data_type: DataType) -> Value:
    if not numbers:
        return None
    if data_type.kind is Kind.DECIMAL:
        return fit(sum(map(Fraction, numbers)) / len(numbers), data_type)
    return canonical(_sum(numbers, data_type) / len(numbers))  # type: ignore[operator]


def _variance(numbers: Numbers, data_type: DataType) -> Value:
    if len(numbers) < 2:
        return None
    if not all(map(math.isfinite, numbers)):
        return NAN
    exact = [Fraction(n) for n in numbers]
    mean = sum(exact) / len(exact)
    return fit(sum((n - mean) ** 2 for n in exact) / (len(exact) - 1), data_type)


def _stddev(numbers: Numbers, data_type: DataType) -> Value:
    variance = _variance(numbers, data_type)
    return None if variance is None else canonical(math.sqrt(variance))  # type: ignore[arg-type]


def _of_values(compute: Callable[[Numbers, DataType], Value]) -> Callable[[Sequence[Row], DataType], Value]:
    """Return an aggregate that sees its first argument only, and that only where it is not NULL."""
    return lambda rows, data_type: compute([row[0] for row in rows if row[0] is not None], data_type)


def _pair_order(row: Row) -> Any:
    x, by = row
    return order(by), order(x)


AGGREGATES: dict[str, Callable[[Sequence[Row], DataType], Value]] = {
    "count": lambda rows, _: sum(None not in row for row in rows),
    "sum": _of_values(_sum),
    "avg": _of_values(_avg),
    "min": _of_values(lambda values, _: min(values, key=order, default=None)),
    "max": _of_values(lambda values, _: max(values, key=order, default=None)),
    "variance": _of_values(_variance),
    "stddev": _of_values(_stddev),
    "approx_count_distinct": _of_values(lambda values, _: len(set(values))),
    "arg_min": lambda rows, _: min((row for row in rows if row[1] is not None), key=_pair_order, default=(None,))[0],
    "arg_max": lambda rows, _: max((row for row in rows if row[1] is not None), key=_pair_order, default=(None,))[0],
}
"""FIRST and LAST are bound to `arg_min` and `arg_max`."""


def user_aggregate(code: Any, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return what a user's aggregate class makes of the rows of a group."""
    if not rows:
        return None
    state = code()
    for row in rows:
        state.add(*row)
    return state.result()
