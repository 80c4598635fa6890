"""Errors as data, and the one place that turns them into text.

A `Diagnostic` says what is wrong (code, message), where (span), and what to do (hint, candidates).
A `CqlError` carries one or more of them with the source they point into. Nothing else that a user
types may surface: parser, binder, planner and runtime all raise `CqlError`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from cql.secrets import MASK, secret_places, without_secrets
from cql.source import NO_SPAN, SourceText, Span
from cql.visible import visible


class Code(Enum):
    """Every error code with its one-line meaning; `docs/errors.md` shows an example of each."""

    # Text
    SYNTAX = ("E101", "the text does not follow the grammar")
    UNCLOSED = ("E102", "a parenthesis, bracket or comment is opened and not closed, or closed and not opened")
    BAD_CHARACTER = ("E103", "a character that has no place in CQL")
    UNTERMINATED = ("E104", "a quoted string or name does not end")
    BAD_LITERAL = ("E105", "a number, interval or timestamp literal that cannot be read")
    TOO_DEEP = ("E106", "nesting beyond what the compiler follows")
    STREAM_SCRIPT = ("E107", "a STREAM script line that does not fit its place")
    ENCODING = ("E108", "a file that is not UTF-8 text")
    # Names
    UNKNOWN_TABLE = ("E201", "no stream, relation or view of that name")
    UNKNOWN_COLUMN = ("E202", "no column of that name in reach")
    AMBIGUOUS_COLUMN = ("E203", "a column name that several inputs have")
    UNKNOWN_FUNCTION = ("E204", "no function of that name")
    UNKNOWN_TYPE = ("E205", "no type of that name")
    DUPLICATE_NAME = ("E206", "a name that is already taken")
    UNKNOWN_OPTION = ("E207", "no option or setting of that name")
    UNKNOWN_QUERY = ("E208", "no registered query of that name")
    IN_USE = ("E209", "an object that others depend on cannot be dropped")
    # Types and values
    TYPE_MISMATCH = ("E301", "operands whose types do not go together")
    BAD_ARGUMENTS = ("E302", "a function called with the wrong number or types of arguments")
    BAD_OPTION_VALUE = ("E303", "an option or setting with a value it does not take")
    COLUMN_COUNT = ("E304", "lists of columns of different lengths")
    # Meaning
    WINDOW_ON_RELATION = ("E401", "a window over something that is not a stream")
    BAD_WINDOW = ("E402", "a window that makes no sense: empty, finer than the clock, Slide beyond Range")
    MIXED_TIME = ("E403", "inputs of one query on different clocks")
    AGGREGATE_NOT_ALLOWED = ("E404", "an aggregate where rows have not been grouped yet")
    NOT_GROUPED = ("E405", "a column that is neither grouped nor aggregated")
    BAD_ORDER = ("E407", "ORDER BY or LIMIT in a place or form that has no meaning")
    BAD_TIMESTAMP = ("E408", "a timestamp or sign column that cannot serve as one")
    BAD_SUBQUERY = ("E409", "a subquery of the wrong shape for its place")
    BAD_ROW_NUMBER = ("E410", "ROW_NUMBER outside the one place where it has a meaning")
    BAD_DEFINITION = ("E411", "a definition that contradicts itself")
    NOT_TRUSTED = ("E412", "a catalog that names code, from somebody of whom nobody said that they are trusted")
    # Planning
    CANNOT_DECORRELATE = (
        "E601",
        "a subquery that refers to the query around it in a way that cannot be turned into a join",
    )
    CANNOT_PLAN = ("E602", "a query that has no plan")
    UNBOUNDED_STATE = ("E603", "a query whose state grows with a stream, where that is refused")
    CANNOT_SHED = ("E604", "a query that cannot lose windows or rows in the way that was asked for")
    # Outside
    NO_FILE = ("E501", "a file that cannot be read")
    CANNOT_INFER = ("E502", "a schema that cannot be inferred")
    BAD_DATA = ("E503", "a row of a source that does not fit the table's columns")
    BAD_FILE = ("E504", "a file that is damaged, or not what its format and table say")
    CANNOT_WRITE = ("E505", "a result that cannot be written")
    FUNCTION_FAILED = ("E506", "a function of the user that failed while a query ran")
    OTHER_CHECKPOINT = ("E507", "a checkpoint that belongs to other queries, another version or a running network")
    FORGOTTEN = ("E508", "changes that are not kept any more")
    CHANGED_SOURCE = ("E509", "a file of a source that is gone or was changed before its rows were delivered, or after")
    OTHER_OWNER = ("E511", "a place of results that belongs to another run, or that somebody has removed")
    CANNOT_READ = ("E512", "a source that Spark cannot read as it is defined")
    TOO_MUCH_MEMORY = ("E514", "a query that has to keep more than the memory that it may use")
    # What the program runs on
    MISSING = ("E701", "something that is needed to run is not there")
    VERSIONS = ("E702", "versions of Java, Python or Spark that do not go together")
    NOT_STARTED = ("E703", "Spark did not start")
    TOO_SLOW = ("E704", "a Python process of Spark that did not start in time")
    PROCESS_ENDED = ("E705", "a Python process of Spark that ended while it worked")
    NOT_AVAILABLE = ("E901", "a part of the system that this version does not have yet")

    @property
    def text(self) -> str:
        return str(self.value[0])

    @property
    def meaning(self) -> str:
        return str(self.value[1])


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong, where, and what to do about it."""

    code: Code
    message: str
    span: Span = NO_SPAN
    hint: str | None = None
    candidates: tuple[str, ...] = ()

    def advice(self) -> str | None:
        """Return the hint, with the candidates where there are any."""
        if not self.candidates:
            return self.hint
        guess = "did you mean " + one_of(self.candidates) + "?"
        return f"{guess} {self.hint}" if self.hint else guess


