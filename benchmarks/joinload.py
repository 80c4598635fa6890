"""Joins on Spark with too little time, or too little memory for their windows, by the clock on the wall.

Sets of words: two streams of sets that have words in common where they are apart by some time (`_joinload_sets.py`)
arrive at multiples of what an exact join can take, in a burst after a calm time. `random` drops rows of the streams,
`selective` compares each row with the ages that are worth it.

Memory: two streams with Zipf-skewed keys, the ranks of which have nothing to do with each other, arrive at multiples of
a base rate and are joined by key over windows of ten seconds. The join has memory for a quarter of what both take:
`rand` gives up any rows, `prob` those whose partners come least often.

- `found` are the pairs that were delivered, of all that there are in the files;
- `pairs`, of sets, are those of the time after windows are full of the burst's rows: before that, rows find less to
  compare with than at the load that the line is about;
- `recall` is what the query itself says of that in the end;
- every pair that is delivered has to be one of the exact answer, and none may come twice (`wrong`);
- the delay is from the later row of a pair to when it is handed over; `random`, which the others are compared with, may
  take what it wants.

The last line is the price of shedding that is not needed: the same join with memory, or time, for everything, and
without any shedding, on the same files, turn by turn; each micro-batch counts as in its least disturbed turn. Runs
during which other machines on the same host had much of the processors' time are repeated, whatever came of them.

`CQL_SECONDS=15` makes runs shorter, `CQL_LOADS=1.5,10` picks loads, `CQL_BENCH=sets` or `memory` one of both. What has
to hold is checked at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame

import cql
from benchmarks import _joinload_sets as sets
from benchmarks._machine import undisturbed
from benchmarks.overload import FILE_SECONDS, SECOND, Feed
from runtime.joins.memory_limited import row_sizes

KEYS = 10_000
BASE_RATE = 400.0
"""Rows of each stream in a second at a load of 1."""
WINDOW = 10
BOUND = 5.0
"""Seconds that pairs may take at most."""
TURNS = 5
PRICE_RATE = 5_000.0
HIGHEST_PRICE = 1.03
"""What shedding that is not needed may take at most, as a multiple of the time of none."""

STREAM = "CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM parquet OPTIONS (path '{folder}')"
JOIN = f"SELECT Istream(a.v, b.v AS w) FROM a [Range {WINDOW} Seconds], b [Range {WINDOW} Seconds] WHERE a.k = b.k"
PAIRS_ARE_DIFFERENT = "approximate"
"""An Istream could tell of a pair whose equal has just left, if there were equal ones; rows are numbered here."""


class Skewed(Feed):
    """Rows with Zipf-skewed keys, numbered."""

    def values(self, count: int) -> dict[str, np.ndarray]:
        """Return keys and numbers."""
        weights = 1 / np.arange(1, KEYS + 1)
        names = np.random.default_rng(len(self.folder.name)).permutation(KEYS)
        ranks = self._rng.choice(KEYS, count, p=weights / weights.sum())
        return {"k": names[ranks].astype(np.int32), "v": np.arange(self.rows, self.rows + count, dtype=np.int32)}


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    found: float
    recall: float
    wrong: int
    delay: float
    longest: float


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and instants of all rows of a stream, in their order."""
    table = pa.concat_tables(parquet.read_table(path) for path in sorted(folder.glob("*.parquet")))
    return table["k"].to_numpy(), table["ts"].cast(pa.int64()).to_numpy()


def count_pairs(left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]) -> int:
    """Return how many pairs of rows with equal keys are less than a window apart."""
    spread = 4 * WINDOW * SECOND
    first = min(left[1].min(), right[1].min())
    length = int(max(left[1].max(), right[1].max()) - first) + 2 * spread
    a, b = (np.sort(keys.astype(np.int64) * length + instants - first + spread) for keys, instants in (left, right))
    reach = WINDOW * SECOND
    return int((np.searchsorted(b, a + reach) - np.searchsorted(b, a - reach, side="right")).sum())


