"""The shell: takes statements and commands one at a time, and survives all of them.

What is wrong is shown where it is, and the next statement is taken; what was defined before stays. On a terminal a
line editor reads them and queries run in the background; otherwise they come from standard input and are carried out
one after the other, as in a script.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from cql import ast
from cql.binder.statements import result_kind
from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef, Table, ViewDef
from cql.errors import Code, CqlError, fail
from cql.parsing import parse_script
from cql.parsing.stream_script import is_stream_script
from cql.session import Listing, Outcome, Session
from cql.settings import Settings
from cql.source import NO_SPAN, SourceText, Span
from repl.commands import BY_NAME, COMMANDS, nearest_commands
from repl.display import Display, complain, complain_of_bug
from repl.files import read_source
from repl.help import STATEMENTS, find_help
from repl.inputs import WORDS, ShellInput, inputs
from repl.script import RunOptions, Script

DONE, USER_ERROR, RUN_FAILED = 0, 1, 3
TYPED = "<input>"
"""The name of what is typed."""


class Leaving(Exception):
    """Ends the shell."""


class Shell:
    """A session, and what carries its statements out."""

    def __init__(
        self, session: Session, script: Script, display: Display, *, debug: bool = False, name: str = "<stdin>"
    ) -> None:
        self.session = session
        self.script = script
        self.display = display
        self.name = name
        """How errors call what is typed or piped."""
        self.worst = DONE
        self.is_timing = False
        self.last_statement = ""
        self._debug = debug

    @property
    def catalog(self) -> Catalog:
        """Everything that is defined."""
        return self.session.catalog

    # Taking inputs

    def run_file(self, name: str) -> None:
        """Carry out the statements of a file."""
        try:
            source = read_source(name)
        except CqlError as error:
            self._report(error)
            return
        self.run_text(source.text, source.name)

    def run_text(self, text: str, name: str) -> None:
        """Carry out the statements and commands of a text, all of which is there."""
        if is_stream_script(text):
            self._run_stream_script(SourceText(name, text))
        else:
            self.run_lines(text.splitlines(keepends=True), name)

    def run_lines(self, lines: Iterable[str], name: str) -> None:
        """Carry out the statements and commands of a text that comes line by line."""
        outer, self.script.places = self.script.places, {}
        try:
            for each in inputs(lines, name):
                self.take(each)
        finally:
            self.script.places = outer

    def _run_stream_script(self, source: SourceText) -> None:
        """Carry out a script of STREAM: its statements are not separated by semicolons."""
        parsed = parse_script(source)
        if parsed.diagnostics:
            self._report(CqlError(parsed.diagnostics, source))
        for statement in parsed.statements:
            self._guarded(partial(self._carry_out, statement, source), source)

    def take(self, given: ShellInput) -> None:
        """Carry out one statement or command; whatever goes wrong is told, and nothing is raised but `Leaving`."""
        started, is_timed = time.perf_counter(), self.is_timing
        if given.is_command:
            self._guarded(lambda: self._command(given), given.source)
        else:
            self.last_statement = given.text
            self._guarded(lambda: self._carry_out(given.parsed(), given.source), given.source)
        if is_timed:
            self.display.line(f"took {time.perf_counter() - started:.3f} s")
        sys.stdout.flush()

    def _guarded(self, work: Callable[[], None], source: SourceText) -> None:
        try:
            work()
        except CqlError as error:
            self._report(error.within(source))
        except KeyboardInterrupt:
            self.display.line("interrupted")
        except (Leaving, BrokenPipeError):
            raise
        except Exception as error:
            self.report_bug(error)

    def _report(self, error: CqlError) -> None:
        self.worst = max(self.worst, RUN_FAILED if error.is_of_machine else USER_ERROR)
        self.display.problem(error)

    def report_bug(self, error: BaseException) -> None:
        """Tell an error that is not the user's, and that it happened."""
        self.worst = RUN_FAILED
        complain_of_bug(error, debug=self._debug)

    # Statements

    def _carry_out(self, statement: ast.Statement, source: SourceText) -> None:
        before = dict(self.catalog.queries)
        outcome = self.session.run_statement(statement, source)
        self.script.note_place(outcome)
        if self.catalog.queries != before:
            self._tell_change(outcome, before)
        elif outcome.definition is not None:
            self.display.line(_defined_line(outcome.definition))
        elif isinstance(statement, ast.Drop):
            self.display.line(f"{statement.kind.value.lower()} {statement.name.text} dropped")
        elif isinstance(statement, ast.SetSetting):
            key = statement.key.text.lower()
            self.display.line(f"{key} = {getattr(self.catalog.settings, key)}")
        if isinstance(statement, ast.Start) and not self.catalog.queries:
            hint = "write REGISTER QUERY name AS query; TRY query runs one at once"
            raise fail(Code.BAD_DEFINITION, "no query is registered", statement.span, hint=hint)
        try:
            self.script.carry_out(outcome, self.catalog)
        except CqlError as error:
            raise _placed(error, statement.span) from error

    def _tell_change(self, outcome: Outcome, before: dict[str, QueryDef]) -> None:
        """Tell what a query that was registered or dropped means; what runs follows it, or else nothing changes."""
        from repl.plan_summary import UNBOUNDED, dropped_lines, registered_lines

        catalog_before = self.catalog.copy_for_trial()
        catalog_before.queries = before
        try:
            follow = self.script.follow(self.catalog, catalog_before)
            query = outcome.definition
            if isinstance(query, QueryDef):
                lines = registered_lines(follow.plan, query)
            else:
                (gone,) = before.keys() - self.catalog.queries.keys()
                query = before[gone]
                lines = dropped_lines(follow.plan_before, query.name)
        except BaseException:
            self.catalog.queries = before
            raise
        self.display.line(_defined_line(query) if query is outcome.definition else f"query {query.name} dropped")
        for line in (*lines, *follow.notes):
            self.display.detail(line, warns=UNBOUNDED in line)

    # Commands

    def _command(self, given: ShellInput) -> None:
        line = given.text.rstrip(";").strip()
        word, _, rest = WORDS.get(line.lower(), line).partition(" ")
        command = BY_NAME.get(word.lower())
        if command is None:
            known = nearest_commands(word)
            hint = None if known else "\\h lists the commands"
            span = Span(given.piece.span.start, given.piece.span.start + len(word))
            raise fail(Code.UNKNOWN_OPTION, f"there is no command {word}", span, hint, known)
        try:
            getattr(self, f"_{command.key[1:]}")(rest.strip())
        except CqlError as error:
            raise _placed(error, given.piece.span) from error

    def _help(self, words: str) -> None:
        if not words:
            self.display.listing(_help_listing())
            return
        found = find_help(words)
        if not found:
            names = ", ".join(each.name for each in STATEMENTS)
            raise fail(Code.UNKNOWN_OPTION, f"there is no help on '{words}'", hint=f"there is on {names}")
        for each in found:
            self.display.help(each)

    def _describe(self, name: str) -> None:
        if not name:
            self.display.listing(_all_defined(self.catalog))
            return
        outcome = self.session.run_statement(ast.Describe(ast.Name(name.strip('"'))))
        assert outcome.listing is not None
        self.display.listing(outcome.listing)

    def _edit(self, _: str) -> None:
        text = edited(f"{self.last_statement};\n" if self.last_statement else "")
        if text.strip() and text.strip().rstrip(";") != self.last_statement:
            self.display.line(text.rstrip())
            self.run_text(text, TYPED)

    def _include(self, name: str) -> None:
        if not name:
            raise fail(Code.NO_FILE, "\\i takes the name of a file", hint="write \\i FILE")
        self.run_file(name.strip("'\""))

    def _watch(self, name: str) -> None:
        query = self.catalog.query(name.strip('"')).name if name else None
        self.script.watch(query)

    def _timing(self, _: str) -> None:
        self.is_timing = not self.is_timing
        self.display.line(f"timing is {'on' if self.is_timing else 'off'}")

    def _engine(self, name: str) -> None:
        if name.lower() == "local" and self.script.options.checkpoint is not None:
            message = "the local engine does not keep checkpoints, and this shell was given one"
            raise fail(Code.NOT_AVAILABLE, message, hint="start the shell without --checkpoint")
        if name.lower() in ("spark", "local"):
            self.script.use_engine("local" if name.lower() == "local" else "spark")
        elif name:
            raise fail(Code.BAD_OPTION_VALUE, f"there is no engine '{name}'", hint="\\engine takes spark or local")
        where = "in this process" if self.script.options.engine == "local" else "on Spark"
        self.display.line(f"START runs queries {where}")

    def _quit(self, _: str) -> None:
        raise Leaving


