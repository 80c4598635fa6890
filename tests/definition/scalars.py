"""What operators, scalar functions and casts compute. Expressions are total: no value means NULL.

Unless the table says otherwise they mean what they mean in Spark SQL 4 with the session time zone UTC, and
NULL in an argument gives NULL. Every result fits its type: a number outside the type's range is NULL, a
DECIMAL is computed exactly and then rounded half up, once, to the type's scale.

| expression | decision |
|---|---|
| DOUBLE | one NaN, equal to itself and larger than all numbers; one zero: -0.0 is 0.0 everywhere |
| TIMESTAMP | microseconds in UTC, years 0001 to 9999; a result outside them is NULL |
| `+ - *`, `-x`, `abs` | NULL beyond the range of the result's type (Spark: an error); DOUBLE is infinite |
| `a / b`, `a % b` | NULL where b is 0, also for DOUBLE; `/` cuts integers towards zero; `%` has a's sign |
| `= <> < <= > >=` | strings compare by code point, FALSE is less than TRUE |
| `AND OR NOT IN` | three-valued logic; `x IN (..)` without a match is NULL if x or an item is NULL |
| `LIKE` | `%` any text, `_` any character, line breaks too; the escape character is `\\` by default |
| | and stands for what follows it, at the end for itself (Spark: an error but before `%`, `_`, itself) |
| `round(x, d)` | halves away from zero, of DOUBLE by its shortest decimal text; d = -1 rounds to tens, .. |
| `floor`, `ceil` | of DOUBLE a BIGINT, NULL for NaN, infinity and beyond the range |
| `power`, `exp` | as in Java: 0 to a power below 0 is Infinity, a negative number to a fraction is NaN |
| `sqrt`, `ln` | NaN below 0; NULL up to 0 |
| `least`, `greatest` | skip NULLs; NULL if nothing is left |
| `nullif(a, b)` | NULL where a = b, else a |
| `upper`, `lower` | of all of Unicode, `ß` becoming `SS` |
| `length`, `substr` | count code points; positions start at 1, 0 is taken for 1, below 0 count from the end |
| `trim` | blanks only, no tabs |
| `replace(s, '', x)` | s |
| `split_part(s, by, n)` | `by` is plain text, '' does not split; '' beyond the last part, NULL for n = 0 |
| `regexp_like`, | match anywhere, as in RE2: `\\d \\w \\s` are ASCII, `\\s` not `\\v`, `$` the end of the text; |
| `regexp_extract` | '' without a match, without the group in the match, or for a number that no group has |
| `overlap`, | words are separated by white space of ASCII (blank, tab, \\n, \\v, \\f, \\r); each counts once |
| `inner_product` | `word:weight`, split at the last colon, or a word that weighs 1; a weight is what CAST takes |
| | for a DOUBLE, the result NULL if one of either text is not; weights of a word that comes again in |
| | a text add up; sums are those of SUM, exact and rounded once; 0 without a common word |
| `extract` | week is ISO's, dow counts from 1 = Sunday, second has its fraction |
| `date_trunc` | a week starts on Monday |
| `date_format` | of y M d H h m s S a E: numbers are padded with zeros to the number of letters, yy has two |
| | digits, MMM Jan, MMMM January, E to EEE Mon, EEEE Monday, S cuts the fraction; '..' is plain text |
| `epoch` | whole seconds, rounded down |
| CAST to integers | DOUBLE and DECIMAL are cut towards zero; NULL beyond the range and for NaN; |
| | a text is digits with a sign or NULL ('1.5' is NULL); TIMESTAMP: seconds since 1970, rounded down |
| CAST to DECIMAL | of DOUBLE by its shortest decimal text; NULL beyond the precision |
| CAST to DOUBLE | of a text: a decimal number, perhaps with an exponent, or inf, infinity, nan in any case |
| CAST to BOOLEAN | of a number: unequal to 0 (NaN is TRUE); |
| | of a text: t true y yes 1, f false n no 0 in any case, else NULL |
| CAST to TIMESTAMP | of a number: seconds, cut to microseconds; of a text: as a literal, else NULL |
| CAST to STRING | DOUBLE as in Java: 1.0, 1.0E7, 1.0E-4, NaN, Infinity; DECIMAL with its whole scale; |
| | true, false; TIMESTAMP 2026-01-31 12:00:00.5, without zeros at the end; |
| | INTERVAL as in Spark: INTERVAL '1 02:03:04.5' DAY TO SECOND |
| CAST of a text | blanks and control characters at its ends are ignored |
| of the user | called with None for NULL and a naive UTC datetime for TIMESTAMP; an exception ends the run |
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from cql.binder.literals import timestamp_microseconds
from cql.functions.scalars import SCALARS
from cql.types import DOUBLE, STRING, DataType, Kind
from tests.definition.aggregates import AGGREGATES
from tests.definition.values import NAN, WIDE, Value, fit, order

SECOND = 1_000_000


def call(function: str, arguments: Sequence[Value], data_type: DataType) -> Value:
    """Return the value of a built-in operator or function."""
    if SCALARS[function].null_in_null_out and None in arguments:
        return None
    with localcontext(WIDE):
        return fit(FUNCTIONS[function](*arguments), data_type)


# Numbers


def _divide(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def _mod(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if isinstance(a, int):
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    if isinstance(a, float):
        return NAN if math.isinf(a) else math.fmod(a, b)
    return a % b


def _round(x: Any, digits: int = 0) -> Any:
    if isinstance(x, float) and not math.isfinite(x):
        return x
    exact = Decimal(repr(x)) if isinstance(x, float) else Decimal(x)
    if digits >= -int(exact.as_tuple().exponent):
        return x
    if -digits > exact.adjusted() + 1:
        return 0
    return exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def _whole(function: Callable[[Any], int]) -> Callable[[Any], Value]:
    return lambda x: None if isinstance(x, float) and not math.isfinite(x) else function(x)


def _power(x: float, y: float) -> float:
    if y == 0:
        return 1.0
    if NAN in (x, y) or (abs(x) == 1 and math.isinf(y)):
        return NAN
    try:
        return math.pow(x, y)
    except ValueError:
        return math.inf if x == 0 else NAN
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


# Logic


def all_of(*arguments: Value) -> bool | None:
    """Return the AND of some conditions."""
    if False in arguments:
        return False
    return None if None in arguments else True


def any_of(*arguments: Value) -> bool | None:
    """Return the OR of some conditions."""
    if True in arguments:
        return True
    return None if None in arguments else False


def equal(a: Value, b: Value) -> bool | None:
    """Return whether two values of one type are equal; NULL if one of them is NULL."""
    return None if a is None or b is None else order(a) == order(b)


def _in(x: Value, *items: Value) -> Value:
    return any_of(*(equal(x, item) for item in items))


def _extreme(choose: Callable[..., Value]) -> Callable[..., Value]:
    return lambda *values: choose((v for v in values if v is not None), key=order, default=None)


# Strings


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    regex, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            regex += re.escape(next(characters, escape))
        else:
            regex += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _substr(text: str, position: int, length: int | None = None) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(start, 0) : max(end, 0)]


def _split_part(text: str, separator: str, n: int) -> Value:
    parts = text.split(separator) if separator else [text]
    if n == 0:
        return None
    at = n - 1 if n > 0 else len(parts) + n
    return parts[at] if 0 <= at < len(parts) else ""


def _words(text: str) -> list[str]:
    return [word for word in re.split("[ \\t\\n\\v\\f\\r]", text) if word]


def _weights(text: str) -> dict[str, Value]:
    """Return the weight of each word of a text; NULL for one that is no number."""
    given: dict[str, list[Value]] = {}
    for part in _words(text):
        word, colon, weight = part.rpartition(":")
        given.setdefault(word if colon else part, []).append(cast(weight, STRING, DOUBLE) if colon else 1.0)
    return {word: None if None in weights else _total(weights) for word, weights in given.items()}


def _inner_product(a: str, b: str) -> Value:
    x, y = _weights(a), _weights(b)
    if None in x.values() or None in y.values():
        return None
    return _total([x[word] * y[word] for word in x.keys() & y.keys()])  # type: ignore[operator]


def _total(doubles: Sequence[Value]) -> Value:
    return AGGREGATES["sum"]([(0.0,), *((double,) for double in doubles)], DOUBLE)


_REGEX_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
_AS_IN_RE2 = {"$": r"\Z", r"\z": r"\Z", r"\s": r"[ \t\n\f\r]", r"\S": r"[^ \t\n\f\r]"}


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Return the first match of a regular expression of RE2, as far as Python has a word for it."""

    def in_python(part: re.Match[str]) -> str:
        return _AS_IN_RE2.get(part[0], part[0].replace(r"\s", r" \t\n\f\r") if part[0][0] == "[" else part[0])

    return re.search(_REGEX_PART.sub(in_python, pattern), text, re.ASCII)


