"""The local engine on inputs and answers that this project did not write, through the command line.

Whole files are run. STREAM's answers are compared netted per instant; its last instant may be missing, since nothing
closes it there. NEXMark's are the final contents of relations. All other scripts of `tests/corpus` run on random data.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cql import Catalog
from cql.bound import Schema
from cql.catalog import External, QueryDef, RelationDef, StreamDef
from cql.errors import Code, CqlError
from cql.types import Kind
from planner.network import compile_definition
from repl import cli
from runtime.connectors.intake import layout_of
from runtime.local.run import LocalRun
from tests.definition.evaluator import Bag
from tests.random_data import random_data
from tests.test_corpus import CORPUS, FILES, needed_functions
from tests.test_definition_corpora import (
    CORPORA,
    STREAM_CASES,
    corpora_are_there,
    nexmark_answer,
    nexmark_query,
    read_row,
)

__all__ = ["corpora_are_there"]

CHOICES = (("chain", "on"), ("fifo", "off"))


# STREAM


def stream_script(case: int, dest: Path) -> str:
    """Return the script of a case, in STREAM's own format."""
    tables, files, query, _ = STREAM_CASES[case]
    lines = []
    for table in tables.split(";"):
        name = table.split()[2]
        lines += [f"table : {table.strip().lower().replace(name.lower(), name, 1)};"]
        lines += [f"source : {CORPORA / 'stream' / files[name]}"]
    return "\n".join([*lines, f"query : {query};", f"dest : {dest}", ""])


def stream_result(path: Path) -> dict[int, Bag]:
    """Return what a file in STREAM's output format says, netted per instant; numbers are compared as such."""
    result: dict[int, Bag] = {}
    for line in path.read_text("ascii").splitlines():
        instant, sign, row = re.fullmatch(r"\[(\d+)\]:([+-]):(.*)", line).groups()  # type: ignore[union-attr]
        result.setdefault(int(instant), Counter())[tuple(map(_number, row.split(", ")))] += int(f"{sign}1")
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in result.items()}
    return {instant: bag for instant, bag in netted.items() if bag}


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize(("scheduler", "sharing"), CHOICES)
@pytest.mark.parametrize("case", STREAM_CASES)
def test_stream_case(case: int, scheduler: str, sharing: str, tmp_path: Path) -> None:
    script, dest = tmp_path / "case.script", tmp_path / "case.out"
    script.write_text(stream_script(case, dest))
    settings = ["--set", f"scheduler={scheduler}", f"sharing={sharing}"]
    assert cli.main(["run", str(script), "--engine", "local", *settings]) == 0
    found, expected = stream_result(dest), stream_result(CORPORA / "stream" / "expected" / f"test{case}.out")
    last = max(found)
    assert max(expected) <= last
    if last not in expected:
        found.pop(last)
    assert found == expected


# NEXMark


def final_contents(lines: str, query: str, schema: Schema) -> Bag:
    """Return the contents of a relation after the changes of it that JSON lines tell."""
    contents: Bag = Counter()
    for line in lines.splitlines():
        change = json.loads(line, parse_float=str, parse_int=str)
        if change["query"] == query:
            contents[read_row(list(change["row"].values()), schema)] += int(f"{change['op']}1")
    assert all(count >= 0 for count in contents.values())
    return +contents


