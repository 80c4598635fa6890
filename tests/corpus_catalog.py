"""Catalogs of the corpus: everything that a script defines, with stand-ins for the functions of its users."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import cql
from tests.test_corpus import CORPUS, needed_functions


@cache
def corpus_catalog(path: Path) -> cql.Catalog:
    """Return what a script of the corpus defines."""
    text = path.read_text(encoding="utf-8")
    catalog = cql.Catalog()
    for needed in needed_functions(text):
        catalog.function(_stand_in, name=needed.name, arguments=needed.arguments, returns=needed.returns)
    catalog.execute(text, path.relative_to(CORPUS).as_posix())
    return catalog


def golden_name(folder: str, path: Path) -> str:
    """Return the name of a script's golden file."""
    relative = path.relative_to(CORPUS)
    return f"{folder}/{relative.parent.as_posix()}/{relative.name}.txt"


def _stand_in(*arguments: object) -> None:
    raise AssertionError("golden tests call no functions")
