"""Conditions of joins without equality that an index can help with: words in common, and values close together.

An index finds rows by codes: those that satisfy a condition have some of their codes in common. So a condition need
not be said exactly here, but never more strictly than the join says it: bounds are those of real numbers, and it is up
to the index to allow for rounding. What codes are is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite

from cql.bound import Call, Cast, Expr, Literal, UserCall, conjuncts, walk
from cql.bound.text import expression_text
from cql.intervals import TimeDomain, duration_text
from cql.types import DataType, Kind, as_decimal
from planner.expressions import columns_read, shifted

MOST = 2.0**900
"""Constants that are larger are not looked at, so that no sum of them comes near the largest DOUBLE."""

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


@dataclass(frozen=True, slots=True)
class Overlap:
    """Texts of the left and the right input, each over its own columns, have some words or more in common."""

    left: Expr
    right: Expr
    least: int


@dataclass(frozen=True, slots=True)
class Band:
    """A value of the left input minus one of the right, each over its own columns, is within bounds.

    `scale` is how large constants get on the way, which says how much may be lost by rounding. Values that are no
    numbers are close to each other, and so are infinite ones.
    """

    left: Expr
    right: Expr
    low: float
    high: float
    scale: float


Condition = Overlap | Band


def index_condition(residual: Expr | None, width: int) -> Condition | None:
    """Return what an index can help with, if the left input has so many columns; None if there is nothing."""
    terms = [] if residual is None else conjuncts(residual)
    overlaps = (found for term in terms if (found := _overlap(term, width)))
    return next(overlaps, None) or next(_bands(terms, width), None)


def _side(expression: Expr, width: int) -> int | None:
    """Return the input whose columns an expression reads; None if that is not one, or if users say what it does."""
    sides = {int(column >= width) for column in columns_read(expression)}
    if len(sides) != 1 or any(isinstance(part, UserCall) for part in walk(expression)):
        return None
    return sides.pop()


def _number(expression: Expr) -> float | None:
    """Return a constant that is not too large; None if it is none."""
    if not isinstance(expression, Literal) or not _is_measured(expression.type) or expression.value is None:
        return None
    value = float(expression.value)
    return value if isfinite(value) and abs(value) <= MOST else None


def _is_measured(data_type: DataType) -> bool:
    return data_type.is_numeric or data_type.kind in (Kind.TIMESTAMP, Kind.INTERVAL)


def _bare(expression: Expr) -> Expr:
    """Return an expression without conversions that keep values, up to the rounding of DOUBLEs."""
    while isinstance(expression, Cast) and _keeps(expression.operand.type, expression.type):
        expression = expression.operand
    return expression


def _keeps(source: DataType, target: DataType) -> bool:
    if not (source.is_numeric and target.is_numeric) or Kind.DOUBLE in (source.kind, target.kind):
        return source.is_numeric and target.kind is Kind.DOUBLE
    before, after = as_decimal(source), as_decimal(target)
    return after.scale >= before.scale and after.precision - after.scale >= before.precision - before.scale


# Words in common


def _overlap(term: Expr, width: int) -> Overlap | None:
    """Return what a conjunct such as `OVERLAP(x, y) >= 3` says."""
    if not isinstance(term, Call) or term.function not in _TURNED:
        return None
    for name, one, other in _both_ways(term):
        call, number = _bare(one), _number(other)
        if isinstance(call, Call) and call.function == "overlap" and number is not None and name in ("gt", "ge", "eq"):
            left, right = sorted(call.arguments, key=lambda each: _side(each, width) or 0)
            least = floor(number) + 1 if name == "gt" else ceil(number)
            if (_side(left, width), _side(right, width)) == (0, 1) and least >= 1:
                return Overlap(left, shifted(right, -width), least)
    return None


def _both_ways(term: Call) -> Iterator[tuple[str, Expr, Expr]]:
    one, other = term.arguments
    yield term.function, one, other
    yield _TURNED[term.function], other, one


# Values close together


@dataclass(frozen=True, slots=True)
class _Difference:
    """A value of the left input minus one of the right, or the other way round if turned, plus a constant."""

    left: Expr
    right: Expr
    is_turned: bool
    constant: float
    scale: float


@dataclass(frozen=True, slots=True)
class _DifferenceBound:
    """A value of the left input minus one of the right is at least `low` and at most `high`.

    NaN is larger than all numbers. So `x - y <= 3` tells that x and y are numbers, while `x - y >= 3` is true if one of
    them is none, and says nothing of the other; of `x <= y` and `y <= x` neither tells, but both together do that x and
    y are alike.
    """

    difference: _Difference
    low: float
    high: float
    tells_numbers: bool
    needs_numbers: bool


def _bands(terms: list[Expr], width: int) -> Iterator[Band]:
    """Yield the pairs of values that are bounded from both sides."""
    bounds = [found for term in terms if (found := _bound(term, width))]
    for pair in dict.fromkeys((bound.difference.left, bound.difference.right) for bound in bounds):
        usable = _usable(pair, bounds)
        low = max((bound.low for bound in usable), default=-float("inf"))
        high = min((bound.high for bound in usable), default=float("inf"))
        if isfinite(low) and isfinite(high) and low <= high:
            left, right = pair
            yield Band(left, shifted(right, -width), low, high, max(bound.difference.scale for bound in usable))


def _usable(pair: tuple[Expr, Expr], bounds: Iterable[_DifferenceBound]) -> list[_DifferenceBound]:
    """Return the bounds of a pair of values that hold whatever the values are, or that both are known to be numbers."""
    own = [bound for bound in bounds if (bound.difference.left, bound.difference.right) == pair]
    are_numbers = any(bound.tells_numbers for bound in own) or all(part.type.kind is not Kind.DOUBLE for part in pair)
    return [bound for bound in own if are_numbers or not bound.needs_numbers]


def _bound(term: Expr, width: int) -> _DifferenceBound | None:
    """Return what a conjunct such as `abs(x - y) < 5` or `x <= y + 3` says."""
    if not isinstance(term, Call) or term.function not in ("lt", "le", "gt", "ge"):
        return None
    (_, less, more) = next(way for way in _both_ways(term) if way[0] in ("lt", "le"))
    most = _number(more)
    if isinstance(less, Call) and less.function == "abs" and most is not None:
        difference = _difference([(1, less.arguments[0])], width)
        if difference is None:
            return None
        low, high = -most - difference.constant, most - difference.constant
        return _turned(difference, low, high, tells_numbers=True, needs_numbers=False)
    difference = _difference([(1, less), (-1, more)], width)
    if difference is None:
        return None
    needs = _side(more, width) is None and most is None
    return _turned(difference, -float("inf"), -difference.constant, tells_numbers=most is not None, needs_numbers=needs)


def _turned(
    difference: _Difference, low: float, high: float, *, tells_numbers: bool, needs_numbers: bool
) -> _DifferenceBound:
    if difference.is_turned:
        low, high = -high, -low
    return _DifferenceBound(difference, low, high, tells_numbers, needs_numbers)


def _difference(signed: list[tuple[int, Expr]], width: int) -> _Difference | None:
    """Return a sum of signed expressions as one of a value of each input and constants; None if it is none."""
    found: dict[int, tuple[int, Expr]] = {}
    constant = scale = 0.0
    for sign, part in _summands(signed):
        number, side = _number(part), _side(part, width)
        if number is not None:
            constant += sign * number
            scale += abs(number)
        elif side is None or side in found or not _is_measured(part.type):
            return None
        else:
            found[side] = sign, part
    if len(found) < 2 or found[0][0] == found[1][0] or scale > MOST:
        return None
    return _Difference(found[0][1], found[1][1], found[0][0] < 0, constant, scale)


def _summands(signed: list[tuple[int, Expr]]) -> Iterator[tuple[int, Expr]]:
    """Yield what is added up, with signs."""
    for sign, whole in signed:
        part = _bare(whole)
        if isinstance(part, Call) and part.function == "negate":
            yield from _summands([(-sign, part.arguments[0])])
        elif isinstance(part, Call) and part.function in ("add", "subtract") and _is_exact(part):
            second = sign if part.function == "add" else -sign
            yield from _summands([(sign, part.arguments[0]), (second, part.arguments[1])])
        else:
            yield sign, part


def _is_exact(call: Call) -> bool:
    """Tell whether a sum has all the digits of what is added up, but for the rounding of DOUBLEs."""
    return call.type.kind is not Kind.DECIMAL or all(call.type.scale >= each.type.scale for each in call.arguments)


# For people


def condition_text(condition: Condition, at: int, names: Sequence[str]) -> str:
    """Return what the rows of the left input (0) or the right one (1) are found by.

    >>> x = Literal(7, type=DataType(Kind.INT))
    >>> [condition_text(Band(x, x, -1, 2, 0), at, ()) for at in (0, 1)], condition_text(Overlap(x, x, 3), 0, ())
    (['7 within -1 and 2', '7 within -2 and 1'], 'words of 7')
    """
    value = expression_text((condition.left, condition.right)[at], names)
    if isinstance(condition, Overlap):
        return f"words of {value}"
    low, high = (condition.low, condition.high) if at == 0 else (-condition.high, -condition.low)
    is_time = condition.left.type.kind in (Kind.TIMESTAMP, Kind.INTERVAL)
    if -low == high:
        return f"{value} within {_length_text(high, is_time)}"
    return f"{value} within {_length_text(low, is_time)} and {_length_text(high, is_time)}"


def _length_text(length: float, is_time: bool) -> str:
    if not is_time or not length:
        return f"{length + 0.0:g}"
    return ("-" if length < 0 else "") + duration_text(int(abs(length)), TimeDomain.TIMESTAMP)
