"""The part of `joinload` about time: sets of words that match where their streams are apart by some time.

The sets and their popularity are those of the sheet (Part 1, experiments): words of which some are popular, others a
little later; the second stream is behind the first by 5/8 of a cycle. Sets match if they have `COMMON` words in common.
Sets of each moment are drawn from some that were made before, so that writing files takes next to no time.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import cql
from benchmarks.overload import FILE_SECONDS, SECOND, Feed

WORDS = 100
SKEW = 1.0
WINDOW = 20
CYCLE = 2.0 * WINDOW
SHIFT = 1.25 * WINDOW
COMMON = 4
LATENCY = 5
BOUND = 10.0
"""Seconds that pairs may take at most: twice what is aimed at, as nobody foresees the begin of a burst."""
MADE = 2_000
"""How many sets of each moment are made."""
CALM = 12.0
"""Seconds that streams come at a rate that is no trouble before the load begins."""

STREAM = (
    "CREATE STREAM {name} (words STRING, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM parquet OPTIONS (path '{folder}')"
)
JOIN = (
    f"SELECT Istream(a.v, b.v AS w) FROM a [Range {WINDOW} Seconds], b [Range {WINDOW} Seconds] "
    f"WHERE OVERLAP(a.words, b.words) >= {COMMON}"
)
SERVICE = {"max_latency": f"{LATENCY} seconds", "accept": "approximate"}
"""An Istream could tell of a pair whose equal has just left, if there were equal ones; rows are numbered here."""


@cache
def made_sets() -> pa.Array:
    """Return sets of words as texts, `MADE` of them for each of the moments of a cycle, which has as many as words."""
    rng = np.random.default_rng(5)
    weights = -SKEW * np.log(np.arange(1, WORDS + 1))
    texts = []
    for first in range(WORDS):
        items = (np.argsort(-(weights + rng.gumbel(size=(MADE, WORDS))), axis=1)[:, :10] + first) % WORDS
        sizes = np.clip(np.rint(rng.normal(5, 1, MADE)), 1, 10).astype(int)
        texts += [" ".join(f"w{item}" for item in row[:size]) for row, size in zip(items, sizes, strict=True)]
    return pa.array(texts)


@dataclass
class Sets(Feed):
    """Rows with sets of words, numbered."""

    behind_by: float = 0.0

    def values(self, count: int) -> dict[str, np.ndarray | pa.Array]:
        """Return sets and numbers."""
        instants = (self.written + np.arange(count) / count) * FILE_SECONDS - self.behind_by
        moment = np.floor(WORDS * (instants % CYCLE) / CYCLE).astype(np.int64)
        words = made_sets().take(pa.array(moment * MADE + self._rng.integers(0, MADE, count)))
        return {"words": words, "v": np.arange(self.rows, self.rows + count, dtype=np.int32)}


@dataclass(frozen=True)
class Delivered:
    """The pairs that were delivered, and the longest that one took, by micro-batch."""

    left: np.ndarray
    right: np.ndarray
    delays: list[float]

    @classmethod
    def in_files(cls, folder: Path) -> Delivered:
        """Return what the files of a folder have, each of a micro-batch."""
        paths = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
        tables = [parquet.read_table(path, columns=["ts", "v", "w"]) for path in paths]
        firsts = [int(table["ts"].cast(pa.int64()).to_numpy().min()) / SECOND for table in tables]
        delays = [path.stat().st_mtime - first for path, first in zip(paths, firsts, strict=True)]
        pairs = pa.concat_tables(tables)
        return cls(pairs["v"].to_numpy(), pairs["w"].to_numpy(), delays)

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides of all pairs."""
        return self.left, self.right


def register(engine: cql.Engine, query: str, folder: Path, **options: str) -> None:
    """Register a query whose changes go to files."""
    given = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    engine.execute(f"REGISTER QUERY q AS {query} WITH ({given}) INTO parquet OPTIONS (path '{folder}')")


