"""Cuts what is typed, piped or read from a file into statements and commands, each as soon as it is complete.

A statement ends with a semicolon, a command (a line that begins with a backslash, where no statement has begun) with
its line. Places of errors count from the beginning of the whole text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cql import ast
from cql.parsing.parser import parse_piece
from cql.parsing.splitting import StatementText, split_statements
from cql.source import SourceText, Span

WORDS = {"quit": "\\q", "exit": "\\q", "help": "\\h", "?": "\\h"}
"""What other shells call commands; a line that is one of these alone is taken for it."""


@dataclass(frozen=True, slots=True)
class ShellInput:
    """A statement or a command, in the text that it is part of."""

    source: SourceText
    piece: StatementText
    is_command: bool = False

    @property
    def text(self) -> str:
        return self.source.text[self.piece.span.start : self.piece.span.end]

    def parsed(self) -> ast.Statement:
        """Return the statement; raises if it is none."""
        return parse_piece(self.source.text, self.piece)


def inputs(lines: Iterable[str], name: str) -> Iterator[ShellInput]:
    """Yield the statements and commands of a text that comes line by line.

    >>> [each.text for each in inputs(["show\\n", "streams; start\\n", "; \\n", "\\\\d bid\\n", "stop"], "x")]
    ['show\\nstreams', 'start', '\\\\d bid', 'stop']
    """
    text, begin = "", 0
    for line in lines:
        start, text = len(text), text + line
        if start == begin and is_command(line):
            first = start + len(line) - len(line.lstrip())
            yield ShellInput(
                SourceText(name, text), StatementText(Span(first, start + len(line.rstrip()))), is_command=True
            )
            begin = len(text)
            continue
        pieces = list(split_statements(text, begin))
        begin = len(text)
        for piece in pieces:
            if piece.terminated:
                yield ShellInput(SourceText(name, text), piece)
            else:
                begin = piece.span.start
    if begin < len(text):
        yield from (ShellInput(SourceText(name, text), piece) for piece in split_statements(text, begin))


def is_command(line: str) -> bool:
    """Tell whether a line is a command."""
    return line.lstrip().startswith("\\") or line.strip().rstrip(";").strip().lower() in WORDS


def is_complete(text: str) -> bool:
    """Tell whether everything that a text begins is complete.

    >>> is_complete("show streams"), is_complete("show streams;"), is_complete("\\\\d bid")
    (False, True, True)
    """
    found = list(inputs(text.splitlines(keepends=True), ""))
    return all(each.is_command or each.piece.terminated for each in found)
