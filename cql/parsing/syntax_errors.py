"""Says in words what a parser found wrong: what stands there, what could, and what was probably meant.

The parser stops at the first token that fits no rule. Because keywords are names where a name may stand, that
is often a word too late: in `FROM bid WEHRE price` it is `price`. The explanations below are tried in order;
each knows one kind of mistake, and the last one knows only what the grammar would have accepted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import LexerThread, TextSlice

from cql.errors import Code, Diagnostic, one_of
from cql.intervals import Unit
from cql.parsing.splitting import unmatched_bracket
from cql.source import Span

STATEMENT_WORDS = (
    "SELECT", "ISTREAM", "DSTREAM", "RSTREAM", "WITH", "TRY", "CREATE", "REGISTER", "DROP", "EXPLAIN",
    "SHOW", "DESCRIBE", "SET", "START", "STOP",
)  # fmt: skip

_IN_WORDS = {
    "NAME": "a name",
    "QUOTED": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "UNIT": "a unit of time",
    "GROUP": "GROUP BY",
    "ORDER": "ORDER BY",
    "PARTITION": "PARTITION BY",
    "TIMESTAMP": "TIMESTAMP BY and the column that holds the timestamp",
    "SIGN": "SIGN BY",
    "NOT_NULL": "NOT NULL",
    "INFERRED": "SCHEMA INFERRED",
    "NULLS_FIRST": "NULLS FIRST",
    "NULLS_LAST": "NULLS LAST",
    "$END": "the end of the statement",
}

_IN_EXPRESSIONS = {
    "QUOTED", "MINUS", "PLUS", "SUM_OPERATOR", "NOT", "EXISTS", "EXTRACT", "INTERVAL", "TIMESTAMP", "TRUE",
    "FALSE", "NULL", "STAR",
}  # fmt: skip
_OPERATORS = {
    "COMPARISON", "PRODUCT_OPERATOR", "MINUS", "STAR", "OR", "NOT", "BETWEEN", "IN", "IS", "LIKE", "ESCAPE",
}  # fmt: skip

# Terminals that are told in one phrase: if all of the first set are expected, both sets are.
_TOGETHER = (
    ("an expression", {"NAME", "NUMBER", "STRING", "LPAR", "CASE", "CAST"}, _IN_EXPRESSIONS),
    ("an operator such as AND", {"SUM_OPERATOR", "AND"}, _OPERATORS),
    ("an operator", {"SUM_OPERATOR"}, _OPERATORS),
    ("an alias", {"AS", "NAME"}, {"QUOTED"}),
    ("a join", {"JOIN"}, {"CROSS", "FULL", "INNER", "LEFT", "RIGHT"}),
    ("a set operation", {"UNION"}, {"EXCEPT", "INTERSECT"}),
)

_STATEMENTS = f"it starts with {one_of(STATEMENT_WORDS)}"
_TUMBLING = "a tumbling window is [Range 10 Seconds Slide 10 Seconds] after the stream's name"
_HOPPING = "a hopping window is [Range 10 Seconds Slide 2 Seconds] after the stream's name"
_QUOTED_VALUE = "the value of an option stands in single quotes: path 'bid.csv'"
_WINDOWS = "[Range 10 Seconds], [Rows 10] or [Now]"
_CHANGES = "a relation changes by a log: CREATE RELATION .. TIMESTAMP BY .. SIGN BY .. FROM .."

# What people bring along from other languages: a word, or a mark.
_HABITS = {
    "==": "CQL compares with a single =",
    "=>": "greater or equal is >=",
    "=<": "less or equal is <=",
    "!": "not equal is <>; the opposite of a condition is NOT",
    "&&": "write AND",
    "::": "write CAST(x AS TYPE)",
    "[": "a window goes right after the stream's name or alias: FROM s [Range 10 Seconds]",
    "USING": "write the join condition out: ON a.x = b.x",
    "OFFSET": "CQL has ORDER BY .. LIMIT n, without OFFSET",
    "SLIDE": "Slide goes with Range: [Range 10 Seconds Slide 2 Seconds]",
    "VALUES": "a relation gets its rows from a source: CREATE RELATION .. FROM csv OPTIONS (path '..')",
    "INSERT": "streams get their elements from a source: CREATE STREAM .. FROM csv OPTIONS (path '..')",
    "UPDATE": _CHANGES,
    "DELETE": _CHANGES,
    "ALTER": "DROP it and CREATE it anew",
    "TABLE": "CQL has streams and relations: CREATE STREAM .. or CREATE RELATION ..",
    "EMIT": "CQL says when results come out by Istream, Dstream and Rstream",
}

# The same for several words; the place of the error lies within the match, the caret goes under group `at`.
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), hint)
    for pattern, hint in {
        r"\b(?P<at>TUMBLE)\s*\(": _TUMBLING,
        r"\b(?P<at>HOP|TABLE)\s*\(": _HOPPING,
        r"\b(?P<at>USING)\s*\(": _HABITS["USING"],
        r"\b(?P<at>NATURAL)\s+JOIN\s+\w+\s*": "write the join condition out: JOIN .. ON a.x = b.x",
        r"\b(?P<at>EMIT)\s+\w": _HABITS["EMIT"],
        r"\bCREATE\s+(?P<at>OR)\b": "there is no OR REPLACE: DROP the old one first",
        r"\b(?P<at>IF)\s+(NOT\s+)?EXISTS\b": "CQL has neither IF EXISTS nor IF NOT EXISTS; leave it out",
        r"\b(?P<at>PRIMARY)\s+KEY\b": "streams and relations have no keys; leave it out",
        r"\b(?P<at>WATERMARK)\s+FOR\s": "write TIMESTAMP BY column DELAY 5 SECONDS after the columns",
        r"\b(?P<at>TOP)\s+\d": "write ORDER BY .. LIMIT n",
        r"\b(?P<at>FETCH)\s+(FIRST|NEXT)\s+\d": "write ORDER BY .. LIMIT n",
        r"\bOVER\s*\([^()]*\b(?P<at>RANGE|ROWS)\b": f"a window goes after a stream's name: {_WINDOWS}",
        r"(?P<at>\()(?=\s*(RANGE|ROWS|NOW|PARTITION)\b)": f"a window stands in square brackets: {_WINDOWS}",
        r"\[\s*(?P<at>\d+)": f"a window is {_WINDOWS}",
        r"\ACREATE\b.*\bFROM\s+(?P<at>'[^']*')": "name the format: FROM csv OPTIONS (path '..')",
        r"\bOPTIONS\s*\([^()]*\b\w+\s+(?P<at>[^\W\d][\w./]*)": _QUOTED_VALUE,
    }.items()
)

_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT")
_CLAUSE_ORDER = "clauses come in the order FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT"

_WORD = re.compile(r"[^\W\d]\w*")
_HIDING = re.compile(r"(?P<comment>--[^\n]*|#[^\n]*|/\*.*?\*/)|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`", re.DOTALL)
_COMMA_TOO_MANY = re.compile(r",\s*(?P<next>(?:FROM|WHERE|GROUP|HAVING|ORDER|LIMIT)\b|[),;])", re.IGNORECASE)
_NOTHING_SELECTED = re.compile(r"\bSELECT\s+(?:(?:ALL|DISTINCT)\s+)?(?P<from>FROM)\b(?!\s*(?:,|FROM\b))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Problem:
    """What the parser knows when it stops, in terms of the text.

    `plain` is the piece with comments and the insides of quotes blanked out, so that patterns can be searched
    for in it; `last` is the token before the place, if it is known.
    """

    text: str
    piece: Span
    place: Span
    plain: str
    expected: frozenset[str]
    terminals: Mapping[str, str]
    last: Token | None
    is_character: bool

    @property
    def found(self) -> str:
        return self.text[self.place.start : self.place.end]

    def match_span(self, match: re.Match[str], group: str | int = 0) -> Span:
        """Return the place in the text of a match in `plain`."""
        return Span(self.piece.start + match.start(group), self.piece.start + match.end(group))

    def before(self) -> Span | None:
        """Return the word right before the place, if there is one."""
        words = list(_WORD.finditer(self.plain, 0, self.place.start - self.piece.start))
        if not words or self.plain[words[-1].end() : self.place.start - self.piece.start].strip():
            return None
        return self.match_span(words[-1])

    def syntax(self, message: str, span: Span, hint: str | None = None, guess: Iterable[str] = ()) -> Diagnostic:
        return Diagnostic(Code.SYNTAX, message, span, hint, tuple(guess))

    def not_expected(self, hint: str | None, span: Span | None = None, guess: Iterable[str] = ()) -> Diagnostic:
        span = span or self.place
        found = self.text[span.start : span.end]
        message = f"{_shown(found)} is not expected here" if found else "the statement ends too early"
        return self.syntax(message, span, hint, guess)


def syntax_diagnostic(error: UnexpectedInput, text: str, piece: Span, terminals: Mapping[str, str]) -> Diagnostic:
    """Return what is wrong with a piece of text; `terminals` gives the spelling of keywords."""
    bracket = unmatched_bracket(text, piece)
    if bracket:
        return bracket
    place = _place(error, text, piece)
    expected, last = _state_before(error, text, Span(piece.start, place.start))
    problem = _Problem(
        text,
        piece,
        place,
        _HIDING.sub(_blanked, text[piece.start : piece.end]),
        expected,
        terminals,
        last,
        isinstance(error, UnexpectedCharacters) and not _WORD.match(text, place.start),
    )
    for explain in _EXPLANATIONS:
        diagnostic = explain(problem)
        if diagnostic:
            return diagnostic
    return _what_could_stand_there(problem)


# ---------------------------------------------------------------------------------------------- explanations


def _strange_character(problem: _Problem) -> Diagnostic | None:
    if not problem.is_character:
        return None
    found = problem.text[problem.place.start : problem.place.start + 1]
    hint = _habit(problem) or _ordinary_form(found)
    shown = f"'{found}'" if found.isprintable() else f"U+{ord(found):04X}"
    return Diagnostic(Code.BAD_CHARACTER, f"the character {shown} has no place here", problem.place, hint)


def _known_phrase(problem: _Problem) -> Diagnostic | None:
    at = problem.place.start - problem.piece.start
    for pattern, hint in _PHRASES:
        for match in pattern.finditer(problem.plain):
            if match.start() <= at <= match.end():
                return problem.not_expected(hint, problem.match_span(match, "at"))
    return None


def _no_statement(problem: _Problem) -> Diagnostic | None:
    first = _WORD.match(problem.plain)
    if not first or first[0].upper() in (*STATEMENT_WORDS, "DESC"):
        return None
    if problem.place.start > problem.piece.start + first.end() + 1:
        return None
    hint = _HABITS.get(first[0].upper())
    guess = () if hint else _nearest_word(first[0], STATEMENT_WORDS)
    if not hint and not guess and _nearest_word(problem.found, _keywords(problem)):
        return None
    message = f"a statement cannot start with '{first[0]}'"
    return problem.syntax(message, problem.match_span(first), None if guess else hint or _STATEMENTS, guess)


def _second_statement(problem: _Problem) -> Diagnostic | None:
    """The semicolon before a statement is missing; its first word may have been taken for a name."""
    last, before = problem.last, problem.before()
    if problem.found.upper() in STATEMENT_WORDS and "$END" in problem.expected:
        same_line = before and "\n" not in problem.text[before.end : problem.place.start]
        if same_line and _misspelt_word(problem, before):
            return None
        word = problem.place
    elif before and last is not None and last.type == "NAME" and last.upper() in STATEMENT_WORDS:
        word = before
    else:
        return None
    message = f"'{problem.text[word.start : word.end]}' begins another statement here"
    return problem.syntax(message, word, "end the statement before it with ;")


def _nothing_selected(problem: _Problem) -> Diagnostic | None:
    match = _NOTHING_SELECTED.search(problem.plain)
    if not match:
        return None
    hint = "name columns, or write SELECT * FROM .."
    return problem.syntax("nothing is selected before FROM", problem.match_span(match, "from"), hint)


def _comma_too_many(problem: _Problem) -> Diagnostic | None:
    end = problem.place.end - problem.piece.start
    for match in _COMMA_TOO_MANY.finditer(problem.plain, 0, end):
        # A clause's word after a comma was taken for a name, and trouble came later; a mark is the trouble.
        if match["next"][0].isalpha() or match.end() == end:
            start = problem.piece.start + match.start()
            before = match["next"].upper() if match["next"][0].isalpha() else f"'{match['next']}'"
            return problem.syntax(f"there is a comma too many before {before}", Span(start, start + 1))
    if not problem.found and problem.plain.rstrip().endswith(","):
        start = problem.piece.start + problem.plain.rindex(",")
        return problem.syntax("the statement ends with a comma", Span(start, start + 1))
    return None


def _chained_comparison(problem: _Problem) -> Diagnostic | None:
    at = problem.place.start - problem.piece.start
    if not re.match(r"[<>=]|!=", problem.plain[at:]) or problem.expected & {"COMPARISON", "EQUAL"}:
        return None
    # In `==` and the like the second character is a habit, not a second comparison.
    if _habit(problem) or re.search(r"[<>=!]\Z", problem.plain[:at]) or not problem.expected & {"AND", "SUM_OPERATOR"}:
        return None
    return problem.not_expected("comparisons do not chain: write a < b AND b < c")


def _misspelt(problem: _Problem) -> Diagnostic | None:
    """A keyword at the place is misspelt, or the one before it, which was taken for a name."""
    return _misspelt_word(problem, problem.place) or _misspelt_word(problem, problem.before())


def _misspelt_word(problem: _Problem, word: Span | None) -> Diagnostic | None:
    spelt = problem.text[word.start : word.end] if word else ""
    if spelt.upper() in problem.terminals.values():
        return None
    guess = _nearest_word(spelt, _keywords(problem))
    return problem.not_expected(None, word, guess) if guess else None


def _clause_out_of_order(problem: _Problem) -> Diagnostic | None:
    if problem.found.upper() in _CLAUSES and problem.expected & {"$END", "RPAR"}:
        return problem.not_expected(_CLAUSE_ORDER)
    return None


def _no_from(problem: _Problem) -> Diagnostic | None:
    if problem.found or "FROM" not in problem.expected or re.search(r"\bFROM\b", problem.plain, re.IGNORECASE):
        return None
    return problem.syntax(
        "this SELECT has no FROM", problem.place, "a query reads from streams or relations: FROM name"
    )


def _no_on(problem: _Problem) -> Diagnostic | None:
    if "ON" in problem.expected and problem.found.upper() in ("", *_CLAUSES):
        return problem.not_expected("a join needs its condition: JOIN .. ON a.x = b.x")
    return None


def _no_unit(problem: _Problem) -> Diagnostic | None:
    if "UNIT" not in problem.expected or not _WORD.fullmatch(problem.found):
        return None
    units = [f"{unit.name.lower()}s" for unit in Unit]
    return problem.not_expected(f"units of time are {', '.join(units[:-1])} and {units[-1]}")


def _what_could_stand_there(problem: _Problem) -> Diagnostic:
    wanted = _in_words(problem.expected, problem.terminals)
    return problem.not_expected(_habit(problem) or (f"expected {wanted}" if wanted else None))


_EXPLANATIONS: tuple[Callable[[_Problem], Diagnostic | None], ...] = (
    # Characters and phrases leave no doubt; the statement as a whole comes before its parts; the rest goes
    # from the most to the least certain.
    _strange_character,
    _known_phrase,
    _no_statement,
    _second_statement,
    _nothing_selected,
    _comma_too_many,
    _chained_comparison,
    _misspelt,
    _no_on,
    _clause_out_of_order,
    _no_from,
    _no_unit,
)


# --------------------------------------------------------------------------------- reading the parser's error


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


def _state_before(error: UnexpectedInput, text: str, before: Span) -> tuple[frozenset[str], Token | None]:
    """Return what could stand after the text before the place, and the last token of that text.

    The parser is run again up to the place: by the time that an LALR parser finds a token wrong it has
    already taken it for the end of what came before, and knows no longer what else could have followed.
    """
    failed = error.interactive_parser
    lexer = LexerThread.from_text(failed.lexer_thread.lexer, TextSlice(text, *before))
    again = failed.parser.parse(lexer, failed.parser_state.parse_conf.start, start_interactive=True)
    try:
        tokens = again.exhaust_lexer()
    except UnexpectedInput:
        return frozenset(failed.accepts()), None
    return frozenset(again.accepts()), tokens[-1] if tokens else None


def _blanked(hiding: re.Match[str]) -> str:
    length = hiding.end() - hiding.start()
    return " " * length if hiding["comment"] else hiding[0][0] + " " * (length - 2) + hiding[0][-1]


# ------------------------------------------------------------------------------------------------------ words


def _habit(problem: _Problem) -> str | None:
    """Return advice for what people bring along from other languages."""
    text, at = problem.text, problem.place.start
    word = _WORD.match(text, at)
    if word:
        return _HABITS.get(word[0].upper())
    marks = (text[at : at + 2], text[max(0, at - 1) : at + 1], text[at : at + 1])
    return next((_HABITS[mark] for mark in marks if mark in _HABITS), None)


def _ordinary_form(character: str) -> str | None:
    """Return advice for a character that only looks like one of CQL's."""
    if character in "‘’‚“”„«»":
        return "quotes are straight: 'text' for a string, \"name\" for a name"
    if character in "−–—":
        return "write -"
    plain = unicodedata.normalize("NFKC", character)
    return f"write {plain}" if plain != character and plain.isascii() else None


