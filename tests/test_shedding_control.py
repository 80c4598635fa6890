"""The control loop: it learns what micro-batches cost, loses what is too much, and lets go again."""

from __future__ import annotations

import pytest

from shedding.control import FULLEST, Controller, Load, Observed, Share

FIXED, READ, KEPT = 0.4, 1e-7, 1e-5


def learned(rows: int = 100_000) -> Controller:
    controller = Controller()
    for at in range(30):
        read, kept = rows + 5_000 * (at % 5), rows // (1 + at % 4)
        controller.observe(Observed(read, kept, FIXED + READ * read + KEPT * kept))
    return controller


def share(part: float = 1.0, saved: float = 1.0, most: float = 0.9, weight: float = 1.0) -> Share:
    return Share(part, saved, most, weight)


def test_costs_are_learned_and_cold_or_strange_micro_batches_are_not() -> None:
    controller = learned()
    controller.observe(Observed(100_000, 100_000, 60.0))
    assert controller.costs.kept == pytest.approx(KEPT, rel=0.2)
    cold = Controller()
    cold.observe(Observed(1_000, 1_000, 15.0))
    assert cold.costs == Controller().costs


def test_what_is_lost_brings_the_next_micro_batch_back_to_its_time() -> None:
    controller, rows = learned(), 400_000.0
    fraction = controller.fractions(Load(rows), {"s": share()}, seconds=2.5)["s"]
    assert controller.costs.seconds(rows, rows * (1 - fraction)) == pytest.approx(2.5 * FULLEST, rel=0.05)
    assert controller.fractions(Load(1_000.0), {"s": share()}, seconds=2.5)["s"] > 0, "it lets go slowly"
    for _ in range(20):
        last = controller.fractions(Load(1_000.0), {"s": share()}, seconds=2.5)["s"]
    assert last == 0


def test_answers_that_weigh_least_for_the_time_they_take_are_lost_first() -> None:
    shares = {"dear": share(0.5, weight=5.0), "cheap": share(0.5, weight=1.0)}
    found = learned().fractions(Load(270_000.0), shares, seconds=2.5)
    assert found["cheap"] > 0 and found["dear"] == 0


def test_what_cannot_be_saved_within_gaps_is_suspended_and_comes_back() -> None:
    controller, much = learned(), {"s": share(most=0.5)}
    found = [controller.fractions(Load(3_000_000.0), much, seconds=2.5)["s"] for _ in range(4)]
    assert found[0] == 0.5 and found[-1] == 1.0, "gaps are kept as long as there is hope"
    assert controller.suspended == {"s"}
    controller.fractions(Load(1_000.0), {"s": share(most=0.5)}, seconds=2.5)
    assert not controller.suspended


def test_a_schedule_that_saves_nothing_is_left_alone() -> None:
    found = learned().fractions(Load(3_000_000.0), {"s": share(saved=0.0)}, seconds=2.5)
    assert found == {"s": 0.0}


def test_what_comes_all_the_time_counts_as_well_as_what_waits() -> None:
    steady = learned().fractions(Load(waiting=1_000, rate=400_000), {"s": share()}, seconds=2.5)["s"]
    assert steady == learned().fractions(Load(400_000 * 2.5 * FULLEST), {"s": share()}, seconds=2.5)["s"] > 0.5


def test_looks_are_left_out_only_of_rows_that_are_there() -> None:
    load = Load(waiting=1_000, rate=400_000, is_ahead=False)
    assert learned().fractions(load, {"s": share()}, seconds=2.5)["s"] == 0


def test_a_backlog_that_passes_suspends_nothing() -> None:
    controller = learned()
    for _ in range(10):
        found = controller.fractions(Load(waiting=9_000_000, rate=50_000), {"s": share(most=0.5)}, seconds=2.5)
    assert found == {"s": 0.5} and not controller.suspended


def test_a_bound_that_not_even_an_empty_micro_batch_keeps_sheds_nothing() -> None:
    controller = learned()
    for _ in range(10):
        found = controller.fractions(Load(waiting=5_000, rate=5_000), {"s": share()}, seconds=0.1)
    assert found == {"s": 0.0} and not controller.suspended
