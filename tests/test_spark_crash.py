"""Crashes on Spark: a network that is killed and started again has, in its files, what one without crashes has.

`make crash` kills more often; `CQL_CRASHES` says how often.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.crashes import Run, aims, killed, results, write_input, write_script

CRASHES = int(os.environ.get("CQL_CRASHES", "4"))
FILES_FOR_EACH = 5
"""Enough micro-batches for every run to be killed in one of its first."""


@pytest.mark.spark
@pytest.mark.timeout(600 + 120 * CRASHES)
@pytest.mark.parametrize("seed", [int(os.environ.get("CQL_SEED", "1"))])
def test_after_kills_at_any_step_the_files_hold_what_a_run_without_kills_writes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data, whole, crashed = tmp_path / "data", tmp_path / "whole", tmp_path / "crashed"
    write_input(data, FILES_FOR_EACH * (CRASHES + 1), rng)
    aside = tmp_path / "aside"
    aside.mkdir()
    assert Run(write_script(tmp_path / "whole.cql", data, whole), tmp_path / "1", aside).finish() == (0, "")
    script, checkpoint = write_script(tmp_path / "crashed.cql", data, crashed), tmp_path / "2"
    for number, aim in enumerate(aims(CRASHES)):
        print(killed(script, checkpoint, crashed, aim, number % 3 == 2, rng))
    assert Run(script, checkpoint, aside).finish() == (0, "")
    assert results(crashed) == results(whole)
