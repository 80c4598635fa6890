"""The examples run as they say, from anywhere, and print what stands beside them in `expected.txt`.

The local engine runs all of them, and the definition judges its answers; Spark has to give the same answers. Each runs
in a copy of the folder, because some write files.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cql import Catalog, bound
from cql.catalog import QueryDef, RelationDef, StreamDef
from cql.session import Session
from repl import cli
from runtime.connectors.intake import layout_of
from tests.agreement import disagreement
from tests.definition import Element, Result, evaluate
from tests.documents import ROOT, difference
from tests.test_definition_corpora import read

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/expected.txt"))
SCRIPTS = [folder for folder in FOLDERS if not list(folder.glob("*.py"))]

every_example = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
every_script = pytest.mark.parametrize("folder", SCRIPTS, ids=lambda folder: folder.name)


def program(folder: Path) -> Path:
    """Return the script or program of an example: the file that is called like its folder."""
    (found,) = folder.glob(f"{folder.name}.*")
    return found


def commands(folder: Path) -> list[str]:
    """Return the commands that the head of an example names, those that need Spark left out."""
    head = "".join(re.findall(r'\A(?:(?:--|#).*\n)+|\A"""[^"]+"""', program(folder).read_text("utf-8")))
    assert "Shows:" in head and "Run:" in head
    found = re.findall(r"(?:cql run|python) examples/[^\n(]+", head)
    return [command.strip() for command in found if "--spark" not in command]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has a copy of the examples in it; the working directory is another one, beside it."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def output(words: list[str], folder: Path, *, in_process: bool) -> str:
    """Return what a command prints and, after it, what it writes beside the example."""
    before = set(folder.iterdir())
    printed = printed_here(words[1:]) if in_process and words[0] == "cql" else printed_by_program(words)
    written = sorted(set(folder.iterdir()) - before)
    files = [f"\n{path.name}\n{path.read_text('utf-8')}" for path in written if path.is_file()]
    return "".join([printed, *files])


def printed_here(arguments: list[str]) -> str:
    """Return what `cql` prints in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert (cli.main(arguments), left_out(err.getvalue())) == (0, [])
    return out.getvalue()


def printed_by_program(words: list[str]) -> str:
    """Return what a command prints as a program of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-m", "repl.cli"] if words[0] == "cql" else [sys.executable]
    ran = subprocess.run([*program, *words[1:]], env=environment, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, left_out(ran.stderr)) == (0, [])
    return ran.stdout


def left_out(told: str) -> list[str]:
    """Return the lines on standard error; rows in windows that did not end are all right."""
    return [line for line in told.splitlines() if ": in windows that did not end: " not in line]


def test_there_are_examples_and_all_are_listed() -> None:
    listed = re.findall(r"\]\(([\w/]+\.(?:cql|py|script))\)", (EXAMPLES / "README.md").read_text("utf-8"))
    programs = [program(folder).relative_to(EXAMPLES).as_posix() for folder in FOLDERS]
    assert len(programs) >= 6
    assert sorted(listed) == sorted(programs)


@pytest.mark.golden
@every_example
@pytest.mark.parametrize("where", ["from the root", "from elsewhere"])
def test_an_example_prints_what_is_expected(
    folder: Path, where: str, elsewhere: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = commands(folder)
    copy = elsewhere / "examples" / folder.name
    if where == "from the root":
        monkeypatch.chdir(elsewhere)
        words = shlex.split(command)
    else:
        words = [str(elsewhere / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    printed = output(words, copy, in_process=where == "from elsewhere")
    if request.config.getoption("--update-golden"):
        (folder / "expected.txt").write_bytes(printed.encode())
    problem = difference((folder / "expected.txt").read_text("utf-8"), printed, folder.name, "printed")
    if problem:
        pytest.fail(f"{problem}\n\n`make golden` writes it anew.", pytrace=False)


# The answers of scripts, netted per instant


@cache
def catalog_of(script: Path) -> Catalog:
    session = Session(Catalog())
    session.run(script.read_text("utf-8"), str(script))
    return session.catalog


def elements(table: StreamDef | RelationDef, folder: Path) -> Iterator[Element]:
    """Yield what the file of a table says, read without the help of the project's readers."""
    assert table.source is not None
    layout = layout_of(table)
    with open(folder / Path(table.source.options["path"]).name, encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    for line in lines:
        values = [_value(text, column.type) for text, column in zip(line, layout.fields, strict=True)]
        instant = values[layout.instant] if layout.instant is not None else 0
        sign = -1 if layout.sign is not None and line[layout.sign] == "-" else +1
        yield int(instant), tuple(values[at] for at in layout.payload), sign


def _value(text: Any, data_type: Any) -> Any:
    return None if text in (None, "") else read(text, data_type)


def answers(printed: str, folder: Path, queries: dict[str, QueryDef]) -> dict[str, Result]:
    """Return what JSON lines and files of STREAM's format say."""
    found: dict[str, dict[int, Counter[Any]]] = {query.name: {} for query in queries.values()}

    def add(query: QueryDef, instant: Any, op: str, texts: list[Any]) -> None:
        columns = query.tree.schema
        row = tuple(_value(text, column.type) for text, column in zip(texts, columns, strict=True))
        found[query.name].setdefault(instant, Counter())[row] += int(f"{op}1")

    for line in printed.splitlines():
        change = json.loads(line, parse_float=str, parse_int=str)
        query = queries[change["query"].casefold()]
        add(query, _instant(change["ts"]), change["op"], list(change["row"].values()))
    for query in queries.values():
        if query.sink is not None:
            for line in (folder / Path(query.sink.options["path"]).name).read_text("utf-8").splitlines():
                instant, op, row = re.fullmatch(r"\[(\d+)\]:([+-]):(.*)", line).groups()  # type: ignore[union-attr]
                add(query, int(instant), op, row.split(", "))
    netted = {
        name: {at: Counter({row: n for row, n in bag.items() if n}) for at, bag in bags.items()}
        for name, bags in found.items()
    }
    return {name: Result({at: bag for at, bag in bags.items() if bag}) for name, bags in netted.items()}


def _instant(text: str) -> int:
    from cql.binder.literals import timestamp_microseconds

    return int(text) if text.isdigit() else int(timestamp_microseconds(text) or 0)


def ran(folder: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Result]:
    """Run the script of an example, and return its answers."""
    script = elsewhere / "examples" / program(folder).relative_to(EXAMPLES)
    assert cli.main(["run", str(script), "--output", "jsonl", "--set", "paths_from=script", *options]) == 0
    printed, problems = capsys.readouterr()
    assert not left_out(problems)
    return answers(printed, script.parent, catalog_of(program(folder)).queries)


@every_script
def test_the_definition_agrees_with_the_local_engine(
    folder: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ran(folder, elsewhere, capsys, "--engine", "local")
    for query in catalog_of(program(folder)).queries.values():
        data = {scan.name: list(elements(_table(scan, folder), folder)) for scan in bound.scans(query.tree)}
        assert not disagreement(evaluate(query.tree, data), found[query.name]), query.name
        assert found[query.name].changes, f"{query.name} says nothing"


def _table(scan: bound.StreamScan | bound.RelationScan, folder: Path) -> StreamDef | RelationDef:
    table = catalog_of(program(folder)).table(scan.name)
    assert isinstance(table, StreamDef | RelationDef)
    return table


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@every_script
def test_spark_gives_the_same_answers(folder: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local = ran(folder, elsewhere, capsys, "--engine", "local")
    spark = ran(folder, elsewhere, capsys)
    for name, result in local.items():
        assert not disagreement(result, spark[name]), name


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_python_example_gives_the_same_answers_on_spark(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.sensors import sensors

    sensors.main(["--spark"])
    assert capsys.readouterr().out == (EXAMPLES / "sensors" / "expected.txt").read_text("utf-8")
