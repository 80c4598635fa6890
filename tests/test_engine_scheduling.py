"""Schedulers and the statistics they decide by: the thesis's tables, and what each policy promises."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import cql
from benchmarks.chain import EXAMPLES, EXPECTED, Line, queue_sizes
from cql.errors import CqlError
from planner import operators as op
from planner.costs import Estimate
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.engine.queues import Queue
from runtime.engine.scheduling import (
    POLICIES,
    RARELY,
    Fifo,
    Greedy,
    Measured,
    Path,
    Ready,
    RoundRobin,
    Scheduler,
    SteepestChain,
    paths_of,
    scheduler,
)
from runtime.engine.statistics import COLUMNS, SECONDS_PER_UNIT, Statistics

ROUNDS = int(os.environ.get("CQL_FUZZ", "200"))
"""How many random paths and networks are tried."""

TABLES = """
CREATE STREAM packets (link STRING, bytes INT, at INT) TIMESTAMP BY at;
CREATE STREAM alarms (link STRING, level INT, at INT) TIMESTAMP BY at;
"""
QUERIES = {
    "load": "SELECT link, SUM(bytes) FROM packets [Range 60] GROUP BY link",
    "big": "SELECT link FROM packets WHERE bytes > 1000",
    "both": "SELECT Istream(p.bytes, a.level) FROM packets [Range 60] p, alarms [Range 60] a WHERE p.link = a.link",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    catalog = cql.Catalog()
    catalog.execute(TABLES)
    return combine(compile_query(name, cql.bind(text, catalog)) for name, text in QUERIES.items())


class Known:
    """Operators whose figures are given: seconds per element and elements out for each, and bytes of an element."""

    def __init__(self, estimates: Mapping[str, tuple[float, float]], widths: Mapping[str, float] | None = None) -> None:
        self.estimates = dict(estimates)
        self.widths = widths or {}
        self.asked = 0

    def estimate(self, operator: str) -> Estimate:
        self.asked += 1
        return Estimate(*self.estimates.get(operator, (0.0, 1.0)))

    def width(self, operator: str) -> float:
        return self.widths.get(operator, 1.0)


def ready(*waiting: tuple[str, int]) -> list[Ready]:
    return [Ready(operator, 0, arrival, 1, 1) for operator, arrival in waiting]


def steepest(
    kind: type[SteepestChain] | type[Greedy], paths: Sequence[Path], measured: Measured
) -> SteepestChain | Greedy:
    return kind(list(dict.fromkeys(each for path in paths for each in path)), paths, measured)


# ------------------------------------------------------------------------------------------- the thesis's tables


@pytest.mark.parametrize(("example", "policy"), EXPECTED)
def test_queue_sizes_are_those_of_the_thesis(example: str, policy: str) -> None:
    line = EXAMPLES[example]
    during, after = EXPECTED[example, policy]
    assert queue_sizes(line, line.scheduler(policy)) == [*during, *after]


@pytest.mark.parametrize(("example", "area"), [("example 1", 16.8), ("example 2", 61.6)])
def test_chain_is_the_best_possible_in_the_examples(example: str, area: float) -> None:
    line = EXAMPLES[example]
    assert sum(queue_sizes(line, line.scheduler("chain"))) == pytest.approx(area)
    assert least_area(line.sizes, 7) == pytest.approx(area)


@pytest.mark.fuzz
def test_chain_is_the_best_possible_on_short_paths() -> None:
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        sizes = [100]
        for _ in range(rng.randint(1, 2)):
            sizes.append(rng.randint(1, sizes[-1]))
        line = Line((*sizes, 0))
        areas = {policy: sum(queue_sizes(line, line.scheduler(policy), 5)) for policy in POLICIES}
        best = least_area(line.sizes, 5)
        assert areas["chain"] == pytest.approx(best), (line, areas)
        assert min(areas.values()) >= best - 1e-9, (line, areas)


def least_area(sizes: tuple[int, ...], arrivals: int) -> float:
    """Return the smallest total of queue sizes over time that any order of work has; a batch arrives at 0, 1, .."""

    @cache
    def least(at: int, waiting: tuple[int, ...]) -> float:
        if at < arrivals:
            waiting = (waiting[0] + 1, *waiting[1:])
        now = sum(count * size for count, size in zip(waiting, sizes, strict=False)) / sizes[0]
        if not any(waiting) and at >= arrivals:
            return 0.0
        return now + min(least(at + 1, after) for after in steps(waiting))

    return least(0, (0,) * (len(sizes) - 1))


def steps(waiting: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    for at, count in enumerate(waiting):
        if count:
            moved = list(waiting)
            moved[at] -= 1
            if at + 1 < len(moved):
                moved[at + 1] += 1
            yield tuple(moved)


# -------------------------------------------------------------------------------------------------- each policy


def test_fifo_takes_the_oldest_arrival_whatever_it_costs() -> None:
    assert Fifo(["a", "b", "c"]).next(ready(("c", 7), ("a", 5), ("b", 6))) == 1


def test_fifo_carries_what_is_furthest_along_first() -> None:
    assert Fifo(["a", "b", "c"]).next(ready(("a", 5), ("c", 5), ("b", 5))) == 1


def test_round_robin_gives_everybody_a_turn() -> None:
    policy = RoundRobin()
    waiting = ready(("a", 1), ("b", 2), ("c", 3))
    assert [policy.next(waiting) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert policy.next(waiting[2:]) == 0
    assert [policy.next(waiting) for _ in range(3)] == [1, 0, 2]


def test_round_robin_takes_turns_between_the_inputs_of_an_operator() -> None:
    policy = RoundRobin()
    waiting = [Ready("join", 0, 1, 1, 1), Ready("join", 1, 1, 1, 1)]
    assert [policy.next(waiting) for _ in range(4)] == [0, 1, 0, 1]


def test_greedy_goes_by_the_operator_and_chain_by_the_path() -> None:
    path = ("source", "a", "b", "c")
    known = Known({"a": (1.0, 0.9), "b": (1.0, 1.0), "c": (1.0, 0.0)})
    greedy, chain = steepest(Greedy, [path], known), steepest(SteepestChain, [path], known)
    assert greedy.next(ready(("b", 1), ("a", 2))) == 1
    assert chain.next(ready(("b", 1), ("a", 2))) == 0
    assert greedy.slopes["c"] > greedy.slopes["a"] > greedy.slopes["b"]
    assert chain.slopes["a"] == chain.slopes["b"] == chain.slopes["c"]


@pytest.mark.parametrize("kind", [Greedy, SteepestChain])
def test_equal_slopes_are_fifo(kind: type[SteepestChain] | type[Greedy]) -> None:
    paths = [("source", "a"), ("source", "b")]
    policy = steepest(kind, paths, Known({"a": (1.0, 0.0), "b": (1.0, 0.0)}))
    assert policy.next(ready(("a", 4), ("b", 3))) == 1
    assert policy.next(ready(("a", 3), ("b", 4))) == 0


def test_an_operator_on_several_paths_has_its_steepest_slope() -> None:
    known = Known({"shared": (1.0, 1.0), "good": (1.0, 0.0), "poor": (9.0, 0.0)})
    good, poor = ("source", "shared", "good"), ("source", "shared", "poor")
    for paths in ([poor, good], [good, poor]):
        policy = steepest(SteepestChain, paths, known)
        policy.refresh()
        assert policy.slopes == {"source": float("-inf"), "shared": 0.5, "good": 0.5, "poor": 0.1}


def test_an_operator_on_no_path_comes_last_but_comes() -> None:
    policy = SteepestChain(["source", "a", "lost"], [("source", "a")], Known({"a": (1.0, 3.0)}))
    assert policy.next(ready(("lost", 1), ("a", 9))) == 1
    assert policy.next(ready(("lost", 1))) == 0


def test_fewer_bytes_count_as_fewer_elements_do() -> None:
    """A projection that passes everything, but only a tenth of each row, is better than a filter of one half."""
    known = Known(
        {"narrow": (1.0, 1.0), "filter": (1.0, 0.5)}, {"source": 100.0, "narrow": 10.0, "filter": 100.0, "end": 1.0}
    )
    policy = steepest(SteepestChain, [("source", "narrow"), ("source", "filter")], known)
    policy.refresh()
    assert policy.slopes["narrow"] == pytest.approx(90.0)
    assert policy.slopes["filter"] == pytest.approx(50.0)


def test_slopes_follow_the_measurements_but_are_computed_rarely() -> None:
    known = Known({"a": (1.0, 0.0), "b": (2.0, 0.0)})
    policy = steepest(SteepestChain, [("source", "a"), ("source", "b")], known)
    waiting = ready(("a", 1), ("b", 0))
    assert policy.next(waiting) == 0
    known.estimates["a"] = (5.0, 0.0)
    assert policy.next(waiting) == 1
    for _ in range(20 * RARELY):
        policy.next(waiting)
    assert known.asked // 3 < 40


# ---------------------------------------------------------------------------------------------------- every policy


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_drains_a_network(policy: str, plan: Plan) -> None:
    for seed in range(10):
        assert_drains(policy, plan, random.Random(seed))


def assert_drains(policy: str, plan: Plan, rng: random.Random) -> None:
    """Push batches into a network of operators that pass on some of what they get, until nothing waits."""
    streams = {operator.id: operator.is_stream for operator in plan.operators}
    queues = {each.producer: Queue(each.id, each.readers, streams[each.producer]) for each in plan.queues}
    inputs = {(o.id, port): queues[edge.operator] for o in plan.operators for port, edge in enumerate(o.inputs)}
    statistics = Statistics(plan, queues.values())
    chosen = scheduler(policy, plan, statistics)
    sources = [o.id for o in plan.operators if isinstance(o, op.Source)]
    heard: dict[tuple[str, int], int] = {}

    def step() -> bool:
        waiting = [
            Ready(operator, port, *found)
            for (operator, port), queue in inputs.items()
            if (found := queue.waiting(f"{operator}:{port}"))
        ]
        if not waiting:
            return False
        operator, port, arrival, _, _ = waiting[chosen.next(waiting)]
        taken = inputs[operator, port].pop(f"{operator}:{port}", rng.choice((1, 10, 1000)))
        heard[operator, port] = taken.until
        until = min(heard.get((o, p), 0) for o, p in inputs if o == operator)
        moved = operator in queues and until > queues[operator].until
        rows = rng.randint(0, len(taken)) if moved else 0
        statistics.operators[operator].record(len(taken), rows, rng.random())
        if operator in queues:
            queues[operator].put(ChangeBatch((), np.full(rows, until - 1), None, None, until), arrival)
        return True

    for arrival in range(20):
        for source in sources:
            starts = np.arange(100 * arrival, 100 * arrival + 100)
            queues[source].put(ChangeBatch((), starts, None, None, 100 * arrival + 100), arrival)
        for _ in range(rng.randint(0, 10)):
            step()
    while step():
        pass
    assert all(until == 2000 for until in heard.values())
    assert set(heard) == set(inputs)
    assert all(queue.held_elements == 0 for queue in queues.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_chooses_one_of_those_that_wait(policy: str, plan: Plan) -> None:
    rng = random.Random(1)
    chosen: Scheduler = scheduler(policy, plan, Statistics(plan))
    operators = [operator.id for operator in plan.operators if operator.inputs]
    for _ in range(500):
        waiting = [Ready(rng.choice(operators), 0, rng.randint(0, 3), 1, 1) for _ in range(rng.randint(1, 8))]
        assert 0 <= chosen.next(waiting) < len(waiting)


def test_an_unknown_policy_is_refused_with_a_suggestion(plan: Plan) -> None:
    with pytest.raises(CqlError, match="no scheduling policy 'chains'") as caught:
        scheduler("chains", plan, Statistics(plan))
    assert caught.value.diagnostics[0].candidates == ("chain",)


def test_the_paths_of_a_plan_lead_from_sources_to_outputs(plan: Plan) -> None:
    paths = paths_of(plan)
    assert len(paths) == 4
    for path in paths:
        assert isinstance(plan.by_id[path[0]], op.Source)
        assert isinstance(plan.by_id[path[-1]], op.Output)
        for producer, reader in pairwise(path):
            assert producer in [edge.operator for edge in plan.by_id[reader].inputs]


# ------------------------------------------------------------------------------------------------------ statistics


def select_of(plan: Plan) -> str:
    return next(operator.id for operator in plan.operators if isinstance(operator, op.Select))


def test_an_estimate_starts_as_the_planners_guess(plan: Plan) -> None:
    statistics, select = Statistics(plan), select_of(plan)
    guessed = plan.by_id[select].estimate()
    assert statistics.estimate(select) == pytest.approx((guessed.cost * SECONDS_PER_UNIT, guessed.selectivity))


def test_an_estimate_becomes_what_is_measured(plan: Plan) -> None:
    statistics, select = Statistics(plan), select_of(plan)
    for _ in range(3):
        statistics.operators[select].record(1000, 700, 0.001)
    assert statistics.estimate(select) == pytest.approx((1e-6, 0.7), rel=0.05)
    for _ in range(100):
        statistics.operators[select].record(1000, 10, 0.004)
    assert statistics.estimate(select) == pytest.approx((4e-6, 0.01), rel=0.02)


def test_output_that_comes_with_a_heartbeat_counts_for_the_elements_before_it(plan: Plan) -> None:
    statistics, select = Statistics(plan), select_of(plan)
    for _ in range(200):
        statistics.operators[select].record(1000, 0, 0.001)
        statistics.operators[select].record(0, 500, 0.001)
    assert statistics.estimate(select) == pytest.approx((2e-6, 0.5))


def test_heartbeats_of_an_idle_operator_do_not_spoil_its_estimate(plan: Plan) -> None:
    statistics, select = Statistics(plan), select_of(plan)
    for _ in range(50):
        statistics.operators[select].record(10_000, 5_000, 0.01)
    for _ in range(100_000):
        statistics.operators[select].record(0, 0, 0.00001)
    assert statistics.estimate(select) == pytest.approx((1e-6, 0.5), rel=0.001)


def test_what_an_output_puts_out_has_left_the_system(plan: Plan) -> None:
    statistics = Statistics(plan)
    output = plan.output("big").id
    statistics.operators[output].record(100, 100, 0.1)
    assert statistics.estimate(output).selectivity == 0.0
    assert statistics.snapshot().of(output).elements_out == 100


def test_the_width_of_elements_is_guessed_from_types_until_it_is_measured(plan: Plan) -> None:
    source = next(o for o in plan.operators if isinstance(o, op.Source) and o.table == "packets")
    queue = Queue(f"queue/{source.id}", ("reader:0",), True)
    statistics = Statistics(plan, [queue])
    assert statistics.width(source.id) == 16 + 20 + 4 + 4
    queue.put(ChangeBatch((), np.arange(10), None, None, 10), 0)
    assert statistics.width(source.id) == 8


def test_a_snapshot_has_a_row_for_every_part_of_the_plan(plan: Plan) -> None:
    queues = [Queue(each.id, each.readers, True) for each in plan.queues]
    statistics = Statistics(plan, queues)
    source = next(iter(statistics.sources))
    statistics.sources[source].record(90, late=7, skipped=3)
    synopsis = plan.synopses[0].id
    statistics.synopses[synopsis].record(10, 800)
    statistics.synopses[synopsis].record(4, 320)
    select = select_of(plan)
    statistics.operators[select].record(100, 25, 0.5)
    statistics.state[plan.output("load").id].record(0, 64)
    queues[0].put(ChangeBatch((), np.arange(10), None, None, 10), 0)
    snapshot = statistics.snapshot()

    kinds = [row[COLUMNS.index("kind")] for row in snapshot.rows()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "source": 2,
        "operator": len(plan.operators) - 2,
        "queue": len(plan.queues),
        "synopsis": len(plan.synopses),
        "store": len(plan.stores),
    }
    assert all(len(row) == len(COLUMNS) for row in snapshot.rows())
    shown = {each["name"]: each for each in json.loads(snapshot.to_json())}
    assert shown[source] == {
        "name": source, "kind": "source", "what": "packets", "elements_in": 90, "late": 7, "skipped": 3,
    }  # fmt: skip
    assert shown[select] == {
        "name": select, "kind": "operator", "what": "select", "batches": 1,
        "elements_in": 100, "elements_out": 25, "selectivity": 0.25, "seconds": 0.5,
    }  # fmt: skip
    assert shown[plan.output("load").id]["bytes_now"] == 64
    assert shown[queues[0].id]["bytes_peak"] == 80
    assert (shown[synopsis]["bytes_now"], shown[synopsis]["bytes_peak"]) == (320, 800)
    statistics.operators[select].record(100, 25, 0.5)
    assert snapshot.of(select).batches == 1
