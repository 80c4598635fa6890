"""Joins: inner, outer, semi, anti, of many inputs, and of a stream with a relation.

Inner joins are linear and work on whole lifetimes (`runtime/joins/matcher.py`). One driver runs them, whatever the
tactic: exact, or with too little time or memory to compare everything. The others are made of an exact inner join and
of counts of rows and their pairs (`runtime/operators/counted.py`): a left row without a match is one whose pairs number
none, and an outer join is the inner join and the rows without a match, padded with NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from cql.bound import ColumnRef, walk
from planner import operators as op
from planner.conditions import index_condition
from planner.json_codec import ExprField
from runtime.columns.batch import ChangeBatch, Columns, concat, empty_batch, in_blocks
from runtime.columns.row_codes import distinct_rows, is_sorted, order_by, remaining, repeated, valid_rows
from runtime.expressions import compile_predicate
from runtime.joins.dual import Dual
from runtime.joins.exact import Exact
from runtime.joins.matcher import Matcher, Residual, pairs_batch, pairs_in_blocks
from runtime.joins.memory_limited import Eviction, MemoryLimited
from runtime.joins.prefilter import Prefilter, prefilter
from runtime.joins.probe import JoinInput, Matches
from runtime.joins.selective import Selective
from runtime.operators.base import Context, Operator, StepFigures, evaluate_all
from runtime.operators.counted import (
    FIRST,
    SECOND,
    CountedRows,
    Occurs,
    concat_changes,
    if_matched,
    if_unmatched,
    once,
)
from runtime.operators.registry import implements
from runtime.operators.state_words import evicting_piece, half_piece, outer_piece, piece_of_input, skipping_piece
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.future_changes import Agenda
from runtime.state.store import Store, StoredEnds, Stub
from shedding.budgets import Demand
from shedding.eviction import Policy
from shedding.join_deciders import Cutoff, Selections

# Making


@implements(op.BinaryJoin, state=outer_piece)
def join_operator(node: op.BinaryJoin, context: Context) -> Operator:
    """Return the operator for a join's kind."""
    return InnerJoin(node, context, exact_join(node, context)) if node.join == "inner" else OuterJoin(node, context)


@implements(op.MJoin)
def multiway_join(node: op.MJoin, context: Context) -> InnerJoin:
    """Return the operator for a join of several inputs."""
    stubs = [context.stubs[f"{node.id}/input{at + 1}"] for at in range(len(node.inputs))]
    return InnerJoin(node, context, _exact(context, stubs, node.keys, node.residual))


@implements(op.SelectiveJoin)
def selective_join(node: op.SelectiveJoin, context: Context) -> InnerJoin:
    """Return the operator for a join that compares rows of some ages."""

    def selections() -> Selections:
        found = context.choices[node.schedule]
        assert isinstance(found, Selections)
        return found

    matcher = exact_join(node, context)
    assert isinstance(matcher.tactic, Exact)
    types_of = [evaluate_all(own, context.functions) if own else None for own in node.types]
    worth_of = None if node.utility is None else evaluate_all([node.utility], context.functions)
    tactic = Selective(matcher.tactic, node.schedule, selections, node.windows, types_of, worth_of)
    return InnerJoin(node, context, Matcher(matcher.inputs, matcher.residual, tactic))


@implements(op.DualJoin, state=skipping_piece)
def dual_join(node: op.DualJoin, context: Context) -> InnerJoin:
    """Return the operator for a join in which rows that find few others do not probe."""

    def cutoff() -> Cutoff:
        found = context.choices[node.schedule]
        assert isinstance(found, Cutoff)
        return found

    exact = exact_join(node, context)
    tactic = Dual(exact, node.schedule, cutoff, node.windows, node.seed)
    return InnerJoin(node, context, Matcher(exact.inputs, exact.residual, tactic))


@implements(op.EvictingJoin, state=evicting_piece)
def memory_limited_join(node: op.EvictingJoin, context: Context) -> InnerJoin:
    """Return the operator for a join within a number of bytes."""
    types = [context.types[edge.operator] for edge in node.inputs]
    keys_of = [evaluate_all(keys, context.functions) for keys in (node.left_keys, node.right_keys)]
    eviction = Eviction(Policy(node.policy), node.seed, node.pools, lambda: context.budgets[node.id])
    residual = _residual(node.residual, context)
    tactic = MemoryLimited(types, keys_of, node.windows, residual, eviction, context.block_rows)
    return InnerJoin(node, context, Matcher(tactic.inputs, residual, tactic))


