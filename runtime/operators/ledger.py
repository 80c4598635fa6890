"""The log of a relation: removals of rows that are not there are bad rows, which end the run or are left out.

Rows of one instant are unordered, so what is judged is the net change of each row at each instant: a removal is bad as
far as there would be fewer than none of its row afterwards.
"""

from __future__ import annotations

import numpy as np

from cql.errors import Code, fail
from cql.intervals import TimeDomain
from planner import operators as op
from runtime.columns.batch import ChangeBatch, Columns, Ints, Mask, empty_batch, take
from runtime.columns.row_codes import changes, distinct_rows, order_by
from runtime.columns.texts import known_instants
from runtime.operators.base import Context, Operator
from runtime.operators.registry import implements
from runtime.operators.streams import ChangeLog
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.group_table import SlotTable
from runtime.user_errors import RemovalFailed

_FEWEST = 1024
"""So many rows that are gone are remembered at least."""

_ROWS = "rows"


@implements(op.Ledger)
class Ledger(Operator):
    """Keeps how often each row is there; `ignored` counts the removals that were left out."""

    node: op.Ledger

    def __init__(self, node: op.Ledger, context: Context) -> None:
        super().__init__(node, context)
        self.ignored = 0
        self._changes = ChangeLog(are_netted=False)
        self._rows = SlotTable(self.types)
        self._rows.add_lanes([_ROWS])
        self._gone = 0
        """How many rows have gone since those that are gone were forgotten."""

    @property
    def nbytes(self) -> int:
        return self._changes.nbytes + self._rows.nbytes

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        self._changes.put(batch)
        taken = self._changes.take(self.until)
        if taken is None or not len(taken[0]):
            return empty_batch(self.types, self.until)
        instants, weights, columns = taken
        weights = self._founded(instants, weights, columns)
        made = ChangeBatch(columns, instants, None, weights, self.until)
        return made if weights.all() else made.filter(weights != 0)

    def _founded(self, instants: Ints, weights: Ints, columns: Columns) -> Ints:
        """Return the changes without what removes rows that are not there, and note what is there now."""
        number, found = distinct_rows(columns, len(weights))
        rows = take(columns, found)
        slots = self._rows.slots_of_distinct(rows, len(found))
        there = self._rows.lane(_ROWS, slots)
        if (weights < 0).any():
            weights = self._judged(instants, weights, columns, number, there)
        after = there.copy()
        np.add.at(after, number, weights)
        self._remember(slots, after, rows)
        return weights

    def _judged(self, instants: Ints, weights: Ints, columns: Columns, number: Ints, before: Ints) -> Ints:
        """Return the changes of some rows, each with a number and `before` how often it was there, without bad ones."""
        order = order_by(number)
        weight = weights[order]
        first = changes(number[order])
        starts = np.flatnonzero(first)
        sums = np.cumsum(weight)
        offset = before[number[order[starts]]] - np.append(0, sums[starts[1:] - 1])
        there = sums + np.repeat(offset, np.diff(np.append(starts, len(weight))))
        if there.min() >= 0:
            return weights
        lowest = _lowest(first, there)
        missing = np.where(first, 0, np.append(0, lowest[:-1])) - lowest
        self._judge(missing, instants[order], order, columns)
        judged = weights.copy()
        judged[order] += missing
        return judged

    def _judge(self, missing: Ints, instants: Ints, order: Ints, columns: Columns) -> None:
        """Count removals of rows that are not there; raises if they end the run."""
        if self.context.on_bad_row == "fail":
            bad = np.flatnonzero(missing)
            at = int(bad[instants[bad].argmin()])
            raise self._failure(int(instants[at]), take(columns, order[at : at + 1]))
        self.ignored += int(missing.sum())

    def _failure(self, instant: int, row: Columns) -> RemovalFailed:
        time = self.node.time
        at = instant if time is TimeDomain.INTEGER else known_instants(np.array([instant]), time)[0].as_py()
        names = op.output_names(self.node)
        values = ", ".join(f"{name} = {value[0].as_py()!r}" for name, value in zip(names, row, strict=True))
        error = fail(
            Code.BAD_DATA,
            f"'{self.node.table}' at {at}: a row is removed that is not there: {values}",
            hint="correct the log, or leave such removals out: SET on_bad_row = skip",
        )
        return RemovalFailed(error.diagnostics, self.node.table)

    def _remember(self, slots: Ints, rows: Ints, keys: Columns) -> None:
        """Note how often some rows are there, and forget those that are gone when they are many."""
        self._rows.remember(slots, {_ROWS: rows}, keys=keys)
        self._gone += int((rows == 0).sum())
        if self._gone > max(_FEWEST, len(self._rows) // 2):
            used = np.flatnonzero(self._rows.in_use())
            self._rows.release(used[self._rows.lane(_ROWS, used) == 0])
            self._gone = 0

    def delta(self) -> dict[str, Delta]:
        return {"rows": self._rows.delta(), **self._changes.delta()}

    def load(self, chunks: ChunkSets) -> None:
        self._rows.load(chunks.get("rows", {}))
        self._changes.load(chunks, self.until)


def _lowest(first: Mask, there: Ints) -> Ints:
    """Return the least that was there of each row up to each change, 0 if it was never less than nothing.

    Changes are in the order of rows, `first` marks the first of each, and within those of instants; `there` is how
    many there are after each change if nothing is left out.

    >>> _lowest(np.array([True, False, False, True, False]), np.array([-1, 0, -3, 2, -1])).tolist()
    [-1, -1, -3, 0, -1]
    """
    low = np.minimum(there, 0)
    span = (np.cumsum(first) - 1) * (1 - int(low.min(initial=0)))
    lowest: Ints = np.minimum.accumulate(low - span) + span
    return lowest
