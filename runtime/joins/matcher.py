"""Matching: pairs of rows of several inputs with equal keys, or of two without keys, for as long as both are there.

The law: a join is linear in each input, so a new row contributes its pairs with everything that the other inputs
have brought so far, weights multiplied, during the time that the lifetimes have in common. Each pair is found once,
when the later of its rows comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from runtime.columns.batch import (
    BLOCK_ROWS,
    FOREVER,
    ChangeBatch,
    Columns,
    Ints,
    Mask,
    concat_columns,
    empty_batch,
    in_blocks,
    take,
)
from runtime.columns.row_codes import Codes, equal_rows, row_codes, valid_rows
from runtime.joins.candidates import MOST_CANDIDATES, Look, Lookup, Pairs, pairs_found
from runtime.joins.prefilter import Narrowing
from runtime.state.store import KeysOf, Stub, by_keys

Holds = Callable[[Columns, int], Mask]

Candidates = tuple[Ints, Ints, int]
"""Which partial matches, the positions of rows that may match them, and of how many of the former, the first ones,
there are no more then."""

_UNUSED = pa.nulls(0)
"""Stands for a column that nobody looks at."""


@dataclass(slots=True)
class JoinInput:
    """An input of a join: its rows so far, and how their keys are computed; without keys everything matches."""

    stub: Stub
    keys_of: KeysOf | None
    index: str

    def __post_init__(self) -> None:
        if self.keys_of is not None:
            self.stub.store.index(self.index, by_keys(self.keys_of))


@dataclass(frozen=True, slots=True)
class Residual:
    """What rows of all inputs side by side have to satisfy, and which columns that is about."""

    holds: Holds
    columns: frozenset[int]


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of a batch (`owner`) with the rows of the other inputs that they match, and common lifetimes."""

    owner: Ints
    columns: tuple[Columns, ...]
    start: Ints
    end: Ints
    weight: Ints | None
    positions: Ints | None = None
    """Where the rows of the last of the other inputs are in their store, if there is one other input only."""
    bound: int = FOREVER
    """Before which instant no other matches start that are found after these."""


