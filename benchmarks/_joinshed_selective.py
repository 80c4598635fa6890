"""Selective processing: the experiments on joins that take too long, on a virtual clock.

Follows 1.10 of the sheet `papers/join-shedding.md`. The machine can do what 100 tuples a second of each stream need, a
tenth more than that; rates go up to five times as much. With indexes, rates are a fifth of the paper's and windows a
quarter, and the machine is slower in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from benchmarks._joinshed_plots import Lines, plot, table
from benchmarks._joinshed_streams import Machine, Policy, Result, Workload, drawn, joined
from benchmarks.models.selective import largest_area, optimality
from shedding.fitting import Floats

SCAN = Machine(comparison=1 / (2 * 100 * 100 * 20 * 1.1))
INDEX = Machine(lookup=1.2e-5, entry=7.5e-6)
SLOW_INDEX = Machine(lookup=4e-5, entry=2.5e-5)
BURST = ((60.0, 100.0), (75.0, 500.0), (105.0, 300.0), (135.0, 100.0))
SHIFT = 1.25
SEEDS = (1, 2)
AGES = 101
"""At how many ages a density is known."""


def mean_rate(load: Workload, machine: Machine, policy: Policy, since: float, *, worth: bool = False) -> float:
    """Return the results per second from an instant on, or what they are worth, on average over seeds."""
    found = [joined(replace(load, seed=seed), machine, policy) for seed in SEEDS]
    until = load.seconds - 1
    return float(np.mean([(each.worth_rate if worth else each.rate)(since, until) for each in found]))


# Densities


@cache
def profile(skew: float, overlap: int = 3, sets: int = 1500) -> tuple[float, ...]:
    """Return how probably two sets match, by the distance of their phases from 0 to half a cycle."""
    load, rng = Workload(skew=skew), np.random.default_rng(5)
    phases = np.linspace(0, 50, 26).astype(np.int64)
    mine = drawn(load, np.zeros(sets, np.int64), rng)
    found = []
    for phase in phases:
        theirs = drawn(load, np.full(sets, phase), rng)
        common = sum(np.bitwise_count(mine[word][:, None] & theirs[word][None, :]) for word in (0, 1))
        found.append(float((common >= overlap).mean()))
    return tuple(found)


def densities(skew: float, shift: float) -> tuple[Floats, Floats]:
    """Return the match density of both windows at ages from 0 to a window."""
    ages = np.linspace(0, 1, AGES)
    both = []
    for turns in ((shift - ages) / 2, (shift + ages) / 2):
        distance = np.abs(turns - np.rint(turns))
        both.append(np.interp(distance, np.linspace(0, 0.5, 26), profile(skew)))
    return both[0], both[1]


def expected(skew: float, fraction: float) -> tuple[float, float, float, float]:
    """Return the gains over random drops: newest part without a shift; with one, rate, time and direction."""
    near, _ = densities(skew, 0.0)
    first, second = densities(skew, SHIFT)
    mean = (first.mean() + second.mean()) / 2
    young = max(1, round(fraction * AGES))
    newest = near[:young].mean() / near.mean()
    rate = (first[:young].mean() + second[:young].mean()) / 2 / mean
    time = (largest_area(first, 1.0, fraction) + largest_area(second, 1.0, fraction)) / 2 / fraction / mean
    direction = largest_area(np.concatenate([first, second]), 2.0, 2 * fraction) / (2 * fraction) / mean
    return float(newest), float(rate), float(time), float(direction)


SHEET = {0.4: (1.69, 0.83, 1.40, 1.68), 0.6: (3.76, 0.59, 2.49, 3.75), 0.8: (7.73, 0.28, 4.60, 7.71)}
"""What the sheet expects at r = 0.04."""


def _expected_gains() -> None:
    """E0 and E1."""
    columns: dict[str, list[float]] = {"newest": [], "rate only": [], "and time": [], "and direction": []}
    for skew, sheet in SHEET.items():
        found = expected(skew, 0.04)
        for column, value in zip(columns.values(), found, strict=True):
            column.append(value)
        assert np.allclose(found, sheet, rtol=0.15, atol=0.06), (skew, found)
    table("E0, gains over random drops at r = 0.04, by densities", "skew", tuple(SHEET), columns)
    ages = np.linspace(0, 20, AGES).tolist()
    panels = {}
    for skew in (0.6, 0.8):
        first, second = densities(skew, SHIFT)
        panels[f"skew {skew}"] = (ages, {"window 1": first.tolist(), "window 2": second.tolist()})
        assert 0.7 < np.argmax(second) / (AGES - 1) < 0.8, "the peak is where the shift says"
    plot("joinshed_densities", "age in seconds", "matches per comparison", panels)
    sharp = [densities(skew, SHIFT)[1] for skew in (0.6, 0.8)]
    assert sharp[1].max() / sharp[1].mean() > sharp[0].max() / sharp[0].mean()


def _cell_sizes() -> None:
    """E11: what cells of some size find of what could be found."""
    sizes = (0.05, 0.1, 0.25, 0.5)
    for skew in (0.6, 0.8):
        density = densities(skew, SHIFT)[1]
        rows = {f"r = {r}": [optimality(density, 1.0, size, r) for size in sizes] for r in (0.05, 0.1, 0.25, 0.5)}
        table(f"E11, phi by b / w, skew {skew}", "b/w", sizes, rows)
        assert all(column[0] > 0.9 for column in rows.values())
        assert all(column[0] > column[-1] for column in rows.values()), "falls with larger cells"
        assert rows["r = 0.05"][-1] < rows["r = 0.5"][-1], "falls with less time"
    mild, steep = (optimality(densities(skew, SHIFT)[1], 1.0, 0.25, 0.05) for skew in (0.6, 0.8))
    assert steep < mild, "falls with skew"


# Runs


def _bottleneck() -> None:
    """E2: how much is dropped, by window."""
    windows = (25.0, 50.0, 125.0)
    panels = {}
    for title, machine in (("scan", Machine(comparison=1 / 1.6e5)), ("index", Machine(lookup=2e-5, entry=5e-6))):
        lines: dict[str, list[float]] = {}
        for rate in (25.0, 50.0, 100.0):
            lines[f"{rate:g} t/s"] = []
            for window in windows:
                load = Workload(((2 * window, rate),), window, 0.6)
                found = joined(load, machine, Policy("drop"))
                lines[f"{rate:g} t/s"].append(found.dropped / found.offered)
        table(f"E2, {title}: share of tuples dropped", "window", windows, lines)
        panels[title] = (windows, lines)
        for line in lines.values():
            assert line == sorted(line), "longer windows drop more"
    scan, index = (panels[title][1] for title in ("scan", "index"))
    assert 0.25 < scan["50 t/s"][-1] < 0.6, "half of it"
    assert all(index[name][-1] <= scan[name][-1] for name in scan)


def phases(found: Result) -> list[float]:
    """Return the results per second before, in, and after a burst, when the fraction has settled."""
    return [found.rate(*each) for each in ((30, 60), (66, 75), (85, 105))]


def _over_time(policies: Sequence[str], skew: float, shift: float, seeds: Sequence[int]) -> dict[str, list[Result]]:
    load = Workload(BURST, skew=skew, shift=shift)
    return {name: [joined(replace(load, seed=seed), SCAN, Policy(name)) for seed in seeds] for name in policies}


def _smooth(results: Sequence[Result]) -> list[float]:
    series = np.mean([each.outputs for each in results], axis=0)[:135]
    return [float(each) for each in np.convolve(series, np.ones(3) / 3, "valid")]


def rate_adaptation(seeds: Sequence[int] = SEEDS) -> dict[str, list[float]]:
    """E3: rate adaptation and random drops at 100, 500 and 300 tuples a second."""
    runs = _over_time(("drop", "rate"), 0.45, 0.0, seeds)
    found = {name: np.mean([phases(each) for each in results], axis=0).tolist() for name, results in runs.items()}
    gains = [rate / drop for rate, drop in zip(found["rate"], found["drop"], strict=True)]
    assert abs(gains[0] - 1) < 0.05, "the same without a burst"
    assert gains[1] > 1.25 and gains[2] > 1.25, "more in a burst"
    for each in runs["rate"]:
        fractions = {round(at): r for at, r, _, _ in each.fractions}
        assert fractions[70] < 0.3, "down within two periods"
        back = [fractions[at] for at in range(110, 135, 5)]
        assert all(b <= 1.2001 * a for a, b in pairwise(back)), "up by a fifth at a time"
        assert back[-1] > back[0]
    seconds = list(range(1, 134))
    lines = {{"drop": "random drop", "rate": "rate adaptation"}[name]: _smooth(each) for name, each in runs.items()}
    steps = runs["rate"][0].fractions
    if seeds is SEEDS:
        assert gains[1] > gains[2], "most where the burst is highest"
        plot("joinshed_rate", "second", "results per second", {"skew 0.45, no shift": (seconds, lines)})
        table("E3, the fraction r over time", "second", [at for at, *_ in steps], {"r": [r for _, r, *_ in steps]})
    return found


def time_and_direction(seeds: Sequence[int] = SEEDS, skew: float = 0.4) -> dict[str, list[float]]:
    """E5: the same burst with a shift: only the newest part, the densest cells, and more of the denser window."""
    runs = _over_time(("drop", "rate", "time", "direction"), skew, SHIFT, seeds)
    found = {name: np.mean([phases(each) for each in results], axis=0).tolist() for name, results in runs.items()}
    for at in (1, 2):
        assert found["rate"][at] < found["drop"][at], "the newest part is the wrong one"
        assert found["rate"][at] < found["time"][at] <= 1.05 * found["direction"][at]
    for each in runs["direction"]:
        first, second = np.mean([parts for at, _, *parts in each.fractions if 65 <= at <= 105], axis=0)
        assert first < second, "less of the window that brings less"
    if seeds is SEEDS:
        lines = {name: _smooth(each) for name, each in runs.items()}
        plot("joinshed_time", "second", "results per second", {f"skew {skew}, shifted": (list(range(1, 134)), lines)})
    return found


def _by_skew_and_window() -> None:
    """E4: the gain of rate adaptation grows with skew and window."""
    skews = (0.2, 0.5, 0.8)
    gains: dict[str, list[float]] = {}
    for window in (10.0, 20.0, 40.0):
        column = gains[f"w = {window:g} s"] = []
        for skew in skews:
            load = Workload(((60.0, 300.0),), window, skew)
            rates = [mean_rate(load, SCAN, Policy(name), 40) for name in ("rate", "drop")]
            column.append(rates[0] / rates[1])
        assert column[-1] > column[1] > column[0]
    table("E4, 300 t/s: rate adaptation over random drops", "skew", skews, gains)
    assert gains["w = 10 s"][-1] < gains["w = 20 s"][-1] < gains["w = 40 s"][-1]


def _strict_overlap() -> None:
    """E6: overlaps of four, by skew."""
    skews = (0.4, 0.6, 0.8, 1.0)
    rates: dict[str, list[float]] = {name: [] for name in ("rate", "time", "direction")}
    for skew in skews:
        load = Workload(((60.0, 500.0),), skew=skew, shift=SHIFT, overlap=4)
        for name, column in rates.items():
            column.append(mean_rate(load, SCAN, Policy(name), 30))
    table("E6, overlap of 4, 500 t/s: results per second", "skew", skews, rates)
    gains = [time / rate for time, rate in zip(rates["time"], rates["rate"], strict=True)]
    assert gains == sorted(gains), "gains grow with skew"
    assert rates["rate"][-1] < 0.5 * rates["time"][-1]
    plot("joinshed_overlap", "skew", "results per second", {"overlap of 4, 500 t/s": (skews, rates)})


def _against_random() -> None:
    """E7: all adaptations over random drops, by rate, for sets and equal values, with and without indexes."""
    rates = (100, 200, 300, 400, 500)
    sets = Workload(skew=0.6, shift=SHIFT)
    equal = replace(sets, overlap=1, items=1.0, domain=5000)
    cases = {
        "sets, scan": (sets, SCAN, 1.0),
        "equal, scan": (equal, SCAN, 1.0),
        "sets, index": (replace(sets, window=50.0), INDEX, 2.5),
        "equal, index": (replace(equal, window=50.0), INDEX, 0.0),
    }
    gains: dict[str, list[float]] = {name: [] for name in cases}
    for name, (load, machine, cell) in cases.items():
        for rate in rates:
            scaled = rate / 5 if machine.is_indexed else float(rate)
            seconds = 3 * load.window
            timed = replace(load, profile=((seconds, scaled),))
            ours, drop = (mean_rate(timed, machine, Policy(each, cell), seconds / 2) for each in ("utility", "drop"))
            gains[name].append(ours / drop)
    table("E7, all adaptations over random drops", "t/s", rates, gains)
    plot("joinshed_gain", "tuples a second", "results, relative to random drops", {"skew 0.6, shifted": (rates, gains)})
    assert gains["sets, scan"][-1] > 2 and gains["sets, scan"] == sorted(gains["sets, scan"])
    assert gains["sets, index"][-1] > max(1.15, gains["sets, index"][-2]), "and gains when it is not"
    assert all(abs(each - 1) < 0.06 for each in gains["sets, index"][:2]), "an index is in time for longer"
    assert all(abs(each - 1) < 0.05 for each in gains["equal, index"]), "a hash index leaves nothing to gain"


def _by_cell() -> None:
    """E8: the size of cells, with scans, and with both kinds of index."""
    cells = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 0.0)
    scans: dict[str, list[float]] = {}
    for skew in (0.6, 0.8):
        load = Workload(((60.0, 500.0),), skew=skew, shift=SHIFT)
        scan = scans[f"skew {skew}"] = [mean_rate(load, SCAN, Policy("direction", cell), 30) for cell in cells]
        assert max(scan[:3]) > 1.15 * scan[5] and scan[5] > scan[6], "small cells find more"
    table("E8, scan: results per second by cell", "cell", [_cell_name(cell) for cell in cells], scans)
    scanned: Lines = {name: column[:-1] for name, column in scans.items()}
    panels: dict[str, tuple[Sequence[float], Lines]] = {"scan, window of 20 s": (cells[:-1], scanned)}
    load = Workload(((150.0, 100.0),), 50.0, 0.6, SHIFT)
    sizes = (0.25, 1.0, 2.5, 5.0, 12.5, 25.0, 0.0)
    rows = {
        name: [
            mean_rate(load, replace(SLOW_INDEX, by_identifier=flag), Policy("direction", size), 75) for size in sizes
        ]
        for name, flag in (("by time", False), ("by identifier", True))
    }
    table("E8, index, skew 0.6: results per second by cell", "cell", [_cell_name(size) for size in sizes], rows)
    best = int(np.argmax(rows["by time"]))
    assert 0 < best < len(sizes) - 1, "neither the smallest nor the largest cell"
    assert sum(rows["by identifier"]) < sum(rows["by time"])
    panels["index, window of 50 s"] = (sizes[:-1], {name: column[:-1] for name, column in rows.items()})
    plot("joinshed_cells", "cell in seconds", "results per second", panels)


def _cell_name(size: float) -> str:
    return f"{size:g}" if size else "none"


# Utility


def utility_gain(values: Sequence[float], frequencies: Sequence[float], seeds: Sequence[int] = SEEDS) -> float:
    """Return what utility-based shedding brings over the same without utilities, at 500 tuples a second."""
    total = sum(frequencies)
    load = Workload(
        ((60.0, 500.0),), skew=0.6, shift=SHIFT, types=tuple(each / total for each in frequencies), values=tuple(values)
    )
    ratios = []
    for seed in seeds:
        ours, plain = (joined(replace(load, seed=seed), SCAN, Policy(name)) for name in ("utility", "direction"))
        ratios.append(ours.worth_rate(30, 59) / plain.worth_rate(30, 59))
    return float(np.mean(ratios))


def _utility() -> None:
    """E9: three types, by how far their values are apart."""
    powers = (1, 2, 3)
    gains: dict[str, list[float]] = {"uniform": [], "inverse": [], "proportional": []}
    for power in powers:
        values = (1.0, 2.0**-power, 3.0**-power)
        gains["uniform"].append(utility_gain(values, (1, 1, 1)))
        gains["inverse"].append(utility_gain(values, [1 / each for each in values]))
        gains["proportional"].append(utility_gain(values, values))
    table("E9, gain in utility by k, values 1, 2^-k, 3^-k", "k", powers, gains)
    plot("joinshed_utility", "k", "utility, relative to none", {"values 1, 2^-k, 3^-k": (powers, gains)})
    assert gains["inverse"] == sorted(gains["inverse"]) and gains["uniform"] == sorted(gains["uniform"])
    assert gains["inverse"][-1] > gains["uniform"][-1] > gains["proportional"][-1]
    assert all(abs(each - 1) < 0.08 for each in gains["proportional"]), "flat"


def _many_types() -> None:
    """E10: by the number of types."""
    counts = (2, 5, 20)
    gains: dict[str, list[float]] = {}
    for spread in (2.0, 10.0):
        column = gains[f"x = {spread:g}"] = []
        for count in counts:
            values = np.arange(1, count + 1) ** -(np.log(spread) / np.log(count))
            column.append(utility_gain(values.tolist(), (1 / values).tolist(), SEEDS[:1]))
    table("E10, gain in utility by number of types, values from 1 to 1 / x", "types", counts, gains)
    for column in gains.values():
        assert column[-1] <= 1.05 * column[0], "not more with more types"
    assert gains["x = 10"][0] > gains["x = 2"][0]


def report() -> None:
    """Run all experiments, print their tables, write their plots, and hold them to what the sheet expects."""
    _expected_gains()
    _cell_sizes()
    _bottleneck()
    phases_ = ("100 t/s", "500 t/s", "300 t/s")
    table("E3, results per second before, in and after the burst", "rate", phases_, rate_adaptation())
    table("E5, the same with a shift", "rate", phases_, time_and_direction())
    _by_skew_and_window()
    _strict_overlap()
    _against_random()
    _by_cell()
    _utility()
    _many_types()


main = report