def _keywords(problem: _Problem) -> list[str]:
    """Return the keywords that could stand at the place, units of time included."""
    words = [problem.terminals[name] for name in problem.expected if name in problem.terminals]
    if "UNIT" in problem.expected:
        words += [f"{unit.name}{ending}" for unit in Unit for ending in ("", "S")]
    return sorted(word for word in words if len(word) > 2)


def _nearest_word(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word that looks almost like a word, if one does."""
    return [near for near in get_close_matches(word.upper(), known, 1, 0.75) if near != word.upper()]


def _shown(found: str) -> str:
    """Return a token for a message: in quotes, on one line and not too long."""
    short = found if len(found) <= 40 and "\n" not in found else found.split("\n")[0][:30] + ".."
    return short if short[0] in "'\"`" else f"'{short}'"


def _in_words(expected: Iterable[str], terminals: Mapping[str, str]) -> str:
    """Return the expected terminals for people: groups by their name, keywords in capitals."""
    left = set(expected)
    words: list[str] = []
    for word, needed, others in _TOGETHER:
        if left >= needed:
            words.append(word)
            left -= needed | others
    # A dot could follow most names, and would be the first thing to say about none.
    left -= {"DOT"} if len(left) > 1 or words else set()
    single = [_IN_WORDS.get(name) or terminals.get(name) or "" for name in sorted(left - {"$END"})]
    shown = [word if word[0].isalpha() else f"'{word}'" for word in single if word]
    end = [_IN_WORDS["$END"]] if "$END" in left else []
    words = [*shown, *words, *end] if words[:1] != ["an expression"] else [*words, *shown, *end]
    return one_of(list(dict.fromkeys(words))) if words else ""
