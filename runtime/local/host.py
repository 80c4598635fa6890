"""The local host: runs the micro-batches of one network in this process, from a checkpoint or from nothing.

A micro-batch is what the sources have next, of the one first that is furthest behind in time. It is planned before it
runs (`plan_log.py`), so that after a crash the same micro-batches run again, under the same ids. Every now and then the
host commits: state and positions are written (`state_files.py`), and the plans before that are forgotten.

| who runs micro-batches | when |
|---|---|
| who waits in `process_available` or `wait_for` | for as long as they wait |
| a thread of the host | from the start on, if a source has no end |
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cql.errors import Code, CqlError
from cql.settings import OnBadRow
from planner import operators as op
from runtime.columns.batch import Columns
from runtime.connectors import open_source
from runtime.connectors.connector import Arrival, Position, ReadSettings, RowReader, RowSource
from runtime.connectors.sources import source_of
from runtime.local.gathered import Gathered
from runtime.local.plan_log import Plan, PlanLog
from runtime.local.state_files import Manifest, StateFiles, unusable
from runtime.network.definitions import Definitions, Table
from runtime.network.directives import Directives
from runtime.network.host import Computed, MicroBatch
from runtime.network.lateness import Lateness
from runtime.network.messages import CONTROL, COUNTS, RESULTS, WITHIN_A_PROCESS, Piece
from runtime.network.record import NetworkRecord, feeds_of, source_name
from runtime.network.reports import Report
from runtime.network.source_stage import FeedReader
from runtime.network.task import Task
from runtime.network.worker import Worker
from runtime.network.worker_state import load_worker, save_worker
from runtime.user_errors import MemoryExceeded, RemovalFailed, UserFunctionFailed, explained, placed, too_much_memory

Place = tuple[str, int]

MOST_ROWS = 1 << 16
"""From how many rows on a micro-batch takes no more."""

_REST = 0.005
"""For how many seconds the host rests when there is nothing to do."""

CORRECTABLE = (Code.BAD_DATA, Code.BAD_FILE, Code.NO_FILE, Code.FUNCTION_FAILED, Code.CHANGED_SOURCE)
"""What a user may do away with by correcting a source."""


class FeedArrival(NamedTuple):
    """What a micro-batch has next of a feed."""

    feed: str
    arrival: Arrival


@dataclass
class OpenFeed:
    """A source that is read for a feed, and how far it is."""

    source: RowSource
    reader: RowReader
    stage: FeedReader
    position: Position
    newest: int | None
    """The latest instant so far."""

    @property
    def bound(self) -> int:
        """The instant before which rows that are read next are late."""
        return Lateness(self.stage.delay, self.newest).bound


@dataclass
class LocalBatch:
    """A micro-batch of a local host."""

    id: int
    host: LocalHost
    arrivals: Sequence[FeedArrival]
    messages: Mapping[str, Mapping[str, Any]]
    backlog: Sequence[float] = ()

    def compute(self, directives: Directives) -> Computed:
        """Read, and run the workers of all places; feeds are read in their order, so that is done once."""
        return self.host.computed(self, directives)

    def accept(self, reports: Sequence[Report]) -> None:
        """Nothing is left to do with them."""

    def reject(self, error: Exception) -> None:
        """Let what was read be corrected, if the run ends for what is in it."""
        if isinstance(error, CqlError) and any(each.code in CORRECTABLE for each in error.diagnostics):
            self.host.reject(dict.fromkeys(feed for feed, _ in self.arrivals))


class LocalHost:
    """Runs a network in this process; `folder` keeps its state, None: that is gone with the process.

    It commits at the first chance after every `commit_seconds`; None: only when it stops.
    """

    processors = 1
    has_pace = False

    def __init__(self, folder: Path | None, commit_seconds: float | None = None) -> None:
        self._folder = folder
        self._commit_seconds = commit_seconds
        self._files: StateFiles | None = None
        self._plans: PlanLog | None = None
        self._manifest = Manifest()
        self._working = threading.RLock()
        self._news = threading.Condition()
        """Wakes who rests because there was nothing to do."""
        self._told: list[tuple[str, Mapping[str, Any]]] = []
        """Control messages for the next micro-batch."""
        self._workers: dict[Place, Worker] = {}
        self._feeds: dict[str, OpenFeed] = {}
        self._failure: Exception | None = None
        self._is_running = self._is_last = False
        self._thread: threading.Thread | None = None
        self._batch = -1
        """The last micro-batch."""
        self._committed_at = 0.0
        self.notes: Sequence[str] = ()

    # Life

    def open(self, record: NetworkRecord, task: Task, definitions: Definitions) -> None:
        """Get ready for a network: raises if a source cannot be opened."""
        self._task = task
        planned: list[Plan] = []
        if self._folder is not None:
            self._files = StateFiles(self._folder)
            self._manifest = self._files.manifest
            self._plans = PlanLog(self._folder)
            planned = self._plans.plans(self._manifest.batch)
        self._batch = self._manifest.batch
        self._workers = {place: self._restored(place) for place in task.layout.places}
        self._feeds = {}
        given_out = {feed: position for plan in planned for feed, position in plan.reads}
        for feed, (source, *_) in feeds_of(record).items():
            if source.time is not None:
                with placed(definitions.place("table", source.table)):
                    self._feeds[feed] = self._opened(feed, source, definitions, given_out.get(feed))
        self.notes = [note for feed in self._feeds.values() for note in feed.reader.notes]
        self._repeated = [self._again(plan) for plan in planned]

    def _restored(self, place: Place) -> Worker:
        """Return the worker of a place, where the checkpoint has it."""
        task, name = self._task, _name(place)
        worker = Worker(
            task.layout,
            *place,
            task.functions,
            task.static,
            policy=task.policy,
            max_bytes=task.max_bytes,
            wire=WITHIN_A_PROCESS,
        )
        if self._files is not None and name in self._manifest.positions:
            unused = load_worker(worker, self._files.chunks(name), self._manifest.positions[name])
            self._files.forget(name, unused)
        return worker

    def _opened(self, feed: str, source: op.Source, definitions: Definitions, given_out: Position | None) -> OpenFeed:
        table, settings = definitions.table(source.table), definitions.catalog.settings
        folder = None if self._folder is None else self._folder / "sources" / source_name(table, source.epoch)
        rows = source_of(table, ReadSettings(settings.on_bad_row, settings.files == "follow", folder))
        position = self._manifest.sources.get(feed) or rows.start()
        stage = FeedReader(self._task.layout, feed, self._task.functions, WITHIN_A_PROCESS)
        return OpenFeed(rows, rows.read(position, given_out), stage, position, self._manifest.newest.get(feed))

    def _again(self, plan: Plan) -> LocalBatch:
        """Return a micro-batch as it was planned; raises if a source does not give the same rows."""
        arrivals = []
        for feed, position in plan.reads:
            arrival = self._feeds[feed].reader.poll() if feed in self._feeds else None
            if arrival is None or arrival.position != position:
                assert self._folder is not None, "plans are kept in a folder"
                raise unusable(self._folder, f"the source of {feed} does not give the rows again that it gave before")
            arrivals.append(FeedArrival(feed, arrival))
        for name, message in plan.messages.items():
            self._manifest.messages, self._manifest.last_message = int(name), dict(message)
        return LocalBatch(plan.id, self, arrivals, plan.messages)

    def start(self, run: Callable[[MicroBatch], None]) -> None:
        """Run micro-batches from where the checkpoint is."""
        self._run = run
        self._is_running, self._is_last, self._failure = True, False, None
        self._committed_at = time.monotonic()
        for batch in self._repeated:
            self._run_batch(batch)
        if not all(feed.source.is_bounded for feed in self._feeds.values()):
            self._thread = threading.Thread(target=self._drive, name="cql host", daemon=True)
            self._thread.start()

    def _drive(self) -> None:
        """Run micro-batches as long as the host runs; who asks is told what has failed."""
        while self._is_running:
            try:
                if not self._advance():
                    self._rest()
            except Exception as error:
                self._failure, self._is_running = error, False

    def _rest(self) -> None:
        with self._news:
            if not self._told:
                self._news.wait(_REST)

    def check(self) -> bool:
        """Tell whether it is running; raises if it has failed."""
        if self._failure is not None:
            raise self._failure
        return self._is_running

    def stop_after_this(self) -> None:
        """Let the micro-batch that is running be the last."""
        self._is_last = True

    def stop(self) -> None:
        """Stop between two micro-batches, and commit."""
        with self._working:
            if self._is_running:
                self._commit()
        self.abort()

    def abort(self) -> None:
        """Stop at once; what is not committed is done again after the next start."""
        self._is_running = False
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for feed in self._feeds.values():
            feed.reader.close()
        if self._plans is not None:
            self._plans.close()
            self._plans = None

    # Working

    def look(self) -> None:
        """Nothing is to be done: sources are asked what they have for each micro-batch."""

    def allow(self, times: float | None) -> None:
        """Nothing is to be done: a micro-batch has little as it is."""

    def process_available(self) -> None:
        """Process everything that the sources have now."""
        while self.check() and self._advance():
            pass

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Run until something holds, or the host has stopped."""
        while self.check() and not condition():
            if not self._advance():
                self._rest()

    def is_committed(self, batch_id: int) -> bool:
        """Tell whether the checkpoint has a micro-batch behind it."""
        return batch_id <= self._manifest.batch

    def read_table(self, table: Table, on_bad_row: OnBadRow) -> Iterable[Columns]:
        """Return the rows of a static relation, read now."""
        return (rows.columns for rows in open_source(table, on_bad_row))

    # Control messages

    def tell(self, message: Mapping[str, Any]) -> str:
        """Give a control message to all places, with the next micro-batch, and return its name."""
        with self._news:
            self._manifest.messages += 1
            self._manifest.last_message = dict(message)
            name = f"{self._manifest.messages:08}"
            self._told.append((name, message))
            self._news.notify_all()
        return name

    def last_message(self) -> Mapping[str, Any]:
        """Return the message that was given last."""
        return self._manifest.last_message

    def forget_before(self, name: str) -> None:
        """Nothing is to be done: messages are kept with the plans of micro-batches."""

    # Micro-batches

    def _advance(self) -> bool:
        """Run a micro-batch if there is something to do, and commit if it is time to; tell whether there was."""
        with self._working:
            if not self._is_running:
                return False
            batch = self._next_batch()
            if batch is not None:
                self._run_batch(batch)
            if self._is_last or self._is_time_to_commit():
                self._commit()
            self._is_running = not self._is_last
            return batch is not None

    def _next_batch(self) -> LocalBatch | None:
        """Return the next micro-batch, planned; None if there is nothing to do."""
        with self._news:
            messages, self._told = dict(self._told), []
        arrivals = self._arrivals()
        if not arrivals and not messages and self._batch >= 0:
            return None
        batch = LocalBatch(self._batch + 1, self, arrivals, messages)
        if self._plans is not None:
            self._plans.add(Plan(batch.id, [(feed, each.position) for feed, each in arrivals], messages))
        return batch

    def _arrivals(self) -> list[FeedArrival]:
        """Return what the feeds have next, of those first that are furthest behind in time."""
        found: list[FeedArrival] = []
        rows = 0
        for name, feed in sorted(self._feeds.items(), key=lambda item: item[1].bound):
            while rows < MOST_ROWS and not feed.reader.has_ended and (arrival := feed.reader.poll()) is not None:
                found.append(FeedArrival(name, arrival))
                rows += len(arrival.rows)
        return found

    def _run_batch(self, batch: LocalBatch) -> None:
        try:
            self._run(batch)
        except BaseException:
            self._is_running = False
            raise
        self._batch = batch.id

    def computed(self, batch: LocalBatch, directives: Directives) -> Computed:
        """Run the workers of all places on a micro-batch."""
        waiting = self._pieces(batch, directives)
        results: dict[str, Gathered] = defaultdict(Gathered)
        reports: list[Report] = []
        for place, worker in self._workers.items():
            with self._explaining(worker):
                for piece in worker.run(waiting.pop(place, [])):
                    if piece.kind == COUNTS:
                        reports.append(Report.of_values(piece.blob))
                    elif piece.fragment == RESULTS:
                        results[piece.about].add(piece.blob)
                    else:
                        waiting[piece.fragment, piece.bucket].append(piece)
        assert not waiting, "pieces go to places of later levels"
        return Computed(results, reports)

    def _pieces(self, batch: LocalBatch, directives: Directives) -> dict[Place, list[Piece]]:
        """Return the pieces of a micro-batch, by the place that they are for."""
        messages = dict(batch.messages)
        if directives.schedules:
            messages[""] = {"schedules": directives.schedules}
        found: dict[Place, list[Piece]] = defaultdict(list)
        for place in self._task.layout.places:
            found[place] = [Piece(*place, CONTROL, "", name, 0, message) for name, message in messages.items()]
        for number, (feed, arrival) in enumerate(batch.arrivals):
            for piece in self._packed(self._feeds[feed], arrival, f"{number:08}", directives):
                found[piece.fragment, piece.bucket].append(piece)
        return found

    def _packed(self, feed: OpenFeed, arrival: Arrival, place: str, directives: Directives) -> Iterator[Piece]:
        """Yield an arrival as pieces, without the rows that are late."""
        rows, judge = arrival.rows, Lateness(feed.stage.delay, feed.newest)
        on_time = judge.on_time("", rows.instants)
        late = len(rows) - int(on_time.sum())
        kept = rows.chosen(np.flatnonzero(on_time)) if late else rows
        feed.newest, feed.position = judge.newest, arrival.position
        feed.stage.follow(directives.schedules)
        try:
            yield from feed.stage.pack(kept.columns, kept.instants, kept.signs, place)
        except UserFunctionFailed as failure:
            raise explained(failure, self._task.callers, self._task.layout.plan, self._task.places) from failure.cause
        yield from feed.stage.time(kept.instants, arrival.skipped, place, late)

    @contextmanager
    def _explaining(self, worker: Worker) -> Iterator[None]:
        """Turn what goes wrong in a worker into errors for the user."""
        task, plan = self._task, worker.executor.plan
        try:
            yield
        except UserFunctionFailed as failure:
            raise explained(failure, task.callers, plan, task.places) from failure.cause
        except RemovalFailed as failure:
            raise failure.placed(task.places) from None
        except MemoryExceeded as failure:
            raise too_much_memory(failure, plan, task.places) from None

    def reject(self, feeds: Iterable[str]) -> None:
        """Let the sources of some feeds be corrected before the next run."""
        for feed in feeds:
            self._feeds[feed].source.reject()

    # The checkpoint

    def _is_time_to_commit(self) -> bool:
        if self._commit_seconds is None or self._batch == self._manifest.batch:
            return False
        return time.monotonic() >= self._committed_at + self._commit_seconds

    def _commit(self) -> None:
        """Write the state, and how far it is."""
        manifest = self._manifest
        if self._batch > manifest.batch:
            manifest.batch = self._batch
            manifest.sources = {name: feed.position for name, feed in self._feeds.items()}
            manifest.newest = {name: feed.newest for name, feed in self._feeds.items() if feed.newest is not None}
            if self._files is not None and self._plans is not None:
                self._plans.sync()
                self._files.commit({_name(place): save_worker(worker) for place, worker in self._workers.items()})
                self._plans.clear()
            for feed in self._feeds.values():
                feed.source.settle(feed.position)
        self._committed_at = time.monotonic()


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"
