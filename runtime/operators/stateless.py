"""Select, project, union: linear, and without state; rows keep their lifetimes and weights."""

from __future__ import annotations

from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.expressions.filters import Filter
from runtime.operators.base import Context, Operator, evaluate_all


class Select(Operator):
    """Passes the rows for which all predicates are true."""

    def __init__(self, node: op.Select, context: Context) -> None:
        super().__init__(node, context)
        self.filter = Filter(node.predicates, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return batch.filter(self.filter.holds(batch.columns, len(batch))) if len(batch) else batch


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
