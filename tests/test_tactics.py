"""Tactics: probing orders and orders of predicates change what is computed, never what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from planner import operators as op
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import BLOCK_ROWS
from runtime.engine.executor import Executor
from runtime.engine.statistics import of_parts
from runtime.expressions import costs
from runtime.expressions.filters import Filter
from runtime.expressions.program import KERNELS
from runtime.network.counters import Counters
from runtime.operators.joins import InnerJoin
from runtime.user_errors import UserFunctionFailed
from tests.agreement import disagreement
from tests.definition import Result, evaluate
from tests.engine_runs import feed, results, to_batch
from tests.fragment_runs import FragmentRun
from tests.random_data import random_data
from tests.random_orders import take_random_orders

TABLES = """
    CREATE STREAM a (k INT, v INT, t INT) TIMESTAMP BY t;
    CREATE STREAM b (k INT, v INT, t INT) TIMESTAMP BY t;
    CREATE RELATION c (k INT, v INT, t INT, sign INT) TIMESTAMP BY t SIGN BY sign;
    CREATE STREAM d (k INT, v INT, s STRING, t INT) TIMESTAMP BY t;
"""
WINDOWS = ("[Range 3]", "[Range 5]", "[Rows 2]", "[Now]", "")


def catalog() -> cql.Catalog:
    made = cql.Catalog()
    made.execute(TABLES)
    return made


def planned(query: str, known: cql.Catalog) -> Plan:
    return combine([compile_query("q", cql.bind(query, known))])


# Probing orders


def multiway(rng: Random) -> str:
    names = rng.choices("abcd", k=rng.choice((3, 3, 4)))
    tables = [f"{name} {'' if name == 'c' else rng.choice(WINDOWS)} x{at}" for at, name in enumerate(names)]
    same = [f"x0.k = x{at}.k" for at in range(1, len(names))]
    residual = rng.choice(([], [], ["x0.v < x1.v"], ["x0.v + x1.v >= x2.v"]))
    columns = ", ".join(f"x{at}.v AS v{at}" for at in range(len(names)))
    return f"SELECT x0.k, {columns} FROM {', '.join(tables)} WHERE {' AND '.join([*same, *residual])}"


@pytest.mark.parametrize("seed", range(60))
def test_joins_find_the_same_in_any_order_changed_between_batches(seed: int) -> None:
    rng, known = Random(seed), catalog()
    tree = cql.bind(multiway(rng), known)
    plan = combine([compile_query("q", tree)])
    data = random_data(rng, known, most=8)
    executor = Executor(plan, check=True, on_bad_row="skip", block_rows=rng.choice((1, 3, BLOCK_ROWS)))
    assert any(isinstance(each.node, op.MJoin) for each in executor.operators.values())
    take_random_orders(executor, rng)
    feed(executor, data, rng)
    found = Result(results(executor, rng)["q"])
    assert disagreement(evaluate(tree, data), found) is None


class FixedProbes:
    """The same order for all batches."""

    def __init__(self, orders: dict[int, Sequence[int]]) -> None:
        self._orders = orders

    def order(self, port: int) -> Sequence[int]:
        return self._orders[port]


def test_the_order_decides_what_probes_cost_and_figures_tell_it() -> None:
    windows = "a [Range 9] x, b [Range 9] y, d [Range 9] z"
    plan = planned(f"SELECT x.k FROM {windows} WHERE x.k = y.k AND y.k = z.k", catalog())
    executor = Executor(plan, check=True)
    (join,) = [each for each in executor.operators.values() if isinstance(each, InnerJoin)]

    def push(table: str, key: int, times: int, at: int) -> None:
        source = next(each for each in plan.operators if isinstance(each, op.Source) and each.table == table)
        row = (key, 0, "", at) if table == "d" else (key, 0, at)
        executor.push(source.id, to_batch(source, [(at, row, 1)] * times, at + 1))
        executor.run()

    push("b", key=7, times=10, at=1)
    push("d", key=8, times=1, at=1)
    push("a", key=7, times=2, at=1)
    figures = {(step.name, step.rows_in, step.candidates, step.rows_out) for step in join.figures()}
    assert ("input 1 probes input 2 in step 1", 2, 20, 20) in figures
    assert ("input 1 probes input 3 in step 2", 20, 0, 0) in figures
    join.matcher.probing_order = FixedProbes({0: (2, 1)})
    push("a", key=7, times=2, at=2)
    figures = {(step.name, step.rows_in, step.candidates, step.rows_out) for step in join.figures()}
    assert ("input 1 probes input 3 in step 1", 2, 0, 0) in figures
    assert not any(name == "input 1 probes input 2 in step 2" and probes for name, probes, *_ in figures)


# Filters


PREDICATES = (
    "k > 2",
    "v % 3 <> 1",
    "s LIKE '%a%'",
    "upper(s) LIKE 'B%'",
    "CAST(s AS INT) IS NULL",
    "CAST(k AS STRING) <> '3'",
    "CASE WHEN k > v THEN s LIKE 'a%' WHEN k = 1 THEN regexp_like(s, '^b') ELSE v > 2 END",
    "own(v) > 1",
    "own(v) <= 4",
    "own(k) IS NOT NULL",
)


@pytest.mark.parametrize("seed", range(60))
def test_filters_pass_the_same_rows_in_any_order_changed_between_batches(seed: int) -> None:
    rng, known = Random(seed), catalog()
    functions = {"own": lambda x: None if x is None or x % 4 == 0 else x}
    known.function(functions["own"], name="own", arguments=["INT"], returns="INT")
    predicates = rng.sample(PREDICATES, rng.randint(2, 6))
    tree = cql.bind(f"SELECT k, v, s FROM d WHERE {' AND '.join(predicates)}", known)
    plan = combine([compile_query("q", tree)])
    data = random_data(rng, known, ["d"], most=16)
    executor = Executor(plan, functions, check=True)
    take_random_orders(executor, rng)
    feed(executor, data, rng)
    found = Result(results(executor, rng)["q"])
    assert disagreement(evaluate(tree, data, functions), found) is None


def filtered(condition: str, values: Sequence[Any], **functions: Callable[[Any], Any]) -> tuple[Filter, list[int]]:
    """Return the filter of a condition about `v`, and the places of the values that it passes."""
    known = catalog()
    for name, code in functions.items():
        known.function(code, name=name, arguments=["INT"], returns="INT")
    plan = planned(f"SELECT v FROM a WHERE {condition}", known)
    (select,) = [each for each in plan.operators if isinstance(each, op.Select)]
    made = Filter(select.predicates, functions)
    at = [column.name for column in select.columns].index("v")
    columns = [pa.nulls(len(values), pa.int32())] * len(select.columns)
    columns[at] = pa.array(values, pa.int32())
    return made, np.flatnonzero(made.holds(columns, len(values))).tolist()


class Recorded:
    """A function of the user that fails where it should not be called, and notes its calls."""

    def __init__(self, *refused: Any) -> None:
        self.calls: list[Any] = []
        self._refused = refused

    def __call__(self, x: Any) -> Any:
        assert x not in self._refused, f"called with {x}"
        self.calls.append(x)
        return x


@pytest.mark.parametrize("condition", ["v > 2 AND f(v) < 9", "f(v) < 9 AND v > 2"])
def test_a_row_that_is_removed_or_unknown_is_not_given_to_a_function(condition: str) -> None:
    assert filtered(condition, [1, 2, 3, None, 4], f=Recorded(1, 2, None))[1] == [2, 4]


def test_of_two_functions_the_second_gets_what_the_first_lets_pass() -> None:
    first, second = Recorded(), Recorded(1, 2, None)
    found = filtered("f(v) > 2 AND g(v) < 9", [1, 2, 3, None, 4, 10], f=first, g=second)[1]
    assert found == [2, 4]
    assert sorted(second.calls) == [3, 4, 10] and len(first.calls) == 6


def test_a_function_that_fails_tells_the_row_it_was_given() -> None:
    with pytest.raises(UserFunctionFailed) as failure:
        filtered("v > 2 AND f(v) < 9", [1, 2, 5, 7, 4], f=Recorded(7))
    assert failure.value.arguments == (7,) and 7 in failure.value.values


def test_what_predicates_have_in_common_is_computed_once() -> None:
    code = Recorded()
    assert filtered("f(v) BETWEEN 2 AND 3", [1, 2, 3, 4], f=code)[1] == [1, 2]
    assert sorted(code.calls) == [1, 2, 3, 4]


def test_each_predicate_tells_how_many_rows_it_was_given_and_passed() -> None:
    made, found = filtered("v > 1 AND v < 9 AND f(v) <> 3", [1, 2, 3, None, 9, 4], f=Recorded())
    assert found == [1, 5]
    assert sorted((own.rows_in, own.rows_out) for own in made.figures) == [(3, 2), (6, 4), (6, 4)]
    assert all(own.seconds > 0 for own in made.figures)


def test_steps_are_part_of_the_statistics_of_their_operators() -> None:
    plan = planned("SELECT x.v FROM a [Range 3] x, b [Range 3] y WHERE x.k = y.k AND x.v > 1 AND x.k < 5", catalog())
    executor = Executor(plan)
    feed(executor, {"a": [(1, (1, 2, 1), 1)], "b": [(1, (1, 0, 1), 1)]}, Random(0))
    steps = [each for each in executor.statistics_now().figures if each.kind in ("predicate", "probe")]
    assert {each.what for each in steps} >= {"v > 1", "k < 5", "by key"}
    assert sum(each.candidates or 0 for each in steps) == 1
    for operator in plan.operators:
        own = of_parts(steps, {operator.id})
        assert all(each.name.startswith(f"{operator.id}: ") for each in own)
    assert len(of_parts(steps, plan.ids)) == len(steps) == 4


def test_a_driver_adds_up_the_steps_of_all_buckets_and_micro_batches() -> None:
    plan = planned("SELECT x.v FROM a [Range 3] x, b [Range 3] y WHERE x.k = y.k AND x.v > 20 AND x.k < 9", catalog())
    data = {name: [(at, (at % 5, at, at), 1) for at in range(1, 41)] for name in "ab"}
    run, counters = FragmentRun(plan, data, Random(4), buckets=3), Counters("all")
    counters.begin(plan)
    batches = 0
    while run.step():
        counters.count(batches, run.reports, {}, 0.0)
        batches += 1
    counters.count(batches, run.reports, {}, 0.0)
    run.finish()
    counters.count(batches + 1, run.reports, {}, 0.0)
    predicates = [
        (each.what, each.elements_in, each.elements_out) for each in counters.figures() if each.kind == "predicate"
    ]
    assert sorted(predicates) == [("k < 9", 40, 40), ("v > 20", 40, 20)], "where rows are read"
    probes = [each for each in counters.figures() if each.kind == "probe"]
    assert sorted(each.elements_in or 0 for each in probes) == [20, 40] and batches > 1
    assert sum(each.elements_out or 0 for each in probes) == 20, "each row has one partner, at its own instant"


def test_costs_are_those_of_functions_that_there_are() -> None:
    assert set(costs._COSTS) <= set(KERNELS)
