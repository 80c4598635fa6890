"""Runs what documents show: every fenced block of a markdown file, from top to bottom.

| fence | what is done |
|---|---|
| `sql` | run as a script, and its queries planned; the blocks of a document share a catalog |
| `sql fresh` | the same on a catalog of its own |
| `sql run` | run by `cql run --engine local`; `sql run jsonl` asks for JSON lines |
| `sql error E401` | has to fail, with this code and no other; changes nothing |
| `stream` | run on a catalog of its own; has to be recognised as a STREAM script; `stream run` as with `sql` |
| `python` | executed; the blocks of a document share their names, and `sql` uses their variable `catalog` |
| `python spark` | the same, with a session of Spark, in the folder of `console` |
| `python submitted` | compiled; `tests/test_spark_cluster.py` submits it to a cluster, with the command before it |
| `console` | commands of cql after `$`, run on Spark, and what they print; those of a document share a folder with |
| | the last `sql` as `script.cql` |
| `repl` | what is typed in `cql repl` after `cql>` and `...>`, without Spark, and what it answers; those of a page |
| | share a session, in the folder of `sh` |
| `sh` | run by a shell, in a folder like the root of the project, which those of a document share; without Spark |
| `sh shown` | not run here, because it cannot be (`UNRUNNABLE`); commands and options of cql, targets of make, and |
| | paths have to exist; a script that it runs on Spark is run so by `tests/test_docs.py` |
| `syntax` | not run; its words in capitals have to be words of the grammar |
| `instants` | a table of worked instants (`tests/worked_instants.py`) |
| `text`, or nothing | what the block right before it prints: errors, EXPLAIN, output of `python`, `run` and `sh` |

Anything else is reported, so that nothing goes unchecked. Blocks run in `tests/fixtures/documents`.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cql import Catalog, CqlError, ast
from cql.catalog import QueryDef
from cql.errors import Code
from cql.parsing.stream_script import is_stream_script
from cql.session import Session
from cql.source import SourceText
from planner.explain.statement import explain_statement
from repl.cli import main
from repl.display import Display
from repl.editor import GOES_ON, PROMPT
from repl.script import RunOptions, Script
from repl.shell import TYPED, Shell
from runtime.user_errors import placed
from shedding.insert_drops import compile_registered, plan_of
from tests.worked_instants import BadTable, worked

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "fixtures" / "documents"

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_PROGRAMS = ".venv/bin"

HOME = "/home/ann"
"""What the folder of `console` is called in what it prints."""

UNRUNNABLE = ("make", "git", "pip", "spark-submit")
"""Programs that tests do not run from documents: they fetch things, take minutes, or run the tests themselves."""

_ERROR = re.compile(r"(?P<file>\S+):(?P<line>\d+):(?P<column>\d+): (?P<code>E\d{3}): .+")
_INLINE_COMMAND = re.compile(r"`((?:make|cql|\.venv/bin/cql) [^`\n]+)`")
_FIRST_COMMAND = re.compile(r"""(?:'[^']*'|"[^"]*"|(?! [|>]|; ).)*""")
_LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, its text and where that starts, and the extent of it all."""

    words: tuple[str, ...]
    text: str
    start: int
    extent: tuple[int, int]
    line: int

    @property
    def language(self) -> str:
        return self.words[0] if self.words else "text"

    @property
    def needs_spark(self) -> bool:
        return self.language == "console" or self.words == ("python", "spark")

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a `sh` block in words: without files that it writes, and where they write or pipe to."""
        text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", self.text.replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL)
        lines = (_FIRST_COMMAND.match(line.strip())[0] for line in text.splitlines())  # type: ignore[index]
        return [shlex.split(line, comments=True) for line in lines if line and not line.startswith("#")]

    @property
    def runs_on_spark(self) -> list[list[str]]:
        """The arguments of commands that a `sh shown` block shows for running scripts on Spark."""
        commands = self.commands if self.words == ("sh", "shown") else []
        return [words[1:] for words in commands if words[0].endswith("cql") and words[1] == "run"]

    @property
    def is_runnable(self) -> bool:
        """Whether a shell can run it in a test: nothing of it is unrunnable, starts Spark or talks to a person."""
        return not any(map(_is_unrunnable, self.commands))


