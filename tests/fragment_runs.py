"""Runs plans as fragments and buckets without Spark: what a cluster would do, in one process.

Micro-batches are cut at random; pieces go through the stages as they would through Spark's stateful operators; workers
have any scheduling policy, are thrown away at random and made again from what they saved, through bytes. Now and then
those who read know how far edges are complete, and combine rows.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from planner import operators as op
from planner.plan import Plan
from runtime.columns.batch import BEGINNING, BLOCK_ROWS
from runtime.controllers.schedules import DecidedSchedules
from runtime.engine.scheduling import POLICIES
from runtime.network import overflow
from runtime.network import partial_aggregates as combining
from runtime.network.layout import NetworkLayout, level_of
from runtime.network.messages import (
    CONTROL,
    COUNTS,
    RESULTS,
    Piece,
    batch_bytes,
    bytes_batch,
    pack_values,
    unpack_changes,
    unpack_values,
)
from runtime.network.reports import Report, complete_after, counted_by_joins, demands_of_joins
from runtime.network.source_stage import FeedReader
from runtime.network.worker import Worker
from runtime.network.worker_state import load_worker, save_worker
from shedding.budgets import Budgets
from shedding.join_deciders import Choices
from tests.definition.evaluator import Element, Result
from tests.engine_runs import from_column, to_column

Place = tuple[str, int]


class Cluster:
    """Workers of all buckets, and the chunks and positions that they saved."""

    def __init__(
        self, layout: NetworkLayout, functions: Mapping[str, Any], static: Mapping[str, Any], rng: Random
    ) -> None:
        self.layout = layout
        self._made = (functions, static)
        self._rng = rng
        self._workers: dict[Place, Worker] = {}
        self._chunks: dict[Place, dict[str, bytes]] = defaultdict(dict)
        self._positions: dict[Place, dict[str, Any]] = {}
        self._block_rows = rng.choice((1, 3, BLOCK_ROWS, BLOCK_ROWS))
        self._overflow = TemporaryDirectory() if rng.random() < 0.2 else None

    def go_on_from(self, other: Cluster) -> None:
        """Take over what the workers of a cluster have saved."""
        self._chunks, self._positions = other._chunks, other._positions

    def run(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Run a micro-batch through all stages and return the results."""
        for stage in range(self.layout.levels):
            inbox: dict[Place, list[Piece]] = defaultdict(list)
            passed_on: list[Piece] = []
            for piece in pieces:
                is_ours = piece.fragment != RESULTS and level_of(piece.fragment) == stage
                (inbox[piece.fragment, piece.bucket] if is_ours else passed_on).append(piece)
            for place, own in inbox.items():
                self._rng.shuffle(own)
                passed_on += self._process(place, own)
            pieces = passed_on
        assert all(piece.fragment == RESULTS for piece in pieces), "a piece was not delivered"
        return [piece._replace(blob=overflow.kept_elsewhere(piece.blob)) for piece in pieces]

    def states(self) -> dict[Place, tuple[dict[str, bytes], dict[str, Any]]]:
        """Return the chunks and the position that each bucket has saved."""
        return {place: (dict(self._chunks[place]), position) for place, position in self._positions.items()}

    def _process(self, place: Place, pieces: list[Piece]) -> list[Piece]:
        worker = self._workers.get(place) or self._made_worker(place)
        with patch.object(overflow, "MOST_BYTES", 500):
            sent = worker.process(pieces)
        delta = save_worker(worker)
        for name in delta.drop:
            self._chunks[place].pop(name, None)
        self._chunks[place] |= {name: batch_bytes(chunk) for name, chunk in delta.put.items()}
        self._positions[place] = delta.meta
        self._workers[place] = worker
        if self._rng.random() < 0.3:
            del self._workers[place]
        return sent

    def _made_worker(self, place: Place) -> Worker:
        folder = None if self._overflow is None else Path(self._overflow.name)
        policy = self._rng.choice(POLICIES)
        worker = Worker(
            self.layout,
            *place,
            *self._made,
            policy=policy,
            check=True,
            block_rows=self._block_rows,
            overflow=folder,
        )
        if place in self._positions:
            chunks: dict[str, pa.RecordBatch] = {n: bytes_batch(b) for n, b in self._chunks[place].items()}
            for unused in load_worker(worker, chunks, self._positions[place]):
                del self._chunks[place][unused]
        return worker


def run_fragments(
    plan: Plan,
    data: Mapping[str, Sequence[Element]],
    rng: Random,
    buckets: int,
    functions: Mapping[str, Any] | None = None,
    watch: Callable[[Cluster], None] = lambda cluster: None,
    closes_windows: bool = False,
) -> dict[str, Result]:
    """Return what a plan's queries yield when it runs in buckets; someone may watch after each micro-batch."""
    run = FragmentRun(plan, data, rng, buckets, functions, closes_windows)
    while run.step():
        watch(run.cluster)
    watch(run.cluster)
    found = run.finish()
    watch(run.cluster)
    return found


