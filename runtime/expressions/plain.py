"""What rare functions and conversions mean, in plain Python, one value at a time.

Values are those of `values.Value`; NULLs do not get here. What a function returns is made a value of its
type by `fit`: beyond the range it is NULL, a DECIMAL is computed exactly and rounded half up, once.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any

from cql.binder.literals import timestamp_microseconds
from cql.types import DataType, Kind
from runtime.expressions.values import RANGES, Value

EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
"""Enough digits for every exact result of two numbers of 38, and to round every quotient of them correctly."""

_ALL_DIGITS = Context(prec=1000, rounding=ROUND_HALF_UP)
"""Enough for every digit of a DOUBLE."""

SECOND = 1_000_000
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def fit(value: Any, data_type: DataType) -> Value:
    """Return a value as one of a type: rounded to its scale, NULL beyond its range."""
    if value is None or isinstance(value, bool | str):
        return value
    if data_type.kind in RANGES:
        low, high = RANGES[data_type.kind]
        return int(value) if low <= value <= high else None
    if data_type.kind is Kind.DECIMAL:
        return _fit_decimal(Decimal(value), data_type)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _fit_decimal(exact: Decimal, data_type: DataType) -> Decimal | None:
    whole = data_type.precision - data_type.scale
    if not exact.is_finite() or exact.adjusted() > whole:
        return None
    rounded = exact.quantize(Decimal(1).scaleb(-data_type.scale), context=EXACT)
    return rounded if rounded.copy_abs() < 10**whole else None


# Numbers


def round_half_up(x: float | int | Decimal, digits: int = 0) -> float | int | Decimal:
    """Return a number with so many digits after the point, halves away from zero; a double goes by its text."""
    if isinstance(x, float) and not math.isfinite(x):
        return x
    exact = Decimal(repr(x)) if isinstance(x, float) else Decimal(x)
    if digits >= -int(exact.as_tuple().exponent):
        return x
    if -digits > exact.adjusted() + 1:
        return 0
    return exact.quantize(Decimal(1).scaleb(-digits), context=_ALL_DIGITS)


# Strings


class Wild(Enum):
    """What stands for other text in a pattern of LIKE."""

    ANY = "%"
    ONE = "_"


def like_parts(pattern: str, escape: str = "\\") -> list[str | Wild]:
    """Return a pattern of LIKE as plain text and wildcards.

    >>> like_parts("a\\\\%b%")
    ['a%b', <Wild.ANY: '%'>]
    """
    parts: list[str | Wild] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            part: str | Wild = next(characters, escape)
        else:
            part = Wild(character) if character in "%_" else character
        if parts and isinstance(part, str) and isinstance(parts[-1], str):
            parts[-1] += part
        elif not (parts and part is Wild.ANY is parts[-1]):
            parts.append(part)
    return parts


def in_regex(part: str | Wild) -> str:
    """Return a part of a pattern of LIKE as a regular expression of RE2 or Java in which `.` is any character.

    >>> in_regex("a.b"), in_regex(Wild.ONE)
    ('a\\\\x{2e}b', '.')
    """
    if isinstance(part, Wild):
        return ".*" if part is Wild.ANY else "."
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in part)


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """Tell whether a text matches a pattern of LIKE; what was found of it is not looked for again further on."""
    pieces = [""]
    for part in like_parts(pattern, escape):
        if part is Wild.ANY:
            pieces.append("")
        else:
            pieces[-1] += "." if part is Wild.ONE else re.escape(part)
    if len(pieces) == 1:
        return re.fullmatch(pieces[0], text, re.DOTALL) is not None
    first, *middle, last = pieces
    found = re.match(first + "".join(f"(?>.*?{piece})" for piece in middle), text, re.DOTALL)
    return found is not None and re.compile(f".*{last}", re.DOTALL).fullmatch(text, found.end()) is not None


def substr(text: str, position: int, length: int | None = None) -> str:
    """Return a part of a text; positions count from 1, below 0 from the end."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(start, 0) : max(end, 0)]


