"""Budgets of buckets: all of the memory is divided, to where it is worth most."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.eviction_limits import cuts, window_demand
from cql.catalog import Catalog
from planner import operators as op
from planner.plan import Plan
from shedding.budgets import AGES, STEPS, Budgets, demand_by_worth, divided_by_worth, in_proportion, least_memory
from shedding.eviction import ArrivalRates, Policy
from shedding.insert_drops import plan_of

sizes = st.dictionaries(st.integers(-20, 20), st.floats(0.1, 1e6), max_size=5).map(lambda found: list(found.items()))
demands = st.lists(sizes, min_size=1, max_size=6)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.integers(0, 1000))
def test_buckets_divide_the_whole_budget(wanted: list[float], more: int) -> None:
    budget = len(wanted) + more
    parts = in_proportion(budget, np.array(wanted))
    assert parts.sum() == budget and (parts >= 1).all()


def test_a_budget_that_is_too_small_for_the_buckets_is_refused() -> None:
    with pytest.raises(AssertionError, match="3 is less than 1 for each of 4 buckets"):
        in_proportion(3, np.ones(4))


@given(demands, st.integers(0, 10**6), st.integers(0, 10))
def test_all_of_the_memory_is_divided(wanted: list[list[tuple[int, float]]], more: int, least: int) -> None:
    budget = least * len(wanted) + more
    parts = divided_by_worth(budget, wanted, least)
    assert parts.sum() == budget and (parts >= least).all()


@given(demands, st.floats(0.05, 0.95))
def test_nothing_is_given_up_that_is_worth_more_than_what_another_bucket_holds(
    wanted: list[list[tuple[int, float]]], share: float
) -> None:
    total = sum(size for demand in wanted for _, size in demand)
    parts = divided_by_worth(round(share * total), wanted, least=0)
    lost, held = [], []
    for part, demand in zip(parts.tolist(), wanted, strict=True):
        for step, size in sorted(demand, reverse=True):
            taken = min(size, max(part, 0.0))
            part -= size
            held += [step] if taken > 1 else []
            lost += [step] if size - taken > 1 else []
    assert max(lost, default=-99) <= min(held, default=99)


def test_memory_for_everything_leaves_everybody_what_they_need_and_the_same_beyond() -> None:
    assert divided_by_worth(99, [[(5, 50.0)], [(1, 10.0)], []], least=0).tolist() == [63, 23, 13]


@pytest.mark.parametrize("policy", [Policy.PROB, Policy.LIFE])
def test_demand_is_what_cuts_would_hold(policy: Policy) -> None:
    """Of two buckets, each gets about as much as a cut for both would let it hold, which knows each key."""
    rng = np.random.default_rng(3)
    rates = [rng.pareto(1.0, 201) + 0.01 for _ in range(4)]
    keys = np.arange(200)
    both = ArrivalRates(keys, np.append(rates[0][:-1], 0.0), np.append(rates[1][:-1], 0.0), window=50.0, size=20.0)
    budget = 0.2 * window_demand(both)
    [cut] = cuts(policy, [both], budget)
    parts = []
    for bucket in (0, 1):
        own = keys % 2 == bucket
        parts.append(
            ArrivalRates(
                keys[own], np.append(both.arrivals[:-1][own], 0.0), np.append(both.partners[:-1][own], 0.0), 50.0, 20.0
            )
        )
    found = divided_by_worth(round(budget), [demand_by_worth(policy, [side]) for side in parts], least=0)
    held = [20.0 * float((side.arrivals * cut.held(side)).sum()) for side in parts]
    assert found.tolist() == pytest.approx(held, rel=1 / STEPS + 1 / AGES)


# The budgets of a plan


JOIN = (
    "CREATE STREAM r (k INT, t INT) TIMESTAMP BY t; CREATE STREAM s (k INT, t INT) TIMESTAMP BY t;"
    "REGISTER QUERY q AS SELECT r.k FROM r [Range 40 Seconds], s [Range 30 Seconds] WHERE r.k = s.k "
    "WITH (shedding = 'prob', memory = '10000 bytes', allocation = '{allocation}')"
)


def made(allocation: str) -> tuple[Plan, op.EvictingJoin]:
    catalog = Catalog()
    catalog.execute(JOIN.format(allocation=allocation))
    plan = plan_of(catalog)
    (join,) = [each for each in plan.operators if isinstance(each, op.EvictingJoin)]
    return plan, join


def test_parts_follow_what_buckets_say_and_what_was_written() -> None:
    plan, join = made("variable")
    budgets = Budgets(plan, 2)
    assert budgets.parts == {join.id: [[5000], [5000]]}
    budgets.learn({join.id: {0: [[(2, 1e6)]], 1: [[(1, 1e6)]]}})
    least = least_memory(join)
    assert budgets.parts == {join.id: [[10_000 - least], [least]]}
    budgets.learn({join.id: {1: [[(9, 1e6)]]}})
    assert budgets.parts == {join.id: [[10_000 - least], [least]]}, "as long as not all buckets have said anything"
    again = Budgets(plan, 2)
    again.take_over({**json.loads(json.dumps(budgets.for_tasks())), "another": {"budgets": [[1], [1]]}})
    assert again.parts == budgets.parts


def test_pools_are_divided_on_their_own() -> None:
    plan, join = made("fixed")
    budgets = Budgets(plan, 2)
    assert budgets.parts == {join.id: [[2500, 2500], [2500, 2500]]}
    budgets.learn({join.id: {0: [[(2, 1e6)], [(1, 1e6)]], 1: [[(1, 1e6)], [(2, 1e6)]]}})
    least = least_memory(join) // 2
    assert budgets.parts == {join.id: [[5000 - least, least], [least, 5000 - least]]}


def test_one_bucket_has_all_and_needs_no_budgets() -> None:
    plan, _ = made("variable")
    assert Budgets(plan, 1).parts == {}
