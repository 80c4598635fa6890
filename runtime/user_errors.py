"""What can go wrong while a query runs and is not the engine's fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cql import bound
from cql.catalog import QueryDef
from cql.errors import Code, CqlError, Diagnostic, fail
from cql.sizes import size_text
from cql.source import NO_SPAN, Span
from planner.plan import Plan

Places = Mapping[tuple[str, str], Span]
"""Where in a script ("table", name) and ("query", name) are defined."""

NOWHERE: Places = MappingProxyType({})


@contextmanager
def placed(place: Span) -> Iterator[None]:
    """Give errors that point nowhere a place in the script."""
    try:
        yield
    except CqlError as error:
        if error.source is not None or place == NO_SPAN:
            raise
        moved = [replace(each, span=place) if each.span == NO_SPAN else each for each in error.diagnostics]
        raise CqlError(moved) from None


class UserFunctionFailed(Exception):
    """Code of a user that raised, or returned what is no value of its type; it ends the run.

    As far as that is known, `values` are those of the row that triggered it, and `operator` is where in the plan it
    happened; `columns` are the names of the values, if they are not those of that operator's inputs.
    """

    def __init__(self, function: str, arguments: Sequence[Any], cause: Exception) -> None:
        super().__init__(function, arguments, cause)
        self.function = function
        self.arguments = tuple(arguments)
        self.cause = cause
        self.values: tuple[Any, ...] = ()
        self.operator: str | None = None
        self.columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = ", ".join(map(repr, self.arguments))
        return f"{self.function}({given}) failed: {type(self.cause).__name__}: {self.cause}"


class RemovalFailed(CqlError):
    """The log of a table removes a row that is not there, and bad rows end the run."""

    def __init__(self, diagnostics: Sequence[Diagnostic], table: str) -> None:
        super().__init__(diagnostics)
        self.table = table

    def placed(self, places: Places) -> CqlError:
        """Return the error with the place where the table is defined."""
        place = places.get(("table", self.table.casefold()), NO_SPAN)
        return CqlError([replace(each, span=place) for each in self.diagnostics])


class MemoryExceeded(Exception):
    """What queries keep takes more memory than it may; it ends the run. `operator` has most of it."""

    def __init__(self, operator: str, own: int, used: int, limit: int) -> None:
        super().__init__(operator, own, used, limit)
        self.operator, self.own, self.used, self.limit = operator, own, used, limit


def too_much_memory(failure: MemoryExceeded, plan: Plan, places: Places = NOWHERE) -> CqlError:
    """Return the error that names the queries and the operator that keep too much."""
    names = [query for query in plan.queries if failure.operator in plan.part(query).ids]
    place = places.get(("query", names[0].casefold()), NO_SPAN) if names else NO_SPAN
    who = f"{'query' if len(names) == 1 else 'queries'} {', '.join(names)}"
    own, used = (f"{size / 2**20:,.0f} MB" for size in (failure.own, failure.used))
    return fail(
        Code.TOO_MUCH_MEMORY,
        f"{who}: what is kept takes {used}, {own} of it for {failure.operator}, "
        f"and {size_text(failure.limit)} is the most",
        place,
        hint="count or group what is joined, shorten the windows, or SET max_memory to more",
    )


def callers(queries: Sequence[QueryDef]) -> dict[str, list[str]]:
    """Return the names of the queries that call each function or aggregate of the user."""
    found: dict[str, list[str]] = {}
    for query in queries:
        for function in sorted(_called(query.tree)):
            found.setdefault(function, []).append(query.name)
    return found


def explained(
    failure: UserFunctionFailed, users: Mapping[str, Sequence[str]], plan: Plan | None, places: Places = NOWHERE
) -> CqlError:
    """Return the error that names the queries whose function failed, and the row as far as it is known."""
    names = users.get(failure.function.partition(".")[0], ())
    place = places.get(("query", names[0].casefold()), NO_SPAN) if names else NO_SPAN
    who = f"{'query' if len(names) == 1 else 'queries'} {', '.join(names)}"
    return fail(
        Code.FUNCTION_FAILED,
        f"{who}: {failure}{_row_text(failure, plan)}",
        place,
        hint="return None where there is no value, and a value of the declared type elsewhere",
    )


def _row_text(failure: UserFunctionFailed, plan: Plan | None) -> str:
    """Return in words the row that made a function fail; nothing if it is not known."""
    names = failure.columns
    if plan is not None and failure.operator in plan.by_id:
        inputs = plan.by_id[failure.operator].inputs
        names = tuple(column.name for edge in inputs for column in plan.by_id[edge.operator].columns)
    if not names or len(names) != len(failure.values):
        return ""
    row = zip(names, failure.values, strict=True)
    return ", on the row " + ", ".join(f"{name} = {value!r}" for name, value in row)


def _called(rel: bound.Rel) -> set[str]:
    """Return the names of the users' functions and aggregates that a query calls."""
    parts = (part for each in bound.expressions(rel) for part in bound.walk(each))
    names = {part.function for part in parts if isinstance(part, bound.UserCall)}
    if isinstance(rel, bound.Aggregate):
        names |= {call.function for call in rel.calls if call.user_defined}
    return names.union(*map(_called, bound.inputs(rel)))
