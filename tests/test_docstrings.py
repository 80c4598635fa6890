"""The examples in docstrings show what really happens."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cql", "planner", "runtime", "shedding", "repl", "benchmarks", "tools", "tests")


def modules_with_examples() -> list[str]:
    """Return the names of all modules that have an example in a docstring."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if any(line.lstrip().startswith(">>> ") for line in path.read_text().splitlines()):
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_are_right(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted and not outcome.failed
