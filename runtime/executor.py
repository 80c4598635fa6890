"""The executor: runs the operators of a plan on batches that are pushed into its sources.

Operators are connected by queues and run one chunk at a time, in the order that a scheduling policy chooses. What
comes out of a query, netted per instant, depends on what was pushed in and on nothing else: not on the policy, on
the size of chunks, on sharing, or on how the input was cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from planner import operators as op
from planner.plan import Plan
from runtime.batch import BEGINNING, FOREVER, ChangeBatch, Ints, concat, empty_batch
from runtime.clock import SourceClock
from runtime.operators import Context, Operator, make_operator
from runtime.operators.streams import RStream, netted_changes
from runtime.queues import Queue
from runtime.scheduling import Ready, scheduler
from runtime.statistics import Snapshot, Statistics
from runtime.synopses import final_ends, make_stubs, netted
from runtime.types import arrow_type

CHUNK_ROWS = 1 << 16


class Executor:
    """A plan at work.

    `functions` holds the code of user functions and aggregates by name. With `check`, every batch is checked for
    breaking the rules of batches.
    """

    def __init__(
        self,
        plan: Plan,
        functions: Mapping[str, Any] | None = None,
        *,
        policy: str = "chain",
        chunk_rows: int = CHUNK_ROWS,
        check: bool = False,
    ) -> None:
        self.plan = plan
        self._chunk_rows = chunk_rows
        self._check = check
        self._types = {each.id: tuple(arrow_type(c.type) for c in each.columns) for each in plan.operators}
        watched = [t.source for each in plan.operators if isinstance(each, op.RStream) for t in each.clock]
        sources = [each for each in plan.operators if isinstance(each, op.Source)]
        self.clock = SourceClock([(each.id, each.time is not None) for each in sources], watched)
        self._static: dict[str, ChangeBatch] = {}
        self.stores, stubs = make_stubs(plan, self._types)
        context = Context(self.clock, functions or {}, self._types, stubs, final_ends(plan), netted(plan))
        self._operators: dict[str, Operator] = {
            each.id: make_operator(each, context) for each in plan.operators if not isinstance(each, op.Source)
        }
        self._rstreams = [each for each in self._operators.values() if isinstance(each, RStream)]
        self._queues = {
            each.producer: Queue(each.id, each.readers, plan.by_id[each.producer].is_stream) for each in plan.queues
        }
        self._inputs = {
            f"{each.id}:{port}": (each.id, port, self._queues[edge.operator])
            for each in plan.operators
            for port, edge in enumerate(each.inputs)
        }
        self._readers = {each.producer: each.readers for each in plan.queues}
        self._waiting: dict[str, Ready] = {}
        self._heartbeats = dict.fromkeys(self._types, BEGINNING)
        self._results = {each.query: _Results() for each in plan.operators if isinstance(each, op.Output)}
        self._query_sources = {
            each.query: [below.id for below in plan.below(each) if isinstance(below, op.Source)]
            for each in plan.operators
            if isinstance(each, op.Output)
        }
        self.statistics = Statistics(plan, self._queues.values())
        self._scheduler = scheduler(policy, plan, self.statistics)
        self._arrivals = 0

    # Input

    def push(self, source: str, batch: ChangeBatch) -> None:
        """Hand over the next batch of a stream or of a relation that changes."""
        self.clock.sources[source].note(batch)
        self._enter(source, batch)
        self._pass_time()

    def push_static(self, source: str, columns: tuple[pa.Array, ...]) -> None:
        """Hand over the contents of a static relation."""
        count = len(columns[0]) if columns else 0
        self._static[source] = ChangeBatch(columns, np.zeros(count, np.int64), None, None, BEGINNING)
        self._pass_time()

    def end(self, source: str) -> None:
        """Say that nothing more comes from a source."""
        self.clock.sources[source].has_ended = True
        self._pass_time()

    def _enter(self, source: str, batch: ChangeBatch) -> None:
        self.statistics.sources[source].record(len(batch))
        self._put(source, batch, self._arrivals)
        self._arrivals += 1

    def _pass_time(self) -> None:
        """Move on the sources that have nothing to say themselves."""
        if not self.clock.has_begun:
            return
        until, beginning = self.clock.passed, self.clock.beginning
        if until <= beginning:
            return
        for name, contents in list(self._static.items()):
            del self._static[name]
            self._enter(name, replace(contents, start=np.full(len(contents), beginning), until=until))
        for name, source in self.clock.sources.items():
            released = not source.is_timed and name not in self._static and self._heartbeats[name] > BEGINNING
            if (source.has_ended or released) and self._heartbeats[name] < until:
                self._put(name, empty_batch(self._types[name], until), self._arrivals)

    # Work

    def run(self) -> None:
        """Process everything that waits."""
        while self.step():
            pass

    def step(self) -> bool:
        """Process one chunk; return False if there is nothing to do."""
        if not self._waiting:
            return False
        readers = list(self._waiting)
        reader = readers[self._scheduler.next(list(self._waiting.values()))]
        arrival = self._waiting[reader].arrival
        operator_id, port, queue = self._inputs[reader]
        batch = queue.pop(reader, self._chunk_rows)
        self._note_waiting(reader)
        operator = self._operators[operator_id]
        started = perf_counter()
        made = operator.process(port, batch)
        self.statistics.operators[operator_id].record(len(batch), len(made), perf_counter() - started)
        self._put(operator_id, made, arrival)
        return True

    def _put(self, producer: str, batch: ChangeBatch, arrival: int) -> None:
        """Pass on what an operator has put out."""
        since = self._heartbeats[producer]
        if self._check:
            batch.check(self.plan.by_id[producer].is_stream, since)
            assert tuple(c.type for c in batch.columns) == self._types[producer], f"{producer} puts out other types"
        if not len(batch) and batch.until == since:
            return
        self._heartbeats[producer] = batch.until
        node = self.plan.by_id[producer]
        if isinstance(node, op.Output):
            self._results[node.query].add(batch)
        elif producer in self._queues:
            self._queues[producer].put(batch, arrival)
            for reader in self._readers[producer]:
                self._note_waiting(reader)

    def _note_waiting(self, reader: str) -> None:
        operator, port, queue = self._inputs[reader]
        waiting = queue.waiting(reader)
        if waiting is None:
            self._waiting.pop(reader, None)
        else:
            self._waiting[reader] = Ready(operator, port, *waiting)

    # Results

    def take(self, query: str) -> ChangeBatch:
        """Take the results of a query that are complete and have not been taken yet, in the order of time.

        The start of a row is its instant; its weight is positive if it comes, negative if it goes.
        """
        output = self.plan.output(query)
        if self._rstreams:
            self.clock.forget_before(min(each.spoken_until for each in self._rstreams))
        first, last = self.clock.span(self._query_sources[output.query])
        results = self._results[output.query]
        if first is None:
            return empty_batch(self._types[output.id], results.until)
        return _within(results.take(self._types[output.id]), first, last, self.clock.beginning, output.is_stream)

    def statistics_now(self) -> Snapshot:
        """Return all figures as they are now."""
        for name, operator in self._operators.items():
            self.statistics.state[name].record(0, operator.nbytes)
        for name, store in self.stores.items():
            self.statistics.stores[name].record(len(store), store.nbytes)
        return self.statistics.snapshot()


class _Results:
    """What a query has put out and nobody has taken."""

    def __init__(self) -> None:
        self._batches: list[ChangeBatch] = []
        self.until = BEGINNING

    def add(self, batch: ChangeBatch) -> None:
        self.until = batch.until
        if len(batch):
            self._batches.append(batch)

    def take(self, types: tuple[pa.DataType, ...]) -> ChangeBatch:
        batches, self._batches = self._batches, []
        return concat(batches).with_until(self.until) if batches else empty_batch(types, self.until)


def _within(batch: ChangeBatch, first: int, last: int, beginning: int, is_stream: bool) -> ChangeBatch:
    """Return the results of a query within the instants that it is about.

    What is there before its first instant is there from then on.
    """
    instants: Ints = batch.start
    if not len(batch) or (int(instants[0]) >= first and int(instants[-1]) <= last):
        return batch
    if last < FOREVER:
        kept = instants <= max(last, beginning)
        batch, instants = batch.filter(kept), instants[kept]
    if is_stream:
        kept = (instants >= first) | (instants == beginning)
        batch, instants = batch.filter(kept), instants[kept]
    clamped = np.clip(instants, first, max(first, last))
    if is_stream:
        return replace(batch, start=clamped)
    start, weight, columns = netted_changes(clamped, batch.weights, batch.columns)
    return ChangeBatch(columns, start, None, weight, batch.until)
