"""Dual windows: the sheet's examples, the laws of cut-offs and mixes, and the paper's experiments on small inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks._joinshed_dual import MACHINE, by_rank, curve, matches, run, zipf
from benchmarks.models.dual import (
    Ranks,
    Shares,
    counted,
    independent_counts,
    rear_output,
    shares,
    skip_chance,
    uniform_counts,
    unshed_speed,
)
from shedding.dual import Speeds, best_mix, cut, outputs

distributions = st.lists(st.integers(0, 20), min_size=2, max_size=30).filter(lambda each: sum(each[1:]) > 0)
speeds = st.builds(Speeds, st.floats(0.5, 50), st.floats(1, 500))


def chances(weights: list[int]) -> np.ndarray:
    return np.array(weights, float) / sum(weights)


ZIPF = np.arange(1, 51) ** -1.0 / (np.arange(1, 51) ** -1.0).sum()

SHEET = [
    ("uniform", 0.05, 10, 0.72, 3.01, 1.28),
    ("uniform", 0.10, 9, 0.59, 1.97, 1.18),
    ("uniform", 0.20, 8, 0.45, 1.34, 1.10),
    ("uniform", 0.50, 6, 0.19, 0.76, 1.03),
    ("zipf", 0.05, 73, 0.78, 3.74, 2.38),
    ("zipf", 0.10, 62, 0.78, 3.10, 2.10),
    ("zipf", 0.20, 48, 0.74, 2.19, 1.76),
    ("zipf", 0.50, 30, 0.63, 1.15, 1.39),
]


@pytest.mark.parametrize(("values", "alpha", "cutoff", "rear", "speed", "gain"), SHEET)
def test_the_best_mix_is_that_of_the_sheet(
    values: str, alpha: float, cutoff: int, rear: float, speed: float, gain: float
) -> None:
    probabilities = uniform_counts(400, 50) if values == "uniform" else independent_counts(400, ZIPF, ZIPF)
    machine = Speeds(1.0, 1 / alpha)
    mix = best_mix(probabilities, machine)
    assert mix.cutoff == cutoff
    assert [mix.rear, mix.speed, mix.output / outputs(probabilities, machine)[0]] == pytest.approx(
        [rear, speed, gain], abs=0.011
    )


@given(distributions, speeds)
def test_no_cutoff_brings_more_and_the_cost_of_results_does_not_move_it(weights: list[int], machine: Speeds) -> None:
    probabilities = chances(weights)
    mix = best_mix(probabilities, machine)
    assert mix.output == pytest.approx(outputs(probabilities, machine).max())
    costly = Speeds(machine.probes, machine.updates, output=0.3)
    dear = best_mix(probabilities, costly)
    assert dear.cutoff == mix.cutoff
    assert dear.output == pytest.approx(outputs(probabilities, costly).max())


@given(distributions, speeds, st.floats(0.01, 5))
@example([0, 5, 2, 3, 2, 19], Speeds(3.0, 1.0), 1.0)
def test_what_is_shed_keeps_the_machine_in_time(weights: list[int], machine: Speeds, load: float) -> None:
    probabilities = chances(weights)
    offered = load * machine.updates
    found = shares(probabilities, machine, offered)
    assert 0 <= found.front < 1 and 0 <= found.rear <= 1
    busy = offered * (1 - found.front) * (1 / machine.updates + (1 - found.rear) / machine.probes)
    assert busy <= 1 + 1e-9
    if found.rear > 0:
        assert busy == pytest.approx(1.0)
    left_out = float(probabilities[: found.cutoff].sum() + found.tied * probabilities[found.cutoff])
    assert left_out == pytest.approx(found.rear, abs=1e-9)


def test_in_between_the_costs_of_results_count() -> None:
    probabilities, machine = uniform_counts(400, 50), Speeds(1.0, 10.0, output=0.1)
    offered = 0.8
    found = shares(probabilities, machine, offered)
    counts = np.arange(401)
    kept = np.where(counts > found.cutoff, 1.0, np.where(counts == found.cutoff, 1 - found.tied, 0.0))
    cost = machine.ratio + (kept * probabilities).sum() + 0.1 * (kept * probabilities * counts).sum()
    assert offered * cost == pytest.approx(1.0, rel=1e-6)
    assert shares(probabilities, machine, 0.999 * unshed_speed(machine, 8.0)) == Shares()


def test_rear_shedding_alone_rises_has_its_peak_at_the_best_speed_and_ends_at_nothing() -> None:
    probabilities = independent_counts(400, ZIPF, ZIPF)
    at = np.linspace(0.1, 10, 400)
    rates = [rear_output(probabilities, MACHINE, float(speed)) for speed in at]
    assert at[int(np.argmax(rates))] == pytest.approx(best_mix(probabilities, MACHINE).speed, rel=0.02)
    assert rates[-1] == pytest.approx(0.0, abs=1e-6)
    assert rates[1] / rates[0] == pytest.approx(at[1] / at[0])


def test_quotas_and_ranks_are_those_of_the_paper() -> None:
    counts = np.repeat([0, 1, 2], [20, 50, 30])
    quota = 0.6 * 100
    ranks = Ranks(4)
    for each in counts:
        ranks.add(int(each))
    expected = sum(skip_chance(ranks.below(int(n)), ranks.of(int(n)), quota) for n in counts)
    assert expected == pytest.approx(60)
    assert cut(counted(counts, 4), 0.6) == (1, pytest.approx(0.8))
    other = Ranks(4)
    for found, count in enumerate((4, 3, 6, 8)):
        other.add(found, count)
    assert other.below(4) == 21


# The reference


def test_what_a_tuple_will_find_is_known_when_it_enters_its_auxiliary_window() -> None:
    window = 20
    streams = zipf(300, 5, 1.0, 2).streams
    waiting: tuple[list[tuple[int, int]], ...] = ([], [])
    joining: tuple[list[int], ...] = ([], [])
    recorded: tuple[list[int], ...] = ([], [])
    for at in range(300):
        for side in (0, 1):
            value = int(streams[side][at])
            found = [each for each, _ in waiting[1 - side]].count(value)
            recorded[side].append(found)
            waiting[side].append((value, found))
            if len(waiting[side]) > window:
                leaving, predicted = waiting[side].pop(0)
                assert joining[1 - side].count(leaving) == predicted
                joining[side].append(leaving)
                del joining[side][:-window]
    numbers = np.arange(300)
    for side in (0, 1):
        theirs = streams[1 - side]
        assert matches(streams[side], numbers, theirs, numbers, window, side).tolist() == recorded[side]


def test_without_overload_nothing_is_lost_and_runs_repeat() -> None:
    values = zipf(4000, 20, 1.0, 3)
    found = {name: run(name, values, 100, 0.8, 1) for name in ("DUAL", "REAR", "RAND", "PROB-drop", "PROB-skip")}
    assert len({each.rate for each in found.values()}) == 1
    assert found["DUAL"].rate == pytest.approx(found["DUAL"].exact, rel=0.03)
    assert run("DUAL", values, 100, 4.0, 1) == run("DUAL", values, 100, 4.0, 1)


def test_ranks_in_the_auxiliary_window_leave_out_the_share_that_is_wanted() -> None:
    counts = np.random.default_rng(1).integers(0, 30, 5000)
    probed = by_rank(counts, 200, 0.6, np.random.default_rng(2))
    assert 1 - probed.mean() == pytest.approx(0.6, abs=0.02)
    assert counts[probed].mean() > counts[~probed].mean() + 10


def test_dual_windows_against_the_others() -> None:
    mix = best_mix(independent_counts(200, ZIPF, ZIPF), MACHINE)
    found = curve(("DUAL", "REAR", "RAND"), "zipf", 200, (1.5, mix.speed, 8.0), (1, 2), 6000)
    assert found["DUAL"][0] == pytest.approx(found["REAR"][0], rel=0.02)
    assert found["DUAL"][1] == pytest.approx(mix.output, rel=0.06)
    assert found["DUAL"][2] == pytest.approx(mix.output, rel=0.06)
    assert found["REAR"][2] < 0.5 * found["DUAL"][2]
    assert found["DUAL"][2] > 1.7 * found["RAND"][2]
    even = curve(("DUAL", "PROB-skip", "PROB-drop", "RAND"), "uniform", 200, (4.0,), (1, 2), 6000)
    assert even["DUAL"][0] > 1.1 * even["RAND"][0]
    for name in ("PROB-skip", "PROB-drop"):
        assert even[name][0] == pytest.approx(even["RAND"][0], rel=0.05)
