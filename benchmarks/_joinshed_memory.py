"""Joins with too little memory: the paper's experiments on RAND, LIFE, PROB and the optimum, on a virtual clock.

Follows section 2.7 of the sheet `papers/join-shedding.md`. One row of each stream arrives at each tick; rows that are
less than w ticks apart are joined. The reference evicts after each tick, row by row, and knows how often values arrive;
the form for micro-batches decides with `benchmarks/models/eviction_limits.py` for each key up to which age its rows are
held, from frequencies that it learns. Both say for each row until when it was held; pairs are counted from that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import _plots
from benchmarks.models.archive import Holding, archive_metric, count_delivered, missing_pairs
from benchmarks.models.eviction_limits import Cut, cuts, expected_recall
from shedding.budgets import in_proportion
from shedding.eviction import ArrivalRates, Floats, Frequencies, Policy, priorities, within_budget
from shedding.offline.optimum import optimum
from shedding.offline.streams import Stream, count_exact
from shedding.schedule import Ints, Mask

# ------------------------------------------------------------------------------------------------- the input


def zipf(domain: int, skew: float) -> Floats:
    """Return how often values arrive, by rank."""
    weights = 1.0 / np.arange(1, domain + 1) ** skew
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class Input:
    """Two streams of values, and how often each value arrives on them."""

    left: Stream
    right: Stream
    left_shares: Floats
    right_shares: Floats


def zipfian(length: int, domain: int, skews: tuple[float, float], ranks: str, seed: int) -> Input:
    """Return streams of independent values; the ranks of values are independent, same or reversed."""
    rng = np.random.default_rng(seed)
    orders = {"same": np.arange(domain), "reversed": np.arange(domain)[::-1]}
    right_values = orders[ranks] if ranks in orders else rng.permutation(domain)
    shares = zipf(domain, skews[0]), np.empty(domain)
    shares[1][right_values] = zipf(domain, skews[1])
    left, right = (Stream.ticking(rng.choice(domain, length, p=each)) for each in shares)
    return Input(left, right, *shares)


def clustered(length: int, domain: int, run: float, seed: int) -> Input:
    """Return streams like reports of stations: values with the same skew on both, several of one in a row."""
    rng = np.random.default_rng(seed)

    def stream() -> Stream:
        runs = rng.geometric(1 / run, length)
        return Stream.ticking(np.repeat(rng.choice(domain, length, p=zipf(domain, 1.0)), runs)[:length])

    left, right = stream(), stream()
    left_shares, right_shares = (np.bincount(each.keys, minlength=domain) / length for each in (left, right))
    return Input(left, right, left_shares, right_shares)


# ---------------------------------------------------------------------------------------- row by row


@dataclass(frozen=True, slots=True)
class Row:
    side: int
    tick: int
    value: int


class Pool(ABC):
    """Stored rows that compete for memory."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many rows are stored."""

    @abstractmethod
    def add(self, row: Row) -> None:
        """Store a row that has just arrived."""

    @abstractmethod
    def expire(self, row: Row) -> None:
        """Remove a row that has left its window, if it is stored."""

    @abstractmethod
    def evict(self, now: int) -> Row:
        """Remove the row that the policy can spare most."""


class RandomPool(Pool):
    """RAND: any row."""

    def __init__(self, seed: int) -> None:
        self._rows: list[Row] = []
        self._places: dict[Row, int] = {}
        self._rng = np.random.default_rng(seed)
        self._drawn: list[float] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        self._places[row] = len(self._rows)
        self._rows.append(row)

    def expire(self, row: Row) -> None:
        if row in self._places:
            self._remove(self._places[row])

    def evict(self, now: int) -> Row:
        if not self._drawn:
            self._drawn = self._rng.random(4096).tolist()
        return self._remove(int(self._drawn.pop() * len(self._rows)))

    def _remove(self, place: int) -> Row:
        row, last = self._rows[place], self._rows.pop()
        if last is not row:
            self._rows[place] = last
            self._places[last] = place
        del self._places[row]
        return row


