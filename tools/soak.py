"""A soak: runs a network on endless input and says whether its memory stays flat; `make soak` runs it.

The network has a join, a sliding aggregate and a row window. One of its streams is made by Spark at a steady rate, the
other comes as files that are dropped into a folder and removed when they have been read; the files of its results are
removed too. Every few seconds the memory of all that runs is sampled:

| what | how |
|---|---|
| driver | resident memory of this process |
| JVM | resident memory; the heap is all touched at the start, so that only what is outside of it can grow |
| heap | what a collection leaves on the JVM's heap |
| workers | resident memory of all Python processes of Spark together |

Each has to be as high in the last quarter of the run as in the one before: its median may be higher by what would be
10 % of it in an hour, or by as much as its samples differ within a quarter anyway, whichever is more. The first half is
for warming up. A run of a few minutes only finds large leaks.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from cql.catalog import Catalog
from runtime.reports.progress import Progress
from runtime.spark.run import SparkRun
from runtime.spark.session import local_session

SCRIPT = """
CREATE STREAM bid (value BIGINT, timestamp TIMESTAMP) TIMESTAMP BY timestamp DELAY 1 SECOND
  FROM rate OPTIONS (rowsPerSecond '1000', numPartitions '2');
CREATE STREAM ask (auction BIGINT, price INT, at TIMESTAMP) TIMESTAMP BY at DELAY 1 SECOND
  FROM parquet OPTIONS (path '{folder}/ask', maxFilesPerTrigger '20');

REGISTER QUERY pairs AS
  SELECT Istream(b.value, a.price) FROM bid [Range 10 Seconds] AS b, ask [Range 5 Seconds] AS a
  WHERE b.value % 200 = a.auction INTO parquet OPTIONS (path '{folder}/out/pairs');
REGISTER QUERY totals AS
  SELECT auction, COUNT(*) AS n, MAX(price) AS best FROM ask [Range 30 Seconds Slide 1 Second] GROUP BY auction
  INTO json OPTIONS (path '{folder}/out/totals');
REGISTER QUERY recent AS
  SELECT auction, SUM(price) AS total FROM ask [Partition By auction Rows 5] GROUP BY auction
  INTO csv OPTIONS (path '{folder}/out/recent');
"""
AUCTIONS = 200
ROWS_OF_A_FILE = 500
KEPT_RESULTS = 20
SAMPLE_SECONDS = 5.0
LINE_SECONDS = 30.0
HEAP = "1g"
GROWTH_ALLOWED = 0.1
"""Of the level, in an hour."""
STEPS = 4.0
"""Megabytes: allocators ask for memory in steps of about this size."""
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """The memory of all that runs, in megabytes."""

    driver: float
    jvm: float
    heap: float
    workers: float


@dataclass(frozen=True)
class Trend:
    """How one of the samples' figures went in the second half of a run."""

    name: str
    before: float
    """The median of the third quarter, and of the last one."""
    after: float
    hourly: float
    """The growth that this would be in an hour, as a part of the level."""
    is_flat: bool


def trends(samples: Sequence[Sample], seconds: float) -> list[Trend]:
    """Return how the memory went in the second half of samples that were taken in some time.

    >>> even = [Sample(100.0, 1500.0, 200.0, 300.0)] * 8
    >>> [trend.is_flat for trend in trends(even, 1800)]
    [True, True, True, True]
    >>> leak = [Sample(100.0 + 5 * n, 1500.0, 200.0, 300.0) for n in range(8)]
    >>> [trend.is_flat for trend in trends(leak, 1800)]
    [False, True, True, True]
    """
    return [_trend(each.name, [getattr(sample, each.name) for sample in samples], seconds) for each in fields(Sample)]


def _trend(name: str, values: Sequence[float], seconds: float) -> Trend:
    quarter = len(values) // 4
    third, last = values[-2 * quarter : -quarter], values[-quarter:]
    before, after = median(third), median(last)
    low, high = np.percentile(third, [25, 75])
    grown, hours = after - before, seconds / 4 / 3600
    hourly = grown / before / hours
    return Trend(name, before, after, hourly, hourly <= GROWTH_ALLOWED or grown <= max(STEPS, float(high - low)))


# Looking at memory


