"""Documents tell the truth: every fenced block is run or checked, every table of instants worked out, every link
followed. `tests/documents.py` says what is done with which kind of block."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.language_page import PARTS, generated_parts, with_generated_parts

LANGUAGE = ROOT / "docs" / "language.md"
PATHS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def document(path: Path) -> Document:
    return Document(path)


EVERY_BLOCK = [
    pytest.param(path, at, id=f"{path.name}:{block.line}-{block.language}")
    for path in PATHS
    for at, block in enumerate(document(path).blocks)
]
every_document = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)


@pytest.mark.parametrize(("path", "at"), EVERY_BLOCK)
def test_a_block_does_what_the_document_says(path: Path, at: int) -> None:
    found = document(path)
    problem = found.problem(at)
    if problem:
        pytest.fail(f"{found.name}:{found.blocks[at].line}\n{problem}", pytrace=False)


@every_document
def test_every_fence_is_part_of_a_block(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert sum(line.lstrip().startswith("```") for line in text.splitlines()) == 2 * len(document(path).blocks)


@every_document
def test_commands_in_sentences_exist(path: Path) -> None:
    problem = first_problem(map(command_problem, inline_commands(path.read_text(encoding="utf-8"))))
    assert not problem, problem


@every_document
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.golden
@every_document
def test_worked_instants_and_generated_tables_are_up_to_date(
    path: Path, request: pytest.FixtureRequest
) -> None:
    found = document(path)
    for at in range(len(found.blocks)):
        found.problem(at)
    right = with_generated_parts(found.with_answers())
    if request.config.getoption("--update-golden"):
        path.write_bytes(right.encode())
        return
    problem = difference(found.text, right, found.name, "the code")
    if problem:
        pytest.fail(f"{problem}\n\nIf the new text is right, `make golden` writes it.", pytrace=False)


def test_the_language_page_has_all_generated_parts() -> None:
    assert generated_parts(LANGUAGE.read_text(encoding="utf-8")) == list(PARTS)