def count_wrong(
    pairs: sets.Delivered, left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]
) -> int:
    """Return how many of the pairs are not in the exact answer, or came before."""
    a, b = pairs.pairs
    apart = np.abs(left[1][a] - right[1][b])
    twice = len(a) - len(np.unique(a.astype(np.int64) << 32 | b))
    return int(((left[0][a] != right[0][b]) | (apart >= WINDOW * SECOND)).sum()) + twice


def memory_for(rate: float, share: float) -> int:
    """Return the bytes of a share of both windows."""
    row = (pa.array([1], pa.int32()), pa.array([1], pa.int32()), pa.array([1], pa.timestamp("us")))
    return round(2 * rate * WINDOW * share * int(row_sizes(row, 1)[0]))


def run(engine: cql.Engine, policy: str, rate: float, seconds: float) -> Outcome:
    """Let both streams come at a rate for some time."""
    root = Path(tempfile.mkdtemp(prefix="cql-joinload-"))
    feeds = [Skewed(root / name, rate) for name in ("a", "bb")]
    try:
        engine.execute("SET files = follow")
        for name, feed in zip(("a", "b"), feeds, strict=True):
            feed.folder.mkdir()
            engine.execute(STREAM.format(name=name, folder=feed.folder))
        memory = f"{memory_for(rate, 0.25)} bytes"
        sets.register(engine, JOIN, root / "pairs", shedding=policy, memory=memory, accept=PAIRS_ARE_DIFFERENT)
        for feed in feeds:
            feed.write(time.time() - 1, rate / 10)
        engine.start()
        engine.process_available()
        threads = [threading.Thread(target=feed.run, args=([(seconds, rate)],)) for feed in feeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.process_available()
        loss = engine.query("q").shedding()
        left, right = (read(feed.folder) for feed in feeds)
        pairs = sets.Delivered.in_files(root / "pairs")
        found = len(pairs.left) / count_pairs(left, right)
        recall = loss.recall if loss is not None and loss.recall is not None else float("nan")
        warm = pairs.delays[2:]
        return Outcome(found, recall, count_wrong(pairs, left, right), median(warm), max(warm))
    finally:
        engine.stop()
        engine.execute("DROP QUERY q; DROP STREAM a; DROP STREAM b")
        shutil.rmtree(root, ignore_errors=True)


def price(engine: cql.Engine) -> float:
    """Return how much longer the join takes with shedding that is not needed than without."""
    root = Path(tempfile.mkdtemp(prefix="cql-joinload-"))
    took: dict[bool, list[list[float]]] = {False: [], True: []}
    try:
        engine.execute("SET files = follow")
        for name, folder in (("a", root / "a"), ("b", root / "bb")):
            folder.mkdir()
            feed = Skewed(folder, PRICE_RATE)
            for number in range(240):
                feed.write(1_000_000_000 + number * FILE_SECONDS, PRICE_RATE)
            engine.execute(STREAM.format(name=name, folder=folder).replace("')", "', maxFilesPerTrigger '40')"))
        for _ in range(TURNS):
            for sheds, found in took.items():
                service = {"shedding": "prob", "memory": "4 GB", "accept": PAIRS_ARE_DIFFERENT} if sheds else {}
                engine.register("q", JOIN, into=_counted, **service)
                engine.start()
                engine.process_available()
                found.append([batch.seconds for batch in engine.history() if batch.rows_in][2:])
                engine.stop()
                engine.execute("DROP QUERY q")
        return sets.typical_seconds(took[True]) / sets.typical_seconds(took[False])
    finally:
        engine.execute("DROP STREAM a; DROP STREAM b")
        shutil.rmtree(root, ignore_errors=True)


def _counted(changes: DataFrame, batch: int) -> None:
    changes.count()


def memory(engine: cql.Engine, loads: list[float], seconds: float) -> list[str]:
    """Run the join with too little memory; return what does not hold."""
    broken = []
    print(
        f"equi-join, memory for a quarter of windows of {WINDOW} s, Zipf(1) over {KEYS:,} keys; {seconds:g} s for each"
    )
    print(f"{'load':>6}{'rows/s':>9}{'policy':>11}{'found':>9}{'recall':>9}{'wrong':>7}{'delay':>8}{'longest':>9}")
    for load in loads:
        rate = load * BASE_RATE
        outcomes = {policy: undisturbed(run, engine, policy, rate, seconds) for policy in ("rand", "prob")}
        for policy, each in outcomes.items():
            print(
                f"{load:>6g}{2 * rate:>9,.0f}{policy:>11}{each.found:>9.1%}{each.recall:>9.1%}{each.wrong:>7}"
                f"{each.delay:>8.1f}{each.longest:>9.1f}",
                flush=True,
            )
            held = {
                "pairs are right": each.wrong == 0,
                "recall is within 5 points": abs(each.found - each.recall) <= 0.05,
                f"pairs come within {BOUND:g} s": each.longest < BOUND,
            }
            broken += [f"load {load:g}, {policy}: {what}: no" for what, holds in held.items() if not holds]
        ratio = outcomes["prob"].found / outcomes["rand"].found
        print(f"{'prob / rand':>26}{ratio:>9.2f}")
        if ratio < 1.5:
            broken.append(f"load {load:g}: prob finds 1.5 times as much as rand: no")
    return broken + _not_needed("memory", price(engine))


def sets_of_words(engine: cql.Engine, loads: list[float], seconds: float) -> list[str]:
    """Run the join with too little time; return what does not hold."""
    broken, most = [], sets.capacity(engine)
    print(
        f"sets of words that have {sets.COMMON} in common, windows of {sets.WINDOW} s full of a burst, {seconds:g} s; "
        f"capacity {most:,.0f} rows/s a stream"
    )
    print(
        f"{'load':>6}{'rows/s':>9}{'policy':>11}{'pairs':>12}{'found':>9}{'recall':>9}{'wrong':>7}{'delay':>8}{'longest':>9}"
    )
    for load in loads:
        rate = load * most
        outcomes = {
            policy: undisturbed(sets.run, engine, policy, most / 2, rate, seconds) for policy in ("random", "selective")
        }
        for policy, each in outcomes.items():
            print(
                f"{load:>6g}{2 * rate:>9,.0f}{policy:>11}{each.pairs:>12,}{each.found:>9.1%}{each.recall:>9.1%}"
                f"{each.wrong:>7}{each.delay:>8.1f}{each.longest:>9.1f}",
                flush=True,
            )
            held = {
                "pairs are right": each.wrong == 0,
                "recall is within 5 points": policy == "random" or abs(each.found - each.recall) <= 0.05,
                f"pairs come within {sets.BOUND:g} s": policy == "random" or each.longest < sets.BOUND,
            }
            broken += [f"load {load:g}, {policy}: {what}: no" for what, holds in held.items() if not holds]
        ratio = outcomes["selective"].pairs / outcomes["random"].pairs
        print(f"{'selective / random':>26}{ratio:>9.2f}")
        if ratio < 1.8:
            broken.append(f"load {load:g}: selective finds 1.8 times as much as random: no")
    without, with_shedding = sets.seconds_for(engine, most / 2, ("none", "selective"), turns=TURNS)
    return broken + _not_needed("sets", with_shedding / without)


def _not_needed(part: str, factor: float) -> list[str]:
    print(f"\nshedding that is not needed: {factor:.3f} times the time of none\n", flush=True)
    return [] if factor <= HIGHEST_PRICE else [f"{part}: shedding that is not needed costs less than 3 %: no"]


def main() -> None:
    """Run the benchmark and print its tables."""
    seconds = float(os.environ.get("CQL_SECONDS", "40"))
    loads = [float(load) for load in os.environ.get("CQL_LOADS", "1.5,3,10").split(",")]
    parts = {"sets": sets_of_words, "memory": memory}
    engine = cql.Engine()
    chosen = os.environ.get("CQL_BENCH", ",".join(parts)).split(",")
    broken = [each for name, part in parts.items() if name in chosen for each in part(engine, loads, seconds)]
    assert not broken, "; ".join(broken)
