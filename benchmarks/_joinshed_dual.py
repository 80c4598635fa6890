"""Dual windows: the experiments on joins of the last W rows, on a virtual clock.

Follows 3.8 of the sheet `papers/join-shedding.md`. The machine makes one probe in a unit of time, and ten updates of
windows. What a probe finds is counted on the tuples themselves; which probes are left out is decided tuple by tuple,
as `benchmarks/models/dual.py` says; when a tuple is served follows from when it came and what those before it cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks._joinshed_plots import plot, table
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
from shedding.dual import Speeds, best_mix, outputs
from shedding.fitting import Floats
from shedding.schedule import Ints, Mask

MACHINE = Speeds(probes=1.0, updates=10.0)
BUFFER = 100
"""From how many tuples PROB-drop chooses."""


@dataclass(frozen=True, slots=True)
class Values:
    """Two streams of values, and how probable each value is in them."""

    streams: tuple[Ints, Ints]
    chances: tuple[Floats, Floats]


def zipf(count: int, domain: int, skew: float, seed: int) -> Values:
    """Return streams of values that are drawn alike; with a skew of 0 uniformly."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1, domain + 1) ** -float(skew)
    chances: Floats = weights / weights.sum()
    first, second = (rng.choice(domain, count, p=chances) for _ in (0, 1))
    return Values((first, second), (chances, chances))


@cache
def temperatures(count: int, seed: int) -> Values:
    """Return two years of temperatures in tenths of degrees: seasons, days, and weather that lasts."""
    rng = np.random.default_rng(seed)
    years = []
    for _ in (0, 1):
        weather = np.zeros(count)
        noise = rng.normal(0, 3, count)
        for at in range(1, count):
            weather[at] = 0.98 * weather[at - 1] + noise[at]
        season = 120 * np.sin(2 * np.pi * np.arange(count) / count - 1.5)
        years.append(np.rint(season + 40 * np.sin(2 * np.pi * np.arange(count) / 48) + weather).astype(np.int64))
    least = min(int(each.min()) for each in years)
    domain = max(int(each.max()) for each in years) - least + 1
    first, second = (each - least for each in years)
    return Values(
        (first, second), (np.bincount(first, minlength=domain) / count, np.bincount(second, minlength=domain) / count)
    )


