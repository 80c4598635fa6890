"""Paths of files beside a script: what `SET paths_from = script` does to a statement.

Relative paths in a statement become absolute ones that start at the script's folder. Later phases see paths only, and
need not know of scripts. This module does not look at any file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cql import ast
from cql.source import SourceText

S = TypeVar("S", bound=ast.Statement)
E = TypeVar("E", ast.SourceSpec, ast.SinkSpec)

_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:")
"""How a URL begins; those of files, `file:`, are absolute."""

_WITH_SOURCE = (ast.CreateStream, ast.CreateRelation, ast.RegisterTable)


def script_folder(source: SourceText) -> Path | None:
    """Return the folder of a script; None for a text that is no file, such as `<stdin>`."""
    return None if source.name.startswith("<") else Path(source.name).absolute().parent


def beside_script(statement: S, folder: Path) -> S:
    """Return a statement whose relative paths start at a folder."""
    if isinstance(statement, _WITH_SOURCE) and statement.source is not None:
        return replace(statement, source=_placed(statement.source, folder))
    if isinstance(statement, ast.RegisterQuery) and statement.sink is not None:
        return replace(statement, sink=_placed(statement.sink, folder))
    return statement


def _placed(external: E, folder: Path) -> E:
    return replace(external, options=tuple(_absolute(option, folder) for option in external.options))


def _absolute(option: ast.Option, folder: Path) -> ast.Option:
    value = option.value
    if option.key.key != "path" or not isinstance(value, ast.String) or _SCHEME.match(value.value):
        return option
    return replace(option, value=replace(value, value=str(folder / value.value)))
