"""Expressions as Spark columns, for stateless work straight above a source: rows that fail never reach Python.

The law is that an expression means the same in Spark and in the engine, bit for bit, whatever the settings of the
session (ANSI mode, time zone, precision of decimals). So nothing here can raise: what overflows in Spark is
asked with `try_`; and a DOUBLE comes out with one NaN and one zero. What Spark cannot say exactly is not lowered: the
engine evaluates it. TIMESTAMP is `timestamp_ntz`, which knows no time zone and is the engine's type in Arrow.
Constants are computed by the engine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from cql.bound import Call, Case, Cast, ColumnRef, Expr, Literal, children, walk
from cql.functions.scalars import SCALARS
from cql.types import BIGINT, MAX_PRECISION, TIMESTAMP, DataType, Kind
from runtime.expressions import compile_expression
from runtime.expressions.plain import SECOND, Wild, decimal_text, in_regex, interval_text, like_parts, to_datetime
from runtime.expressions.values import RANGES

_SPARK: dict[Kind, s.DataType] = {
    Kind.NULL: s.NullType(),
    Kind.BOOLEAN: s.BooleanType(),
    Kind.BYTE: s.ByteType(),
    Kind.INT: s.IntegerType(),
    Kind.BIGINT: s.LongType(),
    Kind.DOUBLE: s.DoubleType(),
    Kind.STRING: s.StringType(),
    Kind.TIMESTAMP: s.TimestampNTZType(),
    Kind.INTERVAL: s.DayTimeIntervalType(),
}


def spark_type(data_type: DataType) -> s.DataType:
    """Return the Spark type that holds values of a type.

    >>> spark_type(DataType(Kind.DECIMAL, 10, 2))
    DecimalType(10,2)
    """
    if data_type.kind is Kind.DECIMAL:
        return s.DecimalType(data_type.precision, data_type.scale)
    return _SPARK[data_type.kind]


def lowered(expression: Expr, columns: Sequence[Column]) -> Column | None:
    """Return an expression over columns of its input as a Spark column, or None if only the engine can compute it."""
    try:
        column = _lower(expression, columns)
    except _LeftToTheEngine:
        return None
    return _canonical(column) if expression.type.kind is Kind.DOUBLE else column


def lowered_predicate(predicates: Sequence[Expr], columns: Sequence[Column]) -> Column | None:
    """Return a column that is true for the rows where all predicates are; None if only the engine can compute it."""
    found = [lowered(predicate, columns) for predicate in predicates]
    conditions = [condition for condition in found if condition is not None]
    if len(conditions) < len(found):
        return None
    return reduce(and_, conditions) if conditions else f.lit(True)


class _LeftToTheEngine(Exception):
    """An expression that Spark does not compute exactly as the engine does."""


def _lower(expression: Expr, columns: Sequence[Column]) -> Column:
    """Return a part of an expression; a DOUBLE may be either zero and any NaN."""
    if expression.type.kind is Kind.NULL:
        return f.lit(None)
    if _is_constant(expression):
        return _literal(_value_of(expression), expression.type)
    match expression:
        case ColumnRef(index=index, depth=0):
            return columns[index]
        case Call(function=name) if name in _RULES:
            if SCALARS[name].null_in_null_out and any(map(_is_null, expression.arguments)):
                return _literal(None, expression.type)
            return _RULES[name](expression, *(_lower(each, columns) for each in expression.arguments))
        case Cast(operand=operand):
            return _cast(operand.type, expression.type, _lower(operand, columns))
        case Case():
            return _case(*(_lower(each, columns) for each in children(expression)))
    raise _LeftToTheEngine


def _canonical(doubles: Column) -> Column:
    """Return doubles with one NaN and one zero."""
    return f.nanvl(doubles + f.lit(0.0), f.lit(math.nan))


# Constants


def _is_constant(expression: Expr) -> bool:
    return all(isinstance(part, Literal | Call | Cast | Case) for part in walk(expression))


def _is_null(expression: Expr) -> bool:
    return _is_constant(expression) and _value_of(expression) is None


def _value_of(expression: Expr) -> Any:
    """Return the value of an expression that has to be constant; of TIMESTAMPs and INTERVALs the microseconds."""
    if not _is_constant(expression):
        raise _LeftToTheEngine
    made = compile_expression(expression)([], 1)
    return (made.view(pa.int64()) if pa.types.is_temporal(made.type) else made)[0].as_py()


_WRITTEN: dict[Kind, Callable[[Any], str]] = {
    Kind.DECIMAL: decimal_text,
    Kind.TIMESTAMP: lambda value: to_datetime(value).isoformat(sep=" "),
    Kind.INTERVAL: interval_text,
}
"""The texts in which Spark reads values that it would not take over exactly from Python."""


def _literal(value: Any, data_type: DataType) -> Column:
    if value is not None and data_type.kind in _WRITTEN:
        value = _WRITTEN[data_type.kind](value)
    return f.lit(value).cast(spark_type(data_type))


# Numbers


def _computing(operation: Callable[[Column, Column], Column]) -> Callable[..., Column]:
    """Return the rule of an operation that is NULL beyond the range of its type."""

    def rule(call: Call, a: Column, b: Column) -> Column:
        _require_exact_decimal(call.type)
        result = operation(a, b)
        return _within(call.type, result) if call.type.kind is Kind.TIMESTAMP else result

    return rule


def _require_exact_decimal(data_type: DataType) -> None:
    """Leave DECIMALs to the engine that may have lost digits: which ones Spark gives up depends on its settings."""
    if data_type.kind is Kind.DECIMAL and data_type.precision == MAX_PRECISION:
        raise _LeftToTheEngine


def _divide(call: Call, a: Column, b: Column) -> Column:
    _require_exact_decimal(call.type)
    if not call.type.is_integer:
        return f.try_divide(a, b)
    cut = f.call_function("div", a, f.when(b != 0, b)).cast(spark_type(call.type))
    return f.when(b == -1, _negative(call.type, a)).otherwise(cut)


def _mod(call: Call, a: Column, b: Column) -> Column:
    """Return remainders; Spark refuses those of DECIMALs whose quotient has more digits than it computes with."""
    _require_exact_decimal(call.type)
    of, by = (argument.type for argument in call.arguments)
    if of.precision - of.scale + by.scale > MAX_PRECISION:
        raise _LeftToTheEngine
    return f.try_mod(a, b)


def _negate(call: Call, x: Column) -> Column:
    return _negative(call.type, x)


def _negative(data_type: DataType, x: Column) -> Column:
    if data_type.kind in (Kind.DOUBLE, Kind.DECIMAL):
        return -x
    return f.try_subtract(_literal(0, data_type), x)


def _absolute(call: Call, x: Column) -> Column:
    if call.type.kind in (Kind.DOUBLE, Kind.DECIMAL):
        return f.abs(x)
    return f.when(x < 0, _negative(call.type, x)).otherwise(x)


def _round(call: Call, x: Column, digits: Column | None = None) -> Column:
    """Return DECIMALs of fewer digits after the point; a DOUBLE is rounded by its shortest text, which Java lacks."""
    negative = digits is not None and _value_of(call.arguments[1]) < 0
    if negative or call.type.kind is Kind.DOUBLE:
        raise _LeftToTheEngine
    return x.try_cast(spark_type(call.type))


def _whole(function: Callable[[Column], Column]) -> Callable[..., Column]:
    """Return the rule of a function from numbers to whole numbers."""

    def rule(call: Call, x: Column) -> Column:
        match call.arguments[0].type.kind:
            case Kind.DOUBLE:
                return function(_within_bigint(x))
            case Kind.DECIMAL:
                return function(x).try_cast(spark_type(call.type))
        return x.cast("bigint")

    return rule


def _within_bigint(doubles: Column) -> Column:
    return f.when((doubles >= f.lit(-(2.0**63))) & (doubles < f.lit(2.0**63)), doubles)


# Comparisons, logic and choices


def _folded(operation: Callable[[Any, Any], Any]) -> Callable[..., Column]:
    """Return the rule of an operator of Python between columns."""
    return lambda call, *operands: reduce(operation, operands)


def _in(call: Call, x: Column, *items: Column) -> Column:
    """Return whether a value is listed; Spark looks long lists up by bits, in which two zeros are not one."""
    if call.arguments[0].type.kind is Kind.DOUBLE:
        return _canonical(x).isin(*map(_canonical, items))
    return x.isin(*items)


def _case(condition: Column, then: Column, *others: Column) -> Column:
    *branches, otherwise = others
    chosen = f.when(condition, then)
    for another, result in zip(branches[::2], branches[1::2], strict=True):
        chosen = chosen.when(another, result)
    return chosen.otherwise(otherwise)


def _nullif(call: Call, a: Column, b: Column) -> Column:
    return f.when(a == b, f.lit(None)).otherwise(a)


# Strings

_ESCAPED = re.compile(r"[%_\\]")


def _like(call: Call, text: Column, *pattern: Column) -> Column:
    """Return whether texts match a pattern, written so that every escape in it is one that Spark knows.

    Spark would try all ways to divide a text among several `%`: those go by an expression that tries one.
    """
    parts = like_parts(*map(_value_of, call.arguments[1:]))
    if parts.count(Wild.ANY) > 1 and not (len(parts) == 3 and isinstance(parts[1], str)):
        return f.rlike(text, f.lit(_atomic(parts)))
    written = "".join(part.value if isinstance(part, Wild) else _ESCAPED.sub(r"\\\g<0>", part) for part in parts)
    return f.like(text, f.lit(written), f.lit("\\"))


def _atomic(parts: Sequence[str | Wild]) -> str:
    """Return a regular expression of Java that never goes back to before what stands between two `%`.

    >>> _atomic(["a", Wild.ANY, "b", Wild.ANY, Wild.ONE])
    '(?s)\\\\Aa(?>.*?b).*.\\\\z'
    """
    pieces = [""]
    for part in parts:
        if part is Wild.ANY:
            pieces.append("")
        else:
            pieces[-1] += in_regex(part)
    first, *middle, last = pieces
    return rf"(?s)\A{first}{''.join(f'(?>.*?{piece})' for piece in middle)}.*{last}\z"


_FAR = 2**30
"""More characters than a text has, and so little that adding two of them does not overflow."""


def _substr(call: Call, text: Column, position: Column, count: Column | None = None) -> Column:
    return f.substr(text, _not_far(position)) if count is None else f.substr(text, position, count)


def _split_part(call: Call, text: Column, separator: Column, n: Column) -> Column:
    return f.split_part(text, separator, f.when(n != 0, _not_far(n)))


def _not_far(position: Column) -> Column:
    """Return positions, those far before the beginning moved closer to it: Spark adds to them, and negates them."""
    return f.when(position < -_FAR, -_FAR).otherwise(position)


_CLASS = r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _.,:;/@=+*|]|[^\x00-\x7f]|\\[dDwW]|\\[!-/:-@\[-`{-~])+-?\]"
_ITEM = rf"(?:\\[sS]|[A-Za-z0-9 _=,:;/@!~\"'<>%&#.-]|[^\x00-\x7f]|\\[dDwW]|\\[!-/:-@\[-`{{-~]|{_CLASS})"
_TOKEN = re.compile(rf"({_ITEM})((?:\{{\d{{1,2}}\}})?)|\||\^|\$")
"""What RE2 and Java read alike in a regular expression, but for what is translated, and Java matches in one way only:
it tries all ways to match what is repeated more or less often, or to choose between parts of what follows."""

_TRANSLATED = {".": r"[^\n]", "$": r"\z", r"\s": r"[\t\n\f\r ]", r"\S": r"[^\t\n\f\r ]"}


def _java_regex(pattern: str) -> str:
    """Return a regular expression of RE2 as one of Java that means the same and takes time in proportion to the text.

    >>> _java_regex("^a.$|b{3}")
    '^a[^\\\\n]\\\\z|b{3}'
    """
    tokens: list[str] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _LeftToTheEngine
        item, count = token.groups(default="")
        tokens.append(_TRANSLATED.get(item or token[0], item or token[0]) + count)
        at = token.end()
    return "".join(tokens)


def _regexp_like(call: Call, text: Column, pattern: Column) -> Column:
    return f.rlike(text, f.lit(_java_regex(_value_of(call.arguments[1]))))


# Time


def _seconds(timestamps: Column) -> Column:
    """Return seconds since 1970 with their fractions; casts between timestamps would use the session's time zone."""
    return (timestamps - _literal(0, TIMESTAMP)).cast("interval second").cast("decimal(18,6)")


