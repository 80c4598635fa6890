"""Options of formats and of registered queries: which exist, and what they must hold.

Spark ignores options that it does not know, so that a typing mistake goes unnoticed. For formats that have a connector
unknown options are errors; those of other formats (Kafka, data sources of the user) pass through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cql import ast, formats
from cql.errors import Code, CqlError, Diagnostic, fail, nearest
from cql.parsing import parse_expression
from cql.printer import to_text
from cql.service import OPTIONS as SERVICE_OPTIONS
from cql.service import WORDS
from cql.settings import Settings
from cql.sizes import BadSize, parse_size
from cql.source import Span

EXPRESSIONS = ("utility",)
"""Options of REGISTER QUERY .. WITH whose values are expressions over the rows of the query."""


def option_text(value: ast.Expression) -> str | None:
    """Return a literal or bare word as the text that options hold, or None for anything else."""
    match value:
        case ast.String():
            return value.value
        case ast.Number():
            return value.text
        case ast.Boolean():
            return "true" if value.value else "false"
        case ast.Column(qualifier=None):
            return value.name.text
        case ast.Unary(operator="-", operand=ast.Number() as number):
            return "-" + number.text
    return None


def query_option(key: str, text: str) -> ast.Option:
    """Return an option of a registered query, given as text.

    >>> to_text(query_option("utility", "a.price * 2").value), to_text(query_option("shedding", "auto").value)
    ('a.price * 2', "'auto'")
    """
    value = parse_expression(text) if key.casefold() in EXPRESSIONS else ast.String(text)
    return ast.Option(ast.Name(key), value)


def read_options(options: Sequence[ast.Option]) -> dict[str, str]:
    """Return options by key; a key given twice or a value that is no literal is an error."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for option in options:
        if option.key.key in seen:
            raise fail(Code.DUPLICATE_NAME, f"the option '{option.key.text}' is given twice", option.key.span)
        seen.add(option.key.key)
        text = to_text(option.value) if option.key.key in EXPRESSIONS else option_text(option.value)
        if text is None:
            raise fail(
                Code.BAD_OPTION_VALUE,
                f"the option '{option.key.text}' takes a plain value",
                option.value.span,
                hint="write it in single quotes",
            )
        found[option.key.text] = text
    return found


def check_source_options(format_name: str, options: Sequence[ast.Option], span: Span) -> None:
    """Raise for options that a known source format does not have, or lacks."""
    connector = formats.connector(format_name)
    if connector.takes_any_option or not connector.reads:
        return
    problems = _unknown(options, connector.option_names("read"), f"the format {format_name}")
    given = {option.key.key for option in options}
    for needed in connector.needed_options("read"):
        if needed.casefold() not in given:
            problems.append(
                Diagnostic(
                    Code.BAD_DEFINITION,
                    f"the format {format_name} needs the option '{needed}'",
                    span,
                    f"write FROM {format_name} OPTIONS ({needed} '..')",
                )
            )
    if problems:
        raise CqlError(problems)


def check_query_options(query: str, options: Sequence[ast.Option], settings: Settings) -> None:
    """Raise for options that a registered query does not have, and for values that they do not take."""
    problems = _unknown(options, SERVICE_OPTIONS, "a query")
    if problems:
        raise CqlError(problems)
    for option in options:
        _check_service_option(query, option, option_text(option.value) or "", settings)


def _check_service_option(query: str, option: ast.Option, value: str, settings: Settings) -> None:
    if option.key.key in EXPRESSIONS:
        return
    if option.key.key in WORDS:
        words = WORDS[option.key.key]
        if value.lower() not in words:
            raise fail(
                Code.BAD_OPTION_VALUE,
                f"the option '{option.key.text}' of the query '{query}' cannot be '{value}'",
                option.value.span,
                hint=f"it takes {' or '.join(repr(word) for word in words)}",
            )
        return
    if option.key.key == "memory":
        try:
            parse_size(value)
        except BadSize as error:
            message = f"the memory of the query '{query}' cannot be '{value}'"
            raise fail(Code.BAD_OPTION_VALUE, message, option.value.span, hint=str(error)) from None
        return
    try:
        settings.changed(option.key.key, value, option.key.span, option.value.span)
    except CqlError as error:
        problem = error.diagnostics[0]
        raise CqlError([replace(problem, message=f"of the query '{query}', {problem.message}")]) from None


def _unknown(options: Sequence[ast.Option], known: Iterable[str], owner: str) -> list[Diagnostic]:
    spelled = {name.casefold() for name in known}
    names = sorted(known)
    listed = f"its options are {', '.join(names)}" if len(names) <= 10 else None
    return [
        Diagnostic(
            Code.UNKNOWN_OPTION,
            f"{owner} has no option '{option.key.text}'",
            option.key.span,
            None if nearest(option.key.text, names) else listed,
            nearest(option.key.text, names),
        )
        for option in options
        if option.key.key not in spelled
    ]
