"""Colours of statements while they are typed: a lexer for Pygments, made from the words of the grammar."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.intervals import UNIT_WORDS
from cql.parsing.parser import keywords
from cql.types import TYPE_NAMES


@cache
def lexer() -> type[RegexLexer]:
    """Return the lexer of CQL."""

    class CqlLexer(RegexLexer):
        name = "CQL"
        flags = 0
        tokens = {  # noqa: RUF012
            "root": [
                (r"^\s*\\\w+", Name.Decorator),
                (r"--[^\n]*|#[^\n]*", Comment.Single),
                (r"/\*(?:[^*]|\*(?!/))*\*/", Comment.Multiline),
                (r"'(?:[^']|'')*'?", String.Single),
                (r'"(?:[^"]|"")*"?|`(?:[^`]|``)*`?', Name.Variable),
                (_words(TYPE_NAMES), Keyword.Type),
                (rf"{_words([*AGGREGATES, *CALLABLE])}(?=\s*\()", Name.Function),
                (_words(keywords()), Keyword),
                (rf"(?<=\d)\s+{_words(UNIT_WORDS)}", Keyword.Type),
                (r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", Number),
                (r"[^\W\d]\w*", Name),
                (r"<>|!=|<=|>=|\|\||[-+*/%=<>]", Operator),
                (r"[\[\]().,;]", Punctuation),
                (r"\s+|.", Text),
            ]
        }

    return CqlLexer


def _words(found: Iterable[str]) -> str:
    """Return a pattern for any of some words, in any case."""
    pattern = words(sorted(set(found)), prefix=r"\b", suffix=r"\b").get()
    return f"(?i:{pattern})"
