"""Cuts a script into statements at its semicolons, and matches brackets.

It looks only at what can hide a semicolon or a bracket: comments, strings and quoted names. A quote
that never ends spoils its own statement and no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cql.errors import Code, Diagnostic
from cql.source import Span

_MARK = re.compile(
    r"""(?P<skip> --[^\n]* | \#[^\n]* | /\*.*?\*/ )
      | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` )
      | (?P<open> [(\[] ) | (?P<close> [)\]] ) | (?P<end> ; )
      | (?P<unended> ['"`] | /\* )
      | (?P<text> [^\s;()\[\]'"`\ufeff/\#-]+ | [/-] )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class StatementText:
    """The text of one statement, and what is wrong with it already."""

    span: Span
    problem: Diagnostic | None = None
    terminated: bool = True


def split_statements(text: str, start: int = 0, end: int | None = None) -> Iterator[StatementText]:
    """Yield the statements of a text; those that hold nothing but comments are left out.

    >>> [piece.span for piece in split_statements("a; ';' -- ;")]
    [Span(start=0, end=1), Span(start=3, end=6)]
    """
    end = len(text) if end is None else end
    first: int | None = None
    last = at = start
    problem: Diagnostic | None = None
    while match := _MARK.search(text, at, end):
        at = match.end()
        kind = match.lastgroup
        if kind == "skip":
            continue
        if kind == "end":
            if first is not None:
                yield StatementText(Span(first, last), problem)
            first, problem = None, None
            continue
        first = match.start() if first is None else first
        last = at
        if kind == "unended":
            problem = problem or _never_ends(match[0], match.start())
            line_end = text.find("\n", at, end)
            at = end if line_end < 0 or match[0] == "/*" else line_end
            last = at
    if first is not None:
        yield StatementText(Span(first, last), problem, terminated=False)


def _never_ends(mark: str, at: int) -> Diagnostic:
    if mark == "/*":
        return Diagnostic(Code.UNCLOSED, "this comment is never closed", Span(at, at + 2), "close it with */")
    what = "string" if mark == "'" else "quoted name"
    return Diagnostic(
        Code.UNTERMINATED,
        f"this {what} never ends",
        Span(at, at + 1),
        f"close it with {mark}; inside, a {mark} is written twice",
    )


def unmatched_bracket(text: str, span: Span) -> Diagnostic | None:
    """Return what is wrong with the brackets of a piece of text, if anything is."""
    pairs = {")": "(", "]": "["}
    closers = {"(": ")", "[": "]"}
    opened: list[tuple[str, int]] = []
    for match in _MARK.finditer(text, span.start, span.end):
        at = match.start()
        if match.lastgroup == "open":
            opened.append((match[0], at))
        elif match.lastgroup == "close":
            if not opened:
                return Diagnostic(Code.UNCLOSED, f"this '{match[0]}' closes nothing", Span(at, at + 1))
            bracket, place = opened.pop()
            if bracket != pairs[match[0]]:
                return Diagnostic(
                    Code.UNCLOSED,
                    f"this '{bracket}' is closed by '{match[0]}'",
                    Span(place, place + 1),
                    f"a '{closers[bracket]}' is missing",
                )
    if opened:
        bracket, place = opened[-1]
        return Diagnostic(
            Code.UNCLOSED,
            f"this '{bracket}' is never closed",
            Span(place, place + 1),
            f"a '{closers[bracket]}' is missing",
        )
    return None


def deepest_bracket(text: str, span: Span) -> tuple[int, int]:
    """Return how deep brackets nest in a piece of text, and where the deepest opens."""
    depth = deepest = place = 0
    for match in _MARK.finditer(text, span.start, span.end):
        if match.lastgroup == "open":
            depth += 1
            if depth > deepest:
                deepest, place = depth, match.start()
        elif match.lastgroup == "close":
            depth -= 1
    return deepest, place
