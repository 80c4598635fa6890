"""The command line `cql`: run, check and explain scripts, look at checkpoints, and start the shell.

Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 an error in the user's
text or data, 2 wrong usage, 3 the run failed; and, as shells have it, 130 after Ctrl-C and 141 when nobody
reads the output any more. A Python traceback appears only with --debug.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from cql import ast
from cql.catalog import Catalog, QueryDef
from cql.errors import Code, CqlError, Diagnostic, fail, nearest
from cql.session import Listing, Outcome, Session
from cql.settings import Settings
from cql.source import NO_SPAN, Source, Span

if TYPE_CHECKING:
    from runtime.local import LocalRun
    from runtime.spark.run import SparkRun
    from runtime.statistics import Figures

DONE, USER_ERROR, WRONG_USAGE, RUN_FAILED, INTERRUPTED, OUTPUT_CLOSED = 0, 1, 2, 3, 130, 141

_NOT_YET = "(not part of this version yet)"
_SETTING = re.compile(r"[^\W\d][\w.]*=")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(arguments, is_whole_process=argv is None)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return OUTPUT_CLOSED
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        else:
            what = " ".join(f"{type(error).__name__}: {error}".split())
            _complain(f"internal error: {what}; this is a bug in cql, run again with --debug to see where")
        return RUN_FAILED


def _run(arguments: list[str], is_whole_process: bool) -> int:
    # A file name may hold bytes that the output's encoding has no character for.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    try:
        options = parser.parse_args(list(_one_setting_each(arguments)))
        settings = _settings(parser, options.set)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else WRONG_USAGE
    options.is_whole_process = is_whole_process
    commands = {"check": _check, "run": _run_script, "explain": _explain, "state": _state, "repl": _shell}
    return commands[options.command](options, settings)


# -------------------------------------------------------------------------------------------------- commands


def _check(options: argparse.Namespace, settings: Settings) -> int:
    """Parse and bind every file, each on its own, and say what it defines."""
    worst = DONE
    for name in options.files:
        try:
            catalog = _checked(name, settings)
            print(f"{_shown(name)}: {_summary(catalog)}: ok", flush=True)
        except CqlError as error:
            worst = _report(error)
    return worst


def _run_script(options: argparse.Namespace, settings: Settings) -> int:
    """Check a whole script, then answer its questions and run its queries in order."""
    source = Source(_shown(options.file), "")
    try:
        source = _read(options.file)
        session = Session(Catalog(settings=settings))
        outcomes = session.run(source.text, source.name)
        script = _Script(options, _places(outcomes))
        for outcome in outcomes:
            script.carry_out(outcome, session.catalog)
        script.start(session.catalog)
    except CqlError as error:
        is_placed = any(each.span != NO_SPAN for each in error.diagnostics)
        return _report(error.within(source if is_placed else Source(source.name, "")))
    return DONE


class _Script:
    """A script that is being run. START runs the queries registered so far, the end of the script those after it."""

    def __init__(self, options: argparse.Namespace, places: Mapping[tuple[str, str], Span]) -> None:
        self._options = options
        self._places = places
        self._started: list[QueryDef] = []
        self._starts = 0
        self._figures: list[Figures] = []
        self._answers = sys.stdout if options.output == "table" else sys.stderr
        self._separator = ""

    def carry_out(self, outcome: Outcome, catalog: Catalog) -> None:
        """Print what SHOW, DESCRIBE and EXPLAIN answer, and run what START asks for.

        Answers are no JSON lines: where these are asked for, they go to standard error.
        """
        if outcome.listing is not None:
            self._answer(_listed(outcome.listing))
        elif isinstance(outcome.request, Catalog):
            self.start(outcome.request)
        elif isinstance(outcome.statement, ast.Explain) and outcome.request is not None:
            from planner.explain.statement import explain_statement

            self._answer(explain_statement(outcome.statement.form, outcome.request, catalog))
        elif isinstance(outcome.statement, ast.Show):
            from runtime.local import statistics_listing

            self._answer(_listed(statistics_listing(self._figures)))

    def _answer(self, text: str) -> None:
        print(self._separator + text, file=self._answers)
        self._separator = ""

    def start(self, catalog: Catalog) -> None:
        """Run the queries of a catalog that have not been run, to the end of their sources."""
        queries = [query for query in catalog.queries.values() if not any(query is each for each in self._started)]
        if not queries:
            return
        self._started += queries
        print(self._separator, end="", file=self._answers)
        run = (
            self._spark_run(catalog, queries) if self._options.engine == "spark" else self._local_run(catalog, queries)
        )
        with run:
            run.run_to_the_end()
        prints = any(query.sink is None or query.sink.format == "console" for query in queries)
        self._separator = "\n" if prints and self._options.output == "table" else ""
        self._figures += run.statistics()
        for line in run.losses():
            _complain(line)

    def _local_run(self, catalog: Catalog, queries: Sequence[QueryDef]) -> LocalRun:
        if self._options.is_whole_process:
            _hide_pandas()
        from runtime.local import LocalRun

        return LocalRun(catalog, queries, output=self._options.output, places=self._places)

    def _spark_run(self, catalog: Catalog, queries: Sequence[QueryDef]) -> SparkRun:
        from runtime.spark.run import SparkRun
        from runtime.spark.session import local_session

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return SparkRun(
            local_session(),
            catalog,
            queries,
            output=self._options.output,
            checkpoint=self._checkpoint(),
            adopt=self._options.adopt,
            places=self._places,
        )

    def _checkpoint(self) -> Path | None:
        """Return the folder for the queries of the next START: they are a network of their own."""
        self._starts += 1
        root = self._options.checkpoint
        return None if root is None else Path(root) if self._starts == 1 else Path(root) / f"start-{self._starts}"


def _places(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], Span]:
    """Return where a script says what tables are read from, and queries written to."""
    places: dict[tuple[str, str], Span] = {}
    for outcome in outcomes:
        statement, definition = outcome.statement, outcome.definition
        if definition is not None:
            ends = getattr(statement, "source", None) or getattr(statement, "sink", None) or statement
            kind = "query" if isinstance(definition, QueryDef) else "table"
            places[kind, definition.name.casefold()] = ends.span
    return places


def _hide_pandas() -> None:
    """Let PyArrow find that there is no pandas, which it would load, slowly, to make an array of a list."""
    if "pandas" not in sys.modules:
        import pyarrow

        sys.meta_path.insert(0, _NoPandas())
        pyarrow.array([])
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _listed(listing: Listing) -> str:
    """Return a listing as aligned lines."""
    rows = [listing.columns, *listing.rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(listing.columns))]
    cells = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in cells)


def _explain(options: argparse.Namespace, settings: Settings) -> int:
    from planner.network import Network

    source = Source(_shown(options.file), "")
    try:
        source = _read(options.file)
        catalog = _defined(source, settings)
        if options.query is not None:
            catalog.query(options.query)
        print(Network.of_catalog(catalog).plan.explain(options.format, options.query), end="")
    except CqlError as error:
        return _report(error.within(source))
    return DONE


def _state(options: argparse.Namespace, settings: Settings) -> int:
    from repl.state import show_part, show_state

    checkpoint = Path(options.checkpoint)
    try:
        if options.store is None:
            show_state(checkpoint, options.batch, options.output)
        else:
            show_part(checkpoint, options.store, options.batch, options.limit, options.output)
    except CqlError as error:
        return _report(error.within(Source(options.checkpoint, "")))
    return DONE


def _shell(options: argparse.Namespace, settings: Settings) -> int:
    try:
        if options.file is not None:
            _checked(options.file, settings)
    except CqlError as error:
        return _report(error)
    return _not_yet(
        "repl",
        "the interactive shell is not part of this version yet",
        "cql check FILE parses and binds a script; cql check - reads it from standard input",
    )


def _not_yet(command: str, message: str, hint: str) -> int:
    _complain(f"cql {command}: {Code.NOT_AVAILABLE.text}: {message}\n  hint: {hint}")
    return RUN_FAILED


# --------------------------------------------------------------------------------------- reading and checking


def _checked(name: str, settings: Settings) -> Catalog:
    """Return what a script defines; raises with all that is wrong in it."""
    return _defined(_read(name), settings)


def _defined(source: Source, settings: Settings) -> Catalog:
    session = Session(Catalog(settings=settings))
    session.run(source.text, source.name)
    return session.catalog


def _read(name: str) -> Source:
    """Return the text of a file, or of standard input for `-`."""
    shown = _shown(name)
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise _unreadable(name, f"there is no file '{name}'", candidates=_similar_files(name)) from None
    except IsADirectoryError:
        raise _unreadable(name, f"'{name}' is a folder", "name a script inside it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unreadable(name, f"'{name}' cannot be read: {reason}") from None
    try:
        if b"\0" in data:
            raise fail(
                Code.ENCODING,
                "this is not a text file",
                hint="a script is UTF-8 text; a text saved as UTF-16 has to be saved as UTF-8",
            ).within(Source(shown, ""))
        return Source(shown, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_utf8(shown, data, error.start) from None


def _unreadable(name: str, message: str, hint: str | None = None, candidates: Sequence[str] = ()) -> CqlError:
    return CqlError([Diagnostic(Code.NO_FILE, message, NO_SPAN, hint, tuple(candidates))], Source(_shown(name), ""))


def _not_utf8(shown: str, data: bytes, at: int) -> CqlError:
    """Return the error for a byte that is no UTF-8, pointing at it."""
    before = data[:at].decode("utf-8-sig")
    source = Source(shown, before + data[at:].decode("utf-8", errors="replace"))
    place = Span(len(before), len(before) + 1)
    message = f"the byte 0x{data[at]:02X} is not UTF-8 text"
    return fail(Code.ENCODING, message, place, hint="save the file as UTF-8").within(source)


def _similar_files(name: str) -> list[str]:
    path = Path(name)
    try:
        return [str(path.with_name(near)) for near in nearest(path.name, sorted(os.listdir(path.parent)), most=1)]
    except OSError:
        return []


def _shown(name: str) -> str:
    return "<stdin>" if name == "-" else name


def _summary(catalog: Catalog) -> str:
    """Return what a catalog holds in words: `3 streams, 1 view, 5 queries`."""
    counts = (
        (len(catalog.streams), "stream", "streams"),
        (len(catalog.relations), "relation", "relations"),
        (len(catalog.views), "view", "views"),
        (len(catalog.queries), "query", "queries"),
    )
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return ", ".join(parts) or "nothing defined"


def _report(error: CqlError) -> int:
    _complain(error.render())
    return USER_ERROR


def _complain(text: str) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


def _discard_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail again when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


# ------------------------------------------------------------------------------------------------- arguments


def _one_setting_each(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with `--set a=1 b=2` written as `--set a=1 --set b=2`.

    >>> list(_one_setting_each(["--set", "a=1", "b=2", "x.cql"]))
    ['--set', 'a=1', '--set', 'b=2', 'x.cql']
    """
    before: list[str] = []
    for argument in arguments:
        if before[-2:-1] == ["--set"] and _SETTING.match(argument):
            yield "--set"
            before.append("--set")
        yield argument
        before.append(argument)


