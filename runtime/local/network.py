"""A network on the local host: the workers of a plan in this process, and what its sources have read.

A micro-batch is what has been read and told since the last one. Workers get it as pieces, those of a level after those
of the levels before it, and pieces carry columns as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from cql.catalog import Catalog, StreamDef
from planner.plan import Plan
from runtime.columns.batch import ChangeBatch, Columns
from runtime.connectors import SourceRows
from runtime.controllers.schedules import DecidedSchedules
from runtime.network.lateness import Lateness
from runtime.network.layout import NetworkLayout
from runtime.network.messages import CONTROL, COUNTS, RESULTS, TIME, WITHIN_A_PROCESS, Piece
from runtime.network.reports import Report, counted_by_joins, demands_of_joins
from runtime.network.source_stage import FeedReader
from runtime.network.worker import Worker
from shedding.budgets import Budgets
from shedding.insert_drops import choices_of_query, units_of_query
from shedding.join_deciders import Choices

Place = tuple[str, int]


class LocalNetwork:
    """The queries on one clock."""

    def __init__(self, plan: Plan, catalog: Catalog) -> None:
        self.plan = plan
        settings = catalog.settings
        tables = ((source, catalog.table(source.table)) for source in plan.sources)
        delays = {source.id: table.delay for source, table in tables if isinstance(table, StreamDef)}
        self.layout = NetworkLayout(plan, 1, delays, settings.end == "close", settings.on_bad_row)
        coded = (*catalog.functions.values(), *catalog.aggregates.values())
        functions = {each.name: each.code for each in coded}
        self._static: dict[str, dict[int, pa.RecordBatch]] = {}
        self._workers = {
            place: Worker(
                self.layout,
                *place,
                functions,
                self._static,
                policy=settings.scheduler,
                max_bytes=settings.memory_bytes,
                wire=WITHIN_A_PROCESS,
            )
            for place in self.layout.places
        }
        self._readers: dict[str, list[FeedReader]] = defaultdict(list)
        """How the rows of each table, by its name in lower case, are read by those that they feed."""
        for feed, table in {source.feed: source.table for source in plan.sources if source.time is not None}.items():
            self._readers[table.casefold()].append(FeedReader(self.layout, feed, functions, WITHIN_A_PROCESS))
        self._judges = {table: Lateness(max(each.delay for each in own)) for table, own in self._readers.items()}
        self._numbers = count()
        self._read: list[Piece] = []
        self._told: list[dict[str, Any]] = []
        self.reports: list[Report] = []
        """What the workers have said of the last micro-batch."""
        self.schedules = DecidedSchedules(plan)
        self.choices = Choices(plan)
        self._asked: dict[str, float] = {}
        """The shares of units that schedules are to lose, as somebody has asked."""
        self._budgets = Budgets(plan, 1)

    # Input

    def reads(self, table: str) -> bool:
        """Tell whether the rows of a table are read here."""
        return table.casefold() in self._readers or any(
            table.casefold() == source.table.casefold() for source in self.plan.sources
        )

    def until(self, table: str) -> int:
        """The instant before which no row of a table that is read next is on time."""
        return self._judges[table].bound

    def put_static(self, table: str, columns: Columns, skipped: int) -> None:
        """Take the contents of a static relation, before anything else is read."""
        contents = pa.record_batch(list(columns), names=[f"c{at}" for at in range(len(columns))])
        values = {"count": contents.num_rows, "skipped": skipped, "late": 0}
        for source in self.plan.sources:
            if source.time is None and source.table.casefold() == table:
                self._static[source.id] = {1: contents}
        for feed in dict.fromkeys(source.feed for source in self.plan.sources if source.table.casefold() == table):
            blob = WITHIN_A_PROCESS.time(values, np.empty(0, np.int64))
            self._read += [Piece(*place, TIME, feed, "", 0, blob) for place in self.layout.places]

    def read(self, table: str, rows: SourceRows, skipped: int) -> None:
        """Take the next rows of a table, of which some more were left out."""
        on_time = self._judges[table].on_time("", rows.instants)
        late = len(rows) - int(on_time.sum())
        if late:
            rows = rows.chosen(np.flatnonzero(on_time))
        place = f"{next(self._numbers):012}"
        for reader in self._readers[table]:
            self._read += reader.pack(rows.columns, rows.instants, rows.signs, place)
            self._read += reader.time(rows.instants, skipped, place, late)

    @property
    def has_work(self) -> bool:
        """Whether something was read or told since the last micro-batch, or there is nothing that could be."""
        return bool(self._read or self._told or not self._readers)

    def tell(self, **message: Any) -> None:
        """Give all workers a control message with the next micro-batch."""
        self._told.append(message)

    # Work

    def run(self) -> Iterator[tuple[str, ChangeBatch]]:
        """Run a micro-batch, and yield results of queries as they come, each query's in the order of time."""
        waiting = self._taken()
        self.reports = []
        for place, worker in self._workers.items():
            for piece in worker.run(waiting.pop(place, [])):
                if piece.kind == COUNTS:
                    self.reports.append(Report.of_values(piece.blob))
                elif piece.fragment == RESULTS:
                    yield piece.about, piece.blob
                else:
                    waiting[piece.fragment, piece.bucket].append(piece)
        assert not waiting, "pieces go to later levels"
        self._learn()

    def _taken(self) -> dict[Place, list[Piece]]:
        """The pieces of the micro-batch that begins, by the place that they are for."""
        messages = [*self._told, {"schedules": self._decided()}]
        pieces = self._read
        for number, message in enumerate(messages):
            pieces += [Piece(*place, CONTROL, "", f"{number:04}", 0, message) for place in self.layout.places]
        self._read, self._told = [], []
        found: dict[Place, list[Piece]] = defaultdict(list)
        for piece in pieces:
            found[piece.fragment, piece.bucket].append(piece)
        return found

    # Shedding

    def shed(self, query: str, fraction: float) -> bool:
        """Lose a share of what a query can lose, from the next unit on; tell whether it can lose anything."""
        units, chosen = units_of_query(self.plan, query), choices_of_query(self.plan, query)
        for name in chosen:
            self.choices.decide(name, fraction)
        if units is not None and not chosen:
            self._asked[units.schedule] = fraction
            self.schedules.decide(units.schedule, fraction)
        self._follow_schedules()
        return units is not None or bool(chosen)

    def _decided(self) -> dict[str, Any]:
        """What is lost, for all workers."""
        return {**self.schedules.for_tasks(), **self.choices.for_tasks(), **self._budgets.for_tasks()}

    def _learn(self) -> None:
        """Take in what the workers have counted, for the next micro-batch."""
        self.choices.learn(counted_by_joins(self.reports))
        self.choices.renew()
        self._budgets.learn(demands_of_joins(self.reports))
        newest = max((each.newest for each in self.reports if each.newest is not None), default=None)
        if newest is not None:
            self.schedules.read_until(newest, None)
            for schedule, fraction in self._asked.items():
                self.schedules.decide(schedule, fraction)
        self._follow_schedules()

    def _follow_schedules(self) -> None:
        """Let those who read know what is lost."""
        decided = self._decided()
        if decided:
            for reader in (each for own in self._readers.values() for each in own):
                reader.follow(decided)
