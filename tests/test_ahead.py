"""Rows from the far future are bad rows: what is too far ahead, and that nothing after it comes late."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cql
from cql import CqlError
from repl.cli import main
from runtime.columns.batch import BEGINNING
from runtime.connectors import ahead
from runtime.connectors.ahead import ahead_of_stream

TIMED = "CREATE STREAM s (k INT, at TIMESTAMP) TIMESTAMP BY at FROM csv OPTIONS (path 's');\nSELECT Istream(k) FROM s;"
COUNTED = TIMED.replace("at TIMESTAMP", "at INT")
NOW = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()


def run(script: str, *arguments: str) -> tuple[int, list[Any], str]:
    """Run a script, and return its exit code, the first value of each row of its results, and what it told."""
    Path("script.cql").write_text(script)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["run", "script.cql", "--output", "jsonl", *arguments])
    return code, [next(iter(json.loads(line)["row"].values())) for line in out.getvalue().splitlines()], err.getvalue()


def write(name: str, *instants: object) -> None:
    Path(f"s/{name}.csv").write_text("".join(f"{k},{at}\n" for k, at in enumerate(instants)))


def later(**given: float) -> datetime.datetime:
    return NOW + datetime.timedelta(**given)


@given(
    st.lists(st.integers(0, 60), max_size=40),
    st.integers(1, 30),
    st.integers(1, 4),
    st.one_of(st.just(BEGINNING), st.integers(0, 20)),
)
def test_what_is_ahead_of_a_stream_is_what_is_ahead_of_the_latest_good_row(
    instants: list[int], most: int, block: int, newest: int
) -> None:
    latest, expected = newest, []
    for at in instants:
        expected.append(latest != BEGINNING and at > latest + most)
        if not expected[-1]:
            latest = max(latest, at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "_BLOCK", block)
        assert ahead_of_stream(np.array(instants, np.int64), newest, most).tolist() == expected


def test_a_row_from_the_far_future_ends_a_run_with_its_place() -> None:
    write("1", NOW, "2099-01-01 00:00:00", later(seconds=5))
    code, _, told = run(TIMED, "--engine", "local")
    assert code == 1
    assert "E503: s/1.csv, line 2: the column 'at' is '2099-01-01 00:00:00', more than 1 day ahead of the clock" in told
    assert "SET max_ahead = off" in told


def test_nothing_after_it_is_late_if_it_is_left_out() -> None:
    write("1", NOW, "2099-01-01 00:00:00", later(seconds=5))
    found = run(TIMED, "--engine", "local", "--set", "on_bad_row=skip")
    assert found == (0, [0, 2], "s: left out: 1 row was bad\n")


def test_the_limit_can_be_set_and_taken_away() -> None:
    write("1", later(days=-3000), later(hours=20), later(days=400))
    skipped = ("--engine", "local", "--set", "on_bad_row=skip")
    assert run(TIMED, *skipped)[1] == [0, 1]
    assert run(TIMED, *skipped, "--set", "max_ahead=1 hour")[1] == [0]
    assert run(TIMED, *skipped, "--set", "max_ahead=500 days")[1] == [0, 1, 2]
    assert run(TIMED, *skipped, "--set", "max_ahead=off")[1] == [0, 1, 2]


def test_integer_time_has_no_limit_unless_it_is_set_and_then_goes_by_the_rows_before() -> None:
    write("1", 10, 5000, 12)
    write("2", 40_000, 71, 72, 140, "x")
    skipped = ("--engine", "local", "--set", "on_bad_row=skip")
    assert run(COUNTED, *skipped)[1] == [0, 1, 0]
    code, found, told = run(COUNTED, *skipped, "--set", "max_ahead=1 minute")
    assert (code, found, told) == (0, [0, 2, 1, 2], "s: left out: 4 rows were bad\n")


def test_pushed_rows_are_refused() -> None:
    with cql.Engine(local=True) as engine:
        engine.execute("CREATE STREAM s (k INT, at TIMESTAMP) TIMESTAMP BY at")
        query = engine.register("q", "SELECT Istream(k) FROM s")
        engine.push("s", [(1, NOW)])
        with pytest.raises(CqlError, match="more than 1 day ahead of the clock"):
            engine.push("s", [(2, later(days=3)), (3, NOW)])
        engine.push("s", [(4, NOW)])
    assert [change.row["k"] for change in query.changes()] == [1, 4]


def test_pushed_rows_of_integer_time_are_measured_by_those_before() -> None:
    with cql.Engine(local=True) as engine:
        engine.execute("SET max_ahead = '10 seconds'; CREATE STREAM s (k INT, at INT) TIMESTAMP BY at")
        query = engine.register("q", "SELECT Istream(k) FROM s")
        engine.push("s", [(1, 1000)])
        with pytest.raises(CqlError, match="more than 10 seconds ahead of the rows before it"):
            engine.push("s", [(2, 1011)])
        engine.push("s", [(3, 1010)])
    assert [change.row["k"] for change in query.changes()] == [1, 3]


@pytest.mark.spark
def test_spark_leaves_out_the_same_rows_of_files(spark: object) -> None:
    write("1", 10, 5000, 12)
    write("2", 40_000, 71, 72, 140)
    paced = COUNTED.replace("path 's'", "path 's', maxFilesPerTrigger '1'")
    skipped = ("--set", "on_bad_row=skip", "--set", "max_ahead=1 minute", "--checkpoint", "kept")
    assert run(paced, *skipped) == (0, [0, 2, 1, 2], "s: left out: 3 rows were bad\n")
    write("3", 133, 132, 75)
    assert run(paced, *skipped)[1] == [1]


@pytest.mark.spark
def test_spark_measures_what_it_reads_by_the_clock_of_the_micro_batch(spark: Any) -> None:
    """Rows of a frame and of a file, in Spark's own columns and in the engine's."""
    rows = [(0, NOW), (1, later(days=400)), (2, later(seconds=5))]
    spark.createDataFrame(rows, "k INT, at TIMESTAMP_NTZ").coalesce(1).write.parquet(str(Path("p").absolute()))
    write("1", *(at for _, at in rows))
    frame = spark.readStream.schema("k INT, at TIMESTAMP_NTZ").parquet(str(Path("p").absolute()))
    with cql.Engine(spark) as engine:
        engine.execute("SET on_bad_row = skip; " + TIMED.partition(";")[0])
        engine.stream("f", frame, timestamp="at")
        queries = [engine.register(f"q_{name}", f"SELECT Istream(k) FROM {name}") for name in "sf"]
        engine.start()
        engine.process_available()
        skipped = {table: n for each in engine.progress().values() for table, n in each.skipped.items()}
    assert skipped == {"s": 1, "f": 1}
    assert [[change.row["k"] for change in query.changes()] for query in queries] == [[0, 2], [0, 2]]