class Matcher:
    """Finds the matches of new rows of one input with the rows of all others.

    Without keys there are two inputs; if there is a `narrowing`, it says what can match. Candidates are looked at in
    pieces of about `block_rows`, without keys more if most of them do not match.
    """

    def __init__(
        self,
        sides: Sequence[JoinInput],
        residual: Residual | None,
        narrowing: Narrowing | None = None,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        self.sides = sides
        self.residual = residual
        self.narrowing = narrowing
        self.block_rows = block_rows
        if narrowing is not None:
            for side, name, entries_of in zip(sides, narrowing.names, narrowing.stored, strict=True):
                side.stub.store.index(name, entries_of)

    def matches(self, port: int, batch: ChangeBatch) -> Iterator[Matches]:
        """Yield what new rows of an input match, in pieces of limited size.

        Meanwhile others may work on the same stores: nothing is forgotten there until all is found.
        """
        side = self.sides[port]
        if not len(batch):
            return
        rows = np.arange(len(batch))
        codes: Codes | None = None
        keys: Columns = ()
        if side.keys_of is not None:
            keys = side.keys_of(batch.columns, len(batch))
            valid = valid_rows(keys)
            if valid is not None:
                rows = np.flatnonzero(valid)
                keys = take(keys, rows)
            codes = row_codes(keys, len(rows)).codes
        weight = None if batch.weight is None else batch.weight[rows]
        part = Matches(rows, (), batch.start[rows], batch.ends[rows], weight)
        with ExitStack() as stack:
            for each in self.sides:
                stack.enter_context(each.stub.store.held())
            yield from self._with_others(port, batch, part, codes, keys, np.arange(len(rows)))

    def _with_others(
        self, port: int, batch: ChangeBatch, part: Matches, codes: Codes | None, keys: Columns, at_key: Ints
    ) -> Iterator[Matches]:
        """Yield partial matches extended by rows of the inputs that they lack; `at_key` is where their keys are."""
        at = len(part.columns)
        is_first = at == (1 if port == 0 else 0)
        if at == len(self.sides):
            whole = self._whole(port, batch, part, codes is None)
            if len(whole.owner):
                yield whole
        elif at == port:
            part = replace(part, columns=(*part.columns, ()))
            yield from self._with_others(port, batch, part, codes, keys, at_key)
        else:
            side = self.sides[at]
            own_keys = None if codes is None else take(keys, at_key)
            is_last = at + 1 == len(self.sides) or at + 2 == len(self.sides) == port + 1
            starts = _SmallestFrom(part.start)
            before = 0
            wanted = None if codes is None else codes[at_key]
            for owner, positions, done in self.candidates(port, batch, side, part, wanted):
                if codes is None:
                    owner, positions = self._satisfying(port, batch, part, owner, positions)
                more, chosen = _joined(part, side, owner, positions, own_keys)
                if is_first:
                    more = replace(more, bound=starts.at(done if is_last else before))
                    before = done
                yield from self._with_others(port, batch, more, codes, keys, at_key[chosen])

    def _whole(self, port: int, batch: ChangeBatch, part: Matches, is_tested: bool) -> Matches:
        """Return matches with the columns of the batch, and without those that do not satisfy the residual."""
        own = take(batch.columns, part.owner)
        columns = tuple(own if at == port else each for at, each in enumerate(part.columns))
        whole = replace(part, columns=columns)
        if self.residual is None or is_tested or not len(part.owner):
            return whole
        return _chosen(whole, np.flatnonzero(self.residual.holds(sum(columns, ()), len(part.owner))))

    def _satisfying(self, port: int, batch: ChangeBatch, part: Matches, owner: Ints, positions: Ints) -> Pairs:
        """Return those of many candidates that match, without looking at columns that do not matter for that."""
        side = self.sides[1 - port]
        start, end = side.stub.lifetimes(positions)
        alive = np.flatnonzero((start < part.end[owner]) & (end > part.start[owner]))
        if len(alive) < len(owner):
            owner, positions = owner[alive], positions[alive]
        if self.residual is None or not len(owner):
            return owner, positions
        own, store = pa.array(part.owner[owner]), side.stub.store
        widths = [len(batch.columns), len(store.types)]
        columns: list[pa.Array] = []
        for at in (0, 1):
            for column in range(widths[0 if at == port else 1]):
                if len(columns) not in self.residual.columns:
                    columns.append(_UNUSED)
                elif at == port:
                    columns.append(batch.columns[column].take(own))
                else:
                    columns.append(store.column(column, positions))
        holds = np.flatnonzero(self.residual.holds(tuple(columns), len(owner)))
        return owner[holds], positions[holds]

    def candidates(
        self, port: int, batch: ChangeBatch, side: JoinInput, part: Matches, codes: Codes | None
    ) -> Iterator[Candidates]:
        """Yield pairs of partial matches and rows of one more input that may match."""
        if codes is not None:
            yield from side.stub.find_some(side.index, codes, part.start, part.end, self.block_rows)
            return
        lookup = self._lookup(port, batch, side)
        most = self.block_rows if self.residual is None else max(self.block_rows, MOST_CANDIDATES)
        for owner, positions in pairs_found(self.looks(port, side, part), lookup, most):
            is_in_order = lookup is None and self.looks_in_order
            yield owner, positions, int(owner[-1]) if is_in_order and len(owner) else 0

    looks_in_order = True
    """Whether what rows look at comes in the order of the rows."""

    def looks(self, port: int, side: JoinInput, part: Matches) -> Iterator[Look]:
        """Yield which rows of the other input may be there at the same time, if there are no keys."""
        return _everything(part, side.stub)

    def _lookup(self, port: int, batch: ChangeBatch, side: JoinInput) -> Lookup | None:
        narrowing = self.narrowing
        if narrowing is None:
            return None
        sought = partial(narrowing.sought[port], batch.columns, len(batch))
        return Lookup(side.stub.store, narrowing.names[1 - port], sought, len(batch), narrowing.least)


def _joined(part: Matches, side: JoinInput, owner: Ints, positions: Ints, keys: Columns | None) -> tuple[Matches, Ints]:
    """Return partial matches extended by candidates of one more input, and which of the given each extends.

    With keys, candidates with other ones are left out.
    """
    other_start, other_end = side.stub.lifetimes(positions)
    start, end = np.maximum(part.start[owner], other_start), np.minimum(part.end[owner], other_end)
    alive = np.flatnonzero(start < end)
    owner, positions, start, end = owner[alive], positions[alive], start[alive], end[alive]
    rows = side.stub.store.rows(positions)
    weight = side.stub.weights(positions)
    if keys is not None and side.keys_of is not None:
        found_keys = side.keys_of(rows, len(owner))
        same = np.flatnonzero(equal_rows(take(keys, owner), found_keys, len(owner)))
        if len(same) < len(owner):
            owner, start, end, rows = owner[same], start[same], end[same], take(rows, same)
            positions = positions[same]
            weight = None if weight is None else weight[same]
    if part.weight is not None:
        weight = part.weight[owner] if weight is None else weight * part.weight[owner]
    before = tuple(take(columns, owner) for columns in part.columns)
    return Matches(part.owner[owner], (*before, rows), start, end, weight, positions, part.bound), owner


def _everything(part: Matches, stub: Stub) -> Iterator[Look]:
    """Yield what is alive at some time in common with partial matches.

    Where it is not known which stretch of a store that is, a few rows at a time are compared with all that is alive
    while they are.
    """
    low, high = stub.rule.bounds(stub.store, stub.told, part.start, part.end)
    if low is not None and high is not None:
        first, last = np.maximum(low, stub.store.base), np.minimum(high, stub.seen)
        yield Look(np.arange(len(part.owner)), first, last)
        return
    positions = np.arange(stub.store.base, stub.seen)
    start, end = stub.lifetimes(positions)
    step = max(MOST_CANDIDATES // max(len(positions), 1), 1)
    for begin in range(0, len(part.owner), step):
        rows = np.arange(begin, min(begin + step, len(part.owner)))
        among = positions[(end > part.start[rows].min()) & (start < part.end[rows].max())]
        yield Look(rows, np.full(len(rows), stub.store.base), np.full(len(rows), stub.seen), among)


def _chosen(part: Matches, at: Ints) -> Matches:
    if len(at) == len(part.owner):
        return part
    return Matches(
        part.owner[at],
        tuple(take(columns, at) for columns in part.columns),
        part.start[at],
        part.end[at],
        None if part.weight is None else part.weight[at],
        None if part.positions is None else part.positions[at],
        part.bound,
    )


class _SmallestFrom:
    """The smallest of some instants from one of them on."""

    def __init__(self, instants: Ints) -> None:
        self._instants = instants
        self._smallest: Ints | None = None

    def at(self, place: int) -> int:
        """Return the smallest instant from a place on; FOREVER behind the last."""
        if place >= len(self._instants):
            return FOREVER
        if self._smallest is None:
            self._smallest = np.minimum.accumulate(self._instants[::-1])[::-1]
        return int(self._smallest[place])


def pairs_in_blocks(
    found: Iterable[Matches], types: Sequence[pa.DataType], since: int, until: int, block_rows: int
) -> Iterator[ChangeBatch]:
    """Yield matches as rows of all inputs side by side, as many at a time as there may be.

    Heartbeats go from that before them to that after them, as far as is known.
    """
    parts: list[Matches] = []
    for part in found:
        if parts and sum(len(each.owner) for each in parts) + len(part.owner) > block_rows:
            bound = max(since, min(parts[-1].bound, until))
            yield from in_blocks(pairs_batch(parts, bound), since, block_rows)
            since, parts = bound, []
        parts.append(part)
    yield from in_blocks(pairs_batch(parts, until) if parts else empty_batch(types, until), since, block_rows)


def pairs_batch(parts: Sequence[Matches], until: int) -> ChangeBatch:
    """Return matches as rows of all inputs side by side."""
    return ChangeBatch(
        concat_columns([sum(part.columns, ()) for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        None if parts[0].weight is None else np.concatenate([part.weight for part in parts]),
        until,
    )
