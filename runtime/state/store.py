"""Stores own tuples; synopses are stubs on them, and several stubs can share one store.

A store is an append-only sequence of rows in chunks, addressed by position. All its readers are fed the same rows
in the same order, so whoever comes first appends a row and the others find it there. A stub knows how far its
operator has come: it does not show rows that it has not `seen`, nor ends that it has not been `told` of. How
long a row lives is the stub's own rule, which is how windows of different lengths share one log of a stream.

Chunks at the head are dropped as a whole once no stub needs a row of them. Where rows end in another order, or were
taken back by rows of negative weight, the store is rewritten when half of it is no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from cql.bound import RangeSpec
from runtime.columns.batch import FOREVER, ChangeBatch, Columns, Ints, concat_columns, take
from runtime.columns.int_buffer import GrowingInts
from runtime.columns.row_codes import Codes, distinct_rows, remaining, row_codes, valid_rows
from runtime.state.bitmap_index import StoredMarks
from runtime.state.chunks import Delta
from runtime.state.code_index import ALL, NOTHING, CodeRuns
from runtime.time.window_lifetimes import earlier, range_lifetime

KeysOf = Callable[[Columns, int], Columns]
"""Computes the key columns of rows."""


class Entries(NamedTuple):
    """Codes of rows, and which row each is of, in ascending order: any number of codes for each row."""

    codes: Codes
    rows: Ints


EntriesOf = Callable[[Columns, int], Entries]
"""Computes the codes of rows."""

_FEWEST = 4096
MOST_PARTS = 16


class LifetimeRule(Protocol):
    """Says when rows of a store live, to an operator that has been told the ends of so many of them."""

    def lifetimes(self, store: Store, positions: Ints, told: int) -> tuple[Ints, Ints]:
        """Return starts and ends."""

    def ended(self, store: Store, part: StoreSegment, told: int) -> int:
        """Return the instant at which the last row of a part ends; FOREVER if that is not known yet."""

    def bounds(self, store: Store, told: int, start: Ints, end: Ints) -> tuple[Ints, Ints] | tuple[None, None]:
        """Return the positions from which up to which rows live between some instants; None if that is not known."""


class StoredEnds:
    """Rows live as the store says."""

    def lifetimes(self, store: Store, positions: Ints, told: int) -> tuple[Ints, Ints]:
        return store.start.at(positions), store.end.at(positions)

    def ended(self, store: Store, part: StoreSegment, told: int) -> int:
        return part.latest_end

    def bounds(self, store: Store, told: int, start: Ints, end: Ints) -> tuple[None, None]:
        return None, None


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Rows live in a time window."""

    window: RangeSpec

    def lifetimes(self, store: Store, positions: Ints, told: int) -> tuple[Ints, Ints]:
        return range_lifetime(self.window, store.start.at(positions))

    def ended(self, store: Store, part: StoreSegment, told: int) -> int:
        return int(self.lifetimes(store, np.array([part.last]), told)[1][0])

    def bounds(self, store: Store, told: int, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        instants = store.start.values
        low = np.searchsorted(instants, earlier(start, self.window.ticks), side="right")
        return low + store.base, np.searchsorted(instants, end) + store.base


@dataclass(frozen=True, slots=True)
class RowsEnds:
    """A row lives until so many rows have come after it."""

    rows: int

    def lifetimes(self, store: Store, positions: Ints, told: int) -> tuple[Ints, Ints]:
        known = positions < told
        end = np.full(len(positions), FOREVER)
        end[known] = store.start.at(positions[known] + self.rows)
        return store.start.at(positions), end

    def ended(self, store: Store, part: StoreSegment, told: int) -> int:
        return int(self.lifetimes(store, np.array([part.last]), told)[1][0])

    def bounds(self, store: Store, told: int, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        instants = store.start.values
        successor = np.searchsorted(instants, start, side="right") + store.base
        return np.minimum(successor - self.rows, told), np.searchsorted(instants, end) + store.base


@dataclass(slots=True)
class StoreSegment:
    """A stretch of a store: its name, the positions of its first and last row, and when the last of them ends."""

    name: int
    first: int
    last: int
    columns: Columns
    latest_end: int


class Store:
    """Rows by position. A log has their instants; any other store has their starts, ends and weights."""

    def __init__(self, types: Sequence[pa.DataType], is_log: bool) -> None:
        self.types = tuple(types)
        self.is_log = is_log
        self.start, self.end, self.weight = GrowingInts(), GrowingInts(), GrowingInts()
        self.base = self.length = 0
        self._parts: list[StoreSegment] = []
        self._next_name = self._written = 0
        self._dropped: set[str] = set()
        self._stubs: list[Stub] = []
        self._indexes: dict[str, _StoreIndex] = {}
        self._rows_at_rewrite = 0
        self._column_bytes = 0
        self._held = 0

    def __len__(self) -> int:
        return self.length - self.base

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, their lifetimes and indexes."""
        lifetimes = sum(numbers.nbytes for numbers in self._numbers)
        return self._column_bytes + lifetimes + sum(index.nbytes for index in self._indexes.values())

    @property
    def _numbers(self) -> tuple[GrowingInts, ...]:
        return (self.start,) if self.is_log else (self.start, self.end, self.weight)

    def stub(self, rule: LifetimeRule) -> Stub:
        """Return a new reader, which has seen nothing yet."""
        made = Stub(self, rule)
        self._stubs.append(made)
        return made

    def index(self, name: str, entries_of: EntriesOf) -> None:
        """See to it that rows can be found by some codes; who uses the same name means the same codes."""
        if name not in self._indexes:
            self._indexes[name] = _StoreIndex(entries_of)

    def append(self, columns: Columns, start: Ints, end: Ints | None, weight: Ints | None) -> None:
        """Add rows at the end."""
        count = len(start)
        if not count:
            return
        latest_end = FOREVER
        if not self.is_log:
            latest_end = FOREVER if end is None else int(end.max())
            self.end.append(np.full(count, FOREVER) if end is None else end)
            self.weight.append(np.ones(count, np.int64) if weight is None else weight)
        self.start.append(start)
        self._add_part(self.length, self.length + count - 1, columns, latest_end)
        self.length += count

    def _add_part(self, first: int, last: int, columns: Columns, latest_end: int) -> None:
        self._parts.append(StoreSegment(self._next_name, first, last, columns, latest_end))
        self._next_name += 1
        self._column_bytes += sum(column.nbytes for column in columns)

    def _drop_parts(self, first: int, last: int) -> None:
        for part in self._parts[first:last]:
            self._column_bytes -= sum(column.nbytes for column in part.columns)
            if part.name < self._written:
                self._dropped.add(str(part.name))
        del self._parts[first:last]

    def rows(self, positions: Ints) -> Columns:
        """Return the rows at some positions."""
        if not len(positions):
            return tuple(pa.nulls(0, each) for each in self.types)
        return tuple(self.column(at, positions) for at in range(len(self.types)))

    def column(self, at: int, positions: Ints) -> pa.Array:
        """Return the values of one column at some positions."""
        wanted = pa.array(positions - self.base)
        if len(self._parts) == 1:
            return self._parts[0].columns[at].take(wanted)
        return _one_chunk(pa.chunked_array([part.columns[at] for part in self._parts], self.types[at]).take(wanted))

    def rows_since(self, position: int) -> Columns:
        """Return all rows from a position on."""
        parts = [part for part in self._parts if part.last >= position]
        cut = [tuple(column.slice(max(position - part.first, 0)) for column in part.columns) for part in parts]
        return concat_columns(cut) if cut else tuple(pa.nulls(0, each) for each in self.types)

    def find(self, index: str, codes: Codes, low: Ints | None, high: Ints | None) -> tuple[Ints, Ints]:
        """Return pairs (which of the codes, position of a row that may have it), perhaps within bounds."""
        owner, positions, _ = next(self.find_some(index, codes, low, high, ALL), NOTHING)
        return owner, positions

    def find_some(
        self, index: str, codes: Codes, low: Ints | None, high: Ints | None, most: int
    ) -> Iterator[tuple[Ints, Ints, int]]:
        """Return the same pairs, about so many at a time or those of one code, and how many codes are done then."""
        found = self._extended(index).find_some(codes, low, high, most)
        return found if not self.base else _of_positions(found, self.base, FOREVER)

    def counts(self, index: str, codes: Codes, low: Ints, high: Ints) -> Ints:
        """Return how many entries of an index have to be looked at to find the rows of each code within bounds."""
        return self._extended(index).counts(codes, low, high)

    def marks(self, index: str) -> StoredMarks | None:
        """Return the codes of an index as bits, from the base on; None if there are too many different ones."""
        return self._indexes[index].marked(self)

    def has_marks(self, index: str) -> bool:
        """Tell whether there are marks, so that they cost next to nothing."""
        return self._indexes[index].marks is not None

    def _extended(self, index: str) -> CodeRuns:
        found = self._indexes[index]
        found.extend(self)
        return found.runs

    # Forgetting

    @contextmanager
    def held(self) -> Iterator[None]:
        """Forget nothing, so that positions keep their rows, while somebody reads piece by piece."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def trim(self) -> None:
        """Forget what no stub needs."""
        if self._held:
            return
        droppable = 0
        while droppable < len(self._parts) and all(stub.is_past(self._parts[droppable]) for stub in self._stubs):
            droppable += 1
        if droppable:
            self.base = self._parts[droppable - 1].last + 1
            self._drop_parts(0, droppable)
            for numbers in self._numbers:
                numbers.cut(self.base)
        if self.is_log and self._parts:
            self._cut_head(self._parts[0])
        if not self.is_log and len(self) > 2 * self._rows_at_rewrite + _FEWEST:
            if all(stub.seen == self.length for stub in self._stubs):
                self._rewrite()
        if len(self._parts) > MOST_PARTS:
            self._join_parts()

    def _cut_head(self, head: StoreSegment) -> None:
        """Give back the memory of rows at the beginning of a log when they are a good part of its first stretch."""
        needed_from = min(stub.first_needed() for stub in self._stubs)
        unneeded, count = needed_from - head.first, head.last + 1 - head.first
        if not count // 4 < unneeded < count:
            return
        self._column_bytes -= sum(column.nbytes for column in head.columns)
        head.columns = take(head.columns, np.arange(unneeded, count))
        self._column_bytes += sum(column.nbytes for column in head.columns)
        head.first = self.base = needed_from
        for numbers in self._numbers:
            numbers.cut(self.base)

    def _rewrite(self) -> None:
        """Leave out what has ended and what cancels."""
        needed = min(stub.needed for stub in self._stubs)
        kept = np.flatnonzero(self.end.values > needed) + self.base
        rows = _consolidated(self.rows(kept), self.start.at(kept), self.end.at(kept), self.weight.at(kept), needed)
        self.replace(*rows)
        self._rows_at_rewrite = len(self)

    def replace(self, columns: Columns, start: Ints, end: Ints | None, weight: Ints | None) -> None:
        """Keep other rows instead of those that are there; they get new positions."""
        self._drop_parts(0, len(self._parts))
        self._restart(self.length)
        self.append(columns, start, end, weight)
        for stub in self._stubs:
            stub.seen = self.length

    def _restart(self, base: int) -> None:
        self.base = self.length = base
        self.start, self.end, self.weight = GrowingInts(base), GrowingInts(base), GrowingInts(base)
        for index in self._indexes.values():
            index.reset(base)

    def _join_parts(self) -> None:
        """Make one part of the younger half of them: many small ones make reading slow."""
        half = len(self._parts) // 2
        young = self._parts[half:]
        columns = concat_columns([part.columns for part in young])
        self._drop_parts(half, len(self._parts))
        self._add_part(young[0].first, young[-1].last, columns, max(part.latest_end for part in young))

    # Keeping

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        put = {str(part.name): self._chunk(part) for part in self._parts if part.name >= self._written}
        made = Delta(put, frozenset(self._dropped))
        self._written = self._next_name
        self._dropped = set()
        return made

    def _chunk(self, part: StoreSegment) -> pa.RecordBatch:
        numbers = [each.values[part.first - self.base : part.last + 1 - self.base].copy() for each in self._numbers]
        names = [*("start", "end", "weight")[: len(numbers)], *(f"c{at}" for at in range(len(part.columns)))]
        return pa.record_batch([*(pa.array(each) for each in numbers), *part.columns], names=names)

    def load(self, chunks: Mapping[str, pa.RecordBatch], length: int) -> None:
        """Take over chunks that were written before, of a store that had got to a length."""
        self._restart(length - sum(len(chunk) for chunk in chunks.values()))
        width = len(self._numbers)
        for name in sorted(chunks, key=int):
            numbers = [np.asarray(chunks[name].column(at)) for at in range(width)]
            self._next_name = int(name)
            self.append(tuple(chunks[name].columns[width:]), *numbers, *[None] * (3 - width))
        self._next_name = self._written = max(map(int, chunks), default=-1) + 1


def by_keys(keys_of: KeysOf) -> EntriesOf:
    """Return what gives each row the code of its keys; rows with a NULL key have none."""

    def entries(columns: Columns, length: int) -> Entries:
        keys = keys_of(columns, length)
        valid = valid_rows(keys)
        codes = row_codes(keys, length).codes
        if valid is None:
            return Entries(codes, np.arange(length))
        return Entries(codes[valid], np.flatnonzero(valid))

    return entries


class _StoreIndex:
    """An index of a store by some codes, made when it is asked for, and the same codes as bits, if these are."""

    def __init__(self, entries_of: EntriesOf) -> None:
        self._entries_of = entries_of
        self.reset(0)

    def reset(self, base: int) -> None:
        """Start anew from a position."""
        self.runs = CodeRuns()
        self.marks: StoredMarks | None = None
        self._indexed = self._unmarked_until = base

    @property
    def nbytes(self) -> int:
        return self.runs.nbytes + (0 if self.marks is None else self.marks.nbytes)

    def extend(self, store: Store) -> None:
        """Index what is new."""
        first = max(self._indexed, store.base)
        if first == store.length:
            return
        entries = self._entries_of(store.rows_since(first), store.length - first)
        self.runs.add(entries.codes, entries.rows + first, store.base)
        if self.runs.reach_before(store.base) > len(store) // 4 + _FEWEST:
            self.runs.forget_before(store.base)
        self._indexed = store.length
        if self.marks is not None:
            self.marks.cut(store.base)
            if not self.marks.add(entries.codes, entries.rows, store.length - first):
                self.marks = None

    def marked(self, store: Store) -> StoredMarks | None:
        """Return the codes of all rows as bits.

        Where rows have too many different codes, nobody tries again before all of them are gone.
        """
        self.extend(store)
        if self.marks is None and store.base >= self._unmarked_until:
            codes, rows = self._entries_of(store.rows_since(store.base), len(store))
            self.marks = StoredMarks(store.base)
            if not self.marks.add(codes, rows, len(store), half=True):
                self.marks, self._unmarked_until = None, store.length
        if self.marks is not None:
            self.marks.cut(store.base)
        return self.marks


class Stub:
    """One operator's view of a store."""

    def __init__(self, store: Store, rule: LifetimeRule) -> None:
        self.store = store
        self.rule = rule
        self.seen = store.length
        self.told = 0
        self.needed = -(2**63)

    def append(self, columns: Columns, start: Ints, end: Ints | None, weight: Ints | None) -> None:
        """Take in the next rows: add those that are not in the store yet."""
        there = self.store.length - self.seen
        if there < len(start):
            self.store.append(
                tuple(column.slice(there) for column in columns),
                start[there:],
                None if end is None else end[there:],
                None if weight is None else weight[there:],
            )
        self.seen += len(start)

    def take_in(self, batch: ChangeBatch) -> None:
        """Take in the rows of a batch; a log has only those that come, not those that are taken back.

        The tuples of a log end in its order: each row that is taken back, or comes with its end, tells one more.
        """
        if self.store.is_log:
            if batch.weight is not None:
                coming = batch.weight > 0
                self.told += len(batch) - int(coming.sum())
                batch = batch.filter(coming)
            if batch.end is not None:
                self.told += int((batch.end != FOREVER).sum())
        self.append(batch.columns, batch.start, batch.end, batch.weight)

    def find(self, index: str, codes: Codes, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return pairs (which of the codes, position of a row whose key may have it).

        Rows that are not there at any time between a code's start and end may be left out.
        """
        owner, positions, _ = next(self.find_some(index, codes, start, end, ALL), NOTHING)
        return owner, positions

    def find_some(
        self, index: str, codes: Codes, start: Ints, end: Ints, most: int
    ) -> Iterator[tuple[Ints, Ints, int]]:
        """Return the same pairs, about so many at a time or those of one code, and how many codes are done then."""
        low, high = self.rule.bounds(self.store, self.told, start, end)
        found = self.store.find_some(index, codes, low, high, most)
        return found if self.seen == self.store.length else _of_positions(found, 0, self.seen)

    def weights(self, positions: Ints) -> Ints | None:
        """Return the weights of rows; None if all are 1."""
        return None if self.store.is_log else self.store.weight.at(positions)

    def lifetimes(self, positions: Ints) -> tuple[Ints, Ints]:
        """Return the starts and ends of rows, as far as they are known here."""
        return self.rule.lifetimes(self.store, positions, self.told)

    def forget_before(self, instant: int) -> None:
        """Say that rows that end before or at an instant are not needed any more."""
        self.needed = max(self.needed, instant)
        self.store.trim()

    def first_needed(self) -> int:
        """Return the position in a log from which on rows are needed."""
        low, _ = self.rule.bounds(self.store, self.told, np.array([self.needed]), np.array([FOREVER]))
        assert low is not None, "rows of a log end in its order"
        return min(max(int(low[0]), self.store.base), self.seen)

    def is_past(self, part: StoreSegment) -> bool:
        """Tell whether no row of a part, the oldest there is, is needed."""
        return part.last < self.seen and self.rule.ended(self.store, part, self.told) <= self.needed


def _consolidated(
    columns: Columns, start: Ints, end: Ints, weight: Ints, needed: int
) -> tuple[Columns, Ints, Ints, Ints]:
    """Return rows without those that cancel where they are alive from the needed instant on."""
    begun = np.maximum(start, needed)
    lives = (pa.array(begun), pa.array(end))
    number, first = distinct_rows((*lives, *columns), len(start))
    total = np.zeros(len(first), np.int64)
    np.add.at(total, number, weight)
    left = remaining(number, weight, total)
    kept = np.flatnonzero(left)
    return take(columns, kept), begun[kept], end[kept], left[kept]


def _of_positions(found: Iterable[tuple[Ints, Ints, int]], first: int, last: int) -> Iterator[tuple[Ints, Ints, int]]:
    """Yield the pairs of positions from a first to before a last one."""
    for owner, positions, done in found:
        kept = (positions >= first) & (positions < last)
        yield owner[kept], positions[kept], done


def _one_chunk(array: pa.ChunkedArray) -> pa.Array:
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
