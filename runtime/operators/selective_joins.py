"""Joins with too little time: they look at a part of what they could compare, and say how much that leaves out.

The later row of a pair is the one that looks for the other, whichever of them is processed first; so what is found
does not depend on how input is cut into batches, but for what is decided from one micro-batch to the next. Everything
that is found is in the exact answer for just as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner import operators as op
from runtime.columns.batch import ChangeBatch, Columns, Ints, Mask
from runtime.columns.row_codes import Codes, row_codes
from runtime.joins.candidates import Look, Pairs
from runtime.joins.matcher import Candidates, JoinInput, Matcher, Matches
from runtime.operators.base import ChunkSets, Context, Operator, evaluate_all
from runtime.operators.joins import InnerJoin
from runtime.operators.registry import implements
from runtime.operators.state_words import skipping_piece
from runtime.state.chunks import Chunks, Delta
from shedding.join_deciders import CELLS, MOST_MATCHES, Cutoff, Selections
from shedding.schedule import coins
from shedding.selective import Counts, Selection, compared, edges, matched
from shedding.utilities import types_of


def counted_by(operators: Mapping[str, Operator]) -> dict[str, dict[str, Any]]:
    """Return what joins that choose have counted since the last time, by the names of their schedules."""
    return {
        each.node.schedule: each.take_counts()
        for each in operators.values()
        if isinstance(each, SelectiveJoin | DualJoin)
    }


# Selective joins


@dataclass(frozen=True, slots=True)
class _ProbingRows:
    """Rows of one input in the order of time: their instants and types, and which of them look at everything."""

    instants: Ints
    types: Ints
    is_full: Mask

    def full(self) -> _ProbingRows:
        """Return those that look at everything."""
        return _ProbingRows(self.instants[self.is_full], self.types[self.is_full], self.is_full[self.is_full])


class _SelectiveMatcher(Matcher):
    """Finds candidates among the ages that are selected."""

    def __init__(self, exact: Matcher, windows: tuple[int, int]) -> None:
        super().__init__(exact.sides, exact.residual, exact.narrowing, exact.block_rows)
        self._windows = windows
        self.looks_in_order = False
        self.looked, self.totals = 0, [0, 0]
        """How many stored rows were looked at, and how many an exact join would have looked at in either window."""

    def begin(self, own: _ProbingRows, stored: _ProbingRows, selections: Selections) -> None:
        """Prepare for the rows of a batch."""
        self._own, self._stored, self._selections = own, stored, selections.of_window
        self._is_exact = selections.are_everything(self._windows)

    def candidates(
        self, port: int, batch: ChangeBatch, side: JoinInput, part: Matches, codes: Codes | None
    ) -> Iterator[Candidates]:
        if codes is None or self._is_exact:
            if self._is_exact:
                self._count_everything(port, part)
            yield from super().candidates(port, batch, side, part, codes)
        else:
            owners, positions = zip(*(_found(look, side, codes) for look in self.looks(port, side, part)), strict=True)
            yield np.concatenate(owners), np.concatenate(positions), len(part.owner)

    def _count_everything(self, port: int, part: Matches) -> None:
        instants = self._own.instants[part.owner]
        first = np.searchsorted(self._stored.instants, instants - self._windows[1 - port], side="right")
        begin = np.searchsorted(self._stored.instants, instants, side="right" if port else "left")
        last = np.searchsorted(self._stored.instants, instants + self._windows[port])
        self.looked += int((last - first).sum())
        self.totals[1 - port] += int((begin - first).sum())
        self.totals[port] += int((last - begin).sum())

    def looks(self, port: int, side: JoinInput, part: Matches) -> Iterator[Look]:
        if self._is_exact:
            yield from super().looks(port, side, part)
            return
        instants = self._own.instants[part.owner]
        # Of two rows of one instant, that of the second input is the later one.
        begin = np.searchsorted(self._stored.instants, instants, side="right" if port else "left")
        base = side.stub.store.base
        for look in (*self._looking(port, part.owner, begin), *self._looked_at(port, instants, begin)):
            self.looked += int(look.sizes().sum())
            yield look.moved(base)

    def _looking(self, port: int, rows: Ints, begin: Ints) -> Iterator[Look]:
        """Yield what rows look at among those before them, by places: up to where the later ones begin."""
        own, stored, instants = self._own, self._stored.instants, self._own.instants[rows]
        first = np.searchsorted(stored, instants - self._windows[1 - port], side="right")
        self.totals[1 - port] += int((begin - first).sum())
        full = np.flatnonzero(own.is_full[rows])
        yield Look(full, first[full], begin[full])
        for type_, selection in enumerate(self._selections[1 - port]):
            selective = np.flatnonzero(~own.is_full[rows] & (own.types[rows] == type_))
            for ages in selection.ages if len(selective) else ():
                at = instants[selective]
                last = np.searchsorted(stored, at - ages.least, side="right") if ages.least else begin[selective]
                yield Look(selective, np.searchsorted(stored, at - ages.end, side="right"), last)

    def _looked_at(self, port: int, instants: Ints, begin: Ints) -> Iterator[Look]:
        """Yield which later ones of the stored rows look at rows, by places."""
        stored = self._stored
        if (begin == len(stored.instants)).all():
            return
        every = np.arange(len(instants))
        last = np.searchsorted(stored.instants, instants + self._windows[port])
        self.totals[port] += int((last - begin).sum())
        yield Look(every, begin, last, np.flatnonzero(stored.is_full))
        for type_, selection in enumerate(self._selections[port]):
            among = np.flatnonzero(~stored.is_full & (stored.types == type_))
            for ages in selection.ages if len(among) else ():
                first = np.searchsorted(stored.instants, instants + ages.least) if ages.least else begin
                yield Look(every, first, np.searchsorted(stored.instants, instants + ages.end), among)


def _found(look: Look, side: JoinInput, codes: Codes) -> Pairs:
    """Return the pairs whose keys may be equal."""
    owner, positions = side.stub.store.find(side.index, codes[look.rows], look.first, look.last)
    kept = look.includes(owner, positions)
    return look.rows[owner[kept]], positions[kept]


@implements(op.SelectiveJoin)
class SelectiveJoin(InnerJoin):
    """An inner join of two windows of time that looks at the ages that are worth it."""

    node: op.SelectiveJoin
    matcher: _SelectiveMatcher

    def __init__(self, node: op.SelectiveJoin, context: Context) -> None:
        super().__init__(node, context)
        self.matcher = _SelectiveMatcher(self.matcher, node.windows)
        self._types_of = [evaluate_all(own, context.functions) for own in node.types]
        self._worth = None if node.utility is None else evaluate_all([node.utility], context.functions)
        self._borders = [edges(length - 1, CELLS) for length in node.windows]
        self._counts = self._nothing()
        self._found = 0.0
        """What pairs were worth that were found since the last time."""

    def _nothing(self) -> list[Counts]:
        sides = self._selections.of_window
        return [Counts.none(len(side), len(own) - 1) for side, own in zip(sides, self._borders, strict=True)]

    @property
    def _selections(self) -> Selections:
        found = self.context.choices[self.node.schedule]
        assert isinstance(found, Selections)
        return found

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        selections = self._selections
        if not len(batch):
            return super().pieces(port, batch)
        own, stored = self._new(port, batch), self._stored(1 - port)
        first = self.matcher.sides[1 - port].stub.store.base
        self.matcher.begin(own, stored, selections)
        self._count_looks(port, own, stored)
        return self._pairs(self._counted(port, batch, first, own, stored))

    def _counted(
        self, port: int, batch: ChangeBatch, first: int, own: _ProbingRows, stored: _ProbingRows
    ) -> Iterator[Matches]:
        """Yield the matches of new rows, which are counted."""
        for part in self._match(port, batch):
            assert part.positions is not None
            self._count_matches(port, part, part.positions - first, own, stored)
            yield part

    # Rows

    def _new(self, port: int, batch: ChangeBatch) -> _ProbingRows:
        positions = self.matcher.sides[port].stub.seen + np.arange(len(batch))
        return self._rows(port, batch.ends, positions, lambda: batch.columns)

    def _stored(self, port: int) -> _ProbingRows:
        stub = self.matcher.sides[port].stub
        positions = np.arange(stub.store.base, stub.seen)
        _, ends = stub.lifetimes(positions)
        return self._rows(port, ends, positions, lambda: stub.store.rows(positions))

    def _rows(self, port: int, ends: Ints, positions: Ints, columns: Callable[[], Columns]) -> _ProbingRows:
        """Return rows of an input; they look at the window of the other one."""
        types = np.zeros(len(positions), np.int64)
        if self.node.types[port]:
            found = self._types_of[port](columns(), len(positions))
            types = types_of([_numbers(each) for each in found], len(positions))
        any_type = self._selections.of_window[1 - port][0]
        return _ProbingRows(ends - self.node.windows[port], types, any_type.is_full(positions))

    # Counting

    def _count_looks(self, port: int, own: _ProbingRows, stored: _ProbingRows) -> None:
        """Count how often rows that look at everything look at rows of each age."""
        new, there = own.full(), stored.full()
        types = [len(side) for side in self._selections.of_window]
        looked, looked_at = self._counts[1 - port], self._counts[port]
        looked.probes += np.bincount(own.types, minlength=types[1 - port])
        looked.comparisons += compared(
            new.instants, new.types, stored.instants, self._borders[1 - port], types[1 - port]
        )
        looked_at.comparisons += compared(there.instants, there.types, own.instants, self._borders[port], types[port])

    def _count_matches(self, port: int, part: Matches, places: Ints, own: _ProbingRows, stored: _ProbingRows) -> None:
        """Count what rows that look at everything have found, at some places among the stored rows."""
        ages = own.instants[part.owner] - stored.instants[places]
        is_own = ages > 0 if port == 0 else ages >= 0
        worth = np.ones(len(ages))
        if self._worth is not None:
            worth = np.nan_to_num(_numbers(self._worth(sum(part.columns, ()), len(ages))[0]), posinf=0.0)
            worth = np.maximum(worth, 0.0)
        self._found += float(worth.sum())
        for side, looks, rows, at, is_theirs in (
            (1 - port, ages, own, part.owner, is_own),
            (port, -ages, stored, places, ~is_own),
        ):
            full = np.flatnonzero(is_theirs & rows.is_full[at])
            selections: Sequence[Selection] = self._selections.of_window[side]
            found = matched(looks[full], rows.types[at[full]], worth[full], self._borders[side], selections)
            counts = self._counts[side]
            counts.matches += found[0]
            counts.worth += found[1]
            counts.inside += found[2]

    def take_counts(self) -> dict[str, Any]:
        """Return what was counted since the last time."""
        counts, self._counts = self._counts, self._nothing()
        found, self._found = self._found, 0.0
        totals, looked = self.matcher.totals, self.matcher.looked
        self.matcher.totals, self.matcher.looked = [0, 0], 0
        values = [each.values() for each in counts]
        return {"counts": values, "work": [sum(totals), looked], "total": totals, "found": found}


def _numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column as numbers; NULL is none."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), float("nan")))


# Dual windows

MOST_ASKED, MOST_ASKED_PAIRS = 64, 8192
"""How many rows of a batch that do not look tell what they miss, and about how many others these find, at most."""


class _SkippingMatcher(Matcher):
    """Leaves out pairs whose later row does not look for others."""

    skipped: list[Ints]
    """The positions of rows that do not look, in order, by input."""
    later: Ints
    """By row of the batch, where the rows that come later begin in the log of the other input."""

    def begin(self, port: int, positions: Ints, arrived: Ints) -> None:
        """Prepare for the rows of a batch: where they are in their log, and when they came."""
        store = self.sides[1 - port].stub.store
        self._skips = np.isin(positions, self.skipped[port])
        # Of two rows of one instant, that of the second input is the later one.
        later = np.searchsorted(store.start.values, arrived, side="right" if port else "left")
        self.later = later + store.base

    def candidates(
        self, port: int, batch: ChangeBatch, side: JoinInput, part: Matches, codes: Codes | None
    ) -> Iterator[Candidates]:
        assert codes is not None
        later, skips = self.later[part.owner], self._skips[part.owner]
        looking, still = np.flatnonzero(~skips), np.flatnonzero(skips)
        owner, positions = side.stub.find(side.index, codes[looking], part.start[looking], part.end[looking])
        high = np.full(len(still), side.stub.seen)
        found_by, found_at = side.stub.store.find(side.index, codes[still], later[still], high)
        inside = np.flatnonzero((found_at >= later[still][found_by]) & (found_at < side.stub.seen))
        owner = np.concatenate((looking[owner], still[found_by[inside]]))
        positions = np.concatenate((positions, found_at[inside]))
        kept = (positions < later[owner]) | ~np.isin(positions, self.skipped[1 - port])
        yield owner[kept], positions[kept], len(part.owner)


class _KeyCounts:
    """How many rows of a window have each key, by the keys' codes."""

    def __init__(self, side: JoinInput, rows: int) -> None:
        stub = side.stub
        positions = np.arange(max(stub.seen - rows, stub.store.base), stub.seen)
        codes = _codes(side, stub.store.rows(positions), len(positions))
        self._codes, self._counts = np.unique(codes, return_counts=True)

    def of(self, codes: Codes) -> Ints:
        """Return how many rows have some codes."""
        if not len(self._codes):
            return np.zeros(len(codes), np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._counts[at], 0)


