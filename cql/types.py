"""The types of CQL values and the rules that combine them.

They follow Spark SQL, with one exception that CQL inherits from STREAM: an integer divided by an
integer is an integer, truncated towards zero. This module knows types only, no expressions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What sort of value a type holds; integers are ordered by width."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    BYTE = "BYTE"
    INT = "INT"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"


MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class DataType:
    """A type; `precision` and `scale` matter for DECIMAL only."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return str(self.kind.value)

    @property
    def is_integer(self) -> bool:
        return self.kind in _INTEGER_DIGITS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.kind in (Kind.DECIMAL, Kind.DOUBLE)


NULL = DataType(Kind.NULL)
BOOLEAN = DataType(Kind.BOOLEAN)
BYTE = DataType(Kind.BYTE)
INT = DataType(Kind.INT)
BIGINT = DataType(Kind.BIGINT)
DOUBLE = DataType(Kind.DOUBLE)
STRING = DataType(Kind.STRING)
TIMESTAMP = DataType(Kind.TIMESTAMP)
INTERVAL = DataType(Kind.INTERVAL)

_INTEGER_DIGITS = {Kind.BYTE: 3, Kind.INT: 10, Kind.BIGINT: 20}
_INTEGER_WIDTH = {Kind.BYTE: 1, Kind.INT: 2, Kind.BIGINT: 3}

TYPE_NAMES: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "BYTE": BYTE,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "FLOAT": DOUBLE,
    "REAL": DOUBLE,
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "TIMESTAMP": TIMESTAMP,
}
"""Type words without parameters; DECIMAL takes two, VARCHAR and CHAR may take a length."""


def decimal(precision: int, scale: int) -> DataType:
    """Return a DECIMAL type.

    >>> str(decimal(10, 2))
    'DECIMAL(10,2)'
    """
    if not (0 < precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise ValueError(f"DECIMAL takes a precision from 1 to {MAX_PRECISION} and a scale up to it")
    return DataType(Kind.DECIMAL, precision, scale)


_TYPE_TEXT = re.compile(r"\s*([A-Za-z]+)\s*(?:\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\))?\s*\Z")


def parse_type(text: str) -> DataType:
    """Return the type that a text names; raises ValueError with the reason otherwise.

    >>> parse_type("decimal(10, 2)") == decimal(10, 2)
    True
    """
    match = _TYPE_TEXT.match(text)
    if not match:
        raise ValueError(f"'{text}' is not a type")
    try:
        return type_from_words(match[1], [int(group) for group in match.groups()[1:] if group is not None])
    except LookupError as error:
        raise ValueError(*error.args) from None


def type_from_words(word: str, parameters: list[int]) -> DataType:
    """Return the type of a type word with its parameters.

    Raises LookupError for a word that names no type and ValueError for parameters that it does not take.
    """
    upper = word.upper()
    if upper in ("DECIMAL", "NUMERIC"):
        if len(parameters) > 2:
            raise ValueError("DECIMAL takes a precision and a scale")
        return decimal(*((parameters or [10]) + [0])[:2])
    if upper not in TYPE_NAMES:
        raise LookupError(f"there is no type '{word}'")
    if parameters and (upper not in ("CHAR", "VARCHAR") or len(parameters) > 1):
        raise ValueError(f"{upper} takes no such parameter")
    return TYPE_NAMES[upper]


def as_decimal(data_type: DataType) -> DataType:
    """Return the DECIMAL type that holds every value of an integer or decimal type."""
    if data_type.is_integer:
        return decimal(_INTEGER_DIGITS[data_type.kind], 0)
    return data_type


def common_type(left: DataType, right: DataType) -> DataType | None:
    """Return the narrowest type that values of both go into, or None.

    >>> str(common_type(INT, decimal(5, 2)))
    'DECIMAL(12,2)'
    """
    if left == right or right.kind is Kind.NULL:
        return left
    if left.kind is Kind.NULL:
        return right
    if not (left.is_numeric and right.is_numeric):
        return None
    if Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    if left.is_integer and right.is_integer:
        return max(left, right, key=lambda t: _INTEGER_WIDTH[t.kind])
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return _bounded(whole + scale, scale, keep_whole=True)


def castable(source: DataType, target: DataType) -> bool:
    """Tell whether CAST converts values of one type to another.

    >>> castable(TIMESTAMP, BIGINT), castable(TIMESTAMP, BOOLEAN)
    (True, False)
    """
    if source == target or source.kind is Kind.NULL or Kind.STRING in (source.kind, target.kind):
        return True
    if source.is_numeric:
        return target.is_numeric or target.kind in (Kind.BOOLEAN, Kind.TIMESTAMP)
    return source.kind in (Kind.BOOLEAN, Kind.TIMESTAMP) and target.is_numeric


def arithmetic_type(operator: str, left: DataType, right: DataType) -> DataType | None:
    """Return the type of `left operator right` for numbers, or None where there is none.

    >>> str(arithmetic_type("*", BIGINT, decimal(3, 3)))
    'DECIMAL(24,3)'
    """
    left, right = (right if left.kind is Kind.NULL else left), (left if right.kind is Kind.NULL else right)
    if left.kind is Kind.NULL:
        return INT
    if not (left.is_numeric and right.is_numeric):
        return None
    if Kind.DECIMAL not in (left.kind, right.kind) or Kind.DOUBLE in (left.kind, right.kind):
        return common_type(left, right)
    a, b = as_decimal(left), as_decimal(right)
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    match operator:
        case "+" | "-":
            scale = max(a.scale, b.scale)
            return _bounded(max(whole_a, whole_b) + scale + 1, scale)
        case "*":
            return _bounded(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(6, a.scale + b.precision + 1)
            return _bounded(whole_a + b.scale + scale, scale)
        case "%":
            scale = max(a.scale, b.scale)
            return _bounded(min(whole_a, whole_b) + scale, scale)
    raise ValueError(operator)


def _bounded(precision: int, scale: int, keep_whole: bool = False) -> DataType:
    """Return a DECIMAL cut to the maximal precision the way Spark does: digits after the point give way."""
    if precision <= MAX_PRECISION:
        return decimal(max(precision, 1), scale)
    whole = precision - scale
    least_scale = 0 if keep_whole else min(scale, 6)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - whole, least_scale, 0))


def literal_integer_type(value: int) -> DataType:
    """Return the type of an integer literal: INT, BIGINT or DECIMAL, the first that holds it."""
    if -(2**31) <= value < 2**31:
        return INT
    if -(2**63) <= value < 2**63:
        return BIGINT
    return decimal(len(str(abs(value))), 0)