def edited(text: str) -> str:
    """Return what becomes of a text in the user's editor."""
    if not sys.stdin.isatty():
        raise fail(Code.MISSING, "\\e needs a terminal")
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="cql-") as folder:
        path = Path(folder) / "statement.cql"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(command), str(path)], check=True)
            return path.read_text(encoding="utf-8")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            message = f"the editor '{command}' cannot be used: {error}"
            raise fail(Code.MISSING, message, hint="set EDITOR to one that can, such as nano") from None


def _placed(error: CqlError, span: Span) -> CqlError:
    """Return an error that points nowhere as one that points at the statement that led to it."""
    if error.source is not None:
        return error
    return CqlError([replace(each, span=span) if each.span == NO_SPAN else each for each in error.diagnostics])


def _defined_line(definition: Table | QueryDef) -> str:
    """Return what was defined, in a line."""
    match definition:
        case StreamDef() | RelationDef():
            kind, schema = ("stream" if isinstance(definition, StreamDef) else "relation"), definition.scan().schema
        case ViewDef() | QueryDef():
            kind, schema = ("view" if isinstance(definition, ViewDef) else "query"), definition.tree.schema
    yields = f": {result_kind(definition.tree)} of" if isinstance(definition, ViewDef | QueryDef) else ""
    columns = ", ".join(f"{field.name} {field.type}" for field in schema)
    return f"{kind} {definition.name}{yields} ({columns})"


