"""Shedding on the engine: what is delivered is the exact answer at kept instants, whatever is lost and whenever.

Traces are those of the sheet's section 8, mirrored in time: its windows are stamped with their starts, those of CQL
with their ends. Random queries are judged by the definitional evaluator.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import cql
from cql.catalog import Catalog, QueryDef
from cql.session import Listing
from planner import operators as op
from planner.network import compile_definition
from planner.plan import Plan, combine
from runtime.engine.executor import Executor
from shedding.insert_drops import compile_all, units_of_query
from shedding.schedule import Schedule, UnitRun
from tests import engine_runs
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.definition.evaluator import Result
from tests.shedding_runs import STREAMS, TABLES, at_random, expected, random_data, run_shed

Elements = list[tuple[int, tuple[int, ...], int]]

# Traces. Instant t of the sheet is 61 - t here, so that windows that start at 1, 1 + d, .. end at multiples of d.

MIRROR = 61
READINGS: Elements = [(MIRROR - t, (1, t, MIRROR - t), 1) for t in range(30, 0, -1)]
A1 = "SELECT Rstream(k, SUM(v) AS v) FROM s [Range 3 Seconds Slide 2 Seconds] GROUP BY k"
A2 = "SELECT Rstream(k, SUM(v) AS v) FROM s [Range 3 Seconds Slide 3 Seconds] GROUP BY k"
NESTED = f"SELECT Rstream(k, SUM(v) AS v) FROM ({A1}) [Range 3 Seconds Slide 3 Seconds] GROUP BY k"


def planned(*queries: str, gaps: tuple[int, ...] = (), settings: str = "SET rstream_clock = element;") -> Plan:
    catalog = Catalog()
    catalog.execute(STREAMS + TABLES + settings)
    for at, text in enumerate(queries):
        gap = gaps[at] if gaps else 3
        catalog.execute(f"REGISTER QUERY q{at} AS {text} WITH (shedding = 'window', max_gap = {gap})")
    return combine(compile_all(catalog.queries.values()))


def run_with(plan: Plan, lost: list[UnitRun], data: Elements = READINGS) -> tuple[list[dict[int, int]], list[int]]:
    """Return the sums that each query delivers, by the starts of their windows, and the instants that passed."""
    (units,) = {units_of_query(plan, query) for query in plan.queries}
    assert units is not None
    drop = next(each.id for each in plan.operators if isinstance(each, op.WindowDrop))
    schedule = Schedule(units.length, units.batch, 0, next_unit=1000, lost=lost, first_unit=0)
    executor = Executor(plan, check=True, schedules={units.schedule: schedule}, taps=[drop])
    engine_runs.feed(executor, {"s": data, "r": []}, Random(1))
    results = engine_runs.results(executor, Random(1))
    sums = [
        {MIRROR - instant: row[1] for instant, bag in results[query].items() for row in bag} for query in plan.queries
    ]
    passed = [MIRROR - int(at) for batch in executor.take_tapped(drop) for at in batch.start]
    return sums, passed


def test_trace_of_a_pipeline() -> None:
    plan = planned(NESTED)
    (sums,), passed = run_with(plan, [UnitRun(18, 20)])
    drop = next(each for each in plan.operators if isinstance(each, op.WindowDrop))
    assert (drop.size, drop.units.length) == (5, 3)
    assert {start: total for start, total in sums.items() if start <= 13} == {1: 18, 10: 36, 13: 90}
    assert [t for t in sorted(passed) if t <= 15] == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    (exact,), _ = run_with(plan, [])
    assert {start: total for start, total in exact.items() if start <= 13} == {1: 18, 4: 18, 7: 54, 10: 36, 13: 90}


def test_trace_of_a_fan_out() -> None:
    plan = planned(A1, A2, gaps=(9, 4))
    assert units_of_query(plan, "q0") == units_of_query(plan, "q1") != None  # noqa: E711
    drop = next(each for each in plan.operators if isinstance(each, op.WindowDrop))
    assert (drop.size, drop.units.length, drop.units.batch) == (7, 6, 2)
    (first, second), passed = run_with(plan, [UnitRun(9, 10)])
    assert {start: total for start, total in first.items() if start <= 15} == {1: 6, 3: 12, 5: 18, 13: 42, 15: 48}
    assert {start: total for start, total in second.items() if start <= 15} == {1: 6, 4: 15, 13: 42}
    assert [t for t in sorted(passed) if t <= 15] == [1, 2, 3, 4, 5, 6, 7, 13, 14, 15]


def test_a_window_that_is_not_complete_is_not_delivered() -> None:
    """The paper's table would deliver (7, 7) and (11, 13) here, where the sums are 24 and 36."""
    (first, _), _ = run_with(planned(A1, A2, gaps=(9, 4)), [UnitRun(9, 10)])
    assert not {7, 9, 11} & first.keys()