class CqlError(Exception):
    """What is raised for anything wrong in a user's text, data or configuration."""

    def __init__(self, diagnostics: Sequence[Diagnostic], source: SourceText | None = None) -> None:
        self.diagnostics = tuple(diagnostics)
        self.source = source
        super().__init__(self.render() if source else "; ".join(said(d.message) for d in self.diagnostics))

    def render(self) -> str:
        """Return the text for people: place, code, message, the line, a caret and a hint."""
        source = self.source or SourceText("<text>", "")
        return "\n".join(render(diagnostic, source) for diagnostic in self.diagnostics)

    @property
    def is_of_machine(self) -> bool:
        """Whether what the program runs on is to blame, and not the user's text or data."""
        return any(each.code.text.startswith("E7") for each in self.diagnostics)

    def within(self, source: SourceText) -> CqlError:
        """Return the same error, knowing the source that its spans point into."""
        return self if self.source else CqlError(self.diagnostics, source)


def fail(
    code: Code, message: str, span: Span = NO_SPAN, hint: str | None = None, candidates: Iterable[str] = ()
) -> CqlError:
    """Return an error with a single diagnostic, ready to be raised."""
    return CqlError([Diagnostic(code, message, span, hint, tuple(candidates))])


def nearest(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the known names that look most like `name`, nearest first.

    >>> nearest("prise", ["price", "auction", "PRIZE"])
    ('PRIZE', 'price')
    """
    spelled: dict[str, str] = {}
    for candidate in known:
        spelled.setdefault(candidate.casefold(), candidate)
    found = get_close_matches(name.casefold(), spelled, n=most, cutoff=0.6)
    return tuple(spelled[match] for match in found)


def one_of(names: Sequence[str]) -> str:
    """Return names as a choice in words.

    >>> one_of(["a", "b", "c"])
    'a, b or c'
    """
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def said(text: str) -> str:
    """Return a text of an error as it is shown: in one line, without secrets and without what terminals obey."""
    return visible(without_secrets(text))


def render(diagnostic: Diagnostic, source: SourceText) -> str:
    """Return `NAME:LINE:COL: CODE: message`, the source line, a caret line and the advice."""
    line, column = source.position(diagnostic.span.start)
    cells = _shown_line(source, line)
    lines = [f"{visible(source.name)}:{line}:{column}: {diagnostic.code.text}: {said(diagnostic.message)}"]
    if "".join(cells).strip():
        before = "".join("\t" if cell == "\t" else " " * _width(cell) for cell in cells[: column - 1])
        length = max(1, min(diagnostic.span.end - diagnostic.span.start, len(cells) - column + 1))
        under = sum(_width(cell) for cell in cells[column - 1 : column - 1 + length]) or 1
        lines += ["  " + "".join(cells), "  " + before + "^" * under]
    advice = diagnostic.advice()
    if advice:
        lines.append("  hint: " + said(advice))
    return "\n".join(lines)


def _shown_line(source: SourceText, number: int) -> list[str]:
    """Return what stands for each character of a line: itself, its spelling, or the mask of a secret and nothing."""
    start, text = source.start_of(number), source.line(number)
    cells = [character if character == "\t" else visible(character) for character in text]
    for first, end in secret_places(source.text):
        within = range(max(first - start, 0), min(end - start, len(text)))
        for at in within:
            cells[at] = MASK if at == within[0] else ""
    return cells


def _width(text: str) -> int:
    """Return how many terminal cells a text takes."""
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    """Return how many terminal cells a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