def replace(text: str, old: str, new: str) -> str:
    """Return a text with every occurrence of another one replaced."""
    return text.replace(old, new) if old else text


def split_part(text: str, separator: str, n: int) -> str | None:
    """Return the n-th part of a text."""
    if n == 0:
        return None
    parts = text.split(separator) if separator else [text]
    at = n - 1 if n > 0 else len(parts) + n
    return parts[at] if 0 <= at < len(parts) else ""


# Time

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_FORMAT_PART = re.compile(r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<letter>[yMdHhmsSaE])(?P=letter)*|.", re.DOTALL)


def to_datetime(microseconds: int) -> datetime.datetime:
    """Return a TIMESTAMP as a naive datetime in UTC."""
    return _EPOCH + microseconds * _MICROSECOND


def from_datetime(moment: datetime.datetime) -> int:
    """Return a datetime, in UTC unless it knows its zone, as a TIMESTAMP."""
    if moment.tzinfo is not None:
        return (moment - _EPOCH.replace(tzinfo=datetime.UTC)) // _MICROSECOND
    return (moment - _EPOCH) // _MICROSECOND


def date_format(timestamp: int, pattern: str) -> str:
    """Return a TIMESTAMP as text of the given form."""
    moment = to_datetime(timestamp)

    def part(found: re.Match[str]) -> str:
        if found["letter"]:
            return _formatted(moment, found["letter"], len(found[0]))
        if found["quoted"]:
            return found["quoted"].replace("''", "'")
        return "'" if found[0] == "''" else found[0]

    return _FORMAT_PART.sub(part, pattern)


def _formatted(moment: datetime.datetime, letter: str, count: int) -> str:
    match letter:
        case "y" if count == 2:
            return f"{moment.year % 100:02}"
        case "M" if count >= 3:
            return _MONTHS[moment.month - 1][: 3 if count == 3 else None]
        case "E":
            return _DAYS[moment.weekday()][: 3 if count <= 3 else None]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "S":
            return f"{moment.microsecond:06}"[:count].ljust(count, "0")
    number = {
        "y": moment.year,
        "M": moment.month,
        "d": moment.day,
        "H": moment.hour,
        "h": (moment.hour + 11) % 12 + 1,
        "m": moment.minute,
        "s": moment.second,
    }[letter]
    return f"{number:0{count}}"


# Conversions

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,40})")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?inf(inity)?|nan", re.IGNORECASE)
_TRUTHS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)


def from_text(text: str, target: DataType) -> Any:
    """Return what a text means as a value of a type, not fitted yet; None if it means nothing."""
    text = text.strip(_BLANKS)
    if target.kind is Kind.BOOLEAN:
        return _TRUTHS.get(text.lower())
    if target.kind is Kind.TIMESTAMP:
        return timestamp_microseconds(text)
    if target.is_integer:
        found = _INTEGER.fullmatch(text)
        return int(found[1] + found[2]) if found else None
    if target.kind is Kind.DOUBLE:
        return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else None
    try:
        return Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        return None


def double_text(x: float) -> str:
    """Return a DOUBLE as text, the shortest that means it, as Java writes it."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    if x == 0 or 1e-3 <= abs(x) < 1e7:
        return repr(x)
    exact = Decimal(repr(x))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return f"{'-' if x < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"


def interval_text(microseconds: int) -> str:
    """Return an INTERVAL as text, as Spark writes it."""
    seconds, fraction = divmod(abs(microseconds), SECOND)
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    clock = f"{days} {hours:02}:{minutes:02}:{seconds % 60:02}.{fraction:06}".rstrip("0").rstrip(".")
    return f"INTERVAL '{'-' if microseconds < 0 else ''}{clock}' DAY TO SECOND"


def decimal_text(value: Decimal) -> str:
    """Return a DECIMAL as text, with its whole scale."""
    return f"{value:f}"


def seconds_from(value: Decimal) -> int:
    """Return a number of seconds as microseconds, cut towards zero."""
    return int(EXACT.multiply(value, Decimal(SECOND)))
