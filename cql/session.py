"""Runs statements against a catalog: what they define, show and set.

Each statement takes effect wholly or not at all. Running a whole script goes on after a mistake, so
that all of them are reported; names that a failed statement should have defined are remembered, and
complaints about those names are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cql import ast, html
from cql.binder import bind_query, bind_statement
from cql.binder.statements import Defining, result_kind
from cql.bound import Rel, Schema
from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef, Table, ViewDef
from cql.errors import Code, CqlError, Diagnostic, fail, nearest, one_of
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE
from cql.intervals import duration_text
from cql.options import option_text
from cql.parsing import parse_script
from cql.paths import beside_script, script_folder
from cql.settings import Settings
from cql.source import SourceText

# How the text of a definition begins, with one of its two words perhaps misspelt.
_DEFINING = re.compile(
    r"""\b(?:(?:CREATE|REGISTER)\s+\w+|(?!DROP|EXPLAIN)\w+\s+(?:STREAM|RELATION|VIEW|QUERY))
        \s+("[^"]+"|`[^`]+`|\w+)""",
    re.IGNORECASE | re.VERBOSE,
)

SHOWABLE = ("STREAMS", "RELATIONS", "VIEWS", "QUERIES", "FUNCTIONS", "STATS", "SHEDDING", "DECISIONS", "SETTINGS")


@dataclass(frozen=True, slots=True)
class Listing:
    """A table to show: SHOW and DESCRIBE give these."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _repr_html_(self) -> str:
        return html.table(self.columns, self.rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did: a definition it made, a listing, or a request that the caller carries out.

    EXPLAIN asks for plans, START to run a catalog as it is at that place in the script, TRY to run one in which there
    is no other query. SHOW STATS, SHOW SHEDDING, SHOW DECISIONS and STOP concern what runs, of which a session knows
    nothing.
    """

    statement: ast.Statement
    definition: Table | QueryDef | None = None
    listing: Listing | None = None
    request: Rel | QueryDef | tuple[QueryDef, ...] | Catalog | None = None


