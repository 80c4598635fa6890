"""Runs plans on the engine, on inputs given as lists of elements, cut into batches at random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from planner import operators as op
from planner.plan import Plan
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import ChangeBatch
from runtime.engine.executor import Executor
from tests.definition.evaluator import Element, Result
from tests.definition.values import fit


def to_column(values: Sequence[Any], column: op.OutputColumn) -> pa.Array:
    """Return values of the definition as an Arrow column."""
    fitted = [fit(value, column.type) for value in values]
    target = arrow_type(column.type)
    if pa.types.is_timestamp(target) or pa.types.is_duration(target):
        return pa.array(fitted, pa.int64()).cast(target)
    return pa.array(fitted, target)


def from_column(column: pa.Array) -> list[Any]:
    """Return an Arrow column as values of the definition."""
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return [_canonical(value) for value in column.to_pylist()]


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    return value if not isinstance(value, Decimal) else Decimal(value)


def to_batch(source: op.Source, elements: Sequence[Element], until: int) -> ChangeBatch:
    """Return elements, sorted by instant, as a batch."""
    rows = [row for _, row, _ in elements]
    columns = tuple(to_column([row[at] for row in rows], column) for at, column in enumerate(source.columns))
    start = np.array([instant for instant, _, _ in elements], np.int64)
    weight = np.array([sign for _, _, sign in elements], np.int64) if source.is_relation else None
    return ChangeBatch(columns, start, None, weight, until)


def run(
    plan: Plan,
    data: Mapping[str, Sequence[Element]],
    rng: Random,
    functions: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Result]:
    """Return what the engine makes of the queries of a plan."""
    executor = Executor(plan, functions, check=True, **options)
    feed(executor, data, rng)
    return {query: Result(taken) for query, taken in results(executor, rng).items()}


def feed(executor: Executor, data: Mapping[str, Sequence[Element]], rng: Random) -> None:
    """Push all elements, in batches of random sizes, running in between now and then."""
    sources: dict[str, list[op.Source]] = {}
    for operator in executor.plan.operators:
        if isinstance(operator, op.Source):
            sources.setdefault(operator.table, []).append(operator)
    pending: dict[str, list[ChangeBatch]] = {}
    for table, (source, *_) in sources.items():
        elements = list(data[table])
        if source.time is None:
            columns = tuple(
                to_column([row[at] for _, row, _ in elements], column) for at, column in enumerate(source.columns)
            )
            for each in sources[table]:
                executor.push_static(each.id, columns)
        else:
            pending[table] = _cut(source, sorted(elements, key=lambda element: element[0]), rng)
    while pending:
        table = rng.choice(list(pending))
        batch = pending[table].pop(0) if pending[table] else None
        for each in sources[table]:
            if batch is None:
                executor.end(each.id)
            else:
                executor.push(each.id, batch)
        if batch is None:
            del pending[table]
        for _ in range(rng.choice((0, 0, 1, 3))):
            executor.step()
        if rng.random() < 0.2:
            executor.run()
    executor.run()


def _cut(source: op.Source, elements: list[Element], rng: Random) -> list[ChangeBatch]:
    """Return elements in batches that end between instants."""
    batches, at = [], 0
    while at < len(elements):
        last = min(at + rng.choice((1, 2, 3, 100)), len(elements))
        while last < len(elements) and elements[last][0] == elements[last - 1][0]:
            last += 1
        following = elements[last][0] if last < len(elements) else elements[last - 1][0] + 1
        until = rng.randint(elements[last - 1][0] + 1, following)
        batches.append(to_batch(source, elements[at:last], until))
        at = last
    return batches


def results(executor: Executor, rng: Random) -> dict[str, dict[int, Counter[Any]]]:
    """Return what has come out, netted per instant."""
    found: dict[str, dict[int, Counter[Any]]] = {}
    for query in executor.plan.queries:
        batch = executor.take(query)
        rows = list(zip(*(from_column(column) for column in batch.columns), strict=True)) or [()] * len(batch)
        bags: dict[int, Counter[Any]] = {}
        for instant, row, weight in zip(batch.start.tolist(), rows, batch.weights.tolist(), strict=True):
            bags.setdefault(instant, Counter())[row] += weight
        netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in bags.items()}
        found[query] = {instant: bag for instant, bag in netted.items() if bag}
    return found
