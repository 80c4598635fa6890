"""A stream that comes at a multiple of a fixed capacity before the job has started, and goes on for five minutes.

A function that takes 2 ms for each row fixes the capacity. Files are written by the clock on the wall from before the
engine is started, so that the first micro-batch is cold and all that comes meanwhile waits; `CQL_COLD=74` makes it last
at least so many seconds. With a bound of `BOUND` seconds on the delay of answers:

- from as many seconds after the first micro-batch on, no window may be handed over later than that;
- every window that is delivered is computed again from the files, and has to be the same;
- rows in the windows that were delivered and rows that were lost are all rows, but for those of the last window, which
  is still open;
- after the load, at half of the capacity, nothing is lost any more.

`CQL_LOADS=5,10` picks loads, `CQL_SECONDS=300` says for how long. It prints as it goes.
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

import cql
from benchmarks.overload import FILE_SECONDS, QUERY, SECOND, STREAM, Delivered, Feed, Outcome, windows_between
from runtime.reports.progress import Batch

BOUND = 20.0
MAX_GAP = 20
ROW_SECONDS = 0.002
CALM_SECONDS = 60.0
TOLD_EVERY = 10.0


@dataclass
class Numbered(Feed):
    """Rows of which no two have the same value: functions are called once for equal arguments."""

    next_value: int = 0

    def values(self, count: int) -> dict[str, np.ndarray]:
        """Return the columns of so many rows, but for their instants."""
        found = super().values(count)
        found["v"] = np.arange(self.next_value, self.next_value + count, dtype=np.int32)
        self.next_value += count
        return found


def new_engine(cold: float) -> cql.Engine:
    """Return an engine with a function that takes its time; the first call in each process takes that once more."""
    engine = cql.Engine()

    @engine.function
    def burnt(value: int) -> int:
        if cold and "CQL_IS_WARM" not in os.environ:
            os.environ["CQL_IS_WARM"] = "yes"
            time.sleep(cold)
        time.sleep(ROW_SECONDS)
        return value

    return engine


def capacity() -> float:
    """Return how many rows a second are processed when there is always enough to do."""
    engine, folder = new_engine(0.0), Path(tempfile.mkdtemp(prefix="cql-coldstart-"))
    try:
        feed = Numbered(folder, 0.0)
        engine.execute("SET files = follow;" + STREAM.format(folder=folder))
        engine.register("q", QUERY, into=Delivered())
        engine.start()
        due = time.time()
        for _ in range(3):
            for _ in range(16):
                feed.write(due, 2000)
                due += FILE_SECONDS
            engine.process_available()
        return median(batch.rows_in / batch.seconds for batch in engine.history() if batch.rows_in >= 1000)
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Course:
    """What came of a run."""

    outcome: Outcome
    started: float
    first_done: float
    """When the first micro-batch was done."""
    processed: int
    lost: int
    batches: list[Batch]

    @property
    def late(self) -> dict[float, float]:
        """The windows that were handed over too late, by their ends, of those that ended after the first seconds."""
        ends = {end / SECOND: delay for end, (_, delay) in self.outcome.delivered.delays.items()}
        return {end: delay for end, delay in ends.items() if delay > BOUND and end >= self.first_done + BOUND}

    @property
    def calm_share(self) -> float:
        """The share of windows that was delivered in the second half of the time after the load."""
        ends = windows_between(self.outcome.ended + CALM_SECONDS / 2, self.outcome.ended + CALM_SECONDS - 1)
        return len(self.outcome.delivered.delays.keys() & set(ends)) / len(ends)


def course(rate: float, calm: float, seconds: float, cold: float) -> Course:
    """Let the stream come at a rate before the engine is started, for some seconds, and then at a lower one."""
    folder = Path(tempfile.mkdtemp(prefix="cql-coldstart-"))
    feed, delivered = Numbered(folder, rate), Delivered()
    began = time.time()
    feeding = threading.Thread(target=feed.run, args=([(seconds, rate), (CALM_SECONDS, calm)],))
    engine = new_engine(cold)
    try:
        engine.execute("SET files = follow;" + STREAM.format(folder=folder))
        engine.register(
            "q", QUERY, into=delivered, shedding="window", max_gap=MAX_GAP, max_latency=f"{BOUND:g} seconds"
        )
        feeding.start()
        engine.start()
        while feeding.is_alive():
            feeding.join(TOLD_EVERY)
            _tell(engine, delivered, time.time() - began)
        engine.process_available()
        batches = [batch for batch in engine.history() if batch.rows_in]
        (loss,) = [each for each in [engine.query("q").shedding()] if each is not None]
        read = sum(batch.rows_in for batch in batches)
        counted = sum(n for rows in delivered.rows.values() for n, _ in rows.values())
        outcome = Outcome(began, began + seconds, delivered, feed, feed.behind)
        outcome = Outcome(began, began + seconds, delivered, feed, feed.behind, outcome.count_wrong())
        assert read == feed.rows, f"{read} rows were read of {feed.rows}"
        still_open = feed.rows - counted - loss.rows_dropped
        assert 0 <= still_open <= FILE_SECONDS * calm + 1, f"{still_open} rows are nowhere"
        return Course(outcome, began, batches[0].at, counted, loss.rows_dropped, batches)
    finally:
        engine.stop()
        feeding.join()
        shutil.rmtree(folder, ignore_errors=True)


def _tell(engine: cql.Engine, delivered: Delivered, now: float) -> None:
    batches = [batch for batch in engine.history() if batch.rows_in]
    last = batches[-1] if batches else None
    recent = [delay for at, delay in delivered.delays.values() if at > time.time() - TOLD_EVERY]
    loss = engine.query("q").shedding()
    print(
        f"{now:>6.0f} s: {len(batches)} micro-batches"
        + (f", the last of {last.rows_in:,} rows in {last.seconds:.1f} s" if last else "")
        + (f"; {len(recent)} windows, {min(recent):.1f} to {max(recent):.1f} s late" if recent else "; no windows")
        + (f"; losing {loss.wanted:.1%}" if loss else ""),
        flush=True,
    )


def _shown(load: float, found: Course, rate: float) -> str:
    outcome = found.outcome
    delays = outcome.delays(found.first_done, outcome.ended) or [float("nan")]
    possible = min(1.0, 1 / load)
    return (
        f"load {load:g} ({rate:,.0f} rows/s): first micro-batch done after {found.first_done - found.started:.1f} s; "
        f"delay after that: median {median(delays):.1f} s, longest {max(delays):.1f} s; "
        f"delivered {outcome.share:.1%} of {possible:.0%}; longest gap {outcome.longest_gap()}; "
        f"{found.calm_share:.0%} delivered after the load; wrong {outcome.wrong}; "
        f"rows {outcome.feed.rows:,} = {found.processed:,} processed + {found.lost:,} lost"
        + (f"; the feed was {outcome.behind:.1f} s late" if outcome.behind > 1 else "")
    )


def _broken(load: float, found: Course) -> list[str]:
    """Return what does not hold."""
    outcome = found.outcome
    held = {
        f"no window after the first seconds is later than {BOUND:g} s: {found.late}": not found.late,
        "something is delivered": outcome.share > 0.3 / load,
        "what is delivered is right": outcome.wrong == 0,
        "it recovers": found.calm_share > 0.95,
    }
    return [f"load {load:g}: {what}: no" for what, holds in held.items() if not holds]


def main() -> None:
    """Run the benchmark and print what came of it."""
    seconds = float(os.environ.get("CQL_SECONDS", "300"))
    loads = [float(load) for load in os.environ.get("CQL_LOADS", "5,10").split(",")]
    cold = float(os.environ.get("CQL_COLD", "0"))
    found = float(os.environ.get("CQL_CAPACITY", "0")) or capacity()
    print(f"capacity: {found:,.0f} rows a second; bound {BOUND:g} s; {seconds:g} s of each load", flush=True)
    broken: list[str] = []
    for load in loads:
        outcome = course(load * found, found / 2, seconds, cold)
        print(_shown(load, outcome, load * found), flush=True)
        broken += _broken(load, outcome)
    assert not broken, "; ".join(broken)
    print("no answer was later than the bound after the first seconds, nothing wrong, all rows counted: yes")


if __name__ == "__main__":
    main()
