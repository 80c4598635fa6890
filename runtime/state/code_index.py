"""Indexes: from 64-bit codes, of keys or of anything else that is looked for, to the positions of rows in a store.

An entry is one integer: the first bits of a code, then the position of a row, counted from an origin. An index is a
few sorted runs of entries, merged so that each is at least `GROWTH` times as long as the next. Codes are spread
evenly, so their first bits tell nearly where in a run they are: a directory gives for each such prefix where its
entries begin, and a probe looks at one short stretch of a run, whatever the run's length. As the last bits of codes
are missing, what is found may have another code and is to be compared. A row may have any number of codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.columns.batch import Ints
from runtime.columns.row_codes import Codes, expand_ranges

GROWTH = 3
_LONG_STRETCH = 16

ALL = 1 << 62
"""More pairs than there ever are."""

NOTHING: tuple[Ints, Ints, int] = (np.empty(0, np.int64), np.empty(0, np.int64), 0)
"""No pairs."""


@dataclass(frozen=True, slots=True)
class _EntryRun:
    """Sorted entries: codes cut to all but the last `bits`, which hold positions from an origin on."""

    entries: Codes
    origin: int
    bits: int
    directory: npt.NDArray[np.int32]
    prefix_shift: int

    @property
    def nbytes(self) -> int:
        return self.entries.nbytes + self.directory.nbytes

    @property
    def positions(self) -> Ints:
        return self.positions_at(self.entries)

    def positions_at(self, entries: Codes) -> Ints:
        return (entries & np.uint64((1 << self.bits) - 1)).astype(np.int64) + self.origin


def _run(codes: Codes, positions: Ints, cut_bits: int) -> _EntryRun:
    """Make a run of codes, of which so many last bits are not theirs any more."""
    origin = int(positions.min())
    bits = max(int(positions.max() - origin).bit_length(), cut_bits)
    entries = ((codes >> np.uint64(bits)) << np.uint64(bits)) | (positions - origin).view(np.uint64)
    entries.sort()
    return _with_directory(entries, origin, bits)


def _with_directory(entries: Codes, origin: int, bits: int) -> _EntryRun:
    prefix_bits = max(len(entries).bit_length() - 2, 1)
    shift = 64 - prefix_bits
    counts = np.bincount((entries >> np.uint64(shift)).view(np.int64), minlength=1 << prefix_bits)
    directory = np.zeros((1 << prefix_bits) + 1, np.int32)
    np.cumsum(counts, out=directory[1:])
    return _EntryRun(entries, origin, bits, directory, shift)


class CodeRuns:
    """Positions by code."""

    def __init__(self) -> None:
        self._runs: list[_EntryRun] = []

    def __len__(self) -> int:
        return sum(len(run.entries) for run in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def add(self, codes: Codes, positions: Ints, oldest: int) -> None:
        """Add entries; those of positions before the oldest may be forgotten."""
        if not len(codes):
            return
        merged_codes, merged_positions, total, cut_bits = [codes], [positions], len(codes), 0
        while self._runs and len(self._runs[-1].entries) < GROWTH * total:
            older = self._runs.pop()
            older_positions = older.positions
            kept = older_positions >= oldest
            entries = older.entries if kept.all() else older.entries[kept]
            merged_codes.append(entries)
            merged_positions.append(older_positions if kept.all() else older_positions[kept])
            total += len(entries)
            cut_bits = max(cut_bits, older.bits)
        self._runs.append(_run(np.concatenate(merged_codes), np.concatenate(merged_positions), cut_bits))

    def reach_before(self, oldest: int) -> int:
        """Return of how many positions before the oldest there may be entries."""
        return sum(max(oldest - run.origin, 0) for run in self._runs)

    def forget_before(self, oldest: int) -> None:
        """Drop the entries of positions before the oldest."""
        runs, self._runs = self._runs, []
        for run in runs:
            kept = run.entries[run.positions >= oldest]
            if len(kept):
                moved = max(oldest - run.origin, 0)
                self._runs.append(_with_directory(kept - np.uint64(moved), run.origin + moved, run.bits))

    def find(self, codes: Codes, low: Ints | None = None, high: Ints | None = None) -> tuple[Ints, Ints]:
        """Return pairs (which of the codes, position of an entry that may have it).

        With bounds, entries outside the positions from `low` up to `high` may be left out.
        """
        owner, positions, _ = next(self.find_some(codes, low, high, ALL), NOTHING)
        return owner, positions

    def find_some(
        self, codes: Codes, low: Ints | None, high: Ints | None, most: int
    ) -> Iterator[tuple[Ints, Ints, int]]:
        """Return the same pairs, about so many at a time or those of one code, and how many codes are done then.

        Where that takes several pieces, codes are done in the order in which they are given.
        """
        runs = list(self._runs)
        if not runs:
            return iter(())
        order = _by_code(codes)
        sorted_codes = codes[order]
        bounds = None if low is None or high is None else (low[order], high[order])
        stretches = [_stretches(run, sorted_codes, bounds) for run in runs]
        if sum(int(count.sum()) for _, count in stretches) > most:
            given = [(_ordered(first, order), _ordered(count, order)) for first, count in stretches]
            return _in_pieces(runs, codes, given, most)
        owner, positions = _pairs(runs, sorted_codes, stretches)
        return iter(((order[owner], positions, len(codes)),))

    def counts(self, codes: Codes, low: Ints, high: Ints) -> Ints:
        """Return how many entries have to be looked at to find those of each code within bounds."""
        order = _by_code(codes)
        total = np.zeros(len(codes), np.int64)
        for run in self._runs:
            total += _stretches(run, codes[order], (low[order], high[order]))[1]
        counts = np.empty(len(codes), np.int64)
        counts[order] = total
        return counts


def _by_code(codes: Codes) -> Ints:
    """Return the places of codes in about ascending order: what is looked for one after the other is close together."""
    shift = np.uint64(max(len(codes) - 1, 1).bit_length())
    packed = ((codes >> shift) << shift) | np.arange(len(codes), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << int(shift)) - 1)).astype(np.int64)


def _pairs(runs: list[_EntryRun], codes: Codes, stretches: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return which code each entry of some stretches has, and its position, without those that have another one."""
    owners, positions = [], []
    for run, stretch in zip(runs, stretches, strict=True):
        owner, at = expand_ranges(*stretch)
        entries = run.entries[at]
        same = (entries ^ codes[owner]) >> np.uint64(run.bits) == 0
        owners.append(owner[same])
        positions.append(run.positions_at(entries[same]))
    return np.concatenate(owners), np.concatenate(positions)


