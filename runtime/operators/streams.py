"""From relations to streams: Istream, Dstream, Rstream; and the output of queries.

They follow time: what starts and ends before the heartbeat is taken from the agenda, netted per instant where rows both
enter and leave, and put out in the order of time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.agenda import Agenda
from runtime.batch import BEGINNING, FOREVER, ChangeBatch, Columns, Ints, Mask, empty_batch, take
from runtime.chunks import Delta
from runtime.operators.base import ChunkSets, Context, Operator
from runtime.operators.joins import as_elements
from runtime.rows import distinct_rows, expand_ranges, is_sorted, order_by, remaining, repeated, row_codes
from runtime.stores import Stub


class ChangeLog:
    """The changes of a relation in the order of time: rows with weights, negative when they leave.

    With `are_netted`, no row both enters and leaves at one instant.
    """

    def __init__(self, are_netted: bool) -> None:
        self._agenda = Agenda()
        self._are_netted = are_netted

    def __len__(self) -> int:
        return len(self._agenda)

    @property
    def nbytes(self) -> int:
        return self._agenda.nbytes

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


def netted_changes(instants: Ints, weights: Ints, columns: Columns) -> tuple[Ints, Ints, Columns]:
    """Return changes, sorted by instant, without those that cancel.

    Of equal rows that enter, the last ones remain, of those that leave, the first.
    """
    at = _perhaps_cancelling(instants, weights, columns)
    if not len(at):
        return instants, weights, columns
    number, first = distinct_rows((pa.array(instants[at]), *take(columns, at)), len(at))
    total = np.zeros(len(first), np.int64)
    np.add.at(total, number, weights[at])
    left = weights.copy()
    left[at] = remaining(number, weights[at], total)
    kept = np.flatnonzero(left)
    return instants[kept], left[kept], take(columns, kept)


def _perhaps_cancelling(instants: Ints, weights: Ints, columns: Columns) -> Ints:
    """Return the changes whose rows perhaps both enter and leave at an instant.

    Rows that enter and rows that leave mark the places of their codes in a table; where only one of them has left a
    mark, nothing cancels.
    """
    at = np.flatnonzero(_mixed_instants(instants, weights))
    if not len(at):
        return at
    codes = row_codes((pa.array(instants[at]), *take(columns, at)), len(at)).codes
    bits = (16 * len(at)).bit_length()
    place = (codes >> np.uint64(64 - bits)).astype(np.int64)
    enters = weights[at] > 0
    entering, leaving = np.zeros(1 << bits, np.bool_), np.zeros(1 << bits, np.bool_)
    entering[place[enters]] = True
    leaving[place[~enters]] = True
    return at[entering[place] & leaving[place]]


def _mixed_instants(instants: Ints, weights: Ints) -> Mask:
    """Return which changes are at instants at which rows both enter and leave."""
    enters = weights > 0
    if enters.all() or not enters.any():
        return np.zeros(len(weights), np.bool_)
    starts = np.flatnonzero(np.append(True, instants[1:] != instants[:-1]))
    sizes = np.diff(np.append(starts, len(instants)))
    entering = np.add.reduceat(enters.astype(np.int64), starts)
    return np.repeat((entering > 0) & (entering < sizes), sizes)


class _ToStream(Operator):
    sign: int

    def __init__(self, node: op.Operator, context: Context) -> None:
        super().__init__(node, context)
        self._changes = ChangeLog(node.inputs[0].operator in context.netted)

    @property
    def nbytes(self) -> int:
        return self._changes.nbytes

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


class IStream(_ToStream):
    """The rows that enter a relation."""

    sign = 1


class DStream(_ToStream):
    """The rows that leave a relation."""

    sign = -1


class RStream(Operator):
    """The whole relation, at the instants of a clock."""

    node: op.RStream

    def __init__(self, node: op.RStream, context: Context) -> None:
        super().__init__(node, context)
        self._stub: Stub = context.stubs[f"{node.id}/relation"]
        self.spoken_until = BEGINNING

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        self._stub.take_in(batch)
        since = max(self.spoken_until, self.context.clock.earliest)
        made = empty_batch(self.types, self.until) if since >= self.until else self._contents(since, self.until)
        self.spoken_until = self.until
        self._stub.forget_before(self.until)
        return made

    def load(self, chunks: ChunkSets) -> None:
        self.spoken_until = self.until

    def _contents(self, since: int, until: int) -> ChangeBatch:
        """Return the rows that are there at the instants of a stretch of time, once for each.

        Where it speaks at every tick, these are not listed: between two rows there may be billions of them.
        """
        store = self._stub.store
        positions = np.arange(store.base, self._stub.seen)
        start, end = (np.clip(times, since, until) for times in self._stub.lifetimes(positions))
        ticks = None if self.node.every_tick else self._ticks(since, until)
        first, last = (start, end) if ticks is None else (np.searchsorted(ticks, start), np.searchsorted(ticks, end))
        present = np.flatnonzero(last > first)
        owner, at = expand_ranges(first[present], (last - first)[present])
        rows = positions[present][owner]
        instants = at if ticks is None else ticks[at]
        return as_elements(ChangeBatch(store.rows(rows), instants, None, self._stub.weights(rows), until))

    def _ticks(self, since: int, until: int) -> Ints:
        """Return the instants of a stretch of time at which elements or slides make it speak."""
        clock = self.context.clock
        found = [self._slides(tick, since, until) for tick in self.node.clock if tick.slide is not None]
        found += [clock.instants(tick.source, since, until) for tick in self.node.clock if tick.slide is None]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _slides(self, tick: op.Tick, since: int, until: int) -> Ints:
        first = self.context.clock.first_instant(tick.source)
        if first is None or tick.slide is None or first >= until:
            return np.empty(0, np.int64)
        begin = max(first, since)
        return np.arange(-(-begin // tick.slide) * tick.slide, until, tick.slide)


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
