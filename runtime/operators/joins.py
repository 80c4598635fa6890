"""Joins: inner, outer, semi, anti, of many inputs, and of a stream with a relation.

Inner joins are linear and work on whole lifetimes (`runtime/joins/matcher.py`). The others are made of an inner join
and of counts of rows and their pairs (`runtime/operators/counted.py`): a left row without a match is one whose pairs
number none, and an outer join is the inner join and the rows without a match, padded with NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cql.bound import ColumnRef, walk
from planner import operators as op
from planner.conditions import index_condition
from planner.json_codec import ExprField
from runtime.columns.batch import ChangeBatch, Columns, concat, empty_batch, in_blocks
from runtime.columns.row_codes import distinct_rows, is_sorted, order_by, remaining, repeated, valid_rows
from runtime.expressions import compile_predicate
from runtime.joins.matcher import JoinInput, Matcher, Matches, Residual, pairs_batch, pairs_in_blocks
from runtime.joins.prefilter import Narrowing, narrowing
from runtime.operators.base import ChunkSets, Context, Operator, evaluate_all
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
from runtime.operators.state_words import half_piece, outer_piece, piece_of_input
from runtime.state.chunks import Delta
from runtime.state.future_changes import Agenda
from runtime.state.store import Store, StoredEnds, Stub


@implements(op.BinaryJoin, state=outer_piece)
def join_operator(node: op.BinaryJoin, context: Context) -> Operator:
    """Return the operator for a join's kind."""
    return InnerJoin(node, context) if node.join == "inner" else OuterJoin(node, context)


def _side(context: Context, stub: Stub, keys: Sequence[ExprField], name: str) -> JoinInput:
    return JoinInput(stub, evaluate_all(keys, context.functions) if keys else None, name)


def _index_name(keys: Sequence[ExprField]) -> str:
    return repr(keys)


def _matcher(
    context: Context, stubs: Sequence[Stub], keys: Sequence[Sequence[ExprField]], residual: ExprField | None
) -> Matcher:
    sides = [_side(context, stub, own, _index_name(own)) for stub, own in zip(stubs, keys, strict=True)]
    narrowed = None if any(keys) else _narrowing(context, stubs, residual)
    return Matcher(sides, residual_of(residual, context), narrowed, context.block_rows)


def residual_of(condition: ExprField | None, context: Context) -> Residual | None:
    """Return what pairs have to satisfy besides equal keys."""
    if condition is None:
        return None
    columns = frozenset(part.index for part in walk(condition) if isinstance(part, ColumnRef))
    return Residual(compile_predicate([condition], context.functions), columns)


def _narrowing(context: Context, stubs: Sequence[Stub], residual: ExprField | None) -> Narrowing | None:
    condition = index_condition(residual, len(stubs[0].store.types))
    if condition is None:
        return None
    values = [evaluate_all([each], context.functions) for each in (condition.left, condition.right)]
    return narrowing(condition, values)


class _Join(Operator):
    """What joins of stored relations share."""

    matcher: Matcher

    def _match(self, port: int, batch: ChangeBatch) -> Iterator[Matches]:
        """Yield the matches of new rows, and keep the rows for those to come."""
        yield from self.matcher.matches(port, batch)
        self._keep(port, batch)

    def _pairs(self, found: Iterator[Matches]) -> Iterator[ChangeBatch]:
        """Yield matches as rows."""
        return pairs_in_blocks(found, self.types, self.since, self.until, self.context.block_rows)

    def _keep(self, port: int, batch: ChangeBatch) -> None:
        """Keep new rows for those to come, and forget those that none of these can match."""
        self.matcher.sides[port].stub.take_in(batch)
        for at, side in enumerate(self.matcher.sides):
            # Whatever comes on another input starts at its heartbeat or later.
            side.stub.forget_before(min(h for other, h in enumerate(self.heartbeats) if other != at))


class InnerJoin(_Join):
    """A join of two inputs."""

    def __init__(self, node: op.BinaryJoin, context: Context) -> None:
        super().__init__(node, context)
        stubs = [context.stubs[f"{node.id}/left"], context.stubs[f"{node.id}/right"]]
        self.matcher = _matcher(context, stubs, (node.left_keys, node.right_keys), node.residual)

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        return self._pairs(self._match(port, batch))


@implements(op.MJoin)
class MJoin(_Join):
    """A join of several inputs."""

    def __init__(self, node: op.MJoin, context: Context) -> None:
        super().__init__(node, context)
        stubs = [context.stubs[f"{node.id}/input{at + 1}"] for at in range(len(node.inputs))]
        self.matcher = _matcher(context, stubs, node.keys, node.residual)

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        return self._pairs(self._match(port, batch))


class OuterJoin(_Join):
    """A left, right or full join: pairs, and padded rows without a match."""

    def __init__(self, node: op.BinaryJoin, context: Context) -> None:
        super().__init__(node, context)
        stubs = [context.stubs[f"{node.id}/left"], context.stubs[f"{node.id}/right"]]
        self.matcher = _matcher(context, stubs, (node.left_keys, node.right_keys), node.residual)
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
        left = context.stubs[f"{node.id}/left"]
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
            sides = [
                _side(context, left, node.left_keys, _index_name(node.left_keys)),
                JoinInput(
                    self._key_store.stub(StoredEnds()), (lambda columns, length: columns) if key_types else None, ""
                ),
            ]
            self.matcher = Matcher(sides, None, None, context.block_rows)
        else:
            stubs = [left, context.stubs[f"{node.id}/right"]]
            self.matcher = _matcher(context, stubs, (node.left_keys, node.right_keys), node.residual)

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
            self.matcher.sides[1].stub.seen = self._key_store.length


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
        self._matcher = _matcher(context, stubs, (node.left_keys, node.right_keys), node.residual)
        self._waiting = Agenda()

    @property
    def nbytes(self) -> int:
        return self._waiting.nbytes

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        relation = self._matcher.sides[1]
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
