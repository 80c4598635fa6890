"""Window shedding: the paper's experiments on a virtual clock, and its price when nothing is shed.

A single server has a capacity; input comes at 1 + e times the rate that it can process. The load of a plan is what its
delay operators burn: rows in front of an aggregate, and results behind it. How many of them are left when a share of
all windows is lost is counted on the real engine, with the plans that the compiler makes. Each experiment looks for
the smallest share that removes the excess. Tables say what the formulas of
`benchmarks/models/window_loads.py` predict; plots go to `docs/plots`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks import _plots
from benchmarks.models.window_loads import Costs, fraction_needed
from cql.catalog import Catalog
from planner import operators as op
from planner.plan import Plan, combine
from runtime.columns.batch import ChangeBatch
from runtime.engine.executor import Executor
from shedding.insert_drops import compile_all, compile_registered
from shedding.schedule import most_lost

GAP = 10
"""The batch of the paper's experiments: at most so many windows are lost in a row."""

TICKS = 2
"""Of the clock, for each of the paper's instants: so that a slide of one instant is a slide, not every tick."""

STREAM = "CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t; SET rstream_clock = element; SET shedding_seed = 7;"
NEVER = float("nan")
"""What an experiment has where no share of windows removes the excess."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left when a share of the windows is lost, as shares of what there is otherwise."""

    rows: float
    inner: float
    answers: tuple[float, ...]


def query(name: str, text: str, gap: int) -> str:
    return f"REGISTER QUERY {name} AS {text} WITH (shedding = 'window', max_gap = {gap});"


def window(size: int, slide: int) -> str:
    return f"[Range {TICKS * size} Seconds Slide {TICKS * slide} Seconds]"


def counts(source: str, size: int, slide: int) -> str:
    return f"SELECT Rstream(k, COUNT(*) AS v) FROM {source} {window(size, slide)} GROUP BY k"


def planned(script: str, together: bool = True) -> Plan:
    catalog = Catalog()
    catalog.execute(STREAM + script)
    definitions = catalog.queries.values()
    return combine(compile_all(definitions) if together else map(compile_registered, definitions))


def left(plan: Plan, fraction: float, rows: int, step: int = 1) -> Left:
    """Return what the engine has left of one row for each `step` instants."""
    executor = Executor(plan)
    for schedule in executor.schedules.values():
        schedule.decide(fraction, 0)
    instants = TICKS * step * np.arange(1, rows + 1)
    values, key = pa.array(instants.astype(np.int32)), pa.array(np.zeros(rows, np.int32))
    (source,) = plan.sources
    executor.push(source.id, ChangeBatch((key, values, values), instants, None, None, int(instants[-1]) + 1))
    executor.end(source.id)
    executor.run()
    work = executor.statistics.operators
    drops = [work[each.id] for each in plan.operators if isinstance(each, op.WindowDrop)]
    answers = tuple(float(len(executor.take(name))) for name in plan.queries)
    inner = [work[each.id].elements_out for each in plan.operators if isinstance(each, op.RStream)]
    return Left(sum(d.elements_out for d in drops) / sum(d.elements_in for d in drops), float(inner[0]), answers)


@cache
def shares(script: str, fraction: float, rows: int, step: int = 1, together: bool = True) -> Left:
    """Return what is left, relative to nothing being lost."""
    plan = planned(script, together)
    some, everything = left(plan, fraction, rows, step), left(plan, 0.0, rows, step)
    answers = tuple(a / b for a, b in zip(some.answers, everything.answers, strict=True))
    return Left(some.rows, some.inner / everything.inner, answers)


def smallest_fraction(load: Callable[[float], float], most: float) -> float:
    """Return the smallest share of windows whose loss brings a load down to the capacity of 1; none may."""
    if load(0.0) <= 1:
        return 0.0
    if load(most) > 1:
        return NEVER
    low, high = 0.0, most
    while high - low > 0.004:
        middle = (low + high) / 2
        low, high = (low, middle) if load(middle) <= 1 else (middle, high)
    return high


# The experiments