def _settings(parser: argparse.ArgumentParser, given: Sequence[str]) -> Settings:
    """Return the settings that the `--set` options give; leaves by way of the parser if one is wrong."""
    settings = Settings()
    for item in given:
        key, mark, value = item.partition("=")
        if not mark:
            parser.error(f"--set {item}: write key=value")
        try:
            settings = settings.changed(key.strip(), value.strip())
        except CqlError as error:
            problem = error.diagnostics[0]
            advice = problem.advice()
            parser.error(f"--set {item}: {problem.message}" + (f" ({advice})" if advice else ""))
    return settings


class _Version(argparse.Action):
    """Prints the version; it is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib import metadata

        print(f"cql {metadata.version('cql-on-spark')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    debug = argparse.ArgumentParser(add_help=False)
    # Without a default, so that a subcommand does not undo a --debug before it.
    debug.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser = argparse.ArgumentParser(
        prog="cql",
        description="Continuous queries over streams and relations, on Spark.",
        epilog="A FILE of - is standard input; scripts of Stanford's STREAM are recognised.\n"
        "Exit codes: 0 done, 1 an error in the script or data, 2 wrong usage, 3 the run failed.\n\n"
        "example:\n  cql check auction.cql",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[debug],
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.set_defaults(set=[])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")

    def command(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            parents=[debug],
        )

    _add_run(command("run", "execute a script", "cql run auction.cql --engine local --output jsonl"))
    _add_check(command("check", "parse and bind scripts, and report all errors", "cql check a.cql b.cql"))
    _add_explain(
        command(
            "explain",
            "print the plan of what a script registers",
            "cql explain a.cql --query hot --format dot",
        )
    )
    _add_state(
        command(
            "state",
            "show what a checkpoint holds, without running anything",
            "cql state checkpoints/auction --store store/log/source-5d0ed56b/single",
        )
    )
    repl = command("repl", f"start the interactive shell {_NOT_YET}", "cql repl auction.cql")
    repl.add_argument("file", metavar="FILE", nargs="?", help="a script to start with")
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("file", metavar="FILE", help="the script")
    _add_set(run)
    run.add_argument(
        "--engine",
        choices=("spark", "local"),
        default="spark",
        help="where the script runs: on Spark (the default), or in this process",
    )
    run.add_argument(
        "--output",
        choices=("table", "jsonl"),
        default="table",
        help="how results without a sink are printed: as tables (the default), or as JSON lines",
    )

    run.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="where a run on Spark keeps its state and progress; the same script goes on from there",
    )
    run.add_argument(
        "--adopt",
        action="store_true",
        help="go on from a checkpoint of other queries: those that are the same keep their state",
    )


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("files", metavar="FILE", nargs="+", help="a script; each is checked on its own")
    _add_set(check)


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("file", metavar="FILE", help="the script")
    _add_set(explain)
    explain.add_argument("--query", metavar="NAME", help="show only the plan of this query")
    explain.add_argument(
        "--format",
        choices=("text", "json", "dot", "mermaid"),
        default="text",
        help="how the plan is written (default: text)",
    )


def _add_state(state: argparse.ArgumentParser) -> None:
    state.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="the folder of a network's state, or of one clock in it"
    )
    state.add_argument("--store", metavar="ID", help="show the rows of this part of the state instead of a list of all")
    state.add_argument(
        "--limit", metavar="N", type=_count, default=100, help="show at most N rows of each part (default: 100; 0: all)"
    )
    state.add_argument(
        "--batch", metavar="N", type=_count, help="look at the state after this micro-batch, if Spark still has it"
    )
    state.add_argument(
        "--output",
        choices=("table", "jsonl"),
        default="table",
        help="how it is printed: as tables (the default), or as JSON lines",
    )


def _count(text: str) -> int:
    """Return the number that an option is given."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _add_set(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="key=value",
        help="change a setting first, as SET key = value in a script does; can be repeated",
    )


if __name__ == "__main__":
    sys.exit(main())
