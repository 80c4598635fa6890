"""The executor: runs the operators of a plan on batches that are pushed into its sources.

Operators are connected by queues and run one chunk at a time, in the order that a scheduling policy chooses. What
follows from a chunk may be much more than the chunk: then it comes in pieces, and before the next one those above the
operator work on the one that is there, so that no queue ever holds the whole. What comes out of a query, netted per
instant, depends on what was pushed in and on nothing else: not on the policy, on the size of chunks and pieces, on
sharing, or on how the input was cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from cql.settings import OnBadRow
from planner import operators as op
from planner.plan import Plan
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, BLOCK_ROWS, ChangeBatch, Columns, Ints, concat, empty_batch
from runtime.engine.memory_bound import Memory
from runtime.engine.queues import Queue
from runtime.engine.scheduling import Ready, scheduler
from runtime.engine.statistics import Snapshot, Statistics, Steps
from runtime.operators import Context, Operator, make_operator
from runtime.operators.aggregate import Aggregate
from runtime.operators.joins import counted_by
from runtime.operators.ledger import Ledger
from runtime.operators.streams import RStream
from runtime.state.bind_synopses import final_ends, make_stubs, netted
from runtime.time.clock import SourceClock, clock_of
from runtime.user_errors import UserFunctionFailed
from shedding.budgets import evenly
from shedding.insert_drops import schedules_of
from shedding.join_deciders import Choices
from shedding.schedule import Schedule

CHUNK_ROWS = 1 << 16


class Executor:
    """A plan at work.

    `functions` holds the code of user functions and aggregates by name. With `check`, every batch is checked for
    breaking the rules of batches. What is kept may take `max_bytes`. A `clock` that is given is kept by the caller:
    then sources say themselves how far they are; without one, `closes_windows` says whether time passes at the end
    until windows that have begun have ended. `schedules` that are given are kept by the caller as well. What the
    operators of `taps` put out can be taken as it is. `on_bad_row` is for logs that remove rows that are not there. It
    is one `bucket` of so many `buckets`, which share the memory that joins may use.
    """

    def __init__(
        self,
        plan: Plan,
        functions: Mapping[str, Any] | None = None,
        *,
        policy: str = "chain",
        chunk_rows: int = CHUNK_ROWS,
        block_rows: int = BLOCK_ROWS,
        max_bytes: int | None = None,
        check: bool = False,
        clock: SourceClock | None = None,
        closes_windows: bool = False,
        on_bad_row: OnBadRow = "fail",
        schedules: Mapping[str, Schedule] | None = None,
        taps: Iterable[str] = (),
        bucket: int = 0,
        buckets: int = 1,
    ) -> None:
        self.plan = plan
        self._chunk_rows = chunk_rows
        self._block_rows = block_rows
        self._check = check
        self._types = {each.id: tuple(arrow_type(c.type) for c in each.columns) for each in plan.operators}
        self._keeps_clock = clock is None
        self.clock = clock_of(plan, closes_windows) if clock is None else clock
        self._static: dict[str, ChangeBatch] = {}
        self.stores, self.stubs = make_stubs(plan, self._types)
        self.schedules = schedules_of(plan) if schedules is None else dict(schedules)
        self.choices = Choices(plan)
        self._bucket = bucket
        self._budgets = evenly(plan, buckets)
        context = Context(
            self.clock,
            functions or {},
            self._types,
            self.stubs,
            final_ends(plan),
            netted(plan),
            self.schedules,
            self.choices.in_force,
            self._budgets,
            on_bad_row,
            block_rows,
        )
        self._operators: dict[str, Operator] = {
            each.id: make_operator(each, context) for each in plan.operators if each.inputs
        }
        self._ledgers = [each for each in self._operators.values() if isinstance(each, Ledger)]
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
        self._places = {each.id: at for at, each in enumerate(plan.operators)}
        self._memory = None if max_bytes is None else Memory(plan, self._operators, self.stubs, max_bytes)
        self._open: list[_Production] = []
        """What operators have begun to put out, the one that is furthest along its path last."""
        self._heartbeats = dict.fromkeys(self._types, BEGINNING)
        self._results = {each.query: _Results() for each in plan.outputs}
        self.statistics = Statistics(plan, self._queues.values())
        self._scheduler = scheduler(policy, plan, self.statistics)
        self._arrivals = 0
        self._asleep = {
            name: each for name, each in self._operators.items() if isinstance(each, Aggregate) and each.is_always_there
        }
        self._tapped: dict[str, list[ChangeBatch]] = {each: [] for each in taps}
        self._untaken = 0
        """How many rows were put out since the last pause."""

    # Input

    def push(self, source: str, batch: ChangeBatch) -> None:
        """Hand over the next batch of a stream or of a relation that changes."""
        if self._keeps_clock:
            self.clock.sources[source].note(batch)
        self._enter(source, batch)
        if self._keeps_clock:
            self._pass_time()

    def take_combined(
        self,
        aggregate: str,
        keys: Columns,
        rows: Ints,
        calls: Sequence[Mapping[str, pa.Array]],
        start: Ints,
        end: Ints,
    ) -> None:
        """Hand over rows for an aggregate that were combined on their way, around its window."""
        operator = self._operators[aggregate]
        assert isinstance(operator, Aggregate)
        started = perf_counter()
        operator.take_combined(keys, rows, calls, start, end)
        self.statistics.operators[aggregate].record(int(rows.sum()), 0, perf_counter() - started)

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
        self.wake()
        for name, contents in list(self._static.items()):
            beginning, passed = self.clock.first_instant(name), self.clock.passed(name)
            if beginning is not None and beginning < passed:
                del self._static[name]
                self._enter(name, replace(contents, start=np.full(len(contents), beginning), until=passed))
        for name, source in self.clock.sources.items():
            passed = self.clock.passed(name)
            released = not source.is_timed and name not in self._static and self._heartbeats[name] > BEGINNING
            if (source.has_ended or released) and self._heartbeats[name] < passed:
                self._put(name, empty_batch(self._types[name], passed), self._arrivals)

    def wake(self) -> None:
        """Tell aggregates with a row that is always there, once it is known, when always begins."""
        for name in list(self._asleep):
            aggregate = self._asleep[name]
            if aggregate.has_begun:
                del self._asleep[name]
                aggregate.told_until = self._heartbeats[name]
                heartbeat = empty_batch(aggregate.input_types[0], aggregate.heartbeats[0])
                self._begin(name, 0, heartbeat, self._arrivals)

    # Work

    def run(self) -> None:
        """Process everything that waits."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Process everything that waits, with a pause whenever a lot was put out that can be taken."""
        while self.step():
            if self._untaken >= self._block_rows:
                self._untaken = 0
                yield
        for operator in self._operators.values():
            operator.settle()
        self._measure_state()
        if self._keeps_clock:
            self.choices.learn({name: [counted] for name, counted in counted_by(self._operators).items()})
            self.choices.renew()
        if self.schedules:
            behind = min(self._heartbeats.values())
            for schedule in self.schedules.values():
                schedule.forget_before(behind // schedule.length)

    def step(self) -> bool:
        """Process one chunk, or put out the next piece of what follows from one; return False if all is done."""
        waiting = self._waiting
        if self._open:
            above = self._open[-1].place
            waiting = {reader: ready for reader, ready in waiting.items() if self._places[ready.operator] > above}
            if not waiting:
                self._go_on(self._open.pop())
                return True
        if not waiting:
            return False
        readers = list(waiting)
        reader = readers[self._scheduler.next(list(waiting.values()))]
        arrival = waiting[reader].arrival
        operator_id, port, queue = self._inputs[reader]
        batch = queue.pop(reader, self._chunk_rows)
        self._note_waiting(reader)
        self._begin(operator_id, port, batch, arrival)
        return True

    def _begin(self, operator: str, port: int, batch: ChangeBatch, arrival: int) -> None:
        """Let an operator process a batch."""
        pieces = self._operators[operator].process(port, batch)
        self._go_on(_Production(operator, self._places[operator], arrival, len(batch), pieces))

    def _go_on(self, production: _Production) -> None:
        """Put out the next piece, and compute the one after it, to know whether there is one."""
        started = perf_counter()
        try:
            piece = next(production.pieces) if production.next is None else production.next
            production.next = next(production.pieces, None)
        except UserFunctionFailed as failure:
            failure.operator = production.operator
            raise
        production.seconds += perf_counter() - started
        production.made += len(piece)
        if production.next is not None:
            self._open.append(production)
            self._open.sort(key=lambda each: each.place)
        else:
            work = self.statistics.operators[production.operator]
            work.record(production.taken, production.made, production.seconds)
        self._put(production.operator, piece, production.arrival)
        if self._memory is not None:
            self._memory.note(production.operator, production.taken + len(piece))

    def _put(self, producer: str, batch: ChangeBatch, arrival: int) -> None:
        """Pass on what an operator has put out."""
        since = self._heartbeats[producer]
        if self._check:
            batch.check(self.plan.by_id[producer].is_stream, since)
            assert tuple(c.type for c in batch.columns) == self._types[producer], f"{producer} puts out other types"
        if not len(batch) and batch.until == since:
            return
        self._heartbeats[producer] = batch.until
        if producer in self._tapped:
            self._tapped[producer].append(batch)
            self._untaken += len(batch)
        node = self.plan.by_id[producer]
        if isinstance(node, op.Output):
            self._untaken += len(batch)
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

        The start of a row is its instant; its weight is positive if it comes, negative if it goes. What happens after
        the last instant of the query's sources is kept, for the case that they go on.
        """
        output = self.plan.output(query)
        if self._rstreams:
            self.clock.forget_before(min(each.spoken_until for each in self._rstreams))
        last = self.clock.last_instant(output.query)
        batch = self._results[output.query].take(self._types[output.id])
        if not len(batch) or int(batch.start[-1]) <= last:
            return batch
        self._results[output.query].add(batch.filter(batch.start > last))
        return batch.filter(batch.start <= last)

    def complete_until(self) -> dict[str, int]:
        """Return for each query the instant before which all of its results have been put out."""
        return {query: results.until for query, results in self._results.items()}

    def complete_before(self, operator: str) -> int:
        """Return the instant before which an operator has put out everything."""
        return self._heartbeats[operator]

    def take_tapped(self, operator: str) -> list[ChangeBatch]:
        """Take what a tapped operator has put out since the last time."""
        batches, self._tapped[operator] = self._tapped[operator], []
        return batches

    def ignored(self) -> dict[str, int]:
        """Return how many removals of rows that were not there have been left out, by source."""
        found: dict[str, int] = {}
        for ledger in self._ledgers:
            source = ledger.node.inputs[0].operator
            found[source] = max(found.get(source, 0), ledger.ignored)
        return found

    # Keeping

    @property
    def operators(self) -> Mapping[str, Operator]:
        """All operators but sources, by id."""
        return self._operators

    def position(self) -> dict[str, Any]:
        """Return how far everything has come, as JSON has it; nothing may be waiting in queues."""
        assert not self._waiting and not self._open, "a position is that of an executor that has processed everything"
        return {
            "clock": self.clock.position(),
            "heartbeats": dict(self._heartbeats),
            "ports": {name: list(operator.heartbeats) for name, operator in self._operators.items()},
            "stores": {name: store.length for name, store in self.stores.items()},
            "stubs": {name: [stub.seen, stub.told, stub.needed] for name, stub in self.stubs.items()},
            "results": {query: results.until for query, results in self._results.items()},
            "schedules": {name: schedule.values() for name, schedule in self.schedules.items()},
            "choices": self.choices.to_values() if self._keeps_clock else {},
            "ignored": {ledger.node.id: ledger.ignored for ledger in self._ledgers},
        }

    def resume(self, position: Mapping[str, Any]) -> None:
        """Go on from a position, as far as it is about parts that are here; stores and operators are loaded next."""
        self.clock.resume(position["clock"])
        self._heartbeats |= {name: at for name, at in position["heartbeats"].items() if name in self._heartbeats}
        for name in self._operators.keys() & position["ports"].keys():
            self._operators[name].heartbeats = list(position["ports"][name])
        for query in self._results.keys() & position["results"].keys():
            self._results[query].until = position["results"][query]
        for ledger in self._ledgers:
            ledger.ignored = position["ignored"].get(ledger.node.id, 0)
        self.follow(position.get("schedules", {}))
        self.choices.take_over(position.get("choices", {}))

    def follow(self, schedules: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on with schedules as others have them, as far as they are about operators that are here."""
        for name in self.schedules.keys() & schedules.keys():
            self.schedules[name] = Schedule.of(schedules[name])
        for name in self._budgets.keys() & schedules.keys():
            self._budgets[name] = schedules[name]["budgets"][self._bucket]
        self.choices.follow(schedules)

    def rows_on_hold(self) -> dict[str, pa.RecordBatch | None]:
        """Return the rows that wait for a first instant to be known, None where there are none.

        They are static relations, results, and the instants of sources that an Rstream follows.
        """
        held: dict[str, pa.RecordBatch | None] = {}
        for name, source in self.clock.sources.items():
            if not source.is_timed:
                held[f"static/{name}"] = _table(self._static[name].columns) if name in self._static else None
            elif source.is_watched:
                held[f"instants/{name}"] = _table([np.concatenate(source.recent)]) if source.recent else None
        for query, results in self._results.items():
            held[f"result/{query}"] = results.to_table()
        return held

    def hold(self, name: str, rows: pa.RecordBatch) -> None:
        """Take over rows that were on hold, if what they were held for is still here."""
        kind, _, owner = name.partition("/")
        match kind:
            case "static" if owner in self.clock.sources:
                start = np.zeros(len(rows), np.int64)
                self._static[owner] = ChangeBatch(tuple(rows.columns), start, None, None, BEGINNING)
            case "instants" if owner in self.clock.sources:
                self.clock.sources[owner].recent = [np.asarray(rows.column(0))]
            case "result" if owner in self._results:
                self._results[owner].from_table(rows)

    def statistics_now(self) -> Snapshot:
        """Return all figures as they are now."""
        self._measure_state()
        self.statistics.steps = self.steps_taken()
        return self.statistics.snapshot()

    def steps_taken(self) -> Steps:
        """Return what the steps of operators' work have done so far."""
        return {(name, step.name): step for name, each in self._operators.items() for step in each.figures()}

    def _measure_state(self) -> None:
        """Note how much state there is. A synopsis on a store has its share of it, any other the operator's own."""
        for name, operator in self._operators.items():
            self.statistics.state[name].record(0, operator.nbytes)
        for name, store in self.stores.items():
            self.statistics.stores[name].record(len(store), store.nbytes)
        for synopsis in self.plan.synopses:
            stub = self.stubs.get(synopsis.id)
            if stub is None:
                self.statistics.synopses[synopsis.id].record(0, self._operators[synopsis.operator].nbytes)
            else:
                rows = max(stub.seen - stub.store.base, 0)
                share = stub.store.nbytes * rows // max(len(stub.store), 1)
                self.statistics.synopses[synopsis.id].record(rows, share)


@dataclass(slots=True)
class _Production:
    """What an operator puts out for a batch of so many rows, piece by piece; `next` is the one that comes next."""

    operator: str
    place: int
    arrival: int
    taken: int
    pieces: Iterator[ChangeBatch]
    next: ChangeBatch | None = None
    made: int = 0
    seconds: float = 0.0


class _Results:
    """What a query has put out and nobody has taken."""

    def __init__(self) -> None:
        self._batches: list[ChangeBatch] = []
        self.until = BEGINNING

    def add(self, batch: ChangeBatch) -> None:
        self.until = batch.until
        if len(batch):
            self._batches.append(batch)

    def to_table(self) -> pa.RecordBatch | None:
        """Return its rows, with their instants and weights first; None if there are none."""
        if not self._batches:
            return None
        batch = concat(self._batches)
        return _table([batch.start, batch.weights, *batch.columns])

    def from_table(self, rows: pa.RecordBatch) -> None:
        """Take over rows."""
        start, weight, *columns = rows.columns
        self._batches = [ChangeBatch(tuple(columns), np.asarray(start), None, np.asarray(weight), self.until)]

    def take(self, types: tuple[pa.DataType, ...]) -> ChangeBatch:
        batches, self._batches = self._batches, []
        return concat(batches).with_until(self.until) if batches else empty_batch(types, self.until)


def _table(columns: Sequence[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(each) for each in columns], names=[f"c{at}" for at in range(len(columns))])
