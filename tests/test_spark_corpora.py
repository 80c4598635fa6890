"""Spark on inputs and answers that this project did not write, through the command line with its default engine.

Each case of STREAM is a script of its own. The queries of NEXMark read the same tables, so they run as one network.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from repl import cli
from tests.test_corpus import CORPUS, needed_functions
from tests.test_definition_corpora import CORPORA, STREAM_CASES, corpora_are_there, nexmark_answer, nexmark_query
from tests.test_engine_corpora import final_contents, reads_elsewhere, stream_result, stream_script

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


def all_of_nexmark() -> str:
    """Return a script with the queries of all scripts for which the corpora have what they read."""
    statements: dict[str, None] = {}
    for path in sorted((CORPUS / "nexmark").glob("*.cql")):
        text = path.read_text("utf-8")
        if not needed_functions(text) and not reads_elsewhere(path):
            parts = re.sub(r"--.*", "", text).split(";")
            statements |= dict.fromkeys(part.strip() for part in parts if part.strip())
    return ";\n".join(statements)


def netted(lines: str) -> Counter[tuple[str, str, str]]:
    """Return how often each row comes or goes, by query and instant."""
    found: Counter[tuple[str, str, str]] = Counter()
    for change in map(json.loads, lines.splitlines()):
        found[change["query"], change["ts"], json.dumps(change["row"])] += int(f"{change['op']}1")
    return Counter({change: count for change, count in found.items() if count})


def test_nexmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(CORPORA / "nexmark")
    script = all_of_nexmark()
    monkeypatch.chdir(tmp_path)
    for path in (CORPORA / "nexmark").glob("*.csv"):
        shutil.copy(path, tmp_path)
    Path("nexmark.cql").write_text(script)
    printed, told = {}, {}
    for engine in ("spark", "local"):
        options = [] if engine == "spark" else ["--engine", engine]
        assert cli.main(["run", "nexmark.cql", "--output", "jsonl", *options]) == 0
        printed[engine], told[engine] = capsys.readouterr()
    assert told["spark"] == told["local"]
    assert {line.split(":")[0] for line in told["spark"].splitlines()} == {"q5_sliding", "q7", "q8"}
    for name in ("q0", "q1", "q2", "q3", "q4", "q5"):
        schema = nexmark_query(name, name).schema
        assert final_contents(printed["spark"], name, schema) == nexmark_answer(name, schema), name
    found = netted(printed["spark"])
    assert found == netted(printed["local"])
    assert len({query for query, _, _ in found}) > 12
