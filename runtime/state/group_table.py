"""Slots: dense numbers for the keys of groups, and what is remembered of each group.

A group is a row of key columns. It gets a slot when it first appears and keeps it as long as it is in use; what the
operator remembers of it is a set of int64 sums ("lanes", by name) and a row of remembered columns. Every change of
a group is appended to a log of chunks, the last entry of a slot counting; the log is compacted when most of it is
outdated, so that what is written is proportional to what changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from runtime.columns.batch import Columns, Ints, Mask, concat_columns, take
from runtime.columns.row_codes import Codes, distinct_rows, equal_rows, next_codes, row_codes
from runtime.state.chunks import Chunks, Delta

_FEWEST = 1024
MOST_CHUNKS = 64


class CodeIndex:
    """A map from 64-bit codes to slots: a large sorted array and a small one for what is new."""

    def __init__(self) -> None:
        self._codes: list[Codes] = [np.empty(0, np.uint64), np.empty(0, np.uint64)]
        self._slots: list[Ints] = [np.empty(0, np.int64), np.empty(0, np.int64)]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self._codes, *self._slots))

    def find(self, codes: Codes) -> Ints:
        """Return the slots of codes, -1 for those that have none."""
        found = np.full(len(codes), -1, np.int64)
        for known, slots in zip(self._codes, self._slots, strict=True):
            if len(known):
                at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
                found = np.where(known[at] == codes, slots[at], found)
        return found

    def add(self, codes: Codes, slots: Ints) -> None:
        """Add codes that are not there."""
        self._merge(1, codes, slots)
        if len(self._codes[1]) > max(_FEWEST, len(self._codes[0]) // 8):
            self._merge(0, self._codes[1], self._slots[1])
            self._codes[1], self._slots[1] = np.empty(0, np.uint64), np.empty(0, np.int64)

    def _merge(self, level: int, codes: Codes, slots: Ints) -> None:
        together = np.concatenate([self._codes[level], codes])
        order = np.argsort(together, kind="stable")
        self._codes[level] = together[order]
        self._slots[level] = np.concatenate([self._slots[level], slots])[order]


class SlotTable:
    """Groups by slot: keys, lanes, and remembered columns.

    `key_types` are those of the keys, `remembered_types` of what else is kept; both are columns of the log.
    """

    def __init__(self, key_types: Sequence[pa.DataType], remembered_types: Sequence[pa.DataType] = ()) -> None:
        self._key_types = tuple(key_types)
        self._remembered_types = tuple(remembered_types)
        self._index = CodeIndex()
        self._lanes: dict[str, Ints] = {}
        self._place = np.empty(0, np.int64)
        self._free = np.empty(0, np.int64)
        self._used = 0
        self._log = Chunks()
        self._log_rows = 0
        self._bases: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """How many slots are in use."""
        return self._used - len(self._free)

    @property
    def nbytes(self) -> int:
        return self._log.nbytes + self._index.nbytes + self._place.nbytes + sum(a.nbytes for a in self._lanes.values())

    @property
    def lane_names(self) -> tuple[str, ...]:
        return tuple(self._lanes)

    def add_lanes(self, names: Sequence[str]) -> list[str]:
        """Make room for lanes and return those that are new."""
        new = self._make_lanes(names)
        if new and self._bases:
            # The log has the names of all lanes, even before a group has a value in them.
            keys, remembered = ([pa.nulls(0, t) for t in types] for types in (self._key_types, self._remembered_types))
            self._append(np.empty(0, np.int64), tuple(keys), tuple(remembered))
        return new

    def _make_lanes(self, names: Sequence[str]) -> list[str]:
        new = [name for name in names if name not in self._lanes]
        for name in new:
            self._lanes[name] = np.zeros(len(self._place), np.int64)
        return new

    # Slots of keys

    def slots(self, keys: Sequence[pa.Array], length: int) -> Ints:
        """Return the slots of rows of keys; groups that are new get one."""
        if not length:
            return np.empty(0, np.int64)
        number, first = distinct_rows(keys, length)
        return self.slots_of_distinct(take(keys, first), len(first))[number]

    def slots_of_distinct(self, keys: Columns, count: int) -> Ints:
        codes, exact = row_codes(keys, count)
        found = np.full(count, -1, np.int64)
        open_rows = np.arange(count)
        while len(open_rows):
            found[open_rows] = self._index.find(codes[open_rows])
            if exact:
                break
            open_rows = open_rows[found[open_rows] >= 0]
            asked = take(keys, open_rows)
            same = equal_rows(asked, self.keys(found[open_rows]), len(open_rows))
            open_rows = open_rows[~same]
            codes[open_rows] = next_codes(codes[open_rows])
            found[open_rows] = -1
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = self._added(take(keys, new), codes[new])
        return found

    def _added(self, keys: Columns, codes: Codes) -> Ints:
        # Of new rows with one code only the first can have it; the others move on to other codes.
        _, first = np.unique(codes, return_index=True)
        if len(first) < len(codes):
            slots = np.full(len(codes), -1, np.int64)
            slots[first] = self._added(take(keys, first), codes[first])
            rest = np.flatnonzero(slots < 0)
            slots[rest] = self.slots_of_distinct(take(keys, rest), len(rest))
            return slots
        slots = self._allocated(len(codes))
        self._index.add(codes, slots)
        self._append(slots, keys, tuple(pa.nulls(len(slots), each) for each in self._remembered_types))
        return slots

    def _allocated(self, count: int) -> Ints:
        reused, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self._used, self._used + count - len(reused))
        self._used += len(fresh)
        if self._used > len(self._place):
            self._grow(max(self._used, 2 * len(self._place), 16))
        return np.concatenate([reused, fresh])

    def _grow(self, size: int) -> None:
        missing = size - len(self._place)
        self._place = np.concatenate([self._place, np.full(missing, -1)])
        for name, lane in self._lanes.items():
            self._lanes[name] = np.concatenate([lane, np.zeros(missing, np.int64)])

    # What is remembered

    def lane(self, name: str, slots: Ints) -> Ints:
        """Return a lane of some slots."""
        return self._lanes[name][slots]

    def keys(self, slots: Ints) -> Columns:
        """Return the keys of slots."""
        return self._rows(slots, 0, len(self._key_types))

    def remembered(self, slots: Ints) -> Columns:
        """Return what was last remembered of slots."""
        return self._rows(slots, len(self._key_types), len(self._key_types) + len(self._remembered_types))

    def remember(
        self, slots: Ints, lanes: Mapping[str, Ints], columns: Columns = (), keys: Columns | None = None
    ) -> None:
        """Note the new lanes and remembered columns of some slots, each named once."""
        for name, values in lanes.items():
            self._lanes[name][slots] = values
        self._append(slots, self.keys(slots) if keys is None else keys, columns)

    def in_use(self) -> Mask:
        """Return which slots belong to a group."""
        used = np.ones(self._used, np.bool_)
        used[self._free] = False
        return used

    def release(self, unused: Ints) -> None:
        """Give up slots: their groups are forgotten, their numbers used again."""
        if not len(unused):
            return
        self._free = np.concatenate([self._free, unused])
        for lane in self._lanes.values():
            lane[unused] = 0
        self._place[unused] = -1
        self._compact(0)
        self._rebuild_index()

    def _rebuild_index(self) -> None:
        self._index = CodeIndex()
        slots = np.flatnonzero(self.in_use())
        keys = self.keys(slots)
        codes, exact = row_codes(keys, len(slots))
        while not exact:
            _, first = np.unique(codes, return_index=True)
            again = np.setdiff1d(np.arange(len(codes)), first)
            if not len(again):
                break
            codes[again] = next_codes(codes[again])
        self._index.add(codes, slots)

    # The log

    def _append(self, slots: Ints, keys: Columns, remembered: Columns) -> None:
        columns = [pa.array(slots), *keys, *remembered, *(pa.array(lane[slots]) for lane in self._lanes.values())]
        name = self._log.append(pa.record_batch(columns, names=self._names()))
        base = self._bases[-1][1] + len(self._log[self._bases[-1][0]]) if self._bases else 0
        self._bases.append((name, base))
        self._place[slots] = base + np.arange(len(slots))
        self._log_rows += len(slots)
        if self._log_rows > 2 * len(self) + 4 * _FEWEST:
            self._compact(0)
        elif len(self._bases) > MOST_CHUNKS:
            self._compact(MOST_CHUNKS // 2)

    def _names(self) -> list[str]:
        columns = len(self._key_types) + len(self._remembered_types)
        return ["slot", *(f"c{at}" for at in range(columns)), *(f"lane {name}" for name in self._lanes)]

    def _rows(self, slots: Ints, first: int, last: int) -> Columns:
        types = (*self._key_types, *self._remembered_types)[first:last]
        if not len(slots):
            return tuple(pa.nulls(0, each) for each in types)
        chunks = [self._log[name] for name, _ in self._bases]
        bases = np.array([base for _, base in self._bases])
        lengths = np.array([len(chunk) for chunk in chunks])
        shift = bases - (np.cumsum(lengths) - lengths)
        place = self._place[slots]
        positions = pa.array(place - shift[np.searchsorted(bases, place, side="right") - 1])
        return tuple(
            _taken([chunk.column(1 + at) for chunk in chunks], positions, types[at - first])
            for at in range(first, last)
        )

    def _compact(self, kept: int) -> None:
        """Write the live entries of all chunks but the first ones into one chunk."""
        old = self._bases[kept:]
        live, parts = [], []
        for name, base in old:
            chunk = self._log[name]
            slots = np.asarray(chunk.column(0))
            current = np.flatnonzero(self._place[slots] == base + np.arange(len(slots)))
            live.append(slots[current])
            width = 1 + len(self._key_types) + len(self._remembered_types)
            parts.append(take(chunk.columns[1:width], current))
        slots, columns = np.concatenate(live), concat_columns(parts)
        end = old[-1][1] + len(self._log[old[-1][0]])
        for name, _ in old:
            self._log_rows -= len(self._log[name])
            self._log.drop(name)
        self._bases = self._bases[:kept]
        lanes = [pa.array(lane[slots]) for lane in self._lanes.values()]
        name = self._log.append(pa.record_batch([pa.array(slots), *columns, *lanes], names=self._names()))
        self._bases.append((name, end))
        self._place[slots] = end + np.arange(len(slots))
        self._log_rows += len(slots)

    def delta(self) -> Delta:
        """Return what is new and what is gone in the log since the last call."""
        return self._log.delta()

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over a log that was written before."""
        self._log.load(chunks)
        base = 0
        for name, chunk in self._log.items():
            slots = np.asarray(chunk.column(0))
            self._used = max(self._used, int(slots.max(initial=-1)) + 1)
            if self._used > len(self._place):
                self._grow(self._used)
            self._bases.append((name, base))
            self._place[slots] = base + np.arange(len(slots))
            for column_name in chunk.schema.names:
                if column_name.startswith("lane "):
                    self._make_lanes([column_name[5:]])
                    self._lanes[column_name[5:]][slots] = np.asarray(chunk.column(column_name))
            base += len(slots)
            self._log_rows += len(slots)
        self._free = np.flatnonzero(self._place[: self._used] < 0)
        if self._bases:
            self._rebuild_index()


def _taken(chunks: list[pa.Array], positions: pa.Array, data_type: pa.DataType) -> pa.Array:
    if len(chunks) == 1:
        return chunks[0].take(positions)
    taken = pa.chunked_array(chunks, data_type).take(positions)
    return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)
