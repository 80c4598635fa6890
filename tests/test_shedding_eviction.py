"""Semantic eviction: frequencies, cuts and budgets by their laws, and the shapes of the paper on small inputs."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._joinshed_memory import (
    Input,
    Setting,
    estimates,
    expect_memory,
    expect_pool,
    expect_uniform,
    expect_weather,
    in_batches,
    places,
    recalls,
    row_by_row,
    weather,
    zipf,
    zipfian,
)
from benchmarks.models.archive import count_delivered
from benchmarks.models.eviction_limits import Cut, cuts, expected_recall, window_demand
from shedding.eviction import ArrivalRates, Frequencies, Policy, priorities, within_budget
from shedding.offline.streams import count_exact

batches = st.lists(st.lists(st.integers(0, 30), max_size=20), min_size=1, max_size=6)


def learned(parts: list[list[int]], capacity: int, half_life: float = 8.0) -> Frequencies:
    found = Frequencies(capacity, half_life)
    for part in parts:
        found.observe(np.array(part, np.int64), 4)
    return found


def decayed(parts: list[list[int]], half_life: float = 8.0) -> dict[int, float]:
    counts: dict[int, float] = {}
    for part in parts:
        counts = {key: value * 0.5 ** (4 / half_life) for key, value in counts.items()}
        for key, count in Counter(part).items():
            counts[key] = counts.get(key, 0.0) + count
    return counts


# ------------------------------------------------------------------------------------------------ frequencies


@given(batches, st.integers(1, 12))
def test_tracked_counts_are_bounded_and_few(parts: list[list[int]], capacity: int) -> None:
    found, true = learned(parts, capacity), decayed(parts)
    assert len(found.keys) <= capacity
    assert found.total == pytest.approx(sum(true.values()))
    for key, weight, error in zip(found.keys.tolist(), found.weights, found.errors, strict=True):
        assert weight - error - 1e-9 <= true.get(key, 0.0) <= weight + 1e-9
    assert all(true[key] <= found.floor + 1e-9 for key in true if key not in found.keys)


@given(batches)
def test_with_room_for_all_keys_rates_are_exact(parts: list[list[int]]) -> None:
    found, true = learned(parts, 100, float("inf")), decayed(parts, float("inf"))
    keys = np.arange(31)
    assert found.rates(keys) == pytest.approx([true.get(key, 0) / (4 * len(parts)) for key in range(31)])


@given(batches, st.integers(1, 12))
def test_frequencies_go_on_from_what_was_written(parts: list[list[int]], capacity: int) -> None:
    found = learned(parts, capacity)
    again = Frequencies.of(json.loads(json.dumps(found.values())))
    assert again == found
    again.observe(np.array([1, 2, 3]), 4)
    found.observe(np.array([1, 2, 3]), 4)
    assert again == found


def test_what_is_not_tracked_is_estimated_from_a_sample() -> None:
    found = Frequencies(capacity=50)
    rng = np.random.default_rng(1)
    for _ in range(50):
        found.observe(rng.integers(0, 5000, 2000), 100)
    assert len(found.keys) <= 50 and len(found.sampled_keys) <= 256
    assert found.rate_of_others == pytest.approx(found.rate / 5000, rel=0.15)


# ------------------------------------------------------------------------------------------------------- cuts

rates = st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.001, 5)), min_size=1, max_size=6)


def side(pairs: list[tuple[float, float]], window: int, size: float = 1.0) -> ArrivalRates:
    arrivals, partners = zip(*pairs, strict=True)
    keys = np.arange(len(pairs) - 1)
    return ArrivalRates(keys, np.array(arrivals), np.array(partners), window, size)


sides = st.builds(side, rates, st.integers(1, 100), st.floats(1, 50))


def occupancy(cut: Cut, of: ArrivalRates) -> float:
    """What a side holds of the budget on average."""
    return float((of.arrivals * cut.held(of)).sum()) * of.size


@given(st.lists(sides, min_size=1, max_size=2), st.sampled_from(Policy), st.floats(0.0, 1.2), st.booleans())
def test_cuts_use_the_budget_and_no_more(parts: list[ArrivalRates], policy: Policy, share: float, pooled: bool) -> None:
    demand = sum(window_demand(each) for each in parts)
    budget, rounding = share * demand, 1e-12 * demand
    found = cuts(policy, parts, budget, pooled=pooled)
    used = [occupancy(cut, each) for cut, each in zip(found, parts, strict=True)]
    if pooled:
        assert sum(used) == pytest.approx(min(budget, demand), abs=rounding)
    else:
        assert used == pytest.approx([min(budget / len(parts), window_demand(each)) for each in parts], abs=rounding)
    for cut, each in zip(found, parts, strict=True):
        assert (cut.ages(each.keys) >= 0).all() and (cut.ages(each.keys) <= each.window).all()


@given(st.lists(sides, min_size=1, max_size=2), st.floats(0.01, 1.0), st.booleans())
def test_prob_expects_most_and_a_pool_more_than_halves(parts: list[ArrivalRates], share: float, pooled: bool) -> None:
    budget = share * sum(window_demand(each) for each in parts)
    expected = {p: expected_recall(parts, cuts(p, parts, budget, pooled=pooled)) for p in Policy}
    assert expected[Policy.PROB] >= max(expected.values()) - 1e-9
    assert expected_recall(parts, cuts(Policy.PROB, parts, budget, pooled=True)) >= expected[Policy.PROB] - 1e-9


@given(sides, st.sampled_from(Policy))
def test_the_full_budget_holds_everything(each: ArrivalRates, policy: Policy) -> None:
    [cut] = cuts(policy, [each], window_demand(each) * (1 + 1e-9))
    keys = np.arange(-2, 10)
    assert cut.keeps(keys, np.full(len(keys), each.window - 1), np.arange(len(keys))).all()
    assert expected_recall([each], [cut]) == pytest.approx(1)


@given(sides, st.floats(0.05, 0.95))
def test_life_holds_rows_until_they_expect_less_than_a_threshold(each: ArrivalRates, share: float) -> None:
    [cut] = cuts(Policy.LIFE, [each], share * window_demand(each))
    ages = np.append(cut.ages(each.keys), cut.other)
    partly = (ages > 1e-6) & (ages < each.window - 1e-6)
    left = (each.partners * (each.window - ages))[partly]
    assert np.ptp(left) < 1e-6 * max(1.0, left.max()) if len(left) else True


def test_rows_of_a_coin_stay_when_the_share_grows() -> None:
    each = side([(1.0, 1.0)], 10)
    ids = np.arange(1000)
    few, many = (cuts(Policy.RAND, [each], budget, seed=3)[0] for budget in (2, 5))
    kept_few, kept_many = (cut.keeps(0 * ids, 0 * ids, ids) for cut in (few, many))
    assert not (kept_few & ~kept_many).any()
    assert (kept_few.mean(), kept_many.mean()) == pytest.approx((0.2, 0.5), abs=0.05)


# ---------------------------------------------------------------------------------------------------- budgets


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(0, 9), st.integers(1, 9)), max_size=12), st.integers(0, 50))
def test_no_more_than_the_budget_stays_and_nothing_worthier_goes(
    rows: list[tuple[float, int, int]], budget: int
) -> None:
    worth, ages, sizes = (np.array([row[at] for row in rows]) for at in range(3))
    stays = within_budget(worth.astype(float), ages, sizes, budget)
    assert sizes[stays].sum() <= budget
    for gone in np.flatnonzero(~stays):
        for kept in np.flatnonzero(stays):
            assert (worth[kept], -ages[kept]) >= (worth[gone], -ages[gone])


def test_what_a_row_is_worth() -> None:
    each = ArrivalRates(np.array([1, 2]), np.ones(3), np.array([0.5, 0.1, 0.0]), 10, size=2.0)
    keys, ages, ids = np.array([1, 2, 3]), np.array([8, 0, 0]), np.arange(3)
    assert priorities(Policy.PROB, each, keys, ages, ids).tolist() == [0.25, 0.05, 0.0]
    assert priorities(Policy.LIFE, each, keys, ages, ids).tolist() == [0.5, 0.5, 0.0]


# ------------------------------------------------------------------------------------------------ simulations

ALL = [(policy, pooled) for policy in Policy for pooled in (False, True)]


def found(given_: Input, window: int, memory: int, policy: Policy, pooled: bool, form: str) -> float:
    """The share of the exact join that is found, after a warm-up."""
    if form == "row by row":
        held = row_by_row(given_, window, memory, policy, pooled=pooled)
    else:
        held = in_batches(given_, window, memory, policy, pooled=pooled, by_limits=form == "limits").held
    exact = count_exact(given_.left, given_.right, window - 1, 2 * window)
    return count_delivered(given_.left, given_.right, window - 1, held, 2 * window) / exact


@pytest.mark.parametrize(("policy", "pooled"), ALL)
def test_row_by_row_the_budget_is_kept_and_is_enough_at_two_windows(policy: Policy, pooled: bool) -> None:
    given_ = zipfian(600, 20, (1.0, 0.5), "independent", 1)
    held = row_by_row(given_, 50, 30, policy, pooled=pooled)
    left, right = places(held, 600)
    assert (left + right).max() <= 30 and (pooled or max(left.max(), right.max()) <= 15)
    assert found(given_, 50, 98, policy, pooled, "row by row") == 1.0


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(ALL), st.integers(8, 60), st.integers(1, 30), st.integers(1, 4), st.booleans())
def test_in_micro_batches_the_budget_is_kept_whatever_the_buckets(
    chosen: tuple[Policy, bool], memory: int, batch: int, buckets: int, by_limits: bool
) -> None:
    policy, pooled = chosen
    given_ = zipfian(300, 20, (1.0, 0.5), "independent", memory)
    run = in_batches(given_, 50, memory, policy, pooled=pooled, batch=batch, buckets=buckets, by_limits=by_limits)
    again = in_batches(given_, 50, memory, policy, pooled=pooled, batch=batch, buckets=buckets, by_limits=by_limits)
    assert run.stored.max() <= memory
    assert (run.held.left == again.held.left).all() and (run.held.right == again.held.right).all()
    for until, stream in ((run.held.left, given_.left), (run.held.right, given_.right)):
        assert (until >= stream.times).all() and (until <= stream.times + 49).all()


@pytest.mark.parametrize(("policy", "pooled"), ALL)
def test_micro_batches_find_about_as_much_as_row_by_row_and_all_with_enough_memory(
    policy: Policy, pooled: bool
) -> None:
    given_ = zipfian(3000, 50, (1.0, 1.0), "independent", 2)
    reference = found(given_, 200, 200, policy, pooled, "row by row")
    for form in ("budgets", "limits"):
        assert found(given_, 200, 200, policy, pooled, form) == pytest.approx(reference, abs=0.04)
    assert found(given_, 200, 398, policy, pooled, "budgets") == 1.0


def test_the_steady_state_is_as_the_formulas_say() -> None:
    given_ = zipfian(8000, 50, (1.0, 1.0), "same", 1)
    window, memory, shares = 200, 100, zipf(50, 1.0)
    expected = ArrivalRates(np.arange(50), np.append(shares, 0.0), np.append(shares, 0.0), window - 1)
    for policy in Policy:
        [cut, _] = cuts(policy, [expected, expected], memory)
        assert found(given_, window, memory, policy, False, "row by row") == pytest.approx(
            expected_recall([expected], [cut], batch=1), abs=0.03
        )
    assert found(given_, window, memory, Policy.RAND, False, "row by row") == pytest.approx(101 / 399, abs=0.02)


def test_the_recall_that_is_expected_is_within_five_points_of_the_true_one() -> None:
    for buckets in (1, 4):
        guessed = estimates(Setting(("RAND", "LIFE", "PROB"), sizes=(0.5,), length=4000), buckets)
        for expected, true in guessed.values():
            assert expected == pytest.approx(true, abs=0.05)


# -------------------------------------------------------------------------------------- the paper's experiments


def test_more_skewed_input_and_memory_help_as_in_the_paper() -> None:
    setting = Setting(("RAND", "LIFE", "PROB", "~PROB", "OPT"), (0.25, 1.0), window=200, length=2400)
    expect_memory(setting, recalls(setting))


def test_uniform_input_leaves_nothing_to_choose() -> None:
    names = ("RAND", "LIFE", "PROB", "OPT")
    expect_uniform(recalls(Setting(names, (0.25, 1.0), window=200, skews=(0.0, 0.0), length=2400)))


def test_a_pool_gains_a_little() -> None:
    names = ("PROB", "PROBV", "OPT", "OPTV")
    expect_pool(recalls(Setting(names, (1.0,), window=200, skews=(0.0, 2.0), length=2400)))


def test_streams_that_are_alike_share_a_pool_evenly() -> None:
    expect_weather(weather(20_000, 2000, (0.5, 1.0)))