def pipeline(excesses: Sequence[float], rows: int) -> dict[str, list[float]]:
    """Figure 10: delay, count(10,10), delay, count(100,100), delay; each delay has a third of the load."""
    inner = f"({counts('s', 10, 10)})"
    nested = query("q", f"SELECT Rstream(k, SUM(v) AS v) FROM {inner} {window(100, 100)} GROUP BY k", GAP)
    middle = query("q", counts("s", 100, 100), GAP)
    found: dict[str, list[float]] = {"RDrop": [], "Nested1": [], "Nested2": []}
    for excess in excesses:

        def at_input(fraction: float, excess: float = excess) -> float:
            some = shares(nested, fraction, rows)
            return (1 + excess) * (some.rows + some.inner + some.answers[0]) / 3

        def in_the_middle(fraction: float, excess: float = excess) -> float:
            some = shares(middle, fraction, rows // 10, 10)
            return (1 + excess) * (1 + some.rows + some.answers[0]) / 3

        needed = 3 * excess / (1 + excess)
        found["RDrop"].append(needed if needed <= 1 else NEVER)
        found["Nested1"].append(_lost(middle, in_the_middle, rows // 10, 10))
        found["Nested2"].append(_lost(nested, at_input, rows, 1))
    return found


def _lost(script: str, load: Callable[[float], float], rows: int, step: int) -> float:
    """Return the share of answers that is lost with the smallest fraction that removes the excess."""
    fraction = smallest_fraction(load, most_lost(GAP))
    return fraction if np.isnan(fraction) else 1 - shares(script, fraction, rows, step).answers[0]


def fan_out(
    windows: Sequence[tuple[int, int]], gaps: Sequence[int], excesses: Sequence[float], rows: int
) -> dict[str, list[float]]:
    """Figure 11: a delay, then two branches: delay, count, delay; all five delays have the same load."""
    names = [query(f"q{at}", counts("s", *each), gap) for at, (each, gap) in enumerate(zip(windows, gaps, strict=True))]
    both = "".join(names)
    (units,) = {each.units for each in planned(both).operators if isinstance(each, op.WindowDrop)}
    found: dict[str, list[float]] = {"Shared_WinDrop": [], "Split_WinDrop": [], "Split_RDrop": []}
    for excess in excesses:

        def shared(fraction: float, excess: float = excess) -> float:
            some = shares(both, fraction, rows)
            return (1 + excess) * (3 * some.rows + sum(some.answers)) / 5

        def split(fraction: float, excess: float = excess) -> float:
            each = [shares(name, fraction, rows) for name in names]
            return (1 + excess) * (1 + sum(some.rows + some.answers[0] for some in each)) / 5

        fraction = smallest_fraction(shared, most_lost(units.batch))
        lost = fraction if np.isnan(fraction) else float(np.mean([1 - a for a in shares(both, fraction, rows).answers]))
        found["Shared_WinDrop"].append(lost)
        fraction = smallest_fraction(split, most_lost(min(gaps)))
        each_lost = [1 - shares(name, fraction, rows).answers[0] for name in names] if fraction == fraction else [NEVER]
        found["Split_WinDrop"].append(float(np.mean(each_lost)))
        needed = 5 / 2 * excess / (1 + excess)
        found["Split_RDrop"].append(needed if needed <= 1 else NEVER)
    return found


@dataclass(frozen=True, slots=True)
class Required:
    """The share of answers that has to be lost for one query: as measured, and as the formulas say."""

    size: int
    slide: int
    excess: float
    measured: float
    predicted: float


def required(size: int, slide: int, excess: float, rows: int) -> Required:
    """Figures 12 and 13: delay 5 ms, count(w, d), delay 5 ms."""
    script = query("q", counts("s", size, slide), GAP)
    costs = Costs(5.0, 0.0, 5.0, 1 / slide)
    capacity = costs.load(1.0)

    def load(fraction: float) -> float:
        some = shares(script, fraction, rows)
        return (1 + excess) * (costs.before * some.rows + costs.after * costs.makes * some.answers[0]) / capacity

    predicted = fraction_needed(costs, size, slide, GAP, excess)
    measured = _lost(script, load, rows, 1)
    return Required(size, slide, excess, measured, predicted if predicted <= most_lost(GAP) else NEVER)


@dataclass(frozen=True, slots=True)
class Overhead:
    """How fast a query is with a drop operator that drops nothing, relative to one without."""

    size: int
    selectivity: float
    ratio: float


def overhead(size: int, selectivity: float, rows: int, repeats: int, *, as_relation: bool = False) -> Overhead:
    """Table 4: a filter and a tumbling aggregate on the real engine, with a share of 0; the median of several pairs.

    What is compared is processor time: others use the machine as well. As a relation, the result passes a hold.
    """
    catalog = Catalog()
    item = "COUNT(*) AS n" if as_relation else "Rstream(COUNT(*) AS n)"
    text = f"SELECT {item} FROM s {window(size, size)} WHERE v < {round(100 * selectivity)}"
    catalog.execute(f"{STREAM}REGISTER QUERY plain AS {text}; {query('shed', text, GAP)}")
    plain, shed = (combine([compile_registered(catalog.queries[name])]) for name in ("plain", "shed"))
    rng = np.random.default_rng(1)
    instants = np.sort(rng.integers(0, rows // 50, rows))
    columns = tuple(pa.array(each.astype(np.int32)) for each in (instants, rng.integers(0, 100, rows), instants))
    batch = ChangeBatch(columns, instants, None, None, int(instants[-1]) + 1)
    pairs = [(_seconds(plain, batch), _seconds(shed, batch)) for _ in range(repeats)]
    return Overhead(size, selectivity, float(np.median([without / with_drop for without, with_drop in pairs])))


def _seconds(plan: Plan, batch: ChangeBatch) -> float:
    executor = Executor(plan)
    (source,) = plan.sources
    parts = [batch.slice(at, at + 65_536) for at in range(0, len(batch), 65_536)]
    started = time.process_time()
    for part in parts:
        executor.push(source.id, part.with_until(int(part.start[-1])))
        executor.run()
    return time.process_time() - started


def latencies(cost: float, count: int, drop: float) -> list[float]:
    """Figure 2: the latency of each row that is not dropped, one row a second, at some seconds a row."""
    free, found = 0.0, []
    for at in range(count):
        if (at * drop) % 1 + drop >= 1:
            continue
        free = max(free, float(at)) + cost
        found.append(free - at)
    return found


# Tables and plots

EXCESSES = (0.1, 0.25, 0.5, 0.65, 1.0)
SLIDES = (1, 10, 20, 50, 100)


def main() -> None:
    """Run all experiments, print their tables and write their plots."""
    rows = 60_000
    growing, bounded = latencies(2, 60, 0.0), latencies(2, 60, 0.5)
    print(
        f"Figure 2: after a minute the latency is {growing[-1]:.0f} s without shedding, {bounded[-1]:.0f} s with it\n"
    )
    nested = pipeline(EXCESSES, rows)
    _table("Figure 10, pipeline: share of answers lost", "excess", EXCESSES, nested)
    first = fan_out([(10, 10), (100, 100)], [10 * GAP, GAP], EXCESSES, rows)
    _table("Figure 11, fan-out {(10,10), (100,100)}: share of both answers lost", "excess", EXCESSES, first)
    second = fan_out([(3, 2), (3, 3)], [3 * GAP, 2 * GAP], EXCESSES, rows // 4)
    _table("Figure 11, fan-out {(3,2), (3,3)}: share of both answers lost", "excess", EXCESSES, second)
    sizes = (25, 50, 75, 100)
    by_size = {
        "d = 1": [required(size, 1, 0.25, rows // 4).measured for size in sizes],
        "d = w": [required(size, size, 0.25, rows).measured for size in sizes],
    }
    _table("Figure 12, size of windows at 25 % excess: share of answers lost", "w", sizes, by_size)
    by_slide: dict[str, list[float]] = {}
    for excess in (0.25, 0.5, 1.0):
        found = [required(100, slide, excess, rows) for slide in SLIDES]
        by_slide[f"{excess:.0%}"] = [each.measured for each in found]
        by_slide[f"{excess:.0%} predicted"] = [each.predicted for each in found]
    _table("Figure 13, slide of windows of 100: share of answers lost", "d", SLIDES, by_slide)
    for selectivity in (1.0, 0.5):
        ratios = {
            name: [overhead(size, selectivity, 1_000_000, 25, as_relation=form).ratio for size in sizes]
            for name, form in (("stream", False), ("relation", True))
        }
        _table(f"Table 4, throughput with a drop of nothing, selectivity {selectivity}", "w", sizes, ratios)
    _plot("windrop_pipeline", "Pipeline of two aggregates", "excess load", EXCESSES, nested)
    _plot("windrop_fan_out", "Fan-out to (10,10) and (100,100)", "excess load", EXCESSES, first)
    _plot("windrop_slide", "Windows of 100, by slide", "slide", SLIDES, by_slide)


def _table(title: str, index: str, at: Sequence[float], columns: dict[str, list[float]]) -> None:
    print(title)
    print("  " + index.ljust(8) + "".join(name.rjust(17) for name in columns))
    for row, value in enumerate(at):
        cells = ("not removable" if np.isnan(c[row]) else f"{c[row]:.3f}" for c in columns.values())
        print("  " + f"{value:g}".ljust(8) + "".join(cell.rjust(17) for cell in cells))
    print()


def _plot(name: str, title: str, across: str, at: Sequence[float], lines: dict[str, list[float]]) -> None:
    figure, axes = _plots.empty()
    for label, values in lines.items():
        is_formula = label.endswith("predicted")
        axes.plot(at, values, ":" if is_formula else "-", marker=None if is_formula else "o", markersize=4, label=label)
    axes.set_xlabel(across)
    axes.set_ylabel("share of answers lost")
    axes.set_ylim(0, 1)
    axes.set_title(title)
    _plots.save(name, figure, axes)