def _in_pieces(
    runs: list[_EntryRun], codes: Codes, stretches: list[tuple[Ints, Ints]], most: int
) -> Iterator[tuple[Ints, Ints, int]]:
    for begin, end in pieces(np.sum([count for _, count in stretches], axis=0), most):
        part = [(first[begin:end], count[begin:end]) for first, count in stretches]
        owner, positions = _pairs(runs, codes[begin:end], part)
        yield owner + begin, positions, end


def _ordered(values: Ints, order: Ints) -> Ints:
    """Return values that are in some order in the one that they were given in."""
    found = np.empty_like(values)
    found[order] = values
    return found


def pieces(sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of things of some sizes that are of limited size together, each of one thing at least.

    >>> list(pieces(np.array([3, 3, 9, 1]), 6))
    [(0, 2), (2, 3), (3, 4)]
    """
    through = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = through[begin] - sizes[begin]
        end = max(int(np.searchsorted(through, before + most, side="right")), begin + 1)
        yield begin, end
        begin = end


def _stretches(run: _EntryRun, codes: Codes, bounds: tuple[Ints, Ints] | None) -> tuple[Ints, Ints]:
    """Return where in a run the entries begin that may have each code, and how many there are."""
    prefix = (codes >> np.uint64(run.prefix_shift)).view(np.int64)
    first = run.directory[prefix].astype(np.int64)
    last = run.directory[prefix + 1].astype(np.int64)
    long = np.flatnonzero(last - first > _LONG_STRETCH)
    if len(long):
        low, high = (0, None) if bounds is None else (bounds[0][long], bounds[1][long])
        first[long] = _entry_place(run, codes[long], low)
        last[long] = _entry_place(run, codes[long], high)
    return first, np.maximum(last - first, 0)


def _entry_place(run: _EntryRun, codes: Codes, positions: Ints | int | None) -> Ints:
    """Return where the entries of some codes with positions from some on begin; None stands for their end."""
    most = (1 << run.bits) - 1
    offset = most if positions is None else np.clip(positions - run.origin, 0, most)
    entries = (codes >> np.uint64(run.bits) << np.uint64(run.bits)) | np.asarray(offset).astype(np.uint64)
    place = np.searchsorted(run.entries, entries)
    beyond = positions is None or positions > run.origin + most
    return place + np.where(beyond, np.searchsorted(run.entries, entries, side="right") - place, 0)
