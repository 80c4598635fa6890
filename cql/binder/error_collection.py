"""Reporting several independent mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from cql.errors import CqlError, Diagnostic

A = TypeVar("A")
T = TypeVar("T")


def gather(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of all tasks; if some of them fail, raise all of their diagnostics together."""
    results: list[T] = []
    problems: dict[tuple[object, ...], Diagnostic] = {}
    for task in tasks:
        try:
            results.append(task())
        except CqlError as error:
            for diagnostic in error.diagnostics:
                problems.setdefault((diagnostic.code, diagnostic.span, diagnostic.message), diagnostic)
    if problems:
        raise CqlError(sorted(problems.values(), key=lambda diagnostic: diagnostic.span))
    return results


def each(function: Callable[[A], T], items: Iterable[A]) -> list[T]:
    """Return what a function gives for each item; if it fails for some, raise all of their diagnostics."""
    return gather([partial(function, item) for item in items])