@dataclass(frozen=True)
class Rows:
    """All rows of a stream: their words as bits, in two words of 64, the numbers of their sets, and their instants."""

    words: np.ndarray
    sets: np.ndarray
    instants: np.ndarray

    @classmethod
    def of(cls, folder: Path) -> Rows:
        """Return the rows that were written."""
        table = pa.concat_tables(parquet.read_table(path) for path in sorted(folder.glob("*.parquet")))
        texts = table["words"].combine_chunks().dictionary_encode()
        bits = np.zeros((2, len(texts.dictionary)), np.uint64)
        for at, text in enumerate(texts.dictionary.to_pylist()):
            for word in text.split():
                number = int(word[1:])
                bits[number // 64, at] |= np.uint64(1 << number % 64)
        numbers = pc.index_in(texts.dictionary, value_set=made_sets()).to_numpy().astype(np.int64)
        places = texts.indices.to_numpy()
        return cls(bits[:, places], numbers[places], table["ts"].cast(pa.int64()).to_numpy())


def in_common(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return how many words sets have in common."""
    found: np.ndarray = np.bitwise_count(left[0] & right[0]) + np.bitwise_count(left[1] & right[1])
    return found


@cache
def matching_sets() -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of all made sets that match, as pairs in the order of the first: they share `COMMON` words."""
    sets = [sorted(int(word[1:]) for word in text.split()) for text in made_sets().to_pylist()]
    keys, owners = list[np.ndarray](), list[np.ndarray]()
    for size in range(COMMON, 11):
        own = np.array([number for number, words in enumerate(sets) if len(words) == size], np.int64)
        words = np.array([sets[number] for number in own], np.int64).reshape(len(own), size)
        for places in combinations(range(size), COMMON):
            keys.append(words[:, places] @ WORDS ** np.arange(COMMON))
            owners.append(own)
    every = np.concatenate(keys)
    order = np.argsort(every, kind="stable")
    owner = np.concatenate(owners)[order]
    first = np.searchsorted(every[order], every[order])
    sizes = np.searchsorted(every[order], every[order], side="right") - first
    others = owner[np.repeat(first, sizes) + ranks(sizes)]
    pairs = np.unique(np.repeat(owner, sizes) * len(sets) + others)
    return pairs // len(sets), pairs % len(sets)


def ranks(sizes: np.ndarray) -> np.ndarray:
    """Return 0, 1, .. for each of some sizes."""
    found: np.ndarray = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def pairs_there_are(left: Rows, right: Rows) -> int:
    """Return how many pairs there are: for each pair of sets that match, the rows that are less than a window apart."""
    reach, count = WINDOW * SECOND, 0
    begin = min(left.instants.min(), right.instants.min()) - 2 * reach
    spread = int(max(left.instants.max(), right.instants.max()) - begin) + 2 * reach
    order = np.argsort(left.sets, kind="stable")
    instants, of_set = left.instants[order] - begin, left.sets[order]
    stored = np.sort(right.sets * spread + right.instants - begin)
    for one, other in zip(*(np.array_split(each, 100) for each in matching_sets()), strict=True):
        first = np.searchsorted(of_set, one)
        sizes = np.searchsorted(of_set, one, side="right") - first
        at = instants[np.repeat(first, sizes) + ranks(sizes)] + spread * np.repeat(other, sizes)
        count += int((np.searchsorted(stored, at + reach) - np.searchsorted(stored, at - reach, side="right")).sum())
    return count


def wrong_pairs(pairs: Delivered, left: Rows, right: Rows) -> int:
    """Return how many pairs are not in the exact answer, or came before."""
    a, b = pairs.pairs
    matches = in_common(left.words[:, a], right.words[:, b]) >= COMMON
    near = np.abs(left.instants[a] - right.instants[b]) < WINDOW * SECOND
    return int((~(matches & near)).sum()) + len(a) - len(np.unique(a.astype(np.int64) << 32 | b))


@dataclass(frozen=True)
class Outcome:
    """What came of a run: pairs under full load; of the whole run, which share of all pairs was found, what the query
    says of that, and delays in seconds."""

    pairs: int
    found: float
    recall: float
    fraction: float
    wrong: int
    delay: float
    longest: float


def run(engine: cql.Engine, policy: str, calm: float, rate: float, seconds: float) -> Outcome:
    """Let both streams come at a calm rate at first, and at another one until windows are full of that and some time
    longer."""
    root = Path(tempfile.mkdtemp(prefix="cql-joinload-"))
    feeds = [Sets(root / "a", rate), Sets(root / "b", rate, behind_by=SHIFT)]
    feeds[1]._rng = np.random.default_rng(8)
    try:
        _open(engine, feeds)
        register(engine, JOIN, root / "pairs", shedding=policy, **SERVICE)
        for feed in feeds:
            feed.write(time.time() - 1, rate / 10)
        engine.start()
        engine.process_available()
        phases = [(CALM, calm), (WINDOW + seconds, rate)]
        threads = [threading.Thread(target=feed.run, args=(phases,)) for feed in feeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.process_available()
        loss = engine.query("q").shedding()
        left, right = (Rows.of(feed.folder) for feed in feeds)
        pairs = Delivered.in_files(root / "pairs")
        warm = pairs.delays[2:]
        recall = loss.recall if loss is not None and loss.recall is not None else float("nan")
        fraction = loss.fraction if loss is not None else float("nan")
        found = len(pairs.left) / pairs_there_are(left, right)
        completed = np.maximum(left.instants[pairs.left], right.instants[pairs.right])
        under_load = int((completed > left.instants.max() - seconds * SECOND).sum())
        return Outcome(under_load, found, recall, fraction, wrong_pairs(pairs, left, right), median(warm), max(warm))
    finally:
        engine.stop()
        engine.execute("DROP QUERY q; DROP STREAM a; DROP STREAM b")
        shutil.rmtree(root, ignore_errors=True)


def _open(engine: cql.Engine, feeds: list[Sets], more: str = "") -> None:
    engine.execute("SET files = follow")
    for feed in feeds:
        feed.folder.mkdir()
        statement = STREAM.format(name=feed.folder.name, folder=feed.folder)
        engine.execute(statement.replace("')", f"'{more})"))


def typical_seconds(turns: list[list[float]]) -> float:
    """Return how long the typical one of the same micro-batches takes, each of them in its least disturbed turn."""
    return float(median(min(times) for times in zip(*turns, strict=True)))


def seconds_for(engine: cql.Engine, rate: float, policies: tuple[str, ...], turns: int = 1) -> list[float]:
    """Return how long a micro-batch of two seconds of both streams takes by some policies, turn by turn."""
    root = Path(tempfile.mkdtemp(prefix="cql-joinload-"))
    feeds = [Sets(root / "a", rate), Sets(root / "b", rate, behind_by=SHIFT)]
    took: dict[str, list[list[float]]] = {policy: [] for policy in policies}
    try:
        each = round(2 / FILE_SECONDS)
        _open(engine, feeds, f", maxFilesPerTrigger '{each}'")
        for number in range(round((WINDOW + 12) / FILE_SECONDS)):
            for feed in feeds:
                feed.write(1_000_000_000 + number * FILE_SECONDS, rate)
        for _ in range(turns):
            for policy, found in took.items():
                shutil.rmtree(root / "pairs", ignore_errors=True)
                register(engine, JOIN, root / "pairs", shedding=policy, accept="approximate")
                engine.start()
                engine.process_available()
                batches = [batch.seconds for batch in engine.history() if batch.rows_in]
                found.append(batches[WINDOW // 2 :])
                engine.stop()
                engine.execute("DROP QUERY q")
        return [typical_seconds(found) for found in took.values()]
    finally:
        engine.execute("DROP STREAM a; DROP STREAM b")
        shutil.rmtree(root, ignore_errors=True)


def capacity(engine: cql.Engine) -> float:
    """Return the rate of each stream at which a micro-batch of two seconds takes two seconds."""
    rates, took = [500.0], list[float]()
    while not took or took[-1] < 2:
        took += seconds_for(engine, rates[-1], ("none",))
        rates.append(1.5 * rates[-1])
    return float(np.interp(2, took, np.square(rates[:-1])) ** 0.5)
