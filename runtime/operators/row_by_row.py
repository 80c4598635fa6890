"""Operators that go row by row: what they do with rows is a step, which is also done where rows are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.operators.base import Context, Operator, StepFigures
from runtime.operators.registry import Step, implements, make_step

AnyStep = TypeVar("AnyStep", bound=type[Step])


class RowByRow(Operator):
    """Does its step with each batch; rows keep their lifetimes and weights."""

    def __init__(self, node: op.Operator, context: Context) -> None:
        super().__init__(node, context)
        self.step = make_step(node, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self.step.passed(batch)

    def figures(self) -> Sequence[StepFigures]:
        return self.step.figures()


def row_by_row(kind: type[op.Operator]) -> Callable[[AnyStep], AnyStep]:
    """Return a decorator that registers the step of a kind of operator."""

    def register(step: AnyStep) -> AnyStep:
        implements(kind, step=step)(RowByRow)
        return step

    return register
