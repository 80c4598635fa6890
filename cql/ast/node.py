"""The base of all syntax nodes, and names."""

from __future__ import annotations

from dataclasses import dataclass, field

from cql.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Something with a place in the text; equality ignores the place."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(Node):
    """An identifier as written, quotes removed. Names are looked up without regard to case."""

    text: str

    @property
    def key(self) -> str:
        return self.text.casefold()
