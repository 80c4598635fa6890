"""From relations to streams: Istream, Dstream, Rstream; and the output of queries.

They follow time: what starts and ends before the heartbeat is taken from the agenda, netted per instant where rows both
enter and leave, and put out in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch, Columns, Ints, empty_batch, take
from runtime.columns.net_changes import netted_changes
from runtime.columns.row_codes import (
    changes,
    distinct_rows,
    expand_ranges,
    is_sorted,
    order_by,
    repeated,
)
from runtime.operators.base import Context, Operator
from runtime.operators.joins import as_elements
from runtime.operators.registry import implements
from runtime.operators.rstream_ticks import Ticks
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.future_changes import Agenda
from runtime.state.store import Stub


class ChangeLog:
    """The changes of a relation in the order of time: rows with weights, negative when they leave.

    With `are_netted`, no row both enters and leaves at one instant.
    """

    def __init__(self, are_netted: bool) -> None:
        self._agenda = Agenda(_by_row)
        self._are_netted = are_netted

    def __len__(self) -> int:
        return len(self._agenda)

    @property
    def nbytes(self) -> int:
        return self._agenda.nbytes

    @property
    def agenda(self) -> Agenda:
        """The changes to come."""
        return self._agenda

    def put(self, batch: ChangeBatch) -> None:
        """Note the starts and the known ends of rows."""
        if not len(batch):
            return
        self._agenda.put(batch.start, [pa.array(batch.weights), *batch.columns])
        if batch.end is not None:
            known = batch.end != FOREVER
            if known.any():
                leaving = batch.filter(known)
                self._agenda.put(leaving.ends, [pa.array(-leaving.weights), *leaving.columns])

    def take(self, until: int) -> tuple[Ints, Ints, Columns] | None:
        """Take the changes before a heartbeat: instants, weights, rows; those of one instant netted."""
        taken = self._agenda.take(until)
        if taken is None:
            return None
        instants, (weight_column, *columns) = taken
        weights = np.asarray(weight_column)
        if not is_sorted(instants):
            order = order_by(instants)
            instants, weights, columns = instants[order], weights[order], list(take(columns, order))
        if self._are_netted:
            return instants, weights, tuple(columns)
        return netted_changes(instants, weights, tuple(columns))

    def delta(self) -> dict[str, Delta]:
        """Return what is new and what is gone since the last call."""
        return {"agenda": self._agenda.delta()}

    def load(self, chunks: ChunkSets, until: int) -> None:
        """Take over state that was written before."""
        self._agenda.load(chunks.get("agenda", {}), until)


def _by_row(instants: Ints, columns: Columns) -> tuple[Ints, Columns]:
    """Return changes, sorted by instant, of which those of one row are added up; those that cancel are left out."""
    number, first = distinct_rows((pa.array(instants), *columns[1:]), len(instants))
    total = np.zeros(len(first), np.int64)
    np.add.at(total, number, np.asarray(columns[0]))
    kept = np.flatnonzero(total)
    kept = kept[order_by(first[kept])]
    return instants[first[kept]], (pa.array(total[kept]), *take(columns[1:], first[kept]))


class _ToStream(Operator):
    sign: int

    def __init__(self, node: op.Operator, context: Context) -> None:
        super().__init__(node, context)
        self._changes = ChangeLog(node.inputs[0].operator in context.netted)

    @property
    def nbytes(self) -> int:
        return self._changes.nbytes

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [self._changes.agenda]

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        self._changes.put(batch)
        taken = self._changes.take(self.until)
        if taken is None:
            return empty_batch(self.types, self.until)
        instants, weights, columns = taken
        times = np.maximum(self.sign * weights, 0)
        if bool((times == 1).all()):
            return ChangeBatch(columns, instants, None, None, self.until)
        return ChangeBatch(repeated(columns, times), np.repeat(instants, times), None, None, self.until)

    def delta(self) -> dict[str, Delta]:
        return self._changes.delta()

    def load(self, chunks: ChunkSets) -> None:
        self._changes.load(chunks, self.until)


@implements(op.IStream)
class IStream(_ToStream):
    """The rows that enter a relation."""

    sign = 1


@implements(op.DStream)
class DStream(_ToStream):
    """The rows that leave a relation."""

    sign = -1


@implements(op.RStream)
class RStream(Operator):
    """The whole relation, at the instants of a clock."""

    node: op.RStream

    def __init__(self, node: op.RStream, context: Context) -> None:
        super().__init__(node, context)
        self._stub: Stub = context.stubs[f"{node.id}/relation"]
        self._ticks = Ticks(node, context.clock)
        self.spoken_until = BEGINNING

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        self._stub.take_in(batch)
        since, until = max(self.spoken_until, self.context.clock.earliest), self.until
        said: ChangeBatch | None = None
        for more in self._contents(since, until) if since < until else ():
            if said is not None:
                yield said
            said = more
        self.spoken_until = until
        self._stub.forget_before(until)
        yield empty_batch(self.types, until) if said is None else said.with_until(until)

    def load(self, chunks: ChunkSets) -> None:
        self.spoken_until = self.until

    def _contents(self, since: int, until: int) -> Iterator[ChangeBatch]:
        """Yield the rows that are there at the instants of a stretch of time, once for each; some instants at a time.

        Instants are not listed before they are put out: between two rows there may be billions of them, and those at
        which no row is there are passed over.
        """
        stub, store = self._stub, self._stub.store
        with store.held():
            positions = np.arange(store.base, stub.seen)
            start, end = (np.clip(times, since, until) for times in stub.lifetimes(positions))
            present = np.flatnonzero(end > start)
            positions, start, end = positions[present], start[present], end[present]
            times = stub.weights(positions)
            if times is not None and bool((times < 0).any()):
                chosen, start, end, times = netted_lifetimes(store.rows(positions), start, end, times)
                positions = positions[chosen]
            for begin, stop in self._ticks.stretches(start, end, times, self.context.block_rows):
                here = np.flatnonzero((start < stop) & (end > begin))
                ticks = self._ticks.listed(begin, stop)
                first, last = np.searchsorted(ticks, start[here]), np.searchsorted(ticks, end[here])
                owner, at = expand_ranges(first, last - first)
                owner = here[owner]
                weight = None if times is None else times[owner]
                yield as_elements(ChangeBatch(store.rows(positions[owner]), ticks[at], None, weight, stop))


def netted_lifetimes(columns: Columns, start: Ints, end: Ints, weight: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return which rows are there from when to when and how often, where rows that enter and rows that leave add up."""
    number, first = distinct_rows(columns, len(start))
    owner, instant = np.concatenate([number, number]), np.concatenate([start, end])
    order = order_by(owner, instant)
    owner, instant = owner[order], instant[order]
    starts = np.flatnonzero(changes(owner) | changes(instant))
    owner, instant = owner[starts], instant[starts]
    level: Ints = np.cumsum(np.add.reduceat(np.concatenate([weight, -weight])[order], starts))
    there = np.flatnonzero(level)
    return first[owner[there]], instant[there], instant[there + 1], level[there]


@implements(op.Output)
class Output(Operator):
    """The result of a query: the elements of a stream, or the changes of a relation, netted and in the order of time.

    A row's start is its instant, its weight says whether it comes (+) or goes (-), and how often.
    """

    node: op.Output

    def __init__(self, node: op.Output, context: Context) -> None:
        super().__init__(node, context)
        self._changes = ChangeLog(node.inputs[0].operator in context.netted)

    @property
    def nbytes(self) -> int:
        return self._changes.nbytes

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [self._changes.agenda]

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        if self.node.is_stream:
            return batch
        self._changes.put(batch)
        taken = self._changes.take(self.until)
        if taken is None:
            return empty_batch(self.types, self.until)
        instants, weights, columns = taken
        return ChangeBatch(columns, instants, None, weights, self.until)

    def delta(self) -> dict[str, Delta]:
        return self._changes.delta()

    def load(self, chunks: ChunkSets) -> None:
        self._changes.load(chunks, self.until)
