"""Selective processing: budgets, the knapsack, selections, what is learned, and the paper's experiments."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks._joinshed_selective import SHEET, SHIFT, expected, rate_adaptation, time_and_direction, utility_gain
from benchmarks._joinshed_streams import EXACT, Machine, Policy, Workload, joined, streams
from benchmarks.models.selective import adapted, by_direction
from shedding.selective import (
    LEAST,
    Adaptation,
    Counts,
    Learned,
    Selection,
    WindowProfile,
    by_utility,
    compared,
    edges,
    fraction_within,
    matched,
    ranked,
    selected,
    taken,
)

fractions = st.floats(0.001, 1.0)
lengths = st.floats(0.5, 1000.0)


def sides(draw: st.DrawFn) -> list[WindowProfile]:
    types = draw(st.integers(1, 3))
    found = []
    for _ in (0, 1):
        # Densities are matches per comparison: none, or no fewer than one in a great many.
        positive = st.just(0.0) | st.floats(1e-9, 1.0)
        cells = draw(st.lists(positive, min_size=1, max_size=4))
        utilities = draw(st.lists(positive, min_size=types, max_size=types))
        weights = np.array(draw(st.lists(st.integers(0, 5), min_size=types, max_size=types)), float)
        weights = weights / weights.sum() if weights.sum() else np.full(types, 1 / types)
        rows = draw(st.none() | st.lists(st.floats(0.01, 100.0), min_size=len(cells), max_size=len(cells)))
        own = None if rows is None else np.array(rows)
        found.append(WindowProfile(draw(lengths), np.array(cells), np.array(utilities), weights, own))
    return found


two_sides = st.composite(sides)()


def spent(parts: list[np.ndarray], of: list[WindowProfile]) -> float:
    total = 0.0
    for side, part in zip(of, parts, strict=True):
        rows = [taken(float(fraction), side.densities) @ side.in_cells for fraction in part]
        total += float(side.frequencies @ np.array(rows))
    return total


def everything(of: list[WindowProfile]) -> float:
    return sum(float(side.in_cells.sum()) for side in of)


@given(fractions, lengths, lengths, st.floats(0, 1), st.floats(0, 1))
@example(1.0, 1.0, 255.1, 0.0, 1.0)
def test_directions_keep_the_budget(r: float, first: float, second: float, one: float, other: float) -> None:
    parts = by_direction(r, (first, second), (one, other))
    assert all(0 <= part <= 1 for part in parts)
    assert parts[0] * first + parts[1] * second == pytest.approx(r * (first + second), rel=1e-9)


@given(two_sides, fractions)
def test_the_knapsack_keeps_the_budget(of: list[WindowProfile], r: float) -> None:
    parts = by_utility(r, of)
    assert all(((part >= 0) & (part <= 1)).all() for part in parts)
    assert spent(parts, of) == pytest.approx(r * everything(of), rel=1e-9)


@given(two_sides)
def test_with_enough_time_everything_is_processed(of: list[WindowProfile]) -> None:
    assert all((part == 1).all() for part in by_utility(1.0, of))


def value(parts: list[np.ndarray], of: list[WindowProfile]) -> float:
    """Return what fractions bring, cell by cell."""
    total = 0.0
    for side, part in zip(of, parts, strict=True):
        count, mass = len(side.densities), side.densities.sum()
        shape = side.densities * count / mass if mass > 0 else np.ones(count)
        for type_, fraction in enumerate(part):
            inside = (taken(float(fraction), side.densities) * side.in_cells * shape).sum()
            total += side.frequencies[type_] * side.utilities[type_] * inside
    return total


@given(two_sides, st.floats(0.05, 0.95))
def test_no_other_fractions_of_the_same_budget_bring_more(of: list[WindowProfile], r: float) -> None:
    best = value(by_utility(r, of), of)
    items = [(at, type_) for at, side in enumerate(of) for type_ in range(len(side.utilities))]
    budget = r * everything(of)
    for levels in product((0.0, 0.5, 1.0), repeat=len(items)):
        parts = [np.zeros(len(side.utilities)) for side in of]
        for (at, type_), level in zip(items, levels, strict=True):
            parts[at][type_] = level
        if spent(parts, of) <= budget:
            assert value(parts, of) <= best + 1e-9


@given(st.lists(st.floats(0.0, 100.0), min_size=4, max_size=4), st.floats(0.05, 0.95), st.integers(0, 3), st.booleans())
@example([1.1125369292536007e-308] * 4, 0.475, 0, False)
@example([1.1125369292536007e-308, 0.0, 0.0, 0.0], 0.475, 1, True)
@example([5e-324, 0.0, 0.0, 0.0], 0.475, 0, True)
@example([5e-324, 100.0, 0.0, 1.1e-308], 0.475, 0, True)
def test_a_share_of_looks_is_one_of_the_rows_that_there_are(
    rows: list[float], share: float, densest: int, is_known: bool
) -> None:
    adaptation = Adaptation((999_999, 999_999), (4, 4))
    borders = adaptation.borders(0)
    totals = np.append(0.0, np.cumsum(rows))
    if is_known:
        matches = 1.0 + 9.0 * (np.arange(4.0) == densest)[None, :]
        counts = Counts(matches, np.full((1, 4), 100.0), *(matches.sum(axis=1) for _ in range(3)))
        adaptation.learn((counts, counts))
    found = adaptation.select(share, lambda ages: np.interp(ages, borders, totals))
    assert found == pytest.approx(share if totals[-1] else 1.0, abs=1e-3)


def test_the_fraction_falls_at_once_and_rises_by_a_fifth() -> None:
    assert adapted(1.0, 100, 400) == 0.25
    assert adapted(0.25, 400, 400) == pytest.approx(0.3)
    assert adapted(0.95, 500, 400) == 1.0
    assert adapted(0.5, 0, 400) == LEAST
    assert adapted(0.5, 0, 0) == pytest.approx(0.6)


@given(st.floats(0.001, 1.5), st.floats(0.0, 1.0))
def test_full_probes_are_within_the_budget(share: float, sampling: float) -> None:
    r = fraction_within(share, sampling)
    assert 0 < r <= 1
    assert r + r * sampling * (1 - r) == pytest.approx(min(1.0, max(share, r)), rel=1e-6)


@given(st.integers(1, 5000), st.integers(1, 40))
def test_cells_cover_every_age_once(length: int, cells: int) -> None:
    borders = edges(length, cells)
    assert borders[0] == 0 and borders[-1] == length + 1 and (np.diff(borders) > 0).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(50, 5000), fractions)
def test_a_selection_takes_the_densest_ages(cells: list[float], length: int, r: float) -> None:
    densities, borders = np.array(cells), edges(length, len(cells))
    ages = selected(r, densities, borders)
    chosen = Selection(ages, 0.1, 1).covers(np.arange(length + 1))
    assert chosen.sum() == pytest.approx(r * (length + 1), abs=len(cells) + 2)
    per_cell = [bool(chosen[low:high].any()) for low, high in pairwise(borders)]
    order = ranked(densities)
    assert [per_cell[at] for at in order] == sorted((per_cell[at] for at in order), reverse=True)
    assert selected(1.0, densities, borders) == ((0, length + 1),)


def test_a_selection_is_the_same_after_a_trip_through_json() -> None:
    selection = Adaptation((1000, 2000), (10, 10), seed=3).selections(0.3)[1][0]
    again = Selection.of(json.loads(json.dumps(selection.values())))
    ordinals = np.arange(20_000)
    assert again == selection and (again.is_full(ordinals) == selection.is_full(ordinals)).all()
    assert again.is_full(ordinals).mean() == pytest.approx(0.03, abs=0.005)


def test_counts_of_full_probes_are_those_of_every_pair() -> None:
    rng = np.random.default_rng(3)
    stored, instants = np.sort(rng.integers(0, 500, 200)), rng.integers(100, 500, 30)
    types, borders = rng.integers(0, 2, 30), edges(100, 7)
    pairs = [(at, probe - u, t) for at, (probe, t) in enumerate(zip(instants, types, strict=True)) for u in stored]
    inside = [(age, t) for _, age, t in pairs if 0 <= age <= 100]
    expected_counts = np.zeros((2, 7))
    for age, type_ in inside:
        expected_counts[type_, np.searchsorted(borders, age, side="right") - 1] += 1
    assert (compared(instants, types, stored, borders, 2) == expected_counts).all()
    ages, of = np.array([a for a, _ in inside]), np.array([t for _, t in inside])
    some = [Selection(selected(0.4, np.arange(7.0), borders), 0.1, 1)] * 2
    found, worth, chosen = matched(ages, of, np.ones(len(ages)), borders, some)
    assert (found == expected_counts).all() and worth.sum() == len(ages)
    assert chosen.sum() == some[0].covers(ages).sum()


def test_without_full_probes_what_was_known_stays() -> None:
    learned = Learned.nothing(1, 3)
    counts = Counts(np.array([[1.0, 5, 2]]), np.full((1, 3), 10.0), np.array([8.0]), np.zeros(1), np.array([4.0]))
    learned.learn(Counts.of(json.loads(json.dumps(counts.values()))), halves=0)
    learned.learn(Counts.none(1, 3), halves=0)
    assert learned.densities.tolist() == [0.1, 0.5, 0.2]


# The reference

SMALL = Workload(((30.0, 60.0),), 6.0, 0.8, SHIFT, seed=4)
SLOW = Machine(comparison=1 / (2 * 20 * 20 * 6))
LISTED = Machine(lookup=1e-4, entry=2e-4)


def naive(load: Workload) -> set[tuple[int, int, int]]:
    first, second = streams(load)
    common = sum(np.bitwise_count(first.words[at][:, None] & second.words[at][None, :]) for at in (0, 1))
    apart = first.at[:, None] - second.at[None, :]
    found = set()
    for one, other in zip(*np.nonzero((common >= load.overlap) & (np.abs(apart) <= load.window)), strict=True):
        found.add((1, int(one), int(other)) if apart[one, other] > 0 else (0, int(other), int(one)))
    return found


@pytest.mark.parametrize("policy", ["drop", "rate", "time", "direction", "utility"])
@pytest.mark.parametrize("machine", [SLOW, LISTED, replace(LISTED, by_identifier=True)])
def test_answers_are_subsets_of_the_exact_one_without_repetitions(policy: str, machine: Machine) -> None:
    exact = naive(SMALL)
    found = joined(SMALL, machine, Policy(policy), keep_pairs=True).pairs
    assert found is not None and len(found) == len(set(found)) > 0
    assert set(found) < exact
    again = joined(SMALL, machine, Policy(policy), keep_pairs=True).pairs
    assert again == found


@pytest.mark.parametrize("policy", ["drop", "time", "utility"])
def test_a_machine_in_time_gives_the_exact_answer(policy: str) -> None:
    found = joined(SMALL, EXACT, Policy(policy, buffer=inf), keep_pairs=True).pairs
    assert found is not None and set(found) == naive(SMALL)


@pytest.mark.parametrize("policy", ["rate", "time", "utility"])
def test_the_estimated_recall_is_that_of_the_answer(policy: str) -> None:
    load = Workload(((60.0, 150.0),), 15.0, 0.6, SHIFT, seed=3)
    machine = Machine(comparison=1 / (2 * 75 * 75 * 15))
    found = joined(load, machine, Policy(policy, buffer=inf, sampling=0.2))
    exact = joined(load, EXACT, Policy("drop", buffer=inf))
    true = found.outputs.sum() / exact.outputs.sum()
    estimated = found.recall.value()
    assert estimated is not None and abs(estimated - true) < 0.05


# The experiments, quickly


@pytest.mark.parametrize("skew", SHEET)
def test_gains_by_densities_are_those_of_the_sheet(skew: float) -> None:
    assert np.allclose(expected(skew, 0.04), SHEET[skew], rtol=0.15, atol=0.06)


def test_in_a_burst_rate_adaptation_finds_more_than_random_drops() -> None:
    rate_adaptation(seeds=(3,))


def test_with_a_shift_the_densest_cells_and_the_denser_window_find_more() -> None:
    found = time_and_direction(seeds=(3,), skew=0.6)
    assert found["direction"][2] > 1.5 * found["drop"][2]


def test_utilities_pay_most_where_what_is_valuable_is_rare() -> None:
    values = (1.0, 0.125, 1 / 27)
    assert utility_gain(values, [1 / each for each in values], seeds=(3,)) > 1.3