def test_a_sibling_with_longer_windows_does_not_make_others_deliver_more() -> None:
    """With one mark for all, {A1(10,1), A2(2,2)} would deliver windows of A2 that were lost."""
    long = "SELECT Rstream(k, SUM(v) AS v) FROM s [Range 10 Seconds Slide 1 Seconds] GROUP BY k"
    short = "SELECT Rstream(k, SUM(v) AS v) FROM s [Range 2 Seconds Slide 2 Seconds] GROUP BY k"
    plan = planned(long, short, gaps=(40, 20))
    units = units_of_query(plan, "q1")
    assert units is not None and (units.length, units.batch) == (10, 4)
    (first, second), _ = run_with(plan, [UnitRun(5, 6)])
    assert sorted(MIRROR - start for start in second) == [32, 34, 36, 38, 40, 52, 54, 56, 58, 60]
    assert sorted(MIRROR - start for start in first) == [*range(31, 41), *range(51, 61)]


# Random queries

WINDOWS = ((3, 2), (3, 3), (4, 1), (6, 2), (5, 5), (7, None), (4, None), (1, None), (6, 4), (9, 3))


def random_window(rng: Random) -> str:
    length, slide = rng.choice(WINDOWS)
    return f"[Range {length} Seconds" + (f" Slide {slide} Seconds]" if slide else "]")


def random_block(rng: Random, depth: int, streams: list[str]) -> str:
    """Return the part of a query from FROM on, over columns k and v, grouped or not, with the columns it selects."""
    below = streams.pop(rng.randrange(len(streams))) if depth == 1 else f"({random_stream(rng, depth - 1, streams)})"
    source = f"{below} {random_window(rng)} AS x"
    where = [f"x.v > {rng.randint(0, 2)}"] if rng.random() < 0.4 else []
    match rng.choice(("plain", "plain", "join", "names", "prices")) if depth == 1 and streams else "plain":
        case "join":
            source += f", {streams.pop()} {random_window(rng)} AS y"
            where.append("x.k = y.k")
        case "names":
            source += ", names"
            where.append("x.k = names.k")
        case "prices":
            source += ", prices"
            where.append("x.k = prices.k")
    return f"FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")


def random_stream(rng: Random, depth: int, streams: list[str]) -> str:
    return random_query(rng, depth, streams, rng.choice(("Rstream", "Istream", "Dstream")))


def random_query(rng: Random, depth: int, streams: list[str], kind: str) -> str:
    block = random_block(rng, depth, streams)
    call = rng.choice(("SUM(x.v)", "COUNT(*)", "MAX(x.v)", "COUNT(DISTINCT x.v)"))
    items, group = rng.choice(((f"x.k AS k, {call} AS v", " GROUP BY x.k"), ("x.k AS k, x.v AS v", "")))
    if kind == "":
        return f"SELECT {items} {block}{group}"
    return f"SELECT {kind}({items}) {block}{group}"


def random_network(rng: Random) -> Catalog:
    """Return one to four queries over the same streams; some shed, some do not."""
    catalog = Catalog()
    clock = rng.choice(("tick", "element"))
    catalog.execute(f"{STREAMS}{TABLES}SET rstream_clock = {clock}; SET shedding_seed = {rng.randint(0, 99)}")
    depth = rng.choice((1, 1, 1, 2, 2, 3))
    for at in range(rng.choice((1, 1, 2, 4))):
        kind = rng.choice(("", "", "Rstream", "Istream", "Dstream"))
        text = random_query(rng, depth, ["s", "r"], kind)
        options = f" WITH (shedding = 'window', max_gap = {rng.choice((1, 2, 3, 6))})" if rng.random() < 0.85 else ""
        catalog.execute(f"REGISTER QUERY q{at} AS {text}{options}")
        if options and not has_window(catalog.queries[f"q{at}"]):
            catalog.execute(f"DROP QUERY q{at}; REGISTER QUERY q{at} AS {text}")
    return catalog


def has_window(query: QueryDef) -> bool:
    """Tell whether a query has a window left: rules replace the Rstream of a Now window by the stream itself."""
    return any(isinstance(each, op.SeqWindow) for each in compile_definition(query).operators)


