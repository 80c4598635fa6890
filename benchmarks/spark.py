"""Networks on Spark beside native Structured Streaming: rows per second, small batches, state, longer windows, start.

Both sides read the same generated Parquet files, in micro-batches of 2 million rows (4 files), in one JVM with
the settings of networks (RocksDB with changelogs as the state store, a shuffle partition for each core), and write
Parquet files. Sides take turns. The first micro-batches of every run are left out; rows per second are those of the
median of the others, and for several queries together those of the whole time after all of them were warm.
Native stream-stream joins are so slow that they get a tenth of the rows; ours are run on those too, for the answers.

Answers are compared up to the last window that native Spark has closed; a difference is printed, in capitals, and
nothing fails. All rows of the data lie between the ends of windows, so that it does not matter which end belongs to
a window. `CQL_BENCH=a,b` runs some of the cases only: a to e of the first table, and limits, small, long, start.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from cql.session import Session
from runtime.spark.run import SparkRun
from runtime.spark.session import local_session, network_session

TURNS = 2
BEGIN = 1_700_000_000_000_000
ROW_BYTES = 4 + 8 + 8
PATIENCE = 60.0
"""For how many seconds to wait for what a JVM does after a run."""

Frames = Mapping[str, DataFrame]
Native = Callable[[Frames], DataFrame]


@dataclass(frozen=True)
class Feed:
    """The files of a stream: rows in the order of time, `rate` of them a second, and how many a micro-batch takes."""

    name: str
    keys: int
    files: int
    rows: int = 500_000
    per_batch: int = 4
    rate: int = 100_000
    shift: int = 3
    """By how many microseconds rows lie beside the ends of windows."""

    @property
    def batch_rows(self) -> int:
        return self.per_batch * self.rows


@dataclass(frozen=True)
class Query:
    """A query in CQL, and the same in native Spark."""

    cql: str
    native: Native


@dataclass(frozen=True)
class Case:
    """Queries that run together, the streams that they read, and the ratio that is aimed at."""

    name: str
    target: float | None
    feeds: Sequence[Feed]
    queries: Sequence[Query]
    few: Sequence[Feed] = ()
    """What native Spark, if it is too slow for the streams, reads instead."""
    warm: int = 1
    """How many micro-batches of each run are left out."""
    turns: int = TURNS

    @property
    def batch_rows(self) -> int:
        return sum(feed.batch_rows for feed in self.feeds)


# Queries


def grouped(length: str, slide: str, cql: str, native: Sequence[Column], where: str = "true") -> Query:
    """Return aggregates by key over a sliding window."""
    condition = "" if where == "true" else f" WHERE {where}"

    def frame(frames: Frames) -> DataFrame:
        window = f.window("ts", length, slide)
        made = frames["a"].where(where).withWatermark("ts", "0 seconds").groupBy(window, "k").agg(*native)
        return made.select(f.col("window.end").alias("ts"), *(name for name in made.columns if name != "window"))

    return Query(f"SELECT Rstream(k, {cql}) FROM a [Range {length} Slide {slide}]{condition} GROUP BY k", frame)


def filtered(where: str, factor: int) -> Query:
    """Return rows of a kind, with another value."""
    return Query(
        f"SELECT Istream(k, v * {factor} AS w) FROM a WHERE {where}",
        lambda frames: frames["a"].where(where).select("ts", "k", (f.col("v") * factor).alias("w")),
    )


def joined(seconds: int) -> Query:
    """Return pairs of equal keys of two streams that are in their windows together."""
    bound = f.expr(f"INTERVAL {seconds} SECONDS")

    def frame(frames: Frames) -> DataFrame:
        a, b = (frames[name].withWatermark("ts", "0 seconds").alias(name) for name in ("a", "b"))
        a_ts, b_ts = f.col("a.ts"), f.col("b.ts")
        pairs = a.join(b, (f.col("a.k") == f.col("b.k")) & (a_ts > b_ts - bound) & (a_ts < b_ts + bound))
        return pairs.select(f.greatest(a_ts, b_ts).alias("ts"), "a.k", "a.v", f.col("b.v").alias("w"))

    window = f"[Range {seconds} Seconds]"
    return Query(f"SELECT Istream(a.k, a.v, b.v AS w) FROM a {window}, b {window} WHERE a.k = b.k", frame)


def count() -> Column:
    return f.count("*").alias("c")


def both(keys: int, **sizes: int) -> tuple[Feed, Feed]:
    """Return two streams that share the rows of a micro-batch, and never an instant."""
    return Feed("a", keys, per_batch=2, **sizes), Feed("b", keys, per_batch=2, shift=8, **sizes)


def cases() -> dict[str, Case]:
    """Return the cases; not before there is a session, without which there are no columns."""
    v = f.col("v")
    stream = [Feed("a", 1000, files=12)]
    total = "COUNT(*) AS c, SUM(v) AS s", [count(), f.sum(v).alias("s")]
    extremes = "MIN(v) AS low, MAX(v) AS high", [f.min(v).alias("low"), f.max(v).alias("high")]
    sliding = grouped("1 Second", "100 Milliseconds", *total)
    eight = [
        sliding,
        grouped("1 Second", "1 Second", "AVG(v) AS m", [f.avg(v).alias("m")]),
        grouped("1 Second", "500 Milliseconds", *total, where="v > 0.5"),
        grouped("2 Seconds", "1 Second", "COUNT(*) AS c", [count()], where="k < 500"),
        grouped("2 Seconds", "2 Seconds", *extremes),
        grouped("5 Seconds", "1 Second", *total),
        filtered("v > 0.9", 2),
        filtered("k = 7", 3),
    ]
    return {
        "a": Case(
            "a  window equi-join, 1 s", 10, both(100_000, files=6), [joined(1)], both(100_000, files=6, rows=50_000)
        ),
        "b": Case("b  sliding aggregate, 1 s / 100 ms", 2.5, stream, [sliding]),
        "c": Case("c  tumbling aggregate, 1 s", 1, stream, [grouped("1 Second", "1 Second", *total)]),
        "d": Case("d  8 queries over one stream", 3, stream, eight, turns=1),
        "e": Case("e  filter and project", 0.9, stream, [filtered("v > 0.5", 2)]),
    }


# Data


def written(feed: Feed, root: Path) -> Path:
    """Return the folder of a stream, which is written if it is not there."""
    folder = root / f"{feed.name}-{feed.keys}-{feed.files}-{feed.rows}-{feed.rate}"
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    rng = np.random.default_rng(feed.shift)
    for number in range(feed.files):
        places = np.arange(number * feed.rows, (number + 1) * feed.rows)
        columns = {
            "k": pa.array(rng.integers(0, feed.keys, feed.rows), pa.int32()),
            "v": pa.array(rng.random(feed.rows)),
            "ts": pa.array(places * 1_000_000 // feed.rate + BEGIN + feed.shift).cast(pa.timestamp("us", "UTC")),
        }
        path = folder / f"{number:04}.parquet"
        parquet.write_table(pa.table(columns), path)
        os.utime(path, (1e9 + number, 1e9 + number))
    return folder


# Running


@dataclass(frozen=True)
class Batch:
    """A micro-batch: when it began and ended."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Recorder(StreamingQueryListener):
    """Notes the micro-batches that read data, by Spark query, from one reading to the next."""

    def __init__(self, data: Path) -> None:
        self._data = str(data)
        self._changed = threading.Condition()
        self._batches: dict[str, list[Batch]] = {}
        self._running: set[str] = set()

    @contextmanager
    def recording(self) -> Iterator[list[list[Batch]]]:
        """Give a list that has the micro-batches of each query in the end, when all queries have ended."""
        self._batches, self._running = {}, set()
        found: list[list[Batch]] = []
        yield found
        with self._changed:
            self._changed.wait_for(lambda: bool(self._batches) and not self._running, PATIENCE)
        found += [batches for batches in self._batches.values() if batches]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark before a query does anything."""
        self._batches[str(event.runId)] = []
        self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark after every micro-batch."""
        progress = event.progress
        if any(self._data in each.description and each.numInputRows for each in progress.sources):
            self._batches[str(progress.runId)].append(_batch(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Called by Spark when there is nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark after the last progress of a query."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()


def _batch(progress: StreamingQueryProgress) -> Batch:
    begin = datetime.fromisoformat(progress.timestamp).timestamp()
    return Batch(begin, begin + progress.durationMs["triggerExecution"] / 1000)


@dataclass(frozen=True)
class Run:
    """One side of a case, run once: the micro-batches of its Spark queries, and the folders that it has left."""

    case: Case
    batches: Sequence[Sequence[Batch]]
    checkpoint: Path
    results: Sequence[Path]

    @property
    def rate(self) -> float:
        """Rows of the streams per second, each counted once, however many queries read it."""
        if len(self.case.queries) == 1:
            return self.case.batch_rows / statistics.median(self.seconds)
        begin = max(batches[self.case.warm - 1].end for batches in self.batches)
        end = max(batches[-1].end for batches in self.batches)
        done = sum(_share(batch, begin) for batches in self.batches for batch in batches)
        return self.case.batch_rows * done / len(self.batches) / (end - begin)

    @property
    def seconds(self) -> list[float]:
        """What the micro-batches of the steady state took."""
        return [batch.seconds for batches in self.batches for batch in batches[self.case.warm :]]


def _share(batch: Batch, begin: float) -> float:
    """Return the part of a micro-batch that lies after an instant."""
    return max(0.0, batch.end - max(batch.begin, begin)) / batch.seconds


@dataclass
class Bench:
    """A session, the data, and where runs may write."""

    spark: SparkSession
    root: Path
    recorder: Recorder = field(init=False)
    _runs: int = 0

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.root / "data")
        self.spark.streams.addListener(self.recorder)

    def folder(self, feed: Feed) -> Path:
        return written(feed, self.root / "data")

    def frames(self, feeds: Sequence[Feed]) -> dict[str, DataFrame]:
        """Return the streams as native Spark reads them."""
        return {
            feed.name: self.spark.readStream.name(feed.name)
            .schema("k int, v double, ts timestamp")
            .option("maxFilesPerTrigger", feed.per_batch)
            .parquet(str(self.folder(feed)))
            for feed in feeds
        }

    def ours(self, case: Case) -> Run:
        """Run a case as one network."""
        session = Session()
        for feed in case.feeds:
            session.run(
                f"CREATE STREAM {feed.name} (k INT, v DOUBLE, ts TIMESTAMP) TIMESTAMP BY ts FROM parquet OPTIONS "
                f"(path '{self.folder(feed)}', maxFilesPerTrigger '{feed.per_batch}')"
            )
        run = self._place(case)
        for number, (query, path) in enumerate(zip(case.queries, run.results, strict=True)):
            session.run(f"REGISTER QUERY q{number} AS {query.cql} INTO parquet OPTIONS (path '{path}')")
        queries = list(session.catalog.queries.values())
        with (
            self.recorder.recording() as batches,
            SparkRun(self.spark, session.catalog, queries, checkpoint=run.checkpoint) as network,
        ):
            network._spark.streams.addListener(self.recorder)
            network.drain()
        return replace(run, batches=batches)

    def native(self, case: Case, sink: str = "parquet") -> Run:
        """Run a case as native queries, started together."""
        frames = self.frames(case.feeds)
        run = self._place(case)
        with self.recorder.recording() as batches:
            started = [
                query.native(frames)
                .writeStream.format(sink)
                .option("path", str(path))
                .option("checkpointLocation", str(run.checkpoint / path.name))
                .start()
                for query, path in zip(case.queries, run.results, strict=True)
            ]
            for each in started:
                each.processAllAvailable()
            for each in started:
                each.stop()
        return replace(run, batches=batches)

    def _place(self, case: Case) -> Run:
        """Return folders for a run of a case; those of the third run before are removed."""
        self._runs += 1
        shutil.rmtree(self.root / f"run{self._runs - 3}", ignore_errors=True)
        place = self.root / f"run{self._runs}"
        return Run(case, [], place / "checkpoint", [place / f"results{n}" for n in range(len(case.queries))])


# Answers


def differences(native: Run, ours: Run) -> list[str]:
    """Return how the answers of two runs differ, up to the last instant of the native ones."""
    found = []
    for query, *folders in zip(native.case.queries, native.results, ours.results, strict=True):
        tables = [dataset.dataset(folder).to_table() for folder in folders]
        until = pc.max(_instants(tables[0]))
        wanted, given = (_summary(table.filter(pc.less_equal(_instants(table), until))) for table in tables)
        is_same = all(np.isclose(wanted[name], given[name], rtol=1e-9) for name in wanted)
        if not is_same or not wanted["rows"]:
            found.append(f"{query.cql}: {wanted} in native Spark, {given} in ours")
    return found


def _instants(table: pa.Table) -> pa.ChunkedArray:
    """Return when rows were there; Spark writes nanoseconds without a time zone."""
    return table["ts"].cast(pa.timestamp("us")).cast(pa.int64())


def _summary(table: pa.Table) -> dict[str, float]:
    """Return the number of rows and the sum of each column."""
    columns = {name: table[name] for name in table.column_names if name != "op"}
    columns["ts"] = pc.subtract(_instants(table), BEGIN)
    return {"rows": table.num_rows, **{name: pc.sum(column).as_py() or 0 for name, column in columns.items()}}


# State


def state_bytes(spark: SparkSession, checkpoint: Path) -> int:
    """Return how many bytes the variables of all stateful operators hold in Spark's state store."""
    total = 0
    for query in {path.parent for path in checkpoint.rglob("state") if path.is_dir()}:
        operators = spark.read.format("state-metadata").load(str(query)).collect()
        for operator in {each.operatorId: each.operatorProperties for each in operators}.items():
            total += sum(_variable_bytes(spark, query, operator[0], name) for name in _variables(operator[1]))
    return total


def _variables(properties: str) -> list[str]:
    return [each["stateName"] for each in json.loads(properties).get("stateVariables", [])]


def _variable_bytes(spark: SparkSession, query: Path, operator: int, name: str) -> int:
    options = {"operatorId": str(operator), "stateVarName": name}
    frame = spark.read.format("statestore").options(**options).load(str(query)).drop("partition_id")
    sizes = [_size(f.col(column.name), column.dataType) for column in frame.schema]
    found = frame.select(f.sum(sum(sizes, f.lit(0)))).collect()[0][0]
    return int(found or 0)


def _size(column: Column, kind: s.DataType) -> Column:
    """Return the bytes of a value, without those that a format adds."""
    if isinstance(kind, s.StructType):
        return sum((_size(column[each.name], each.dataType) for each in kind), f.lit(0))
    if isinstance(kind, s.StringType | s.BinaryType):
        return f.coalesce(f.octet_length(column), f.lit(0))
    return f.lit(8)


# The start of the command line

SCRIPT = """
CREATE STREAM s (k INT, at INT) TIMESTAMP BY at FROM csv OPTIONS (path '{path}', header 'true');
SELECT k, COUNT(*) AS n FROM s [Range 10 Seconds] GROUP BY k;
"""


def started(root: Path) -> tuple[float, float]:
    """Run a script in a process of its own; return the seconds to its first line of results and to its end."""
    (root / "rows.csv").write_text("k,at\n1,1\n2,2\n1,3\n")
    script = root / "start.cql"
    script.write_text(SCRIPT.format(path=root / "rows.csv"))
    command = [str(Path(sys.executable).with_name("cql")), "run", str(script), "--output", "jsonl"]
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": str(root / "cache")}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first = time.perf_counter() - begin
        process.stdout.read()
    return first, time.perf_counter() - begin


def _wait_for_archive(folder: Path) -> None:
    """Wait for the class archive that the JVM of a run leaves after the run has ended, and let it look a minute old."""
    end = time.monotonic() + PATIENCE
    size = -1
    while time.monotonic() < end and (size <= 0 or size != _size_of(folder)):
        size = _size_of(folder)
        time.sleep(1)
    for path in folder.rglob("*.jsa*"):
        os.utime(path, (time.time() - 60, time.time() - 60))


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.jsa*"))


# Tables


def _rates(bench: Bench, case: Case) -> None:
    few = replace(case, feeds=case.few or case.feeds)
    native, ours, ours_of_few = [], [], []
    wrong: list[str] = []
    for _ in range(case.turns):
        expected, found = bench.native(few), bench.ours(few)
        wrong = wrong or differences(expected, found)
        native.append(expected.rate)
        ours_of_few.append(found.rate)
        ours.append(bench.ours(case).rate if case.few else found.rate)
    _rate(case.name, native, ours, case.target, wrong)
    if case.few:
        _rate(f"   {few.batch_rows:,} rows at a time for both", native, ours_of_few, None, wrong)


def _rate(name: str, native: Sequence[float], ours: Sequence[float], target: float | None, wrong: list[str]) -> None:
    before, after = statistics.median(native), statistics.median(ours)
    print(
        f"{name:<36}{before:>12,.0f}{after:>12,.0f}{after / before:>8.2f}{target or '':>8}"
        f"{'DIFFER' if wrong else 'same':>10}",
        flush=True,
    )
    for line in wrong:
        print(f"   THE ANSWERS DIFFER: {line}")


def _limits(bench: Bench, stream: Sequence[Feed]) -> None:
    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    limits: dict[str, Native] = {
        "limit: scan to no sink": lambda frames: frames["a"],
        "limit: identity mapInArrow, no sink": lambda frames: frames["a"].mapInArrow(identity, frames["a"].schema),
    }
    for name, native in limits.items():
        case = Case(name, None, stream, [Query("", native)])
        rate = statistics.median(bench.native(case, "noop").rate for _ in range(TURNS))
        print(f"{name:<36}{rate:>12,.0f}", flush=True)


def _small(bench: Bench, sliding: Query) -> None:
    """Print what a micro-batch of a handful of rows takes."""
    case = Case("micro-batch of 5 rows", None, [Feed("a", 1000, 30, 5, 1, 100)], [sliding], warm=10)
    native, ours = bench.native(case), bench.ours(case)
    before, after = (1000 * statistics.median(run.seconds) for run in (native, ours))
    print(f"\n{'median time':<36}{'native':>12}{'ours':>12}{'ratio':>8}")
    print(f"{case.name:<36}{before:>9,.0f} ms{after:>9,.0f} ms{after / before:>8.2f}", flush=True)
    for line in differences(native, ours):
        print(f"   THE ANSWERS DIFFER: {line}")


def _long(bench: Bench) -> None:
    """Print what a window ten times as long costs for each row, with as many matches, and how much state there is."""
    costs: dict[int, list[float]] = {1: [], 10: []}
    density: dict[int, float] = {}
    for _ in range(TURNS):
        for seconds, found in costs.items():
            case = Case("", None, both(100_000 * seconds, files=6), [joined(seconds)])
            run = bench.ours(case)
            found.append(1e9 / run.rate)
            alive = sum(feed.rate * seconds * ROW_BYTES for feed in case.feeds)
            density[seconds] = state_bytes(bench.spark, run.checkpoint) / alive
    short, long = (statistics.median(found) for found in costs.values())
    print(f"\n{'window of the join':<36}{'1 s':>12}{'10 s':>12}{'ratio':>8}{'target':>8}")
    print(f"{'time for each row':<36}{short:>9,.0f} ns{long:>9,.0f} ns{long / short:>8.2f}{'1.3':>8}")
    print(f"{'bytes of state / of window':<36}{density[1]:>12.2f}{density[10]:>12.2f}", flush=True)


def _start(root: Path) -> None:
    first = started(root)
    _wait_for_archive(root / "cache")
    second = started(root)
    print(f"\n{'cql run of three rows':<36}{'first time':>12}{'second':>12}")
    for name, *seconds in zip(("first line of results after", "ended after"), first, second, strict=True):
        print(f"{name:<36}{seconds[0]:>10.1f} s{seconds[1]:>10.1f} s", flush=True)


def main() -> None:
    """Run the benchmark and print its tables."""
    with tempfile.TemporaryDirectory(prefix="cql-bench-") as name:
        root = Path(name)
        spark = network_session(local_session())
        bench = Bench(spark, root)
        known = cases()
        parts: dict[str, Callable[[], None]] = {
            **{letter: partial(_rates, bench, case) for letter, case in known.items()},
            "limits": partial(_limits, bench, known["b"].feeds),
            "small": partial(_small, bench, known["b"].queries[0]),
            "long": partial(_long, bench),
            "start": partial(_start, root),
        }
        wanted = os.environ.get("CQL_BENCH", ",".join(parts)).split(",")
        cores = spark.sparkContext.defaultParallelism
        print(f"Spark {spark.version} on {cores} cores, in micro-batches of {known['b'].batch_rows:,} rows\n")
        print(f"{'rows per second':<36}{'native':>12}{'ours':>12}{'ratio':>8}{'target':>8}{'answers':>10}", flush=True)
        for part, show in parts.items():
            if part in wanted:
                show()
