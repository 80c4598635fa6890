"""Select, project, union: linear, and without state; rows keep their lifetimes and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner import operators as op
from planner.text import expression_text
from runtime.columns.batch import ChangeBatch
from runtime.expressions.filters import Filter
from runtime.operators.base import Context, Operator, StepFigures, evaluate_all


class Selection:
    """The predicates of a select, in an operator or where rows are read."""

    def __init__(self, node: op.Select, functions: Mapping[str, Any]) -> None:
        self.filter = Filter(node.predicates, functions)
        names = [column.name for column in node.columns]
        self._texts = [expression_text(predicate, names) for predicate in node.predicates]

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        """Return the rows for which all predicates are true."""
        return batch.filter(self.filter.holds(batch.columns, len(batch))) if len(batch) else batch

    def figures(self) -> list[StepFigures]:
        """Return what the predicates have done, if there are several."""
        if len(self._texts) == 1:
            return []
        return [
            StepFigures(f"predicate {at + 1}", "predicate", text, own.rows_in, own.rows_out, own.seconds)
            for at, (text, own) in enumerate(zip(self._texts, self.filter.figures, strict=True))
        ]


class Select(Operator):
    """Passes the rows for which all predicates are true."""

    def __init__(self, node: op.Select, context: Context) -> None:
        super().__init__(node, context)
        self.selection = Selection(node, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self.selection.passed(batch)

    def figures(self) -> Sequence[StepFigures]:
        return self.selection.figures()


class Project(Operator):
    """Computes expressions of each row."""

    def __init__(self, node: op.Project, context: Context) -> None:
        super().__init__(node, context)
        self._evaluate = evaluate_all(node.items, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return batch.with_columns(self._evaluate(batch.columns, len(batch)))


class Union(Operator):
    """Passes the rows of both inputs."""

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return batch.with_until(self.until)
