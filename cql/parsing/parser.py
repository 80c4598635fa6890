"""The parser: Lark's LALR tables for `grammar/cql.lark`, fed statement by statement.

A script is parsed in pieces, so that every bad statement is reported and none hides another. STREAM
scripts use the same grammar with one difference: text in double quotes is a string there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast

from lark import Lark
from lark import __version__ as lark_version
from lark.exceptions import UnexpectedInput
from lark.lexer import TextSlice

from cql import ast
from cql.errors import Code, CqlError, Diagnostic, fail
from cql.parsing.builder import AstBuilder
from cql.parsing.reducing import SymbolValue, TooDeep, install
from cql.parsing.splitting import StatementText, deepest_bracket, split_statements
from cql.parsing.syntax_errors import syntax_diagnostic
from cql.source import SourceText, Span

MAX_DEPTH = 100
"""How deep brackets may nest; deeper text is a mistake or an attack, and Python's stack is finite."""

T = TypeVar("T", bound=ast.Node)


class Dialect(Enum):
    """What double quotes mean: a name in CQL, a string in STREAM's scripts."""

    CQL = "cql"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class ParsedScript:
    """The statements that could be read, in order, and what was wrong with the others."""

    source: SourceText
    statements: tuple[ast.Statement, ...]
    diagnostics: tuple[Diagnostic, ...]


def parse_script(source: SourceText) -> ParsedScript:
    """Parse a script, CQL or STREAM's own format, as far as possible; errors are returned, not raised."""
    # Imported here because that format is read by means of this module's `parse_piece`.
    from cql.parsing.stream_script import is_stream_script, parse_stream_script

    if is_stream_script(source.text):
        return parse_stream_script(source)
    statements: list[ast.Statement] = []
    diagnostics: list[Diagnostic] = []
    for piece in split_statements(source.text):
        try:
            statements.append(parse_piece(source.text, piece))
        except CqlError as error:
            diagnostics.extend(error.diagnostics)
    return ParsedScript(source, tuple(statements), tuple(diagnostics))


def parse_statement(text: str) -> ast.Statement:
    """Parse a text that holds one statement; the semicolon may be left out."""
    return _only_piece(text, lambda piece: parse_piece(text, piece))


def parse_query(text: str) -> ast.Query:
    """Parse a text that holds one query.

    >>> parse_query("Select * From S [Now]").inputs[0].name.text
    'S'
    """
    return _only_piece(text, lambda piece: cast(ast.Query, _parse(text, piece, Dialect.CQL, "query")))


def parse_expression(text: str) -> ast.Expression:
    """Parse a text that holds one expression."""
    return _only_piece(text, lambda piece: cast(ast.Expression, _parse(text, piece, Dialect.CQL, "expr")))


def parse_piece(text: str, piece: StatementText, dialect: Dialect = Dialect.CQL) -> ast.Statement:
    """Parse one statement of a larger text; its spans point into the whole."""
    return cast(ast.Statement, _parse(text, piece, dialect, "start"))


def _only_piece(text: str, parse: Callable[[StatementText], T]) -> T:
    source = SourceText("<text>", text)
    try:
        pieces = list(split_statements(text))
        if not pieces:
            raise fail(Code.SYNTAX, "there is nothing here", Span(0, 0))
        if len(pieces) > 1:
            raise fail(Code.SYNTAX, "one statement is expected here, and a second one begins", pieces[1].span)
        return parse(pieces[0])
    except CqlError as error:
        raise error.within(source) from None


def _parse(text: str, piece: StatementText, dialect: Dialect, start: str) -> Any:
    if piece.problem:
        raise CqlError([piece.problem])
    depth, place = deepest_bracket(text, piece.span)
    if depth > MAX_DEPTH:
        raise _too_deep(Span(place, place + 1))
    parser = _lark(dialect)
    try:
        return cast(SymbolValue, parser.parse(TextSlice(text, *piece.span), start=start)).value
    except UnexpectedInput as error:
        raise CqlError([syntax_diagnostic(error, text, piece.span, _spellings(dialect))]) from None
    except TooDeep as error:
        raise fail(Code.TOO_DEEP, "this nests too deeply", error.span, hint=_SPLIT_UP) from None


_SPLIT_UP = "move inner parts into views: CREATE VIEW name AS query"


def _too_deep(span: Span) -> CqlError:
    return fail(Code.TOO_DEEP, f"brackets nest more than {MAX_DEPTH} deep", span, hint=_SPLIT_UP)


@cache
def _lark(dialect: Dialect) -> Lark:
    grammar = resources.files("grammar").joinpath("cql.lark").read_text(encoding="utf-8")
    if dialect is Dialect.STREAM:
        quoted = next(line for line in grammar.splitlines() if line.startswith("QUOTED:"))
        string = next(line for line in grammar.splitlines() if line.startswith("STRING:"))
        grammar = grammar.replace(quoted, r"QUOTED: /`(?:[^`]|``)+`/")
        grammar = grammar.replace(string, r"""STRING: /'(?:[^']|'')*'|"(?:[^"]|"")*"/""")
    lark = Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        start=["start", "query", "expr"],
        maybe_placeholders=True,
        cache=_table_file(dialect),
    )
    install(lark, AstBuilder())
    return lark


def _table_file(dialect: Dialect) -> str | bool:
    """Return where the parser's tables are kept between runs: beside the bytecode, where that can be written."""
    folder = Path(str(resources.files("grammar"))) / "__pycache__"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    tag = f"{sys.implementation.cache_tag}.lark-{lark_version}"
    return str(folder / f"{dialect.value}.{tag}.tables") if os.access(folder, os.W_OK) else False


@cache
def keywords() -> frozenset[str]:
    """Return the words of the grammar in capitals, those that only some places reserve among them.

    >>> {"SELECT", "RANGE", "INFERRED", "JSON"} <= keywords(), "PRICE" in keywords()
    (True, False)
    """
    patterns = (terminal.pattern.value for terminal in _lark(Dialect.CQL).terminals if terminal.name not in _OPEN)
    return frozenset(word for pattern in patterns for word in re.findall(r"[A-Z]{2,}", pattern))


_OPEN = frozenset({"UNIT", "NAME", "QUOTED", "STRING", "NUMBER"})
"""Terminals that stand for more words than there are in the grammar, or for units of time."""


@cache
def _spellings(dialect: Dialect) -> dict[str, str]:
    """Return how the keywords and marks of the grammar are written."""
    return {
        terminal.name: terminal.pattern.value.upper()
        for terminal in _lark(dialect).terminals
        if terminal.pattern.type == "str"
    }