def _regexp_extract(text: str, pattern: str, group: int = 1) -> str:
    found = _search(pattern, text)
    if not found or not 0 <= group <= found.re.groups:
        return ""
    return found[group] or ""


# Time

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def to_datetime(microseconds: int) -> datetime.datetime:
    """Return a TIMESTAMP as a naive datetime in UTC."""
    return _EPOCH + microseconds * _MICROSECOND


def from_datetime(moment: datetime.datetime) -> int:
    """Return a datetime, in UTC unless it knows its zone, as a TIMESTAMP."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // _MICROSECOND


def _extract(field: str, timestamp: int) -> Value:
    moment = to_datetime(timestamp)
    match field:
        case "year" | "month" | "day" | "hour" | "minute":
            return int(getattr(moment, field))
        case "quarter":
            return (moment.month + 2) // 3
        case "week":
            return moment.isocalendar().week
        case "dow":
            return moment.isoweekday() % 7 + 1
        case "doy":
            return moment.timetuple().tm_yday
        case "second":
            return Decimal(timestamp % (60 * SECOND)) / SECOND
    raise AssertionError(field)


_FIXED_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
}


def _date_trunc(unit: str, timestamp: int) -> int:
    unit = unit.lower()
    if unit in _FIXED_UNITS:
        return timestamp - timestamp % _FIXED_UNITS[unit]
    day = to_datetime(timestamp).replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "week":
            day -= datetime.timedelta(days=day.weekday())
        case "month":
            day = day.replace(day=1)
        case "quarter":
            day = day.replace(day=1, month=(day.month + 2) // 3 * 3 - 2)
        case "year":
            day = day.replace(day=1, month=1)
    return from_datetime(day)


_FORMAT_PART = re.compile(r"''|'((?:[^']|'')+)'|([yMdHhmsSaE])\2*|.", re.DOTALL)


def _date_format(timestamp: int, pattern: str) -> str:
    moment = to_datetime(timestamp)

    def part(match: re.Match[str]) -> str:
        text, quoted, letter = match[0], match[1], match[2]
        if text == "''":
            return "'"
        if quoted:
            return quoted.replace("''", "'")
        return _formatted(moment, letter, len(text)) if letter else text

    return _FORMAT_PART.sub(part, pattern)


def _formatted(moment: datetime.datetime, letter: str, count: int) -> str:
    match letter:
        case "y":
            return f"{moment.year % 100:02}" if count == 2 else f"{moment.year:0{count}}"
        case "M" if count >= 3:
            return _MONTH_NAMES[moment.month - 1][: 3 if count == 3 else None]
        case "E":
            return _DAY_NAMES[moment.weekday()][: 3 if count <= 3 else None]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "S":
            return f"{moment.microsecond:06}"[:count].ljust(count, "0")
    number = {"M": moment.month, "d": moment.day, "H": moment.hour, "h": (moment.hour + 11) % 12 + 1,
              "m": moment.minute, "s": moment.second}[letter]  # fmt: skip
    return f"{number:0{count}}"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
    "mod": _mod,
    "negate": lambda a: -a,
    "eq": equal,
    "ne": lambda a, b: order(a) != order(b),
    "lt": lambda a, b: order(a) < order(b),
    "le": lambda a, b: order(a) <= order(b),
    "gt": lambda a, b: order(a) > order(b),
    "ge": lambda a, b: order(a) >= order(b),
    "is_distinct": lambda a, b: order(a) != order(b),
    "and": all_of,
    "or": any_of,
    "not": lambda a: not a,
    "is_null": lambda a: a is None,
    "in": _in,
    "like": _like,
    "abs": abs,
    "round": _round,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "power": _power,
    "sqrt": lambda x: NAN if x < 0 else math.sqrt(x),
    "ln": lambda x: None if x <= 0 else math.log(x),
    "exp": _exp,
    "least": _extreme(min),
    "greatest": _extreme(max),
    "coalesce": lambda *values: next((v for v in values if v is not None), None),
    "nullif": lambda a, b: None if equal(a, b) else a,
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "substr": _substr,
    "trim": lambda text: text.strip(" "),
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "concat": lambda *texts: "".join(texts),
    "split_part": _split_part,
    "regexp_like": lambda text, pattern: _search(pattern, text) is not None,
    "regexp_extract": _regexp_extract,
    "overlap": lambda a, b: len(set(_words(a)) & set(_words(b))),
    "inner_product": _inner_product,
    "extract": _extract,
    "date_format": _date_format,
    "date_trunc": _date_trunc,
    "epoch": lambda timestamp: timestamp // SECOND,
}


# Casts

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ENDLESS = re.compile(r"[+-]?inf(inity)?|nan", re.IGNORECASE)
_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)


def cast(value: Value, source: DataType, target: DataType) -> Value:
    """Return a value of one type as a value of another, or NULL."""
    if value is None:
        return None
    with localcontext(WIDE):
        if target.kind is Kind.STRING:
            return _to_text(value, source)
        if isinstance(value, str):
            return fit(_from_text(value.strip(_BLANKS), target), target)
        if target.kind is Kind.BOOLEAN:
            return value != 0
        return fit(_converted(value, source, target), target)


def _converted(value: Any, source: DataType, target: DataType) -> Any:
    """Return a number, truth value or timestamp as a number or timestamp."""
    if isinstance(value, bool):
        return int(value)
    if source.kind is Kind.TIMESTAMP:
        return value // SECOND if target.is_integer else Decimal(value) / SECOND
    if target.kind is Kind.DOUBLE:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if target.kind is Kind.TIMESTAMP:
        return int(value * SECOND)
    if target.is_integer:
        return int(value)
    return Decimal(repr(value)) if isinstance(value, float) else value


def _from_text(text: str, target: DataType) -> Any:
    if target.kind is Kind.BOOLEAN:
        return _BOOLEANS.get(text.lower())
    if target.kind is Kind.TIMESTAMP:
        return timestamp_microseconds(text)
    if target.is_integer:
        return int(text) if _INTEGER.fullmatch(text) else None
    if target.kind is Kind.DOUBLE and _ENDLESS.fullmatch(text):
        return float(text)
    if not _NUMBER.fullmatch(text):
        return None
    return float(text) if target.kind is Kind.DOUBLE else Decimal(text)


def _to_text(value: Any, source: DataType) -> str:
    match source.kind:
        case Kind.STRING:
            return str(value)
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return _double_text(value)
        case Kind.DECIMAL:
            return f"{value:f}"
        case Kind.TIMESTAMP:
            return _without_zeros(f"{to_datetime(value):%H:%M:%S.%f}", to_datetime(value).date().isoformat() + " ")
        case Kind.INTERVAL:
            return _interval_text(value)
    return str(value)


def _without_zeros(seconds: str, before: str) -> str:
    return before + seconds.rstrip("0").rstrip(".")


def _double_text(x: float) -> str:
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    if x == 0 or 1e-3 <= abs(x) < 1e7:
        return repr(x)
    exact = Decimal(repr(x))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    return f"{'-' if x < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exact.adjusted()}"


def _interval_text(microseconds: int) -> str:
    seconds, fraction = divmod(abs(microseconds), SECOND)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    clock = f"{hours % 24:02}:{minutes % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"INTERVAL '{'-' if microseconds < 0 else ''}{_without_zeros(clock, f'{days} ')}' DAY TO SECOND"
