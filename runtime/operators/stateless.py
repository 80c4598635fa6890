"""Select, project, union: linear, and without state; rows keep their lifetimes and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.expressions import compile_predicate
from runtime.operators.base import Context, Operator, evaluate_all
from runtime.operators.registry import Step, implements


def _selecting(node: op.Select, functions: Mapping[str, Any]) -> Step:
    holds = compile_predicate(node.predicates, functions)
    return lambda batch: batch.filter(holds(batch.columns, len(batch)))


def _projecting(node: op.Project, functions: Mapping[str, Any]) -> Step:
    items = evaluate_all(node.items, functions)
    return lambda batch: batch.with_columns(items(batch.columns, len(batch)))


@implements(op.Select, step=_selecting)
class Select(Operator):
    """Passes the rows for which all predicates are true."""

    def __init__(self, node: op.Select, context: Context) -> None:
        super().__init__(node, context)
        self._step = _selecting(node, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self._step(batch) if len(batch) else batch


@implements(op.Project, step=_projecting)
class Project(Operator):
    """Computes expressions of each row."""

    def __init__(self, node: op.Project, context: Context) -> None:
        super().__init__(node, context)
        self._step = _projecting(node, context.functions)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self._step(batch)


@implements(op.Union)
class Union(Operator):
    """Passes the rows of both inputs."""

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return batch.with_until(self.until)
