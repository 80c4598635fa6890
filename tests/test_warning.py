"""Rows that are left out are told while a run goes on: at once, and then less and less often."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cql
from runtime.reports.loss_warnings import LossWatch

ROOT = Path(__file__).parent.parent


def test_what_is_new_is_told_at_once_and_then_after_times_that_double() -> None:
    told: list[tuple[int, str]] = []
    now = 0
    watch = LossWatch(lambda line: told.append((now, line)), lambda: float(now))
    for now in range(0, 100_000, 10):
        watch.note({"s": (now // 10, 0), "quiet": (0, 0)})
    assert told[0] == (10, "s: left out so far: 1 row came too late; a longer DELAY of s lets rows come later")
    assert [at for at, _ in told][:5] == [10, 70, 190, 430, 910]
    assert len(told) == 16, "a few times a day in the long run"


def test_tables_and_reasons_are_told_for_themselves() -> None:
    told: list[str] = []
    watch = LossWatch(told.append)
    watch.note({"s": (2, 0), "r": (0, 0)})
    watch.note({"s": (5, 0), "r": (0, 3)})
    assert [line.partition(";")[0] for line in told] == [
        "s: left out so far: 2 rows came too late",
        "r: left out so far: 3 rows were bad",
    ]


def test_an_engine_tells_its_log(caplog: pytest.LogCaptureFixture) -> None:
    with cql.Engine(local=True) as engine:
        engine.execute("CREATE STREAM s (k INT, at INT) TIMESTAMP BY at")
        engine.register("q", "SELECT COUNT(*) AS n FROM s [Range 10 Slide 10]")
        engine.push("s", [(1, 5), (2, 3)])
        assert [record.message for record in caplog.records] == [
            "s: left out so far: 1 row came too late; a longer DELAY of s lets rows come later"
        ]
        caplog.clear()
        engine.push("s", [(1, 6), (2, 3)])
        assert not caplog.records, "that is told later"
    assert [(record.name, record.levelno, record.message) for record in caplog.records] == [
        ("cql", logging.WARNING, "s: left out: 2 rows came too late"),
        ("cql", logging.WARNING, "q: in windows that did not end: 2 rows of s; SET end = close ends them"),
    ]


@pytest.mark.spark(own_process=True)
def test_a_service_tells_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/1.csv").write_text("1,5\n1,3\n")
    (tmp_path / "a.cql").write_text(
        "SET files = follow; CREATE STREAM s (k INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 's');\n"
        "REGISTER QUERY q AS SELECT COUNT(*) FROM s [Range 5];"
    )
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "repl.cli", "run", "a.cql"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr is not None
        told = next((line for line in service.stderr if "left out" in line), "")
        service.send_signal(signal.SIGINT)
        service.communicate()
    assert told == "s: left out so far: 1 row came too late; a longer DELAY of s lets rows come later\n"