@dataclass(slots=True)
class Session:
    """A catalog and the state of running statements on it."""

    catalog: Catalog = field(default_factory=Catalog)
    _missing: set[str] = field(default_factory=set)
    _unnamed: int = 0

    def run(self, text: str, name: str = "<text>") -> list[Outcome]:
        """Run the statements of a text on the catalog; if any is wrong, raise and change nothing."""
        source = SourceText(name, text)
        trial = Session(self.catalog.copy_for_trial(), set(self._missing), self._unnamed)
        outcomes, problems = trial.run_script(source)
        if problems:
            raise CqlError(problems, source)
        for home in ("streams", "relations", "views", "queries", "settings"):
            setattr(self.catalog, home, getattr(trial.catalog, home))
        self._unnamed = trial._unnamed
        return outcomes

    def run_script(self, source: SourceText) -> tuple[list[Outcome], list[Diagnostic]]:
        """Run the statements of a script one by one; return what they did and all that is wrong."""
        parsed = parse_script(source)
        outcomes: list[Outcome] = []
        problems = list(parsed.diagnostics)
        if parsed.diagnostics:
            read = {name for statement in parsed.statements for name in _names_defined(statement)}
            self._missing |= {_key(match[1]) for match in _DEFINING.finditer(source.text)} - read
        for at, statement in enumerate(parsed.statements):
            try:
                outcomes.append(self.run_statement(statement, source))
            except CqlError as error:
                if isinstance(statement, ast.QueryStatement):
                    self._unnamed = self._next_number()
                    self._missing.add(f"q{self._unnamed}")
                unexplained = [d for d in error.diagnostics if not self._follows_from_earlier(d, source)]
                problems.extend(_defined_later(d, source, parsed.statements[at + 1 :]) for d in unexplained)
                self._missing |= _names_defined(statement)
        return outcomes, sorted(problems, key=lambda diagnostic: diagnostic.span)

    def run_statement(self, statement: ast.Statement, source: SourceText | None = None) -> Outcome:
        """Run one statement, of a script if it has a source; raises without having changed anything."""
        statement = self._placed(statement, source)
        match statement:
            case (
                ast.CreateStream() | ast.CreateRelation() | ast.RegisterTable() | ast.CreateView() | ast.RegisterQuery()
            ):
                return self._define(statement, statement)
            case ast.QueryStatement():
                number = self._next_number()
                name, query = ast.Name(f"q{number}", span=statement.span), statement.query
                outcome = self._define(ast.RegisterQuery(name, query, span=statement.span), statement)
                self._unnamed = number
                return outcome
            case ast.Drop():
                self.catalog.drop(statement.kind.value, statement.name.text, statement.name.span)
            case ast.SetSetting():
                self._set(statement)
            case ast.Show(what="STATS" | "SHEDDING" | "DECISIONS"):
                return Outcome(statement)
            case ast.Show():
                return Outcome(statement, listing=self._show(statement))
            case ast.Describe():
                return Outcome(statement, listing=self._describe(statement.name))
            case ast.Try():
                return Outcome(statement, request=self._tried(statement))
            case ast.Explain():
                return Outcome(statement, request=self._explained(statement))
            case ast.Start():
                return Outcome(statement, request=self.catalog.copy_for_trial())
        return Outcome(statement)

    # Defining

    def _placed(self, statement: ast.Statement, source: SourceText | None) -> ast.Statement:
        """Return a statement of a script with its relative paths where the setting `paths_from` wants them."""
        folder = script_folder(source) if source and self.catalog.settings.paths_from == "script" else None
        return statement if folder is None else beside_script(statement, folder)

    def _define(self, defining: Defining, statement: ast.Statement) -> Outcome:
        definition = bind_statement(defining, self.catalog)
        self.catalog.define(definition)
        return Outcome(statement, definition)

    def _next_number(self) -> int:
        """Return the number of the next query that has no name of its own: q1, q2, .."""
        number = self._unnamed + 1
        while f"q{number}" in self.catalog.queries:
            number += 1
        return number

    def _set(self, statement: ast.SetSetting) -> None:
        text = option_text(statement.value)
        if text is None:
            raise fail(Code.BAD_OPTION_VALUE, f"'{statement.key.text}' takes a plain value", statement.value.span)
        self.catalog.set(statement.key.text, text, statement.key.span, statement.value.span)

    def _follows_from_earlier(self, diagnostic: Diagnostic, source: SourceText) -> bool:
        unknown = diagnostic.code in (Code.UNKNOWN_TABLE, Code.UNKNOWN_QUERY)
        return unknown and _named(diagnostic, source) in self._missing

    # Asking

    def _tried(self, statement: ast.Try) -> Catalog:
        catalog = self.catalog.copy_for_trial()
        catalog.queries = {}
        catalog.define(
            bind_statement(ast.RegisterQuery(ast.Name("try"), statement.query, span=statement.span), catalog)
        )
        return catalog

    def _explained(self, statement: ast.Explain) -> Rel | QueryDef | tuple[QueryDef, ...]:
        match statement.target:
            case ast.Name() as name:
                return self.catalog.query(name.text, name.span)
            case ast.Query() as query:
                return bind_query(query, self.catalog).tree
        return tuple(self.catalog.queries.values())

    def _show(self, statement: ast.Show) -> Listing:
        match statement.what:
            case "STREAMS":
                return _streams(self.catalog)
            case "RELATIONS":
                return _relations(self.catalog)
            case "VIEWS":
                return _views(self.catalog)
            case "QUERIES":
                return _queries(self.catalog)
            case "FUNCTIONS":
                return _functions(self.catalog)
            case "SETTINGS":
                return _settings(self.catalog)
        raise fail(
            Code.UNKNOWN_OPTION,
            f"there is nothing called {statement.what} to show",
            statement.span,
            hint=f"SHOW takes {one_of(SHOWABLE)}",
            candidates=nearest(statement.what, SHOWABLE, most=1),
        )

    def _describe(self, name: ast.Name) -> Listing:
        query = self.catalog.queries.get(name.key)
        found = self.catalog.find(name.text) or query
        match found:
            case StreamDef():
                notes = {found.timestamp: "timestamp"}
                schema = found.scan().schema
            case RelationDef():
                notes, schema = {}, found.scan().schema
            case ViewDef() | QueryDef():
                notes, schema = {}, found.tree.schema
            case _:
                self.catalog.table(name.text, name.span, also=[q.name for q in self.catalog.queries.values()])
                raise AssertionError("table() raises for unknown names")
        return _listing(
            ("column", "type", "null", "note"),
            ((f.name, str(f.type), "yes" if f.nullable else "no", notes.get(f.name, "")) for f in schema),
        )


