"""Crashes on Spark: a network that is killed and started again has, in its files, what the local engine writes.

`make crash` kills more often: `CQL_CRASHES` says how often, and `CQL_SEED` chooses other moments.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyarrow import parquet

from repl.cli import main
from tests.crashes import (
    IN_BATCHES,
    Run,
    aims,
    killed,
    planned,
    release,
    results,
    run_of,
    write_input,
    write_script,
)

pytest.importorskip("pyspark")

CRASHES = int(os.environ.get("CQL_CRASHES", "4"))
SEED = int(os.environ.get("CQL_SEED", "1"))
FILES_FOR_EACH = 3
"""So many that every run is killed before it has read them all."""


@pytest.mark.spark(own_process=True)
@pytest.mark.timeout(600 + 180 * CRASHES)
def test_after_kills_at_any_step_the_files_hold_what_a_run_without_kills_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files come while the run is killed, with any times. One is gone when it is to be read again, and comes back; the
    last one is bad at first, and is corrected."""
    rng = random.Random(SEED)
    everything, data, whole, crashed, aside = (tmp_path / name for name in ("all", "data", "whole", "crashed", "aside"))
    aside.mkdir()
    write_input(everything, FILES_FOR_EACH * (CRASHES + 1), rng)
    script = write_script(tmp_path / "whole.cql", everything, whole)
    assert main(["run", str(script), "--engine", "local"]) == 0, "the local engine, which nobody kills, is the judge"
    told = capsys.readouterr().err
    script, checkpoint = write_script(tmp_path / "crashed.cql", data, crashed), tmp_path / "checkpoint of crashed"
    command = run_of(script, checkpoint)
    kills = []
    try:
        for number, aim in enumerate(aims(CRASHES)):
            release(everything, data, FILES_FOR_EACH * (number + 1))
            kills.append(killed(command, checkpoint, crashed, aside, aim, number % 3 == 2, rng))
            with capsys.disabled():
                print(kills[-1])
            if number % 10 == 1 and (files := planned(checkpoint)):
                gone = rng.choice(files)
                gone.rename(tmp_path / gone.name)
                assert ended(command, aside, 1) == f"'{gone}' is gone, and its rows have not been delivered"
                (tmp_path / gone.name).rename(gone)
        release(everything, data, FILES_FOR_EACH * (CRASHES + 1))
        last = max((data / "ask").iterdir())
        last.write_bytes(b"PAR1")
        assert f"'{last}'" in ended(command, aside, 1)
        shutil.copy2(everything / "ask" / last.name, last)
        said = f"{last}, which ended a run, is not what it was: it is read as it is now"
        assert Run(command, aside).finish() == (0, f"{said}\n{told}")
    finally:
        for kill in kills:
            kill.run.kill_group()
    assert results(crashed) == results(whole)
    assert all(results(whole).values()), "every query has results"


def ended(command: Sequence[str | Path], aside: Path, code: int) -> str:
    """Return the message with which a run ends."""
    found, printed = Run(command, aside).finish()
    assert found == code, printed
    return printed.splitlines()[0].partition(" E")[2].partition(": ")[2]


@pytest.mark.spark(own_process=True)
@pytest.mark.skipif(CRASHES <= 4, reason="it takes a minute: make crash runs it")
@pytest.mark.timeout(600 + 120 * CRASHES)
def test_after_kills_what_is_shed_is_what_was_decided_and_the_rest_is_exact(tmp_path: Path) -> None:
    rng, kills = random.Random(SEED), -(-CRASHES // 4)
    data, out, aside, checkpoint = (tmp_path / name for name in ("data", "out", "aside", "checkpoint"))
    aside.mkdir()
    write_input(data, FILES_FOR_EACH * (kills + 2), rng)
    command: list[str | Path] = ["tests.shedding_program", data / "bid", checkpoint, out]
    for number in range(kills):
        killed(command, checkpoint, out, aside, IN_BATCHES[2 * (number % 2)], False, rng).run.kill_group()
    code, printed = Run(command, aside).finish()
    assert code == 0, printed
    end = json.loads(printed.splitlines()[-1])
    windows = _windows(data / "bid")
    exact = Counter(
        (instant, auction, len(prices), sum(prices))
        for instant in range(end["until"] + 1)
        if not any(first <= instant <= last for first, last in end["lost"])
        for auction, prices in windows.get(instant // 2 * 2, {}).items()
    )
    delivered = Counter(
        (row["ts"], row["auction"], row["n"], row["total"])
        for path in out.glob("*.parquet")
        for row in parquet.read_table(path).to_pylist()
    )
    assert delivered == exact
    assert len(end["lost"]) >= 3 and delivered


def _windows(folder: Path) -> dict[int, dict[int, list[int]]]:
    """Return the prices of each auction in each window of two seconds, by its end."""
    found: dict[int, dict[int, list[int]]] = {}
    for path in folder.glob("*.parquet"):
        for row in parquet.read_table(path).to_pylist():
            found.setdefault(-(-row["at"] // 2) * 2, {}).setdefault(row["auction"], []).append(row["price"])
    return found
