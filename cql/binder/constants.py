"""Arguments of functions that have to be constants, and what these constants may be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cql import bound
from cql.errors import Code, fail, nearest, one_of
from cql.functions.scalars import TRUNC_UNITS, ScalarFunction

_DATE_PART = re.compile(r"'[^']*'|(?P<letters>([A-Za-z])\2*)|[^A-Za-z'\[\]{}#]")
_DATE_LETTERS = frozenset(
    [
        "y",
        "yy",
        "yyyy",
        "M",
        "MM",
        "MMM",
        "MMMM",
        "d",
        "dd",
        "H",
        "HH",
        "h",
        "hh",
        "m",
        "mm",
        "s",
        "ss",
        "S",
        "SS",
        "SSS",
        "SSSS",
        "SSSSS",
        "SSSSSS",
        "a",
        "E",
        "EEE",
        "EEEE",
    ]
)


def check_constants(function: ScalarFunction, arguments: Sequence[bound.Expr]) -> None:
    """Check arguments that have to be constants, or that are checked early if they are."""
    if function.name == "date_trunc" and arguments:
        _check_unit(arguments[0])
    elif function.name == "date_format" and len(arguments) == 2:
        _check_date_pattern(arguments[1])
    elif function.name == "round" and len(arguments) == 2:
        _check_digits(arguments[1])
    elif function.name in ("regexp_like", "regexp_extract") and len(arguments) > 1:
        _check_regex(function.name, arguments[1])


def _check_unit(argument: bound.Expr) -> None:
    unit = _constant_string(argument)
    if unit is None or unit.lower() not in TRUNC_UNITS:
        problem = "takes a constant unit first" if unit is None else f"knows no unit '{unit}'"
        raise fail(
            Code.BAD_ARGUMENTS,
            f"date_trunc {problem}",
            argument.span,
            hint=f"it takes {one_of([repr(u) for u in TRUNC_UNITS])}",
            candidates=nearest(unit or "", TRUNC_UNITS),
        )


def _check_date_pattern(argument: bound.Expr) -> None:
    pattern = _constant_string(argument)
    if pattern is None or not _is_date_pattern(pattern):
        raise fail(
            Code.BAD_ARGUMENTS,
            "date_format takes a constant pattern",
            argument.span,
            hint="of the letters y M d H h m s S a E, such as 'yyyy-MM-dd HH:mm:ss'",
        )


def _check_digits(argument: bound.Expr) -> None:
    if not (isinstance(argument, bound.Literal) and isinstance(argument.value, int)):
        raise fail(Code.BAD_ARGUMENTS, "round takes a constant number of digits", argument.span)


def _check_regex(function: str, argument: bound.Expr) -> None:
    pattern = _constant_string(argument)
    if pattern is None:
        raise fail(Code.BAD_ARGUMENTS, f"{function} takes a constant pattern", argument.span)
    refused = _problem_of_regex(pattern)
    if refused:
        raise fail(
            Code.BAD_ARGUMENTS,
            f"this is not a regular expression: {refused}",
            argument.span,
            hint="the syntax is that of RE2, without lookaround and references to groups",
        )


def _problem_of_regex(pattern: str) -> str | None:
    """Return why RE2 refuses a regular expression; None if it does not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def _is_date_pattern(pattern: str) -> bool:
    """Tell whether a pattern consists of letters that mean the same to Spark and to us."""
    at = 0
    while at < len(pattern):
        part = _DATE_PART.match(pattern, at)
        if part is None or (part["letters"] and part["letters"] not in _DATE_LETTERS):
            return False
        at = part.end()
    return True


def _constant_string(expression: bound.Expr) -> str | None:
    if isinstance(expression, bound.Literal) and isinstance(expression.value, str):
        return expression.value
    return None
