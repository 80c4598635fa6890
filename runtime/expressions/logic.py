"""Comparisons, three-valued logic, and choosing between values.

Arrow compares all types as CQL does but DOUBLE, where NaN has to equal itself and be larger than all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from cql.types import BOOLEAN, DataType
from runtime.expressions.values import Datum, Kernel, has_nan, is_constant, null, without

_ARROW: dict[str, Callable[[Datum, Datum], Datum]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

# Comparisons


def compare(operator: str, a: Datum, b: Datum) -> Datum:
    """Return how two operands compare; NULL if one of them is NULL."""
    if pa.types.is_floating(a.type):
        return _compare_doubles(operator, a, b)
    return null(BOOLEAN) if pa.types.is_null(a.type) else _ARROW[operator](a, b)


def _compare_doubles(operator: str, a: Datum, b: Datum) -> Datum:
    if is_constant(a):
        operator, a, b = _FLIPPED[operator], b, a
    if is_constant(b) and not has_nan(b):
        return _compare_with_number(operator, a, b)
    if has_nan(a) or has_nan(b):
        return _compare_with_nan(operator, a, b)
    return _ARROW[operator](a, b)


def _compare_with_number(operator: str, a: Datum, b: pa.Scalar) -> Datum:
    """Return how doubles compare with a number; NaN is neither less nor equal, so it is greater."""
    match operator:
        case "gt":
            return pc.invert(pc.less_equal(a, b))
        case "ge":
            return pc.invert(pc.less(a, b))
    return _ARROW[operator](a, b)


def _compare_with_nan(operator: str, a: Datum, b: Datum) -> Datum:
    match operator:
        case "eq":
            return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))
        case "lt":
            return pc.or_(pc.less(a, b), pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))
        case "gt":
            return _compare_with_nan("lt", b, a)
        case "ne":
            return pc.invert(_compare_with_nan("eq", a, b))
        case "ge":
            return pc.invert(_compare_with_nan("lt", a, b))
    return pc.invert(_compare_with_nan("lt", b, a))


def _comparison(operator: str) -> Kernel:
    return lambda target, a, b: compare(operator, a, b)


def is_distinct(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return whether operands differ, NULL being a value."""
    return pc.coalesce(compare("ne", a, b), pc.xor(pc.is_null(a), pc.is_null(b)))


def is_in(target: DataType, x: Datum, *items: Datum) -> Datum:
    """Return whether a value equals one of some others; if not, and one of them is NULL, it is not known."""
    constants = [item for item in items if is_constant(item)]
    if is_constant(x) or len(constants) < 3 or not _hashes_as_it_compares(x.type):
        return reduce(pc.or_kleene, [compare("eq", x, item) for item in items])
    others = [compare("eq", x, item) for item in items if not is_constant(item)]
    return reduce(pc.or_kleene, [_is_listed(x, constants), *others])


def _hashes_as_it_compares(arrow: pa.DataType) -> bool:
    return any(test(arrow) for test in (pa.types.is_integer, pa.types.is_string, pa.types.is_temporal))


def _is_listed(x: pa.Array, items: list[pa.Scalar]) -> pa.Array:
    known = [item for item in items if item.is_valid]
    found = without(pc.is_in(x, pa.array([item.as_py() for item in known], x.type)), pc.is_null(x))
    return found if len(known) == len(items) else pc.or_kleene(found, null(BOOLEAN))


# Logic


def both(target: DataType, *conditions: Datum) -> Datum:
    """Return whether all conditions hold."""
    return reduce(pc.and_kleene, conditions)


def either(target: DataType, *conditions: Datum) -> Datum:
    """Return whether one condition holds."""
    return reduce(pc.or_kleene, conditions)


def opposite(target: DataType, condition: pa.Array) -> pa.Array:
    """Return whether a condition does not hold."""
    return pc.invert(condition)


def is_null(target: DataType, x: pa.Array) -> pa.Array:
    """Return whether there is no value."""
    return pc.is_null(x)


# Choices


def choose(target: DataType, *operands: Datum) -> Datum:
    """Return the operand after the first condition that holds; the last one if none does."""
    *branches, result = operands
    for condition, then in zip(branches[-2::-2], branches[-1::-2], strict=True):
        result = pc.if_else(pc.fill_null(condition, False), then, result)
    return result


def coalesce(target: DataType, *operands: Datum) -> Datum:
    """Return the first operand that is not NULL."""
    return pc.coalesce(*operands)


def nullif(target: DataType, a: Datum, b: Datum) -> Datum:
    """Return a, or NULL where it equals b."""
    return pc.if_else(pc.fill_null(compare("eq", a, b), False), null(target), a)


def _extreme(operator: str) -> Kernel:
    """Return the kernel that skips NULLs and takes an operand that compares so with those before it."""

    def better(a: Datum, b: Datum) -> Datum:
        return pc.if_else(pc.coalesce(compare(operator, b, a), pc.is_null(a)), b, a)

    return lambda target, *operands: reduce(better, operands)


KERNELS: dict[str, Kernel] = {
    **{operator: _comparison(operator) for operator in _ARROW},
    "is_distinct": is_distinct,
    "in": is_in,
    "and": both,
    "or": either,
    "not": opposite,
    "is_null": is_null,
    "coalesce": coalesce,
    "nullif": nullif,
    "least": _extreme("lt"),
    "greatest": _extreme("gt"),
}
