"""Spark on inputs and answers that this project did not write, through the command line with its default engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from repl import cli
from tests.test_corpus import CORPUS
from tests.test_definition_corpora import CORPORA, STREAM_CASES, corpora_are_there, nexmark_answer, nexmark_query
from tests.test_engine_corpora import final_contents, stream_result, stream_script

__all__ = ["corpora_are_there"]

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("case", STREAM_CASES)
def test_stream_case(case: int, tmp_path: Path) -> None:
    script, dest = tmp_path / "case.script", tmp_path / "case.out"
    script.write_text(stream_script(case, dest))
    assert cli.main(["run", str(script)]) == 0
    found, expected = stream_result(dest), stream_result(CORPORA / "stream" / "expected" / f"test{case}.out")
    last = max(found)
    assert max(expected) <= last
    if last not in expected:
        found.pop(last)
    assert found == expected


@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q3", "q4", "q5"])
def test_nexmark_answer(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(CORPORA / "nexmark")
    assert cli.main(["run", str(CORPUS / "nexmark" / f"{name}.cql"), "--output", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    schema = nexmark_query(name, name).schema
    assert final_contents(out, name, schema) == nexmark_answer(name, schema)
