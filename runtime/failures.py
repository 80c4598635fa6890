"""What can go wrong while a query runs and is not the engine's fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class UserFunctionFailed(Exception):
    """Code of a user that raised, or returned what is no value of its type; it ends the run.

    As far as that is known, `values` are those of the row that triggered it, in the order of its columns, and
    `operator` is where in the plan it happened.
    """

    def __init__(self, function: str, arguments: Sequence[Any], cause: Exception) -> None:
        super().__init__(function, arguments, cause)
        self.function = function
        self.arguments = tuple(arguments)
        self.cause = cause
        self.values: tuple[Any, ...] = ()
        self.operator: str | None = None

    def __str__(self) -> str:
        given = ", ".join(map(repr, self.arguments))
        return f"{self.function}({given}) failed: {type(self.cause).__name__}: {self.cause}"