def check_network(catalog: Catalog, rng: Random, **options: object) -> Counter[str]:
    plan = combine(compile_all(catalog.queries.values(), share=rng.random() < 0.8))
    data = random_data(rng)
    results, executor = run_shed(plan, data, rng, at_random(rng), **options)
    counted: Counter[str] = Counter()
    for name, query in catalog.queries.items():
        exact = evaluate(query.tree, data)
        units = units_of_query(plan, name)
        wanted = exact
        if units is not None:
            wanted = expected(plan, name, exact, executor.schedules[units.schedule], data)
            counted["lost"] += wanted.changes != exact.changes
            counted["delivered"] += bool(wanted.changes)
        else:
            assert not query.options, f"{name} asked for shedding"
        problem = disagreement(wanted, results[name])
        assert problem is None, f"{query.text}\n{units}\n{problem}"
    return counted


@pytest.mark.fuzz
def test_what_is_delivered_is_the_exact_answer_at_kept_instants() -> None:
    counted: Counter[str] = Counter()
    count = int(os.environ.get("CQL_FUZZ", "150"))
    for seed in range(count):
        rng = Random(seed)
        counted += check_network(random_network(rng), rng)
    assert min(counted["lost"], counted["delivered"]) > count // 4, counted


@pytest.mark.parametrize("policy", ["fifo", "round-robin", "greedy"])
def test_the_scheduler_changes_nothing(policy: str) -> None:
    for seed in range(1000, 1010):
        rng = Random(seed)
        check_network(random_network(rng), rng, policy=policy, chunk_rows=rng.choice((1, 3, 1000)))


def delivered_share(batch: int, fraction: float) -> tuple[float, int]:
    """Return the share of tumbling windows that a query delivers, and the longest gap between them."""
    plan = planned("SELECT Rstream(COUNT(*) AS n) FROM s [Range 2 Seconds Slide 2 Seconds]", gaps=(batch,), settings="")
    units = units_of_query(plan, "q0")
    assert units is not None
    executor = Executor(plan)
    executor.schedules[units.schedule].decide(fraction, 0)
    data = [(t, (0, 0, t), 1) for t in range(6000)]
    source = plan.sources[0]
    executor.push(source.id, engine_runs.to_batch(source, data, 6000))
    executor.end(source.id)
    executor.run()
    instants = np.unique(executor.take("q0").start // 2)
    gaps = np.diff(np.concatenate(([-1], instants, [2999]))) - 1
    return len(instants) / 3000, int(gaps.max())


@pytest.mark.parametrize(("batch", "fraction"), [(1, 0.3), (4, 0.5), (10, 0.8)])
def test_as_much_is_delivered_as_was_decided_and_no_gap_is_longer(batch: int, fraction: float) -> None:
    share, gap = delivered_share(batch, fraction)
    assert share == pytest.approx(1 - fraction, abs=4 * (fraction * (1 - fraction) * batch / 3000) ** 0.5)
    assert gap <= batch


def test_rows_of_no_kept_window_never_reach_the_window() -> None:
    plan = planned("SELECT k, SUM(v) FROM s [Range 4 Seconds Slide 2 Seconds] GROUP BY k", gaps=(5,))
    executor = Executor(plan)
    (schedule,) = executor.schedules.values()
    schedule.decide(0.7, 0)
    engine_runs.feed(executor, {"s": [(t, (0, 0, t), 1) for t in range(3000)]}, Random(0))
    drop = next(each.id for each in plan.operators if isinstance(each, op.WindowDrop))
    work = executor.statistics.operators[drop]
    # Of each run of 5 lost units of 2 seconds, all but 2 seconds are free: (5 + 1) * 2 - 4 of 10.
    assert 1 - work.elements_out / work.elements_in == pytest.approx(0.7 * 8 / 10, abs=0.06)


# Rows at random


def random_run(text: str, fraction: float, data: Elements) -> Result:
    catalog = Catalog()
    catalog.execute(f"{STREAMS}REGISTER QUERY q AS {text} WITH (shedding = 'random')")
    plan = combine(compile_all(catalog.queries.values()))

    executor = Executor(plan, check=True)
    (schedule,) = executor.schedules.values()
    schedule.decide(fraction, -1000)
    engine_runs.feed(executor, {"s": data, "r": data}, Random(len(data)))
    return Result(engine_runs.results(executor, Random(0))["q"])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM s WHERE v > 1",
        "SELECT Rstream(s.k, r.v) FROM s [Range 2 Seconds], r [Range 3 Seconds] WHERE s.k = r.k",
    ],
)
def test_rows_lost_at_random_leave_a_subset_of_the_answer(text: str) -> None:
    rng = Random(3)
    data: Elements = [(t, (rng.randint(0, 2), rng.randint(0, 4), t), 1) for t in range(200)]
    all_of_it, some, none = (random_run(text, fraction, data) for fraction in (0.0, 0.5, 1.0))
    for instant, bag in some.changes.items():
        assert not bag - all_of_it.changes.get(instant, Counter())
    assert 0.1 < len(list(some.final().elements())) / len(list(all_of_it.final().elements())) < 0.7
    assert not none.changes


