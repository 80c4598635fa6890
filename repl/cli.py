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
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cql.catalog import Catalog, QueryDef
from cql.errors import CqlError, Diagnostic
from cql.session import Outcome, Session
from cql.settings import Settings
from cql.source import NO_SPAN, SourceText
from cql.visible import visible, visible_lines
from repl.display import Display, complain, complain_of_bug
from repl.files import read_source, shown_name
from repl.script import RunOptions, Script

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DONE, USER_ERROR, WRONG_USAGE, RUN_FAILED, INTERRUPTED, OUTPUT_CLOSED = 0, 1, 2, 3, 130, 141

COMMAND = "<command>"
"""How errors call the text that `cql run -c` is given."""

_SETTING = re.compile(r"[^\W\d][\w.]*=")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and not sys.flags.safe_path:
        _look_elsewhere()
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
        complain_of_bug(error, debug="--debug" in arguments)
        return RUN_FAILED


def _look_elsewhere() -> None:
    """Import nothing from where Python looks first, the working directory or the folder of the program: data may lie
    there. The packages of this program may, too, if they are not installed.
    """
    first = os.path.abspath(sys.path[0])
    if os.path.isdir(first) and first != str(Path(__file__).absolute().parents[1]):
        del sys.path[0]


def _run(arguments: list[str], is_whole_process: bool) -> int:
    # A file name may hold bytes that the output's encoding has no character for.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    try:
        options = parser.parse_args(list(_one_setting_each(arguments)))
        settings = _settings(parser, options.set)
        _check_kept(parser, options)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else WRONG_USAGE
    options.is_whole_process = is_whole_process
    commands = {
        "check": _check,
        "run": _run_script,
        "explain": _explain,
        "state": _state,
        "offline": _offline,
        "repl": _shell,
    }
    return commands[options.command](options, settings)


# -------------------------------------------------------------------------------------------------- commands


def _check(options: argparse.Namespace, settings: Settings) -> int:
    """Parse and bind every file, each on its own, see whether its queries can shed as they ask, say what it defines."""
    worst = DONE
    for name in options.files:
        try:
            catalog = _checked(read_source(name), settings)
            print(f"{visible(shown_name(name))}: {_summary(catalog)}: ok", flush=True)
        except CqlError as error:
            worst = _report(error)
    return worst


def _run_script(options: argparse.Namespace, settings: Settings) -> int:
    """Check a whole script, then answer its questions and run its queries in order."""
    source = SourceText(COMMAND if options.file is None else shown_name(options.file), options.text or "")
    try:
        if options.file is not None:
            source = read_source(options.file)
        session = Session(Catalog(settings=settings))
        outcomes = session.run(source.text, source.name)
        script = Script(_run_options(options), Display(to_stderr=options.output == "jsonl"))
        for outcome in outcomes:
            script.note_place(outcome)
        for outcome in outcomes:
            script.carry_out(outcome, session.catalog)
        script.start(session.catalog)
    except CqlError as error:
        is_placed = any(each.span != NO_SPAN for each in error.diagnostics)
        return _report(error.within(source if is_placed else SourceText(source.name, "")))
    return DONE


def _run_options(options: argparse.Namespace) -> RunOptions:
    return RunOptions(options.engine, options.output, options.checkpoint, options.adopt, options.is_whole_process)


def _explain(options: argparse.Namespace, settings: Settings) -> int:
    from shedding.insert_drops import plan_of

    source = SourceText(shown_name(options.file), "")
    try:
        source = read_source(options.file)
        catalog = _checked(source, settings)
        if options.query is not None:
            catalog.query(options.query)
        print(visible_lines(plan_of(catalog).explain(options.format, options.query).removesuffix("\n")))
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
        return _report(error.within(SourceText(options.checkpoint, "")))
    return DONE


def _offline(options: argparse.Namespace, settings: Settings) -> int:
    from repl import offline

    try:
        inputs = offline.Inputs.read(options.left, options.right, options.on, getattr(options, "time", None))
        match options.tool:
            case "optimum":
                offline.show_optimum(inputs, options.window, options.memory, options.pooled, options.since)
            case "static":
                offline.show_static(inputs, options.keep)
            case _:
                offline.show_missing(inputs, options.window, options.delivered)
    except CqlError as error:
        return _report(error)
    return DONE


def _shell(options: argparse.Namespace, settings: Settings) -> int:
    from repl import shell

    return shell.main(_run_options(options), settings, options.file, debug=hasattr(options, "debug"))


# --------------------------------------------------------------------------------------- reading and checking


