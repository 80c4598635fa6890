"""`cql run --engine local` with a checkpoint, as a user types it: it goes on, follows folders, and outlives kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from repl.cli import main

ROOT = Path(__file__).parent.parent
SCRIPT = """
CREATE STREAM s (k STRING, v INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path 'in');
REGISTER QUERY q AS SELECT Istream(k, v) FROM s [Range 100] INTO csv OPTIONS (path 'out');
REGISTER QUERY n AS SELECT k, COUNT(*) AS n FROM s [Range 3] GROUP BY k INTO json OPTIONS (path 'counts');
"""
KEPT = ("--engine", "local", "--checkpoint", "kept")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("a.cql").write_text(SCRIPT)


def write(name: str, *rows: str) -> None:
    """Write a file of rows as a whole."""
    hidden = Path(f"in/.{name}")
    hidden.write_text("".join(f"{row}\n" for row in rows))
    hidden.replace(Path(f"in/{name}"))


def lines(folder: str) -> Counter[str]:
    return Counter(line for path in Path(folder).glob("part-*") for line in path.read_text().splitlines())


def test_the_same_script_goes_on_from_there(capsys: pytest.CaptureFixture[str]) -> None:
    write("1.csv", "a,1,1", "a,2,2", "b,3,5")
    assert main(["run", "a.cql", *KEPT]) == 0
    assert lines("out") == Counter(["1,+,a,1", "2,+,a,2", "5,+,b,3"])
    write("2.csv", "b,9,7", "a,4,1")
    assert main(["run", "a.cql", *KEPT]) == 0
    assert lines("out") == Counter(["1,+,a,1", "2,+,a,2", "5,+,b,3", "7,+,b,9"])
    assert capsys.readouterr().err == "s: left out: 1 row came too late\n"
    before = lines("counts")
    assert main(["run", "a.cql", *KEPT]) == 0
    assert lines("counts") == before, "nothing has come"


def test_a_file_that_ended_a_run_may_be_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    write("1.csv", "a,1,1")
    write("2.csv", "a,x,2")
    assert main(["run", "a.cql", *KEPT]) == 1
    assert capsys.readouterr().err.startswith("a.cql:2:59: E503: in/2.csv, line 1:")
    write("2.csv", "a,2,2")
    assert main(["run", "a.cql", *KEPT]) == 0
    assert lines("out") == Counter(["1,+,a,1", "2,+,a,2"])
    assert "in/2.csv, which ended a run, is not what it was: it is read as it is now" in capsys.readouterr().err


def test_a_file_that_was_delivered_may_not_be_corrected_with_one_that_ended_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("1.csv", "a,1,1")
    write("2.csv", "a,x,2")
    assert main(["run", "a.cql", *KEPT]) == 1
    write("1.csv", "a,7,1")
    capsys.readouterr()
    assert main(["run", "a.cql", *KEPT]) == 1
    assert "E509: 'in/1.csv' is not what it was" in capsys.readouterr().err


def test_a_file_that_was_read_may_not_change(capsys: pytest.CaptureFixture[str]) -> None:
    write("1.csv", "a,1,1")
    assert main(["run", "a.cql", *KEPT]) == 0
    write("1.csv", "a,1,1", "a,2,2")
    assert main(["run", "a.cql", *KEPT]) == 1
    assert "E509" in capsys.readouterr().err


def test_a_checkpoint_of_spark_or_of_other_queries_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kept/integer/spark").mkdir(parents=True)
    assert main(["run", "a.cql", *KEPT]) == 1
    assert "E507: the checkpoint" in (said := capsys.readouterr().err) and "was made on Spark" in said
    write("1.csv", "a,1,1")
    other = ("--engine", "local", "--checkpoint", "other")
    assert main(["run", "a.cql", *other]) == 0
    Path("a.cql").write_text(SCRIPT.replace("COUNT(*)", "MAX(v)"))
    assert main(["run", "a.cql", *other]) == 1
    assert "belongs to other queries: it has another n" in capsys.readouterr().err
    assert main(["run", "a.cql", *other, "--adopt"]) == 0


def test_kills_of_a_run_that_follows_a_folder_lose_and_repeat_nothing() -> None:
    command = [sys.executable, "-m", "repl.cli", "run", "a.cql", *KEPT, "--set", "files=follow"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    wanted: list[str] = []
    for number in range(5):
        run = subprocess.Popen(command, env=environment)
        instants = range(10 * number, 10 * number + 10)
        for at in instants:
            write(f"{at:03}.csv", f"k,{at},{at}")
        wanted += [f"{at},+,k,{at}" for at in instants]
        deadline = time.monotonic() + 120
        while f"{instants[4]},+,k,{instants[4]}" not in lines("out"):
            assert run.poll() is None and time.monotonic() < deadline, "the run goes on"
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL if number < 4 else signal.SIGTERM)
        run.wait(60)
    assert main(["run", "a.cql", *KEPT]) == 0
    assert lines("out") == Counter(wanted)
