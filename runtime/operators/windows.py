"""Windows: from streams to relations.

A time window knows on arrival when a tuple leaves (see `runtime/time/window_lifetimes.py`). A window that counts rows
knows it as soon as the row that pushes the tuple out has come, which within a batch is at once; what is still in the
window when a batch ends goes out without an end and is taken back later. Ties at one instant are in the order of the
stream, or, for derived streams without one, in the order of the rows' values.
"""

from __future__ import annotations

import numpy as np

from cql import bound
from planner import operators as op
from runtime.columns.batch import FOREVER, ChangeBatch, Columns, Ints, concat_columns
from runtime.columns.row_codes import changes, order_by, row_order
from runtime.operators.base import Context, Operator
from runtime.operators.registry import implements
from runtime.operators.state_words import InputColumns, StatePiece, words_of
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.group_table import SlotTable
from runtime.state.store import Store, Stub
from runtime.time.window_lifetimes import later, range_lifetime

_FEWEST_ROWS = 4096
_FEWEST_KEYS = 1024


def _piece(node: op.SeqWindow, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of a window is: rows, or the keys of their partitions."""
    own = op.output_names(node)
    columns = node.window.columns if isinstance(node.window, bound.PartitionRowsSpec) else ()
    return StatePiece(words_of(piece), tuple(own[at] for at in columns) if piece == "keys" else tuple(own))


@implements(op.SeqWindow, state=_piece)
def window_operator(node: op.SeqWindow, context: Context) -> Operator:
    """Return the operator for a window's kind."""
    match node.window:
        case bound.RangeSpec():
            return RangeWindow(node, context)
        case bound.RowsSpec():
            return RowsWindow(node, context)
        case bound.PartitionRowsSpec():
            return PartitionWindow(node, context)
    raise AssertionError(f"an unbounded window has no operator: {node.window}")


class RangeWindow(Operator):
    """`[Range T]`, `[Range T Slide L]`, `[Now]`."""

    node: op.SeqWindow

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        assert isinstance(self.node.window, bound.RangeSpec)
        start, end = range_lifetime(self.node.window, batch.start)
        return ChangeBatch(batch.columns, start, end, None, batch.until)


class _CountingWindow(Operator):
    """A window that counts rows."""

    node: op.SeqWindow

    def _in_order(self, batch: ChangeBatch) -> ChangeBatch:
        if self.node.order == "source" or len(batch) < 2:
            return batch
        return batch.take(row_order(batch.columns, [batch.start], len(batch)))


class RowsWindow(_CountingWindow):
    """`[Rows N]`: the last N rows; what goes out of it is in the log of the stream."""

    def __init__(self, node: op.SeqWindow, context: Context) -> None:
        super().__init__(node, context)
        assert isinstance(node.window, bound.RowsSpec)
        self._rows = node.window.rows
        self._stub: Stub = context.stubs[f"{node.id}/window"]

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        batch = self._in_order(batch)
        count, before = len(batch), self._stub.seen
        self._stub.append(batch.columns, batch.start, None, None)
        if not count:
            return batch
        self._stub.told = max(before + count - self._rows, 0)
        positions = np.arange(before, before + count)
        start, end = self._stub.lifetimes(positions)
        new = ChangeBatch(batch.columns, start, end, None, batch.until)
        pushed_out = np.arange(max(before - self._rows, 0), min(before, before + count - self._rows))
        if len(pushed_out):
            at = batch.start[pushed_out + self._rows - before]
            new = _with_retractions(new, self._stub.store.rows(pushed_out), at, np.full(len(at), FOREVER))
        self._stub.forget_before(batch.until)
        return new


class PartitionWindow(_CountingWindow):
    """`[Partition By k Rows N]`, perhaps with a range: the last N rows of each key, from a store of its own."""

    def __init__(self, node: op.SeqWindow, context: Context) -> None:
        super().__init__(node, context)
        assert isinstance(node.window, bound.PartitionRowsSpec)
        self._window = node.window
        self._keys = SlotTable([self.input_types[0][column] for column in node.window.columns])
        self._keys.add_lanes(["rows"])
        self._store = Store(self.types, is_log=False)
        self._ring = np.full((16, node.window.rows), -1, np.int64)
        self._live = 0

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._store.nbytes + self._ring.nbytes

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        batch = self._in_order(batch)
        count = len(batch)
        if not count:
            return batch
        rows = self._window.rows
        slots = self._keys.slots(tuple(batch.columns[at] for at in self._window.columns), count)
        order = order_by(slots)
        slots_in_order = slots[order]
        first = np.flatnonzero(changes(slots_in_order))
        size = np.diff(np.append(first, count))
        rank = np.arange(count) - np.repeat(first, size)
        expiry = np.full(count, FOREVER) if self._window.ticks is None else later(batch.start, self._window.ticks)

        # Row r of a key pushes out row r - N: one of this batch, whose end is then known, or an older one.
        end = expiry.copy()
        inside = np.flatnonzero(rank >= rows)
        pushed, pushing = order[inside - rows], order[inside]
        end[pushed] = np.minimum(end[pushed], batch.start[pushing])
        touched = slots_in_order[first]
        seen = self._keys.lane("rows", touched)
        retracted, at = self._pushed_out(order, rank, np.repeat(touched, size), np.repeat(seen, size), batch.start)

        base = self._store.length
        self._store.append(batch.columns, batch.start, expiry, None)
        kept = np.flatnonzero(rank >= np.repeat(size, size) - rows)
        number = np.repeat(seen, size)[kept] + rank[kept]
        self._grow_ring(int(slots.max()))
        self._ring[slots_in_order[kept], number % rows] = base + order[kept]
        self._keys.remember(touched, {"rows": seen + size})
        self._live += int((np.minimum(seen + size, rows) - np.minimum(seen, rows)).sum())

        new = ChangeBatch(batch.columns, batch.start, end, None, batch.until)
        if len(retracted):
            until = self._store.end.at(retracted)
            still_there = until > at
            retracted, at, until = retracted[still_there], at[still_there], until[still_there]
            new = _with_retractions(new, self._store.rows(retracted), at, until)
        self._compact(batch.until)
        return new

    def _pushed_out(self, order: Ints, rank: Ints, slots: Ints, seen: Ints, start: Ints) -> tuple[Ints, Ints]:
        """Return the positions of older rows that rows of this batch push out, and when."""
        number = seen + rank - self._window.rows
        older = np.flatnonzero((number >= 0) & (rank < self._window.rows))
        older = older[number[older] < seen[older]]
        position = self._ring_at(slots[older], number[older] % self._window.rows)
        known = position >= 0
        older, position = older[known], position[known]
        by_age = np.argsort(position)
        return position[by_age], start[order[older[by_age]]]

    def _ring_at(self, slots: Ints, place: Ints) -> Ints:
        inside = slots < len(self._ring)
        found = np.full(len(slots), -1, np.int64)
        found[inside] = self._ring[slots[inside], place[inside]]
        return found

    def _grow_ring(self, slot: int) -> None:
        if slot >= len(self._ring):
            missing = max(slot + 1, 2 * len(self._ring)) - len(self._ring)
            self._ring = np.concatenate([self._ring, np.full((missing, self._window.rows), -1, np.int64)])

    def _compact(self, until: int) -> None:
        """Rewrite the store when most of it is out of the window."""
        if len(self._store) <= 2 * self._live + _FEWEST_ROWS:
            return
        live = self._ring[self._ring >= 0]
        in_time = self._store.end.at(live) > until
        slot, place = (each[in_time] for each in np.nonzero(self._ring >= 0))
        live = live[in_time]
        by_age = np.argsort(live)
        live, slot, place = live[by_age], slot[by_age], place[by_age]
        columns, start, end = self._store.rows(live), self._store.start.at(live), self._store.end.at(live)
        self._store.replace(columns, start, end, None)
        self._ring[:] = -1
        self._ring[slot, place] = self._store.base + np.arange(len(live))
        self._live = len(live)
        self._forget_empty_keys(slot)

    def _forget_empty_keys(self, kept: Ints) -> None:
        used = self._keys.in_use()
        used[kept] = False
        unused = np.flatnonzero(used)
        if len(unused) > max(_FEWEST_KEYS, len(kept)):
            self._keys.release(unused)

    def delta(self) -> dict[str, Delta]:
        return {"keys": self._keys.delta(), "rows": self._store.delta()}

    def load(self, chunks: ChunkSets) -> None:
        """Take over keys and rows, and find out which rows are the last ones of their keys."""
        self._keys.load(chunks.get("keys", {}))
        self._store.load(chunks.get("rows", {}), sum(len(chunk) for chunk in chunks.get("rows", {}).values()))
        if not len(self._store):
            return
        columns = self._store.rows_since(self._store.base)
        slots = self._keys.slots(tuple(columns[at] for at in self._window.columns), len(self._store))
        order = order_by(slots)
        slots = slots[order]
        last = np.append(np.flatnonzero(changes(slots))[1:], len(slots)) - 1
        from_end = np.repeat(last, np.diff(np.append(-1, last))) - np.arange(len(slots))
        kept = from_end < self._window.rows
        slots, from_end, order = slots[kept], from_end[kept], order[kept]
        self._grow_ring(int(slots.max()))
        number = self._keys.lane("rows", slots) - 1 - from_end
        self._ring[slots, number % self._window.rows] = self._store.base + order
        self._live = len(slots)


def _with_retractions(new: ChangeBatch, columns: Columns, at: Ints, until: Ints) -> ChangeBatch:
    """Return a batch of new rows after the retractions of older ones from some instants on."""
    if not len(at):
        return new
    return ChangeBatch(
        concat_columns([columns, new.columns]),
        np.concatenate([at, new.start]),
        np.concatenate([until, new.ends]),
        np.concatenate([np.full(len(at), -1), np.ones(len(new), np.int64)]),
        new.until,
    )
