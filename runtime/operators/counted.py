"""Operators that look at how often a row occurs: DISTINCT, EXCEPT, INTERSECT, and rows with or without a match.

All of them keep, for each different row, one or two counts over time, and put out the row as often as a function of
the counts says:

| operator | counts | occurs |
|---|---|---|
| duplicate-eliminate | n | 1 if n > 0 |
| except | left, right | max(left - right, 0) |
| intersect | left, right | min(left, right) |
| semijoin | n of the row, p of its pairs with matches | n if p > 0 |
| antijoin | n, p | n if p = 0 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.columns.batch import FOREVER, ChangeBatch, Columns, Ints, concat_columns, empty_batch
from runtime.columns.row_codes import changes
from runtime.operators.base import Context, Operator
from runtime.operators.registry import implements
from runtime.operators.state_words import InputColumns, StatePiece, counted_piece
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.future_changes import Agenda
from runtime.state.group_sums import Sums, TimedGroups

Occurs = Callable[[Mapping[str, Ints]], Ints]

FIRST, SECOND = "first", "second"


def once(counts: Mapping[str, Ints]) -> Ints:
    """Return 1 where a row is there."""
    return (counts[FIRST] > 0).astype(np.int64)


def surplus(counts: Mapping[str, Ints]) -> Ints:
    """Return how many more there are on the left."""
    more: Ints = np.maximum(counts[FIRST] - counts[SECOND], 0)
    return more


def common(counts: Mapping[str, Ints]) -> Ints:
    """Return how many there are on both sides."""
    return np.minimum(counts[FIRST], counts[SECOND])


def if_matched(counts: Mapping[str, Ints]) -> Ints:
    """Return how many there are of a row that has matches."""
    return np.where(counts[SECOND] > 0, counts[FIRST], 0)


def if_unmatched(counts: Mapping[str, Ints]) -> Ints:
    """Return how many there are of a row that has no match."""
    return np.where(counts[SECOND] > 0, 0, counts[FIRST])


class CountedRows:
    """Rows with counts over time, and how often they occur in the result."""

    def __init__(self, types: Sequence[pa.DataType], occurs: Occurs) -> None:
        self._types = tuple(types)
        self._groups = TimedGroups(types)
        self._groups.table.add_lanes([FIRST, SECOND])
        self._occurs = occurs

    @property
    def nbytes(self) -> int:
        return self._groups.nbytes

    @property
    def agenda(self) -> Agenda:
        """What is to happen to the counts."""
        return self._groups.agenda

    def put(self, lane: str, columns: Columns, start: Ints, end: Ints | None, weight: Ints | None) -> None:
        """Add rows to a count, during their lifetimes."""
        slots = self._groups.table.slots(columns, len(start))
        self._groups.put(slots, {lane: np.ones(len(start), np.int64)}, start, end, weight)

    def advance(self, until: int) -> ChangeBatch:
        """Return the changes of the result before a heartbeat."""
        sums = self._groups.advance(until)
        if not len(sums.first):
            return empty_batch(self._types, until)
        table = self._groups.table
        kept = {lane: table.lane(lane, sums.touched) for lane in (FIRST, SECOND)}
        after, before = self._occurs(sums.after), self._occurs(kept)
        slots, start, end, weight = lifetimes_of_values(sums, after, before)
        self._groups.remember(sums)
        batch = ChangeBatch(table.keys(slots), start, end, weight, until)
        self._groups.sweep_unused((FIRST, SECOND))
        return batch

    def delta(self) -> dict[str, Delta]:
        """Return what is new and what is gone since the last call."""
        return self._groups.delta()

    def load(self, chunks: ChunkSets, until: int) -> None:
        """Take over state that was written before."""
        self._groups.load(chunks, until)


def lifetimes_of_values(sums: Sums, after: Ints, before: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return slots with lifetimes and weights for values that hold from each cell on until the next change.

    `before` has the value of each touched slot before its first cell. The value that holds after the last cell has no
    end yet; the value that held before the first change is taken back.
    """
    previous = np.empty_like(after)
    previous[1:] = after[:-1]
    previous[sums.first] = before
    changed = np.flatnonzero(after != previous)
    slot, instant, value = sums.cells.slot[changed], sums.cells.instant[changed], after[changed]
    first = changes(slot)
    end = np.full(len(changed), FOREVER)
    end[:-1] = np.where(first[1:], FOREVER, instant[1:])
    taken_back = first & (previous[changed] != 0)
    present = value != 0
    return (
        np.concatenate([slot[taken_back], slot[present]]),
        np.concatenate([instant[taken_back], instant[present]]),
        np.concatenate([np.full(int(taken_back.sum()), FOREVER), end[present]]),
        np.concatenate([-previous[changed][taken_back], value[present]]),
    )


class _CountedOperator(Operator):
    occurs: Occurs

    def __init__(self, node: op.Operator, context: Context) -> None:
        super().__init__(node, context)
        self._counted = CountedRows(self.types, type(self).occurs)

    @property
    def nbytes(self) -> int:
        return self._counted.nbytes

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        self._counted.put((FIRST, SECOND)[port], batch.columns, batch.start, batch.end, batch.weight)
        return self._counted.advance(self.until)

    @property
    def agendas(self) -> Sequence[Agenda]:
        return [self._counted.agenda]

    def delta(self) -> dict[str, Delta]:
        return self._counted.delta()

    def load(self, chunks: ChunkSets) -> None:
        self._counted.load(chunks, self.until)


def _piece(node: op.DuplicateEliminate, inputs: InputColumns, piece: str) -> StatePiece:
    return counted_piece(piece, op.output_names(node))


def _piece_of_two(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    return counted_piece(piece, op.output_names(node), {"first": "left", "second": "right"})


@implements(op.DuplicateEliminate, state=_piece)
class DuplicateEliminate(_CountedOperator):
    """Every row once."""

    occurs = staticmethod(once)


@implements(op.Except, state=_piece_of_two)
class Except(_CountedOperator):
    """The rows of the left input that are left over."""

    occurs = staticmethod(surplus)


@implements(op.Intersect, state=_piece_of_two)
class Intersect(_CountedOperator):
    """The rows that both inputs have."""

    occurs = staticmethod(common)


def concat_changes(batches: Sequence[ChangeBatch | None], types: Sequence[pa.DataType], until: int) -> ChangeBatch:
    """Return the rows of several batches, of which some may be missing, as one batch."""
    given = [batch for batch in batches if batch is not None and len(batch)]
    if not given:
        return empty_batch(types, until)
    return ChangeBatch(
        concat_columns([batch.columns for batch in given]),
        np.concatenate([batch.start for batch in given]),
        np.concatenate([batch.ends for batch in given]),
        np.concatenate([batch.weights for batch in given]),
        until,
    )
