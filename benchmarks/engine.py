"""The engine on one core: rows per second, the price of longer windows, state, statistics, and known lifetimes.

Every case is run on a fresh executor after a warm-up, three times (windows of two lengths by turns, six times); the
median counts. Rows per second are input rows
of all streams together. DuckDB, on one thread, computes the same answer offline and in one go, with all data at hand;
its number of answer rows, which has to be that of the rows that come into the engine's result, is the check. Batches
have 65,536 rows. Targets are in the table; nothing fails if one is missed.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa

import cql
from cql import bound
from planner import operators as op
from planner.costs import Estimate
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import FOREVER, ChangeBatch, concat_columns
from runtime.engine.executor import Executor
from runtime.engine.statistics import OperatorWork
from runtime.operators.registry import IMPLEMENTATIONS
from runtime.operators.windows import RangeWindow, window_operator
from runtime.state import bind_synopses as synopses
from runtime.state.store import LifetimeRule, RowsEnds, StoredEnds
from runtime.time.window_lifetimes import range_lifetime

BATCH = 65_536
RUNS = 3
BEGIN = 1_700_000_000_000_000
STREAMS = "".join(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts;" for name in ("a", "b"))

EVENTS = """
    WITH events AS (
        SELECT k, ts AS t, 1 AS n, v FROM a UNION ALL SELECT k, ts + {ticks}, -1, -v FROM a
    ), sums AS (
        SELECT k, t, sum(n) AS n, sum(v) AS v FROM events WHERE t <= (SELECT max(ts) FROM a) GROUP BY k, t
    ), running AS (
        SELECT k, t, sum(n) OVER w AS n, sum(v) OVER w AS v FROM sums WINDOW w AS (PARTITION BY k ORDER BY t)
    )
    SELECT k, t, v / n AS m, n FROM running WHERE n > 0
