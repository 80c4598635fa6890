"""Extremes over time: MIN, MAX, ARG_MIN and ARG_MAX.

The extreme of a group is its first row in an order: by the argument, or by the pair (by, x) of ARG_MIN(x, by), upwards
for the smallest and downwards for the largest. Rows where the argument, or `by`, is NULL do not take part. What
is first changes only where something changes at the front of the group, so that is all that is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from cql import bound
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, FOREVER, Ints
from runtime.columns.row_codes import changes, valid_rows
from runtime.columns.sort_codes import Code, Coder, comparable, lower_bound, order_of, take_code
from runtime.state.cells import Cells
from runtime.state.chunks import Delta
from runtime.state.order_statistics import Timeline
from runtime.state.sorted_runs import CodedRows, SortedRuns

EXTREMES = ("min", "max", "arg_min", "arg_max")


def extreme_call(call: bound.AggregateCall, final_ends: bool = False) -> ExtremeCall:
    """Return what computes an extreme.

    With `final_ends` it is promised that rows that come with a known end are never taken back, as those of time windows
    are not. Then a row is given up as soon as a better one stays as long.
    """
    types = [arrow_type(argument.type) for argument in call.arguments]
    descending = call.function in ("max", "arg_max")
    if call.function in ("min", "max"):
        return ExtremeCall([Coder(types[0], descending, nullable=False)], (0,), final_ends)
    return ExtremeCall(
        [Coder(types[1], descending, nullable=False), Coder(types[0], descending, nulls_first=not descending)],
        (1, 0),
        final_ends,
    )


class ExtremeCall:
    """The rows of groups, which have slots, in the order that makes the extreme the first of them.

    The coders make codes of the arguments in `positions`; of the first of these it must not be NULL, and the last one
    is the result.
    """

    def __init__(self, coders: Sequence[Coder], positions: Sequence[int], final_ends: bool) -> None:
        self._coders = tuple(coders)
        self._positions = tuple(positions)
        self._backwards = [each for coder in coders for each in coder.backwards]
        self._runs = SortedRuns(1, [False, *self._backwards], 1, prunes=final_ends)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def nbytes(self) -> int:
        return self._runs.nbytes

    def apply(
        self, slots: Ints, arguments: Sequence[pa.Array], start: Ints, end: Ints, weight: Ints, cells: Cells
    ) -> pa.Array:
        """Take in rows and return the extreme right after each cell, NULL where there is no row."""
        rows = self._rows(slots, [arguments[position] for position in self._positions], start, end, weight)
        results, chosen, since = [], [], BEGINNING
        for arriving, until in self._runs.steps(rows, cells.until):
            here = np.flatnonzero((cells.instant >= since) & (cells.instant < until))
            results.append(self._step(arriving, Cells(cells.slot[here], cells.instant[here], until)))
            chosen.append(here)
            since = until
        if len(results) == 1:
            return results[0]
        return pa.concat_arrays(results).take(pa.array(np.argsort(np.concatenate(chosen))))

    def _step(self, rows: CodedRows, cells: Cells) -> pa.Array:
        arrivals = self._runs.arrive(rows, cells.until)
        begins = np.flatnonzero(changes(cells.slot))
        front = self._runs.front([cells.slot[begins]], arrivals, cells.until)
        self._runs.keep(arrivals, cells.until)
        timeline = Timeline(front, cells.until)
        first = timeline.ordinals.nth(timeline.first, timeline.last, np.ones(len(timeline.first), np.int64))
        found = np.flatnonzero(first >= 0)
        row = np.full(len(first), -1)
        row[found] = timeline.row(found, first[found])
        values = self._coders[-1].decode(front.codes[-self._coders[-1].width :])
        return _taken(values, row, _last_positions(cells, begins, timeline))

    def _rows(self, slots: Ints, arguments: list[pa.Array], start: Ints, end: Ints, weight: Ints) -> CodedRows:
        wanted, codes = self._coded(arguments)
        if wanted is not None:
            slots, start, end, weight = slots[wanted], start[wanted], end[wanted], weight[wanted]
        return CodedRows((slots, *codes), start, end, weight)

    def _coded(self, arguments: list[pa.Array]) -> tuple[Ints | None, list[Code]]:
        """Return which rows take part, None if all do, and their codes."""
        valid, wanted = valid_rows(arguments[:1]), None
        if valid is not None:
            wanted = np.flatnonzero(valid)
            arguments = [argument.take(pa.array(wanted)) for argument in arguments]
        return wanted, [
            code for coder, values in zip(self._coders, arguments, strict=True) for code in coder.encode(values)
        ]

    def firsts(self, slots: Ints, arguments: Sequence[pa.Array]) -> tuple[Ints, list[pa.Array]]:
        """Return the slots that have rows which take part, in order, and the arguments of the first row of each."""
        wanted, codes = self._coded([arguments[position] for position in self._positions])
        slots = slots if wanted is None else slots[wanted]
        if len(codes) == 1 and isinstance(codes[0], np.ndarray):
            best = np.full(int(slots.max(initial=-1)) + 1, FOREVER)
            np.minimum.at(best, slots, codes[0])
            found = np.flatnonzero(np.bincount(slots))
            return found, self.arguments([best[found]])
        order = order_of([slots, *comparable(codes, self._backwards)])
        firsts = order[changes(slots[order])]
        return slots[firsts], self.arguments([take_code(code, firsts) for code in codes])

    def arguments(self, codes: Sequence[Code]) -> list[pa.Array]:
        """Return the arguments of rows from their codes."""
        decoded: dict[int, pa.Array] = {}
        at = 0
        for position, coder in zip(self._positions, self._coders, strict=True):
            decoded[position] = coder.decode(codes[at : at + coder.width])
            at += coder.width
        return [decoded[position] for position in sorted(decoded)]

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        return self._runs.delta()

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over chunks that were written before."""
        self._runs.load(chunks)


def _last_positions(cells: Cells, begins: Ints, timeline: Timeline) -> Ints:
    """Return for each cell the last position of its slot that is not after it, -1 if there is none."""
    count = len(cells.slot)
    last = np.full(count + 1, -1)
    slot = cells.slot[begins[timeline.group]]
    timed = np.flatnonzero(timeline.is_timed)
    before = np.flatnonzero(~timeline.is_timed)
    np.maximum.at(last, begins[timeline.group[before]], before)
    np.maximum.at(last, lower_bound([cells.slot, cells.instant], [slot[timed], timeline.time[timed]]), timed)
    last = np.maximum.accumulate(last[:count])
    has_any = last >= 0
    own = np.zeros(count, np.bool_)
    own[has_any] = slot[last[has_any]] == cells.slot[has_any]
    return np.where(own, last, -1)


def _taken(values: pa.Array, row: Ints, position: Ints) -> pa.Array:
    """Return the values of the rows at some positions; -1 stands for none."""
    chosen = np.where(position >= 0, np.append(row, -1)[position], -1)
    return values.take(pa.array(chosen, mask=chosen < 0))
