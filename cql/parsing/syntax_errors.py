"""Says in words what a parser found wrong: what stands there, what could, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from cql.errors import Code, Diagnostic, nearest, one_of
from cql.parsing.splitting import bracket_depth, unmatched_bracket
from cql.source import Span

STATEMENT_WORDS = (
    "SELECT", "ISTREAM", "DSTREAM", "RSTREAM", "WITH", "CREATE", "REGISTER", "DROP", "EXPLAIN", "SHOW",
    "DESCRIBE", "SET", "START", "STOP",
)

_IN_WORDS = {
    "NAME": "a name",
    "QUOTED": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "UNIT": "a unit of time",
    "COMPARISON": "a comparison",
    "SUM_OPERATOR": "an operator",
    "PRODUCT_OPERATOR": "an operator",
    "MINUS": "an operator",
    "STAR": "an operator",
    "NOT_NULL": "NOT NULL",
    "INFERRED": "SCHEMA INFERRED",
    "NULLS_FIRST": "NULLS FIRST",
    "NULLS_LAST": "NULLS LAST",
    "$END": "the end of the statement",
}

# Where all of these may stand, an expression may.
_EXPRESSION_STARTS = {"NAME", "NUMBER", "STRING", "LPAR", "CASE", "CAST"}
_ONLY_IN_EXPRESSIONS = {
    "NAME", "QUOTED", "NUMBER", "STRING", "LPAR", "CASE", "CAST", "MINUS", "PLUS", "SUM_OPERATOR", "NOT", "EXISTS",
    "EXTRACT", "INTERVAL", "TIMESTAMP", "TRUE", "FALSE", "NULL", "STAR",
}

_HABITS = {
    "==": "CQL compares with a single =",
    "&&": "write AND",
    "USING": "write the join condition out: ON a.x = b.x",
    "NATURAL": "write the join condition out: JOIN .. ON a.x = b.x",
    "OFFSET": "CQL has ORDER BY .. LIMIT n, without OFFSET",
    "::": "write CAST(x AS TYPE)",
    "SLIDE": "Slide goes with Range: [Range 10 Seconds Slide 2 Seconds]",
    "VALUES": "a relation gets its rows from a source: CREATE RELATION .. FROM csv OPTIONS (path '..')",
    "INSERT": "streams get their elements from a source: CREATE STREAM .. FROM csv OPTIONS (path '..')",
    "TABLE": "CQL has streams and relations: CREATE STREAM .. or CREATE RELATION ..",
    "EMIT": "CQL says when results come out by Istream, Dstream and Rstream",
    "TUMBLE": "a tumbling window is [Range 10 Seconds Slide 10 Seconds] after the stream's name",
    "HOP": "a hopping window is [Range 10 Seconds Slide 2 Seconds] after the stream's name",
}

_WORD = re.compile(r"[^\W\d]\w*")
_COMMA_TOO_MANY = re.compile(r",\s*(FROM|WHERE|GROUP|HAVING|ORDER|LIMIT)\b", re.IGNORECASE)


def syntax_diagnostic(
    error: UnexpectedInput, text: str, piece: Span, terminals: Mapping[str, str]
) -> Diagnostic:
    """Return what is wrong with a piece of text; `terminals` gives the spelling of keywords."""
    bracket = unmatched_bracket(text, piece)
    if bracket:
        return bracket
    place = _place(error, text, piece)
    if isinstance(error, UnexpectedCharacters) and not _WORD.match(text, place.start):
        habit = _habit(text, place.start)
        found = text[place.start : place.start + 1]
        return Diagnostic(Code.BAD_CHARACTER, f"the character {found!r} has no place here", place, habit)
    found = text[place.start : place.end]
    first = _WORD.match(text, piece.start)
    expected = _expected(error)
    if first and place.start <= first.end() + 1 and first[0].upper() not in STATEMENT_WORDS:
        guess = nearest(first[0], STATEMENT_WORDS, most=1)
        return Diagnostic(
            Code.SYNTAX, f"a statement cannot start with '{first[0]}'", Span(first.start(), first.end()),
            None if guess else _HABITS.get(first[0].upper()) or f"it starts with {one_of(STATEMENT_WORDS)}",
            guess,
        )
    if found.upper() in STATEMENT_WORDS and "$END" in expected:
        return Diagnostic(Code.SYNTAX, f"'{found}' begins another statement here", place,
                          "statements end with a semicolon")
    if comma := _COMMA_TOO_MANY.search(text, piece.start, place.end):
        return Diagnostic(Code.SYNTAX, f"there is a comma too many before {comma[1].upper()}",
                          Span(comma.start(), comma.start() + 1))
    keywords = [terminals[name] for name in expected if name in terminals]
    misspelt = _misspelt(text, piece, place, keywords)
    if bracket_depth(text, Span(piece.start, place.start)) == 0:
        expected -= {"RPAR", "RSQB"}
    wanted = _in_words(expected, terminals)
    message = f"'{found}' is not expected here" if found else "the statement ends too early"
    hint = _habit(text, place.start) or (f"expected {wanted}" if wanted else None)
    if misspelt:
        word, candidates = misspelt
        return Diagnostic(Code.SYNTAX, f"'{text[word.start : word.end]}' is not expected here", word,
                          None, candidates)
    return Diagnostic(Code.SYNTAX, message, place, hint)


def _place(error: UnexpectedInput, text: str, piece: Span) -> Span:
    if isinstance(error, UnexpectedToken) and isinstance(error.token, Token):
        token = error.token
        if token.type != "$END" and token.start_pos is not None and token.end_pos is not None:
            return Span(token.start_pos, token.end_pos)
        return Span(piece.end, piece.end)
    start = error.pos_in_stream if error.pos_in_stream is not None else piece.end
    start = min(max(start, piece.start), piece.end)
    word = _WORD.match(text, start, piece.end)
    return Span(start, word.end() if word else min(start + 1, piece.end))


def _expected(error: UnexpectedInput) -> set[str]:
    if isinstance(error, UnexpectedToken):
        return set(error.expected or ())
    return set(getattr(error, "allowed", None) or ())


def _habit(text: str, at: int) -> str | None:
    """Return advice for what people bring along from other languages."""
    word = _WORD.match(text, at)
    if word:
        return _HABITS.get(word[0].upper())
    for width in (0, 1):
        mark = text[max(0, at - width) : at - width + 2]
        if mark in _HABITS:
            return _HABITS[mark]
    return None


def _misspelt(
    text: str, piece: Span, place: Span, keywords: Iterable[str]
) -> tuple[Span, tuple[str, ...]] | None:
    """Return the word at the place, or the one before it, if it looks like an expected keyword."""
    words = [Span(m.start(), m.end()) for m in _WORD.finditer(text, piece.start, place.end)]
    known = [word for word in keywords if len(word) > 2]
    for word in reversed(words[-2:]):
        spelt = text[word.start : word.end]
        if word.end < place.start and text[word.end : place.start].strip():
            continue
        candidates = nearest(spelt, known, most=1)
        if candidates and candidates[0].casefold() != spelt.casefold():
            return word, candidates
    return None


def _in_words(expected: set[str], terminals: Mapping[str, str]) -> str:
    """Return the expected terminals for people: groups by their name, keywords in capitals."""
    words: list[str] = []
    if expected >= _EXPRESSION_STARTS:
        words.append("an expression")
        expected = expected - _ONLY_IN_EXPRESSIONS
    for name in sorted(expected):
        word = _IN_WORDS.get(name) or terminals.get(name)
        if word and word not in words:
            words.append(word if word[0].isalpha() else f"'{word}'")
    return one_of(list(dict.fromkeys(words))) if words else ""
