"""What could stand next in a statement that is being typed: words, names, settings, paths.

It looks at the words before the cursor, not at the grammar: an unfinished statement has no tree, and a guess that is
sometimes too generous is more useful than none. It knows nothing of line editors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef, ViewDef
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.intervals import Unit
from cql.parsing.parser import keywords
from cql.parsing.splitting import split_statements
from cql.session import SHOWABLE
from cql.settings import Settings
from cql.types import TYPE_NAMES
from repl.commands import BY_NAME, COMMANDS
from repl.help import STATEMENTS
from repl.inputs import is_command
from runtime.connectors.registry import canonical, connector, sinks, sources
from runtime.connectors.spark import KNOWN

SINKS = tuple(each.name for each in sinks())
SOURCES = (*(each.name for each in sources()), *KNOWN)
WINDOWS = ("RANGE", "ROWS", "NOW", "PARTITION BY")

_TOKEN = re.compile(r"""'(?:[^']|'')*'|'[^']*$|"[^"]*"?|[^\W\d]\w*|\d+(?:\.\d+)?|[^\s\w]""")
_OPEN_STRING = re.compile(r"'([^']*)$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that could replace the last `length` characters before the cursor, and what it is."""

    text: str
    what: str
    length: int


def candidates(before: str, after: str, catalog: Catalog) -> list[Candidate]:
    """Return what could stand at the cursor, the likeliest first.

    >>> catalog = Catalog()
    >>> catalog.execute("CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at")
    >>> [each.text for each in candidates("SELECT pri", " FROM bid", catalog)]
    ['price']
    """
    line = before.rpartition("\n")[2]
    if is_command(line) and not _statement(before[: len(before) - len(line)]).strip():
        return list(_of_command(line.lstrip(), catalog))
    return list(_CursorContext(_statement(before), after.partition(";")[0], catalog).candidates())


def _statement(text: str) -> str:
    """Return the statement that the end of a text is part of, as far as it goes."""
    *_, last = [None, *split_statements(text)]
    return "" if last is None or last.terminated else text[last.span.start :]


def _of_command(line: str, catalog: Catalog) -> Iterator[Candidate]:
    word, blank, rest = line.partition(" ")
    if not blank:
        names = [name for command in COMMANDS for name in command.names]
        yield from _matching(word, names, "command")
        return
    command = BY_NAME.get(word.lower())
    match command.argument if command else "":
        case "statement":
            yield from _matching(rest, [each.name for each in STATEMENTS], "statement")
        case "name":
            yield from _matching(rest, _names(catalog, "table", "query"), "name")
        case "query":
            yield from _matching(rest, _names(catalog, "query"), "query")
        case "engine":
            yield from _matching(rest, ("spark", "local"), "engine")
        case "file":
            yield from _paths(rest)


def _matching(word: str, texts: Iterable[str], what: str) -> Iterator[Candidate]:
    """Yield the texts that begin with a word; words of the language follow the case in which they are typed."""
    for text in dict.fromkeys(texts):
        if text.casefold().startswith(word.casefold()):
            is_lower = what in ("keyword", "window", "unit", "type") and word and word == word.lower()
            yield Candidate(text.lower() if is_lower else text, what, len(word))


def _paths(beginning: str) -> Iterator[Candidate]:
    """Yield the files and folders whose paths begin with a text."""
    folder, _, name = beginning.rpartition("/")
    place = os.path.expanduser(folder + "/" if "/" in beginning else ".")
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
            is_folder = entry.is_dir()
            yield Candidate(entry.name + "/" * is_folder, "folder" if is_folder else "file", len(name))


def _names(catalog: Catalog, *kinds: str) -> list[str]:
    homes: dict[str, Sequence[object]] = {
        "stream": list(catalog.streams.values()),
        "relation": list(catalog.relations.values()),
        "view": list(catalog.views.values()),
        "table": list(catalog.tables()),
        "query": list(catalog.queries.values()),
    }
    return [getattr(each, "name") for kind in kinds for each in homes[kind]]  # noqa: B009


class _CursorContext:
    """A place in an unfinished statement: the word at the cursor, and the words before it in capitals."""

    def __init__(self, before: str, after: str, catalog: Catalog) -> None:
        self._catalog = catalog
        self._whole = f"{before} {after}"
        self._open_string = _OPEN_STRING.search(_without_strings(before))
        found = re.search(r"[^\W\d]\w*$", before)
        self._word = found[0] if found and not self._open_string else ""
        rest = before[: len(before) - len(self._word)]
        self._tokens = _TOKEN.findall(rest)
        self._words = [token.upper() for token in self._tokens]
        self._before = before

    def candidates(self) -> Iterator[Candidate]:
        """Yield what could stand here."""
        if self._open_string:
            if self._words[-2:-1] == ["PATH"] or self._words[-3:-1] == ["PATH", "="]:
                yield from _paths(self._open_string[1])
            return
        for matches in self._rules():
            found = list(matches)
            if found:
                yield from found
                return

    def _rules(self) -> Iterator[Iterable[Candidate]]:
        """Yield the answers of the rules that apply, the most special first; the first that has any counts."""
        words, catalog = self._words, self._catalog
        last, first = (words[-1] if words else ""), (words[0] if words else "")
        if not words:
            yield self._of([each.name for each in STATEMENTS] + ["ISTREAM", "DSTREAM", "RSTREAM", "WITH"], "keyword")
            return
        fixed: dict[tuple[str, ...], Callable[[], Iterable[Candidate]]] = {
            ("SHOW",): lambda: self._of(SHOWABLE, "keyword"),
            ("SET",): lambda: self._of(Settings.model_fields, "setting"),
            ("DESCRIBE",): lambda: self._of(_names(catalog, "table", "query"), "name"),
            ("DESC",): lambda: self._of(_names(catalog, "table", "query"), "name"),
            ("CREATE",): lambda: self._of(("STREAM", "RELATION", "VIEW"), "keyword"),
            ("REGISTER",): lambda: self._of(("QUERY", "STREAM", "RELATION"), "keyword"),
            ("DROP",): lambda: self._of(("QUERY", "VIEW", "STREAM", "RELATION"), "keyword"),
            ("EXPLAIN", "QUERY"): lambda: self._of(_names(catalog, "query"), "query"),
        }
        for kind in ("stream", "relation", "view", "query"):
            fixed["DROP", kind.upper()] = lambda kind=kind: self._of(_names(catalog, kind), kind)  # type: ignore[misc]
        if tuple(words) in fixed:
            yield fixed[tuple(words)]()
            return
        if first == "SET" and last == "=":
            yield self._of(_values(self._tokens[1]), "value")
            return
        if words[:2] in (["EXPLAIN", form] for form in ("JSON", "DOT", "MERMAID", "RULES")) and last == "QUERY":
            yield self._of(_names(catalog, "query"), "query")
            return
        yield from self._rules_of_clauses(first, last)

    def _rules_of_clauses(self, first: str, last: str) -> Iterator[Iterable[Candidate]]:
        is_table = first in ("CREATE", "REGISTER") and self._words[1:2] in (["STREAM"], ["RELATION"])
        if last == ".":
            yield self._of(self._columns_of(self._tokens[-2]), "column")
            return
        if self._open_bracket() == "[":
            yield from self._rules_of_windows(last)
            return
        if last == "FROM" and is_table:
            yield self._of(SOURCES, "format")
        elif last == "INTO":
            yield self._of(SINKS, "format")
        elif self._in_options() and last in ("(", ","):
            yield self._of(self._option_keys(), "option")
        elif is_table and self._open_bracket() == "(" and re.match(r"\w", last):
            yield self._of((*TYPE_NAMES, "DECIMAL"), "type")
        elif is_table and last == "BY":
            yield self._of(self._declared(), "column")
        elif self._wants_table(last):
            yield self._of(_names(self._catalog, "table"), "table")
        else:
            yield self._anything()

    def _rules_of_windows(self, last: str) -> Iterator[Iterable[Candidate]]:
        if last == "[":
            yield self._of(WINDOWS, "window")
        elif last.isdigit():
            yield self._of([f"{unit.name}S" for unit in Unit if unit.value >= 1000] + ["SLIDE"], "unit")
        elif last == "BY" or (last == "," and "PARTITION" in self._words):
            yield self._of(self._columns(), "column")
        else:
            yield self._of(("SLIDE", "ROWS", "RANGE", "UNBOUNDED"), "window")

    def _anything(self) -> Iterable[Candidate]:
        """Return columns in reach, functions and words of the language; nothing before the first letter but columns."""
        found = list(self._of(self._columns(), "column"))
        if self._word:
            found += self._of([f"{name}(" for name in (*AGGREGATES, *CALLABLE)], "function")
            users = (*self._catalog.functions.values(), *self._catalog.aggregates.values())
            found += self._of([f"{each.name}(" for each in users], "function")
            found += self._of(sorted(keywords()), "keyword")
            found += self._of(_names(self._catalog, "table"), "table")
        return found

    def _of(self, texts: Iterable[str], what: str) -> Iterator[Candidate]:
        return _matching(self._word, texts, what)

    def _open_bracket(self) -> str:
        """Return the bracket that is open here, if one is."""
        opened: list[str] = []
        for token in self._tokens:
            if token in "([":
                opened.append(token)
            elif token in ")]" and opened:
                opened.pop()
        return opened[-1] if opened else ""

    def _in_options(self) -> bool:
        at = len(self._words) - 1 - self._words[::-1].index("(") if "(" in self._words else 0
        return self._open_bracket() == "(" and self._words[at - 1] == "OPTIONS"

    def _option_keys(self) -> Iterable[str]:
        """Return the options of the format that is named, those first that are asked for most."""
        at = max((i for i, word in enumerate(self._words) if word in ("FROM", "INTO")), default=None)
        if at is None or at + 1 >= len(self._tokens):
            return ("path",)
        found = connector(canonical(self._tokens[at + 1]))
        return (
            ("path",)
            if found.takes_any_option
            else found.option_names("read" if self._words[at] == "FROM" else "write")
        )

    def _wants_table(self, last: str) -> bool:
        """Tell whether the name of a table is expected: after FROM and JOIN, and after commas behind FROM."""
        if last in ("FROM", "JOIN"):
            return True
        clauses = [word for word in self._words if word in ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER")]
        return last == "," and clauses[-1:] == ["FROM"]

    # Columns

    def _tables(self) -> dict[str, list[str]]:
        """Return the columns of the tables that the statement names, by their names and aliases."""
        tokens = _TOKEN.findall(self._whole)
        found: dict[str, list[str]] = {}
        for at, token in enumerate(tokens):
            if tokens[at - 1 : at] == ["."] or self._catalog.find(token.strip('"')) is None:
                continue
            columns = _columns(self._catalog, token.strip('"'))
            found[token.casefold()] = columns
            rest = _after_window(tokens[at + 1 :])
            rest = rest[1:] if rest[:1] and rest[0].upper() == "AS" else rest
            if rest[:1] and re.match(r"[^\W\d]", rest[0]) and rest[0].upper() not in keywords():
                found[rest[0].casefold()] = columns
        return found

    def _columns(self) -> list[str]:
        tables = self._tables()
        if not tables:
            tables = {each.name: _columns(self._catalog, each.name) for each in self._catalog.tables()}
        return [column for columns in tables.values() for column in columns]

    def _columns_of(self, name: str) -> list[str]:
        return self._tables().get(name.casefold(), [])

    def _declared(self) -> list[str]:
        """Return the columns that the statement itself declares."""
        inside = re.search(r"\((.*?)\)\s*(?:TIMESTAMP|SIGN)", self._before, re.IGNORECASE | re.DOTALL)
        return re.findall(r"(?:^|,)\s*(\w+)", inside[1]) if inside else []


def _without_strings(text: str) -> str:
    """Return a text without its complete strings, so that a quote that is left opens one."""
    return re.sub(r"'(?:[^']|'')*'", "", text)


def _after_window(tokens: Sequence[str]) -> Sequence[str]:
    if tokens[:1] != ["["] or "]" not in tokens:
        return tokens
    return tokens[tokens.index("]") + 1 :]


def _columns(catalog: Catalog, name: str) -> list[str]:
    match catalog.find(name):
        case StreamDef() | RelationDef() as table:
            return [field.name for field in table.scan().schema]
        case ViewDef() | QueryDef() as view:
            return [field.name for field in view.tree.schema]
    return []


def _values(setting: str) -> Sequence[str]:
    """Return the values that a setting takes, as far as they can be listed."""
    known = Settings.model_fields.get(setting.lower())
    if known is None:
        return ()
    return [str(value) for value in get_args(known.annotation)] or ["off", "'10 seconds'"]
