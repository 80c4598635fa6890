"""A stream that arrives by the clock on the wall, faster than it can be processed, with shedding and without.

The query aggregates tumbling windows of a quarter of a second, after a function that takes some microseconds of CPU for
each row, as the delay operators of the WinDrop paper do. Capacity is what a run without overload processes a second.
Then the stream comes at half of that for a while, at a multiple of it for two minutes, and at half of it again, with a
bound of `BOUND` seconds on the delay of answers:

- delays are from the end of a window to when its rows are handed over;
- `recovered` is how long after the burst answers keep within the bound again;
- of all windows, an ideal shedder could deliver capacity / offered load;
- every window that is delivered is computed again from the files, and has to be the same; the longest gap in the
  windows is what the query allows, or less.

A burst during which other machines on the same host had much of the processors' time is repeated, whatever came of it.
Without shedding, half a minute shows that delays grow for as long as the burst lasts. `CQL_SECONDS=20` makes bursts
shorter, `CQL_LOADS=2,10` picks loads. What has to hold is checked at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame

import cql
from benchmarks._machine import undisturbed

BOUND = 5.0
MAX_GAP = 20
KEYS = 50
FILE_SECONDS = 0.25
BURN = 50.0
"""How many microseconds of CPU a row costs beside what the engine does."""
CALM_SECONDS = 15.0
UNSHED_SECONDS = 30.0
SECOND = 1_000_000
WINDOW = SECOND // 4

STREAM = "CREATE STREAM s (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM parquet OPTIONS (path '{folder}')"
QUERY = (
    "SELECT Rstream(k, COUNT(*) AS n, SUM(burnt(v)) AS total)"
    " FROM s [Range 250 Milliseconds Slide 250 Milliseconds] GROUP BY k"
)


@dataclass
class Feed:
    """Files that appear in a folder by the clock: rows of the instants since the file before."""

    folder: Path
    rate: float
    written: int = 0
    rows: int = 0
    behind: float = 0.0
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def write(self, since: float, rate: float) -> None:
        """Write the rows of the time of one file."""
        count = max(round(rate * FILE_SECONDS), 1)
        begin = round(since * SECOND)
        instants = begin + np.arange(count) * round(FILE_SECONDS * SECOND) // count
        table = pa.table({**self.values(count), "ts": pa.array(instants, pa.timestamp("us"))})
        path = self.folder / f"{self.written:08}.parquet"
        hidden = path.with_name(f".{path.name}")
        parquet.write_table(table, hidden)
        hidden.replace(path)
        self.written += 1
        self.rows += count

    def values(self, count: int) -> dict[str, np.ndarray]:
        """Return the columns of so many rows, but for their instants."""
        return {"k": self._rng.integers(0, KEYS, count, np.int32), "v": self._rng.integers(0, 100, count, np.int32)}

    def run(self, phases: list[tuple[float, float]]) -> None:
        """Write files for phases, each so many seconds at a rate."""
        due = time.time()
        for seconds, rate in phases:
            for _ in range(round(seconds / FILE_SECONDS)):
                self.write(due, rate)
                due += FILE_SECONDS
                self.behind = max(self.behind, time.time() - due)
                time.sleep(max(due - time.time(), 0))


@dataclass
class Delivered:
    """The windows that were handed over: when, and their rows."""

    delays: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By the end of a window: when it was handed over, and how many seconds after its end that was."""
    rows: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def __call__(self, changes: DataFrame, batch: int) -> None:
        """Take the changes of a micro-batch."""
        now = time.time()
        for row in changes.select("ts", "k", "n", "total").toArrow().to_pylist():
            end = round(row["ts"].timestamp() * SECOND)
            self.delays.setdefault(end, (now, now - end / SECOND))
            self.rows.setdefault(end, {})[row["k"]] = (row["n"], row["total"])


