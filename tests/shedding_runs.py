"""Runs queries that shed on the engine, and says what they should answer: the exact answer at kept instants.

The judge is the definitional evaluator, on the query without shedding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np

from planner import operators as op
from planner.plan import Plan
from runtime.engine.executor import Executor
from shedding.schedule import Schedule
from tests import engine_runs
from tests.definition.evaluator import Element, Result

STREAMS = "CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t; CREATE STREAM r (k INT, v INT, t INT) TIMESTAMP BY t;"
TABLES = "CREATE RELATION names (k INT, n INT); CREATE RELATION prices (k INT, p INT, at INT, sgn STRING) "
TABLES += "TIMESTAMP BY at SIGN BY sgn;"

Data = Mapping[str, Sequence[Element]]


def random_data(rng: Random, rows: int = 60, most_apart: int = 3) -> dict[str, list[Element]]:
    """Return elements of all tables: sparse or dense, with ties, in the order of time."""
    data: dict[str, list[Element]] = {}
    for name in ("s", "r"):
        at, elements = rng.randint(-7, 7), []
        for _ in range(rng.randint(0, rows)):
            at += rng.choice((0, 0, 1, 1, rng.randint(1, most_apart)))
            elements.append((at, (rng.randint(0, 2), rng.randint(0, 5), at), 1))
        data[name] = elements
    data["names"] = [(0, (k, k * 10), 1) for k in range(2)]
    changes: list[Element] = []
    held: list[tuple[int, int]] = []
    for at in sorted(rng.randint(0, 60) for _ in range(8)):
        if held and rng.random() < 0.4:
            changes.append((at, held.pop(), -1))
        else:
            held.append((rng.randint(0, 2), rng.randint(0, 3)))
            changes.append((at, held[-1], 1))
    data["prices"] = changes
    return data


def run_shed(
    plan: Plan, data: Data, rng: Random, decide: Callable[[Executor], None], **options: object
) -> tuple[dict[str, Result], Executor]:
    """Return what queries answer if somebody decides now and then what to shed, and the executor at the end."""
    executor = Executor(plan, check=True, **options)  # type: ignore[arg-type]
    step, often = executor.step, rng.choice((0.02, 0.3))

    def deciding() -> bool:
        if rng.random() < often:
            decide(executor)
        return step()

    executor.step = deciding  # type: ignore[method-assign]
    if rng.random() < 0.7:
        decide(executor)
    engine_runs.feed(executor, data, rng)
    found = engine_runs.results(executor, rng)
    return {query: Result(taken) for query, taken in found.items()}, executor


def at_random(rng: Random, feasible: bool = False) -> Callable[[Executor], None]:
    """Return decisions for all schedules: nothing, a share or everything, changed at random."""

    def decide(executor: Executor) -> None:
        for schedule in executor.schedules.values():
            share = rng.random() * schedule.batch / (schedule.batch + 1)
            schedule.decide(share if feasible else rng.choice((0.0, share, share, rng.random(), 1.0)))

    return decide


def expected(plan: Plan, query: str, exact: Result, schedule: Schedule, data: Data) -> Result:
    """Return what a query that lost the units of a schedule should answer."""
    output = plan.output(query)
    top = plan.by_id[output.inputs[0].operator]
    if not isinstance(top, op.KeepWindows | op.Hold):
        return exact
    sources = [each for each in plan.below(output) if isinstance(each, op.Source) and each.time is not None]
    instants = [instant for source in sources for instant, _, _ in data[source.table]]
    if not instants:
        return exact
    ticks = np.arange(min(instants), max(instants) + 1)
    kept = dict(zip(ticks.tolist(), schedule.kept(unit_of(ticks, top)).tolist(), strict=True))
    if output.is_stream:
        return Result({instant: bag for instant, bag in exact.changes.items() if kept[instant]})
    changes: dict[int, Counter[tuple[object, ...]]] = {}
    before: Counter[tuple[object, ...]] = Counter()
    now: Counter[tuple[object, ...]] = Counter()
    for instant in ticks.tolist():
        now.update(exact.changes.get(instant, {}))
        if kept[instant]:
            change = Counter(now)
            change.subtract(before)
            netted = Counter({row: count for row, count in change.items() if count})
            if netted:
                changes[instant] = netted
            before = Counter(now)
    return Result(changes)  # type: ignore[arg-type]


def unit_of(instants: np.ndarray, top: op.KeepWindows | op.Hold) -> np.ndarray:
    """Return the units of instants: that of the last multiple of the grain, of which the unit's end is the next."""
    grid = np.floor(instants / top.grain).astype(np.int64) * top.grain
    return np.ceil(grid / top.units.length).astype(np.int64)
