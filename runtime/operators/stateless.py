"""Select, project, union: linear, and without state; rows keep their lifetimes and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cql.bound.text import expression_text
from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.expressions.filters import Filter
from runtime.operators.base import Operator, StepFigures, evaluate_all
from runtime.operators.registry import Step, implements
from runtime.operators.row_by_row import row_by_row


@row_by_row(op.Select)
class Selection(Step):
    """Passes the rows for which all predicates are true."""

    def __init__(self, node: op.Select, functions: Mapping[str, Any]) -> None:
        self.filter = Filter(node.predicates, functions)
        names = [column.name for column in node.columns]
        self._texts = [expression_text(predicate, names) for predicate in node.predicates]

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        return batch.filter(self.filter.holds(batch.columns, len(batch))) if len(batch) else batch

    def figures(self) -> Sequence[StepFigures]:
        """Return what the predicates have done, if there are several."""
        if len(self._texts) == 1:
            return []
        return [
            StepFigures(f"predicate {at + 1}", "predicate", text, own.rows_in, own.rows_out, own.seconds)
            for at, (text, own) in enumerate(zip(self._texts, self.filter.figures, strict=True))
        ]

    def count_anew(self) -> None:
        self.filter.count_anew()


@row_by_row(op.Project)
class Projection(Step):
    """Computes expressions of each row."""

    def __init__(self, node: op.Project, functions: Mapping[str, Any]) -> None:
        self._evaluate = evaluate_all(node.items, functions)

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        return batch.with_columns(self._evaluate(batch.columns, len(batch)))


@implements(op.Union)
class Union(Operator):
    """Passes the rows of both inputs."""

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return batch.with_until(self.until)
