"""Where rows are read: operators without state run, and rows are packed for the buckets that they go to.

Rows that only aggregates over time windows see are combined first (`runtime/network/partial_aggregates.py`).

Everything that is read in one go is summed up for all places: how many elements a source had, the first and last of
their instants, and, for sources that an Rstream follows, all of them. So every place knows after each micro-batch how
far all sources are, without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from planner import operators as op
from runtime.columns.batch import ChangeBatch, Columns, Ints
from runtime.columns.row_codes import changes, is_sorted
from runtime.engine.statistics import listed
from runtime.network.layout import Edge, NetworkLayout, Router
from runtime.network.messages import BETWEEN_PROCESSES, COMBINED, ROWS, TIME, Piece, Wire
from runtime.network.partial_aggregates import combiners
from runtime.operators.registry import Step, make_step
from runtime.operators.shedding import rows_passed
from runtime.time.clock import clock_of
from runtime.time.unended_windows import Unended
from runtime.user_errors import UserFunctionFailed
from shedding.insert_drops import schedules_of
from shedding.schedule import Schedule


class FeedReader:
    """The operators straight above what is read, of all the sources of a plan that it feeds."""

    def __init__(
        self, layout: NetworkLayout, feed: str, functions: Mapping[str, Any], wire: Wire = BETWEEN_PROCESSES
    ) -> None:
        self._layout = layout
        self._wire = wire
        self._feed = feed
        self._sources = [each.id for each in layout.plan.sources if each.feed == feed]
        clock = clock_of(layout.plan)
        self._slides = Unended({slide for each in self._sources for slide in clock.sources[each].unended.slides})
        self._is_watched = any(clock.sources[each].is_watched for each in self._sources)
        self._edges = [edge for edge in layout.edges if edge.source in self._sources]
        self._routers = {edge: Router(layout, edge, functions) for edge in self._edges}
        self._combiners = combiners(layout, self._edges, functions)
        self._complete: Mapping[str, int] = {}
        """How far edges were complete before what is being read, as far as that is known."""
        self._steps: dict[str, Callable[[ChangeBatch], ChangeBatch]] = {}
        self._counting: dict[str, Step] = {}
        self._schedules = schedules_of(layout.plan)
        self._shed: dict[str, list[int]] = {}
        """How many rows drop operators have taken and passed, of what is being read."""
        self._work: dict[str, list[float]] = {}
        """What operators have done with it: batches, rows taken and put out, seconds."""
        for operator in layout.plan.operators:
            if operator.placement == "source" and operator.is_row_by_row:
                self._counting[operator.id] = step = make_step(operator, functions)
                self._steps[operator.id] = step.passed
            elif isinstance(operator, op.SourceDrop):
                self._steps[operator.id] = partial(self._drop, operator)

    def follow(self, schedules: Mapping[str, Mapping[str, Any]]) -> None:
        """Leave out what schedules, as the driver has them, say from now on."""
        for name in self._schedules.keys() & schedules.keys():
            self._schedules[name] = Schedule.of(schedules[name])

    def complete_until(self, heartbeats: Mapping[str, int]) -> None:
        """Note how far edges are complete before what is read next: no row from there on is late."""
        self._complete = heartbeats

    @property
    def delay(self) -> int:
        """How much earlier than the latest row before it a row of the source may be."""
        return self._layout.delays.get(self._sources[0], 0)

    def _drop(self, operator: op.SourceDrop, batch: ChangeBatch) -> ChangeBatch:
        passed = rows_passed(operator, self._schedules, batch)
        self._shed[operator.id] = [len(batch), len(passed)]
        return passed

    def pack(self, columns: Columns, instants: Ints, signs: Ints | None, place: str) -> Iterator[Piece]:
        """Yield the rows of one read as pieces for all places that need some of them."""
        read = ChangeBatch(columns, instants, None, signs, 0)
        self._begin()
        return self._pack(dict.fromkeys(self._sources, read), place)

    def pack_made(self, made: Mapping[str, ChangeBatch], place: str) -> Iterator[Piece]:
        """Yield rows as pieces, given what the operators make of them, all but those that go by instants alone."""
        self._begin()
        return self._pack({producer: self._without_lost(producer, rows) for producer, rows in made.items()}, place)

    def _begin(self) -> None:
        """Count what is done with what is read next."""
        self._shed, self._work = {}, {}
        for each in self._counting.values():
            each.count_anew()

    def _without_lost(self, producer: str, rows: ChangeBatch) -> ChangeBatch:
        for operator in self._layout.plan.below(self._layout.plan.by_id[producer]):
            if isinstance(operator, op.SourceDrop) and operator.goes_by_instants:
                rows = self._drop(operator, rows)
        return rows

    def _pack(self, made: dict[str, ChangeBatch], place: str) -> Iterator[Piece]:
        for edge in self._edges:
            batch = self._made(edge.producer, made)
            combined = self._combined(edge, batch, place)
            if combined is not None:
                yield from combined
                batch = batch.filter(batch.start < self._complete[edge.key])
            for bucket, positions in self._routers[edge].buckets(batch.columns, len(batch)):
                part = batch if positions is None else batch.take(positions)
                yield Piece(edge.to, bucket, ROWS, edge.key, place, len(part), self._wire.changes(part))

    def _combined(self, edge: Edge, batch: ChangeBatch, place: str) -> list[Piece] | None:
        """Return the rows of an edge that are not late, combined; None if they have to be sent as they are."""
        if edge not in self._combiners or edge.key not in self._complete:
            return None
        on_time = batch.filter(batch.start >= self._complete[edge.key])
        if not len(on_time):
            return None
        pieces = []
        for number, combiner in enumerate(self._combiners[edge]):
            found = combiner.combined(on_time, self._routers[edge])
            if found is None:
                return None
            pieces += [Piece(edge.to, at, COMBINED, edge.key, f"{place}/{number}", n, blob) for at, n, blob in found]
        return pieces

    def time(
        self, instants: Ints, skipped: int, place: str, late: int = 0, source_place: str | None = None
    ) -> Iterator[Piece]:
        """Yield what is to be known everywhere about what was read: the instants, and how many rows were left out.

        `late` rows were judged to be too late already; `source_place` is the place of an ordered source that was read.
        """
        values: dict[str, Any] = {"count": len(instants) + late, "skipped": skipped, "late": late}
        if source_place is not None:
            values["source_place"] = source_place
        if self._shed:
            values["shed"] = self._shed
        if self._work:
            values["work"] = self._work
        steps = {(name, step.name): step for name, each in self._counting.items() for step in each.figures()}
        if any(step.rows_in for step in steps.values()):
            values["steps"] = listed(steps)
        if len(instants):
            values |= {"first": int(instants.min()), "last": int(instants.max())}
            values["unended"] = self._slides.counted(instants)
        blob = self._wire.time(values, distinct(instants) if self._is_watched else instants[:0])
        for fragment, bucket in self._layout.places:
            yield Piece(fragment, bucket, TIME, self._feed, place, 0, blob)

    def edge_rows(self, edge: Edge, columns: Columns, length: int) -> ChangeBatch:
        """Return what a static relation sends over an edge, instants left open."""
        read = ChangeBatch(columns, np.zeros(length, np.int64), None, None, 0)
        return self._made(edge.producer, dict.fromkeys(self._sources, read))

    def _made(self, operator: str, made: dict[str, ChangeBatch]) -> ChangeBatch:
        if operator not in made:
            below = self._made(self._layout.plan.by_id[operator].inputs[0].operator, made)
            started = perf_counter()
            try:
                made[operator] = self._steps[operator](below)
            except UserFunctionFailed as failure:
                failure.operator = operator
                raise
            self._work[operator] = [1, len(below), len(made[operator]), perf_counter() - started]
        return made[operator]


def distinct(instants: Ints) -> Ints:
    """Return the different instants, sorted."""
    ordered = instants if is_sorted(instants) else np.sort(instants)
    return ordered[changes(ordered)]
