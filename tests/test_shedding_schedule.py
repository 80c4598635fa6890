"""Verdicts: the vectors of the sheet's section 4, the laws of schedules, and that they can be gone on from anywhere."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from shedding.schedule import KEPT_RUNS, Compensation, Decision, Schedule, UnitRun, coins, most_lost

UNITS = 20_000


def drawn(schedule: Schedule, count: int = UNITS) -> np.ndarray:
    return schedule.kept(np.arange(count))


def decided(batch: int, fraction: float, seed: int = 0) -> Schedule:
    schedule = Schedule(1, batch, seed)
    schedule.decide(fraction, 0)
    return schedule


def longest_gap(kept: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([1], kept.astype(int), [1]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def verdicts(batch: int, are_lost: list[bool]) -> list[bool]:
    """Which units are kept, given the coins of batches."""
    debt, kept = Compensation(batch), []
    for is_lost in are_lost:
        debt.begin(is_lost, 0.0, batch)
        left = batch
        while left:
            loses, count = debt.next(left)
            kept += [not loses] * count
            left -= count
    return kept


@pytest.mark.parametrize(
    ("batch", "coins_", "expected"),
    [(3, "DDKK", "DDDKDDDKKKKK"), (1, "DDDKKK", "DKDKDK"), (2, "KKK", "KKKKKK"), (2, "DKDK", "DDKKDDKK")],
)
def test_coins_become_verdicts(batch: int, coins_: str, expected: str) -> None:
    found = verdicts(batch, [coin == "D" for coin in coins_])
    assert "".join("K" if kept else "D" for kept in found) == expected


@pytest.mark.parametrize(("batch", "fraction"), [(10, 0.8), (5, 0.8), (1, 0.48), (10, 0.5), (3, 0.2), (2, 0.05)])
def test_the_share_that_is_lost_is_the_share_that_was_decided(batch: int, fraction: float) -> None:
    schedule = decided(batch, fraction, seed=7)
    kept = drawn(schedule)
    deviation = math.sqrt(fraction * (1 - fraction) * batch / UNITS)
    assert abs((1 - kept.mean()) - fraction) < 4 * deviation
    assert longest_gap(kept) == batch
    assert schedule.lost_units == UNITS - kept.sum()


@pytest.mark.parametrize("granule", [1, 2, 7])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.8])
def test_what_is_lost_is_never_off_by_more_than_a_granule(granule: int, fraction: float) -> None:
    schedule = Schedule(1, 20, seed=3, granule=granule)
    schedule.decide(fraction, 0)
    lost = np.cumsum(~drawn(schedule))[granule - 1 :: granule]
    wanted = fraction * granule * np.arange(1, len(lost) + 1)
    assert np.abs(lost - wanted).max() <= granule + schedule.batch * (fraction > most_lost(20) - 0.2)
    gaps = {run.last - run.first for run in schedule.lost}
    assert len(gaps) > 1 or fraction == 0.1, "no pattern that a periodic stream could fall into step with"


@pytest.mark.parametrize("batch", [1, 2, 5, 10])
def test_runs_of_lost_units_are_as_long_as_the_gap_allows(batch: int) -> None:
    schedule = decided(batch, 0.6 * most_lost(batch))
    drawn(schedule)
    assert {run.last - run.first for run in schedule.lost[:-1]} == {batch}


@pytest.mark.parametrize("batch", [1, 3])
def test_more_than_the_gap_allows_saturates_and_is_said(batch: int) -> None:
    schedule = decided(batch, 0.97)
    assert not schedule.is_feasible
    kept = drawn(schedule)
    assert longest_gap(kept) == batch
    assert 1 - kept.mean() == pytest.approx(most_lost(batch), abs=0.02)
    schedule.decide(0.01)
    later = schedule.kept(np.arange(UNITS, 2 * UNITS))
    assert 1 - later.mean() < 0.02, "a debt that could not be paid is not paid for ever"


def test_nothing_is_lost_without_a_decision_and_with_one_for_nothing() -> None:
    assert drawn(Schedule(1, 3)).all()
    assert drawn(decided(3, 0.0)).all()


def test_everything_is_lost_whatever_the_gap_if_that_is_decided() -> None:
    schedule = decided(3, 1.0)
    assert schedule.is_feasible
    assert not drawn(schedule, 100).any()
    schedule.decide(0.5, 100)
    after = schedule.kept(np.arange(100, 400))
    assert after[0] and longest_gap(after) == 3


def test_what_was_kept_before_a_decision_stays_kept() -> None:
    schedule = Schedule(10, 2)
    assert schedule.kept(np.arange(50)).all()
    assert schedule.decide(1.0, 3) == Decision(50, 1.0)
    assert schedule.kept(np.arange(50)).all() and not schedule.kept(np.arange(50, 60)).any()


def test_removing_keeps_everything_from_the_next_unit_on() -> None:
    schedule = decided(4, 0.75)
    drawn(schedule, 37)
    schedule.decide(0.0)
    assert schedule.kept(np.arange(37, 500)).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_that_is_restarted_anywhere_draws_the_same_verdicts(seed: int) -> None:
    rng = Random(seed)
    batch = rng.randint(1, 6)
    decisions = [(unit, rng.choice((0.0, rng.random(), 1.0))) for unit in sorted(rng.sample(range(300), 5))]
    whole, parts = Schedule(1, batch, seed), Schedule(1, batch, seed)
    found = []
    for schedule in (whole, parts):
        for unit, fraction in decisions:
            schedule.decide(fraction, unit)
    for unit in range(300):
        parts = Schedule.from_json(parts.to_json())
        found.append(bool(parts.kept(np.array([unit]))[0]))
    assert whole.kept(np.arange(300)).tolist() == found
    assert Schedule.from_json(whole.to_json()) == whole


@pytest.mark.parametrize("seed", range(20))
def test_verdicts_do_not_depend_on_the_order_of_questions(seed: int) -> None:
    rng = Random(seed)
    asked, straight = decided(3, 0.6, seed), decided(3, 0.6, seed)
    for unit in rng.sample(range(200), 200):
        asked.kept(np.array([unit]))
    assert asked.kept(np.arange(200)).tolist() == straight.kept(np.arange(200)).tolist()


def test_equal_schedules_lose_the_same_units_and_seeds_differ() -> None:
    assert drawn(decided(3, 0.4, 5)).tolist() == drawn(decided(3, 0.4, 5)).tolist()
    assert drawn(decided(3, 0.4, 5)).tolist() != drawn(decided(3, 0.4, 6)).tolist()
    assert abs(coins(3, np.arange(100_000)).mean() - 0.5) < 0.01


def test_the_questions_about_stretches() -> None:
    schedule = Schedule(10, 2, next_unit=20, first_unit=0, lost=[UnitRun(3, 5), UnitRun(8, 9)])
    assert schedule.all_lost(np.array([3, 3, 4, 2]), np.array([4, 5, 4, 3])).tolist() == [True, False, True, False]
    assert schedule.next_kept(np.array([2, 3, 4, 8]), 20).tolist() == [2, 5, 5, 9]
    assert [schedule.lost_since(unit) for unit in (2, 3, 4, 5, 8)] == [None, 3, 3, None, 8]
    assert list(schedule.runs(1, 9)) == [
        (UnitRun(1, 3), True),
        (UnitRun(3, 5), False),
        (UnitRun(5, 8), True),
        (UnitRun(8, 9), False),
    ]


def test_a_decision_before_anything_is_known_counts_from_the_first_unit_that_is_asked_about() -> None:
    schedule = Schedule(1, 1)
    schedule.decide(1.0)
    assert not schedule.kept(np.arange(10**12, 10**12 + 5)).any()
    assert schedule.lost_units == 5


def test_what_nobody_will_ask_about_is_forgotten_but_for_the_last_runs() -> None:
    schedule, exact = decided(1, 0.49), decided(1, 0.49)
    units = np.arange(20 * KEPT_RUNS)
    schedule.decide_until(len(units))
    schedule.forget_before(0)
    lost = schedule.lost_units
    assert sum(run.last - run.first for run in schedule.lost) == lost
    schedule.forget_before(len(units))
    assert (len(schedule.lost), schedule.lost_units) == (KEPT_RUNS, lost)
    since = next(schedule.runs(0, len(units)))[0].first
    assert since == schedule.lost[0].first > 0
    assert schedule.kept(units[since:]).tolist() == exact.kept(units[since:]).tolist()
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_shares_of_units() -> None:
    schedule = Schedule(1, 1)
    schedule.decide(0.5, 10)
    schedule.decide(0.25, 20)
    assert schedule.fractions(np.array([5, 10, 19, 20, 30])).tolist() == [0, 0.5, 0.5, 0.25, 0.25]
    assert (schedule.fraction, schedule.wanted) == (0.25, 0.25)