@dataclass(frozen=True)
class Outcome:
    """What came of a burst."""

    began: float
    ended: float
    delivered: Delivered
    feed: Feed
    behind: float
    """By how many seconds files were written later than they should have been, at most."""
    wrong: int = 0

    def delays(self, since: float, until: float) -> list[float]:
        """Return the delays of windows that ended in a stretch of time."""
        ends = self.delivered.delays.items()
        return [delay for end, (_, delay) in ends if since <= end / SECOND < until]

    def late_delays(self, seconds: float) -> float:
        """Return the delay of windows at the end of the burst; those that were not handed over still wait."""
        now = max((at for at, _ in self.delivered.delays.values()), default=self.ended)
        waited = {end: max(now, self.ended) - end / SECOND for end in windows_between(self.ended - seconds, self.ended)}
        return median(self.delivered.delays.get(end, (0.0, delay))[1] for end, delay in waited.items())

    @property
    def share(self) -> float:
        """Return how many of the windows of the burst were delivered."""
        all_ends = windows_between(self.began, self.ended)
        return len(self.delivered.delays.keys() & set(all_ends)) / max(len(all_ends), 1)

    @property
    def recovered(self) -> float:
        """Return how long after the burst the last window was handed over that was later than the bound allows."""
        late = [now for now, delay in self.delivered.delays.values() if delay > BOUND and now >= self.ended]
        return max((now - self.ended for now in late), default=0.0)

    def longest_gap(self) -> int:
        """Return the longest run of windows in the burst that are missing."""
        ends = windows_between(self.began, self.ended)
        found = [at for at, end in enumerate(ends) if end in self.delivered.delays]
        return int(max(np.diff([-1, *found, len(ends)]))) - 1

    def count_wrong(self) -> int:
        """Return how many of the windows that were delivered are not what they should be."""
        table = pa.concat_tables(parquet.read_table(path) for path in sorted(self.feed.folder.glob("*.parquet")))
        ends = pc.multiply(pc.add(pc.divide(pc.subtract(table["ts"].cast(pa.int64()), 1), WINDOW), 1), WINDOW)
        exact = (
            table.append_column("end", ends)
            .group_by(["end", "k"])
            .aggregate([("v", "count"), ("v", "sum")])
            .to_pylist()
        )
        wanted: dict[int, dict[int, tuple[int, int]]] = {}
        for row in exact:
            wanted.setdefault(row["end"], {})[row["k"]] = (row["v_count"], row["v_sum"])
        return sum(rows != wanted.get(end) for end, rows in self.delivered.rows.items())


