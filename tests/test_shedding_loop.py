"""The loop on a simulated machine: whatever the first micro-batch takes, answers are in time from then on.

What decides is the shedder of Spark, on a clock of the test's own; a micro-batch is a sum of costs with noise. A stream
comes all the time at a multiple of what the machine can do. Answers are in time if they are handed over within the
bound; those of windows that ended before the first decision are not meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cql.catalog import Catalog
from cql.intervals import TimeDomain
from planner.plan import combine
from runtime.controllers.decision_log import DecisionLog
from runtime.controllers.shedder import Shedder
from runtime.engine.statistics import Figures
from runtime.reports.progress import Batch, Progress
from shedding.insert_drops import compile_all
from shedding.schedule import Schedule

SECOND = 1_000_000
BEGAN = 1_700_000_000.0


@dataclass
class Machine:
    """A machine that processes a stream with shedding; times are in seconds from when the stream began."""

    rate: float
    row: float
    """What a row costs."""
    window: float = 0.25
    slide: float | None = None
    bound: float = 20.0
    max_gap: int = 20
    fixed: float = 0.6
    cold: float = 10.0
    """How much longer the first micro-batch takes."""
    noise: float = 0.0
    """By which share times are off, at most."""
    processors: int = 2
    seed: int = 0
    can_be_limited: bool = True
    says_amounts: bool = True
    file: float = 0.25
    """How many seconds of the stream come at once."""
    is_clock: bool = True
    """Whether instants are those of the clock on the wall; otherwise they are seconds of the stream as INTEGER."""
    offset: float = 0.0
    """By how much all rows come late by the clock."""
    changes: dict[float, tuple[float, float]] = field(default_factory=dict)
    """From when on other rates and costs of rows hold."""
    now: float = 0.0
    taken: float = 0.0
    """Up to when rows have been read."""
    delays: dict[float, float] = field(default_factory=dict)
    """By the ends of windows that were delivered."""
    lengths: list[tuple[float, float, float, float]] = field(default_factory=list)
    """When micro-batches began, how long they took, how many rows they had and kept."""

    def run(self, seconds: float, begin: float = 0.0) -> None:
        """Let the job start at a time, and run."""
        with (
            TemporaryDirectory() as folder,
            patch("runtime.controllers.shedder.time.time", lambda: BEGAN + self.now),
            patch("runtime.controllers.shedder.time.monotonic", lambda: self.now),
        ):
            self.now = begin
            self._run(self._shedder(Path(folder)), seconds)

    def _shedder(self, folder: Path) -> Shedder:
        kind = "TIMESTAMP" if self.is_clock else "INT"
        slide = self.window if self.slide is None else self.slide
        query = (
            f"SELECT Rstream(COUNT(*) AS n) FROM s [Range {round(self.window * 1000)} Milliseconds "
            f"Slide {round(slide * 1000)} Milliseconds]"
            if self.is_clock
            else f"SELECT Rstream(COUNT(*) AS n) FROM s [Range {round(self.window)} Slide {round(slide)}]"
        )
        catalog = Catalog()
        catalog.execute(
            f"CREATE STREAM s (k INT, t {kind}) TIMESTAMP BY t; REGISTER QUERY q AS {query} "
            f"WITH (shedding = 'window', max_gap = {self.max_gap}, max_latency = '{self.bound:g} seconds');"
        )
        self.plan = combine(compile_all(catalog.queries.values()))
        (self.drop,) = [each.id for each in self.plan.operators if each.kind == "window-drop"]
        return Shedder(DecisionLog(folder), self.plan, list(catalog.queries.values()), processors=self.processors)

    def _tick(self, at: float) -> int:
        """Return the instant of a row that comes at a time."""
        return round((BEGAN + at - self.offset) * SECOND) if self.is_clock else math.floor(at - self.offset) + 1000

    def _end(self, instant: int) -> float:
        """Return when an instant is, but for the offset."""
        return instant / SECOND - BEGAN + self.offset if self.is_clock else instant - 1000 + self.offset

    def _pace(self, at: float) -> tuple[float, float]:
        """Return the rate and the cost of a row at a time."""
        return next(
            (pace for since, pace in sorted(self.changes.items(), reverse=True) if at >= since), (self.rate, self.row)
        )

    def _run(self, shedder: Shedder, seconds: float) -> None:
        rng, batch, passed, read, busy = Random(self.seed), 0, 0, 0, 0.0
        newest, first = None, None
        while self.now < seconds:
            there = math.floor(self.now / self.file) * self.file
            times = shedder.most_times() if self.can_be_limited else None
            most = None if times is None else times * self.lengths[-1][2] if self.lengths else 0.0
            upto = self.taken
            count = 0.0
            while upto < there and (most is None or count == 0 or count < most):
                count += self._pace(upto)[0] * self.file
                upto += self.file
            if upto == self.taken:
                self.now += 0.1
                continue
            shedder.begin(batch, [count * 40.0] if self.says_amounts else [])
            # Rows of a quarter of a second are taken together, evenly spread over some instants.
            rows, kept, cost = 0, 0, 0.0
            schedule: Schedule = next(iter(shedder._schedules.all.values()))
            length, size = schedule.length, next(o.size for o in self.plan.operators if o.id == self.drop)
            at = self.taken
            while at < upto - 1e-9:
                rate, row = self._pace(at)
                for part in range(5):
                    instant = self._tick(at + (part + 0.5) * self.file / 5)
                    first = instant if first is None else first
                    lost = schedule.all_lost(
                        np.array([-(-instant // length)]), np.array([-(-(instant + size) // length) - 1])
                    )[0]
                    n = round(rate * self.file / 5)
                    rows, kept = rows + n, kept + (0 if lost else n)
                    cost += 0.0 if lost else n * row
                    newest = instant
                at += self.file
            off = 1 + self.noise * rng.uniform(-1, 1)
            worked = cost * off
            took = self.fixed * (1 + self.noise * rng.uniform(0, 2)) + 2e-6 * rows + worked / self.processors
            took += self.cold if batch == 0 else 0.0
            self.lengths.append((self.now, took, rows, kept))
            self.now += took
            self.taken = upto
            read, passed, busy = read + rows, passed + kept, busy + worked + (0.2 if batch == 0 else 0.0)
            self._deliver(schedule, newest)
            done = Batch("", batch, self.now, took, rows, 1, 0, 0, {}, {}, 0, None, None)
            figures = (Figures(self.plan.operators[-1].id, "operator", "output", seconds=busy),)
            clock = TimeDomain.TIMESTAMP if self.is_clock else TimeDomain.INTEGER
            progress = Progress(time=clock, newest=newest, closed=newest, course=(done,), figures=figures)
            shedder.done(progress, {self.drop: (read, passed)}, {}, first=first)
            batch += 1
            self.now += 0.15

    def _deliver(self, schedule: Schedule, newest: int) -> None:
        """Note which windows are handed over now."""
        ticks = schedule.length
        for unit in range(self._unit, newest // ticks + 1) if self._unit else ():
            if schedule.kept(np.array([unit]))[0]:
                end = self._end(unit * ticks)
                self.delays[end] = self.now - end
        self._unit = newest // ticks + 1

    _unit: int = 0

    @property
    def first_decision(self) -> float:
        began, took, *_ = self.lengths[0]
        return began + took

    def late(self, since: float) -> dict[float, float]:
        """Return the delays of windows that ended after a time and were later than the bound, from when rows came."""
        return {end: delay for end, delay in self.delays.items() if end > since and delay > self.bound + self.file}

    def share(self, since: float, until: float, step: float | None = None) -> float:
        """Return which share of the windows of some time was delivered."""
        step = self.window if step is None else step
        return sum(since < end <= until for end in self.delays) / ((until - since) / step)


@pytest.mark.parametrize("load", [5.0, 10.0])
@pytest.mark.parametrize("can_be_limited", [True, False])
def test_after_a_first_micro_batch_of_74_seconds_answers_are_in_time(load: float, can_be_limited: bool) -> None:
    machine = Machine(rate=1000 * load, row=0.002, cold=74.0, can_be_limited=can_be_limited)
    machine.run(200)
    assert machine.late(machine.first_decision) == {}
    assert machine.share(machine.first_decision + 20, 190) > 0.8 / load


@settings(max_examples=25, deadline=None)
@given(
    load=st.floats(1.1, 12.0),
    cold=st.floats(0.0, 80.0),
    begin=st.floats(0.0, 40.0),
    noise=st.floats(0.0, 0.15),
    max_gap=st.integers(10, 40),
    window=st.sampled_from([0.25, 0.5, 1.0]),
    processors=st.sampled_from([1, 2, 4]),
    row=st.sampled_from([0.0005, 0.002, 0.02]),
    others=st.fixed_dictionaries({}, optional={"offset": st.floats(0.0, 200.0), "can_be_limited": st.booleans()}),
    seed=st.integers(0, 99),
)
@example(10.0, 74.0, 0.0, 0.1, 10, 0.25, 2, 0.002, {}, 1)
@example(5.0, 74.0, 30.0, 0.1, 20, 1.0, 1, 0.002, {"offset": 100.0}, 2)
def test_answers_are_in_time_from_the_first_decision_on(
    load: float,
    cold: float,
    begin: float,
    noise: float,
    max_gap: int,
    window: float,
    processors: int,
    row: float,
    others: dict[str, Any],
    seed: int,
) -> None:
    """A window is processed in less than a third of the bound, by as many processors as there are."""
    machine = Machine(
        rate=min(load, 6.0 / window) * processors / row,
        row=row,
        window=window,
        max_gap=max_gap,
        cold=cold,
        noise=noise,
        processors=processors,
        seed=seed,
        **others,
    )
    machine.run(begin + cold + 120, begin)
    assert machine.late(machine.first_decision) == {}


def test_times_are_kept_when_rows_cost_more_or_more_of_them_come_and_nothing_is_lost_when_there_is_room() -> None:
    paces = {100.0: (8000.0, 0.002), 200.0: (1000.0, 0.008), 300.0: (400.0, 0.002)}
    machine = Machine(rate=2000, row=0.002, changes=paces, noise=0.1)
    machine.run(400)
    late = machine.late(machine.first_decision)
    assert all(any(0 <= end - change <= 25 for change in paces) for end in late), "it takes a while to find out"
    assert machine.share(350, 390) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("cold", [2.0, 4.0])
@pytest.mark.parametrize("file", [0.05, 0.25])
def test_nothing_is_lost_while_there_is_time_for_everything(load: float, cold: float, file: float) -> None:
    machine = Machine(rate=1000 * load, row=0.002, cold=cold, noise=0.1, file=file)
    machine.run(100)
    assert sum(kept for *_, kept in machine.lengths) == sum(rows for *_, rows, _ in machine.lengths)


def test_when_nothing_can_be_in_time_nothing_is_late() -> None:
    """A window of two seconds takes 40 seconds."""
    machine = Machine(rate=20_000, row=0.002, window=2.0, cold=30.0)
    machine.run(150)
    assert machine.late(machine.first_decision) == {}


def test_what_was_lost_altogether_comes_back() -> None:
    """At first, one of two processors seems to do the work."""
    machine = Machine(rate=10_000, row=0.002, window=1.0, cold=30.0, is_clock=False)
    machine.run(150)
    assert machine.share(100, 140) > 0.05
