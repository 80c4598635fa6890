"""Groups whose sums follow time: the core of aggregation, DISTINCT, EXCEPT, INTERSECT and of joins that are not inner.

Each row of a lifetime adds its lanes to its group at its start and takes them away at its end. A cell is a group and
an instant at which its sums may change. `advance` gives the sums after every cell before the heartbeat, and keeps what
happens later on the agenda, where rows of one group with the same start and end are one entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from runtime.columns.batch import FOREVER, Columns, Ints, Mask
from runtime.columns.row_codes import changes, order_by
from runtime.state.cells import Cells
from runtime.state.chunks import Delta
from runtime.state.future_changes import Agenda
from runtime.state.group_table import SlotTable

Lanes = dict[str, Ints]

_EXACT_IN_DOUBLE = 2**52
_FEWEST = 1024


@dataclass(frozen=True, slots=True)
class Sums:
    """Cells in the order of slot and instant, the lanes after each, and where the slots begin."""

    cells: Cells
    after: Lanes
    first: Mask

    def before(self, name: str, kept: Ints) -> Ints:
        """Return a lane before each cell; `kept` has it for the slots as they were before the first one."""
        shifted = np.empty_like(self.after[name])
        shifted[1:] = self.after[name][:-1]
        shifted[self.first] = kept
        return shifted

    @property
    def last(self) -> Ints:
        """The position of the last cell of each slot."""
        return np.append(np.flatnonzero(self.first)[1:], len(self.first)) - 1

    @property
    def touched(self) -> Ints:
        """The slots that have cells."""
        return self.cells.slot[self.first]


class TimedGroups:
    """Groups with their lanes now and the changes to come."""

    def __init__(self, key_types: Sequence[pa.DataType], remembered_types: Sequence[pa.DataType] = ()) -> None:
        self.table = SlotTable(key_types, remembered_types)
        self.agenda = Agenda(_by_cell, again=True)
        self._used_after_sweep = 0

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.agenda.nbytes

    def put(self, slots: Ints, lanes: Mapping[str, Ints], start: Ints, end: Ints | None, weight: Ints | None) -> None:
        """Note rows of groups: what they add at their start, they take away at their end."""
        if self.table.add_lanes(list(lanes)):
            self._fill_agenda()
        if not len(slots):
            return
        names = self.table.lane_names
        zeros = np.zeros(len(slots), np.int64)
        given = [lanes.get(name, zeros) for name in names]
        if weight is not None:
            given = [lane * weight for lane in given]
        slots, start, end, given = _condensed(slots, start, end, given)
        self._schedule(start, slots, given)
        if end is not None:
            known = end != FOREVER
            if known.all():
                self._schedule(end, slots, [-lane for lane in given])
            elif known.any():
                self._schedule(end[known], slots[known], [-lane[known] for lane in given])

    def settle(self) -> None:
        """Take what was put since the last advance into what is kept."""
        self.agenda.settle()

    def touch(self, slot: int, instant: int) -> None:
        """Make a cell where nothing has to change."""
        names = self.table.lane_names
        self._schedule(np.array([instant]), np.array([slot]), [np.zeros(1, np.int64)] * len(names))

    def advance(self, until: int) -> Sums:
        """Return the sums after all cells before a heartbeat; they are not written back."""
        names = self.table.lane_names
        taken = self.agenda.take(until)
        if taken is None:
            nothing = np.empty(0, np.int64)
            return Sums(Cells(nothing, nothing, until), dict.fromkeys(names, nothing), np.empty(0, np.bool_))
        instants, columns = taken
        slots, *lanes = (np.asarray(column) for column in columns)
        order = order_by(slots, instants)
        slots, instants = slots[order], instants[order]
        new_slot = changes(slots)
        new_cell = new_slot | changes(instants)
        starts = np.flatnonzero(new_cell)
        first = new_slot[starts]
        cells = Cells(slots[starts], instants[starts], until)
        touched = cells.slot[first]
        after = {
            name: _running(np.add.reduceat(lane[order], starts), first, self.table.lane(name, touched))
            for name, lane in zip(names, lanes, strict=True)
        }
        return Sums(cells, after, first)

    def remember(self, sums: Sums, columns: Columns = ()) -> None:
        """Write back the sums after the last cell of each slot, with what else is remembered of it."""
        last = sums.last
        self.table.remember(sums.touched, {name: lane[last] for name, lane in sums.after.items()}, columns)

    def sweep_unused(self, lanes: Sequence[str]) -> Ints:
        """Give up, from time to time, the slots whose lanes are all 0 and which nothing is to happen to."""
        if len(self.table) < 2 * self._used_after_sweep + _FEWEST:
            return np.empty(0, np.int64)
        unused = self.table.in_use()
        for lane in lanes:
            unused &= self.table.lane(lane, np.arange(len(unused))) == 0
        given_up = np.flatnonzero(unused)
        coming = self.agenda.rows()
        if coming is not None:
            given_up = np.setdiff1d(given_up, np.asarray(coming[1][0]))
        self.table.release(given_up)
        self._used_after_sweep = len(self.table)
        return given_up

    def delta(self) -> dict[str, Delta]:
        """Return what is new and what is gone since the last call."""
        return {"groups": self.table.delta(), "agenda": self.agenda.delta()}

    def load(self, chunks: Mapping[str, Mapping[str, pa.RecordBatch]], taken_until: int) -> None:
        """Take over state that was written before, up to a heartbeat."""
        self.table.load(chunks.get("groups", {}))
        self.agenda.load(chunks.get("agenda", {}), taken_until)
        self._fill_agenda()

    def _fill_agenda(self) -> None:
        self.agenda.fill([pa.int64()] * (1 + len(self.table.lane_names)))

    def _schedule(self, instants: Ints, slots: Ints, lanes: Sequence[Ints]) -> None:
        self.agenda.put(instants, [pa.array(slots), *(pa.array(lane) for lane in lanes)])


def _by_cell(instants: Ints, columns: Columns) -> tuple[Ints, Columns]:
    """Return entries in the order of time, of which those of one cell are added up."""
    slots, *lanes = (np.asarray(column) for column in columns)
    order = order_by(instants, slots)
    slots, instants = slots[order], instants[order]
    starts = np.flatnonzero(changes(instants) | changes(slots))
    summed = (pa.array(np.add.reduceat(lane[order], starts)) for lane in lanes)
    return instants[starts], (pa.array(slots[starts]), *summed)


def _running(change: Ints, first: Mask, base: Ints) -> Ints:
    """Return running sums that start anew, from a base, at each first position."""
    total: Ints = np.cumsum(change)
    starts = np.flatnonzero(first)
    offset = base - (total[starts] - change[starts])
    running: Ints = total + np.repeat(offset, np.diff(np.append(starts, len(change))))
    return running


def _condensed(
    slots: Ints, start: Ints, end: Ints | None, lanes: list[Ints]
) -> tuple[Ints, Ints, Ints | None, list[Ints]]:
    """Return rows with those of one slot, start and end added up, if there are few different ones."""
    count = len(slots)
    new_life = changes(start)
    if end is not None:
        new_life |= changes(end)
    lives = np.flatnonzero(new_life)
    width = int(slots.max()) + 1
    if len(lives) * width > count:
        return slots, start, end, lanes
    code = slots + width * (np.cumsum(new_life) - 1)
    rows = np.bincount(code, minlength=width * len(lives))
    present = np.flatnonzero(rows)
    life = lives[present // width]
    summed = [binned(code, lane, len(rows))[present] for lane in lanes]
    return present % width, start[life], None if end is None else end[life], summed


def binned(code: Ints, lane: Ints, bins: int) -> Ints:
    """Return exact sums by code."""
    if not len(lane):
        return np.zeros(bins, np.int64)
    largest = max(int(lane.max()), -int(lane.min()))
    if largest * len(lane) < _EXACT_IN_DOUBLE:
        ones = largest == 1 and lane.min() == 1
        return np.bincount(code, None if ones else lane, bins).astype(np.int64)
    sums = np.zeros(bins, np.int64)
    np.add.at(sums, code, lane)
    return sums