def _whole_seconds(timestamps: Column) -> Column:
    """Return whole seconds since 1970, rounded down: since the first year there are none below zero, which are cut."""
    first = RANGES[Kind.TIMESTAMP][0]
    since = (timestamps - _literal(first, TIMESTAMP)).cast("interval second").cast("bigint")
    return since + _literal(first // SECOND, BIGINT)


def _timestamp(microseconds: Column) -> Column:
    """Return microseconds since 1970 as timestamps, NULL outside the years that there are."""
    return f.timestamp_add("MICROSECOND", _within(BIGINT, microseconds), _literal(0, TIMESTAMP))


def _within(data_type: DataType, instants: Column) -> Column:
    """Return instants, as a type has them, with NULL outside the years that there are."""
    low, high = (_literal(each, data_type) for each in RANGES[Kind.TIMESTAMP])
    return f.when((instants >= low) & (instants <= high), instants)


_FIELDS: dict[str, Callable[[Column], Column]] = {
    "year": f.year,
    "quarter": f.quarter,
    "month": f.month,
    "week": f.weekofyear,
    "day": f.dayofmonth,
    "dow": f.dayofweek,
    "doy": f.dayofyear,
    "hour": f.hour,
    "minute": f.minute,
    "second": lambda timestamps: f.extract(f.lit("SECOND"), timestamps),
}


def _extract(call: Call, field: Column, timestamps: Column) -> Column:
    return _FIELDS[_value_of(call.arguments[0])](timestamps)


def _date_trunc(call: Call, unit: Column, timestamps: Column) -> Column:
    date = timestamps.cast("date")
    day = date.cast(s.TimestampNTZType())
    hours, minutes, seconds = f.hour(timestamps), f.minute(timestamps), f.second(timestamps)
    match _value_of(call.arguments[0]).lower():
        case "microsecond":
            return timestamps
        case "millisecond":
            raise _LeftToTheEngine
        case "second":
            return f.timestamp_add("SECOND", hours * 3600 + minutes * 60 + seconds, day)
        case "minute":
            return f.timestamp_add("MINUTE", hours * 60 + minutes, day)
        case "hour":
            return f.timestamp_add("HOUR", hours, day)
        case "day":
            return day
        case longer:
            return f.trunc(date, longer).cast(s.TimestampNTZType())


def _epoch(call: Call, timestamps: Column) -> Column:
    return _whole_seconds(timestamps)


# Conversions

_PLAIN_SCALE = 6
"""Up to this scale every setting of Spark writes a DECIMAL without an exponent."""

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_DOUBLE_TEXT = r"\A([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:[+-]?inf(inity)?|nan))\z"


def _cast(source: DataType, target: DataType, x: Column) -> Column:
    if source == target:
        return x
    match source.kind, target.kind:
        case (_, Kind.INTERVAL) | (Kind.DOUBLE, Kind.DECIMAL):
            raise _LeftToTheEngine
        case Kind.NULL, _:
            return _literal(None, target)
        case _, Kind.STRING:
            return _text(source, x)
        case Kind.STRING, _:
            return _from_text(target, x)
        case _, Kind.BOOLEAN:
            return x != 0
        case Kind.TIMESTAMP, _:
            return (_whole_seconds(x) if target.is_integer else _seconds(x)).try_cast(spark_type(target))
        case Kind.DOUBLE, Kind.TIMESTAMP:
            return _timestamp(_within_bigint(x * f.lit(float(SECOND))).try_cast("bigint"))
        case Kind.DECIMAL, Kind.TIMESTAMP:
            return _timestamp_of_decimal(source, x)
        case _, Kind.TIMESTAMP:
            return _timestamp(f.try_multiply(x.cast("bigint"), _literal(SECOND, BIGINT)))
        case Kind.DOUBLE, Kind.BIGINT:
            return _within_bigint(x).try_cast("bigint")
    return x.try_cast(spark_type(target))


def _timestamp_of_decimal(source: DataType, seconds: Column) -> Column:
    """Return timestamps of numbers of seconds that need not be cut to microseconds."""
    if source.scale > 6:
        raise _LeftToTheEngine
    return _timestamp((seconds.try_cast("decimal(18,6)") * f.lit(SECOND)).cast("bigint"))


def _text(source: DataType, x: Column) -> Column:
    if source.kind in (Kind.DOUBLE, Kind.INTERVAL) or (source.kind is Kind.DECIMAL and source.scale > _PLAIN_SCALE):
        raise _LeftToTheEngine
    return x.cast("string")


def _from_text(target: DataType, text: Column) -> Column:
    match target.kind:
        case Kind.DECIMAL | Kind.TIMESTAMP:
            raise _LeftToTheEngine
        case Kind.DOUBLE:
            stripped = f.btrim(text, f.lit(_BLANKS))
            return f.when(stripped.rlike(_DOUBLE_TEXT), stripped).try_cast("double")
    return text.try_cast(spark_type(target))


_RULES: dict[str, Callable[..., Column]] = {
    "add": _computing(f.try_add),
    "subtract": _computing(f.try_subtract),
    "multiply": _computing(f.try_multiply),
    "divide": _divide,
    "mod": _mod,
    "negate": _negate,
    "abs": _absolute,
    "round": _round,
    "floor": _whole(f.floor),
    "ceil": _whole(f.ceil),
    "sqrt": lambda call, x: f.sqrt(x),
    "eq": _folded(eq),
    "ne": _folded(ne),
    "lt": _folded(lt),
    "le": _folded(le),
    "gt": _folded(gt),
    "ge": _folded(ge),
    "is_distinct": lambda call, a, b: ~a.eqNullSafe(b),
    "and": _folded(and_),
    "or": _folded(or_),
    "not": lambda call, x: ~x,
    "is_null": lambda call, x: x.isNull(),
    "in": _in,
    "least": lambda call, *operands: f.least(*operands),
    "greatest": lambda call, *operands: f.greatest(*operands),
    "coalesce": lambda call, *operands: f.coalesce(*operands),
    "nullif": _nullif,
    "like": _like,
    "length": lambda call, text: f.char_length(text),
    "substr": _substr,
    "trim": lambda call, text: f.trim(text),
    "replace": lambda call, *operands: f.replace(*operands),
    "concat": lambda call, *operands: f.concat(*operands),
    "split_part": _split_part,
    "regexp_like": _regexp_like,
    "extract": _extract,
    "date_trunc": _date_trunc,
    "epoch": _epoch,
}

LOWERED = frozenset(_RULES)
"""The functions that Spark computes, if their arguments allow it."""

LEFT_TO_ENGINE: dict[str, str] = {
    "power": "its last bit depends on the library that computes it",
    "ln": "its last bit depends on the library that computes it",
    "exp": "its last bit depends on the library that computes it",
    "upper": "what a capital letter is depends on the version of Unicode",
    "lower": "what a small letter is depends on the version of Unicode",
    "overlap": "the engine splits each different text once, Spark would for each row",
    "inner_product": "its sum is exact, in Spark it depends on the order",
    "regexp_extract": "Java tries all ways to match, which can take for ever",
    "date_format": "Spark knows other letters, and formats in the time zone of the session",
}
"""The functions that Spark does not compute as the engine does, each with the reason."""