def _checked(source: SourceText, settings: Settings) -> Catalog:
    """Return what a script defines; raises with all that is wrong in it, or that cannot shed as it asks."""
    session = Session(Catalog(settings=settings))
    outcomes = session.run(source.text, source.name)
    problems = [problem for outcome in outcomes for problem in _unsheddable(outcome)]
    if problems:
        raise CqlError(problems, source)
    return session.catalog


def _unsheddable(outcome: Outcome) -> list[Diagnostic]:
    """Return why a query that a statement defines cannot shed as it asks; of others nothing is planned."""
    query = outcome.definition
    if not isinstance(query, QueryDef) or (not query.options and query.settings.shedding == "none"):
        return []
    from runtime.user_errors import placed
    from shedding.insert_drops import compile_registered

    try:
        with placed(outcome.statement.span):
            compile_registered(query)
    except CqlError as error:
        return list(error.diagnostics)
    return []


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
    complain(error.render())
    return RUN_FAILED if error.is_of_machine else USER_ERROR


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


def _check_kept(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Leave by way of the parser if the local engine is to keep a checkpoint where it cannot."""
    if getattr(options, "engine", "spark") == "spark":
        return
    if options.command == "repl" and (options.checkpoint is not None or options.adopt):
        given = "--checkpoint" if options.checkpoint is not None else "--adopt"
        parser.error(f"{given}: the shell keeps no checkpoint on the local engine; use cql run, or run on Spark")
    if options.adopt and options.checkpoint is None:
        parser.error("--adopt: say which checkpoint: --checkpoint FOLDER")


class _Parser(argparse.ArgumentParser):
    """Says nothing that a terminal would obey: arguments can be names of files."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        super()._print_message(visible_lines(message), file)


class _Version(argparse.Action):
    """Prints the version; it is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        import cql

        print(f"cql {cql.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    debug = _Parser(add_help=False)
    # Without a default, so that a subcommand does not undo a --debug before it.
    debug.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser = _Parser(
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
    _add_offline(
        command(
            "offline",
            "look at a join that sheds rows, with all of its input at hand",
            "cql offline optimum left.csv right.csv --on key --window 400 --memory 100,200",
        ),
        debug,
    )
    _add_repl(command("repl", "start the interactive shell", "cql repl auction.cql --engine local"))
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    script = run.add_mutually_exclusive_group(required=True)
    script.add_argument("file", metavar="FILE", nargs="?", help="the script")
    script.add_argument("-c", "--command", dest="text", metavar="TEXT", help="statements to run, instead of a FILE")
    _add_run_options(run)


def _add_repl(repl: argparse.ArgumentParser) -> None:
    repl.add_argument("file", metavar="FILE", nargs="?", help="a script to start with")
    _add_run_options(repl)


def _add_run_options(run: argparse.ArgumentParser) -> None:
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
        help="where a run keeps its state and progress; the same script goes on from there",
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


def _add_offline(offline: argparse.ArgumentParser, debug: argparse.ArgumentParser) -> None:
    tools = offline.add_subparsers(dest="tool", required=True, metavar="TOOL", title="tools")

    def tool(name: str, summary: str) -> argparse.ArgumentParser:
        made = tools.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False, parents=[debug]
        )
        made.add_argument("left", metavar="LEFT", help="a csv file with a line of column names")
        made.add_argument("right", metavar="RIGHT", help="another one")
        made.add_argument("--on", metavar="COLUMN", required=True, help="the column that is equal in joined rows")
        return made

    optimum = tool("optimum", "the most pairs that any policy could find with little memory")
    _add_window(optimum)
    optimum.add_argument(
        "--memory", metavar="N,N,...", type=_counts, required=True, help="how many rows can be stored, for each line"
    )
    optimum.add_argument("--pooled", action="store_true", help="both sides share the memory; otherwise each has half")
    optimum.add_argument("--since", metavar="T", type=int, help="count only pairs that are complete from here on")
    static = tool("static", "which rows of two tables to keep so that most of their join is kept")
    static.add_argument("--keep", metavar="N", type=_count, required=True, help="how many rows of both are kept")
    complete = tool("complete", "the pairs that a join that shed rows did not deliver, as csv")
    _add_window(complete)
    complete.add_argument(
        "--delivered",
        metavar="LOG",
        required=True,
        help="a csv file with columns left and right: numbers of the rows of each delivered pair, from 1 on",
    )


def _add_window(tool: argparse.ArgumentParser) -> None:
    tool.add_argument(
        "--window", metavar="N", type=_count, required=True, help="joined rows are at most so far apart in time"
    )
    tool.add_argument(
        "--time", metavar="COLUMN", help="a column of whole numbers in order (default: the number of the row)"
    )


def _counts(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    return [_count(part.strip()) for part in text.split(",")]


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
