"""What kept units need: the vectors of the sheet's sections 5.6, 6, 9 and 11, and that exact sizes are exact."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.models.window_loads import Costs, fraction_needed, rows_freed, share_passed, windows_of
from shedding.demand import Cut, DemandStep, cut, drops_early, formula, grain, needed, sizes

Window = tuple[int, int]


def pipeline(*windows: Window) -> tuple[DemandStep, ...]:
    """Return the steps of nested aggregates, the innermost first, each of which speaks at its slides."""
    steps = [DemandStep("s", "stream")]
    for at, (length, slide) in enumerate(windows):
        if at:
            steps.append(DemandStep(f"r{at}", "contents", (steps[-1].name,), slide=windows[at - 1][1]))
        steps.append(DemandStep(f"w{at}", "window", (steps[-1].name,), length, slide))
    return (*steps, DemandStep("out", "same", (steps[-1].name,)))


def exact(length: int, *branches: tuple[DemandStep, ...]) -> int:
    """Return the size that a drop operator above several queries needs."""
    found = [sizes(steps, length)["s"] for steps in branches]
    return max(size for size in found if size is not None)


@pytest.mark.parametrize(
    ("branches", "by_the_paper", "exactly"),
    [
        ([[(3, 3)]], (3, 3), 3),
        ([[(3, 2), (3, 3)]], (5, 3), 5),
        ([[(3, 2)], [(3, 3)]], (7, 6), 7),
        ([[(4, 1), (3, 2)], [(4, 1), (3, 3)]], (10, 6), 10),
        ([[(10, 10), (100, 100)]], (109, 100), 100),
        ([[(4, 4), (4, 4)]], (7, 4), 4),
        ([[(5, 2), (6, 3), (8, 4)]], (17, 4), 17),
        ([[(10, 1)], [(4, 2)]], (11, 2), 11),
        ([[(12, 4)], [(6, 6)]], (20, 12), 20),
        ([[(8, 5), (13, 5)]], (20, 5), 18),
    ],
)
def test_sizes_and_slides(branches: list[list[Window]], by_the_paper: Window, exactly: int) -> None:
    plans = [pipeline(*windows) for windows in branches]
    size, slide = by_the_paper
    assert max(formula(steps, slide) for steps in plans) == size
    assert exact(slide, *plans) == exactly


@pytest.mark.parametrize("seed", range(200))
def test_the_size_of_a_pipeline_of_two_has_a_closed_form(seed: int) -> None:
    rng = Random(seed)
    w1, w2 = rng.randint(1, 12), rng.randint(1, 12)
    d1, d2 = rng.randint(1, w1), rng.randint(1, w2)
    from math import gcd

    closed = (w2 - 1) - ((w2 - 1) % gcd(d1, d2)) + w1
    assert exact(d2, pipeline((w1, d1), (w2, d2))) == closed


def test_where_slides_hardly_line_up_the_size_is_that_of_the_worst_case() -> None:
    steps = pipeline((10_007, 10_007), (1_000_003, 1_000_003))
    assert exact(1_000_003, steps) >= 1_000_003 + 10_006


@pytest.mark.parametrize(
    ("size", "slide", "first", "instants", "counts"),
    [
        (10, 3, 0, range(16), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 3, 3, 4, 3, 3, 4]),
        (3, 2, 1, range(1, 9), [1, 1, 2, 1, 2, 1, 2, 1]),
        (7, 6, 0, range(14), [1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1]),
        (5, 5, 0, range(20), [1] * 20),
        (100, 10, 0, [250], [10]),
    ],
)
def test_windows_of_an_instant(size: int, slide: int, first: int, instants: range, counts: list[int]) -> None:
    assert [windows_of(instant, size, slide, first) for instant in instants] == counts


@pytest.mark.parametrize(
    ("size", "slide", "batch", "freed"),
    [(10, 5, 10, 45), (10, 3, 10, 23), (7, 6, 3, 17), (100, 10, 10, 10), (100, 10, 9, 0), (5, 3, 1, 1)],
)
def test_rows_that_a_run_of_lost_windows_frees(size: int, slide: int, batch: int, freed: int) -> None:
    assert rows_freed(size, slide, batch) == freed
    assert drops_early(size, slide, batch) is (freed > 0)


@pytest.mark.parametrize(
    ("size", "slide", "batch", "fraction", "dropped"),
    [
        (10, 5, 10, 0.2, 0.180),
        (10, 3, 10, 0.5, 0.383),
        (100, 10, 20, 0.2, 0.110),
        (100, 10, 10, 0.5, 0.050),
        (100, 1, 10, 0.2, 0.000),
        (7, 6, 3, 0.5, 0.472),
    ],
)
def test_the_share_of_rows_that_pass(size: int, slide: int, batch: int, fraction: float, dropped: float) -> None:
    assert 1 - share_passed(size, slide, batch, fraction) == pytest.approx(dropped, abs=5e-4)


def test_loads() -> None:
    costs = Costs(5, 0.1, 5, 1 / 50, filter_=0.01)
    assert costs.load(200) == pytest.approx(1040)
    assert costs.load_of_random_drop(200, 0.2) == pytest.approx(1036.04)
    # The sheet has 856.612; 0.012 of it is for marks and copies of rows, which do not travel here.
    dropping = Costs(5, 0.1, 5, 1 / 50, check=0.021)
    passed = share_passed(100, 50, 10, 0.2)
    assert dropping.load_of_window_drop(200, 0.2, passed) == pytest.approx(856.612 - 0.012, abs=5e-4)


@pytest.mark.parametrize(
    ("excess", "slide", "fraction"),
    [(0.25, 1, 0.40), (0.25, 20, 0.32), (0.25, 50, 0.22), (0.25, 100, 0.20), (0.5, 20, 0.54), (1.0, 50, 0.55)],
)
def test_the_share_of_windows_to_lose(excess: float, slide: int, fraction: float) -> None:
    found = fraction_needed(Costs(5, 0, 5, 1 / slide), 100, slide, 10, excess)
    assert found == pytest.approx(fraction, abs=0.011)


# Units


def test_units_of_windows_that_slide() -> None:
    assert cut(pipeline((60, 10)), 3, 1) == Cut(10, 3)


def test_units_of_windows_that_do_not_slide_are_as_long_as_they_are() -> None:
    steps = (DemandStep("s", "stream"), DemandStep("w", "window", ("s",), 30), DemandStep("out", "same", ("w",)))
    assert cut(steps, 2, 1) == Cut(30, 2)
    assert cut(steps, 2, 100) == Cut(100, 2)
    assert sizes(steps, 30) == {"s": 59}


@pytest.mark.parametrize(("max_gap", "units"), [(9, Cut(6, 3)), (3, Cut(6, 1)), (2, Cut(2, 2))])
def test_units_of_a_join_last_until_all_slides_come_round(max_gap: int, units: Cut) -> None:
    assert cut(joined(2, 3), max_gap, 1) == units


def joined(first: int, second: int) -> tuple[DemandStep, ...]:
    return (
        DemandStep("s", "stream"),
        DemandStep("a", "window", ("s",), 4, first),
        DemandStep("b", "window", ("s",), 6, second),
        DemandStep("out", "same", ("a", "b")),
    )


def test_a_join_is_exact_at_every_instant_at_which_one_side_changes() -> None:
    assert grain(joined(2, 4)) == 2
    assert grain(joined(2, 3)) == 1
    # The first instant of the unit (0, 6] is 1, at which both windows are still those of 0.
    assert needed(joined(2, 3), 6, 6)["s"] == (-5, 6)


def test_an_istream_needs_the_instant_before() -> None:
    steps = (*pipeline((10, 5))[:-1], DemandStep("i", "difference", ("w0",)), DemandStep("out", "same", ("i",)))
    assert sizes(steps, 5) == {"s": 15}
    assert sizes(pipeline((10, 5)), 5) == {"s": 10}


def test_windows_that_count_rows_need_everything() -> None:
    steps = (
        DemandStep("s", "stream"),
        DemandStep("r", "stream"),
        DemandStep("n", "count", ("s",)),
        DemandStep("w", "window", ("r",), 10, 5),
        DemandStep("out", "same", ("n", "w")),
    )
    assert sizes(steps, 5)["s"] is None
    assert sizes(steps, 5)["r"] == 15