def _help_listing() -> Listing:
    rows = [(each.name, each.summary) for each in STATEMENTS]
    rows += [(" ".join((", ".join(each.names), each.usage)).strip(), each.summary) for each in COMMANDS]
    rows.append(("\\h STATEMENT", "the syntax of a statement, and an example"))
    return Listing(("statement or command", "what it does"), tuple(rows))


def _all_defined(catalog: Catalog) -> Listing:
    homes = (catalog.streams, catalog.relations, catalog.views, catalog.queries)
    rows = []
    for each in (definition for home in homes for definition in home.values()):
        words = _defined_line(each).split(" (", 1)
        kind = words[0].split(" ", 1)[0]
        ends = getattr(each, "source", None) or getattr(each, "sink", None)
        rows.append((each.name, kind, f"({words[1]}".strip("()"), ends.format if ends else ""))
    return Listing(("name", "kind", "columns", "from or into"), tuple(rows))


# Without a terminal


def run_plainly(shell: Shell, lines: Iterable[str]) -> int:
    """Carry out what comes from standard input, and return the exit code."""
    with suppress(Leaving):
        shell.run_lines(lines, shell.name)
    waiting = shell.script.waiting(shell.catalog)
    if waiting:
        complain(f"not started: {', '.join(waiting)}; START runs what is registered")
    return shell.worst


def piped_lines() -> Iterator[str]:
    """Yield the lines of standard input as they come; bytes that are no text are kept as marks of that."""
    raw = sys.stdin.buffer
    for line in iter(raw.readline, b""):
        yield line.decode("utf-8", errors="replace").removeprefix("\ufeff")


def main(options: RunOptions, settings: Settings, file: str | None, *, debug: bool) -> int:
    """Run the shell, on a terminal or plainly, and return its exit code."""
    session = Session(Catalog(settings=settings))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from repl.terminal import interact

        return interact(options, session, file, debug=debug)
    display = Display(to_stderr=options.output == "jsonl")
    shell = Shell(session, Script(options, display), display, debug=debug)
    if file is not None:
        shell.run_file(file)
    return run_plainly(shell, piped_lines())
