"""The demonstration runs to its end, in a pipe, and tells what happened."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.documents import ROOT

pytest.importorskip("pyspark")


@pytest.mark.spark(own_process=True)
def test_the_demonstration_tells_its_story_to_a_pipe() -> None:
    command = [sys.executable, "-m", "examples.demo", "--scale", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures = dict(re.findall(r"^(packets offered|packets read|results of load) +([\d,]+)", done.stdout, re.M))
    assert figures["packets offered"] == figures["packets read"]
    assert int(figures["results of load"].replace(",", "")) > 0
    told = [line for line in done.stdout.splitlines() if line.startswith("==")]
    assert [line.split()[1] for line in told] == ["Calm:", "BURST:", "The"], "every phase is told once"
    assert "\x1b" not in done.stdout, "a pipe gets no colours"
