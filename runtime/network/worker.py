"""A worker runs one bucket of one fragment, a micro-batch at a time.

It is handed all pieces of a micro-batch for its bucket and answers with pieces for others and with results. Time is
worked out from the pieces alone: every bucket learns what all sources have read, so all of them come to the same
heartbeats, and a micro-batch that is done again gives the same answer. Where a source has an order, who reads it leaves
out late elements (`lateness.py`), and every bucket checks that nobody has kept one. Beyond that, an element is late if
its instant was complete before the micro-batch: by a heartbeat, or of a source without an order.

What else is to be known comes as control messages, which name tables:

| message | meaning |
|---|---|
| `heartbeats` | nothing before an instant comes from a table any more |
| `idle` | tables that hold up nobody until they have rows again |
| `ended` | tables that have come to their end |
| `resumed` | tables that had, and go on after all; instants that were closed stay closed |
| `static` | the version of a static relation's contents that holds from now on |
| `schedules` | what is lost: units of time, by the ids of schedules; comparisons of joins; the memory joins may use |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.columns.batch import BEGINNING, BLOCK_ROWS, ChangeBatch, Columns, Ints, concat, empty_batch
from runtime.columns.row_codes import is_sorted, order_by
from runtime.engine.executor import Executor
from runtime.engine.statistics import Steps, add_step, listed
from runtime.network.fragment_plan import fragment_plan
from runtime.network.lateness import PlaceSpan, overtaken
from runtime.network.layout import Edge, NetworkLayout, Router, types_of
from runtime.network.messages import (
    BETWEEN_PROCESSES,
    COMBINED,
    CONTROL,
    COUNTS,
    HEARTBEAT,
    RESULT,
    RESULTS,
    ROWS,
    TIME,
    Piece,
    Wire,
    bytes_batch,
    unpack_changes,
    unpack_time,
    unpack_values,
)
from runtime.network.overflow import Overflow
from runtime.network.partial_aggregates import combinations, unpack_combined
from runtime.network.source_stage import FeedReader
from runtime.operators.base import StepFigures
from runtime.operators.joins import counted_by, demands_of, pairs_of
from runtime.state.future_changes import Agenda
from runtime.time.clock import SourceClock, SourceTime, clock_of
from runtime.time.window_lifetimes import range_lifetime

Static = Mapping[str, Mapping[int, bytes]]
"""The contents of static relations, packed, by the ids of their sources and by version."""


class Worker:
    """One bucket of a fragment.

    What is kept may take `max_bytes`. If there is a lot to send, it goes to the folder `overflow`.
    """

    def __init__(
        self,
        layout: NetworkLayout,
        fragment: str,
        bucket: int,
        functions: Mapping[str, Any],
        static: Static,
        *,
        policy: str = "chain",
        check: bool = False,
        block_rows: int = BLOCK_ROWS,
        max_bytes: int | None = None,
        overflow: Path | None = None,
        wire: Wire = BETWEEN_PROCESSES,
    ) -> None:
        self.layout = layout
        self._wire = wire
        self._overflow = overflow
        self.fragment = fragment
        self.bucket = bucket
        self.clock: SourceClock = clock_of(layout.plan, layout.closes_windows)
        self.read: dict[str, int] = defaultdict(int)
        self.skipped: dict[str, int] = defaultdict(int)
        self.late: dict[str, int] = defaultdict(int)
        """By edge, rows of this bucket whose instants were complete before their micro-batch."""
        self.read_late: dict[str, int] = defaultdict(int)
        """By source, rows that were late by its order where they were read."""
        self.shed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        """How many rows each drop operator has taken and passed."""
        self.read_work: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        """What operators did where rows are read: batches, elements in and out, seconds."""
        self._static = static
        self._functions = functions
        self._edges = {edge.key: edge for edge in layout.into(fragment)}
        self._combined = {edge.key: found for edge in self._edges.values() if (found := combinations(layout, edge))}
        self._exits = [(edge, Router(layout, edge, functions)) for edge in layout.out_of(fragment)]
        self.executor = Executor(
            fragment_plan(layout, fragment),
            functions,
            policy=policy,
            block_rows=block_rows,
            max_bytes=max_bytes,
            check=check,
            clock=self.clock,
            on_bad_row=layout.on_bad_row,
            taps={edge.producer for edge, _ in self._exits},
            bucket=bucket,
            buckets=layout.bucket_count(fragment),
        )
        self.waiting = {edge.key: Agenda() for edge in self._edges.values() if self._waits(edge)}
        self.heartbeats: dict[str, int] = dict.fromkeys(self._edges, BEGINNING)
        self.upstream: dict[str, dict[str, int]] = {key: {} for key, edge in self._edges.items() if edge.source is None}
        self.entered: dict[str, int] = {}
        """The edges of static relations whose rows are in, with the versions of these."""
        self._told: dict[str, int] = defaultdict(lambda: BEGINNING)
        """How far others know that edges are complete."""
        self._numbers = count()
        """The numbers of what is sent in this micro-batch, in order."""
        self._taken: dict[str, int] = {}
        """How many rows of each feed the micro-batch has."""
        self._places: dict[str, list[str]] = {}
        self._overtaken: dict[str, dict[str, int]] = {}
        """The places of each ordered feed that the micro-batch has, and the latest instants before them if one of them
        was read with rows that are late."""
        self._work_before: dict[str, list[float]] = {}
        self._steps_before: Steps = {}
        self.read_steps: dict[tuple[str, str], StepFigures] = {}
        self._sources_of: dict[str, list[str]] = defaultdict(list)
        self._fed_by: dict[str, list[str]] = defaultdict(list)
        for each in layout.plan.sources:
            self._sources_of[each.table.casefold()].append(each.id)
            self._fed_by[each.feed].append(each.id)

    @property
    def _is_one_of_many(self) -> bool:
        return self.layout.bucket_count(self.fragment) > 1

    def _waits(self, edge: Edge) -> bool:
        """Tell whether rows of an edge are held back until their instants are complete."""
        return edge.source is not None or self.layout.plan.by_id[edge.producer].is_stream

    def process(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Run a micro-batch and return what is for others."""
        sent: list[Piece] = []
        overflow = Overflow(self._overflow)
        with closing(overflow):
            for piece in self.run(pieces):
                is_long = piece.kind in (ROWS, RESULT)
                sent.append(piece._replace(blob=overflow.passed(piece.blob)) if is_long else piece)
        return sent

    def run(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Run a micro-batch and yield what is for others as it comes; their places tell in which order rows go."""
        self._numbers = count()
        by_kind: dict[str, list[Piece]] = defaultdict(list)
        for piece in sorted(pieces, key=lambda each: (each.kind, each.about, each.place)):
            by_kind[piece.kind].append(piece)
        messages = [unpack_values(piece.blob) for piece in by_kind[CONTROL]]
        self._follow_time(by_kind[TIME])
        for message in messages:
            self._obey(message)
        yield from self._take_rows(by_kind[ROWS])
        self._take_combined(by_kind[COMBINED])
        for piece in by_kind[HEARTBEAT]:
            self.upstream[piece.about][piece.place] = unpack_values(piece.blob)["until"]
        self.executor.wake()
        self._enter_static()
        for message in messages:
            for table, version in message.get("static", {}).items():
                self._change_static(table, version)
        for edge in self._edges.values():
            self._advance(edge)
        yield from self._made()
        yield from self._heartbeats()
        yield self._counts(max((piece.place for piece in by_kind[CONTROL]), default=""))

    # Time

    def _follow_time(self, times: Sequence[Piece]) -> None:
        """Take in what sources have read."""
        self._taken = defaultdict(int)
        found = [(piece, *unpack_time(piece.blob)) for piece in times]
        self._follow_order([(piece.about, values) for piece, values, _ in found])
        for piece, values, instants in found:
            self._taken[piece.about] += values["count"]
            for name in self._fed_by[piece.about]:
                self._note(name, values, instants)
            for operator, counts in values.get("shed", {}).items():
                self.shed[operator] = [a + b for a, b in zip(self.shed[operator], counts, strict=True)]
            for operator, figures in values.get("work", {}).items():
                self.read_work[operator] = [a + b for a, b in zip(self.read_work[operator], figures, strict=True)]
            for operator, *figures in values.get("steps", ()):
                add_step(self.read_steps, operator, StepFigures(*figures))
        for name, source in self.clock.sources.items():
            if source.last is not None and not source.has_ended:
                source.until = max(source.until, source.last - self.layout.delays.get(name, 0))

    def _follow_order(self, read: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Find out whether tasks that read a feed side by side have kept rows that are late."""
        spans: dict[str, list[PlaceSpan]] = defaultdict(list)
        places: dict[str, dict[str, None]] = defaultdict(dict)
        for feed, values in read:
            if "source_place" in values:
                places[feed][values["source_place"]] = None
                spans[feed].append(PlaceSpan(values["source_place"], values.get("first"), values.get("last")))
        self._places = {feed: list(found) for feed, found in places.items()}
        self._overtaken = {}
        for feed, found in spans.items():
            delay = self.layout.delays.get(self._fed_by[feed][0], 0)
            before = overtaken(found, delay, self._newest_of(feed))
            if before:
                self._overtaken[feed] = before

    def _newest_of(self, feed: str) -> int | None:
        lasts = (self.clock.sources[name].last for name in self._fed_by[feed])
        return max((last for last in lasts if last is not None), default=None)

    def _note(self, name: str, values: Mapping[str, Any], instants: Ints) -> None:
        source = self.clock.sources[name]
        self.read[name] += values["count"]
        self.skipped[name] += values["skipped"]
        self.read_late[name] += values["late"]
        if "first" not in values:
            return
        source.is_resumed = False
        if source.is_idle:
            source.until, source.is_idle = max(source.until, self.clock.passed(name)), False
        source.first = values["first"] if source.first is None else min(source.first, values["first"])
        source.last = values["last"] if source.last is None else max(source.last, values["last"])
        source.unended.note(values["unended"])
        if source.is_watched:
            source.recent.append(instants)

    def _obey(self, message: Mapping[str, Any]) -> None:
        """Take in a control message."""
        for table, instant in message.get("heartbeats", {}).items():
            for source in self._times(table):
                source.is_resumed &= instant <= source.until
                source.until = max(source.until, instant)
        for table in message.get("idle", ()):
            for source in self._times(table):
                source.is_idle = True
        for table in message.get("ended", ()):
            for source in self._times(table):
                source.has_ended = True
        if "resumed" in message:
            self._resume(message["resumed"])
        self.executor.follow(message.get("schedules", {}))

    def _resume(self, tables: Iterable[str]) -> None:
        names = [name for table in tables for name in self._sources_of.get(table, ())]
        passed = {name: self.clock.passed(name) for name in names if self.clock.sources[name].has_ended}
        for name, instant in passed.items():
            source = self.clock.sources[name]
            source.until, source.has_ended, source.is_resumed = max(source.until, instant), False, True

    def _times(self, table: str) -> list[SourceTime]:
        """Return what is known of a table; nothing if it is not read any more."""
        return [self.clock.sources[name] for name in self._sources_of.get(table, ())]

    def _heartbeat(self, edge: Edge) -> int:
        """Return how far an edge is complete."""
        if edge.source is None:
            known = self.upstream[edge.key]
            producer = self.layout.plan.by_id[edge.producer].fragment
            return min(known.values()) if len(known) == self.layout.bucket_count(producer) else BEGINNING
        source = self.clock.sources[edge.source]
        if source.is_timed:
            holds_up = not (source.has_ended or source.is_idle)
            return source.until if holds_up else max(self.clock.passed(edge.source), source.until)
        return self.clock.passed(edge.source) if edge.key in self.entered else BEGINNING

    # Input

    def _take_rows(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Take in rows; what can be done with them before their instants are complete is done if there are many."""
        pushed = 0
        for piece in pieces:
            edge, batch = self._edges[piece.about], unpack_changes(piece.blob, 0)
            if edge.source is None:
                if edge.key in self.waiting:
                    self.waiting[edge.key].put(batch.start, batch.columns)
                else:
                    until = self.heartbeats[edge.key]
                    self.executor.push(edge.key, batch.with_until(until))
                    pushed += len(batch)
                    if pushed >= BLOCK_ROWS:
                        yield from self._made()
                        pushed = 0
                continue
            on_time = batch.start >= self.heartbeats[edge.key]
            if not on_time.all():
                self.late[edge.key] += int((~on_time).sum())
                batch = batch.filter(on_time)
            self.waiting[edge.key].put(batch.start, [pa.array(batch.weights), *batch.columns])

    def _take_combined(self, pieces: Sequence[Piece]) -> None:
        """Hand rows that were combined to their aggregates, which keep them until their instants are complete."""
        for piece in pieces:
            combination = self._combined[piece.about][int(piece.place.rpartition("/")[2])]
            found = unpack_combined(piece.blob, combination)
            for window, aggregate in combination.readers:
                start, end = range_lifetime(window, found.instants)
                calls = [found.calls[at] for at in combination.calls_of(aggregate)]
                self.executor.take_combined(aggregate.id, found.keys, found.rows, calls, start, end)

    def _enter_static(self) -> None:
        """Put static relations into their edges, at the first instants of their queries."""
        for edge in self._static_edges():
            assert edge.source is not None
            beginning = self.clock.first_instant(edge.source)
            if edge.key not in self.entered and beginning is not None and beginning < self.clock.passed(edge.source):
                self.entered[edge.key] = newest = max(self._static[edge.source])
                self._put_static(edge, newest, beginning, 1)

    def _change_static(self, table: str, version: int) -> None:
        """Replace the contents of a static relation where they are in, at the instant that is not complete yet."""
        for edge in self._static_edges():
            assert edge.source is not None
            before = self.entered.get(edge.key, version)
            if before < version and edge.source in self._sources_of.get(table, ()):
                now = max(self.clock.passed(edge.source), self.heartbeats[edge.key])
                self.entered[edge.key] = version
                self._put_static(edge, before, now, -1)
                self._put_static(edge, version, now, 1)

    def _static_edges(self) -> Iterator[Edge]:
        for edge in self._edges.values():
            if edge.source is not None and not self.clock.sources[edge.source].is_timed:
                yield edge

    def _put_static(self, edge: Edge, version: int, instant: int, sign: int) -> None:
        """Put the rows of a static relation that are for this bucket into an edge."""
        assert edge.source is not None
        columns = tuple(bytes_batch(self._static[edge.source][version]).columns)
        reader = FeedReader(self.layout, self.layout.plan.by_id[edge.source].feed, self._functions)  # type: ignore[attr-defined]
        rows = reader.edge_rows(edge, columns, len(columns[0]) if columns else 0)
        for bucket, positions in Router(self.layout, edge, self._functions).buckets(rows.columns, len(rows)):
            if bucket == self.bucket:
                own = rows if positions is None else rows.take(positions)
                weights = pa.array(np.full(len(own), sign, np.int64))
                self.waiting[edge.key].put(np.full(len(own), instant), [weights, *own.columns])

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

    @property
    def _place(self) -> str:
        return f"{self.fragment}/{self.bucket}"

    def _made(self) -> Iterator[Piece]:
        """Process everything that waits, and yield results and rows for others as they come."""
        for _ in self.executor.steps():
            yield from self._results()
            yield from self._sent()
        yield from self._results()
        yield from self._sent()

    def _results(self) -> Iterator[Piece]:
        for query in self.executor.plan.queries:
            batch = self.executor.take(query)
            if len(batch):
                place = f"{self._place}/{next(self._numbers):08}"
                yield Piece(RESULTS, 0, RESULT, query, place, len(batch), self._wire.changes(batch))

    def _counts(self, told: str) -> Piece:
        """Return what this bucket knows of its sources, and what its operators did since the last time and hold.

        `told` is the name of the last control message, if there was one.
        """
        late: dict[str, int] = {}
        for edge in self._edges.values():
            if edge.source is not None:
                late[edge.source] = max(late.get(edge.source, 0), self.late[edge.key])
        lasts = [each.last for each in self.clock.sources.values() if each.last is not None]
        place = f"{self.fragment}/{self.bucket}"
        values = {
            "place": place,
            "told": told,
            "taken": self._taken,
            "read": self.read,
            "skipped": self.skipped,
            "late": late,
            "read_late": self.read_late,
            "places": self._places,
            "overtaken": self._overtaken,
            "order": {feed: newest for feed in self._fed_by if (newest := self._newest_of(feed)) is not None},
            "first": min((each.first for each in self.clock.sources.values() if each.first is not None), default=None),
            "newest": max(lasts, default=None),
            "closed": min(self.heartbeats.values(), default=BEGINNING),
            "unended": self.clock.unended(),
            "ignored": self._ignored(),
            "complete": {key: self.heartbeats[key] for key in self._combined},
            "work": self._work_done(),
            "steps": self._steps_done(),
            "read_steps": listed(self.read_steps),
            "read_work": dict(self.read_work),
            "held": self._state_held(),
            "until": self.executor.complete_until(),
            "shed": dict(self.shed),
            "pairs": pairs_of(self.executor.operators),
            "demands": demands_of(self.executor.operators) if self._is_one_of_many else {},
            "joins": counted_by(self.executor.operators),
        }
        return Piece(RESULTS, 0, COUNTS, "", place, 0, self._wire.values(values))

    def _ignored(self) -> dict[str, int]:
        """Return how many removals of rows that were not there this bucket has left out, by source."""
        found: dict[str, int] = {}
        for key, ignored in self.executor.ignored().items():
            source = self._edges[key].source
            assert source is not None, "logs are read from sources"
            found[source] = max(found.get(source, 0), ignored)
        return found

    def _work_done(self) -> dict[str, list[float]]:
        """Return what each operator did since the last time: batches, elements in and out, seconds."""
        now = {
            name: [work.batches, work.elements_in, work.elements_out, work.seconds]
            for name, work in self.executor.statistics.operators.items()
        }
        before, self._work_before = self._work_before, now
        nothing = [0, 0, 0, 0.0]
        done = {
            name: [a - b for a, b in zip(figures, before.get(name, nothing), strict=True)]
            for name, figures in now.items()
        }
        return {name: figures for name, figures in done.items() if figures[0]}

    def _steps_done(self) -> list[list[Any]]:
        """Return what each step of operators' work did since the last time: operator, and its figures."""
        now = self.executor.steps_taken()
        before, self._steps_before = self._steps_before, now
        done = {key: step.with_others(before[key], -1) if key in before else step for key, step in now.items()}
        return listed({key: step for key, step in done.items() if step.rows_in})

    def _state_held(self) -> dict[str, list[int]]:
        """Return the elements and bytes that operators, synopses and stores hold."""
        statistics = self.executor.statistics
        sizes = {**statistics.state, **statistics.synopses, **statistics.stores}
        return {name: [size.elements or 0, size.nbytes or 0] for name, size in sizes.items()}

    def _sent(self) -> Iterator[Piece]:
        """Yield rows that were put out for others."""
        tapped = {edge.producer: self.executor.take_tapped(edge.producer) for edge in _first_of_producers(self._exits)}
        for edge, router in self._exits:
            batches = [batch for batch in tapped[edge.producer] if len(batch)]
            if not batches:
                continue
            batch = concat(batches)
            for bucket, positions in router.buckets(batch.columns, len(batch)):
                part = batch if positions is None else batch.take(positions)
                place = f"{self._place}/{next(self._numbers):08}"
                yield Piece(edge.to, bucket, ROWS, edge.key, place, len(part), self._wire.changes(part))

    def _heartbeats(self) -> Iterator[Piece]:
        """Yield how far the edges to others are complete, of those that have got further."""
        for edge, _ in self._exits:
            until = self.executor.complete_before(edge.producer)
            if until > self._told[edge.key]:
                self._told[edge.key] = until
                for bucket in range(self.layout.bucket_count(edge.to)):
                    yield Piece(
                        edge.to, bucket, HEARTBEAT, edge.key, self._place, 0, self._wire.values({"until": until})
                    )


def _first_of_producers(exits: Sequence[tuple[Edge, Router]]) -> list[Edge]:
    return list({edge.producer: edge for edge, _ in exits}.values())
