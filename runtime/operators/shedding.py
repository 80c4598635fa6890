"""Shedding: operators that leave out rows at the sources, and results of units of time that are lost.

What lies between them works as always: at the instants of kept units everything that it needs is there. Verdicts come
from the schedules of `shedding/schedule.py`; dropped rows still count as read, so that clocks do not miss them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from planner import operators as op
from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch, Columns, Ints, Mask, empty_batch
from runtime.columns.net_changes import netted_changes
from runtime.columns.row_codes import row_codes
from runtime.operators.base import Context, Operator
from runtime.operators.registry import implements
from runtime.operators.streams import ChangeLog
from runtime.state.chunks import Chunks, ChunkSets, Delta
from shedding.schedule import Schedule


def rows_passed(node: op.SourceDrop, schedules: Mapping[str, Schedule], batch: ChangeBatch) -> ChangeBatch:
    """Return the rows of a source that a drop operator passes.

    They may come in any order if the schedule is one that others decide about.
    """
    if not len(batch):
        return batch
    schedule = schedules[node.units.schedule]
    if not node.goes_by_instants:
        return batch.filter(_chosen(node.units, schedule, batch.columns, batch.start))
    length = node.units.length
    if schedule.is_idle:
        schedule.decide_until(-(-(int(batch.start[-1]) + node.reach) // length), -(-int(batch.start[0]) // length))
        return batch
    lowest, highest = int(batch.start.min()), int(batch.start.max())
    if not schedule.loses_any(-(-lowest // length), -(-(highest + node.reach) // length) - 1):
        return batch
    return batch.filter(~schedule.all_lost(-(-batch.start // length), -(-(batch.start + node.reach) // length) - 1))


def _chosen(units: op.Units, schedule: Schedule, columns: Columns, instants: Ints) -> Mask:
    """Return which rows are passed at random: rows that are equal at one instant have the same fate."""
    fractions = schedule.fractions(-(-instants // units.length))
    if not fractions.any():
        return np.ones(len(instants), np.bool_)
    seed = pa.array(np.full(len(instants), units.seed, np.int64))
    codes = row_codes((seed, pa.array(instants), *columns), len(instants)).codes
    return (codes >> np.uint64(11)).astype(np.float64) / 2.0**53 >= fractions


@implements(op.WindowDrop, op.RandomDrop)
class DropRows(Operator):
    """Passes the rows that a kept unit needs, or a share of all rows."""

    node: op.SourceDrop

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return rows_passed(self.node, self.context.schedules, batch)


@implements(op.KeepWindows)
class KeepWindows(Operator):
    """Passes the elements at instants of kept units."""

    node: op.KeepWindows

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        if not len(batch):
            return batch
        schedule = self.context.schedules[self.node.units.schedule]
        if schedule.is_idle:
            schedule.decide_until(int(unit_of(batch.start[-1:], self.node)[0]) + 1)
            return batch
        return batch.filter(schedule.kept(unit_of(batch.start, self.node)))


@implements(op.Hold)
class Hold(Operator):
    """Lets a relation change at the instants of kept units only.

    Changes at lost instants wait for the next kept one, and those that cancel by then never happened.
    """

    node: op.Hold

    def __init__(self, node: op.Hold, context: Context) -> None:
        super().__init__(node, context)
        self._changes = ChangeLog(are_netted=True)
        self._taken = Chunks()
        """The instant before which no change waits any longer, as state."""

    @property
    def nbytes(self) -> int:
        return self._changes.nbytes

    @property
    def _schedule(self) -> Schedule:
        return self.context.schedules[self.node.units.schedule]

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        if self._passes_at_once(batch):
            self._schedule.decide_until(int(unit_of(np.array([self.until - 1]), self.node)[0]) + 1)
            return batch
        self._changes.put(batch)
        if not len(self._changes) or self.until == BEGINNING:
            return empty_batch(self.types, self.until)
        last = int(unit_of(np.array([self.until - 1]), self.node)[0])
        settled = self._settled(last)
        self._taken.clear()
        self._taken.append(pa.record_batch([pa.array([settled])], names=["settled"]))
        taken = self._changes.take(settled)
        if taken is None:
            return empty_batch(self.types, self.until)
        instants, weights, columns = taken
        length, grain = self.node.units.length, self.node.grain
        units = unit_of(instants, self.node)
        kept = self._schedule.next_kept(units, last + 1)
        waited = kept > units
        if waited.any():
            instants = np.where(waited, (kept - 1) * length + grain, instants)
            instants, weights, columns = netted_changes(instants, weights, columns)
        return ChangeBatch(columns, instants, None, weights, self.until)

    def _passes_at_once(self, batch: ChangeBatch) -> bool:
        """Tell whether there are changes of the past only, and none of them has ever had to wait."""
        if not len(batch) or len(self._changes) or not self._schedule.is_idle:
            return False
        known = batch.start if batch.end is None else np.where(batch.end == FOREVER, batch.start, batch.end)
        return int(known.max()) < self.until

    def _settled(self, last: int) -> int:
        """Return the instant before which no change has to wait any longer, in or before the last unit so far."""
        first_lost = self._schedule.lost_since(last)
        if first_lost is None:
            return self.until
        return min((first_lost - 1) * self.node.units.length + self.node.grain, self.until)

    def delta(self) -> dict[str, Delta]:
        return {**self._changes.delta(), "taken": self._taken.delta()}

    def load(self, chunks: ChunkSets) -> None:
        self._taken.load(chunks.get("taken", {}))
        settled = [chunk.column(0)[0].as_py() for chunk in self._taken]
        self._changes.load(chunks, settled[-1] if settled else BEGINNING)


def unit_of(instants: Ints, node: op.KeptUnits) -> Ints:
    """Return the units that instants belong to: what happens at a multiple of the grain lasts until the next one."""
    return -(-(instants // node.grain * node.grain) // node.units.length)
