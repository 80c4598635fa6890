"""Runs plans as fragments and buckets without Spark: what a cluster would do, in one process.

Micro-batches are cut at random; pieces go through the stages as they would through Spark's stateful operators; workers
are thrown away at random and made again from what they saved, through bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from planner import operators as op
from planner.plan import Plan
from runtime.fragments.layout import Layout, level_of
from runtime.fragments.packing import (
    CONTROL,
    RESULTS,
    Piece,
    batch_bytes,
    bytes_batch,
    pack_values,
    unpack_changes,
)
from runtime.fragments.reading import TableReader
from runtime.fragments.state import load_worker, save_worker
from runtime.fragments.worker import Worker
from tests.definition.evaluator import Element, Result
from tests.engine_runs import from_column, to_column

Place = tuple[str, int]


class Cluster:
    """Workers of all buckets, and the chunks and positions that they saved."""

    def __init__(self, layout: Layout, functions: Mapping[str, Any], static: Mapping[str, Any], rng: Random) -> None:
        self.layout = layout
        self._made = (functions, static)
        self._rng = rng
        self._workers: dict[Place, Worker] = {}
        self._chunks: dict[Place, dict[str, bytes]] = defaultdict(dict)
        self._positions: dict[Place, dict[str, Any]] = {}

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
        return list(pieces)

    def _process(self, place: Place, pieces: list[Piece]) -> list[Piece]:
        worker = self._workers.get(place) or self._made_worker(place)
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
        worker = Worker(self.layout, *place, *self._made, check=True)
        if place in self._positions:
            chunks: dict[str, pa.RecordBatch] = {n: bytes_batch(b) for n, b in self._chunks[place].items()}
            load_worker(worker, chunks, self._positions[place])
        return worker


def run_fragments(
    plan: Plan,
    data: Mapping[str, Sequence[Element]],
    rng: Random,
    buckets: int,
    functions: Mapping[str, Any] | None = None,
) -> dict[str, Result]:
    """Return what a plan's queries yield when it runs in buckets."""
    layout = Layout(plan, buckets)
    sources = [each for each in plan.operators if isinstance(each, op.Source)]
    readers = {each.table: TableReader(layout, each.table, functions or {}) for each in sources}
    elements = {each.table: sorted(data[each.table], key=lambda element: element[0]) for each in sources}
    static = {each.id: {1: _packed(each, elements[each.table])} for each in sources if each.time is None}
    timed = list({each.table: each for each in sources if each.time is not None}.values())
    cluster = Cluster(layout, functions or {}, static, rng)
    pieces = []
    while any(elements[each.table] for each in timed):
        batch: list[Piece] = []
        for source in timed:
            count = _cut(elements[source.table], rng)
            part, elements[source.table] = elements[source.table][:count], elements[source.table][count:]
            batch += _read(readers[source.table], source, part, len(pieces))
        pieces += cluster.run(batch)
    ended = pack_values({"ended": [each.table.casefold() for each in timed]})
    pieces += cluster.run([Piece(*place, CONTROL, "", "", 0, ended) for place in layout.places])
    return {query: Result(_netted(pieces, query)) for query in plan.queries}


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


def _read(reader: TableReader, source: op.Source, part: Sequence[Element], number: int) -> list[Piece]:
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