def exact_join(node: op.BinaryJoin | op.SemiJoin | op.AntiJoin, context: Context) -> Matcher:
    """Return what finds the pairs of an operator of two inputs."""
    stubs = [context.stubs[f"{node.id}/left"], context.stubs[f"{node.id}/right"]]
    return _exact(context, stubs, (node.left_keys, node.right_keys), node.residual)


def _exact(
    context: Context, stubs: Sequence[Stub], keys: Sequence[Sequence[ExprField]], residual: ExprField | None
) -> Matcher:
    inputs = [_input(context, stub, own) for stub, own in zip(stubs, keys, strict=True)]
    filtered = None if any(keys) else _prefilter(context, stubs, residual)
    tactic = Exact(inputs, filtered, residual is not None, context.block_rows)
    return Matcher(inputs, _residual(residual, context), tactic)


def _input(context: Context, stub: Stub, keys: Sequence[ExprField]) -> JoinInput:
    return JoinInput(stub, evaluate_all(keys, context.functions) if keys else None, repr(keys))


def _residual(condition: ExprField | None, context: Context) -> Residual | None:
    """Return what pairs have to satisfy besides equal keys."""
    if condition is None:
        return None
    columns = frozenset(part.index for part in walk(condition) if isinstance(part, ColumnRef))
    return Residual(compile_predicate([condition], context.functions), columns)


def _prefilter(context: Context, stubs: Sequence[Stub], residual: ExprField | None) -> Prefilter | None:
    condition = index_condition(residual, len(stubs[0].store.types))
    if condition is None:
        return None
    values = [evaluate_all([each], context.functions) for each in (condition.left, condition.right)]
    return prefilter(condition, values)


# What joins tell


def counted_by(operators: Mapping[str, Operator]) -> dict[str, dict[str, Any]]:
    """Return what joins that choose have counted since the last time, by the names of their schedules."""
    tactics = (each.matcher.tactic for each in operators.values() if isinstance(each, InnerJoin))
    return {each.schedule: each.take_counts() for each in tactics if isinstance(each, Selective | Dual)}


def pairs_of(operators: Mapping[str, Operator]) -> dict[str, list[int]]:
    """Return what joins that evict rows have to tell: see `MemoryLimited.shed`."""
    return {name: each.shed for name, each in memory_limited(operators).items()}


def demands_of(operators: Mapping[str, Operator]) -> dict[str, list[Demand]]:
    """Return how much memory joins that evict rows would use: see `MemoryLimited.demands`."""
    return {name: each.demands for name, each in memory_limited(operators).items()}


def memory_limited(operators: Mapping[str, Operator]) -> dict[str, MemoryLimited]:
    """Return the tactics of joins that evict rows, by operator."""
    joins = {name: each.matcher.tactic for name, each in operators.items() if isinstance(each, InnerJoin)}
    return {name: tactic for name, tactic in joins.items() if isinstance(tactic, MemoryLimited)}


def probe_figures(matcher: Matcher) -> list[StepFigures]:
    """Return what the probes of a join have done, by the input that probes, in the order of their steps."""
    return [
        StepFigures(
            f"input {step.port + 1} probes input {step.input + 1} in step {step.step + 1}",
            "probe",
            "by condition" if matcher.inputs[step.input].keys_of is None else "by key",
            own.probes,
            own.pairs,
            own.seconds,
            own.candidates,
        )
        for step, own in sorted(matcher.figures.items())
    ]


# Working


class _Join(Operator):
    """The driver: it probes with new rows, and has them kept for those to come."""

    matcher: Matcher

    def _match(self, port: int, batch: ChangeBatch) -> Iterator[Matches]:
        """Yield the matches of new rows, and keep the rows for those to come."""
        tactic, probing, started, has_rows = self.matcher.tactic, 0.0, perf_counter(), len(batch) > 0
        if has_rows:
            batch = tactic.begin(port, batch)
            for found in self.matcher.matches(port, batch):
                tactic.note(found)
                probing += perf_counter() - started
                yield found
                started = perf_counter()
        probed = perf_counter()
        tactic.keep(port, batch, self.heartbeats)
        if has_rows:
            tactic.note_costs(probing + probed - started, perf_counter() - probed)

    def figures(self) -> Sequence[StepFigures]:
        return probe_figures(self.matcher)

    def _pairs(self, found: Iterator[Matches]) -> Iterator[ChangeBatch]:
        """Yield matches as rows."""
        return pairs_in_blocks(found, self.types, self.since, self.until, self.context.block_rows)


