"""Documents tell the truth: every fenced block is run or checked, every table of instants worked out, every
link followed. `tests/documents.py` says what is done with which kind of block."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.documents import (
    ROOT,
    Document,
    broken_links,
    command_problem,
    difference,
    first_problem,
    inline_commands,
)
from tests.generated_tables import PARTS, generated_parts, with_generated_parts
from tests.test_spark_corpora import netted

PATHS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@cache
def document(path: Path) -> Document:
    return Document(path)


def needs_spark(path: Path, at: int | None = None) -> list[pytest.MarkDecorator]:
    """Return the mark of blocks that run on Spark, and of those after them: blocks run from top to bottom.

    Without a block, it is that of the document.
    """
    before = document(path).blocks[: None if at is None else at + 1]
    return [pytest.mark.spark] if any(block.needs_spark for block in before) else []


EVERY_BLOCK = [
    pytest.param(path, at, id=f"{path.relative_to(ROOT)}:{block.line}-{block.language}", marks=needs_spark(path, at))
    for path in PATHS
    for at, block in enumerate(document(path).blocks)
]
every_document = pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))


@pytest.mark.parametrize(("path", "at"), EVERY_BLOCK)
def test_a_block_does_what_the_document_says(path: Path, at: int, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    found = document(path)
    problem = found.problem(at)
    if problem:
        pytest.fail(f"{found.name}:{found.blocks[at].line}\n{problem}", pytrace=False)


ON_SPARK = [
    pytest.param(path, at, id=f"{path.relative_to(ROOT)}:{block.line}")
    for path in PATHS
    for at, block in enumerate(document(path).blocks)
    if block.runs_on_spark
]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("path", "at"), ON_SPARK)
def test_scripts_that_are_shown_on_spark_give_the_answers_of_the_local_engine(path: Path, at: int) -> None:
    found = Document(path)
    for before in range(at):
        found.problem(before)
    for words in found.blocks[at].runs_on_spark:
        printed = found.printed([*words, "--output", "jsonl"])
        expected = found.printed(["run", words[1], "--engine", "local", "--output", "jsonl"])
        assert netted(printed) == netted(expected) != {}


@every_document
def test_every_fence_is_part_of_a_block(path: Path) -> None:
    fences = re.findall(r"^\s*(?:```|~~~)", document(path).text, re.MULTILINE)
    assert len(fences) == 2 * len(document(path).blocks)


@every_document
def test_only_what_cannot_be_run_is_not_run(path: Path) -> None:
    """Blocks that are not run are marked so. They are programs for a cluster, and commands that tests cannot run."""
    not_run = [block for block in document(path).blocks if {"shown", "submitted"} & {*block.words}]
    for block in not_run:
        assert block.words == ("python", "submitted") or (block.language == "sh" and not block.is_runnable), (
            f"{path.name}:{block.line} could be run"
        )


@every_document
def test_commands_in_sentences_exist(path: Path) -> None:
    problem = first_problem(map(command_problem, inline_commands(path.read_text(encoding="utf-8"))))
    assert not problem, problem


@every_document
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_the_index_lists_every_page_once() -> None:
    index = ROOT / "docs" / "README.md"
    linked = re.findall(r"^\d+\. \[[^]]+\]\(([\w-]+\.md)\)", index.read_text("utf-8"), re.MULTILINE)
    assert sorted(linked) == sorted(path.name for path in index.parent.glob("*.md") if path != index)
    assert (ROOT / "README.md").read_text("utf-8").count("](docs/README.md)") == 1


@pytest.mark.golden
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(ROOT)), marks=needs_spark(path)) for path in PATHS]
)
def test_generated_tables_are_up_to_date(path: Path, request: pytest.FixtureRequest) -> None:
    found = document(path)
    if request.config.getoption("--update-golden"):
        if request.node.get_closest_marker("spark"):
            request.getfixturevalue("spark")
        right = with_generated_parts(found.with_answers())
        if right != found.text:
            path.write_bytes(right.encode())
    else:
        problem = difference(found.text, with_generated_parts(found.text), found.name, "the code")
        if problem:
            pytest.fail(f"{problem}\n\n`make golden` writes it anew.", pytrace=False)


def test_the_documents_have_all_generated_parts() -> None:
    assert sorted(part for path in PATHS for part in generated_parts(document(path).text)) == sorted(PARTS)


# The checks check

TABLE = "```instants\nREGISTER STREAM S (v INT);\n\n"
WRONG = {
    "unknown fence": ("```rust\nfn main() {}\n```", "nobody knows how to check ```rust"),
    "unknown word": ("```sql maybe\nSELECT 1;\n```", "fresh, or error and a code"),
    "sql": ("```sql\nSELECT v FROM nowhere;\n```", "E201"),
    "sql without its error": ("```sql error E401\nSET range_bounds = closed;\n```", "it does not fail"),
    "sql with another error": ("```sql error E401\nSELECT v FROM nowhere;\n```", "has to fail with E401"),
    "run that fails": ("```sql run\nSELECT v FROM nowhere;\n```", "E201"),
    "run that prints": (
        "```sql run\nCREATE RELATION R (s STRING, d DOUBLE, t INT) FROM csv OPTIONS (path 'readings.csv', header true);"
        "\nSELECT SUM(t) AS n FROM R;\n```\n```text\nq1 (relation)\nts     n\n 0  +  8\n```",
        "+ 0  +  7",
    ),
    "stream": ("```stream\nSELECT v FROM S;\n```", "not recognised"),
    "python": ("```python\nassert 1 == 2\n```", "AssertionError"),
    "python for a cluster": ("```python submitted\nassert 1 = 2\n```", "SyntaxError"),
    "printed": ("```python\nprint(1)\n```\n```text\n2\n```", "+1"),
    "text alone": ("```text\nanything\n```", "not printed by the block before it"),
    "text far below": ("```python\nprint(1)\n```\nwords\n```text\n1\n```", "not printed by the block before it"),
    "typed": ("```repl\ncql> SET sharing = off;\nsharing = on\n```", "+sharing = off"),
    "transcript": ("```console\n$ cql check\nfine\n```", "-fine"),
    "command": ("```sh\n.venv/bin/cql chekc a.cql\n```", "no command chekc"),
    "command on two lines": ("```sh\ncql check \\\n  --fast a.cql\n```", "no option --fast"),
    "option": ("```sh\ncql check --fast a.cql\n```", "no option --fast"),
    "file": ("```sh\ncql check tests/corpus/none.cql\n```", "no tests/corpus/none.cql"),
    "target": ("```sh shown\nmake tset  # all tests\n```", "no tset"),
    "command that fails": ("```sh\ncql check bids.csv\n```", "this ends with 1"),
    "program that fails": ("```sh\nfalse | true\n```", "this ends with 1"),
    "command that prints": ("```sh\nhead -1 bids.csv\n```\n```text\nauction\n```", "+auction,price,at"),
    "command that has to fail": (
        "```sh\necho 'x.cql:1:1: E101: no'\n```\n```text\nx.cql:1:1: E101: no\n```",
        "this ends with 0",
    ),
    "command that cannot be run": ("```sh\nmake test\n```", "mark it ```sh shown"),
    "command that starts Spark": ("```sh\ncql run a.cql\n```", "mark it ```sh shown"),
    "syntax": ("```syntax\nSELECT .. FORM ..\n```", "no FORM"),
    "contents": (TABLE + "at | S | S [Rows 1]\n1 | 5 | 6\n```", "+  1 | 5 | 5"),
    "missing instant": (TABLE + "at | S | S [Now]\n1 | 5 | 5\n3 | 6 | 6\n```", "+  2 | - | -"),
    "no table": (TABLE + "```", "there is no table"),
    "no data": (TABLE + "at | S [Now]\n1 | 5\n```", "no column for the input S"),
    "no query": (TABLE + "at | S\n1 | 5\n```", "no column of this table is a query"),
    "wrong row": (TABLE + "at | S | S [Now]\n1 | (5,6) | -\n```", "S has 1 columns"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.spark] if case == "transcript" else []) for case in WRONG]
)
def test_what_is_wrong_in_a_document_is_found(case: str, tmp_path: Path) -> None:
    text, complaint = WRONG[case]
    path = tmp_path / "page.md"
    path.write_text(f"{text}\n")
    page = Document(path)
    problems = [problem for at in range(len(page.blocks)) if (problem := page.problem(at))]
    assert len(problems) == 1
    assert complaint in problems[0]


def test_blocks_share_a_catalog_and_names_unless_they_are_fresh(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "```sql\nREGISTER STREAM S (v INT);\n```\n"
        "```python\ndef twice(v: int) -> int:\n    return 2 * v\n\ncatalog.function(twice)\n```\n"
        "```python\nassert twice(2) == 4 and list(catalog.streams) == ['s']\n```\n"
        "```sql\nSELECT twice(v) FROM S;\n```\n"
        "```sql fresh\nREGISTER STREAM S (w INT);\n```\n"
        "```instants\nREGISTER STREAM S (v INT);\n\nat | S | SELECT twice(v) FROM S\n3 | 4 5\n```\n"
    )
    page = Document(path)
    assert [page.problem(at) for at in range(5)] == [None] * 5
    assert page.with_answers().splitlines()[-2:] == ["  3 | 4 5 | 8 10", "```"]