def _codes(side: JoinInput, columns: Columns, length: int) -> Codes:
    assert side.keys_of is not None
    return row_codes(side.keys_of(columns, length), length).codes


@implements(op.DualJoin, state=skipping_piece)
class DualJoin(InnerJoin):
    """An inner join of two windows of rows, by equal values, in which rows that find few others do not look.

    How many others a row will find is known from the windows as they were after the micro-batch before.
    """

    node: op.DualJoin
    matcher: _SkippingMatcher

    def __init__(self, node: op.DualJoin, context: Context) -> None:
        super().__init__(node, context)
        self._exact = self.matcher
        self.matcher = _SkippingMatcher(self.matcher.sides, self.matcher.residual, None, context.block_rows)
        self.matcher.skipped = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self._windows: list[_KeyCounts] = []
        self._kept_skipped = [Chunks(), Chunks()]
        self._reset()

    def _reset(self) -> None:
        self._histogram = np.zeros(MOST_MATCHES + 1, np.int64)
        self._costs = [0.0, 0.0, 0.0, 0.0]
        self._found = self._expected = self._left_out = self._skips = 0
        self._missed = 0.0
        """How many pairs were missed, as rows tell that looked although they need not have."""

    def settle(self) -> None:
        self._windows = []

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        if not len(batch):
            return super().pieces(port, batch)
        positions, arrived, is_new = self._places(port, batch)
        started = perf_counter()
        skipped, matches = self._decide(port, batch, positions, is_new)
        self.matcher.begin(port, positions, arrived)
        self._missed += self._missed_by(port, batch, skipped, matches)
        return self._pairs(self._costed(port, batch, int(is_new.sum()), started))

    def _costed(self, port: int, batch: ChangeBatch, new: int, started: float) -> Iterator[Matches]:
        """Yield the matches of new rows, of which so many are new; what that costs since a moment is noted."""
        spent = 0.0
        for part in self.matcher.matches(port, batch):
            spent += perf_counter() - started
            self._found += len(part.owner) if part.weight is None else int((part.weight > 0).sum())
            yield part
            started = perf_counter()
        looked = perf_counter()
        spent += looked - started
        self._keep(port, batch)
        costs = (new, spent, new, perf_counter() - looked)
        self._costs = [a + b for a, b in zip(self._costs, costs, strict=True)]
        for at, side in enumerate(self.matcher.sides):
            skipped = self.matcher.skipped[at]
            self.matcher.skipped[at] = skipped[skipped >= side.stub.store.base]

    def _places(self, port: int, batch: ChangeBatch) -> tuple[Ints, Ints, Mask]:
        """Return where the rows of a batch are in the log, when they came, and whether they are new.

        Those that are taken back are the next ones in the log of which no end was known.
        """
        stub = self.matcher.sides[port].stub
        is_new = np.ones(len(batch), np.bool_) if batch.weight is None else batch.weight > 0
        positions = np.empty(len(batch), np.int64)
        positions[is_new] = stub.seen + np.arange(int(is_new.sum()))
        positions[~is_new] = stub.told + np.arange(int((~is_new).sum()))
        arrived = batch.start.copy()
        arrived[~is_new] = stub.store.start.at(positions[~is_new])
        return positions, arrived, is_new

    def _missed_by(self, port: int, batch: ChangeBatch, rows: Ints, matches: Ints) -> float:
        """Return how many pairs rows miss that do not look: a few of them tell, the likelier the more they would find.

        What is found beyond equal keys is not expected, but counted.
        """
        expected = matches + 1
        reached = np.cumsum(expected)
        if not len(rows):
            return 0.0
        count = int(min(MOST_ASKED, max(MOST_ASKED_PAIRS * len(rows) // reached[-1], 1), len(rows)))
        chosen = np.searchsorted(reached, (np.arange(count) + 0.5) * reached[-1] / count)
        asked, times = np.unique(chosen, return_counts=True)
        mask = np.zeros(len(batch), np.bool_)
        mask[rows[asked]] = True
        later, found = self.matcher.later[rows[asked]], np.zeros(len(asked))
        for part in self._exact.matches(port, batch.filter(mask)):
            assert part.positions is not None
            found += np.bincount(part.owner[part.positions < later[part.owner]], minlength=len(asked))
        return float((found / expected[asked] * times).sum() / count * reached[-1])

    def _decide(self, port: int, batch: ChangeBatch, positions: Ints, is_new: Mask) -> tuple[Ints, Ints]:
        """Note which new rows do not look, by how many others they would find; return these, and how many that is."""
        cutoff = self.context.choices[self.node.schedule]
        assert isinstance(cutoff, Cutoff)
        if not self._windows:
            pairs = zip(self.matcher.sides, self.node.windows, strict=True)
            self._windows = [_KeyCounts(side, rows) for side, rows in pairs]
        new = batch.filter(is_new)
        matches = self._windows[1 - port].of(_codes(self.matcher.sides[port], new.columns, len(new)))
        tied = coins(self.node.seed, positions[is_new]) < cutoff.tied
        skips = (matches < cutoff.matches) | ((matches == cutoff.matches) & tied)
        self.matcher.skipped[port] = np.concatenate((self.matcher.skipped[port], positions[is_new][skips]))
        self._histogram += np.bincount(np.minimum(matches, MOST_MATCHES), minlength=MOST_MATCHES + 1)
        self._expected += int(matches[~skips].sum())
        self._left_out += int(matches[skips].sum())
        self._skips += int(skips.sum())
        return np.flatnonzero(is_new)[skips], matches[skips]

    def take_counts(self) -> dict[str, Any]:
        """Return what was counted since the last time."""
        last = int(np.flatnonzero(self._histogram).max(initial=-1)) + 1
        done = int(self._histogram.sum()) - self._skips + self._expected
        counted = {
            "histogram": self._histogram[:last].tolist(),
            "costs": self._costs,
            "found": self._found,
            "missed": self._missed,
            "work": [done + self._skips + self._left_out, done],
        }
        self._reset()
        return counted

    # Keeping

    def delta(self) -> dict[str, Delta]:
        deltas = {}
        for name, kept, skipped in zip(("left", "right"), self._kept_skipped, self.matcher.skipped, strict=True):
            kept.clear()
            kept.append(pa.record_batch([pa.array(skipped)], names=["position"]))
            deltas[f"skipped {name}"] = kept.delta()
        return deltas

    def load(self, chunks: ChunkSets) -> None:
        for at, (name, kept) in enumerate(zip(("left", "right"), self._kept_skipped, strict=True)):
            kept.load(chunks.get(f"skipped {name}", {}))
            for table in kept:
                self.matcher.skipped[at] = table.column(0).to_numpy()