# The engine for Python

BIDS = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at;"
LOAD = "SELECT Rstream(COUNT(*) AS n) FROM bid [Range 10 Seconds Slide 10 Seconds]"


@pytest.fixture
def engine() -> cql.Engine:
    engine = cql.Engine(local=True)
    engine.execute(BIDS)
    return engine


def bids(first: int, last: int) -> list[tuple[int, int, int]]:
    return [(1, 2, at) for at in range(first, last)]


def test_shedding_by_hand_takes_effect_with_the_next_unit_and_is_told(engine: cql.Engine) -> None:
    engine.execute(
        f"SET rstream_clock = element; REGISTER QUERY load AS {LOAD} WITH (shedding = 'window', max_gap = 2)"
    )
    engine.execute(f"REGISTER QUERY exact AS {LOAD}")
    load, exact = engine.query("load"), engine.query("exact")
    engine.push("bid", bids(1, 25))
    engine.shed("load", 1.0)
    engine.push("bid", bids(25, 75))
    engine.shed("load", 0.0)
    engine.push("bid", bids(75, 101))
    engine.stop()
    loss = load.shedding()
    assert loss is not None
    assert [(s.first, s.last, s.is_kept) for s in loss.stretches] == [
        (0, 39, True),
        (40, 89, False),
        (90, 109, True),
    ]
    assert (loss.units, loss.lost_units, loss.rows_dropped) == (11, 5, 50)
    instants = [change.ts for change in load.changes()]
    assert instants == [10, 20, 30, 90, 100]
    assert [c for c in exact.changes() if c.ts in instants] == list(load.changes())
    assert exact.shedding() is None


def test_show_shedding_has_a_line_for_each_query_that_asks(engine: cql.Engine) -> None:
    engine.execute(f"REGISTER QUERY load AS {LOAD} WITH (shedding = 'window', max_gap = 2, max_latency = '5 seconds')")
    engine.execute("REGISTER QUERY high AS SELECT price FROM bid WITH (shedding = 'random', weight = 2.5)")
    engine.execute(f"REGISTER QUERY exact AS {LOAD}")
    (before,) = engine.execute("SHOW SHEDDING")
    assert isinstance(before, Listing)
    assert [row[:6] for row in before.rows] == [
        ("load", "window", "2", "1", "5 s", ""),
        ("high", "random", "10", "2.5", "off", ""),
    ]
    engine.start()
    engine.shed("load", 0.9)
    engine.shed("high", 1.0)
    engine.push("bid", bids(1, 2))
    engine.push("bid", bids(2, 101))
    (after,) = engine.execute("SHOW SHEDDING")
    assert isinstance(after, Listing)
    figures = {row[0]: dict(zip(after.columns, row, strict=True)) for row in after.rows}
    assert figures["load"]["wanted"] == "0.9 (more than the gap allows)"
    assert int(figures["load"]["lost"]) > 0 and int(figures["load"]["longest gap"]) <= 2
    assert figures["load"]["why"] == "by hand"
    assert figures["high"]["rows dropped"] == "99"
    engine.stop()


@pytest.mark.parametrize(
    ("work", "code", "message"),
    [
        (lambda engine: engine.shed("exact", 0.5), "CANNOT_SHED", "the query 'exact' does not shed anything"),
        (lambda engine: engine.shed("exact", 1.5), "BAD_OPTION_VALUE", "between 0 and 1"),
        (lambda engine: engine.shed("other", 0.5), "UNKNOWN_QUERY", "there is no query 'other'"),
        (
            lambda engine: (engine.start(), engine.register("new", LOAD), engine.shed("new", 1.0)),
            "BAD_DEFINITION",
            "run",
        ),
    ],
)
def test_what_cannot_be_shed(engine: cql.Engine, work: Callable[[cql.Engine], None], code: str, message: str) -> None:
    engine.execute(f"REGISTER QUERY exact AS {LOAD}")
    with pytest.raises(cql.CqlError, match=message) as caught:
        work(engine)
    assert caught.value.diagnostics[0].code.name == code
    engine.stop()
