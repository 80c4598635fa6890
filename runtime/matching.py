"""Matching: pairs of rows of several inputs with equal keys, for as long as both are there.

The law: a join is linear in each input, so a new row contributes its pairs with everything that the other inputs
have brought so far, weights multiplied, during the time that the lifetimes have in common. Each pair is found once,
when the later of its rows comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from runtime.batch import ChangeBatch, Columns, Ints, Mask, concat_columns, take
from runtime.rows import Codes, equal_rows, expand_ranges, row_codes, valid_rows
from runtime.stores import KeysOf, Stub

Holds = Callable[[Columns, int], Mask]

_UNUSED = pa.nulls(0)
"""Stands for a column that nobody looks at."""

MOST_CANDIDATES = 1 << 20
"""How many pairs are looked at in one go."""


@dataclass(slots=True)
class Side:
    """An input of a join: its rows so far, and how their keys are computed; without keys everything matches."""

    stub: Stub
    keys_of: KeysOf | None
    index: str

    def __post_init__(self) -> None:
        if self.keys_of is not None:
            self.stub.store.index(self.index, self.keys_of)


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


class Matcher:
    """Finds the matches of new rows of one input with the rows of all others."""

    def __init__(self, sides: Sequence[Side], residual: Residual | None) -> None:
        self.sides = sides
        self.residual = residual

    def matches(self, port: int, batch: ChangeBatch) -> list[Matches]:
        """Return what new rows of an input match, in pieces of limited size."""
        side = self.sides[port]
        if not len(batch):
            return []
        rows = np.arange(len(batch))
        if side.keys_of is None:
            return self._pieces(port, batch, rows, None, ())
        keys = side.keys_of(batch.columns, len(batch))
        valid = valid_rows(keys)
        if valid is not None:
            rows = np.flatnonzero(valid)
            keys = take(keys, rows)
        return self._pieces(port, batch, rows, row_codes(keys, len(rows)).codes, keys)

    def _pieces(self, port: int, batch: ChangeBatch, rows: Ints, codes: Codes | None, keys: Columns) -> list[Matches]:
        step = len(rows) if codes is not None else max(MOST_CANDIDATES // max(self.most_candidates(port), 1), 1)
        found = []
        for first in range(0, len(rows), max(step, 1)):
            piece = slice(first, first + step)
            part = Matches(
                rows[piece],
                (),
                batch.start[rows[piece]],
                batch.ends[rows[piece]],
                None if batch.weight is None else batch.weight[rows[piece]],
            )
            own_keys = tuple(key.slice(first, step) for key in keys)
            found.append(self._with_all_others(port, batch, part, None if codes is None else codes[piece], own_keys))
        return [part for part in found if len(part.owner)]

    def _with_all_others(
        self, port: int, batch: ChangeBatch, part: Matches, codes: Codes | None, keys: Columns
    ) -> Matches:
        at_key = np.arange(len(part.owner))
        is_scan = codes is None and len(self.sides) == 2
        for at, side in enumerate(self.sides):
            if at == port:
                part = replace(part, columns=(*part.columns, ()))
                continue
            own_codes = None if codes is None else codes[at_key]
            owner, positions = self.candidates(port, side, part, own_codes)
            if is_scan:
                owner, positions = self._satisfying(port, batch, part, owner, positions)
            part, chosen = _joined(part, side, owner, positions, take(keys, at_key) if codes is not None else None)
            at_key = at_key[chosen]
        own = take(batch.columns, part.owner)
        columns = tuple(own if at == port else each for at, each in enumerate(part.columns))
        whole = replace(part, columns=columns)
        if self.residual is None or is_scan or not len(part.owner):
            return whole
        return _chosen(whole, np.flatnonzero(self.residual.holds(sum(columns, ()), len(part.owner))))

    def _satisfying(
        self, port: int, batch: ChangeBatch, part: Matches, owner: Ints, positions: Ints
    ) -> tuple[Ints, Ints]:
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

    def most_candidates(self, port: int) -> int:
        """Return how many rows of another input a row without keys may be compared with."""
        return max(len(side.stub.store) for at, side in enumerate(self.sides) if at != port)

    def candidates(self, port: int, side: Side, part: Matches, codes: Codes | None) -> tuple[Ints, Ints]:
        """Return pairs of partial matches and rows of one more input that may match: which, and their positions."""
        if codes is None:
            return _everything(part, side.stub)
        return side.stub.find(side.index, codes, part.start, part.end)


def _joined(part: Matches, side: Side, owner: Ints, positions: Ints, keys: Columns | None) -> tuple[Matches, Ints]:
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
    return Matches(part.owner[owner], (*before, rows), start, end, weight, positions), owner


def _everything(part: Matches, stub: Stub) -> tuple[Ints, Ints]:
    """Return all pairs of partial matches and rows that are alive at some time in common."""
    positions = np.arange(stub.store.base, stub.seen)
    if len(part.owner) and len(positions):
        start, end = stub.lifetimes(positions)
        positions = positions[(end > part.start.min()) & (start < part.end.max())]
    count = np.full(len(part.owner), len(positions), np.int64)
    owner, at = expand_ranges(np.zeros(len(part.owner), np.int64), count)
    return owner, positions[at]


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
    )


def pairs_batch(parts: Sequence[Matches], until: int) -> ChangeBatch | None:
    """Return matches as rows of all inputs side by side; None if there are none."""
    if not parts:
        return None
    return ChangeBatch(
        concat_columns([sum(part.columns, ()) for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        None if parts[0].weight is None else np.concatenate([part.weight for part in parts]),
        until,
    )
