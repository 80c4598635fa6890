"""Text and places in it.

A `Span` is a half-open range of character offsets into one source text. Every node of the syntax
tree and of the bound tree carries one, so that any later phase can point at what the user wrote.
This module knows nothing about CQL.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """Characters `start` up to, not including, `end` of a source text."""

    start: int
    end: int

    def cover(self, other: Span) -> Span:
        """Return the smallest span that holds both.

        >>> Span(3, 5).cover(Span(8, 9))
        Span(start=3, end=9)
        """
        return Span(min(self.start, other.start), max(self.end, other.end))


NO_SPAN = Span(0, 0)


@dataclass(frozen=True)
class SourceText:
    """A text with the name under which messages refer to it.

    >>> SourceText("q.cql", "select\\n  a").position(9)
    (2, 3)
    """

    name: str
    text: str = field(repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both counted from 1."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def start_of(self, number: int) -> int:
        """Return the offset at which a line (counted from 1) begins."""
        return self._line_starts[number - 1]

    def line(self, number: int) -> str:
        """Return the text of a line (counted from 1) without its line end."""
        start = self.start_of(number)
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")
