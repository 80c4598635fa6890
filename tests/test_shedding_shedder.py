"""The shedder of a job: what it makes of rows, times and amounts. Micro-batches are told of here, not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cql.catalog import Catalog
from planner import operators as op
from planner.plan import Plan, combine
from runtime.controllers.decision_log import DecisionLog
from runtime.controllers.expectation import Expectation
from runtime.controllers.shedder import Shedder
from runtime.engine.statistics import Figures
from runtime.reports.progress import Batch, Progress
from shedding.insert_drops import compile_all, plan_of
from shedding.join_deciders import evenly
from shedding.join_forecast import FEWEST_ROWS, LEAST_LOOKED_AT, FrontDrop, Looks

STREAMS = "CREATE STREAM s (k INT, t INT) TIMESTAMP BY t; CREATE STREAM r (k INT, t INT) TIMESTAMP BY t;"
COUNT = "SELECT Rstream(COUNT(*) AS n) FROM {stream} [Range 2 Seconds Slide 2 Seconds]"
WITH = "WITH (shedding = 'window', max_gap = 9, max_latency = '4 seconds')"


def shedder_of(folder: Path) -> tuple[Shedder, Plan]:
    queries = [f"REGISTER QUERY of_{stream} AS {COUNT.format(stream=stream)} {WITH};" for stream in ("s", "r")]
    catalog = Catalog()
    catalog.execute(STREAMS + "".join(queries))
    plan = combine(compile_all(catalog.queries.values()))
    return Shedder(DecisionLog(folder), plan, list(catalog.queries.values())), plan


def state(folder: Path, batch: int) -> dict[str, Any]:
    """Return what the page of a micro-batch says."""
    found: dict[str, Any] = json.loads((folder / f"{batch:010}-shedding.json").read_text())["state"]
    return found


def decided(folder: Path, batch: int) -> dict[str, float]:
    values = state(folder, batch)["schedules"]
    return {name: (each["decisions"] or [[0, 0.0]])[-1][1] for name, each in values.items()}


def told(shedder: Shedder, plan: Plan, costly: str) -> None:
    """Tell of micro-batches that are in time, most of which is for the queries of one stream; 40 bytes are a row."""
    figures = tuple(
        Figures(o.id, "operator", o.kind, seconds=0.05 if costly in _streams(plan, o.id) else 0.001)
        for o in plan.operators
        if o.kind != "source"
    )
    taken = 0
    for batch, rows in enumerate((10_000, 20_000, 40_000, 15_000, 30_000, 40_000)):
        shedder.begin(batch, [rows * 40.0])
        done = Batch("integer", batch, 0.0, 0.3 + 2e-5 * rows, rows, 1, 0, 0, {}, {}, 0, None, None)
        taken += rows // 2
        shedder.done(
            Progress(newest=1_000 * (batch + 1), closed=1_000 * batch, course=(done,), figures=figures),
            {o.id: (taken, taken) for o in plan.operators if o.kind == "window-drop"},
            {},
        )


def _streams(plan: Plan, operator: str) -> set[str]:
    found = next(o for o in plan.operators if o.id == operator)
    return {found.table} if found.kind == "source" else set().union(*(_streams(plan, i.operator) for i in found.inputs))


@pytest.mark.parametrize("costly", ["r", "s"])
def test_what_takes_the_time_is_lost_and_before_it_is_read(tmp_path: Path, costly: str) -> None:
    shedder, plan = shedder_of(tmp_path)
    told(shedder, plan, costly)
    shedder.begin(6, [40_000 * 40.0])
    assert not any(decided(tmp_path, 6).values())
    shedder.begin(7, [120_000 * 40.0])
    found = {name.split("/")[0]: fraction for name, fraction in decided(tmp_path, 7).items()}
    other = "s" if costly == "r" else "r"
    assert found[costly] > 0.3 and found[other] == 0
    why = {loss.query: loss.why for loss in shedder.losses(Progress(), {}, None, {})}
    assert why == {f"of_{costly}": "load", f"of_{other}": ""}


def test_amounts_of_several_sources_are_told_apart() -> None:
    expectation = Expectation()
    for few, many in [(10, 2_000), (400, 3_000), (50, 9_000), (300, 100)] * 40:
        expectation.rows([few, many])
        expectation.learn(few * 5 + many // 10)
    assert expectation.rows([100, 1_000]) == pytest.approx(600, rel=0.05)
    assert expectation.rows([0, 0]) is None
    assert expectation.rows([1]) is None, "other sources, nothing known"


def test_rows_are_lost_before_they_queue_when_looks_are_not_enough(tmp_path: Path) -> None:
    catalog = Catalog()
    join = "SELECT a.k FROM s [Rows 100] AS a, r [Rows 100] AS b WHERE a.k = b.k"
    asked = "WITH (shedding = 'dual', accept = 'approximate', max_latency = '4 seconds')"
    catalog.execute(f"{STREAMS} REGISTER QUERY q AS {join} {asked};")
    plan = combine(compile_all(catalog.queries.values()))
    shedder = Shedder(DecisionLog(tmp_path), plan, list(catalog.queries.values()))
    (dual,) = [each for each in plan.operators if each.kind == "dual-join"]
    figures = tuple(
        Figures(o.id, "operator", o.kind, seconds=0.05 if o is dual else 0.001)
        for o in plan.operators
        if o.kind != "source"
    )
    histogram = [4_000.0] * 5 + [2_000.0] * 10
    taken = 0
    for batch, rows in enumerate((10_000, 20_000, 40_000, 15_000, 30_000, 40_000)):
        shedder.begin(batch, [rows * 40.0])
        done = Batch("integer", batch, 0.0, 0.3 + 2e-5 * rows, rows, 1, 0, 0, {}, {}, 0, None, None)
        work = rows * 40
        counts = {"histogram": histogram, "costs": [rows, 1.0, rows, 0.2], "found": work, "missed": 0.0}
        taken += rows // 2
        shedder.done(
            Progress(newest=1_000 * (batch + 1), closed=1_000 * batch, course=(done,), figures=figures),
            {o.id: (taken, taken) for o in plan.operators if o.kind == "random-drop"},
            {dual.schedule: [{**counts, "work": [work, work]}]},
        )

    def decision(batch: int, rows: int) -> tuple[float, float]:
        shedder.begin(batch, [rows * 40.0])
        values = state(tmp_path, batch)
        (front,) = decided(tmp_path, batch).values()
        return values["choices"][dual.schedule]["fraction"], front

    assert decision(6, 40_000) == (0.0, 0.0)
    rear, front = decision(7, 83_500)
    assert rear > 0.1 and front == 0.0, "at first rows that find few others do not look"
    most, front = decision(8, 600_000)
    assert rear < most < 1 and front > 0.3, "beyond the best share of looks, rows are lost"


# Rows that are lost before joins look for any


def front(*passed: float, window: int = 100) -> FrontDrop:
    """Return a front that has passed some shares of rows, in micro-batches of 10 ticks."""
    found = FrontDrop("drop", "rows of r, s", window)
    for number, share in enumerate(passed):
        found.note(share, 10 * (number + 1))
    return found


@pytest.mark.parametrize("looked", [1.0, 0.4, LEAST_LOOKED_AT])
def test_no_rows_are_lost_while_there_is_time_for_the_best_ages(looked: float) -> None:
    for passing in (0.0, 0.5, 30.0):
        assert front().split(1 - looked, passing) == pytest.approx((0.0, 1 - looked))
        assert front(1.0, 1.0).split(1 - looked, passing) == pytest.approx((0.0, 1 - looked))


@pytest.mark.parametrize("looked", [0.04, 0.002, 1e-5])
def test_rows_and_looks_together_leave_as_much_as_there_is_time_for(looked: float) -> None:
    lost, left_out = front().split(1 - looked, 0.0)
    rows, looks = 1 - lost, 1 - left_out
    assert rows * rows * LEAST_LOOKED_AT == pytest.approx(looked, rel=1e-6)
    assert rows * looks == pytest.approx(looked), "windows are still full of rows of before"
    steady = front(*[rows] * 20)
    assert steady.split(1 - LEAST_LOOKED_AT, 0.0) == pytest.approx((lost, 1 - LEAST_LOOKED_AT)), "and stays like that"
    assert steady.kept_pairs(np.arange(100)) == pytest.approx(np.full(100, rows * rows))


@pytest.mark.parametrize("passing", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("more", [0.0, 0.3, 0.9])
def test_rows_are_lost_to_save_what_it_takes_to_let_them_come(passing: float, more: float) -> None:
    """Not even without looks is there time for all rows."""
    left = (1 - more) * passing
    lost, left_out = front().split(1 + passing - left, passing)
    rows, looks = 1 - lost, 1 - left_out
    assert 0 < rows < 1 and looks > 0
    assert passing * rows + looks * rows == pytest.approx(left), "windows are still full of rows of before"
    assert passing * rows + LEAST_LOOKED_AT * rows * rows == pytest.approx(left), "later on"


def test_a_few_rows_come_however_little_time_there_is() -> None:
    lost, left_out = front(0.01, 0.01).split(1000.0, 2.0)
    assert lost == 1 - FEWEST_ROWS and left_out == 1.0


def test_rows_come_back_when_there_is_time_for_more() -> None:
    lost, left_out = front(*[0.2] * 20).split(0.2, 0.0)
    assert lost == pytest.approx(1 - 0.8) and left_out == pytest.approx(1 - 0.8 * 0.2 / 0.8)
    assert front(*[0.5] * 20).split(0.0, 0.0) == (0.0, 0.5)


def test_pairs_are_kept_by_when_their_rows_came() -> None:
    found = front(1.0, 0.5, 0.2).kept_pairs(np.array([0, 4, 6, 14, 16, 100]))
    assert found.tolist() == pytest.approx([0.2 * 0.2, 0.2 * 0.2, 0.2 * 0.5, 0.2 * 0.5, 0.2 * 1.0, 0.2 * 1.0])
    assert front().kept_pairs(np.array([0, 50])).tolist() == [1.0, 1.0]


SELECTIVE = (
    "REGISTER QUERY q AS SELECT s.k, r.k AS j FROM s [Range 20 Seconds], r [Range 20 Seconds] WHERE s.k < r.k "
    "WITH (shedding = 'selective', max_latency = '4 seconds');"
)


def test_how_old_the_rows_of_windows_will_be_follows_from_when_they_came() -> None:
    """Micro-batches of 10 ticks: one of 200 rows, one of 400 of which half are lost, and then 40 rows in 4 ticks."""
    catalog = Catalog()
    catalog.execute(STREAMS + SELECTIVE)
    join = next(o for o in plan_of(catalog).operators if isinstance(o, op.SelectiveJoin))
    looks = Looks([join])
    assert looks.younger(40, 4, {}) is evenly, "nothing is known"
    for newest, rows in ((20, 999), (30, 200), (40, 400)):
        looks.note(join.schedule, [{"work": [1, 1]}], rows, newest)
    younger = looks.younger(40, 4, {40: 0.5})
    assert younger(np.array([0, 1000])).tolist() == pytest.approx([0, 420]), "20 of the 40 came later on average"
    instants = np.concatenate([np.linspace(20, 30, 200), np.linspace(30, 40, 200), np.linspace(40, 44, 40)])
    for age in (1, 3, 7, 13, 20):
        exact = np.mean([((instants > at - age) & (instants <= at)).sum() for at in np.linspace(40, 44, 50)])
        assert younger(np.array([age]))[0] == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("passing", [0.0, 2e-5, 1e-4])
def test_a_join_that_is_far_too_slow_loses_rows_and_says_so(tmp_path: Path, passing: float) -> None:
    """Micro-batches have more and more rows; each row looks at all that came in 20 seconds, for 100 ns each.

    A row that is not lost takes time as well, so that all of them alone may take longer than there is.
    """
    catalog = Catalog()
    catalog.execute(STREAMS + SELECTIVE)
    plan = combine(compile_all(catalog.queries.values()))
    shedder = Shedder(DecisionLog(tmp_path), plan, list(catalog.queries.values()))
    drops = [o.id for o in plan.operators if o.kind == "random-drop"]
    join = next(o for o in plan.operators if o.kind == "selective-join")
    assert len(drops) == 2
    taken, passed, outcomes, per_batch = 0, 0.0, [], []
    for batch in range(60):
        rows = 500 if batch < 20 else 40_000
        shedder.begin(batch, [rows * 40.0])
        (lost,) = decided(tmp_path, batch).values()
        kept = 1 - lost
        looked = 1 - state(tmp_path, batch)["choices"][join.schedule]["fraction"]
        per_batch.append(kept * rows)
        total = kept * rows * sum(per_batch[-10:])
        outcomes.append((kept, looked, 0.4 + 1e-6 * rows + passing * kept * rows + 1e-7 * looked * total))
        taken, passed = taken + rows, passed + kept * rows
        done = Batch("integer", batch, 0.0, outcomes[-1][2], rows, 1, 0, 0, {}, {}, 0, None, None)
        progress = Progress(newest=2 * (batch + 1), closed=2 * batch, course=(done,))
        side = [[[0.0] * 20], [[0.0] * 20], [0.0], [0.0], [rows / 2]]
        counted = {"counts": [side, side], "work": [total, looked * total], "total": [total / 2] * 2, "found": 1.0}
        shedder.done(progress, dict.fromkeys(drops, (taken, round(passed))), {join.schedule: [counted]})
    calm, late = outcomes[5:20], outcomes[-10:]
    assert all(kept == 1 and looked == 1 for kept, looked, _ in calm)
    assert all(kept < 0.6 and looked < 0.4 and seconds < 3 for kept, looked, seconds in late)
    assert all(kept > FEWEST_ROWS and looked > 0 for kept, looked, _ in late), "something is found all the time"
    (loss,) = shedder.losses(Progress(), {}, None, {})
    assert loss.recall is not None and loss.recall < 0.5
