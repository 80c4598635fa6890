"""Joins that give up rows: what they find is a part of the exact answer, within memory, and the same however often."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import numpy as np
import pytest

import cql
from cql import CqlError
from cql.catalog import Catalog
from planner import operators as op
from runtime.engine.executor import Executor
from runtime.operators.joins import memory_limited
from shedding.insert_drops import plan_of
from tests.definition.evaluator import Element
from tests.fragment_runs import FragmentRun

STREAMS = "CREATE STREAM r (k INT, v INT, t INT) TIMESTAMP BY t; CREATE STREAM s (k INT, w INT, t INT) TIMESTAMP BY t;"
JOIN = "SELECT r.k, r.v, s.w FROM r [Range 40 Seconds], s [Range 30 Seconds] WHERE r.k = s.k"
KEYS = 40
Rows = list[tuple[int, int, int]]
Change = tuple[object, ...]


def zipfian(rng: np.random.Generator, ticks: int, each: int) -> Rows:
    ranks = 1 / np.arange(1, KEYS + 1)
    keys = rng.choice(KEYS, ticks * each, p=ranks / ranks.sum())
    return [(int(key), at, at // each) for at, key in enumerate(keys)]


def registered(policy: str, memory: str, allocation: str = "variable", more: str = "") -> str:
    given = f"shedding = '{policy}', memory = '{memory}', allocation = '{allocation}'"
    asked = "" if policy == "exact" else f" WITH ({given})"
    return f"REGISTER QUERY q AS {JOIN}{more}{asked}"


def pairs(engine: cql.Engine) -> Counter[Change]:
    """Return the rows that come and go, with their instants."""
    return Counter((change.ts, change.op, *change.row.values()) for change in engine.query("q").changes())


def run(
    policy: str,
    memory: str,
    left: Rows,
    right: Rows,
    cuts: list[int],
    allocation: str = "variable",
    more: str = "",
) -> tuple[Counter[Change], cql.Engine, int]:
    """Push rows in portions that end at some instants; return changes and the most bytes that were held."""
    engine = cql.Engine(local=True)
    engine.execute(STREAMS + registered(policy, memory, allocation, more))
    engine.start()
    most = 0
    for first, last in zip([-1, *cuts], [*cuts, 10**9], strict=True):
        engine.push("r", [row for row in left if first < row[2] <= last])
        engine.push("s", [row for row in right if first < row[2] <= last])
        engine.process_available()
        most = max(most, held(engine))
    engine.stop()
    return pairs(engine), engine, most


def executors(engine: cql.Engine) -> list[Executor]:
    network = engine._run
    parts = network._parts if network is not None else []  # type: ignore[union-attr]
    return [worker.executor for part in parts for worker in part.network._workers.values()]


def held(engine: cql.Engine) -> int:
    return sum(join.nbytes for e in executors(engine) for join in memory_limited(e.operators).values())


@pytest.mark.parametrize("policy", ["rand", "prob", "life"])
@pytest.mark.parametrize("allocation", ["variable", "fixed"])
@pytest.mark.parametrize(("seed", "more"), [(0, ""), (1, ""), (2, " AND (r.v + s.w) % 5 < 2")])
def test_what_is_found_is_a_part_of_the_exact_answer_within_the_budget(
    policy: str, allocation: str, seed: int, more: str
) -> None:
    rng, cuts = np.random.default_rng(seed), sorted(Random(seed).sample(range(119), 10))
    left, right = zipfian(rng, 120, 4), zipfian(rng, 120, 4)
    exact, *_ = run("exact", "", left, right, cuts, more=more)
    found, engine, most = run(policy, "8 KB", left, right, cuts, allocation, more)
    assert found and found < exact
    assert most <= 8 << 10
    coming = [change for change in found.elements() if change[1] == "+"]
    assert Counter(coming) <= exact
    loss = engine.query("q").shedding()
    assert loss is not None and loss.recall is not None and loss.rows_dropped > 0 and loss.why == "memory"
    true = len(coming) / sum(count for change, count in exact.items() if change[1] == "+")
    assert loss.recall == pytest.approx(true, abs=0.05)


@pytest.mark.parametrize("policy", ["rand", "prob", "life"])
def test_with_memory_for_all_the_answer_is_exact(policy: str) -> None:
    rng = np.random.default_rng(5)
    left, right, cuts = zipfian(rng, 120, 5), zipfian(rng, 120, 5), [20, 50, 51, 90]
    exact, *_ = run("exact", "", left, right, cuts)
    found, engine, _ = run(policy, "64 MB", left, right, cuts)
    loss = engine.query("q").shedding()
    assert found == exact and loss is not None and loss.recall == 1 and loss.rows_dropped == 0


def test_those_that_are_likely_to_match_are_kept() -> None:
    rng, cuts = np.random.default_rng(3), list(range(1, 120, 2))
    left, right = zipfian(rng, 120, 5), zipfian(rng, 120, 5)
    found = {policy: run(policy, "8 KB", left, right, cuts)[0].total() for policy in ("rand", "life", "prob")}
    assert found["rand"] * 1.3 < found["life"] and found["rand"] * 1.5 < found["prob"]


def test_with_fixed_allocation_neither_input_has_more_than_half() -> None:
    rng, cuts = np.random.default_rng(4), list(range(5, 120, 5))
    left, right = zipfian(rng, 120, 12), zipfian(rng, 120, 2)
    for allocation in ("variable", "fixed"):
        engine = run("prob", "16 KB", left, right, cuts, allocation)[1]
        (join,) = [join for e in executors(engine) for join in memory_limited(e.operators).values()]
        first, second = join.held_bytes
        assert first + second <= 16 << 10
        assert (first <= 8 << 10 and second <= 8 << 10) == (allocation == "fixed")


def test_the_same_rows_in_the_same_portions_find_the_same() -> None:
    rng = np.random.default_rng(9)
    left, right, cuts = zipfian(rng, 100, 10), zipfian(rng, 100, 10), [10, 30, 60, 61, 80]
    first, second = (run("rand", "12 KB", left, right, cuts)[0] for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("query", "options", "what"),
    [
        (JOIN, "shedding = 'prob'", "does not say how much memory"),
        (JOIN, "shedding = 'prob', memory = 'much'", "cannot be 'much'"),
        ("SELECT * FROM r [Range 5 Seconds]", "shedding = 'life', memory = '1 MB'", "not one join"),
        (
            "SELECT r.v FROM r [Rows 5], s [Rows 5] WHERE r.k = s.k",
            "shedding = 'rand', memory = '1 MB'",
            "windows of time",
        ),
        (
            "SELECT r.v FROM r [Range 5], s [Range 5] WHERE r.k < s.k",
            "shedding = 'rand', memory = '1 MB'",
            "equal values",
        ),
        (JOIN, "shedding = 'prob', memory = '100 bytes'", "a row of each input"),
        (f"Istream({JOIN})", "shedding = 'prob', memory = '1 MB'", "wrong answers"),
        (
            "SELECT COUNT(*) FROM r [Range 5], s [Range 5] WHERE r.k = s.k",
            "shedding = 'prob', memory = '1 MB'",
            "wrong answers",
        ),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(query: str, options: str, what: str) -> None:
    engine = cql.Engine(local=True)
    engine.execute(STREAMS)
    with pytest.raises(CqlError, match=what):
        engine.execute(f"REGISTER QUERY q AS {query} WITH ({options})")
        engine.start()


# In buckets


def in_buckets(
    policy: str,
    memory: str,
    buckets: int,
    forgets: int,
    left: Rows,
    right: Rows,
    *,
    allocation: str = "variable",
    divides: bool = True,
) -> Counter[Change]:
    """Run the join in buckets, always cut in the same way, whose workers are thrown away and made again at random.

    They never hold more than the memory, which is divided by what they would hold, or evenly.
    """
    catalog = Catalog()
    catalog.execute(STREAMS + registered(policy, memory, allocation))
    data: dict[str, list[Element]] = {
        name: [(row[2], row, 1) for row in rows] for name, rows in (("r", left), ("s", right))
    }
    network = FragmentRun(plan_of(catalog), data, Random(1), buckets=buckets)
    network.cluster._rng = Random(forgets)
    if not divides:
        network.budgets.learn = lambda demands: None  # type: ignore[method-assign]
    joins = [each for each in network.cluster.layout.plan.operators if isinstance(each, op.EvictingJoin)]
    while network.step():
        for join in joins:
            held = [each.held[join.id][1] for each in network.reports if join.id in each.held]
            assert len(held) in (0, buckets) and sum(held) <= join.memory
    changes = network.finish()["q"].changes
    return Counter({(instant, row, n > 0): abs(n) for instant, rows in changes.items() for row, n in rows.items()})


@cache
def exactly(buckets: int) -> tuple[Rows, Rows, Counter[Change]]:
    """Return the rows of two streams, and what their join in buckets finds without shedding."""
    rng = np.random.default_rng(buckets)
    left, right = zipfian(rng, 100, 5), zipfian(rng, 100, 5)
    return left, right, in_buckets("exact", "", buckets, 1, left, right)


@pytest.mark.parametrize("policy", ["rand", "prob", "life"])
@pytest.mark.parametrize(("buckets", "allocation"), [(1, "variable"), (3, "variable"), (4, "fixed")])
def test_workers_that_are_made_again_find_what_those_before_would_have(
    policy: str, buckets: int, allocation: str
) -> None:
    left, right, exact = exactly(buckets)
    found = [in_buckets(policy, "12 KB", buckets, forgets, left, right, allocation=allocation) for forgets in (1, 2)]
    assert found[0] == found[1]
    assert found[0] and found[0] < exact
    assert in_buckets(policy, "64 MB", buckets, 3, left, right) == exact


@pytest.mark.parametrize("policy", ["rand", "prob", "life"])
def test_memory_goes_where_it_is_worth_most(policy: str) -> None:
    rng = np.random.default_rng(2)
    left, right = zipfian(rng, 100, 6), zipfian(rng, 100, 6)
    evenly, by_worth = (in_buckets(policy, "16 KB", 8, 1, left, right, divides=divides) for divides in (False, True))
    assert by_worth.total() > 1.3 * evenly.total()


def test_explain_says_what_is_given_up() -> None:
    engine = cql.Engine(local=True)
    engine.execute(STREAMS + registered("prob", "64 MB"))
    (shown,) = engine.execute("EXPLAIN ALL")
    assert "evicting-join (prob in 64 MB) on r.k = s.k" in str(shown)
    assert "rows of both inputs, as many as 64 MB hold" in str(shown)
    (listed,) = engine.execute("SHOW SHEDDING")
    assert "prob" in str(listed)
