"""Orders of probes and of predicates that are others for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from runtime.engine.executor import Executor
from runtime.operators.joins import InnerJoin
from runtime.operators.row_by_row import RowByRow
from runtime.operators.stateless import Selection


class RandomProbes:
    """Another probing order for each batch."""

    def __init__(self, rng: Random, inputs: int) -> None:
        self._rng = rng
        self._inputs = inputs

    def order(self, port: int) -> Sequence[int]:
        others = [other for other in range(self._inputs) if other != port]
        return self._rng.sample(others, len(others))


class RandomPredicates:
    """Another order of predicates for each batch."""

    def __init__(self, rng: Random, predicates: int) -> None:
        self._rng = rng
        self._predicates = predicates

    def order(self) -> Sequence[int]:
        return self._rng.sample(range(self._predicates), self._predicates)


def take_random_orders(executor: Executor, rng: Random) -> None:
    """Let all joins and filters work in random orders."""
    for operator in executor.operators.values():
        if isinstance(operator, InnerJoin):
            operator.matcher.probing_order = RandomProbes(rng, len(operator.matcher.inputs))
        elif isinstance(operator, RowByRow) and isinstance(operator.step, Selection):
            found = operator.step.filter
            found.order = RandomPredicates(rng, len(found.figures))
