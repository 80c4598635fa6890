"""Shedding on Spark: answers are exact at kept instants, decisions survive restarts, and nobody else is affected."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from cql import CqlError
from cql.catalog import External
from shedding.insert_drops import compile_all, units_of_query
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.definition.evaluator import Element, Result
from tests.shedding_runs import expected, random_data
from tests.test_shedding_engine import random_network

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from cql.engine import Engine
from runtime.network.network import Network

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t"
COUNTS = "SELECT Rstream(k, COUNT(*) AS n) FROM s [Range 2 Seconds Slide 2 Seconds] GROUP BY k"


def rows(first: int, last: int) -> list[tuple[int, int, int]]:
    return [(t % 3, t, t) for t in range(first, last) for _ in range(1 + t % 2)]


def answers(engine: Engine, query: str) -> list[tuple[object, ...]]:
    return sorted((change.ts, change.op, *change.row.values()) for change in engine.query(query).changes())


def network_of(engine: Engine) -> Network:
    assert engine._network is not None
    (network,) = (job for job in engine._network._jobs.values() if isinstance(job, Network))
    return network


def started(spark: SparkSession, rng: Random, folder: Path) -> tuple[Engine, dict[str, list[Element]]]:
    """Return an engine with a random network at work, and its data; networks that cannot be shed are left out."""
    while True:
        catalog, data = random_network(rng), random_data(rng, rows=40)
        (folder / "names.csv").write_text("".join(f"{k},{n}\n" for _, (k, n), _ in data["names"]))
        source = External(format="csv", options={"path": str(folder / "names.csv")})
        catalog.relations["names"] = catalog.relations["names"].model_copy(update={"source": source})
        engine = Engine(spark)
        engine._session.catalog = catalog
        try:
            compile_all(catalog.queries.values())
        except CqlError:
            continue
        engine.start()
        return engine, data


@pytest.mark.parametrize("seed", range(3))
def test_what_is_delivered_is_the_exact_answer_at_kept_instants(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(f"spark {seed}")
    engine, data = started(spark, rng, tmp_path)
    catalog = engine.catalog
    feeds = {name: [(at, row, sign) for at, row, sign in data[name]] for name in ("s", "r", "prices")}
    at = dict.fromkeys(feeds, 0)
    while any(at[name] < len(own) for name, own in feeds.items()):
        for name, own in feeds.items():
            count = rng.choice((3, 9, 20))
            part = own[at[name] : at[name] + count]
            at[name] += len(part)
            if part and network_of(engine).reads(name):
                signed = [(*row, instant, "+" if sign > 0 else "-") for instant, row, sign in part]
                engine.push(name, signed if name == "prices" else [row for _, row, _ in part])
        for query in catalog.queries.values():
            if query.options and rng.random() < 0.6:
                engine.shed(query.name, rng.choice((0.0, 0.3, 0.6, 1.0)))
    shedder, plan = network_of(engine)._shedder, network_of(engine).plan
    engine.stop()
    for name, query in catalog.queries.items():
        exact, units = evaluate(query.tree, data), units_of_query(plan, name)
        wanted = exact
        if units is not None:
            assert shedder is not None
            wanted = expected(plan, name, exact, shedder._schedules.all[units.schedule], data)
        found: dict[int, Counter[tuple[object, ...]]] = {}
        for change in engine.query(query.name).changes():
            bag = found.setdefault(change.ts, Counter())  # type: ignore[arg-type]
            bag[tuple(change.row.values())] += 1 if change.op == "+" else -1
        problem = disagreement(wanted, Result(found))  # type: ignore[arg-type]
        assert problem is None, f"{query.text}\n{units}\n{problem}"


def test_a_restart_loses_the_same_windows(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def new_engine() -> Engine:
        engine = Engine(spark, checkpoint=checkpoint)
        engine.execute(STREAM)
        engine.register("shed", COUNTS, shedding="window", max_gap=2)
        engine.register("exact", COUNTS)
        return engine

    with new_engine() as engine:
        engine.push("s", rows(0, 10))
        engine.shed("shed", 0.6)
        engine.push("s", rows(10, 30))
        engine.push("s", rows(30, 50))
    shutil.copytree(checkpoint, copy)
    outcomes = []
    for _ in range(2):
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        with new_engine() as engine:
            engine.push("s", rows(50, 80))
            engine.push("s", rows(80, 121))
            loss = engine.query("shed").shedding()
            assert loss is not None and loss.wanted == 0.6, "a decision lasts longer than a run"
            outcomes.append((answers(engine, "shed"), answers(engine, "exact"), loss.stretches))
    (shed, exact, stretches), again = outcomes
    assert (shed, exact, stretches) == again
    assert set(shed) < set(exact), "fewer answers, and no others"
    lost = {instant for each in stretches if not each.is_kept for instant in range(each.first, each.last + 1)}
    assert {ts for ts, *_ in exact} - {ts for ts, *_ in shed} == {ts for ts, *_ in exact if ts in lost}
    assert 0 < loss.longest_gap <= 2 and loss.rows_dropped > 0


def test_what_cannot_be_shed_says_so(spark: SparkSession) -> None:
    with Engine(spark) as engine:
        engine.execute(STREAM)
        engine.register("q", COUNTS)
        engine.start()
        with pytest.raises(CqlError, match="the query 'q' does not shed anything"):
            engine.shed("q", 0.5)


def test_a_join_that_gives_up_rows_finds_a_part_and_says_how_much(spark: SparkSession) -> None:
    left, right = ([(t * 7 % 11 * (t % 3), t, t // 8) for t in range(first, 800 + first)] for first in (0, 5))
    join = "SELECT a.k, a.v, b.v AS w FROM s [Range 40 Seconds] AS a, r [Range 40 Seconds] AS b WHERE a.k = b.k"
    with Engine(spark) as engine:
        engine.execute(f"{STREAM}; {STREAM.replace(' s ', ' r ')}")
        engine.register("exact", join)
        engine.register("part", join, shedding="prob", memory="24 KB")
        for half in (slice(0, 400), slice(400, None)):
            engine.push("s", left[half])
            engine.push("r", right[half])
            engine.process_available()
        exact, part = (Counter(answers(engine, name)) for name in ("exact", "part"))
        loss = engine.query("part").shedding()
    coming = [sum(count for (_, sign, *_), count in each.items() if sign == "+") for each in (part, exact)]
    assert part and part < exact
    assert loss is not None and loss.recall is not None and loss.rows_dropped > 0
    assert loss.recall == pytest.approx(coming[0] / coming[1], abs=0.1)


def test_joins_that_give_up_rows_do_the_same_again_after_restarts(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    left, right = ([(t * 7 % 11 * (t % 3), t, t // 8) for t in range(first, 800 + first)] for first in (0, 5))
    join = "SELECT a.k, a.v, b.v AS w FROM s [Range 40 Seconds] AS a, r [Range 40 Seconds] AS b WHERE a.k = b.k"

    def new_engine() -> Engine:
        engine = Engine(spark, checkpoint=checkpoint)
        engine.execute(f"{STREAM}; {STREAM.replace(' s ', ' r ')}")
        engine.register("exact", join)
        engine.register("part", join, shedding="prob", memory="24 KB")
        return engine

    def push(engine: Engine, first: int, last: int) -> None:
        engine.push("s", left[first:last])
        engine.push("r", right[first:last])
        engine.process_available()

    with new_engine() as engine:
        push(engine, 0, 400)
    shutil.copytree(checkpoint, copy)
    found = []
    for _ in range(2):
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        with new_engine() as engine:
            push(engine, 400, 600)
            push(engine, 600, 800)
            found.append([Counter(answers(engine, name)) for name in ("part", "exact")])
    assert found[0] == found[1]
    part, exact = found[0]
    assert part and part < exact
    pages = sorted(checkpoint.glob("**/decisions/*-shedding.json"))
    logged = [json.loads(path.read_text())["state"]["budgets"] for path in pages]
    parts = [[budget for (budget,) in each["budgets"]] for budgets in logged for each in budgets.values()]
    assert parts and all(sum(each) <= 24 << 10 for each in parts)
    assert any(len(set(each)) > 1 for each in parts), "memory is divided by what it is worth"


@pytest.mark.parametrize(
    ("policy", "join"),
    [
        ("selective", "s [Range 40 Seconds] AS a, r [Range 30 Seconds] AS b WHERE abs(a.k - b.k) = 1"),
        ("dual", "s [Rows 90] AS a, r [Rows 70] AS b WHERE a.k = b.k"),
    ],
)
def test_joins_that_look_at_a_part_go_on_after_a_restart(
    policy: str, join: str, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    left, right = ([(t * 7 % 11 * (t % 3), t, t // 4) for t in range(first, 600 + first)] for first in (0, 5))

    def new_engine() -> Engine:
        engine = Engine(spark, checkpoint=checkpoint)
        engine.execute(f"{STREAM}; {STREAM.replace(' s ', ' r ')}")
        engine.register("exact", f"SELECT a.k, a.v, b.v AS w FROM {join}")
        engine.register("part", f"SELECT a.k, a.v, b.v AS w FROM {join}", shedding=policy)
        return engine

    def push(engine: Engine, first: int, last: int) -> None:
        engine.push("s", left[first:last])
        engine.push("r", right[first:last])

    with new_engine() as engine:
        push(engine, 0, 100)
        before = Counter(answers(engine, "part"))
        assert before == Counter(answers(engine, "exact")), "as long as nothing is left out, the answer is exact"
        engine.shed("part", 0.6)
        push(engine, 100, 200)
    with new_engine() as engine:
        push(engine, 200, 300)
        push(engine, 300, 600)
        loss = engine.query("part").shedding()
        part, exact = (Counter(answers(engine, name)) for name in ("part", "exact"))
    assert part and part < exact
    assert loss is not None and loss.fraction == 0.6 and loss.why == "by hand" and loss.recall is not None
    coming = [sum(count for (_, sign, *_), count in each.items() if sign == "+") for each in (part, exact)]
    assert loss.recall == pytest.approx(coming[0] / coming[1], abs=0.15)


def test_what_sources_have_is_known_before_it_is_read(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 300).load()
    with Engine(spark) as engine:
        engine.stream("ticks", frame, timestamp="timestamp")
        engine.register("n", "SELECT COUNT(*) AS n FROM ticks [Range 1 Second Slide 1 Second]", shedding="window")
        engine.start()
        engine.process_available()
        engine.process_available()
        network = network_of(engine)
        assert network._shedder is not None
        assert network._shedder._expected == pytest.approx(300)