def windows_between(since: float, until: float) -> range:
    """Return the ends of the windows that end in a stretch of time."""
    return range(-(-round(since * SECOND) // WINDOW) * WINDOW, round(until * SECOND), WINDOW)


@contextmanager
def running(engine: cql.Engine, sheds: bool, rate: float) -> Iterator[tuple[Feed, Delivered]]:
    """Run the query on a new folder; gives what feeds it and what it yields. It is warm when that begins."""
    folder = Path(tempfile.mkdtemp(prefix="cql-overload-"))
    feed, delivered = Feed(folder, rate), Delivered()
    try:
        engine.execute("SET files = follow")
        engine.execute(STREAM.format(folder=folder))
        service: dict[str, str | float] = {}
        if sheds:
            service = {"shedding": "window", "max_gap": MAX_GAP, "max_latency": f"{BOUND:g} seconds"}
        engine.register("q", QUERY, into=delivered, **service)
        feed.write(time.time() - 2, rate / 10)
        engine.start()
        engine.process_available()
        for _ in range(4):
            feed.write(time.time() - FILE_SECONDS, rate / 10)
            engine.process_available()
        yield feed, delivered
    finally:
        engine.stop()
        engine.execute("DROP QUERY q; DROP STREAM s")
        shutil.rmtree(folder, ignore_errors=True)


def new_engine() -> cql.Engine:
    """Return an engine with the function that takes its time."""
    engine = cql.Engine()

    @engine.function(vectorized=True, arguments=["INT"], returns="INT")
    def burnt(values: pa.Array) -> pa.Array:
        end = time.thread_time() + len(values) * BURN / 1e6
        while time.thread_time() < end:
            pass
        return values

    return engine


def capacity(engine: cql.Engine, guess: float) -> float:
    """Return how many rows a second are processed when there is always enough to do."""
    with running(engine, False, guess) as (feed, _):
        for _ in range(4):
            for _ in range(round(4 / FILE_SECONDS)):
                feed.write(time.time(), guess)
            engine.process_available()
        batches = [batch for batch in engine.history() if batch.rows_in >= guess]
        return median(batch.rows_in / batch.seconds for batch in batches)


def burst(engine: cql.Engine, sheds: bool, calm: float, rate: float, seconds: float) -> Outcome:
    """Let the stream come at a rate for some time, and then, if something is shed, at a lower one."""
    with running(engine, sheds, calm) as (feed, delivered):
        feed.run([(CALM_SECONDS, calm)])
        began = time.time()
        feed.run([(seconds, rate), *([(CALM_SECONDS, calm)] if sheds else [])])
        if sheds:
            time.sleep(BOUND)
        engine.wait(0)
        outcome = Outcome(began, began + seconds, delivered, feed, feed.behind)
        return replace(outcome, wrong=outcome.count_wrong())


def _shown(load: float, outcome: Outcome, capacity: float) -> str:
    delays = outcome.delays(outcome.began, outcome.ended)
    ideal = min(1.0, 1 / load)
    figures = (
        f"{load:>6.2f}{load * capacity:>12,.0f}{median(delays):>10.1f}{max(delays):>10.1f}{outcome.recovered:>11.1f}"
        f"{outcome.share:>11.1%}{ideal:>8.1%}{outcome.share / ideal:>8.2f}{outcome.longest_gap():>6}{outcome.wrong:>7}"
    )
    return figures + (f"   the feed was {outcome.behind:.1f} s late" if outcome.behind > 1 else "")


def _broken(load: float, outcome: Outcome) -> list[str]:
    """Return what does not hold of a burst with shedding."""
    held = {
        "answers come within twice the bound": max(outcome.delays(outcome.began, outcome.ended)) < 2 * BOUND,
        "it recovers within 10 s": outcome.recovered <= 10,
        "half of what is possible is delivered": outcome.share >= min(1.0, 1 / load) / 2,
        "what is delivered is right": outcome.wrong == 0,
        f"no gap is longer than {MAX_GAP}": outcome.longest_gap() <= MAX_GAP,
    }
    return [f"load {load:g}: {what}: no" for what, holds in held.items() if not holds]


def main() -> None:
    """Run the benchmark and print its tables."""
    seconds = float(os.environ.get("CQL_SECONDS", "120"))
    loads = [float(load) for load in os.environ.get("CQL_LOADS", "1.25,2,5,10").split(",")]
    engine = new_engine()
    found = capacity(engine, 50_000)
    print(
        f"capacity: {found:,.0f} rows a second; bound on the delay of answers: {BOUND:g} s, gaps of {MAX_GAP} windows\n"
    )
    head = ("load", "rows/s", "delay", "most", "recovered", "delivered", "ideal", "share", "gap", "wrong")
    print(f"with shedding, bursts of {seconds:g} s; delays in seconds")
    print("".join(f"{name:>{width}}" for name, width in zip(head, (6, 12, 10, 10, 11, 11, 8, 8, 6, 7), strict=True)))
    broken: list[str] = []
    for load in loads:
        outcome = undisturbed(burst, engine, True, found / 2, load * found, seconds)
        print(_shown(load, outcome, found), flush=True)
        broken += _broken(load, outcome)
    print(f"\nwithout shedding, bursts of {UNSHED_SECONDS:g} s; delays of the windows of their first and last third")
    for load in loads:
        outcome = burst(engine, False, found / 2, load * found, UNSHED_SECONDS)
        third = UNSHED_SECONDS / 3
        first, last = outcome.delays(outcome.began, outcome.began + third), outcome.late_delays(third)
        print(f"{load:>6.2f}{load * found:>12,.0f}{median(first or [0]):>10.1f}{last:>10.1f}", flush=True)
    assert not broken, "; ".join(broken)
    print("\nanswers within twice the bound, recovery within 10 s, half of the possible, gaps kept, nothing wrong: yes")
