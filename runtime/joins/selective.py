"""Joins of windows of time with too little time: rows are compared with those of some ages only.

The later row of a pair is the one that probes, whichever of them is processed first; so what is found does not depend
on how input is cut into batches, but for what is decided from one micro-batch to the next. Everything that is found is
in the exact answer for just as long. How many comparisons that saves, and what is left out, is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import ChangeBatch, Columns, Ints, Mask
from runtime.columns.row_codes import Codes
from runtime.joins.candidates import Pairs, ProbeRanges
from runtime.joins.exact import Exact
from runtime.joins.probe import Candidates, JoinInput, Matches, Probe, Tactic
from runtime.state.store import KeysOf
from shedding.join_deciders import CELLS, Selections
from shedding.selective import Counts, Selection, compared, edges, matched
from shedding.utilities import types_of


@dataclass(frozen=True, slots=True)
class _ProbingRows:
    """Rows of one input in the order of time: their instants and types, and which of them probe everything."""

    instants: Ints
    types: Ints
    is_full: Mask

    def full(self) -> _ProbingRows:
        """Return those that probe everything."""
        return _ProbingRows(self.instants[self.is_full], self.types[self.is_full], self.is_full[self.is_full])


class Selective(Tactic):
    """Compares rows with the ages that are selected when their batch comes.

    `windows` is for how many ticks rows of each input are there, `types_of` computes the columns that the types of an
    input's rows depend on, and `worth_of` what pairs are worth, if that is not the same for all.
    """

    def __init__(
        self,
        exact: Exact,
        schedule: str,
        selections: Callable[[], Selections],
        windows: tuple[int, int],
        types_of: Sequence[KeysOf | None],
        worth_of: KeysOf | None,
    ) -> None:
        super().__init__(exact.inputs)
        self._exact = exact
        self.schedule = schedule
        self._selections = selections
        self._windows = windows
        self._types_of = types_of
        self._worth_of = worth_of
        self._borders = [edges(length - 1, CELLS) for length in windows]
        self._reset()

    def _reset(self) -> None:
        sides = self._selections().of_window
        self._counts = [Counts.none(len(side), len(own) - 1) for side, own in zip(sides, self._borders, strict=True)]
        self._comparisons, self._exact_comparisons = 0, [0, 0]
        """How many comparisons were made, and how many an exact join would have made in either window."""
        self._worth = 0.0
        """What the pairs were worth that were found."""

    def begin(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        selections = self._selections()
        self._port, self._own, self._stored = port, self._new_rows(port, batch), self._stored_rows(1 - port)
        self._first = self.inputs[1 - port].stub.store.base
        self._selected = selections.of_window
        self._is_exact = selections.are_everything(self._windows)
        self._count_full_probes()
        return batch

    def candidates(self, probe: Probe) -> Iterator[Candidates]:
        if self._is_exact:
            self._count_everything(probe.part)
            yield from self._exact.candidates(probe)
        elif probe.codes is None:
            yield from self._exact.compared(probe, self._ranges(probe), in_order=False)
        else:
            pairs = (_with_codes(ranges, probe.input, probe.codes) for ranges in self._ranges(probe))
            owners, positions = zip(*pairs, strict=True)
            yield np.concatenate(owners), np.concatenate(positions), len(probe.part.owner)

    def _count_everything(self, part: Matches) -> None:
        port, instants, stored = self._port, self._own.instants[part.owner], self._stored.instants
        first = np.searchsorted(stored, instants - self._windows[1 - port], side="right")
        begin = self._later(instants)
        last = np.searchsorted(stored, instants + self._windows[port])
        self._comparisons += int((last - first).sum())
        self._exact_comparisons[1 - port] += int((begin - first).sum())
        self._exact_comparisons[port] += int((last - begin).sum())

    def _later(self, instants: Ints) -> Ints:
        """Return where the stored rows begin that come later: of one instant, that of the second input is the later."""
        return np.searchsorted(self._stored.instants, instants, side="right" if self._port else "left")

    def _ranges(self, probe: Probe) -> Iterator[ProbeRanges]:
        rows = probe.part.owner
        begin, base = self._later(self._own.instants[rows]), probe.input.stub.store.base
        for ranges in (*self._probing(rows, begin), *self._probed_by_later(rows, begin)):
            self._comparisons += int(ranges.sizes().sum())
            yield ranges.moved(base)

    def _probing(self, rows: Ints, begin: Ints) -> Iterator[ProbeRanges]:
        """Yield what rows probe among those before them, by places: up to where the later ones begin."""
        window, own, stored = 1 - self._port, self._own, self._stored.instants
        instants = own.instants[rows]
        first = np.searchsorted(stored, instants - self._windows[window], side="right")
        self._exact_comparisons[window] += int((begin - first).sum())
        full = np.flatnonzero(own.is_full[rows])
        yield ProbeRanges(full, first[full], begin[full])
        for type_, selection in enumerate(self._selected[window]):
            selective = np.flatnonzero(~own.is_full[rows] & (own.types[rows] == type_))
            for ages in selection.ages if len(selective) else ():
                at = instants[selective]
                last = np.searchsorted(stored, at - ages.least, side="right") if ages.least else begin[selective]
                yield ProbeRanges(selective, np.searchsorted(stored, at - ages.end, side="right"), last)

    def _probed_by_later(self, rows: Ints, begin: Ints) -> Iterator[ProbeRanges]:
        """Yield which later ones of the stored rows probe rows, by places."""
        stored, instants = self._stored, self._own.instants[rows]
        if (begin == len(stored.instants)).all():
            return
        every = np.arange(len(instants))
        last = np.searchsorted(stored.instants, instants + self._windows[self._port])
        self._exact_comparisons[self._port] += int((last - begin).sum())
        yield ProbeRanges(every, begin, last, np.flatnonzero(stored.is_full))
        for type_, selection in enumerate(self._selected[self._port]):
            among = np.flatnonzero(~stored.is_full & (stored.types == type_))
            for ages in selection.ages if len(among) else ():
                first = np.searchsorted(stored.instants, instants + ages.least) if ages.least else begin
                yield ProbeRanges(every, first, np.searchsorted(stored.instants, instants + ages.end), among)

    # Rows

    def _new_rows(self, port: int, batch: ChangeBatch) -> _ProbingRows:
        positions = self.inputs[port].stub.seen + np.arange(len(batch))
        return self._rows(port, batch.ends, positions, lambda: batch.columns)

    def _stored_rows(self, port: int) -> _ProbingRows:
        stub = self.inputs[port].stub
        positions = np.arange(stub.store.base, stub.seen)
        _, ends = stub.lifetimes(positions)
        return self._rows(port, ends, positions, lambda: stub.store.rows(positions))

    def _rows(self, port: int, ends: Ints, positions: Ints, columns: Callable[[], Columns]) -> _ProbingRows:
        """Return rows of an input; they probe the window of the other one."""
        types, of_rows = np.zeros(len(positions), np.int64), self._types_of[port]
        if of_rows is not None:
            found = of_rows(columns(), len(positions))
            types = types_of([_numbers(each) for each in found], len(positions))
        any_type = self._selections().of_window[1 - port][0]
        return _ProbingRows(ends - self._windows[port], types, any_type.is_full(positions))

    # Counting

    def _count_full_probes(self) -> None:
        """Count how often rows that probe everything are compared with rows of each age."""
        port, own, stored = self._port, self._own, self._stored
        new, there = own.full(), stored.full()
        types = [len(side) for side in self._selected]
        of_new, of_stored = self._counts[1 - port], self._counts[port]
        of_new.probes += np.bincount(own.types, minlength=types[1 - port])
        of_new.comparisons += compared(
            new.instants, new.types, stored.instants, self._borders[1 - port], types[1 - port]
        )
        of_stored.comparisons += compared(there.instants, there.types, own.instants, self._borders[port], types[port])

    def note(self, found: Matches) -> None:
        """Count what rows that probe everything have found."""
        assert found.positions is not None
        port, own, stored, places = self._port, self._own, self._stored, found.positions - self._first
        ages = own.instants[found.owner] - stored.instants[places]
        is_own = ages > 0 if port == 0 else ages >= 0
        worth = self._worths(found)
        self._worth += float(worth.sum())
        for side, apart, rows, at, is_theirs in (
            (1 - port, ages, own, found.owner, is_own),
            (port, -ages, stored, places, ~is_own),
        ):
            full = np.flatnonzero(is_theirs & rows.is_full[at])
            selections: Sequence[Selection] = self._selected[side]
            inside = matched(apart[full], rows.types[at[full]], worth[full], self._borders[side], selections)
            counts = self._counts[side]
            counts.matches += inside[0]
            counts.worth += inside[1]
            counts.inside += inside[2]

    def _worths(self, found: Matches) -> npt.NDArray[np.float64]:
        count = len(found.owner)
        if self._worth_of is None:
            return np.ones(count)
        (worth,) = self._worth_of(sum(found.columns, ()), count)
        return np.maximum(np.nan_to_num(_numbers(worth), posinf=0.0), 0.0)

    def take_counts(self) -> dict[str, Any]:
        """Return what was counted since the last time."""
        counted = {
            "counts": [each.values() for each in self._counts],
            "work": [sum(self._exact_comparisons), self._comparisons],
            "total": self._exact_comparisons,
            "found": self._worth,
        }
        self._reset()
        return counted


def _with_codes(ranges: ProbeRanges, probed: JoinInput, codes: Codes) -> Pairs:
    """Return the pairs within ranges whose keys may be equal."""
    owner, positions = probed.stub.store.find(probed.index, codes[ranges.rows], ranges.first, ranges.last)
    kept = ranges.includes(owner, positions)
    return ranges.rows[owner[kept]], positions[kept]


def _numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column as numbers; NULL is none."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), float("nan")))
