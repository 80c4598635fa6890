"""Windows that a bounded run leaves open: how many rows are in them is told, and SET end = close ends them."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repl.cli import main
from runtime.time.unended_windows import Unended

TABLE = "CREATE STREAM s (k INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 's');\n"
TUMBLING = "REGISTER QUERY q AS SELECT COUNT(*) AS n FROM s [Range 10 Slide 10] GROUP BY k;\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()


def run(script: str, *arguments: str) -> tuple[list[tuple[Any, ...]], str]:
    """Run a script, and return the instants, marks and rows of its results, and what it told."""
    Path("script.cql").write_text(script)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["run", "script.cql", "--output", "jsonl", *arguments]) == 0, err.getvalue()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return sorted((line["ts"], line["op"], *line["row"].values()) for line in lines), err.getvalue()


def write(name: str, *instants: int) -> None:
    Path(f"s/{name}.csv").write_text("".join(f"1,{at}\n" for at in instants))


def test_rows_in_windows_that_did_not_end_are_told() -> None:
    write("1", 3, 8, 12, 25, 27, 29)
    found, told = run(TABLE + TUMBLING, "--engine", "local")
    assert found[-1][0] == 20
    assert told == "q: in windows that did not end: 3 rows of s; SET end = close ends them\n"


def test_they_can_be_closed() -> None:
    write("1", 3, 8, 12, 25, 27, 29)
    found, told = run(TABLE + TUMBLING, "--engine", "local", "--set", "end=close")
    assert (found[-2:], told) == ([(30, "+", 3), (30, "-", 1)], "")


def test_nothing_is_told_of_rows_at_the_end_of_a_window() -> None:
    write("1", 3, 20)
    assert run(TABLE + TUMBLING, "--engine", "local")[1] == ""


def test_time_passes_for_all_windows_of_a_query_and_for_no_other_query() -> None:
    """The last row is at 12: the query that slides ends at 20, and what would leave until then leaves."""
    write("1", 3, 12)
    both = "SELECT k FROM s [Range 5] UNION ALL SELECT k + 1 FROM s [Range 10 Slide 10] WHERE k = 1"
    script = TABLE + f"REGISTER QUERY a AS {both}; REGISTER QUERY b AS SELECT k FROM s [Range 5];"
    found, told = run(script, "--engine", "local", "--set", "end=close")
    a = [(3, "+", 1), (8, "-", 1), (10, "+", 2), (12, "+", 1), (17, "-", 1)]
    b = [(3, "+", 1), (8, "-", 1), (12, "+", 1)]
    assert (found, told) == (sorted(a + b), "")


def test_each_query_tells_of_its_own_windows() -> None:
    write("1", 3, 12, 21, 22)
    long = TUMBLING.replace(" q ", " long ").replace("10", "20")
    _, told = run(TABLE + TUMBLING + long + "SELECT k FROM s [Range 5];", "--engine", "local")
    assert told.splitlines() == [
        "long: in windows that did not end: 2 rows of s; SET end = close ends them",
        "q: in windows that did not end: 2 rows of s; SET end = close ends them",
    ]


@pytest.mark.spark
def test_spark_closes_them_too_and_knows_them_after_a_restart(spark: object) -> None:
    write("1", 3, 8, 12)
    script = TABLE + TUMBLING
    first, told = run(script, "--checkpoint", "kept")
    assert told == "q: in windows that did not end: 1 row of s; SET end = close ends them\n"
    write("2", 14, 15)
    second, told = run(script, "--checkpoint", "kept")
    assert told == "q: in windows that did not end: 3 rows of s; SET end = close ends them\n"
    write("3", 16)
    third, told = run(script, "--checkpoint", "kept", "--set", "end=close")
    assert ([*first, *second, *third], told) == ([(10, "+", 2), (20, "+", 4), (20, "-", 2)], "")


@given(st.lists(st.lists(st.integers(-100, 100), max_size=5)), st.integers(1, 30), st.integers(0, 50))
def test_rows_after_the_last_multiple_are_counted_however_they_come(
    parts: list[list[int]], slide: int, later: int
) -> None:
    read, rows = Unended([slide]), [at for part in parts for at in part]
    for part in parts:
        read.note(read.counted(np.array(part, np.int64)))
    resumed = Unended([slide])
    resumed.note(read.position)
    last = max(rows, default=0) + later
    assert resumed.after(slide, last) == sum(at > last // slide * slide for at in rows)
