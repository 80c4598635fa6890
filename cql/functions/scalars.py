"""Built-in operators and scalar functions: names, argument types, result types.

A typing rule takes the argument types and returns the types to convert them to and the type of the
result. Operators are functions too (`add`, `eq`, `and`, ..); users call only those marked callable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from cql import types as t
from cql.types import DataType, Kind


class BadArguments(Exception):
    """Arguments that a function does not take; the message says what it takes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call is bound to. `nullable` None means: if an argument is."""

    arguments: tuple[DataType, ...]
    result: DataType
    nullable: bool | None = None


Rule = Callable[[Sequence[DataType]], Signature]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    name: str
    rule: Rule
    usage: str
    description: str
    callable: bool = True
    refine: Callable[[Signature, Sequence[object]], DataType] | None = None

    @property
    def null_in_null_out(self) -> bool:
        return self.name not in _SEES_NULLS

    def result_type(self, signature: Signature, constants: Sequence[object]) -> DataType:
        """Return the type of a call; `constants` has the values of its constant arguments, None for others."""
        return signature.result if self.refine is None else self.refine(signature, constants)

    def can_be_null(self, signature: Signature, arguments: Sequence[bool]) -> bool:
        """Tell whether a call can be NULL, given which of its arguments can."""
        if signature.nullable is not None:
            return signature.nullable
        return all(arguments) if self.name in _SKIPS_NULLS else any(arguments)


_SKIPS_NULLS = frozenset({"coalesce", "least", "greatest"})
_SEES_NULLS = frozenset({"and", "or", "is_null", "is_distinct", "coalesce", "nullif", "least", "greatest", "in"})


def _rule(
    takes: str,
    result: DataType | None,
    *arguments: tuple[DataType, ...] | DataType,
    optional: int = 0,
    nullable: bool | None = None,
) -> Rule:
    """Return a rule for fixed argument types; a tuple lists alternatives, the first is converted to."""

    def rule(given: Sequence[DataType]) -> Signature:
        if not len(arguments) - optional <= len(given) <= len(arguments):
            raise BadArguments(f"it takes {takes}")
        targets = []
        for actual, wanted in zip(given, arguments, strict=False):
            choices = wanted if isinstance(wanted, tuple) else (wanted,)
            targets.append(_converted(actual, choices, takes))
        return Signature(tuple(targets), result or targets[0], nullable)

    return rule


def _converted(actual: DataType, choices: tuple[DataType, ...], takes: str) -> DataType:
    if actual in choices:
        return actual
    for choice in choices:
        if t.common_type(actual, choice) == choice:
            return choice
    raise BadArguments(f"it takes {takes}, not {actual}")


def _number(given: Sequence[DataType], count: int, takes: str) -> None:
    if len(given) != count or not all(g.is_numeric or g.kind is Kind.NULL for g in given):
        raise BadArguments(f"it takes {takes}")


def _same(takes: str) -> Rule:
    def rule(given: Sequence[DataType]) -> Signature:
        _number(given, 1, takes)
        kind = _known(given[0])
        return Signature((kind,), kind, None if kind.kind is Kind.DOUBLE else True)

    return rule


def _whole_part(given: Sequence[DataType]) -> Signature:
    _number(given, 1, "a number")
    given_type = _known(given[0])
    if given_type.kind is Kind.DECIMAL:
        carry = 1 if given_type.scale else 0
        return Signature((given_type,), t.decimal(given_type.precision - given_type.scale + carry, 0))
    return Signature((given_type,), t.BIGINT, True if given_type.kind is Kind.DOUBLE else None)


def _arithmetic(operator: str) -> Rule:
    def rule(given: Sequence[DataType]) -> Signature:
        _number(given, 2, "two numbers")
        left, right = (_known(one, other) for one, other in zip(given, reversed(given), strict=True))
        result = t.arithmetic_type(operator, left, right)
        assert result is not None
        if result.kind is Kind.DECIMAL:
            arguments = (t.as_decimal(left), t.as_decimal(right))
        else:
            arguments = (result, result)
        never_null = result.kind is Kind.DOUBLE and operator in "+-*"
        return Signature(arguments, result, None if never_null else True)

    return rule


def _known(*choices: DataType) -> DataType:
    """Return the first type that is one; a bare NULL has none, and counts as an INT if all are NULL."""
    return next((choice for choice in choices if choice.kind is not Kind.NULL), t.INT)


def unify(given: Sequence[DataType], what: str) -> DataType:
    """Return the common type of several values; raises BadArguments with the clash."""

    def pair(left: DataType, right: DataType) -> DataType:
        common = t.common_type(left, right)
        if common is None:
            raise BadArguments(f"{what} do not go together: {left} and {right}")
        return common

    return reduce(pair, given, t.NULL)


def _comparison(given: Sequence[DataType]) -> Signature:
    common = unify(given, "the two sides")
    return Signature((common,) * len(given), t.BOOLEAN)


def _never_null_comparison(given: Sequence[DataType]) -> Signature:
    common = unify(given, "the two sides")
    return Signature((common, common), t.BOOLEAN, False)


def _logical(given: Sequence[DataType]) -> Signature:
    for actual in given:
        if actual.kind not in (Kind.BOOLEAN, Kind.NULL):
            raise BadArguments(f"it takes conditions, not {actual}")
    return Signature((t.BOOLEAN,) * len(given), t.BOOLEAN)


def _first_of(least_arguments: int) -> Rule:
    def rule(given: Sequence[DataType]) -> Signature:
        if len(given) < least_arguments:
            raise BadArguments(f"it takes at least {least_arguments} arguments")
        common = unify(given, "the arguments")
        return Signature((common,) * len(given), common)

    return rule


def _nullif(given: Sequence[DataType]) -> Signature:
    if len(given) != 2:
        raise BadArguments("it takes two values")
    common = unify(given, "the arguments")
    return Signature((common, common), common, True)


def _concat(given: Sequence[DataType]) -> Signature:
    if not given or any(g.kind not in (Kind.STRING, Kind.NULL) for g in given):
        raise BadArguments("it takes strings; write CAST(x AS STRING) for other values")
    return Signature((t.STRING,) * len(given), t.STRING)


def _round(given: Sequence[DataType]) -> Signature:
    if not 1 <= len(given) <= 2 or (len(given) == 2 and t.common_type(given[1], t.INT) != t.INT):
        raise BadArguments("it takes a number and, if wanted, how many digits to keep")
    _number(given[:1], 1, "a number")
    given_type = _known(given[0])
    nullable = None if given_type.kind is Kind.DOUBLE else True
    return Signature((given_type, *([t.INT] if len(given) == 2 else [])), given_type, nullable)


def _rounded(signature: Signature, constants: Sequence[object]) -> DataType:
    """Return the type of a rounded number: DECIMAL keeps its digits, and has one more before the point."""
    given = signature.result
    if given.kind is not Kind.DECIMAL:
        return given
    digits = constants[1] if len(constants) == 2 else 0
    assert isinstance(digits, int)
    scale = max(0, min(given.scale, digits))
    whole = max(given.precision - given.scale + 1, 1 - digits)
    return t.decimal(min(whole + scale, t.MAX_PRECISION), scale)


def _sum_of_times(sign: str) -> Rule:
    """TIMESTAMP + INTERVAL and its relatives; numbers are handled by `_arithmetic`.

    A bare NULL stands for a TIMESTAMP beside an INTERVAL, and the other way round, where that makes sense.
    """
    moves = {(Kind.TIMESTAMP, Kind.INTERVAL): t.TIMESTAMP, (Kind.INTERVAL, Kind.INTERVAL): t.INTERVAL}
    if sign == "+":
        moves[(Kind.INTERVAL, Kind.TIMESTAMP)] = t.TIMESTAMP
    else:
        moves[(Kind.TIMESTAMP, Kind.TIMESTAMP)] = t.INTERVAL
    numbers = _arithmetic(sign)

    def rule(given: Sequence[DataType]) -> Signature:
        if len(given) != 2 or not any(g.kind in (Kind.TIMESTAMP, Kind.INTERVAL) for g in given):
            return numbers(given)
        for null in (t.INTERVAL, t.TIMESTAMP) if t.TIMESTAMP in given else (t.TIMESTAMP, t.INTERVAL):
            left, right = (null if g.kind is Kind.NULL else g for g in given)
            if result := moves.get((left.kind, right.kind)):
                return Signature((left, right), result, True)
        return numbers(given)

    return rule


def _times(given: Sequence[DataType]) -> Signature:
    kinds = [g.kind for g in given]
    if Kind.INTERVAL in kinds and len(given) == 2:
        other = given[1 - kinds.index(Kind.INTERVAL)]
        if other.is_integer or other.kind is Kind.NULL:
            arguments = tuple(t.INTERVAL if k is Kind.INTERVAL else t.BIGINT for k in kinds)
            return Signature(arguments, t.INTERVAL, True)
    return _arithmetic("*")(given)


def _in(given: Sequence[DataType]) -> Signature:
    common = unify(given, "the value and the list")
    return Signature((common,) * len(given), t.BOOLEAN)


def _negate(given: Sequence[DataType]) -> Signature:
    if len(given) == 1 and given[0].kind is Kind.INTERVAL:
        return Signature((t.INTERVAL,), t.INTERVAL, True)
    return _same("a number")(given)


def _like(given: Sequence[DataType]) -> Signature:
    if any(g.kind not in (Kind.STRING, Kind.NULL) for g in given):
        raise BadArguments("it takes strings; write CAST(x AS STRING) for other values")
    return Signature((t.STRING,) * len(given), t.BOOLEAN)


EXTRACT_FIELDS = {
    "year": t.INT,
    "quarter": t.INT,
    "month": t.INT,
    "week": t.INT,
    "day": t.INT,
    "dow": t.INT,
    "doy": t.INT,
    "hour": t.INT,
    "minute": t.INT,
    "second": t.decimal(8, 6),
}
"""What EXTRACT takes out of a timestamp, and its type; `second` has its fraction, as in Spark."""

TRUNC_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")

_OPERATORS = [
    ScalarFunction("add", _sum_of_times("+"), "a + b", "sum"),
    ScalarFunction("subtract", _sum_of_times("-"), "a - b", "difference"),
    ScalarFunction("multiply", _times, "a * b", "product"),
    ScalarFunction("divide", _arithmetic("/"), "a / b", "quotient; of integers truncated; NULL where b is 0"),
    ScalarFunction("mod", _arithmetic("%"), "a % b", "remainder, with the sign of a; NULL where b is 0"),
    ScalarFunction("negate", _negate, "-a", "opposite"),
    ScalarFunction("eq", _comparison, "a = b", "equal"),
    ScalarFunction("ne", _comparison, "a <> b", "not equal"),
    ScalarFunction("lt", _comparison, "a < b", "less"),
    ScalarFunction("le", _comparison, "a <= b", "less or equal"),
    ScalarFunction("gt", _comparison, "a > b", "greater"),
    ScalarFunction("ge", _comparison, "a >= b", "greater or equal"),
    ScalarFunction("is_distinct", _never_null_comparison, "a IS DISTINCT FROM b", "unequal, NULL being a value"),
    ScalarFunction("and", _logical, "a AND b", "both"),
    ScalarFunction("or", _logical, "a OR b", "either"),
    ScalarFunction("not", _logical, "NOT a", "negation"),
    ScalarFunction("is_null", lambda given: Signature(tuple(given), t.BOOLEAN, False), "a IS NULL", "no value"),
    ScalarFunction("in", _in, "a IN (b, c)", "equal to one of a list"),
    ScalarFunction("like", _like, "a LIKE p [ESCAPE e]", "matches a pattern of % and _"),
]

_TEXT_PLACE = "a string, a position and, if wanted, a length"
_FUNCTIONS = [
    ScalarFunction("abs", _same("a number"), "abs(x)", "absolute value"),
    ScalarFunction(
        "round",
        _round,
        "round(x [, digits])",
        "nearest number of so many digits, halves away from zero",
        refine=_rounded,
    ),
    ScalarFunction("floor", _whole_part, "floor(x)", "largest whole number not above x"),
    ScalarFunction("ceil", _whole_part, "ceil(x)", "smallest whole number not below x"),
    ScalarFunction("power", _rule("two numbers", t.DOUBLE, t.DOUBLE, t.DOUBLE), "power(x, y)", "x to the power of y"),
    ScalarFunction("sqrt", _rule("a number", t.DOUBLE, t.DOUBLE), "sqrt(x)", "square root; NaN below 0"),
    ScalarFunction(
        "ln", _rule("a number", t.DOUBLE, t.DOUBLE, nullable=True), "ln(x)", "natural logarithm; NULL up to 0"
    ),
    ScalarFunction("exp", _rule("a number", t.DOUBLE, t.DOUBLE), "exp(x)", "e to the power of x"),
    ScalarFunction("least", _first_of(2), "least(a, b, ..)", "smallest argument that is not NULL"),
    ScalarFunction("greatest", _first_of(2), "greatest(a, b, ..)", "largest argument that is not NULL"),
    ScalarFunction("coalesce", _first_of(1), "coalesce(a, b, ..)", "first argument that is not NULL"),
    ScalarFunction("nullif", _nullif, "nullif(a, b)", "a, or NULL where a = b"),
    ScalarFunction("upper", _rule("a string", t.STRING, t.STRING), "upper(s)", "in capitals"),
    ScalarFunction("lower", _rule("a string", t.STRING, t.STRING), "lower(s)", "in small letters"),
    ScalarFunction("length", _rule("a string", t.INT, t.STRING), "length(s)", "number of characters"),
    ScalarFunction(
        "substr",
        _rule(_TEXT_PLACE, t.STRING, t.STRING, t.INT, t.INT, optional=1),
        "substr(s, from [, length])",
        "part of s; positions count from 1, below 0 from the end",
    ),
    ScalarFunction("trim", _rule("a string", t.STRING, t.STRING), "trim(s)", "without blanks at both ends"),
    ScalarFunction(
        "replace",
        _rule("three strings", t.STRING, t.STRING, t.STRING, t.STRING),
        "replace(s, from, to)",
        "every occurrence of a text replaced",
    ),
    ScalarFunction("concat", _concat, "concat(a, b, ..), a || b", "strings one after the other; NULL if one is"),
    ScalarFunction(
        "split_part",
        _rule("two strings and a position", t.STRING, t.STRING, t.STRING, t.INT, nullable=True),
        "split_part(s, by, n)",
        "n-th part of s, from 1, below 0 from the end; '' beyond; NULL at 0",
    ),
    ScalarFunction(
        "regexp_like",
        _rule("two strings", t.BOOLEAN, t.STRING, t.STRING),
        "regexp_like(s, pattern)",
        "whether a regular expression matches somewhere in s",
    ),
    ScalarFunction(
        "regexp_extract",
        _rule("two strings and a group", t.STRING, t.STRING, t.STRING, t.INT, optional=1),
        "regexp_extract(s, pattern [, group])",
        "group (1) of the first match; '' without one",
    ),
    ScalarFunction(
        "overlap",
        _rule("two strings", t.BIGINT, t.STRING, t.STRING),
        "overlap(a, b)",
        "how many different words, separated by white space, a and b have in common",
    ),
    ScalarFunction(
        "inner_product",
        _rule("two strings", t.DOUBLE, t.STRING, t.STRING, nullable=True),
        "inner_product(a, b)",
        "sum of the products of the weights of the words that a and b, such as 'this:2.5 that', have in common",
    ),
    ScalarFunction(
        "extract",
        _rule("a field and a timestamp", None, t.STRING, t.TIMESTAMP),
        "extract(field FROM ts)",
        "part of a timestamp: " + ", ".join(EXTRACT_FIELDS),
        callable=False,
        refine=lambda _, constants: EXTRACT_FIELDS[str(constants[0])],
    ),
    ScalarFunction(
        "date_format",
        _rule("a timestamp and a pattern", t.STRING, t.TIMESTAMP, t.STRING),
        "date_format(ts, pattern)",
        "timestamp as text, such as 'yyyy-MM-dd HH:mm:ss'",
    ),
    ScalarFunction(
        "date_trunc",
        _rule("a unit and a timestamp", t.TIMESTAMP, t.STRING, t.TIMESTAMP),
        "date_trunc(unit, ts)",
        "timestamp cut to a unit: " + ", ".join(TRUNC_UNITS),
    ),
    ScalarFunction("epoch", _rule("a timestamp", t.BIGINT, t.TIMESTAMP), "epoch(ts)", "whole seconds since 1970"),
]

SCALARS: dict[str, ScalarFunction] = {f.name: f for f in (*_OPERATORS, *_FUNCTIONS)}

CALLABLE: dict[str, ScalarFunction] = {f.name: f for f in _FUNCTIONS if f.callable} | {
    "mod": SCALARS["mod"],
    "ceiling": SCALARS["ceil"],
    "pow": SCALARS["power"],
    "substring": SCALARS["substr"],
    "char_length": SCALARS["length"],
}
"""What users can call by name, other spellings included."""
