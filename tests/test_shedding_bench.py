"""The shapes of the paper's experiments, on small inputs: `make bench NAME=windrop` has the large ones."""

from __future__ import annotations

import math

import pytest

from benchmarks.windrop import fan_out, latencies, overhead, pipeline, required

EXCESSES = (0.25, 0.5, 1.0)


def worst(share: float) -> float:
    """Return a share of answers to compare: what cannot be removed is worse than losing everything."""
    return 2.0 if math.isnan(share) else share


def test_in_a_pipeline_a_drop_at_the_input_loses_least_and_random_drop_dies_first() -> None:
    found = pipeline(EXCESSES, 20_000)
    for late, middle, early in zip(found["RDrop"], found["Nested1"], found["Nested2"], strict=True):
        assert early <= middle <= worst(late)
    assert found["Nested2"] == pytest.approx([0.2, 0.333, 0.5], abs=0.06)
    assert found["Nested1"] == pytest.approx([0.3, 0.5, 0.75], abs=0.06)
    assert math.isnan(found["RDrop"][-1])


@pytest.mark.parametrize(("windows", "gaps"), [([(10, 10), (100, 100)], [100, 10]), ([(3, 2), (3, 3)], [30, 20])])
def test_in_a_fan_out_shared_drops_beat_split_ones_and_those_random_ones(
    windows: list[tuple[int, int]], gaps: list[int]
) -> None:
    found = fan_out(windows, gaps, EXCESSES, 20_000)
    for shared, split, late in zip(*found.values(), strict=True):
        assert worst(shared) < worst(split) < worst(late)


def test_the_share_to_lose_does_not_depend_on_the_size_of_windows() -> None:
    for size in (25, 50):
        assert required(size, 1, 0.25, 4_000).measured == pytest.approx(0.40, abs=0.03)
        assert required(size, size, 0.25, 20_000).measured == pytest.approx(0.20, abs=0.05)


def test_the_share_to_lose_rises_with_the_slide_and_falls_once_rows_vanish() -> None:
    by_slide = {slide: required(100, slide, 0.25, 30_000) for slide in (1, 10, 20, 50, 100)}
    assert math.isnan(by_slide[10].measured) and math.isnan(by_slide[10].predicted)
    shares = [by_slide[slide].measured for slide in (20, 50, 100)]
    assert shares == sorted(shares, reverse=True)
    assert shares == pytest.approx([by_slide[slide].predicted for slide in (20, 50, 100)], abs=0.05)


def test_a_drop_that_drops_nothing_costs_little() -> None:
    # The benchmark measures it; here it only must not be several times slower, whatever else the machine does.
    assert overhead(50, 1.0, 200_000, 3).ratio > 0.5


def test_without_shedding_latency_grows_and_with_it_it_does_not() -> None:
    assert latencies(2, 60, 0.0)[-1] == 61
    assert set(latencies(2, 60, 0.5)) == {2.0}