class InnerJoin(_Join):
    """A join of several inputs that puts out its pairs."""

    def __init__(self, node: op.BinaryJoin | op.EvictingJoin | op.MJoin, context: Context, matcher: Matcher) -> None:
        super().__init__(node, context)
        self.matcher = matcher

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        return self._pairs(self._match(port, batch))

    def settle(self) -> None:
        self.matcher.tactic.settle(self.heartbeats)

    @property
    def nbytes(self) -> int:
        return self.matcher.tactic.nbytes

    def delta(self) -> dict[str, Delta]:
        return self.matcher.tactic.delta()

    def load(self, chunks: ChunkSets) -> None:
        self.matcher.tactic.load(chunks)


class OuterJoin(_Join):
    """A left, right or full join: pairs, and padded rows without a match."""

    def __init__(self, node: op.BinaryJoin, context: Context) -> None:
        super().__init__(node, context)
        self.matcher = exact_join(node, context)
        padded = {"left": (0,), "right": (1,), "full": (0, 1)}[node.join]
        self._unmatched = {port: CountedRows(self.input_types[port], if_unmatched) for port in padded}

    @property
    def nbytes(self) -> int:
        return sum(counted.nbytes for counted in self._unmatched.values())

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        if port in self._unmatched:
            self._unmatched[port].put(FIRST, batch.columns, batch.start, batch.end, batch.weight)
        pairs: ChangeBatch | None = None
        for more in self._pairs(self._counted(self._match(port, batch))):
            if pairs is not None:
                yield pairs
            pairs = more
        padded = [self._padded(at, counted.advance(self.until)) for at, counted in self._unmatched.items()]
        together = concat_changes([pairs, *padded], self.types, self.until)
        yield from in_blocks(together, self.since, self.context.block_rows)

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [counted.agenda for counted in self._unmatched.values()]

    def _counted(self, found: Iterator[Matches]) -> Iterator[Matches]:
        """Yield matches and count them; none is complete before the end, when padded rows come."""
        for part in found:
            for at, counted in self._unmatched.items():
                counted.put(SECOND, part.columns[at], part.start, part.end, part.weight)
            yield replace(part, bound=self.since)

    def _padded(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        nulls = tuple(pa.nulls(len(batch), each) for each in self.input_types[1 - port])
        return batch.with_columns((*batch.columns, *nulls) if port == 0 else (*nulls, *batch.columns))

    def delta(self) -> dict[str, Delta]:
        return {
            f"unmatched{port}/{name}": delta
            for port, counted in self._unmatched.items()
            for name, delta in counted.delta().items()
        }

    def load(self, chunks: ChunkSets) -> None:
        for port, counted in self._unmatched.items():
            counted.load(_below(chunks, f"unmatched{port}/"), self.until)


@implements(op.SemiJoin, op.AntiJoin, state=half_piece)
class HalfJoin(_Join):
    """A semijoin or antijoin. Without a residual it is enough to know which keys the right side has."""

    def __init__(self, node: op.SemiJoin | op.AntiJoin, context: Context) -> None:
        super().__init__(node, context)
        occurs: Occurs = if_matched if isinstance(node, op.SemiJoin) else if_unmatched
        self._counted = CountedRows(self.types, occurs)
        self._right_keys: CountedRows | None = None
        if node.residual is None:
            key_types = tuple(
                each.type
                for each in evaluate_all(node.right_keys, context.functions)(
                    empty_batch(self.input_types[1], 0).columns, 0
                )
            )
            self._right_keys = CountedRows(key_types, once)
            self._keys_of = evaluate_all(node.right_keys, context.functions)
            self._key_store = Store(key_types, is_log=False)
            inputs = [
                _input(context, context.stubs[f"{node.id}/left"], node.left_keys),
                JoinInput(
                    self._key_store.stub(StoredEnds()), (lambda columns, length: columns) if key_types else None, ""
                ),
            ]
            self.matcher = Matcher(inputs, None, Exact(inputs, block_rows=context.block_rows))
        else:
            self.matcher = exact_join(node, context)

    @property
    def nbytes(self) -> int:
        keys = 0 if self._right_keys is None else self._right_keys.nbytes + self._key_store.nbytes
        return self._counted.nbytes + keys

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        if port == 0:
            self._counted.put(FIRST, batch.columns, batch.start, batch.end, batch.weight)
        elif self._right_keys is not None:
            batch = self._key_changes(batch)
        for at, part in enumerate(self._match(port, batch)):
            if at:
                yield empty_batch(self.types, self.since)
            self._counted.put(SECOND, part.columns[0], part.start, part.end, part.weight)
        yield self._counted.advance(self.until)

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [self._counted.agenda]

    def _key_changes(self, batch: ChangeBatch) -> ChangeBatch:
        """Return which keys come to the right side and leave it."""
        assert self._right_keys is not None
        keys = batch.with_columns(self._keys_of(batch.columns, len(batch)))
        valid = valid_rows(keys.columns)
        keys = keys if valid is None else keys.filter(valid)
        self._right_keys.put(FIRST, keys.columns, keys.start, keys.end, keys.weight)
        return self._right_keys.advance(batch.until)

    def delta(self) -> dict[str, Delta]:
        made = {f"rows/{name}": delta for name, delta in self._counted.delta().items()}
        if self._right_keys is not None:
            made |= {f"keys/{name}": delta for name, delta in self._right_keys.delta().items()}
            made["key rows"] = self._key_store.delta()
        return made

    def load(self, chunks: ChunkSets) -> None:
        self._counted.load(_below(chunks, "rows/"), self.until)
        if self._right_keys is not None:
            self._right_keys.load(_below(chunks, "keys/"), self.heartbeats[1])
            kept = chunks.get("key rows", {})
            self._key_store.load(kept, sum(len(chunk) for chunk in kept.values()))
            self.matcher.inputs[1].stub.seen = self._key_store.length


@implements(op.StreamJoin, state=piece_of_input)
class StreamJoin(Operator):
    """Elements of a stream with the rows that a relation has at their instants.

    An element waits until the relation is complete up to its instant.
    """

    def __init__(self, node: op.StreamJoin, context: Context) -> None:
        super().__init__(node, context)
        # Elements are not kept for the relation's rows: only elements probe.
        nothing = Store(self.input_types[0], is_log=False).stub(StoredEnds())
        stubs = [nothing, context.stubs[f"{node.id}/relation"]]
        self._matcher = _exact(context, stubs, (node.left_keys, node.right_keys), node.residual)
        self._waiting = Agenda()

    @property
    def nbytes(self) -> int:
        return self._waiting.nbytes

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        relation = self._matcher.inputs[1]
        if port == 1:
            relation.stub.take_in(batch)
        else:
            self._waiting.put(batch.start, batch.columns)
        ready = self._ready()
        held: list[ChangeBatch] = []
        for part in self._matcher.matches(0, ready) if ready is not None else ():
            held.append(pairs_batch([part], self.until))
            if part.bound < self.until and sum(map(len, held)) >= self.context.block_rows:
                together = concat(held).with_until(part.bound)
                is_complete = together.start < part.bound
                yield as_elements(together.filter(is_complete))
                held = [together.filter(~is_complete)]
        relation.stub.forget_before(self.until)
        yield as_elements(concat(held).with_until(self.until)) if held else empty_batch(self.types, self.until)

    def figures(self) -> Sequence[StepFigures]:
        return probe_figures(self._matcher)

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [self._waiting]

    def _ready(self) -> ChangeBatch | None:
        """Return the elements up to whose instants the relation is complete, each for the time of its instant."""
        taken = self._waiting.take(self.until)
        if taken is None:
            return None
        instants, columns = taken
        ready = ChangeBatch(columns, instants, instants + 1, None, self.until)
        return ready if is_sorted(instants) else ready.take(order_by(instants))

    def delta(self) -> dict[str, Delta]:
        return {"waiting": self._waiting.delta()}

    def load(self, chunks: ChunkSets) -> None:
        self._waiting.load(chunks.get("waiting", {}), self.until)


def as_elements(batch: ChangeBatch) -> ChangeBatch:
    """Return rows with weights at instants as elements of a stream: netted, one by one, in the order of time."""
    if batch.weight is not None:
        batch = netted(batch)
    order = order_by(batch.start)
    return ChangeBatch(batch.take(order).columns, batch.start[order], None, None, batch.until)


def netted(batch: ChangeBatch) -> ChangeBatch:
    """Return rows whose weights at each instant are added up, repeated as often as that says."""
    weights = batch.weights
    if bool((weights < 0).any()):
        number, first = distinct_rows((pa.array(batch.start), *batch.columns), len(batch))
        total = np.zeros(len(first), np.int64)
        np.add.at(total, number, weights)
        left = remaining(number, weights, total)
        kept = np.flatnonzero(left)
        batch, weights = batch.take(kept), left[kept]
    if bool((weights == 1).all()):
        return replace(batch, weight=None)
    columns: Columns = repeated(batch.columns, weights)
    return ChangeBatch(columns, np.repeat(batch.start, weights), None, None, batch.until)


def _below(chunks: ChunkSets, prefix: str) -> ChunkSets:
    return {name.removeprefix(prefix): each for name, each in chunks.items() if name.startswith(prefix)}