class FrequencyPool(Pool):
    """PROB: the row whose partners arrive least often, and of equal ones the oldest."""

    def __init__(self, partners: Sequence[Floats]) -> None:
        _, classes = np.unique(np.concatenate(partners), return_inverse=True)
        self._classes = [part.tolist() for part in np.split(classes, len(partners))]
        self._rows: list[deque[Row]] = [deque() for _ in range(int(classes.max()) + 1)]
        self._lowest = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, row: Row) -> None:
        number = self._classes[row.side][row.value]
        self._rows[number].append(row)
        self._lowest = min(self._lowest, number)
        self._count += 1

    def expire(self, row: Row) -> None:
        rows = self._rows[self._classes[row.side][row.value]]
        if rows and rows[0] == row:
            rows.popleft()
            self._count -= 1

    def evict(self, now: int) -> Row:
        while not self._rows[self._lowest]:
            self._lowest += 1
        self._count -= 1
        return self._rows[self._lowest].popleft()


class LifetimePool(Pool):
    """LIFE: the row that can expect fewest partners in the time that it has left."""

    def __init__(self, partners: Sequence[Floats], window: int) -> None:
        self._domain = len(partners[0])
        self._shares = np.maximum(np.concatenate(partners), 1e-12)
        self._rows: list[deque[Row]] = [deque() for _ in self._shares]
        self._oldest = np.full(len(self._shares), np.inf)
        self._window = window
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, row: Row) -> None:
        place = row.side * self._domain + row.value
        if not self._rows[place]:
            self._oldest[place] = row.tick
        self._rows[place].append(row)
        self._count += 1

    def expire(self, row: Row) -> None:
        place = row.side * self._domain + row.value
        if self._rows[place] and self._rows[place][0] == row:
            self._pop(place)

    def evict(self, now: int) -> Row:
        return self._pop(int(np.argmin((self._oldest + (self._window - now)) * self._shares)))

    def _pop(self, place: int) -> Row:
        self._count -= 1
        row = self._rows[place].popleft()
        self._oldest[place] = self._rows[place][0].tick if self._rows[place] else np.inf
        return row


def row_by_row(
    given: Input, window: int, memory: int, policy: Policy, *, pooled: bool = False, seed: int = 0
) -> Holding:
    """Return until when rows are held if after each tick the policy evicts what is too much."""
    partners = given.right_shares, given.left_shares

    def pool() -> Pool:
        if policy is Policy.RAND:
            return RandomPool(seed)
        return FrequencyPool(partners) if policy is Policy.PROB else LifetimePool(partners, window)

    shared = pool()
    pools = (shared, shared) if pooled else (shared, pool())
    capacity = memory if pooled else memory // 2
    values = given.left.keys.tolist(), given.right.keys.tolist()
    until = [(stream.times + window - 1).tolist() for stream in (given.left, given.right)]
    for now in range(len(given.left)):
        for side, each in enumerate(pools):
            each.add(Row(side, now, values[side][now]))
            if now >= window - 1:
                each.expire(Row(side, now - window + 1, values[side][now - window + 1]))
        for each in pools:
            while len(each) > capacity:
                gone = each.evict(now)
                until[gone.side][gone.tick] = now
    return Holding(np.array(until[0]), np.array(until[1]))