def resident(pid: int | str) -> float:
    """Return the resident memory of a process in megabytes; nothing if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process, or one of these, has started."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


class Memory:
    """Takes samples of this process, its JVM and the Python processes of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        machine = spark.sparkContext._jvm
        assert machine is not None, "the session is a local one"
        self._runtime = machine.java.lang.Runtime.getRuntime()
        self._jvm = int(machine.java.lang.ProcessHandle.current().pid())

    def sample(self) -> Sample:
        """Return how much memory is in use now."""
        self._runtime.gc()
        heap = (self._runtime.totalMemory() - self._runtime.freeMemory()) / MEGABYTE
        workers = sum(map(resident, descendants(self._jvm)))
        return Sample(resident("self"), resident(self._jvm), heap, workers)


# Feeding the network


class Feed:
    """Drops a file of asks every second, and removes those that have been read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True)
        self._rng = np.random.default_rng(1)
        self._next = time.time()
        self._dropped: list[Path] = []
        self._removed = 0

    def go_on(self, rows_read: int) -> None:
        """Drop what is due, and remove what has been read."""
        while time.time() >= self._next:
            self._drop(int(self._next * 1_000_000))
            self._next += 1.0
        while self._dropped and (self._removed + 1) * ROWS_OF_A_FILE <= rows_read:
            self._dropped.pop(0).unlink()
            self._removed += 1

    def _drop(self, microsecond: int) -> None:
        instants = np.sort(self._rng.integers(microsecond - 1_000_000, microsecond, ROWS_OF_A_FILE))
        columns = {
            "auction": self._rng.integers(0, AUCTIONS, ROWS_OF_A_FILE),
            "price": self._rng.integers(0, 1000, ROWS_OF_A_FILE, np.int32),
            "at": pa.array(instants, pa.timestamp("us")),
        }
        path = self._folder / f"{microsecond}.parquet"
        hidden = path.with_name(f".{path.name}")
        parquet.write_table(pa.table(columns), hidden)
        hidden.replace(path)
        self._dropped.append(path)


def remove_results(folder: Path) -> None:
    """Remove all but the newest files of each result."""
    for result in folder.glob("*"):
        for path in sorted(result.glob("part-*"))[:-KEPT_RESULTS]:
            path.unlink()


# The soak


def soak(minutes: float, folder: Path, tell: Callable[[str], None]) -> list[Trend]:
    """Run the network for some minutes, tell how it goes, and return the trends of its memory."""
    settings = {"spark.driver.memory": HEAP, "spark.driver.extraJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch"}
    spark = local_session(settings)
    catalog = Catalog()
    catalog.execute(SCRIPT.format(folder=folder))
    feed, memory, samples = Feed(folder / "ask"), Memory(spark), list[Sample]()
    tell("minute  batches  batch s  rows read    driver       JVM      heap   workers  (megabytes)")
    with SparkRun(spark, catalog, list(catalog.queries.values()), checkpoint=folder / "checkpoint") as run:
        run.start()
        while run.progress()["timestamp"].batch < 0 and run.wait(0.5):
            feed.go_on(0)
        start, next_line = time.monotonic(), 0.0
        while (passed := time.monotonic() - start) < minutes * 60:
            progress = run.progress()["timestamp"]
            feed.go_on(progress.rows_in.get("ask", 0))
            remove_results(folder / "out")
            if passed >= len(samples) * SAMPLE_SECONDS:
                samples.append(memory.sample())
            if passed >= next_line:
                tell(_line(passed, progress, samples[-1]))
                next_line += LINE_SECONDS
            run.wait(0.5)
    return trends(samples, time.monotonic() - start)


def _line(seconds: float, progress: Progress, sample: Sample) -> str:
    figures = "".join(f"{figure:10,.0f}" for figure in astuple(sample))
    rows = sum(progress.rows_in.values())
    return f"{seconds / 60:6.1f} {progress.batch + 1:8} {progress.batch_seconds:8.2f} {rows:10,}{figures}"


def main() -> int:
    """Run the soak that the command line asks for; 1 if memory grows."""
    parser = argparse.ArgumentParser(description="Run a network for a long time and see whether its memory grows.")
    parser.add_argument("minutes", type=float, nargs="?", default=30.0)
    minutes = parser.parse_args().minutes
    folder = Path(tempfile.mkdtemp(prefix="cql-soak-"))
    try:
        found = soak(minutes, folder, lambda line: print(line, flush=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n         third quarter  last quarter  an hour  (medians, megabytes)")
    for trend in found:
        verdict = "flat" if trend.is_flat else "grows"
        print(f"{trend.name:8}{trend.before:14,.1f}{trend.after:14,.1f}{trend.hourly:+9.1%}  {verdict}")
    return 0 if all(trend.is_flat for trend in found) else 1


if __name__ == "__main__":
    sys.exit(main())
