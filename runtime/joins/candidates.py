"""Candidates of probes without equal keys: which stored rows a new row is compared with, and how they are reached.

A row probes a range of positions. Where an index narrows that down, a probe costs as much as the index entries that it
reads. Otherwise it costs as much as the range is long: little for each stored row if the codes of the index can be
compared as bits (`runtime/state/bitmap_index.py`), much if all pairs are handed on. Each row takes the cheapest way.
Every pair that satisfies the join's condition is a candidate, once; the caller tests the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from runtime.columns.batch import Ints, Mask
from runtime.columns.row_codes import Codes, changes, expand_ranges
from runtime.state.bitmap_index import Marks
from runtime.state.code_index import pieces
from runtime.state.store import Entries, Store

Pairs = tuple[Ints, Ints]
"""New rows, and the positions of stored rows."""

MOST_CANDIDATES = 1 << 20
"""How many pairs are tested in one go."""

PAIR_COST = 100
"""What it costs to hand on a pair and to test the condition, in about a nanosecond."""

ENTRY_COST = 75
"""What an entry of an index costs: it is read, and counted with the others of its pair."""

WORD_COST = 1
"""What it costs to compare a word of 64 codes of two rows."""

MARKS_FROM = 8
"""How many times as many pairs as stored rows there have to be for it to pay to mark these."""

_FEWEST = 128
"""Ranges that are shorter are not worth an index."""

_DENSE = 8
"""Up to how many rows of a range there may be for each entry so that those of pairs are counted in an array."""


@dataclass(frozen=True, slots=True)
class ProbeRanges:
    """Which new rows probe which range of the stored rows, or some of these only."""

    rows: Ints
    first: Ints
    last: Ints
    """Up to which position it goes, not including it."""
    among: Ints | None = None
    """The positions that count, ascending."""

    def sizes(self) -> Ints:
        """Return how many stored rows each row probes."""
        first, last = self.places()
        return last - first

    def pairs(self) -> Pairs:
        """Return all pairs."""
        first, last = self.places()
        owner, at = expand_ranges(first, last - first)
        return self.rows[owner], at if self.among is None else self.among[at]

    def part(self, at: Ints) -> ProbeRanges:
        """Return the ranges of some of the rows."""
        return ProbeRanges(self.rows[at], self.first[at], self.last[at], self.among)

    def moved(self, by: int) -> ProbeRanges:
        """Return the same with positions that count from elsewhere."""
        among = None if self.among is None else self.among + by
        return ProbeRanges(self.rows, self.first + by, self.last + by, among)

    def includes(self, owner: Ints, positions: Ints) -> Mask:
        """Tell which pairs, given by the place of the row here, are within the ranges."""
        inside: Mask = (positions >= self.first[owner]) & (positions < self.last[owner])
        if self.among is not None:
            at = np.searchsorted(self.among, positions)
            inside &= np.append(self.among, -1)[at] == positions
        return inside

    def places(self) -> tuple[Ints, Ints]:
        """Return where ranges begin and end: positions, or places among those that count."""
        if self.among is None:
            return self.first, np.maximum(self.last, self.first)
        first = np.searchsorted(self.among, self.first)
        return first, np.maximum(np.searchsorted(self.among, self.last), first)


@dataclass(slots=True)
class Lookup:
    """What new rows probe an index of a store with: codes, of which they share at least so many with their candidates.

    The codes are computed when they are needed.
    """

    store: Store
    index: str
    sought: Callable[[], Entries]
    length: int
    least: int
    _codes: tuple[Entries, Ints] | None = field(default=None, init=False)
    _marks: Marks | None = field(default=None, init=False)
    _has_marks: bool = field(default=True, init=False)

    def counts(self, ranges: ProbeRanges) -> Ints:
        """Return how many entries are read for each row."""
        owner, codes = self._of(ranges.rows)
        counts = self.store.counts(self.index, codes, ranges.first[owner], ranges.last[owner])
        return np.bincount(owner, counts, len(ranges.rows)).astype(np.int64)

    def pairs(self, ranges: ProbeRanges) -> Pairs:
        """Return the pairs that share enough codes."""
        by_code, codes = self._of(ranges.rows)
        found, positions = self.store.find(self.index, codes, ranges.first[by_code], ranges.last[by_code])
        owner = by_code[found]
        kept = np.flatnonzero(ranges.includes(owner, positions))
        owner, positions = _shared(ranges, owner[kept], positions[kept], self.least)
        return ranges.rows[owner], positions

    def marks(self, pairs: int) -> Marks | None:
        """Return the codes of all rows as bits, if there are not too many, and so many pairs are worth it."""
        is_worth_it = self.store.has_marks(self.index) or pairs >= MARKS_FROM * len(self.store)
        if self._marks is None and self._has_marks and is_worth_it:
            entries, _ = self._entries()
            stored = self.store.marks(self.index)
            self._marks = None if stored is None else stored.beside(entries.codes, entries.rows, self.length)
            self._has_marks = self._marks is not None
        return self._marks

    def scanned(self, marks: Marks, ranges: ProbeRanges) -> Iterator[Pairs]:
        """Yield the pairs that share enough codes, by comparing all marks."""
        first, last = ranges.places()
        base = self.store.base
        if ranges.among is None:
            found = marks.with_common(ranges.rows, first - base, last - base, None, self.least)
        else:
            found = marks.with_common(ranges.rows, first, last, ranges.among - base, self.least)
        for owner, places in found:
            if len(owner):
                yield ranges.rows[owner], places + base

    def _entries(self) -> tuple[Entries, Ints]:
        if self._codes is None:
            entries = self.sought()
            self._codes = entries, np.searchsorted(entries.rows, np.arange(self.length + 1))
        return self._codes

    def _of(self, rows: Ints) -> tuple[Ints, Codes]:
        """Return the codes of some rows, and which of these each is of."""
        entries, first = self._entries()
        owner, at = expand_ranges(first[rows], first[rows + 1] - first[rows])
        return owner, entries.codes[at]


def _shared(ranges: ProbeRanges, owner: Ints, positions: Ints, least: int) -> Pairs:
    """Return the pairs that occur so many times or more, each once."""
    widths = np.maximum(ranges.last - ranges.first, 0)
    begin = np.cumsum(widths) - widths
    total = int(widths.sum())
    key = begin[owner] + positions - ranges.first[owner]
    if total <= _DENSE * len(key):
        key = np.flatnonzero(np.bincount(key, minlength=total) >= least)
    else:
        key.sort()
        starts = np.flatnonzero(changes(key))
        key = key[starts[np.diff(np.append(starts, len(key))) >= least]]
    owner = np.searchsorted(begin, key, side="right") - 1
    return owner, key - begin[owner] + ranges.first[owner]


def candidate_pairs(probed: Iterable[ProbeRanges], lookup: Lookup | None, most: int) -> Iterator[Pairs]:
    """Yield what rows ranges at, in pieces of limited size, as far as an index does not rule it out."""
    found: list[Pairs] = []
    size = 0
    for owner, positions in _found(probed, lookup, most):
        if found and size + len(owner) > most:
            yield _together(found)
            found, size = [], 0
        if len(owner) > most:
            for at in range(0, len(owner), most):
                yield owner[at : at + most], positions[at : at + most]
            continue
        found.append((owner, positions))
        size += len(owner)
    if found:
        yield _together(found)


def _together(found: list[Pairs]) -> Pairs:
    owners, positions = zip(*found, strict=True)
    return np.concatenate(owners), np.concatenate(positions)


def _found(probed: Iterable[ProbeRanges], lookup: Lookup | None, most: int) -> Iterator[Pairs]:
    for ranges in probed:
        sizes = ranges.sizes()
        if lookup is None or not len(sizes) or sizes.max() < _FEWEST:
            yield from _all_pairs(ranges, np.arange(len(sizes)), sizes, most)
            continue
        marks = lookup.marks(int(sizes.sum()))
        counts = lookup.counts(ranges)
        tests = PAIR_COST * counts / lookup.least
        by_marks = np.inf if marks is None else WORD_COST * marks.words * sizes + tests
        scan = np.minimum(by_marks, PAIR_COST * sizes)
        indexed = ENTRY_COST * counts + tests < scan
        by_index = np.flatnonzero(indexed)
        for begin, end in pieces(counts[by_index], most):
            yield lookup.pairs(ranges.part(by_index[begin:end]))
        marked = ~indexed & (by_marks <= scan)
        if marks is not None:
            yield from lookup.scanned(marks, ranges.part(np.flatnonzero(marked)))
        yield from _all_pairs(ranges, np.flatnonzero(~indexed & ~marked), sizes, most)


def _all_pairs(ranges: ProbeRanges, rows: Ints, sizes: Ints, most: int) -> Iterator[Pairs]:
    for begin, end in pieces(sizes[rows], most):
        yield ranges.part(rows[begin:end]).pairs()