# ---------------------------------------------------------------------------------------- in micro-batches


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Until when rows are held, the recall that was expected in each micro-batch, and how many rows were stored."""

    held: Holding
    recalls: Floats
    stored: Ints


def in_batches(
    given: Input,
    window: int,
    memory: int,
    policy: Policy,
    *,
    pooled: bool = False,
    seed: int = 0,
    batch: int = 10,
    buckets: int = 1,
    by_limits: bool = False,
) -> BatchRun:
    """Return what becomes of rows if they are evicted after each micro-batch, in each bucket of keys on its own.

    The cuts divide the memory among the buckets; what is too much in one is evicted there by its worth. By limits, rows
    go as well when they are older than the cuts say, although there is room.
    """
    streams = given.left, given.right
    learned = [Frequencies(half_life=4.0 * window) for _ in streams]
    until = [stream.times + window - 1 for stream in streams]
    stored = [np.empty(0, np.int64), np.empty(0, np.int64)]
    recalls, counts = [], []
    for begin in range(0, len(given.left), batch):
        arrived = np.arange(begin, min(begin + batch, len(given.left)))
        now = int(arrived[-1])
        for seen, stream in zip(learned, streams, strict=True):
            seen.observe(stream.keys[arrived], len(arrived))
        sides = [ArrivalRates.of(learned[s], learned[1 - s], window - 1) for s in (0, 1)]
        decided = cuts(policy, sides, memory, pooled=pooled, seed=seed)
        rows = [_Rows.of(s, np.concatenate((stored[s], arrived)), streams[s].keys, now) for s in (0, 1)]
        rows = [each.only(each.ages < window - 1) for each in rows]
        if by_limits:
            rows = [
                each.only(cut.keeps(each.keys, each.ages, each.ids)) for each, cut in zip(rows, decided, strict=True)
            ]
        worth = [priorities(policy, sides[s], rows[s].keys, rows[s].ages, rows[s].ids, seed) for s in (0, 1)]
        for group in ([0, 1],) if pooled else ([0], [1]):
            limits = _budgets(memory if pooled else memory // 2, [(sides[s], decided[s]) for s in group], buckets)
            stays = _within(limits, [rows[s] for s in group], [worth[s] for s in group])
            for s, mask in zip(group, stays, strict=True):
                rows[s] = rows[s].only(mask)
        for s in (0, 1):
            gone = np.setdiff1d(np.concatenate((stored[s], arrived)), rows[s].ticks)
            until[s][gone] = np.minimum(until[s][gone], now)
            stored[s] = rows[s].ticks
        recalls.append(expected_recall(sides, decided, len(arrived)))
        counts.append(len(stored[0]) + len(stored[1]))
    return BatchRun(Holding(until[0], until[1]), np.array(recalls), np.array(counts))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Stored rows of a side."""

    ticks: Ints
    keys: Ints
    ages: Ints
    ids: Ints

    @classmethod
    def of(cls, side: int, ticks: Ints, keys: Ints, now: int) -> _Rows:
        return cls(ticks, keys[ticks], now - ticks, 2 * ticks + side)

    def only(self, mask: Mask) -> _Rows:
        return _Rows(self.ticks[mask], self.keys[mask], self.ages[mask], self.ids[mask])


def _budgets(budget: int, held: Sequence[tuple[ArrivalRates, Cut]], buckets: int) -> list[int]:
    """Return how many rows each bucket may store: in proportion to what the cuts let it store."""
    demands = np.zeros(buckets)
    for side, cut in held:
        demands += np.bincount(side.keys % buckets, (side.arrivals * cut.held(side))[:-1], buckets)
    return [int(each) for each in in_proportion(budget, demands)]


def _within(limits: Sequence[int], rows: Sequence[_Rows], worth: Sequence[Floats]) -> list[Mask]:
    """Return which rows stay if each bucket stores no more than it may."""
    keys, ages = np.concatenate([each.keys for each in rows]), np.concatenate([each.ages for each in rows])
    values, stays = np.concatenate(worth), np.zeros(len(keys), np.bool_)
    for bucket, limit in enumerate(limits):
        at = np.flatnonzero(keys % len(limits) == bucket)
        stays[at] = within_budget(values[at], ages[at], np.ones(len(at)), limit)
    return np.split(stays, np.cumsum([len(each.keys) for each in rows])[:-1])


# ------------------------------------------------------------------------------------------ the experiments

LENGTH = 5600
POLICIES = {"RAND": Policy.RAND, "LIFE": Policy.LIFE, "PROB": Policy.PROB}


@dataclass(frozen=True, slots=True)
class Setting:
    """An experiment: what arrives, the window, the sizes of memory in windows, and who is compared."""

    names: tuple[str, ...]
    """RAND, LIFE, PROB or OPT; with a V for a common pool; with a ~ in front for micro-batches."""
    sizes: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 1.5)
    window: int = 400
    domain: int = 50
    skews: tuple[float, float] = (1.0, 1.0)
    ranks: str = "independent"
    seed: int = 1
    length: int = LENGTH

    def given(self) -> Input:
        return zipfian(self.length, self.domain, self.skews, self.ranks, self.seed)


def recalls(setting: Setting) -> dict[str, Floats]:
    """Return for each name the share of the exact join that is found, for each size of memory, after a warm-up."""
    given = setting.given()
    return {name: _recalls(setting, given, name) for name in setting.names}


