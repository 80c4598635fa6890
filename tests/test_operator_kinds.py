"""A kind of operator is one node that describes itself, and one implementation; hardly anybody else knows its name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from planner import operators as op
from planner.operators.node import Operator
from runtime.operators.registry import IMPLEMENTATIONS
from tests.test_layering import MODULES, ROOT

MOST_FILES = 4
"""In how many product files a kind may be named: its node, what builds it, what does its work, and one more."""

EXCEPTIONS = {
    "Source": "plans begin there: whoever feeds one asks for its sources, their tables and clocks",
    "Output": "plans end there: whoever delivers results asks for the output of a query",
}
"""Kinds that more files name, and why."""

QUESTIONS = (
    "headline",
    "estimate",
    "facts",
    "synopses",
    "ends_are_final",
    "is_netted",
    "loses_soundly",
)
"""What every kind answers for itself, or with the kinds that it is like; `Operator` has no answer to these."""


def of_kind(node: type[op.Operator]) -> str:
    return str(node.model_fields["kind"].default)


@cache
def _tree(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def classes_named(module: Path) -> Iterator[str]:
    """The names that a module takes from `planner.operators`, or defines there."""
    aliases: set[str] = set()
    for node in ast.walk(_tree(module)):
        match node:
            case ast.ImportFrom(module="planner", names=names):
                aliases |= {each.asname or each.name for each in names if each.name == "operators"}
            case ast.ImportFrom(module=str(name), names=names) if name.startswith("planner.operators"):
                yield from (each.name for each in names)
            case ast.ClassDef(name=name) if module.is_relative_to("planner/operators"):
                yield name
            case _:
                pass
    for node in ast.walk(_tree(module)):
        match node:
            case ast.Attribute(value=ast.Name(id=alias), attr=name) if alias in aliases:
                yield name
            case _:
                pass


def kinds_named(module: Path) -> Iterator[str]:
    """The kinds that a module compares `.kind` with, and those whose names are no common words anywhere."""
    for node in ast.walk(_tree(module)):
        match node:
            case ast.Compare(left=ast.Attribute(attr="kind"), comparators=[ast.Constant(value=str(kind))]):
                yield kind
            case ast.Constant(value=str(kind)) if re.fullmatch(r"\w+(-\w+)+|\w+join", kind):
                yield kind
            case _:
                pass


def files_by_kind() -> dict[str, list[str]]:
    """The product files that name each kind of operator, by the names of their classes."""
    found: dict[str, list[str]] = defaultdict(list)
    by_kind = {of_kind(node): node.__name__ for node in op.OPERATOR_TYPES}
    for module in MODULES:
        names = {*classes_named(module), *(by_kind[kind] for kind in kinds_named(module) if kind in by_kind)}
        for name in names & set(by_kind.values()):
            found[name].append(str(module))
    return found


def test_hardly_any_file_names_a_kind() -> None:
    files = files_by_kind()
    for node in op.OPERATOR_TYPES:
        print(f"{node.__name__:20} {len(files[node.__name__])}  {', '.join(files[node.__name__])}")
    too_many = {name: found for name, found in files.items() if len(found) > MOST_FILES}
    assert set(too_many) == set(EXCEPTIONS), too_many


@pytest.mark.parametrize("node", op.OPERATOR_TYPES, ids=of_kind)
def test_a_kind_leaves_no_question_open(node: type[op.Operator]) -> None:
    open_questions = [question for question in QUESTIONS if getattr(node, question) is getattr(Operator, question)]
    assert not open_questions, f"{node.__name__} does not say: {open_questions}"
    undeclared = [name for name in _class_variables(node) if not hasattr(node, name)]
    assert not undeclared, f"{node.__name__} does not say: {undeclared}"
    assert node.__doc__ and node.__doc__ not in [base.__doc__ for base in node.__bases__], "a kind says what it does"


def _class_variables(node: type[op.Operator]) -> Iterator[str]:
    for each in node.__mro__:
        yield from (name for name, kind in getattr(each, "__annotations__", {}).items() if "ClassVar" in str(kind))


def test_the_questions_are_those_that_nobody_answers_for_all() -> None:
    source = ast.parse((ROOT / "planner/operators/node.py").read_text(encoding="utf-8"))
    (base,) = (each for each in source.body if isinstance(each, ast.ClassDef) and each.name == "Operator")
    methods = [each for each in base.body if isinstance(each, ast.FunctionDef)]
    assert {each.name for each in methods if isinstance(each.body[-1], ast.Raise)} == set(QUESTIONS)


def test_every_kind_but_sources_is_implemented() -> None:
    assert set(IMPLEMENTATIONS) == set(op.OPERATOR_TYPES) - {op.Source}


def test_what_goes_row_by_row_can_do_so_anywhere() -> None:
    assert [node for node, made in IMPLEMENTATIONS.items() if made.make_step] == [
        node for node in IMPLEMENTATIONS if node.is_row_by_row
    ]


def test_kinds_have_different_names() -> None:
    kinds = [of_kind(node) for node in op.OPERATOR_TYPES]
    assert len(kinds) == len(set(kinds))
