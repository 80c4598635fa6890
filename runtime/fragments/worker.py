"""A worker runs one bucket of one fragment, a micro-batch at a time.

It is handed all pieces of a micro-batch for its bucket and answers with pieces for others and with results. Time is
worked out from the pieces alone: every bucket learns what all sources have read, so all of them come to the same
heartbeats, and a micro-batch that is done again gives the same answer. An element is late if its instant was complete
before the micro-batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.agenda import Agenda
from runtime.batch import BEGINNING, ChangeBatch, Columns, concat, empty_batch
from runtime.clock import SourceClock, clock_of
from runtime.executor import Executor, sources_of_queries
from runtime.fragments.layout import Edge, Layout, Router, types_of
from runtime.fragments.packing import (
    CONTROL,
    COUNTS,
    HEARTBEAT,
    RESULT,
    RESULTS,
    ROWS,
    TIME,
    Piece,
    pack_changes,
    pack_values,
    unpack_changes,
    unpack_values,
)
from runtime.fragments.parts import fragment_plan
from runtime.fragments.reading import SourceReader
from runtime.rows import is_sorted, order_by


class Worker:
    """One bucket of a fragment. `static` has the rows of static relations by the ids of their sources."""

    def __init__(
        self,
        layout: Layout,
        fragment: str,
        bucket: int,
        functions: Mapping[str, Any],
        static: Mapping[str, Columns],
        *,
        check: bool = False,
    ) -> None:
        self.layout = layout
        self.fragment = fragment
        self.bucket = bucket
        self.clock: SourceClock = clock_of(layout.plan)
        self.read: dict[str, int] = defaultdict(int)
        self.skipped: dict[str, int] = defaultdict(int)
        self.late: dict[str, int] = defaultdict(int)
        self._static = static
        self._functions = functions
        self._edges = {edge.key: edge for edge in layout.into(fragment)}
        self._exits = [(edge, Router(layout, edge, functions)) for edge in layout.out_of(fragment)]
        self.executor = Executor(
            fragment_plan(layout, fragment),
            functions,
            check=check,
            clock=self.clock,
            query_sources=sources_of_queries(layout.plan),
            taps={edge.producer for edge, _ in self._exits},
        )
        self.waiting = {edge.key: Agenda() for edge in self._edges.values() if self._waits(edge)}
        self.heartbeats: dict[str, int] = dict.fromkeys(self._edges, BEGINNING)
        self.upstream: dict[str, dict[str, int]] = {key: {} for key, edge in self._edges.items() if edge.source is None}
        self.entered: set[str] = set()
        """The edges of static relations whose rows are in."""

    def _waits(self, edge: Edge) -> bool:
        """Tell whether rows of an edge are held back until their instants are complete."""
        return edge.source is not None or self.layout.plan.by_id[edge.producer].is_stream

    def process(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Run a micro-batch and return what is for others."""
        by_kind: dict[str, list[Piece]] = defaultdict(list)
        for piece in sorted(pieces, key=lambda each: (each.kind, each.about, each.place)):
            by_kind[piece.kind].append(piece)
        complete_before = {name: source.until for name, source in self.clock.sources.items()}
        self._follow_time(by_kind[TIME], by_kind[CONTROL])
        self._take_rows(by_kind[ROWS], complete_before)
        for piece in by_kind[HEARTBEAT]:
            self.upstream[piece.about][piece.place] = unpack_values(piece.blob)["until"]
        self.executor.wake()
        self._enter_static()
        for edge in self._edges.values():
            self._advance(edge)
        self.executor.run()
        return [*self._results(), *self._sent(), self._counts()]

    # Time

    def _follow_time(self, times: Sequence[Piece], controls: Sequence[Piece]) -> None:
        """Take in what sources have read, and what else is said about them."""
        for piece in times:
            source, values = self.clock.sources[piece.about], unpack_values(piece.blob)
            self.read[piece.about] += values["count"]
            self.skipped[piece.about] += values["skipped"]
            if not values["count"]:
                continue
            source.first = values["first"] if source.first is None else min(source.first, values["first"])
            source.last = values["last"] if source.last is None else max(source.last, values["last"])
            if source.is_watched:
                source.recent.append(np.array(values["instants"], np.int64))
        for source_id, source in self.clock.sources.items():
            if source.last is not None and not source.has_ended:
                source.until = max(source.until, source.last - self.layout.delays.get(source_id, 0))
        for piece in controls:
            values = unpack_values(piece.blob)
            for name, instant in values.get("heartbeats", {}).items():
                self.clock.sources[name].until = max(self.clock.sources[name].until, instant)
            for name in values.get("ended", ()):
                self.clock.sources[name].has_ended = True

    def _heartbeat(self, edge: Edge) -> int:
        """Return how far an edge is complete."""
        if edge.source is None:
            known = self.upstream[edge.key]
            producer = self.layout.plan.by_id[edge.producer].fragment
            return min(known.values()) if len(known) == self.layout.bucket_count(producer) else BEGINNING
        source = self.clock.sources[edge.source]
        if source.is_timed:
            return max(self.clock.passed, source.until) if source.has_ended else source.until
        return self.clock.passed if edge.key in self.entered else BEGINNING

    # Input

    def _take_rows(self, pieces: Sequence[Piece], complete_before: Mapping[str, int]) -> None:
        for piece in pieces:
            edge, batch = self._edges[piece.about], unpack_changes(piece.blob, 0)
            if edge.source is None:
                if edge.key in self.waiting:
                    self.waiting[edge.key].put(batch.start, batch.columns)
                else:
                    until = self.heartbeats[edge.key]
                    self.executor.push(edge.key, batch.with_until(until))
                continue
            on_time = batch.start >= complete_before[edge.source]
            if not on_time.all():
                self.late[edge.key] += int((~on_time).sum())
                batch = batch.filter(on_time)
            self.waiting[edge.key].put(batch.start, [pa.array(batch.weights), *batch.columns])

    def _enter_static(self) -> None:
        """Put static relations into their edges, at the first instants of their queries."""
        for edge in self._edges.values():
            if edge.source is None or self.clock.sources[edge.source].is_timed or edge.key in self.entered:
                continue
            beginning = self.clock.first_instant(edge.source)
            if beginning is not None and beginning < self.clock.passed:
                self.entered.add(edge.key)
                own = self._static_rows(edge)
                start = np.full(len(own), beginning)
                self.waiting[edge.key].put(start, [pa.array(own.weights), *own.columns])

    def _static_rows(self, edge: Edge) -> ChangeBatch:
        """Return the rows of a static relation that an edge brings to this bucket."""
        assert edge.source is not None
        columns = self._static[edge.source]
        reader = SourceReader(self.layout, edge.source, self._functions)
        rows = reader.edge_rows(edge, columns, len(columns[0]) if columns else 0)
        for bucket, positions in Router(self.layout, edge, self._functions).buckets(rows.columns, len(rows)):
            if bucket == self.bucket:
                return rows if positions is None else rows.take(positions)
        return rows.slice(0, 0)

    def _advance(self, edge: Edge) -> None:
        """Hand the rows of an edge that are complete to the executor."""
        until = self._heartbeat(edge)
        types = types_of(self.layout.plan, edge.producer)
        batch = empty_batch(types, until)
        if edge.key in self.waiting:
            taken = self.waiting[edge.key].take(until)
            if taken is not None:
                batch = self._in_order(edge, *taken, until)
        elif until < self.heartbeats[edge.key]:
            return
        if len(batch) or until > self.heartbeats[edge.key]:
            self.heartbeats[edge.key] = until
            self.executor.push(edge.key, batch)

    def _in_order(self, edge: Edge, instants: Any, columns: Columns, until: int) -> ChangeBatch:
        order = None if is_sorted(instants) else order_by(instants)
        weight = None
        if edge.source is not None:
            weight, columns = np.asarray(columns[0]), tuple(columns[1:])
            if self.layout.plan.by_id[edge.producer].is_stream or bool((weight == 1).all()):
                weight = None
        batch = ChangeBatch(tuple(columns), instants, None, weight, until)
        return batch if order is None else batch.take(order)

    # Output

    def _results(self) -> Iterator[Piece]:
        for query in self.executor.plan.queries:
            batch = self.executor.take(query)
            if len(batch):
                place = f"{self.fragment}/{self.bucket}"
                yield Piece(RESULTS, 0, RESULT, query, place, len(batch), pack_changes(batch))

    def _counts(self) -> Piece:
        """Return what this bucket knows of its sources: rows read, left out, and too late for one of its edges."""
        late: dict[str, int] = {}
        for edge in self._edges.values():
            if edge.source is not None:
                late[edge.source] = max(late.get(edge.source, 0), self.late[edge.key])
        values = {"read": self.read, "skipped": self.skipped, "late": late}
        return Piece(RESULTS, 0, COUNTS, "", f"{self.fragment}/{self.bucket}", 0, pack_values(values))

    def _sent(self) -> Iterator[Piece]:
        place = f"{self.fragment}/{self.bucket}"
        tapped = {edge.producer: self.executor.take_tapped(edge.producer) for edge in _first_of_producers(self._exits)}
        for edge, router in self._exits:
            batches = tapped[edge.producer]
            if not batches:
                continue
            batch = concat([replace(each, until=batches[-1].until) for each in batches])
            for bucket, positions in router.buckets(batch.columns, len(batch)):
                part = batch if positions is None else batch.take(positions)
                yield Piece(edge.to, bucket, ROWS, edge.key, place, len(part), pack_changes(part))
            for bucket in range(self.layout.bucket_count(edge.to)):
                blob = pack_values({"until": batch.until})
                yield Piece(edge.to, bucket, HEARTBEAT, edge.key, place, 0, blob)


def _first_of_producers(exits: Sequence[tuple[Edge, Router]]) -> list[Edge]:
    return list({edge.producer: edge for edge, _ in exits}.values())
