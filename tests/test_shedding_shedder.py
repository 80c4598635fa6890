"""The shedder of a job: what it makes of rows, times and amounts. Micro-batches are told of here, not run."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from cql.catalog import Catalog
from planner.plan import Plan, combine
from runtime.progress import Batch, Progress
from runtime.statistics import Figures
from shedding.plans import compile_all

pytest.importorskip("pyspark")

from runtime.spark.amounts import Expectation
from runtime.spark.definitions import Definitions
from runtime.spark.shedding import Shedder

STREAMS = "CREATE STREAM s (k INT, t INT) TIMESTAMP BY t; CREATE STREAM r (k INT, t INT) TIMESTAMP BY t;"
COUNT = "SELECT Rstream(COUNT(*) AS n) FROM {stream} [Range 2 Seconds Slide 2 Seconds]"
WITH = "WITH (shedding = 'window', max_gap = 9, max_latency = '4 seconds')"


def shedder_of(folder: Path) -> tuple[Shedder, Plan]:
    queries = [f"REGISTER QUERY of_{stream} AS {COUNT.format(stream=stream)} {WITH};" for stream in ("s", "r")]
    catalog = Catalog()
    catalog.execute(STREAMS + "".join(queries))
    plan = combine(compile_all(catalog.queries.values()))
    return Shedder(folder, plan, Definitions(catalog, list(catalog.queries.values()))), plan


def decided(folder: Path, batch: int) -> dict[str, float]:
    values = json.loads((folder / f"{batch:010}.json").read_text())["schedules"]
    return {name: (each["decisions"] or [[0, 0.0]])[-1][1] for name, each in values.items()}


def told(shedder: Shedder, plan: Plan, costly: str) -> None:
    """Tell of micro-batches that are in time, most of which is for the queries of one stream; 40 bytes are a row."""
    figures = tuple(
        Figures(o.id, "operator", o.kind, seconds=5.0 if costly in _streams(plan, o.id) else 0.1)
        for o in plan.operators
        if o.kind != "source"
    )
    taken = 0
    for batch, rows in enumerate((10_000, 20_000, 40_000, 15_000, 30_000, 40_000)):
        shedder.begin(batch, Mock(), [rows * 40.0])
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
    shedder.begin(6, Mock(), [40_000 * 40.0])
    assert not any(decided(tmp_path, 6).values())
    shedder.begin(7, Mock(), [120_000 * 40.0])
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
    shedder = Shedder(tmp_path, plan, Definitions(catalog, list(catalog.queries.values())))
    (dual,) = [each for each in plan.operators if each.kind == "dual-join"]
    figures = tuple(
        Figures(o.id, "operator", o.kind, seconds=5.0 if o is dual else 0.1)
        for o in plan.operators
        if o.kind != "source"
    )
    histogram = [4_000.0] * 5 + [2_000.0] * 10
    taken = 0
    for batch, rows in enumerate((10_000, 20_000, 40_000, 15_000, 30_000, 40_000)):
        shedder.begin(batch, Mock(), [rows * 40.0])
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
        shedder.begin(batch, Mock(), [rows * 40.0])
        values = json.loads((tmp_path / f"{batch:010}.json").read_text())
        (front,) = decided(tmp_path, batch).values()
        return values["choices"][dual.schedule]["fraction"], front

    assert decision(6, 40_000) == (0.0, 0.0)
    rear, front = decision(7, 95_000)
    assert rear > 0.1 and front == 0.0, "at first rows that find few others do not look"
    most, front = decision(8, 600_000)
    assert rear < most < 1 and front > 0.3, "beyond the best share of looks, rows are lost"