def _names_defined(statement: ast.Statement) -> set[str]:
    return {statement.name.key} if isinstance(statement, Defining) else set()


def _key(name: str) -> str:
    return name.strip('"`').casefold()


def _named(diagnostic: Diagnostic, source: SourceText) -> str:
    return _key(source.text[diagnostic.span.start : diagnostic.span.end])


def _defined_later(diagnostic: Diagnostic, source: SourceText, rest: Sequence[ast.Statement]) -> Diagnostic:
    """Return a complaint about an unknown name with better advice if a later statement defines it."""
    if diagnostic.code is not Code.UNKNOWN_TABLE:
        return diagnostic
    tables = (statement for statement in rest if not isinstance(statement, ast.RegisterQuery))
    later = next((table for table in tables if _named(diagnostic, source) in _names_defined(table)), None)
    if later is None:
        return diagnostic
    line, _ = source.position(later.span.start)
    return replace(diagnostic, hint=f"line {line} defines it; statements run in order", candidates=())


def _streams(catalog: Catalog) -> Listing:
    rows = (
        (
            stream.name,
            _columns(stream.scan().schema),
            stream.timestamp or "(first column)",
            duration_text(stream.delay, stream.time),
            stream.source.format if stream.source else "",
        )
        for stream in catalog.streams.values()
    )
    return _listing(("stream", "columns", "timestamp", "delay", "source"), rows)


def _relations(catalog: Catalog) -> Listing:
    rows = (
        (
            relation.name,
            _columns(relation.scan().schema),
            "signed log" if relation.time else "static",
            relation.source.format if relation.source else "",
        )
        for relation in catalog.relations.values()
    )
    return _listing(("relation", "columns", "changes", "source"), rows)


def _views(catalog: Catalog) -> Listing:
    rows = (
        (view.name, result_kind(view.tree), _columns(view.tree.schema), view.text) for view in catalog.views.values()
    )
    return _listing(("view", "kind", "columns", "query"), rows)


def _queries(catalog: Catalog) -> Listing:
    rows = (
        (
            query.name,
            result_kind(query.tree),
            _columns(query.tree.schema),
            query.sink.format if query.sink else "",
            query.text,
        )
        for query in catalog.queries.values()
    )
    return _listing(("query", "kind", "columns", "into", "text"), rows)


def _functions(catalog: Catalog) -> Listing:
    rows = [(name, "scalar", f.usage, f.description) for name, f in CALLABLE.items()]
    rows += [(name, "aggregate", f.usage, f.description) for name, f in AGGREGATES.items()]
    for kind, home in (("your scalar", catalog.functions), ("your aggregate", catalog.aggregates)):
        rows += [
            (u.name, kind, f"{u.name}({', '.join(u.arguments)}) -> {u.returns}", u.location) for u in home.values()
        ]
    return _listing(("function", "kind", "usage", "meaning"), rows)


def _settings(catalog: Catalog) -> Listing:
    rows = (
        (name, str(getattr(catalog.settings, name)), Settings.values_of(name), info.description or "")
        for name, info in Settings.model_fields.items()
    )
    return _listing(("setting", "value", "values", "meaning"), rows)


def _listing(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Listing:
    return Listing(columns, tuple(rows))


def _columns(schema: Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
