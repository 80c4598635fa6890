"""Firsts: the first rows of each partition over time, in an order. What top-n and numbered rows are made of.

The order is that of the keys, then of all other columns, ascending and NULLs first, so that equal rows only are not
told apart. Rows come with lifetimes and leave with lifetimes: a row that is among the first from one instant to another
is put out once, if both are before the heartbeat; if the second is not known yet, it is taken back later.

What is among the first changes by no more rows than the relation does. So at each instant at which c rows come or go
only these, and the last c of the first rows before and after, are asked whether they are among them now. Row numbers
change from the first change on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from planner.operators import SortBy
from runtime.columns.batch import FOREVER, ChangeBatch, Columns, Ints, Mask, empty_batch
from runtime.columns.row_codes import changes, expand_ranges
from runtime.columns.sort_codes import (
    Code,
    Coder,
    comparable,
    concat_codes,
    distinct_from_previous,
    order_of,
    take_code,
)
from runtime.state.chunks import Delta
from runtime.state.order_statistics import Timeline
from runtime.state.sorted_runs import CodedRows, SortedRuns

_NO_LIMIT = 2**40
"""More rows than there ever are."""


class _Ranked(NamedTuple):
    """How often a row, by the rank of its key, comes or, if negative, goes at a position, and its number or 0."""

    position: Ints
    rank: Ints
    number: Ints
    weight: Ints


class _Changes(NamedTuple):
    """The same with the codes of the rows, and instants."""

    codes: tuple[Code, ...]
    number: Ints
    time: Ints
    weight: Ints


class Firsts:
    """The rows of a relation by partition and order; `types` are those of its columns."""

    def __init__(
        self,
        partition: tuple[int, ...],
        keys: tuple[SortBy, ...],
        limit: int,
        numbered: bool,
        types: Sequence[pa.DataType],
    ) -> None:
        self._types = tuple(types)
        self._limit = min(limit, _NO_LIMIT)
        self._numbered = numbered
        self._partition = {column: Coder(types[column]) for column in partition}
        self._order: dict[int, Coder] = {}
        for key in (*keys, *(SortBy(column=each, descending=False, nulls_first=True) for each in range(len(types)))):
            if key.column not in self._partition:
                self._order.setdefault(key.column, Coder(types[key.column], key.descending, key.nulls_first))
        coders = [*self._partition.values(), *self._order.values()]
        backwards = [each for coder in coders for each in coder.backwards]
        # Without a partition all rows belong to the partition of the code 0.
        width = sum(coder.width for coder in self._partition.values())
        self._backwards = backwards if width else [False, *backwards]
        self._runs = SortedRuns(width or 1, self._backwards, self._limit)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def nbytes(self) -> int:
        return self._runs.nbytes

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        """Return the changes of the first rows, up to the heartbeat of a batch."""
        if self._limit == 0:
            return empty_batch(self._output_types, batch.until)
        rows = CodedRows(self._codes(batch), batch.start, batch.ends, batch.weights)
        made = [self._step(arriving, until) for arriving, until in self._runs.steps(rows, batch.until)]
        return self._lifetimes(_concat(made), batch.until)

    def _step(self, rows: CodedRows, until: int) -> _Changes:
        arrivals = self._runs.arrive(rows, until)
        groups = self._runs.touched(arrivals, until)
        front = self._runs.front(groups, arrivals, until)
        self._runs.keep(arrivals, until)
        timeline = Timeline(front, until)
        made = self._renumbered(timeline) if self._numbered else self._replaced(timeline)
        group, row = timeline.group[made.position], timeline.row(made.position, made.rank)
        codes = [*(take_code(code, group) for code in groups), *(take_code(code, row) for code in front.codes)]
        return _Changes(tuple(codes), made.number, timeline.time[made.position], made.weight)

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        return self._runs.delta()

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over chunks that were written before."""
        self._runs.load(chunks)

    # Columns and codes

    @property
    def _output_types(self) -> list[pa.DataType]:
        return [*self._types, pa.int64()] if self._numbered else list(self._types)

    def _codes(self, batch: ChangeBatch) -> tuple[Code, ...]:
        coders = [*self._partition.items(), *self._order.items()]
        codes = [code for column, coder in coders for code in coder.encode(batch.columns[column])]
        return tuple(codes if self._partition else [np.zeros(len(batch), np.int64), *codes])

    def columns(self, codes: Sequence[Code]) -> Columns:
        """Return the values of rows from their codes."""
        decoded: dict[int, pa.Array] = {}
        at = 0 if self._partition else 1
        for column, coder in (*self._partition.items(), *self._order.items()):
            decoded[column] = coder.decode(codes[at : at + coder.width])
            at += coder.width
        return tuple(decoded[column] for column in range(len(self._types)))

    # What changes among the first rows

    def _replaced(self, timeline: Timeline) -> _Ranked:
        """Return which rows come and go; they have no numbers."""
        position, rank, weight = _net_changes(timeline)
        begins = np.flatnonzero(changes(position))
        changed = position[begins]
        size = np.minimum(np.add.reduceat(np.abs(weight), begins) if len(begins) else weight, self._limit)
        owner, number = expand_ranges(self._limit + 1 - size, size)
        at = changed[owner]
        before = timeline.ordinals.nth(timeline.first[at], timeline.previous[at], number)
        after = timeline.ordinals.nth(timeline.first[at], timeline.last[at], number)
        asked_position = np.concatenate([position, at, at])
        asked_rank = np.concatenate([rank, before, after])
        order = order_of([asked_position, asked_rank])
        asked_position, asked_rank = asked_position[order], asked_rank[order]
        once = distinct_from_previous([asked_position, asked_rank]) & (asked_rank >= 0)
        asked_position, asked_rank = asked_position[once], asked_rank[once]
        change = self._among_first(timeline, asked_position, asked_rank, timeline.last)
        change -= self._among_first(timeline, asked_position, asked_rank, timeline.previous)
        made = np.flatnonzero(change)
        return _Ranked(asked_position[made], asked_rank[made], np.zeros(len(made), np.int64), change[made])

    def _among_first(self, timeline: Timeline, position: Ints, rank: Ints, last: Ints) -> Ints:
        """Return how often keys are among the first rows, after the changes up to the last ones of their positions."""
        smaller, own = timeline.ordinals.count(timeline.first[position], last[position], rank)
        return np.minimum(own, np.maximum(self._limit - smaller, 0))

    def _renumbered(self, timeline: Timeline) -> _Ranked:
        """Return which rows come and go with which numbers."""
        position, rank, _ = _net_changes(timeline)
        begins = changes(position)
        changed, least = position[begins], rank[begins]
        first, last, previous = timeline.first[changed], timeline.last[changed], timeline.previous[changed]
        same, _ = timeline.ordinals.count(first, last, least)
        rows = np.maximum(timeline.ordinals.total(first, last), timeline.ordinals.total(first, previous))
        owner, number = expand_ranges(same + 1, np.maximum(np.minimum(rows, self._limit) - same, 0))
        before = timeline.ordinals.nth(first[owner], previous[owner], number)
        after = timeline.ordinals.nth(first[owner], last[owner], number)
        going = np.flatnonzero((before != after) & (before >= 0))
        coming = np.flatnonzero((before != after) & (after >= 0))
        both = np.concatenate([going, coming])
        return _Ranked(
            changed[owner[both]],
            np.concatenate([before[going], after[coming]]),
            number[both],
            np.repeat([-1, 1], [len(going), len(coming)]),
        )

    # What is put out

    def _lifetimes(self, made: _Changes, until: int) -> ChangeBatch:
        """Return changes as rows with lifetimes: what comes and goes again is one row."""
        times = np.repeat(np.arange(len(made.weight)), np.abs(made.weight))
        sign, time, number = np.sign(made.weight)[times], made.time[times], made.number[times]
        row = [*(each[times] for each in comparable(made.codes, self._backwards)), number]
        order = order_of([*row, time])
        begins = distinct_from_previous([each[order] for each in row])
        same_row: Ints = np.cumsum(begins, dtype=np.int64)
        level = _levels(sign[order], begins)
        by_level = order_of([same_row, level])
        order = order[by_level]
        pairs = ~distinct_from_previous([same_row[by_level], level[by_level]])
        goes = pairs & (sign[order] < 0)
        comes_and_goes = np.flatnonzero(goes) - 1
        end = np.full(len(order), FOREVER)
        end[comes_and_goes] = time[order[comes_and_goes + 1]]
        wanted = np.flatnonzero(~goes)
        chosen = order[wanted]
        columns = self.columns([take_code(code, times[chosen]) for code in made.codes])
        if self._numbered:
            columns = (*columns, pa.array(number[chosen]))
        return ChangeBatch(columns, time[chosen], end[wanted], sign[chosen], until)


