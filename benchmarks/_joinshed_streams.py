"""The reference for selective processing: streams of sets whose popular items wander, joined by a virtual machine.

Follows 0.1, 1.2 to 1.5 and the generator of 1.10 of the sheet `papers/join-shedding.md`. Tuples are taken one by one
from buffers of a second; the clock of the machine moves on by what each costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np
import numpy.typing as npt

from benchmarks.models.selective import Recall, adapted, by_direction
from shedding.fitting import Floats
from shedding.schedule import Ints
from shedding.selective import SAMPLING, Counts, Learned, by_utility, taken

Words = npt.NDArray[np.uint64]
Overlaps = npt.NDArray[np.uint8]
PERIOD = 5.0
"""T_r and T_c: how many seconds pass between two adaptations."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams: how many tuples a second until when, what is in them, and the windows in which they are joined.

    `shift` is by how many windows the second stream lags behind; `skew` the Zipf exponent of the items. With `items`
    of 1 the join is one of equal values.
    """

    profile: tuple[tuple[float, float], ...] = ((80.0, 500.0),)
    window: float = 20.0
    skew: float = 0.6
    shift: float = 0.0
    overlap: int = 3
    items: float = 5.0
    domain: int = 100
    types: tuple[float, ...] = (1.0,)
    """How frequent each type is."""
    values: tuple[float, ...] = (1.0,)
    """What a tuple of each type is worth."""
    seed: int = 1

    @property
    def seconds(self) -> float:
        return self.profile[-1][0]


@dataclass(frozen=True, slots=True)
class Stream:
    """Tuples: when they come, their items as bits of two words, and their types. Equal values have equal words."""

    at: Floats
    words: Words
    types: Ints


def streams(load: Workload) -> tuple[Stream, Stream]:
    """Return both streams of a workload."""
    return _stream(load, np.random.default_rng([load.seed, 0]), 0.0), _stream(
        load, np.random.default_rng([load.seed, 1]), load.shift * load.window
    )


def _stream(load: Workload, rng: np.random.Generator, lag: float) -> Stream:
    parts, begin = [], 0.0
    for end, rate in load.profile:
        parts.append(begin + np.sort(rng.random(round((end - begin) * rate))) * (end - begin))
        begin = end
    at = np.concatenate(parts)
    cycle = 2 * load.window
    first = np.floor(load.domain * (((at - lag) % cycle) / cycle)).astype(np.int64)
    types = rng.choice(len(load.types), len(at), p=load.types)
    return Stream(at, drawn(load, first, rng), types)


def drawn(load: Workload, first: Ints, rng: np.random.Generator) -> Words:
    """Return sets of items, two words each, in which the item of some number is the most popular one."""
    weights = np.arange(1, load.domain + 1) ** -load.skew
    if load.items == 1:
        ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(len(first)))
        value = ((first + ranks) % load.domain).astype(np.uint64)
        return np.stack([value, value])
    counts = np.clip(np.rint(rng.normal(load.items, 1.0, len(first))), 1, 10).astype(np.int64)
    words = np.zeros((2, len(first)), np.uint64)
    for begin in range(0, len(first), 5000):
        part = slice(begin, begin + 5000)
        keys = np.log(weights) + rng.gumbel(size=(len(first[part]), load.domain))
        best = np.argpartition(-keys, 10, axis=1)[:, :10]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(keys, best, 1), axis=1), 1)
        item = (first[part, None] + best) % load.domain
        bits = np.where(np.arange(10) < counts[part, None], np.uint64(1) << (item % 50).astype(np.uint64), np.uint64(0))
        for word in (0, 1):
            words[word, part] = np.bitwise_or.reduce(np.where(item // 50 == word, bits, np.uint64(0)), axis=1)
    return words


@dataclass(frozen=True, slots=True)
class Machine:
    """What work costs, in seconds: a comparison, or with an index, the look-up of a list and each entry that is read.

    An index by identifiers cannot stop at an age: a cell is searched as a whole, and entries are put in and taken out
    in logarithmic time.
    """

    comparison: float = 0.0
    lookup: float = 0.0
    entry: float = 0.0
    by_identifier: bool = False

    @property
    def is_indexed(self) -> bool:
        return self.entry > 0


EXACT = Machine()
"""A machine that is infinitely fast."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done when the machine is too slow: `drop` drops tuples at random, the others look at less.

    `rate` looks at the newest part, `time` at the densest cells, `direction` more at the denser window, `utility` at
    what is worth most. With `cell` of 0 there are no cells.
    """

    name: str = "time"
    cell: float = 1.0
    sampling: float = SAMPLING
    halves: float = 2.0
    buffer: float = 1.0
    """How many seconds of tuples are kept waiting."""


@dataclass
class Result:
    """What came of a run, by second of the virtual clock."""

    outputs: Floats
    worth: Floats
    fractions: list[tuple[float, float, float, float]]
    """At an instant: r, and the fractions of both windows."""
    offered: int = 0
    dropped: int = 0
    recall: Recall = field(default_factory=Recall)
    densities: tuple[Floats, Floats] | None = None
    pairs: list[tuple[int, int, int]] | None = None
    """Found pairs, if they are wanted: the side that was probed, and both tuples."""

    def rate(self, since: float, until: float) -> float:
        """Return the results per second between two instants."""
        return float(self.outputs[round(since) : round(until)].mean())

    def worth_rate(self, since: float, until: float) -> float:
        """Return what they are worth."""
        return float(self.worth[round(since) : round(until)].mean())


class Window:
    """The tuples of one stream that have been fetched, in the order of time."""

    def __init__(self, size: int) -> None:
        self.at = np.empty(size)
        self.words = np.empty((2, size), np.uint64)
        self.types = np.empty(size, np.int64)
        self.ordinals = np.empty(size, np.int64)
        self.first = 0
        self.count = 0

    def insert(self, stream: Stream, ordinal: int) -> None:
        self.at[self.count] = stream.at[ordinal]
        self.words[:, self.count] = stream.words[:, ordinal]
        self.types[self.count] = stream.types[ordinal]
        self.ordinals[self.count] = ordinal
        self.count += 1

    def expire(self, until: float) -> None:
        """Forget what is older than an instant."""
        at, first, count = self.at, self.first, self.count
        while first < count and at[first] < until:
            first += 1
        self.first = first

    def __len__(self) -> int:
        return self.count - self.first


class Join:
    """A run of a policy on a machine."""

    def __init__(self, load: Workload, machine: Machine, policy: Policy, *, keep_pairs: bool = False) -> None:
        self.load, self.machine, self.policy = load, machine, policy
        self.streams = streams(load)
        self.windows = [Window(len(each.at)) for each in self.streams]
        self.cell = policy.cell or load.window
        self.slides = policy.cell > 0
        self.cells = 1 + ceil(load.window / self.cell - 1e-9) if self.slides else 1
        self.values = np.array(load.values)
        self.learned = [Learned.nothing(len(load.types), self.cells) for _ in (0, 1)]
        self.counts = [Counts.none(len(load.types), self.cells) for _ in (0, 1)]
        self.fraction = 1.0
        self.spans: list[list[list[tuple[float, float]]]] = []
        self.rng = np.random.default_rng([load.seed, 2])
        seconds = ceil(load.seconds) + 2
        self.result = Result(np.zeros(seconds), np.zeros(seconds), [], pairs=[] if keep_pairs else None)
        self._choose()

    def run(self) -> Result:
        """Process everything that comes until the end of the workload."""
        at = np.concatenate([each.at for each in self.streams])
        order = np.argsort(at, kind="stable").tolist()
        times, split = at.tolist(), len(self.streams[0].at)
        room = inf if self.policy.buffer == inf else 0
        queue: deque[int] = deque()
        clock, following, next_step = 0.0, 0, PERIOD
        fetched = offered = 0
        coins = self.rng.random(len(order)).tolist()
        while following < len(order) or queue:
            if not queue and following < len(order):
                clock = max(clock, times[order[following]])
            while following < len(order) and times[order[following]] <= clock:
                if room != inf:
                    room = 2 * self.policy.buffer * self._rate_at(times[order[following]])
                queue.append(order[following])
                offered += 1
                following += 1
                if len(queue) > room:
                    self.result.dropped += 1
                    del queue[int(coins[following - 1] * len(queue)) if self.policy.name == "drop" else -1]
            if clock >= self.load.seconds and room != inf:
                break
            while clock >= next_step:
                self._adapt(next_step, fetched, offered)
                fetched = offered = 0
                next_step += PERIOD
            number = queue.popleft()
            fetched += 1
            side = 0 if number >= split else 1
            clock += self._process(side, number - split if side == 0 else number, coins[number], clock)
        self.result.offered = len(order)
        self.result.densities = self.learned[0].densities, self.learned[1].densities
        return self.result

    def _rate_at(self, instant: float) -> float:
        return next(rate for end, rate in self.load.profile if instant <= end)

    def _process(self, side: int, ordinal: int, coin: float, clock: float) -> float:
        """Let a tuple probe the window of a side; return what that costs."""
        own, stream, window = self.windows[1 - side], self.streams[1 - side], self.windows[side]
        own.insert(stream, ordinal)
        at, type_ = float(stream.at[ordinal]), int(stream.types[ordinal])
        window.expire(at - self.load.window)
        self.counts[side].probes[type_] += 1
        is_full = self.policy.name == "drop" or self.fraction >= 1
        is_sample = self.policy.name != "drop" and coin < self.fraction * self.policy.sampling
        spans = self._spans(window, side, type_, at)
        if is_full or is_sample:
            whole = [(window.first, window.count)]
            cost = self._look(side, ordinal, type_, whole, clock)
            if is_sample:
                self._learn(side, ordinal, type_, spans, at)
            return cost
        if self.machine.by_identifier:
            spans = self._whole_cells(window, spans, at)
        return self._look(side, ordinal, type_, spans, clock)

    def _phase(self, at: float) -> float:
        """Return how far the cells have slid: the youngest one is only partly filled."""
        return (at % self.cell) - self.cell if self.slides else 0.0

    def _spans(self, window: Window, side: int, type_: int, at: float) -> list[tuple[int, int]]:
        """Return the positions of the tuples that are selected."""
        if self.fraction >= 1:
            return [(window.first, window.count)]
        phase, kept = self._phase(at), window.at[window.first : window.count]
        found = []
        for least, end in self.spans[side][type_]:
            ages = np.array((at - end * self.cell - phase, at - max(0.0, least * self.cell + phase)))
            low, high = np.searchsorted(kept, ages, side="right").tolist()
            if low < high:
                found.append((window.first + low, window.first + high))
        return found

    def _whole_cells(self, window: Window, spans: list[tuple[int, int]], at: float) -> list[tuple[int, int]]:
        """Return the positions of all tuples in the cells of some."""
        borders = at - self._phase(at) - np.arange(self.cells, -1, -1) * self.cell
        places = window.first + np.searchsorted(window.at[window.first : window.count], borders, side="right")
        found: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            cells = places[np.searchsorted(places, low, side="right") - 1], places[np.searchsorted(places, high)]
            low = int(cells[0]) if not found else max(int(cells[0]), found[-1][1])
            if low < int(cells[1]):
                found.append((low, int(cells[1])))
        return found

    def _overlaps(self, side: int, ordinal: int, low: int, high: int) -> Overlaps:
        window, words = self.windows[side], self.streams[1 - side].words
        if self.load.items == 1:
            are_equal: Overlaps = np.equal(window.words[0, low:high], words[0, ordinal]).astype(np.uint8)
            return are_equal
        first = np.bitwise_count(window.words[0, low:high] & words[0, ordinal])
        second = np.bitwise_count(window.words[1, low:high] & words[1, ordinal])
        common: Overlaps = first + second
        return common

    def _look(self, side: int, ordinal: int, type_: int, spans: Sequence[tuple[int, int]], clock: float) -> float:
        """Compare a tuple with some stored ones and note what is found; return what that costs."""
        window, machine = self.windows[side], self.machine
        rows = entries = matches = 0
        worth = 0.0
        for low, high in spans:
            overlaps = self._overlaps(side, ordinal, low, high)
            rows += high - low
            entries += int(overlaps.sum()) if machine.is_indexed else 0
            if len(self.values) > 1 or self.result.pairs is not None:
                places = low + np.flatnonzero(overlaps >= self.load.overlap)
                matches += len(places)
                worth += float(np.maximum(self.values[type_], self.values[window.types[places]]).sum())
                if self.result.pairs is not None:
                    self.result.pairs += [(side, ordinal, int(each)) for each in window.ordinals[places]]
            else:
                matches += int(np.count_nonzero(overlaps >= self.load.overlap))
        second = min(int(clock), len(self.result.outputs) - 1)
        self.result.outputs[second] += matches
        self.result.worth[second] += worth if len(self.values) > 1 else matches * self.values[0]
        if not machine.is_indexed:
            return machine.comparison * max(rows, 1)
        visited = max(1.0, rows / max(1, len(window)) * self.cells)
        moved = 2 * np.log2(max(2, len(window) / self.cells)) if machine.by_identifier else 2
        return machine.lookup * self.load.items * visited + machine.entry * (entries + moved * self.load.items)

    def _learn(self, side: int, ordinal: int, type_: int, spans: list[tuple[int, int]], at: float) -> None:
        """Note what a full probe tells about each cell, and about the selection in force."""
        window, counts = self.windows[side], self.counts[side]
        overlaps = self._overlaps(side, ordinal, window.first, window.count)
        places = window.first + np.flatnonzero(overlaps >= self.load.overlap)
        ages = at - self._phase(at) - window.at[window.first : window.count]
        cells = np.clip((ages / self.cell).astype(np.int64), 0, self.cells - 1)
        counts.comparisons[type_] += np.bincount(cells, minlength=self.cells)
        counts.matches[type_] += np.bincount(cells[places - window.first], minlength=self.cells)
        worth = np.maximum(self.values[type_], self.values[window.types[places]])
        counts.worth[type_] += worth.sum()
        inside = sum(float(worth[(places >= low) & (places < high)].sum()) for low, high in spans)
        self.result.recall.add(inside, float(worth.sum()), self.fraction * self.policy.sampling)

    def _adapt(self, clock: float, fetched: int, offered: int) -> None:
        """Learn densities first, then decide how much to process and where."""
        if self.policy.name == "drop":
            return
        for side in (0, 1):
            self.learned[side].learn(self.counts[side], self.policy.halves)
            self.counts[side] = Counts.none(len(self.load.types), self.cells)
        self.fraction = adapted(self.fraction, fetched, offered)
        parts = self._choose()
        weighed = [float(part @ self.learned[side].frequencies) for side, part in enumerate(parts)]
        self.result.fractions.append((clock, self.fraction, weighed[0], weighed[1]))

    def _choose(self) -> list[Floats]:
        """Find the cells for the fraction that can be processed, by side and type; return which fraction each is."""
        count = len(self.load.types)
        densities = [np.zeros(self.cells) if self.policy.name == "rate" else each.densities for each in self.learned]
        if self.policy.name == "direction":
            means = float(densities[0].mean()), float(densities[1].mean())
            windows = self.load.window, self.load.window
            parts = [np.full(count, each) for each in by_direction(self.fraction, windows, means)]
        elif self.policy.name == "utility" and all(each.is_known for each in self.learned):
            parts = by_utility(self.fraction, [each.side(self.load.window) for each in self.learned])
        else:
            parts = [np.full(count, self.fraction) for _ in (0, 1)]
        self.spans = [
            [_runs(taken(float(part), densities[side])) for part in side_parts] for side, side_parts in enumerate(parts)
        ]
        return parts


def _runs(shares: Floats) -> list[tuple[float, float]]:
    """Return the cells that are taken as stretches from a first to a last one, in cells."""
    found: list[tuple[float, float]] = []
    for cell, share in enumerate(shares.tolist()):
        if share <= 0:
            continue
        if found and found[-1][1] == cell:
            found[-1] = found[-1][0], cell + share
        else:
            found.append((float(cell), cell + share))
    return found


def joined(load: Workload, machine: Machine, policy: Policy, *, keep_pairs: bool = False) -> Result:
    """Return what comes of a run."""
    return Join(load, machine, policy, keep_pairs=keep_pairs).run()
