"""Crashes on Spark: a network that is killed and started again has, in its files, what one without crashes has.

`make crash` kills more often: `CQL_CRASHES` says how often, and `CQL_SEED` chooses other moments.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from repl.cli import main

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.crashes import Run, aims, killed, results, write_input, write_script

CRASHES = int(os.environ.get("CQL_CRASHES", "4"))
SEED = int(os.environ.get("CQL_SEED", "1"))
FILES_FOR_EACH = 3
"""So many that every run is killed before it has read them all."""


@pytest.mark.spark
@pytest.mark.timeout(600 + 120 * CRASHES)
def test_after_kills_at_any_step_the_files_hold_what_a_run_without_kills_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    data, whole, crashed, aside = (tmp_path / name for name in ("data", "whole", "crashed", "aside"))
    aside.mkdir()
    write_input(data, FILES_FOR_EACH * (CRASHES + 1), rng)
    script = write_script(tmp_path / "whole.cql", data, whole)
    assert main(["run", str(script), "--checkpoint", str(tmp_path / "checkpoint of whole")]) == 0
    script, checkpoint = write_script(tmp_path / "crashed.cql", data, crashed), tmp_path / "checkpoint of crashed"
    kills = []
    try:
        for number, aim in enumerate(aims(CRASHES)):
            kills.append(killed(script, checkpoint, crashed, aside, aim, number % 3 == 2, rng))
            print(kills[-1])
        assert Run(script, checkpoint, aside).finish() == (0, "")
    finally:
        for kill in kills:
            kill.run.kill_group()
    assert results(crashed) == results(whole)
    assert all(results(whole).values()), "every query has results"