def _recalls(setting: Setting, given: Input, name: str) -> Floats:
    reach, since = setting.window - 1, 2 * setting.window
    memory = [round(size * setting.window) for size in setting.sizes]
    policy, pooled = name.lstrip("~").removesuffix("V"), name.endswith("V")
    if policy == "OPT":
        found = optimum(given.left, given.right, reach, memory, pooled=pooled, since=since)
    else:
        found = []
        for each in memory:
            if name.startswith("~"):
                run = in_batches(given, setting.window, each, POLICIES[policy], pooled=pooled, seed=setting.seed)
                held = run.held
            else:
                held = row_by_row(given, setting.window, each, POLICIES[policy], pooled=pooled, seed=setting.seed)
            found.append(count_delivered(given.left, given.right, reach, held, since))
    return np.array(found) / count_exact(given.left, given.right, reach, since)


def averages(settings: Sequence[Setting], seeds: Iterable[int] = (1, 2, 3)) -> list[dict[str, Floats]]:
    """Return the recalls of settings, averaged over seeds, computed in as many processes as there are processors."""
    seeds = tuple(seeds)
    tasks = [replace(setting, seed=seed) for setting in settings for seed in seeds]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(recalls, tasks))
    parts = [results[at : at + len(seeds)] for at in range(0, len(results), len(seeds))]
    return [{name: np.mean([each[name] for each in part], axis=0) for name in part[0]} for part in parts]


def places(held: Holding, length: int) -> tuple[Ints, Ints]:
    """Return how many rows each side stores after each tick."""
    arrived = np.arange(1, length + 1)
    left, right = (
        arrived - np.cumsum(np.bincount(np.minimum(until, length), minlength=length + 1))[:length]
        for until in (held.left, held.right)
    )
    return left, right


@dataclass(frozen=True, slots=True)
class Weather:
    """X6 with made-up reports: recalls by name for each size of memory, and the share of memory of the left stream."""

    sizes: tuple[float, ...]
    recalls: dict[str, Floats]
    left_share: Floats


def weather(length: int, window: int, sizes: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 1.5)) -> Weather:
    """Return X6 on streams with 648 cells, of which the same are frequent on both, and several reports in a row."""
    given = clustered(length, 648, 5.0, 1)
    exact = count_exact(given.left, given.right, window - 1, 2 * window)
    found: dict[str, Floats] = {}
    share = np.empty(0)
    for name in ("RAND", "PROB", "PROBV"):
        values = []
        for size in sizes:
            pooled, policy = name.endswith("V"), POLICIES[name.removesuffix("V")]
            held = row_by_row(given, window, round(size * window), policy, pooled=pooled)
            values.append(count_delivered(given.left, given.right, window - 1, held, 2 * window) / exact)
            if pooled and size == 1.0:
                left, right = places(held, length)
                share = (left / (left + right))[2 * window :]
        found[name] = np.array(values)
    return Weather(sizes, found, share)


def unfinished(setting: Setting) -> dict[str, list[float]]:
    """Return for each name the share of rows that would have to be joined again, for each size of memory."""
    given, reach = setting.given(), setting.window - 1
    found: dict[str, list[float]] = {name: [] for name in setting.names}
    for name in setting.names:
        for size in setting.sizes:
            held = row_by_row(given, setting.window, round(size * setting.window), POLICIES[name], seed=setting.seed)
            missing = missing_pairs(given.left, given.right, reach, held)
            rows = archive_metric(given.left, given.right, reach, missing)
            found[name].append(rows / (2 * (setting.length - reach)))
    return found