@dataclass
class Document:
    """A markdown file. `problem(n)` runs its blocks up to the n-th, each once, and says what is wrong."""

    path: Path
    namespace: dict[str, Any] = field(default_factory=dict)
    _problems: list[str | None] = field(default_factory=list)
    _answers: dict[int, str] = field(default_factory=dict)
    _printed: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _shell: Shell | None = None

    def __post_init__(self) -> None:
        self.text = self.path.read_text(encoding="utf-8")
        self.blocks = tuple(_blocks(self.text))
        self.namespace.update(__name__=f"document_{self.path.stem}", catalog=Catalog())

    @property
    def name(self) -> str:
        inside = self.path.is_relative_to(ROOT)
        return self.path.relative_to(ROOT).as_posix() if inside else self.path.name

    def problem(self, at: int) -> str | None:
        """Return what is wrong with a block, or None."""
        while len(self._problems) <= at:
            with contextlib.chdir(FOLDER):
                self._problems.append(self._run(len(self._problems)))
        return self._problems[at]

    def _run(self, at: int) -> str | None:
        block = self.blocks[at]
        runner = _RUNNERS.get(block.language)
        if runner is None:
            return f"nobody knows how to check ```{block.language}; it takes {', '.join(_RUNNERS)}"
        if block.language != "text":
            self._printed = None
        return runner(self, at)

    def _printed_below(self, at: int) -> str | None:
        """Return the text block that follows a block with nothing between, if there is one."""
        below = self.blocks[at + 1 : at + 2]
        if not below or below[0].language != "text":
            return None
        between = self.text[self.blocks[at].extent[1] : below[0].extent[0]]
        return None if between.strip() else below[0].text

    # Each kind of block; the problem is returned.

    def _sql(self, at: int) -> str | None:
        block = self.blocks[at]
        shown = self._printed_below(at) or ""
        error = _ERROR.match(shown)
        match block.words[1:]:
            case ():
                expected = error["code"] if error else None
            case ("fresh",):
                expected = None
            case ("run", *form):
                return self._ran(at, *form)
            case ("error", code):
                expected = code
            case _:
                return f"```{' '.join(block.words)}: after sql may stand fresh, or error and a code"
        fresh = "fresh" in block.words or bool(error)
        catalog = Catalog() if fresh else self.namespace["catalog"]
        self._printed, codes = _outcome(catalog, block.text, error["file"] if error else self.name)
        if expected == Code.ENCODING.text:  # a page holds no bytes that are not text
            self._printed = shown
            return None
        if expected is None:
            return self._printed if codes else None
        if codes == {expected}:
            return None
        return f"this has to fail with {expected}, and " + (self._printed or "it does not fail")

    def _stream(self, at: int) -> str | None:
        if not is_stream_script(self.blocks[at].text):
            return "this is not recognised as a STREAM script"
        if self.blocks[at].words[1:] == ("run",):
            return self._ran(at)
        self._printed, codes = _outcome(Catalog(), self.blocks[at].text, self.name)
        return self._printed if codes else None

    def _ran(self, at: int, *form: str) -> str | None:
        """Run a script on the local engine, in a copy of the folder, so that it may write files."""
        options = [word for each in form for word in ("--output", each)]
        printed = io.StringIO()
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            shutil.copytree(FOLDER, name, dirs_exist_ok=True)
            Path("script.cql").write_text(self.blocks[at].text, encoding="utf-8")
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                code = main(["run", "script.cql", "--engine", "local", *options])
        self._printed = printed.getvalue()
        is_meant = _ERROR.match(self._printed_below(at) or "") is not None
        return None if (code == 0) is not is_meant else f"this ends with {code}\n{self._printed}"

    def _python(self, at: int) -> str | None:
        block = self.blocks[at]
        printed = io.StringIO()
        try:
            code = compile("\n" * block.line + block.text, str(self.path), "exec")
            if block.words[1:] == ("submitted",):
                self._printed = self._printed_below(at)
                return None
            is_on_spark = block.words[1:] == ("spark",)
            where = self._on_spark() if is_on_spark else contextlib.nullcontext()
            with contextlib.redirect_stdout(printed), where:
                exec(code, self.namespace)
        except Exception:
            return traceback.format_exc()
        self._printed = printed.getvalue()
        return None

    def _on_spark(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in a folder that blocks may write to, with a session of Spark."""
        from runtime.spark.session import local_session

        local_session(cores=2)
        return contextlib.chdir(self._shared_folder())

    def _shared_folder(self) -> str:
        """Return the folder that blocks of this document may write to: it looks like the root of the project."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            _fill(Path(self._folder.name))
        return self._folder.name

    def _console(self, at: int) -> str | None:
        shown, printed = self.blocks[at].text, io.StringIO()
        with self._on_spark():
            scripts = [block.text for block in self.blocks[:at] if block.language == "sql"]
            Path("script.cql").write_text("".join(scripts[-1:]), encoding="utf-8")
            for line in shown.splitlines():
                if line.startswith("$ cql "):
                    printed.write(f"{line}\n")
                    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                        main(shlex.split(line)[2:])
        self._answers[at] = printed.getvalue().replace(self._shared_folder(), HOME)
        return difference(shown, self._answers[at], self.name, "printed")

    def _repl(self, at: int) -> str | None:
        shown, printed = self.blocks[at].text, io.StringIO()
        if self._shell is None:
            display = Display()
            script = Script(RunOptions(engine="local"), display)
            self._shell = Shell(Session(Catalog()), script, display, name=TYPED)
        typed = re.findall(rf"^{PROMPT}.*\n(?:^{re.escape(GOES_ON)}.*\n)*", shown, re.MULTILINE)
        with contextlib.chdir(self._shared_folder()), contextlib.redirect_stdout(printed):
            for lines in typed:
                printed.write(lines)
                with contextlib.redirect_stderr(printed):
                    text = re.sub(rf"^(?:{PROMPT}|{re.escape(GOES_ON)})", "", lines, flags=re.MULTILINE)
                    self._shell.run_lines(text.splitlines(keepends=True), TYPED)
        self._answers[at] = printed.getvalue()
        return difference(shown, self._answers[at], self.name, "answered")

    def printed(self, arguments: list[str]) -> str:
        """Return what cql prints in the folder of this document; it has to end well."""
        printed = io.StringIO()
        with contextlib.chdir(self._shared_folder()), contextlib.redirect_stdout(printed):
            code = main(arguments)
        assert code == 0, f"cql {shlex.join(arguments)} ends with {code}"
        return printed.getvalue()

    def _text(self, at: int) -> str | None:
        shown = self.blocks[at].text
        follows = at > 0 and self._printed_below(at - 1) is not None
        if follows and self._printed is not None:
            right = self._printed.rstrip("\n") + "\n"
            if self._problems[at - 1] is None:
                self._answers[at] = right
            return difference(shown, right, self.name, "printed")
        return "this is not printed by the block before it"

    def _sh(self, at: int) -> str | None:
        block = self.blocks[at]
        problem = first_problem(map(command_problem, block.commands))
        if problem or block.words[1:] == ("shown",):
            return problem
        if not block.is_runnable:
            return "this cannot be run in a test; mark it ```sh shown"
        folder = self._shared_folder()
        path = f"{folder}/{_PROGRAMS}:{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        self._printed = ran.stdout
        is_meant = _ERROR.match(self._printed_below(at) or "") is not None
        return None if (ran.returncode == 0) is not is_meant else f"this ends with {ran.returncode}\n{ran.stdout}"

    def _syntax(self, at: int) -> str | None:
        grammar = (ROOT / "grammar" / "cql.lark").read_text(encoding="utf-8")
        pairs = re.findall(r"/([A-Z]+)\\s\+([A-Z]+)\\b/i", grammar)
        known = set(re.findall(r'"([A-Z]+)"i', grammar)).union(*pairs)
        unknown = [word for word in re.findall(r"\b[A-Z_]{2,}\b", self.blocks[at].text) if word not in known]
        return f"the grammar has no {', '.join(unknown)}" if unknown else None

    def _instants(self, at: int) -> str | None:
        text = self.blocks[at].text
        try:
            self._answers[at] = worked(text, self.namespace["catalog"])
        except (BadTable, CqlError) as error:
            return str(error)
        return difference(text, self._answers[at], self.name, "the definition")

    def with_answers(self) -> str:
        """Return the document with what it shows, instants and printed text, as it should be."""
        text = self.text
        for at in range(len(self.blocks)):
            self.problem(at)
        for at, answer in sorted(self._answers.items(), reverse=True):
            block = self.blocks[at]
            text = text[: block.start] + answer + text[block.start + len(block.text) :]
        return text


_RUNNERS: dict[str, Callable[[Document, int], str | None]] = {
    "sql": Document._sql,
    "stream": Document._stream,
    "python": Document._python,
    "console": Document._console,
    "repl": Document._repl,
    "sh": Document._sh,
    "syntax": Document._syntax,
    "instants": Document._instants,
    "text": Document._text,
}


def _blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        yield Block(tuple(found["info"].split()), found["text"], found.start("text"), found.span(), line)


def _outcome(catalog: Catalog, script: str, name: str) -> tuple[str, set[str]]:
    """Run a script and plan its queries; return what is printed, and the codes of its errors."""
    source = SourceText(name, script)
    printed = []
    try:
        for outcome in Session(catalog).run(script, name):
            if isinstance(outcome.definition, QueryDef):
                with placed(outcome.statement.span):
                    compile_registered(outcome.definition)
            if isinstance(outcome.statement, ast.Explain) and outcome.request is not None:
                printed.append(explain_statement(outcome.statement.form, outcome.request, lambda: plan_of(catalog)))
    except CqlError as error:
        return error.within(source).render(), {diagnostic.code.text for diagnostic in error.diagnostics}
    return "\n".join(printed), set()


def _fill(folder: Path) -> None:
    """Make a folder look like the root of the project after `make setup`, with the files of documents in it."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(ROOT / "tests")
    programs = folder / _PROGRAMS
    programs.mkdir(parents=True)
    for name, arguments in {"cql": " -m repl.cli", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        (programs / name).chmod(0o755)


def _is_unrunnable(words: list[str]) -> bool:
    if words[0].rpartition("/")[2] == "cql":
        return words[1] == "repl" or (words[1] == "run" and "local" not in words)
    return words[0] in UNRUNNABLE


def difference(shown: str, right: str, owner: str, what: str) -> str | None:
    """Return how two texts differ, or None."""
    if shown == right:
        return None
    lines = difflib.unified_diff(shown.splitlines(), right.splitlines(), owner, what, lineterm="", n=9)
    return "\n".join(lines)


def first_problem(problems: Iterator[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


# What a document says outside its blocks


def prose(text: str) -> str:
    """Return a document without its fenced blocks."""
    return _FENCE.sub("", text)


def inline_commands(text: str) -> list[list[str]]:
    """Return the commands of make and cql that the sentences of a document mention."""
    return [shlex.split(command) for command in _INLINE_COMMAND.findall(prose(text))]


def command_problem(words: list[str]) -> str | None:
    """Return what a command mentions that does not exist, or None."""
    if words[0] == "make":
        return _make_problem(words[1:])
    if words[0].rpartition("/")[2] == "cql":
        return _cql_problem(words[1:])
    return None


def _make_problem(words: list[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) *\??=", makefile, re.MULTILINE))
    for word in words:
        variable, sign, _ = word.partition("=")
        if variable not in (variables if sign else targets):
            return f"the Makefile has no {variable}"
    return None


def _cql_problem(words: list[str]) -> str | None:
    if not words:
        return None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main([*itertools.takewhile(lambda word: not word.startswith("-"), words), "--help"])
    if code != 0:
        return f"cql has no command {words[0]}"
    for word in words[1:]:
        if word.startswith("-") and word.partition("=")[0] not in printed.getvalue():
            return f"cql {words[0]} has no option {word}"
        if word.startswith(("tests/", "docs/", "examples/")) and not (ROOT / word).exists():
            return f"there is no {word}"
    return None


def broken_links(document: Path) -> list[str]:
    """Return the links of a document to files and headings that do not exist."""
    broken = []
    for target, heading in _LINK.findall(prose(document.read_text(encoding="utf-8"))):
        path = document.parent / target if target else document
        if not path.exists() or (heading and heading not in _anchors(path)):
            broken.append(f"{target}#{heading}" if heading else target)
    return broken


def _anchors(document: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