def _concat(parts: Sequence[_Changes]) -> _Changes:
    codes = concat_codes([part.codes for part in parts])
    number, time, weight = (np.concatenate(arrays) for arrays in zip(*(part[1:] for part in parts), strict=True))
    return _Changes(codes, number, time, weight)


def _net_changes(timeline: Timeline) -> tuple[Ints, Ints, Ints]:
    """Return the positions, ranks and weights of what comes or goes at instants, each pair of the first two once."""
    timed = np.flatnonzero(timeline.is_timed[timeline.position])
    position, rank, weight = timeline.position[timed], timeline.rank[timed], timeline.weight[timed]
    order = order_of([position, rank])
    position, rank = position[order], rank[order]
    begins = np.flatnonzero(distinct_from_previous([position, rank]))
    net = np.add.reduceat(weight[order], begins) if len(begins) else weight
    real = np.flatnonzero(net)
    return position[begins[real]], rank[begins[real]], net[real]


def _levels(sign: Ints, begins: Mask) -> Ints:
    """Return how high each sign, +1 or -1, climbs to or comes down from, starting at each beginning anew.

    On each level climbs and descents alternate: a climb and the next descent are those of one row.
    """
    height = np.cumsum(sign)
    starts = np.flatnonzero(begins)
    base = np.repeat((height - sign)[starts], np.diff(np.append(starts, len(sign))))
    return height - base + (sign < 0)
