"""Logs that remove rows that are not there: told with the row, or left out and counted, on both engines."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cql
from cql import CqlError
from planner.plan import combine, compile_query
from repl.cli import main
from runtime.engine.executor import Executor
from runtime.operators import ledger
from tests.definition import evaluate
from tests.engine_runs import feed, results
from tests.fragment_runs import FragmentRun
from tests.random_queries import first_seed

TABLE = "CREATE RELATION r (k INT, at INT, s STRING) TIMESTAMP BY at SIGN BY s FROM csv OPTIONS (path 'r');\n"
COUNT = "REGISTER QUERY n AS SELECT k, COUNT(*) AS n FROM r GROUP BY k;\n"
CASES = int(os.environ.get("CQL_FUZZ", "40"))
"""How many random logs are tried."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r").mkdir()


def run(script: str, *arguments: str) -> tuple[int, list[tuple[Any, ...]], str]:
    """Run a script, and return its exit code, the instants, marks and rows of its results, and what it told."""
    Path("script.cql").write_text(script)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["run", "script.cql", "--output", "jsonl", *arguments])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return code, sorted((line["ts"], line["op"], *line["row"].values()) for line in lines), err.getvalue()


def write(name: str, *changes: str) -> None:
    """Write a file of changes such as '7+3': the row 7 comes at 3."""
    lines = (f"{change[0]},{change[2:]},{change[1]}\n" for change in changes)
    Path(f"r/{name}.csv").write_text("".join(lines))


LEFT_OUT = "r: left out: 2 rows were bad\n"


def test_a_removal_of_a_row_that_is_not_there_ends_the_run() -> None:
    write("1", "1+1", "2-2", "2-1")
    code, found, told = run(TABLE + COUNT, "--engine", "local")
    assert (code, found) == (1, [(1, "+", 1, 1)])
    first, _, _, hint = told.splitlines()
    assert first == "script.cql:1:71: E503: 'r' at 2: a row is removed that is not there: k = 2"
    assert hint.endswith("or leave such removals out: SET on_bad_row = skip")


def test_it_is_left_out_and_counted_and_nothing_after_it_suffers() -> None:
    write("1", "1+1", "2-2", "2+3", "1-4", "1-4", "1+5")
    code, found, told = run(TABLE + COUNT, "--engine", "local", "--set", "on_bad_row=skip")
    assert found == [(1, "+", 1, 1), (3, "+", 2, 1), (4, "-", 1, 1), (5, "+", 1, 1)]
    assert (code, told) == (0, LEFT_OUT)


def test_rows_of_one_instant_have_no_order() -> None:
    write("1", "1-1", "1+1", "2+2", "1-2", "1+2", "2-2")
    assert run(TABLE + COUNT, "--engine", "local") == (0, [], "")


def test_rows_that_no_query_asks_for_are_judged_too() -> None:
    write("1", "1+1", "2-2")
    code, _, told = run(TABLE + "SELECT k FROM r WHERE k = 1;", "--engine", "local", "--set", "on_bad_row=skip")
    assert (code, told) == (0, LEFT_OUT.replace("2 rows were", "1 row was"))


def test_a_log_that_is_pushed_is_judged() -> None:
    with pytest.raises(CqlError, match="a row is removed that is not there: k = 2"), cql.Engine(local=True) as engine:
        engine.execute(TABLE.replace(" FROM csv OPTIONS (path 'r')", "") + COUNT)
        engine.push("r", [(2, 1, "-"), (2, 2, "+")])


@pytest.mark.spark
def test_spark_finds_the_same_after_a_restart_too(spark: object) -> None:
    skipped = ("--set", "on_bad_row=skip", "--checkpoint", "kept")
    write("1", "1+1", "2-2", "2+3")
    assert run(TABLE + COUNT, *skipped)[1:] == (
        [(1, "+", 1, 1), (3, "+", 2, 1)],
        LEFT_OUT.replace("2 rows were", "1 row was"),
    )
    write("2", "1-4", "1-4", "1+5")
    assert run(TABLE + COUNT, *skipped)[1:] == ([(4, "-", 1, 1), (5, "+", 1, 1)], LEFT_OUT)
    code, _, told = run(TABLE + COUNT)
    assert code == 1
    first = "script.cql:1:71: E503: 'r' at {}: a row is removed that is not there: k = {}"
    assert told.splitlines()[0] in (first.format(2, 2), first.format(4, 1)), "the first of one of the buckets"


def random_log(rng: Random) -> list[tuple[int, tuple[Any, ...], int]]:
    log = [(rng.randint(0, 9), (rng.choice((1, 2, None)),), rng.choice((1, 1, -1))) for _ in range(rng.randint(0, 25))]
    return sorted(log, key=lambda element: element[0])


def removals_of_nothing(log: list[tuple[int, tuple[Any, ...], int]]) -> int:
    held: Counter[Any] = Counter()
    missing = 0
    for instant in sorted({at for at, _, _ in log}):
        for at, row, sign in log:
            if at == instant:
                held[row] += sign
        missing += -sum(held.values()) + sum((+held).values())
        held = +held
    return missing


def test_as_many_are_left_out_as_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_FEWEST", 1)
    catalog = cql.Catalog()
    catalog.execute(TABLE)
    tree = cql.bind("SELECT k FROM r", catalog)
    plan = combine([compile_query("q", tree)])
    for seed in range(first_seed(), first_seed() + CASES):
        rng = Random(seed)
        log = random_log(rng)
        executor = Executor(plan, check=True, on_bad_row="skip", chunk_rows=rng.choice((1, 3, 1000)))
        feed(executor, {"r": log}, rng)
        expected, count = evaluate(tree, {"r": log}).changes, removals_of_nothing(log)
        assert {at: bag for at, bag in results(executor, rng)["q"].items() if any(bag.values())} == expected, seed
        assert list(executor.ignored().values()) == [count], seed
        in_buckets = FragmentRun(plan, {"r": log}, rng, rng.choice((1, 2, 3)))
        while in_buckets.step():
            pass
        assert in_buckets.finish()["q"].changes == expected, seed
        assert sum(each.ignored.get(plan.sources[0].id, 0) for each in in_buckets.reports) == count, seed