def matches(own: Ints, own_at: Ints, other: Ints, other_at: Ints, window: int, lead: int) -> Ints:
    """Return how many tuples of the other stream have the same value, of the last W before each tuple.

    Tuples are numbered; those of the other stream count from W - lead numbers before up to lead - 1 after a tuple.
    """
    found = np.zeros(len(own), np.int64)
    for value in np.unique(own):
        mine, theirs = own == value, other_at[other == value]
        last = own_at[mine] + lead
        found[mine] = np.searchsorted(theirs, last) - np.searchsorted(theirs, last - window)
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results per unit of time, all that there would have been per unit of time, and the longest wait."""

    rate: float
    exact: float
    wait: float


POLICIES = ("DUAL", "DUAL-rank", "REAR", "PROB-skip", "PROB-drop", "RAND")


def run(
    policy: str,
    values: Values,
    window: int,
    speed: float,
    seed: int,
    *,
    over: str = "survivors",
    machine: Speeds = MACHINE,
) -> Outcome:
    """Run a policy on streams that together come at some speed."""
    rng = np.random.default_rng([seed, 7])
    full = [_found(values.streams, [np.arange(len(each)) for each in values.streams], window, side) for side in (0, 1)]
    expected = [window * values.chances[1 - side][values.streams[side]] for side in (0, 1)]
    known = np.concatenate(
        full if policy in ("DUAL", "DUAL-rank", "REAR") else [np.rint(each).astype(np.int64) for each in expected]
    )
    decided = _decided(policy, counted(known, window), machine, speed)
    survive = [_survivors(policy, expected[side], decided.front, rng) for side in (0, 1)]
    places = [np.flatnonzero(each) for each in survive]
    if over == "survivors":
        count = min(map(len, places))
        places = [each[:count] for each in places]
    kept = values.streams[0][places[0]], values.streams[1][places[1]]
    numbers = [np.arange(len(each)) for each in places] if over == "survivors" else places
    found = [_found(kept, numbers, window, side) for side in (0, 1)]
    ranked_by = [
        expected[side][places[side]].round().astype(np.int64) if policy == "PROB-skip" else found[side]
        for side in (0, 1)
    ]
    if policy == "DUAL-rank":
        probes = [by_rank(each, window, decided.rear, rng) for each in ranked_by]
    else:
        probes = [by_cutoff(each, decided, rng) for each in ranked_by]
    arrivals = np.concatenate([(2 * places[side] + side) / speed for side in (0, 1)])
    results = np.concatenate([np.where(probes[side], found[side], 0) for side in (0, 1)])
    cost = (machine.ratio + np.concatenate(probes) + machine.output * results) / machine.probes
    order = np.argsort(np.concatenate([2 * numbers[side] + side for side in (0, 1)]), kind="stable")
    arrivals, results, cost = arrivals[order], results[order], cost[order]
    before = np.cumsum(cost) - cost
    finished = before + cost + np.maximum.accumulate(arrivals - before)
    warm = 4 * window
    span = finished[-1] - finished[warm]
    everything = sum(int(each.sum()) for each in full) / (len(values.streams[0]) * 2) * speed
    return Outcome(float(results[warm + 1 :].sum() / span), everything, float((finished - arrivals).max()))


def _found(streams: Sequence[Ints], numbers: Sequence[Ints], window: int, side: int) -> Ints:
    return matches(streams[side], numbers[side], streams[1 - side], numbers[1 - side], window, side)


def _decided(policy: str, probabilities: Floats, machine: Speeds, speed: float) -> Shares:
    if policy in ("DUAL", "DUAL-rank", "PROB-skip", "REAR"):
        return shares(probabilities, machine, speed, may_drop=policy != "REAR")
    mean = float(probabilities @ np.arange(len(probabilities)))
    return Shares(front=max(0.0, 1 - unshed_speed(machine, mean) / speed))


def _survivors(policy: str, expected: Floats, front: float, rng: np.random.Generator) -> Mask:
    """Return which tuples are not dropped: at random, or of each buffer those with the most frequent partners."""
    coins = rng.random(len(expected))
    if policy != "PROB-drop":
        return coins >= front
    kept = np.zeros(len(expected), np.bool_)
    for begin in range(0, len(expected), BUFFER):
        part = slice(begin, begin + BUFFER)
        best = np.lexsort((coins[part], -expected[part]))
        kept[begin + best[: round((1 - front) * len(best))]] = True
    return kept


def by_cutoff(found: Ints, decided: Shares, rng: np.random.Generator) -> Mask:
    """Return which tuples probe: those that find as much as the cut-off, but for a share of those that find just it."""
    is_tied = (found == decided.cutoff) & (rng.random(len(found)) < decided.tied)
    probed: Mask = (found >= decided.cutoff) & ~is_tied
    return probed


def by_rank(found: Ints, window: int, rear: float, rng: np.random.Generator) -> Mask:
    """Return which tuples probe, as each leaves its auxiliary window, in which those after it wait."""
    probed = np.ones(len(found), np.bool_)
    if rear == 0:
        return probed
    ranks, counts = Ranks(int(found.max(initial=0))), found.tolist()
    coins = rng.random(len(found)).tolist()
    for count in counts[: window - 1]:
        ranks.add(count)
    for at, count in enumerate(counts):
        waiting = min(window, len(counts) - at)
        if at + window <= len(counts):
            ranks.add(counts[at + window - 1])
        probed[at] = coins[at] >= skip_chance(ranks.below(count), ranks.of(count), rear * waiting)
        ranks.add(count, -1)
    return probed


def curve(
    policies: Sequence[str],
    make: str,
    window: int,
    speeds: Sequence[float],
    seeds: Sequence[int],
    count: int = 12_000,
    over: str = "survivors",
) -> dict[str, list[float]]:
    """Return the results per unit of time of some policies at some speeds, and the bound, on average over seeds."""
    found: dict[str, list[float]] = {name: [] for name in ("OPT", *policies)}
    for speed in speeds:
        rates: dict[str, list[float]] = {name: [] for name in found}
        for seed in seeds:
            values = zipf(round(count * max(1.0, speed / 3)), 50, 1.0 if make == "zipf" else 0.0, seed)
            numbers = [np.arange(len(each)) for each in values.streams]
            exact = counted(np.concatenate([_found(values.streams, numbers, window, side) for side in (0, 1)]), window)
            rates["OPT"].append(bound(exact, speed))
            for name in policies:
                rates[name].append(run(name, values, window, speed, seed, over=over).rate)
        for name, each in rates.items():
            found[name].append(float(np.mean(each)))
    return found


def bound(probabilities: Floats, speed: float, machine: Speeds = MACHINE) -> float:
    """Return the most results per unit of time: the richest probes of the whole run, at the best speed up to one."""
    mix = best_mix(probabilities, machine)
    return mix.output if speed >= mix.speed else rear_output(probabilities, machine, speed)


SEEDS = (1, 2, 3)
ZIPF = np.arange(1, 51) ** -1.0 / (np.arange(1, 51) ** -1.0).sum()


def report() -> None:
    """Run all experiments, print their tables, write their plots, and hold them to what the sheet expects."""
    _analysis()
    for window in (400, 800):
        _skewed(window)
    _uniform()
    _arrivals()
    _real()


main = report


def _analysis() -> None:
    """Y0 and the table of 3.8: the formulas."""
    rows: dict[str, list[float]] = {"M*": [], "k_r*": [], "V_0": [], "V_opt": [], "O_max/RAND": []}
    names = []
    for values, chances in (("uniform", uniform_counts(400, 50)), ("zipf", independent_counts(400, ZIPF, ZIPF))):
        for ratio in (0.05, 0.1, 0.2, 0.5):
            machine = Speeds(1.0, 1 / ratio)
            mix = best_mix(chances, machine)
            random = outputs(chances, machine)[0]
            names.append(f"{values} {ratio}")
            for column, value in zip(
                rows.values(),
                (mix.cutoff, mix.rear, unshed_speed(machine, 0.0), mix.speed, mix.output / random),
                strict=True,
            ):
                column.append(float(value))
    table("Y0, by formulas: W = 400, D = 50, by alpha = V_j / V_w; speeds in probes", "values", names, rows)
    assert rows["M*"] == [10, 9, 8, 6, 73, 62, 48, 30]
    expected = [1.28, 1.18, 1.10, 1.03, 2.38, 2.10, 1.76, 1.39]
    assert np.allclose(rows["O_max/RAND"], expected, atol=0.011)


SPEEDS = (0.5, 0.9, 1.5, 2.0, 2.5, 3.1, 4.0, 5.0, 7.0, 9.0, 9.9)


def _skewed(window: int) -> None:
    """Y1 and Y2: DUAL and REAR, and the others, on Zipf values."""
    found = curve(POLICIES, "zipf", window, SPEEDS, SEEDS)
    table(
        f"Y1, Y2, Zipf(1), W = {window}, D = 50: results per unit of time, windows of survivors", "speed", SPEEDS, found
    )
    chances = independent_counts(window, ZIPF, ZIPF)
    mix, random = best_mix(chances, MACHINE), float(outputs(chances, MACHINE)[0])
    slow = [at for at, speed in enumerate(SPEEDS) if speed <= mix.speed]
    fast = [at for at, speed in enumerate(SPEEDS) if speed > mix.speed]
    for at in slow:
        assert abs(found["DUAL"][at] / found["REAR"][at] - 1) < 0.02, "the same up to V_opt"
    for at in fast:
        assert abs(found["DUAL"][at] / mix.output - 1) < 0.03, "flat above V_opt"
        assert found["DUAL"][at] > 1.8 * found["RAND"][at], "ahead of random drops"
    assert found["REAR"][-1] < 0.15 * max(found["REAR"]), "nothing left at V_w"
    assert abs(SPEEDS[int(np.argmax(found["REAR"]))] / mix.speed - 1) < 0.05, "the peak is at V_opt"
    for at in range(2, len(SPEEDS)):
        assert found["OPT"][at] * 1.02 >= found["DUAL"][at] > found["RAND"][at]
    shown = {name: found[name] for name in found if name != "PROB-drop"}
    panel = {f"W = {window}, Zipf(1)": (SPEEDS, shown)}
    plot(
        f"joinshed_dual_zipf_{window}",
        "speed of streams, in probes",
        "results per unit of time",
        panel,
        {"V_opt": mix.speed},
    )
    print(f"  V_opt = {mix.speed:.2f}, O_max = {mix.output:.1f}, RAND = {random:.1f}\n")


def _uniform() -> None:
    """Y3: uniform values, where only the look-ahead tells tuples apart."""
    found = curve(POLICIES, "uniform", 400, SPEEDS, SEEDS)
    table("Y3, uniform, W = 400, D = 50: results per unit of time, windows of survivors", "speed", SPEEDS, found)
    for at, speed in enumerate(SPEEDS):
        if speed > 2:
            assert 1.12 < found["DUAL"][at] / found["RAND"][at] < 1.25
            assert abs(found["PROB-drop"][at] / found["RAND"][at] - 1) < 0.03
            assert abs(found["PROB-skip"][at] / found["RAND"][at] - 1) < 0.03
    plot(
        "joinshed_dual_uniform",
        "speed of streams, in probes",
        "results per unit of time",
        {"W = 400, uniform": (SPEEDS, found)},
    )


def _arrivals() -> None:
    """Windows of the last W arrivals, whether they were dropped or not: then all answers are subsets."""
    speeds = (0.9, 1.5, 2.5, 4.0, 7.0)
    found = curve(("DUAL-rank", "REAR", "PROB-drop", "RAND"), "zipf", 400, speeds, SEEDS, over="arrivals")
    table("Zipf(1), W = 400: results per unit of time, windows of arrivals", "speed", speeds, found)
    for at in range(1, len(speeds)):
        assert min(found["DUAL-rank"][at], found["REAR"][at], found["PROB-drop"][at]) > 1.5 * found["RAND"][at]
    assert found["REAR"][-1] > found["DUAL-rank"][-1], "drops at random shrink windows of arrivals"


def _real() -> None:
    """Y4, with a stand-in for the data: P_i from the data, share of the exact answer by speed."""
    speeds = (0.9, 1.5, 2.5, 4.0)
    found: dict[str, list[float]] = {name: [] for name in ("DUAL", "PROB-skip", "PROB-drop", "RAND")}
    for name, column in found.items():
        for speed in speeds:
            runs = [run(name, temperatures(24_000, seed), 1000, speed, seed) for seed in SEEDS]
            column.append(float(np.mean([each.rate / each.exact for each in runs])))
    table("Y4, stand-in for temperatures, W = 1000: share of the exact answer", "speed", speeds, found)
    for at in range(2, len(speeds)):
        assert found["DUAL"][at] > 1.1 * found["RAND"][at]
