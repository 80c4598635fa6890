"""Constants: reading numbers, timestamps and text, and converting constants when a query is bound."""

from __future__ import annotations

import datetime
import re
from decimal import ROUND_HALF_UP, Context, Decimal

from cql import ast, bound
from cql import types as t
from cql.errors import Code, fail
from cql.source import Span
from cql.types import DataType, Kind

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EXACT = Context(prec=2 * t.MAX_PRECISION, rounding=ROUND_HALF_UP)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?\s*(Z|[+-]\d{2}:?\d{2})?\Z", re.ASCII)


def timestamp_microseconds(text: str) -> int | None:
    """Return the instant that a text means, in microseconds since 1970 UTC, or None.

    >>> timestamp_microseconds("1970-01-01 00:00:01.5")
    1500000
    """
    stripped = text.strip(" \t\n\v\f\r")
    if not _TIMESTAMP.match(stripped):
        return None
    try:
        moment = datetime.datetime.fromisoformat(stripped.replace(" ", "T", 1).replace(" ", ""))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def timestamp_literal(text: str, span: Span) -> bound.Literal:
    """Return a TIMESTAMP constant; raises for a text that is none."""
    value = timestamp_microseconds(text)
    if value is None:
        raise fail(
            Code.BAD_LITERAL,
            f"'{text}' is not a timestamp",
            span,
            hint="write it as '2026-01-31 12:00:00' or '2026-01-31T12:00:00.5Z'",
        )
    return bound.Literal(value, type=t.TIMESTAMP, nullable=False, span=span)


def number_literal(number: ast.Number, negative: bool = False) -> bound.Literal:
    """Return a numeric constant: whole numbers INT or BIGINT, with a point DECIMAL, with an exponent DOUBLE."""
    text = f"-{number.text}" if negative else number.text
    if "e" in text.lower():
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise fail(Code.BAD_LITERAL, f"{number.text} is beyond the range of DOUBLE", number.span)
        return bound.Literal(value, type=t.DOUBLE, nullable=False, span=number.span)
    exact = Decimal(text)
    scale = max(0, -int(exact.as_tuple().exponent))
    digits = max(len(exact.as_tuple().digits), scale, 1)
    if digits > t.MAX_PRECISION:
        raise fail(Code.BAD_LITERAL, f"a number has at most {t.MAX_PRECISION} digits", number.span)
    if "." in text:
        return bound.Literal(exact, type=t.decimal(digits, scale), nullable=False, span=number.span)
    whole_type = t.literal_integer_type(int(exact))
    whole: int | Decimal = int(exact) if whole_type.is_integer else exact
    return bound.Literal(whole, type=whole_type, nullable=False, span=number.span)


def convert(expression: bound.Expr, target: DataType) -> bound.Expr:
    """Return an expression as a value of a wider type; constants are converted at once."""
    if expression.type == target:
        return expression
    if isinstance(expression, bound.Literal):
        value = expression.value
        if value is None:
            return bound.Literal(None, type=target, nullable=True, span=expression.span)
        if target.kind is Kind.DOUBLE:
            return bound.Literal(float(value), type=target, nullable=False, span=expression.span)
        if target.is_integer and expression.type.is_integer:
            return bound.Literal(value, type=target, nullable=False, span=expression.span)
        if target.kind is Kind.DECIMAL and expression.type.is_numeric:
            exact = Decimal(value).quantize(Decimal(1).scaleb(-target.scale), context=_EXACT)
            return bound.Literal(exact, type=target, nullable=False, span=expression.span)
    widens = expression.type.is_numeric and target.is_numeric
    return bound.Cast(expression, type=target, nullable=expression.nullable or not widens, span=expression.span)
