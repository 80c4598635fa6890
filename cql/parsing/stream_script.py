"""STREAM's own script format, read into the same statements as CQL.

A script of Stanford's STREAM is a list of directives, each a word, a colon and a text. They come in pairs:

    table  : register stream S (A integer);           a stream or relation,
    source : S.dat                                    and the file with its rows

    vquery : select A from S [Rows 2];                a view,
    vtable : register relation V (A integer);         and its name and columns

    query  : select * from V;                         a query,
    dest   : V.out                                    and, if it has one, the file for its result

A text goes on until the next directive; lines that start with `#` (or `--`) are comments. Two things mean
something else than in CQL: UNION and EXCEPT are bag operations, and an ungrouped aggregate over nothing
gives no row. Both are settled here, so that no later phase has to know where a statement came from.
Spans point into the script.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from cql import ast
from cql.ast.rewrite import rewrite
from cql.errors import Code, CqlError, Diagnostic, fail, nearest
from cql.parsing.parser import Dialect, ParsedScript, parse_piece
from cql.parsing.splitting import split_statements
from cql.source import SourceText, Span

N = TypeVar("N", bound=ast.Node)

PARTNERS = {"table": "source", "query": "dest", "vquery": "vtable"}
"""Each directive that opens a pair, and the one that completes it."""

OPENERS = {second: first for first, second in PARTNERS.items()}
DIRECTIVES = tuple(word for pair in PARTNERS.items() for word in pair)

_LINE = re.compile(r"[^\n]*\n?")
_DIRECTIVE = re.compile(r"[\s\ufeff]*([^\W\d]\w*)[^\S\n]*:(?!:)")
_COMMENT = re.compile(r"[\s\ufeff]*(?:\#|--|$)")
_TRAILING_COMMENT = re.compile(r"\s\#")

_CONTENTS = {
    "table": "REGISTER STREAM or REGISTER RELATION",
    "source": "the path of a file",
    "query": "a query",
    "dest": "the path of a file",
    "vquery": "a query",
    "vtable": "REGISTER STREAM or REGISTER RELATION",
}

_ALONE_HINTS = {
    "table": "say where its rows are on the next line: source : path",
    "source": "it follows its table: table : register stream S (A integer);",
    "dest": "it follows its query: query : select * from S;",
    "vquery": "name it on the next line: vtable : register relation V (A integer);",
    "vtable": "it follows the query that it names: vquery : select * from S;",
}


@dataclass(frozen=True, slots=True)
class Directive:
    """One `word : text`: the word as written, its place, and the place of the text."""

    spelt: str
    place: Span
    text: Span

    @property
    def word(self) -> str:
        return self.spelt.lower()


def is_stream_script(text: str) -> bool:
    """Return whether a text is a STREAM script: whether it starts with a directive, well or badly spelt.

    >>> is_stream_script("# three links\\n table : register stream C (pid integer);")
    True
    >>> is_stream_script("REGISTER STREAM C (pid INTEGER);")
    False
    """
    for line in _lines(text):
        if not _COMMENT.match(text, *line):
            directive = _DIRECTIVE.match(text, *line)
            return directive is not None and bool(nearest(directive[1], DIRECTIVES))
    return False


def parse_stream_script(source: SourceText) -> ParsedScript:
    """Parse a text that `is_stream_script` as far as possible; errors are returned, not raised."""
    text = source.text
    directives = list(_directives(text))
    diagnostics = [problem for at in range(len(directives)) if (problem := _misplaced(directives, at))]
    statements: list[ast.Statement] = [_setting(directives[0])] if directives else []
    queries = 0

    def attempt(read: Callable[[str, Directive], N], directive: Directive | None) -> N | None:
        try:
            return read(text, directive) if directive else None
        except CqlError as error:
            diagnostics.extend(error.diagnostics)
            return None

    for first, second in _pairs(directives):
        if first.word == "table":
            table, path = attempt(_table, first), attempt(_path, second)
            if table and path:
                statements.append(_sourced(table, path, first))
        elif first.word == "vquery":
            query, named = attempt(_query, first), attempt(_table, second)
            if query and named:
                statements.append(_view(query, named, first))
        else:
            queries += 1
            query, path = attempt(_query, first), attempt(_path, second)
            if query and (path or not second):
                statements.append(_registered(f"q{queries}", query, path, first))

    return ParsedScript(source, tuple(statements), tuple(sorted(diagnostics, key=lambda d: d.span)))


# --------------------------------------------------------------------------------- directives and their pairs


def _lines(text: str, within: Span | None = None) -> Iterator[Span]:
    start, end = within or (0, len(text))
    return (Span(*line.span()) for line in _LINE.finditer(text, start, end) if line[0])


def _directives(text: str) -> Iterator[Directive]:
    """Yield the directives of a script; before the first one stand only comments."""
    lines = (line for line in _lines(text) if not _COMMENT.match(text, *line))
    heads = [head for line in lines if (head := _DIRECTIVE.match(text, *line))]
    ends = [*(head.start() for head in heads), len(text)][1:]
    for head, end in zip(heads, ends, strict=True):
        yield Directive(head[1], Span(*head.span(1)), Span(head.end(), end))


def _pairs(directives: list[Directive]) -> Iterator[tuple[Directive, Directive | None]]:
    """Yield every opening directive with the one that completes it, if that follows."""
    followers = [*directives, None][1:]
    for directive, follower in zip(directives, followers, strict=True):
        if partner := PARTNERS.get(directive.word):
            yield directive, follower if follower and follower.word == partner else None


def _misplaced(directives: list[Directive], at: int) -> Diagnostic | None:
    """Return what is wrong with a directive that is unknown or stands where its partner does not."""
    directive = directives[at]
    before = directives[at - 1].word if at > 0 else None
    after = directives[at + 1].word if at + 1 < len(directives) else None
    if directive.word not in DIRECTIVES:
        guess = nearest(directive.word, DIRECTIVES, most=1)
        message = f"a STREAM script has no directive '{directive.spelt}'"
        hint = None if guess else f"its directives are {', '.join(DIRECTIVES[:-1])} and {DIRECTIVES[-1]}"
        return Diagnostic(Code.STREAM_SCRIPT, message, directive.place, hint, guess)
    opener, partner = OPENERS.get(directive.word), PARTNERS.get(directive.word)
    if opener and before != opener:
        message = f"this {directive.word} belongs to no {opener}"
    elif partner and partner not in (after, "dest"):
        message = f"this {directive.word} has no {partner}"
    else:
        return None
    # An unknown directive next to it was probably meant as the missing one: one complaint is enough.
    neighbour = before if opener else after
    if neighbour and neighbour not in DIRECTIVES:
        return None
    return Diagnostic(Code.STREAM_SCRIPT, message, directive.place, _ALONE_HINTS[directive.word])


# ------------------------------------------------------------------------------------ what a directive holds


def _table(text: str, directive: Directive) -> ast.RegisterTable:
    statement = _only_statement(text, directive)
    if not isinstance(statement, ast.RegisterTable):
        raise fail(
            Code.STREAM_SCRIPT,
            f"the directive {directive.word} takes {_CONTENTS[directive.word]}",
            statement.span,
            "write register stream name (column type, ..)",
        )
    if statement.source:
        raise fail(
            Code.STREAM_SCRIPT,
            f"a {directive.word} does not say where its rows come from",
            statement.source.span,
            "leave this out; "
            + ("the path stands in a line source : path" if directive.word == "table" else "they are its vquery's"),
        )
    return statement


def _query(text: str, directive: Directive) -> ast.Query:
    statement = _only_statement(text, directive)
    if not isinstance(statement, ast.QueryStatement):
        raise fail(
            Code.STREAM_SCRIPT,
            f"the directive {directive.word} takes {_CONTENTS[directive.word]}",
            statement.span,
            "it starts with select, istream, dstream or rstream, or combines two names by union or except",
        )
    return statement.query


def _only_statement(text: str, directive: Directive) -> ast.Statement:
    """Return the one statement that a directive holds, its set operations read as STREAM means them."""
    pieces = list(split_statements(text, *directive.text))
    if not pieces:
        raise _empty(directive)
    if len(pieces) > 1:
        raise fail(
            Code.STREAM_SCRIPT,
            f"the directive {directive.word} takes one statement, and a second one begins",
            pieces[1].span,
            f"put it behind a directive of its own: {directive.word} : ..",
        )
    try:
        return rewrite(parse_piece(text, pieces[0], Dialect.STREAM), _as_bag_operation)
    except RecursionError:
        raise fail(
            Code.TOO_DEEP,
            "this statement nests too deeply",
            pieces[0].span,
            "move inner parts into views of their own: vquery and vtable",
        ) from None


def _as_bag_operation(node: ast.Node) -> ast.Node:
    return replace(node, all=True) if isinstance(node, ast.SetOperation) else node


def _path(text: str, directive: Directive) -> ast.String:
    """Return the path that a directive names: its one line without blanks, quotes and `;` around it."""
    lines = [line for line in _lines(text, directive.text) if not _COMMENT.match(text, *line)]
    if not lines:
        raise _empty(directive)
    path, *rest = (_trimmed(text, line) for line in lines)
    if rest:
        raise fail(
            Code.STREAM_SCRIPT,
            f"the directive {directive.word} takes {_CONTENTS[directive.word]}, on one line",
            rest[0],
            "a directive is a word and a colon; a comment starts with #",
        )
    written = text[path.start : path.end]
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        written = written[1:-1]
    if not written:
        raise _empty(directive)
    return ast.String(written, span=path)


def _trimmed(text: str, line: Span) -> Span:
    """Return the part of a line that is neither blank nor comment nor the semicolon at its end."""
    written = _TRAILING_COMMENT.split(text[line.start : line.end], maxsplit=1)[0]
    start = line.start + len(written) - len(written.lstrip())
    return Span(start, max(start, line.start + len(written.rstrip(string.whitespace + ";"))))


def _empty(directive: Directive) -> CqlError:
    return fail(
        Code.STREAM_SCRIPT,
        f"this {directive.word} is empty",
        directive.place,
        f"write {_CONTENTS[directive.word]} after the colon",
    )


# ----------------------------------------------------------------------------------------- what a pair means


def _setting(first: Directive) -> ast.SetSetting:
    key = ast.Name("empty_aggregate", span=first.place)
    return ast.SetSetting(key, ast.String("stream", span=first.place), span=first.place)


def _sourced(table: ast.RegisterTable, path: ast.String, first: Directive) -> ast.RegisterTable:
    source = ast.SourceSpec(_format(path), _options(path), span=path.span)
    return replace(table, source=source, span=first.place.cover(path.span))


def _view(query: ast.Query, named: ast.RegisterTable, first: Directive) -> ast.CreateView:
    return ast.CreateView(
        named.name,
        tuple(column.name for column in named.columns),
        query,
        named.kind,
        tuple(column.type for column in named.columns),
        span=first.place.cover(named.span),
    )


def _registered(name: str, query: ast.Query, path: ast.String | None, first: Directive) -> ast.RegisterQuery:
    sink = ast.SinkSpec(_format(path), _options(path), span=path.span) if path else None
    span = first.place.cover(path.span if path else query.span)
    return ast.RegisterQuery(ast.Name(name, span=first.place), query, (), sink, span=span)


def _format(path: ast.String) -> ast.Name:
    return ast.Name("stream", span=path.span)


def _options(path: ast.String) -> tuple[ast.Option, ...]:
    return (ast.Option(ast.Name("path", span=path.span), path, span=path.span),)