@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q3", "q4", "q5"])
def test_nexmark_answer(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(CORPORA / "nexmark")
    assert cli.main(["run", str(CORPUS / "nexmark" / f"{name}.cql"), "--engine", "local", "--output", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert lost(err.splitlines()) == []
    schema = nexmark_query(name, name).schema
    assert final_contents(out, name, schema) == nexmark_answer(name, schema)


@pytest.mark.parametrize("path", sorted((CORPUS / "nexmark").glob("*.cql")), ids=lambda path: path.stem)
def test_nexmark_script_runs(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(CORPORA / "nexmark")
    if needed_functions(path.read_text("utf-8")) or reads_elsewhere(path):
        pytest.skip("it needs more than the corpora have")
    code = cli.main(["run", str(path), "--engine", "local", "--output", "jsonl"])
    assert (code, lost(capsys.readouterr().err.splitlines())) == (0, [])


def lost(told: list[str]) -> list[str]:
    """Return what is told but for rows in windows that did not end."""
    return [line for line in told if ": in windows that did not end: " not in line]


def reads_elsewhere(path: Path) -> bool:
    sources = (table.source for table in inputs(defined(path)) if table.source)
    return any(not Path(source.options["path"]).exists() for source in sources)


# All scripts


def inputs(catalog: Catalog) -> list[StreamDef | RelationDef]:
    return [*catalog.streams.values(), *catalog.relations.values()]


def file_text(
    table: StreamDef | RelationDef, elements: list[tuple[int, tuple[Any, ...], int]], empty: str = '""'
) -> str:
    """Return random elements as the lines of a file of a table; `empty` is how an empty text is written."""
    layout = layout_of(table)
    lines = []
    for instant, row, sign in elements:
        values: dict[int | None, Any] = {layout.instant: instant, layout.sign: "+" if sign > 0 else "-"}
        values |= dict(zip(layout.payload, row, strict=True))
        fields = (_field(values[at], column.type.kind) for at, column in enumerate(layout.fields))
        lines.append(",".join(field or empty for field in fields) + "\n")
    return "".join(lines)


def _field(value: Any, kind: Kind) -> str:
    if value is None:
        return "NULL"
    if kind is Kind.TIMESTAMP:
        return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat(" ", "microseconds")
    return str(value).lower() if isinstance(value, bool) else str(value)


def defined(path: Path) -> Catalog:
    """Return what a script defines, with functions that return NULL for those that it needs."""
    catalog = Catalog()
    text = path.read_text("utf-8")
    for needed in needed_functions(text):
        catalog.function(_nothing, name=needed.name, arguments=needed.arguments, returns=needed.returns)
    catalog.execute(text)
    return catalog


def _nothing(*arguments: object) -> None:
    return None


def is_plannable(query: QueryDef) -> bool:
    try:
        compile_definition(query)
    except CqlError as error:
        assert error.diagnostics[0].code in (Code.CANNOT_DECORRELATE, Code.CANNOT_PLAN, Code.UNBOUNDED_STATE)
        return False
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CORPUS).as_posix())
def test_every_script_runs_on_random_data(path: Path, tmp_path: Path) -> None:
    """Each table is read from a csv file, and each query is written to a folder, which is there in the end."""
    catalog = defined(path)
    data = random_data(Random(path.name), catalog, most=30)
    for table in inputs(catalog):
        file = tmp_path / table.name
        file.write_text(file_text(table, data[table.name]))
        source = External(format="csv", options={"path": str(file), "nullValue": "NULL"})
        catalog.define(table.model_copy(update={"source": source}))
    out = tmp_path / "out"
    queries = [_into(query, out / query.name) for query in catalog.queries.values() if is_plannable(query)]
    with LocalRun(catalog, queries) as run:
        run.drain()
    assert sorted(each.name for each in out.glob("*")) == sorted(query.name for query in queries)
    assert lost(run.losses()) == []


def _into(query: QueryDef, path: Path) -> QueryDef:
    into = query.model_copy(update={"sink": External(format="json", options={"path": str(path)})})
    into.attach(query.tree)
    return into


SIGNATURES = {Kind.INT: "i", Kind.BIGINT: "i", Kind.DOUBLE: "f", Kind.STRING: "c32"}


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.script")), ids=lambda path: path.stem)
def test_every_stream_script_runs_as_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = defined(path)
    data = random_data(Random(path.name), catalog, most=30)
    for table in inputs(catalog):
        assert table.source is not None
        file = Path(table.source.options["path"])
        file.parent.mkdir(exist_ok=True)
        signature = ",".join(SIGNATURES[column.type.kind] for column in layout_of(table).fields)
        filled = [element for element in data[table.name] if None not in element[1]]
        file.write_text(f"{signature}\n{file_text(table, filled, empty='')}")
    assert cli.main(["run", str(path), "--engine", "local"]) == 0
    out, err = capsys.readouterr()
    dests = [query.sink.options["path"] for query in catalog.queries.values() if query.sink]
    assert all(Path(dest).is_file() for dest in dests)
    assert lost(err.splitlines()) == [] and (out == "") is (len(dests) == len(catalog.queries))