def estimates(setting: Setting, buckets: int) -> dict[str, tuple[float, float]]:
    """Return for each policy the recall that it expects of itself in micro-batches, and the true one."""
    given, (size,) = setting.given(), setting.sizes
    reach, since = setting.window - 1, 2 * setting.window
    exact = count_exact(given.left, given.right, reach, since)
    found = {}
    for name in setting.names:
        run = in_batches(given, setting.window, round(size * setting.window), POLICIES[name], buckets=buckets)
        true = count_delivered(given.left, given.right, reach, run.held, since) / exact
        found[name] = float(run.recalls[since // 10 :].mean()), true
    return found


# ------------------------------------------------------------------------------------- what the paper reports


def expect_memory(setting: Setting, found: dict[str, Floats]) -> None:
    """X1: RAND is linear, PROB close to the optimum, and LIFE between them."""
    linear = (np.array(setting.sizes) * setting.window + 1) / (2 * setting.window - 1)
    assert np.allclose(found["RAND"], linear, atol=0.03), "RAND finds as much as it has memory"
    for low, high in (("RAND", "LIFE"), ("LIFE", "PROB"), ("PROB", "OPT")):
        assert (found[low] <= found[high] + 0.005).all(), f"{low} is not better than {high}"
    assert (found["PROB"] > 0.85 * found["OPT"]).all(), "PROB is close to the optimum"
    assert np.allclose(found["~PROB"], found["PROB"], atol=0.03), "micro-batches and learning cost little"


def expect_uniform(found: dict[str, Floats]) -> None:
    """X2: without skew nothing can be chosen online; the optimum sees the future."""
    assert np.allclose(found["RAND"], found["PROB"], atol=0.03) and np.allclose(found["LIFE"], found["PROB"], atol=0.03)
    assert (found["OPT"] > 1.15 * found["PROB"]).all()


def expect_skew(skews: Sequence[float], prob: Floats, rand: Floats) -> None:
    """X3: PROB and RAND are equal without skew; then PROB approaches the optimum and RAND falls behind."""
    assert abs(prob[0] - rand[0]) < 0.03
    assert (np.diff(rand[np.array(skews) >= 0.5]) < 0.03).all() and (np.diff(prob) > -0.03).all()
    assert prob[-1] > 0.96 and prob[-1] > 1.5 * rand[-1]


def expect_pool(found: dict[str, Floats]) -> None:
    """X4: a common pool gains, the optimum always and PROB on average; the paper's limit of a tenth does not hold."""
    assert found["OPTV"][0] >= found["OPT"][0]
    assert found["PROBV"][0] >= 0.995 * found["PROB"][0]


def expect_domains(by_domain: Sequence[dict[str, Floats]]) -> None:
    """X5: with more values PROB leaves the optimum, and the optimum approaches the exact join."""
    ratios = [float(np.mean(found["PROB"] / found["OPT"])) for found in by_domain]
    assert ratios == sorted(ratios, reverse=True)
    at_window = [float(found["OPT"][3]) for found in by_domain]
    assert at_window == sorted(at_window) and at_window[-1] > 0.97


def expect_weather(found: Weather) -> None:
    """X6: pool or halves is the same where both streams are alike, and half of the memory finds nine tenths."""
    assert np.allclose(found.recalls["PROB"], found.recalls["PROBV"], atol=0.02)
    assert found.recalls["PROB"][found.sizes.index(1.0)] > 0.9
    assert 0.4 < found.left_share.mean() < 0.6


# ---------------------------------------------------------------------------------------- tables and plots

SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
UNEQUAL = ((0.5, 1.0), (0.0, 1.0), (0.0, 2.0))
COMPARED = ("RAND", "LIFE", "PROB", "~PROB", "OPT")


def report() -> None:
    """Run all experiments, print their tables, write their plots, and see that they are as expected."""
    first = [Setting(COMPARED), Setting(COMPARED, window=800)]
    uniform = Setting(COMPARED, skews=(0.0, 0.0))
    skewed = [Setting(("RAND", "PROB", "OPT"), sizes=(1.0,), skews=(skew, skew)) for skew in SKEWS]
    ranked = [Setting(("RAND", "LIFE", "PROB", "OPT"), ranks=ranks) for ranks in ("same", "reversed")]
    unequal = [Setting(("PROB", "PROBV", "OPT", "OPTV"), sizes=(1.0,), skews=skews) for skews in UNEQUAL]
    domains = [Setting(("RAND", "PROB", "OPT"), domain=domain) for domain in (10, 200)]
    settings = [*first, uniform, *skewed, *ranked, *unequal, *domains]
    found = dict(zip(settings, averages(settings), strict=True))
    for setting in first:
        _print(f"X1, windows of {setting.window}, Zipf(1), 50 values", "M / w", setting.sizes, found[setting])
        expect_memory(setting, found[setting])
    assert np.allclose(found[first[0]]["PROB"], found[first[1]]["PROB"], atol=0.06), "the window does not matter"
    _print("X2, uniform, 50 values", "M / w", uniform.sizes, found[uniform])
    expect_uniform(found[uniform])
    to_optimum = {
        name: np.array([found[each][name][0] / found[each]["OPT"][0] for each in skewed]) for name in ("RAND", "PROB")
    }
    _print("X3, M = w = 400, 50 values: ratio to the optimum by skew", "skew", SKEWS, to_optimum)
    expect_skew(SKEWS, to_optimum["PROB"], to_optimum["RAND"])
    for setting in ranked:
        _print(f"X3, {setting.ranks} ranks, Zipf(1)", "M / w", setting.sizes, found[setting])
    pools = {name: np.array([found[each][name][0] for each in unequal]) for name in unequal[0].names}
    shares = {"memory of the more skewed": np.array([_share_of_second(each) for each in unequal])}
    _print("X4, M = w = 400, skews that differ by 0.5, 1 and 2", "pair", (0.5, 1.0, 2.0), pools | shares)
    for setting in unequal:
        expect_pool(found[setting])
    by_domain = [found[domains[0]], found[first[0]], found[domains[1]]]
    for domain, each in zip((10, 50, 200), by_domain, strict=True):
        _print(
            f"X5, {domain} values, Zipf(1)", "M / w", first[0].sizes, {name: each[name] for name in domains[0].names}
        )
    expect_domains(by_domain)
    reports = weather(100_000, 5000)
    _print("X6, made-up weather reports, 648 cells, windows of 5000", "M / w", reports.sizes, reports.recalls)
    print(f"  the left stream has {reports.left_share.min():.2f} to {reports.left_share.max():.2f} of the pool\n")
    expect_weather(reports)
    archive = unfinished(Setting(tuple(POLICIES)))
    _print("Archive metric: share of rows to be joined again", "M / w", first[0].sizes, archive)
    for buckets in (1, 8):
        guessed = estimates(Setting(tuple(POLICIES), sizes=(0.5,)), buckets)
        for name, (expected, true) in guessed.items():
            print(f"  {name} in {buckets} bucket(s), M = w / 2: recall expected {expected:.3f}, true {true:.3f}")
            assert abs(expected - true) < 0.05
    _plot("joinshed_memory", "Pairs found by memory (Zipf(1), 50 values, w = 400)", first[0].sizes, found[first[0]])
    _plot("joinshed_uniform", "Pairs found by memory (uniform, 50 values, w = 400)", uniform.sizes, found[uniform])
    _plot("joinshed_skew", "Ratio to the optimum by skew (M = w = 400)", SKEWS, to_optimum, "Zipf parameter", "of OPT")
    prob_by_domain = {
        f"{name}, {domain} values": each[name]
        for domain, each in zip((10, 50, 200), by_domain, strict=True)
        for name in ("PROB", "OPT")
    }
    _plot("joinshed_domain", "PROB and the optimum by number of values (Zipf(1))", first[0].sizes, prob_by_domain)


def _share_of_second(setting: Setting) -> float:
    """Return the share of a common pool that rows of the second stream have."""
    given = setting.given()
    held = row_by_row(given, setting.window, round(setting.sizes[0] * setting.window), Policy.PROB, pooled=True)
    left, right = (side[2 * setting.window :].mean() for side in places(held, setting.length))
    return float(right / (left + right))


def _print(title: str, index: str, at: Sequence[float], columns: Mapping[str, Sequence[float] | Floats]) -> None:
    print(title)
    print("  " + index.ljust(8) + "".join(name.rjust(max(9, len(name) + 2)) for name in columns))
    for row, value in enumerate(at):
        cells = (f"{values[row]:.3f}".rjust(max(9, len(name) + 2)) for name, values in columns.items())
        print("  " + f"{value:g}".ljust(8) + "".join(cells))
    print()


_STYLES = {"RAND": "C7-s", "LIFE": "C2-^", "PROB": "C0-o", "~PROB": "C0:", "OPT": "C3-D"}
_LABELS = {"~PROB": "PROB in micro-batches, learning"}


def _plot(
    name: str,
    title: str,
    at: Sequence[float],
    lines: Mapping[str, Floats],
    across: str = "memory, in windows of one stream",
    of: str = "of the exact join",
) -> None:
    figure, axes = _plots.empty()
    for number, (label, values) in enumerate(lines.items()):
        style = _STYLES.get(label, f"C{number // 2}" + ("--D" if label.startswith("OPT") else "-o"))
        axes.plot(at, values, style, markersize=4, label=_LABELS.get(label, label))
    axes.set_xlabel(across)
    axes.set_ylabel(f"share {of}")
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.set_title(title, fontsize=11)
    _plots.save(name, figure, axes)