"""
PAIRS = "SELECT a.k, a.v, b.v AS w FROM a JOIN b ON a.k = b.k AND a.ts < b.ts + {ticks} AND b.ts < a.ts + {ticks}"


@dataclass(frozen=True)
class Stream:
    """How many rows a stream has, with how many different keys, and the microseconds between them."""

    rows: int
    keys: int
    step: int


@dataclass(frozen=True)
class Case:
    """A query, its streams, the rows per second that are aimed at, and the same in DuckDB."""

    name: str
    query: str
    streams: Mapping[str, Stream]
    target: float | None
    offline: str
    window: int = 0


JOIN = "SELECT a.k, a.v, b.v AS w FROM a [{window}], b [{window}] WHERE a.k = b.k"
GROUPED = "SELECT k, AVG(v) AS m, COUNT(*) AS n FROM a [{window}] GROUP BY k"

CASES = [
    Case(
        "window equi-join, 10 s",
        JOIN.format(window="Range 10 Seconds"),
        {name: Stream(1_000_000, 200_000, 100) for name in ("a", "b")},
        1e6,
        PAIRS.format(ticks=10_000_000),
        10_000_000,
    ),
    Case(
        "sliding aggregate, 1 s / 100 ms",
        GROUPED.format(window="Range 1 Second Slide 100 Milliseconds"),
        {"a": Stream(10_000_000, 1000, 1)},
        5e6,
        """
        WITH panes AS (
            SELECT k, (ts + 99999) // 100000 AS e, count(*) AS n, sum(v) AS s FROM a GROUP BY 1, 2
        ), ends AS (
            SELECT DISTINCT k, e + unnest(range(10)) AS e FROM panes
        ), sums AS (
            SELECT ends.k, ends.e, sum(n) AS n, sum(s) AS s FROM ends JOIN panes
            ON panes.k = ends.k AND panes.e BETWEEN ends.e - 9 AND ends.e GROUP BY 1, 2
        )
        SELECT k, e, s / n AS m, n FROM sums WHERE e * 100000 <= (SELECT max(ts) FROM a)
        """,
    ),
    Case(
        "average of the last 10 per key",
        "SELECT k, AVG(v) AS m FROM a [Partition By k Rows 10] GROUP BY k",
        {"a": Stream(1_000_000, 1000, 10)},
        1e6,
        "SELECT k, avg(v) OVER (PARTITION BY k ORDER BY ts ROWS 9 PRECEDING) AS m FROM a",
    ),
    Case(
        "join of the last 1000 rows",
        JOIN.format(window="Rows 1000"),
        {name: Stream(1_000_000, 2000, 100) for name in ("a", "b")},
        5e5,
        """
        WITH x AS (
            SELECT k, v, ts, lead(ts, 1000, 9223372036854775807) OVER (ORDER BY ts) AS e,
                   row_number() OVER (ORDER BY ts) // 1000 AS part FROM a
        ), y AS (
            SELECT k, v, ts, lead(ts, 1000, 9223372036854775807) OVER (ORDER BY ts) AS e,
                   row_number() OVER (ORDER BY ts) // 1000 AS part FROM b
        ), near AS (SELECT *, part + unnest([-1, 0, 1]) AS p FROM x)
        SELECT near.k, near.v, y.v AS w FROM near JOIN y ON near.k = y.k AND near.p = y.part
        AND near.ts < y.e AND y.ts < near.e
        """,
    ),
    Case(
        "filter and project",
        "SELECT k + 1 AS k1, v * 0.908e0 AS v1 FROM a WHERE v > 10 AND k <> 3",
        {"a": Stream(10_000_000, 1000, 1)},
        20e6,
        "SELECT k + 1 AS k1, v * 0.908e0 AS v1 FROM a WHERE v > 10 AND k <> 3",
    ),
    Case(
        "aggregate over a range, 1 s",
        GROUPED.format(window="Range 1 Second"),
        {"a": Stream(1_000_000, 1000, 10)},
        None,
        EVENTS.format(ticks=1_000_000),
        1_000_000,
    ),
    Case(
        "maximum over a range, 1 s",
        "SELECT k, MAX(v) AS m FROM a [Range 1 Second] GROUP BY k",
        {"a": Stream(1_000_000, 1000, 10)},
        None,
        """
        WITH events AS (
            SELECT k, ts AS t, v FROM a UNION ALL SELECT k, ts + 1000000, NULL FROM a
        ), largest AS (
            SELECT DISTINCT k, t, max(v) OVER (PARTITION BY k ORDER BY t RANGE 999999 PRECEDING) AS m
            FROM events WHERE t <= (SELECT max(ts) FROM a)
        ), compared AS (
            SELECT *, lag(m) OVER (PARTITION BY k ORDER BY t) AS before FROM largest
        )
        SELECT k, t, m FROM compared WHERE m IS NOT NULL AND m IS DISTINCT FROM before
        """,
        1_000_000,
    ),
]
LONG_JOIN = replace(
    CASES[0],
    name="window equi-join, 100 s",
    query=JOIN.format(window="Range 100 Seconds"),
    streams={name: Stream(2_000_000, 2_000_000, 100) for name in ("a", "b")},
    window=100_000_000,
)
SHORT_JOIN = replace(CASES[0], streams={name: Stream(2_000_000, 200_000, 100) for name in ("a", "b")})
LONG_RANGE = replace(
    CASES[5],
    name="aggregate over a range, 10 s",
    query=GROUPED.format(window="Range 10 Seconds"),
    streams={"a": Stream(2_000_000, 1000, 10)},
    window=10_000_000,
)
SHORT_RANGE = replace(CASES[5], streams={"a": Stream(2_000_000, 1000, 10)})


@dataclass(frozen=True)
class Measured:
    """What one run took and gave."""

    cpu: float
    wall: float
    rows: int
    answers: int
    stores: int
    state: int
    alive: int
    results: int
    """Bytes of the rows of the result that are there at the end."""

    @property
    def density(self) -> float:
        """Bytes of all state for each byte of the rows of windows and of the result that are alive."""
        return self.state / (self.alive + self.results)

    @property
    def cost(self) -> float:
        """Seconds of the processor for each row."""
        return self.cpu / self.rows


def plan_of(query: str) -> Plan:
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    return combine([compile_query("q", cql.bind(query, catalog))])


def columns_of(case: Case) -> dict[str, dict[str, Any]]:
    """Return the columns of each stream."""
    rng = np.random.default_rng(1)
    return {
        name: {
            "ts": np.arange(stream.rows, dtype=np.int64) * stream.step + BEGIN,
            "k": rng.integers(0, stream.keys, stream.rows),
            "v": rng.random(stream.rows) * 100,
        }
        for name, stream in case.streams.items()
    }


def batches_of(plan: Plan, data: Mapping[str, Mapping[str, Any]], share: float) -> Iterator[tuple[str, ChangeBatch]]:
    """Yield the batches of the first rows of all streams, by turns."""
    sources = {each.table: each for each in plan.operators if isinstance(each, op.Source)}
    rows = int(share * max(len(columns["ts"]) for columns in data.values()))
    arrays = {
        table: {
            "ts": pa.array(columns["ts"]).cast(pa.timestamp("us")), "k": pa.array(columns["k"]),
            "v": pa.array(columns["v"]),
        }
        for table, columns in data.items()
    }  # fmt: skip
    for first in range(0, rows, BATCH):
        size = min(BATCH, rows - first)
        for table, source in sources.items():
            start = data[table]["ts"][first : first + size]
            columns = tuple(arrays[table][column.name].slice(first, size) for column in source.columns)
            yield source.id, ChangeBatch(columns, start, None, None, int(start[-1]) + 1)


def run(case: Case, data: Mapping[str, Mapping[str, Any]], share: float = 1.0) -> Measured:
    """Run a case on a fresh executor."""
    plan = plan_of(case.query)
    batches = list(batches_of(plan, data, share))
    executor = Executor(plan)
    answers = net = width = 0
    cpu, wall = time.process_time(), time.perf_counter()
    for source, batch in batches:
        executor.push(source, batch)
        executor.run()
        taken = executor.take("q")
        answers += _coming(taken)
        net += int(taken.weights.sum())
        width = sum(column.nbytes for column in taken.columns) // max(len(taken), 1)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    stores = sum(store.nbytes for store in executor.stores.values())
    state = stores + sum(operator.nbytes for operator in executor.operators.values())
    for source in {source for source, _ in batches}:
        executor.end(source)
    executor.run()
    answers += _coming(executor.take("q"))
    rows = sum(len(batch) for _, batch in batches)
    return Measured(cpu, wall, rows, answers, stores, state, _alive(case, batches), net * width)


def _coming(batch: ChangeBatch) -> int:
    return int(np.maximum(batch.weights, 0).sum())


def _alive(case: Case, batches: list[tuple[str, ChangeBatch]]) -> int:
    """Return the bytes of the rows that are in the window at the end."""
    last = max(batch.until for _, batch in batches) - 1
    alive = 0
    for _, batch in batches:
        first = int(np.searchsorted(batch.start, last - case.window, side="right"))
        alive += sum(column.nbytes for column in batch.slice(first, len(batch)).columns)
    return alive


def measured(case: Case) -> Measured:
    """Return the median run, by time of the processor, after a warm-up."""
    data = columns_of(case)
    run(case, data, share=0.1)
    runs = sorted((run(case, data) for _ in range(RUNS)), key=lambda each: each.cpu)
    return runs[RUNS // 2]


def offline(case: Case) -> tuple[float, int]:
    """Return the rows per second of DuckDB, and how many rows its answer has."""
    connection = duckdb.connect(config={"threads": 1})
    rows = 0
    for name, columns in columns_of(case).items():
        connection.register(f"given_{name}", pa.table(columns))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        rows += len(columns["ts"])
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        connection.execute(f"CREATE OR REPLACE TABLE answer AS {case.offline}")
        seconds.append(time.process_time() - started)
    count = connection.execute("SELECT count(*) FROM answer").fetchall()[0][0]
    return rows / statistics.median(seconds), int(count)


# ------------------------------------------------------------------------------------------------- signed elements


class SignedRangeWindow(RangeWindow):
    """A time window that says that a row comes, and in an element of its own that it goes."""

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        assert isinstance(self.node.window, bound.RangeSpec)
        start, end = range_lifetime(self.node.window, batch.start)
        leaving = np.flatnonzero(end < FOREVER)
        gone = batch.take(leaving)
        return ChangeBatch(
            concat_columns([batch.columns, gone.columns]),
            np.concatenate([start, end[leaving]]),
            None,
            np.concatenate([np.ones(len(start), np.int64), np.full(len(leaving), -1)]),
            batch.until,
        )


def _signed_window(node: op.SeqWindow, context: Any) -> Any:
    if isinstance(node.window, bound.RangeSpec):
        return SignedRangeWindow(node, context)
    return window_operator(node, context)


@contextmanager
def signed_elements() -> Iterator[None]:
    """Run time windows on signed elements: nobody knows the end of a row before it comes."""
    rule: Callable[[op.Operator], LifetimeRule] = synopses._rule

    def stored(producer: op.Operator) -> LifetimeRule:
        found = rule(producer)
        return found if isinstance(found, RowsEnds) else StoredEnds()

    with ExitStack() as stack:
        signed = replace(IMPLEMENTATIONS[op.SeqWindow], make=_signed_window)
        stack.enter_context(patch.dict(IMPLEMENTATIONS, {op.SeqWindow: signed}))
        stack.enter_context(patch.object(synopses, "_rule", stored))
        stack.enter_context(patch.object(synopses, "final_ends", lambda plan: frozenset()))
        yield


# ------------------------------------------------------------------------------------------------------------ table


def _millions(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e6:.2f} M"


def _rates() -> None:
    heads = ("rows per second", "CPU", "wall", "target", "DuckDB", "answer rows", "DuckDB")
    print(f"{heads[0]:<34}{heads[1]:>10}{heads[2]:>10}{heads[3]:>10}{heads[4]:>10}{heads[5]:>14}{heads[6]:>12}")
    for case in CASES:
        found = measured(case)
        rate, answers = offline(case)
        by_cpu, by_wall = found.rows / found.cpu, found.rows / found.wall
        print(
            f"{case.name:<34}{_millions(by_cpu):>10}{_millions(by_wall):>10}{_millions(case.target):>10}"
            f"{_millions(rate):>10}{found.answers:>14,}{answers:>12,}",
            flush=True,
        )


def _windows() -> None:
    """Print what a longer window costs, from runs by turns, and how much state there is."""
    print(f"\n{'a window ten times as long':<34}{'short':>10}{'long':>10}{'ratio':>10}{'target':>10}")
    for short, long in ((SHORT_JOIN, LONG_JOIN), (SHORT_RANGE, LONG_RANGE)):
        data = columns_of(short), columns_of(long)
        turns = [(run(short, data[0]), run(long, data[1])) for _ in range(2 * RUNS + 1)][1:]
        before, after = (statistics.median(pair[at].cost for pair in turns) for at in (0, 1))
        print(f"{long.name:<34}{before * 1e9:>7.0f} ns{after * 1e9:>7.0f} ns{after / before:>10.2f}{'1.3':>10}")
        first, last = turns[-1]
        print(
            f"{'  bytes of stores / of window':<34}{first.stores / first.alive:>10.2f}{last.stores / last.alive:>10.2f}"
        )
        print(f"{'  all state / window and result':<34}{first.density:>10.2f}{last.density:>10.2f}{'':>10}{'2':>10}")


def _signs() -> None:
    print(f"\n{'signed elements instead':<34}{'lifetimes':>10}{'signed':>10}{'ratio':>10}")
    for case in (CASES[0], CASES[1], CASES[5], CASES[6]):
        known = measured(case)
        with signed_elements():
            signed = measured(case)
        assert known.answers == signed.answers, f"{case.name}: another answer"
        print(
            f"{case.name:<34}{_millions(known.rows / known.cpu):>10}{_millions(signed.rows / signed.cpu):>10}"
            f"{signed.cpu / known.cpu:>10.2f}",
            flush=True,
        )


def _statistics() -> None:
    """Print what counting costs: the difference of two runs, which is mostly noise, and calls times their cost."""
    work = OperatorWork(Estimate(1.0, 1.0))
    cost = timeit.timeit(lambda: work.record(BATCH, BATCH, 0.001), number=100_000) / 100_000
    print(f"\n{'statistics':<34}{'with':>10}{'without':>10}{'differ by':>10}{'counted':>10}{'target':>10}")
    for case in (CASES[0], CASES[4]):
        data = columns_of(case)
        run(case, data, share=0.1)
        with_them, without = [], []
        for _ in range(2 * RUNS + 1):
            with_them.append(run(case, data).cpu)
            with patch.object(OperatorWork, "record") as record:
                without.append(run(case, data).cpu)
        counted, plain = min(with_them), min(without)
        share = 100 * record.call_count * cost / plain
        print(
            f"{case.name:<34}{counted:>8.3f} s{plain:>8.3f} s{100 * (counted / plain - 1):>8.1f} %"
            f"{share:>8.2f} %{'2 %':>10}"
        )


def main() -> None:
    """Run the benchmark and print its tables."""
    _rates()
    _windows()
    _signs()
    _statistics()