class FragmentRun:
    """A network in buckets, a random micro-batch at a time; its plan can be changed between these."""

    def __init__(
        self,
        plan: Plan,
        data: Mapping[str, Sequence[Element]],
        rng: Random,
        buckets: int,
        functions: Mapping[str, Any] | None = None,
        closes_windows: bool = False,
    ) -> None:
        self._rng = rng
        self._closes_windows = closes_windows
        self._buckets = buckets
        self._functions = functions or {}
        self._elements = {table: sorted(own, key=lambda element: element[0]) for table, own in data.items()}
        self._read: dict[str, int] = {}
        self._pieces: list[Piece] = []
        self._newest = BEGINNING
        self._complete: dict[str, int] = {}
        self._cluster: Cluster | None = None
        self.reports: list[Report] = []
        """What the workers have counted in the last micro-batch."""
        self.change(plan)

    def change(self, plan: Plan) -> None:
        """Go on with another plan: workers are made anew from what those before have saved."""
        self._plan = plan
        layout = NetworkLayout(plan, self._buckets, closes_windows=self._closes_windows, on_bad_row="skip")
        static = {each.id: {1: _packed(each, self._elements[each.table])} for each in plan.sources if not each.time}
        before, self._cluster = self._cluster, Cluster(layout, self._functions, static, self._rng)
        if before is not None:
            self._cluster.go_on_from(before)
        self.schedules, self.choices, self._complete = DecidedSchedules(plan), Choices(plan), {}
        self.budgets = Budgets(plan, self._buckets)
        self._readers = {each.feed: FeedReader(layout, each.feed, self._functions) for each in plan.sources}
        self._timed = {each.feed: each for each in plan.sources if each.time is not None}

    @property
    def cluster(self) -> Cluster:
        """The workers of the plan as it is now."""
        assert self._cluster is not None
        return self._cluster

    def remaining(self, table: str) -> list[Element]:
        """Return the elements of a stream that have not been read."""
        return self._elements[table][self._read.get(table.casefold(), 0) :]

    def step(self) -> bool:
        """Run a micro-batch; return False if there is nothing left to read."""
        batch = self._told_schedules()
        complete = self._complete if self._rng.random() < 0.7 else {}
        for feed, source in self._timed.items():
            first = self._read.get(feed, 0)
            part = self._elements[source.table][first:]
            part = part[: _cut(part, self._rng)]
            self._read[feed] = first + len(part)
            self._newest = max([self._newest, *(element[0] for element in part)])
            self._readers[feed].complete_until(complete)
            with patch.object(combining, "FEWEST_ROWS", self._rng.choice((0, 0, combining.FEWEST_ROWS))):
                batch += _read(self._readers[feed], source, part, len(self._pieces))
        self._run(batch)
        if self._newest > BEGINNING:
            self.schedules.read_until(self._newest, None)
        return any(self._read[feed] < len(self._elements[each.table]) for feed, each in self._timed.items())

    def _told_schedules(self) -> list[Piece]:
        """Return the schedules for all places, and let those who read know them."""
        told = {**self.schedules.for_tasks(), **self.choices.for_tasks(), **self.budgets.for_tasks()}
        told = json.loads(json.dumps(told))
        for reader in self._readers.values():
            reader.follow(told)
        blob = pack_values({"schedules": told})
        return [Piece(*place, CONTROL, "", "", 0, blob) for place in self.cluster.layout.places] if told else []

    def finish(self) -> dict[str, Result]:
        """Close the last instants, and return the results of all queries."""
        ended = pack_values({"ended": [each.table.casefold() for each in self._timed.values()]})
        assert self._cluster is not None
        places = self._cluster.layout.places
        self._run([*self._told_schedules(), *(Piece(*place, CONTROL, "", "", 0, ended) for place in places)])
        return {query: Result(_netted(self._pieces, query)) for query in self._plan.queries}

    def _run(self, batch: list[Piece]) -> None:
        assert self._cluster is not None
        made = self._cluster.run(batch)
        self.reports = reports_of(made)
        self.choices.learn(counted_by_joins(self.reports))
        self.budgets.learn(demands_of_joins(self.reports))
        self._complete = complete_after(self.reports)
        self._pieces += made


def reports_of(pieces: Iterable[Piece]) -> list[Report]:
    """Return what places report, among other pieces."""
    return [Report.of_values(unpack_values(piece.blob)) for piece in pieces if piece.kind == COUNTS]


def _cut(elements: Sequence[Element], rng: Random) -> int:
    """Return how many elements to read next: whole instants, so that none is late."""
    count = min(rng.choice((0, 1, 2, 5, 100)), len(elements))
    while 0 < count < len(elements) and elements[count][0] == elements[count - 1][0]:
        count += 1
    return count


def _columns(source: op.Source, part: Sequence[Element]) -> tuple[pa.Array, ...]:
    return tuple(to_column([row[at] for _, row, _ in part], column) for at, column in enumerate(source.columns))


def _packed(source: op.Source, elements: Sequence[Element]) -> bytes:
    columns = _columns(source, elements)
    return batch_bytes(pa.record_batch(list(columns), names=[f"c{at}" for at in range(len(columns))]))


def _read(reader: FeedReader, source: op.Source, part: Sequence[Element], number: int) -> list[Piece]:
    if not part:
        return []
    instants = np.array([instant for instant, _, _ in part], np.int64)
    signs = np.array([sign for _, _, sign in part], np.int64) if source.is_relation else None
    place = f"{number:08}"
    return [*reader.pack(_columns(source, part), instants, signs, place), *reader.time(instants, 0, place)]


def _netted(pieces: Sequence[Piece], query: str) -> dict[int, Counter[Any]]:
    bags: dict[int, Counter[Any]] = defaultdict(Counter)
    for piece in pieces:
        if piece.about == query:
            batch = unpack_changes(piece.blob, 0)
            rows = list(zip(*(from_column(column) for column in batch.columns), strict=True)) or [()] * len(batch)
            for instant, row, weight in zip(batch.start.tolist(), rows, batch.weights.tolist(), strict=True):
                bags[instant][row] += weight
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in bags.items()}
    return {instant: bag for instant, bag in netted.items() if bag}
