"""Runs the queries of a catalog on a host, in parts: a network for each clock, and whatever else the host has.

Queries on integer time, on TIMESTAMP time and on no clock at all are networks of their own, because their instants
cannot be compared. A checkpoint holds a folder for each part; without one, a temporary folder does, for as long as the
run takes.
"""

from __future__ import annotations

import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, Self, TextIO, TypedDict, TypeVar

from cql.catalog import External, QueryDef
from cql.errors import Code, fail
from cql.query import MOST_KEPT
from planner import operators as op
from runtime.connectors import SourceRows
from runtime.connectors.keeping import KeptResults
from runtime.connectors.sinks import Output
from runtime.connectors.tables import Screen
from runtime.controllers.decision_log import Decision
from runtime.delivery.delivery import Delivery
from runtime.delivery.targets import Target, check_targets
from runtime.engine.statistics import Figures, of_parts
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions, Given
from runtime.network.inbox import Inbox
from runtime.network.network import Network
from runtime.network.record import NetworkChange, NetworkRecord, changed, refused, source_name
from runtime.reports.loss_warnings import LossWatch, Warn
from runtime.reports.losses import Loss, cannot_shed
from runtime.reports.progress import PART_NAMES, Progress

Args = ParamSpec("Args")
Found = TypeVar("Found")


def on_checkpoint(
    work: Callable[Concatenate[Run, Args], Found],
) -> Callable[Concatenate[Run, Args], Found]:
    """Let what goes wrong in some work be told as what it comes from, if the checkpoint has been removed."""

    @wraps(work)
    def told(run: Run, *given: Args.args, **named: Args.kwargs) -> Found:
        try:
            return work(run, *given, **named)
        except Exception:
            run.check_checkpoint()
            raise

    return told


@dataclass(frozen=True)
class NextNetwork:
    """What a run is to go on with: all definitions, and the parts that change."""

    definitions: Definitions
    parts: Mapping[str, tuple[NetworkChange, Definitions]]
    notes: Sequence[str]
    """What somebody who asks for the change should know before it happens."""


class RunOptions(TypedDict, total=False):
    """How a run is to be, on whichever host."""

    output: Output
    out: TextIO | None
    live: bool
    adopt: bool
    keep: int
    warn: Warn | None


class Job(Protocol):
    """A part of a run at work: a network, or whatever else a host runs of itself."""

    def start(self, record: NetworkRecord, definitions: Definitions) -> None:
        """Start from where the checkpoint is; results are delivered as they come."""

    def close_instants(self, read_all: bool) -> None:
        """Take what the sources have had for all that there is; with `read_all`, all of it is read first."""

    def process_available(self) -> None:
        """Process all that the sources have now."""

    def heartbeat(self, table: str, instant: int) -> None:
        """Say that nothing before an instant comes from a table any more."""

    def refresh(self, table: str) -> None:
        """Let a static relation be read again at the next start."""

    def stop(self) -> None:
        """Stop between two micro-batches."""

    def abort(self) -> None:
        """Stop at once."""

    def check(self) -> bool:
        """Tell whether it is running; raises if it has failed."""

    def reads(self, table: str) -> bool:
        """Tell whether it reads a table."""

    def progress(self) -> Progress:
        """Return how far it is."""

    def statistics(self) -> list[Figures]:
        """Return what is known of its parts."""

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out."""


class Run(ABC):
    """Some queries of a catalog at work; a context that stops them at its end.

    Rows of tables that have no source are given by the definitions. With `live`, the rows of those that have none there
    either are pushed, and results that go to no sink are kept in `results`; otherwise they are printed to `out`. Of
    those at most `keep` rows of changes are kept. `root` is the folder of the checkpoint, which goes with the run
    unless it `is_kept`. With `adopt`, a checkpoint of other queries is taken over. `warn` is told, while a run without
    an end goes on, of rows that are left out.

    Who derives from it says which host runs a network.
    """

    def __init__(
        self,
        definitions: Definitions,
        root: Path,
        *,
        is_kept: bool,
        output: Output = "table",
        out: TextIO | None = None,
        live: bool = False,
        adopt: bool = False,
        keep: int = MOST_KEPT,
        warn: Warn | None = None,
    ) -> None:
        self.failure: Exception | None = None
        """What has ended the run, if that is known to have failed."""
        self._keep = keep
        self._watch = None if warn is None else LossWatch(warn)
        self._pushing = Lock()
        self._is_kept = is_kept
        self._root = root
        self._output: Output = output
        self._screen = Screen(out or sys.stdout)
        self._live = live
        self._jobs: dict[str, Job] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._definitions = definitions
        try:
            self._prepare()
            self._planned = self._plan(self._definitions, adopt)
            self.notes = self._notes(self._planned)
            for part in self._planned:
                self._open(part)
        except BaseException:
            self.abort()
            raise

    # What a host says

    @property
    @abstractmethod
    def _buckets(self) -> int:
        """How many buckets a new network is spread over."""

    @abstractmethod
    def _prepare(self) -> None:
        """Get ready for the checkpoint; raises if it cannot be used."""

    @abstractmethod
    def _new_job(self, part: str, folder: Path, delivery: Delivery, counters: Counters) -> Job:
        """Return what runs a part."""

    @abstractmethod
    def _check_sources(self, definitions: Definitions, sources: Iterable[op.Source]) -> None:
        """Raise if one of some sources cannot be read."""

    def _divided(self, definitions: Definitions) -> dict[str, list[QueryDef]]:
        """Return the queries of each part: those of one clock, and none of a part that has none any more."""
        parts: dict[str, list[QueryDef]] = {part: [] for part in PART_NAMES.values() if self._record(part) is not None}
        for query in definitions.queries:
            parts.setdefault(PART_NAMES[query.tree.time], []).append(query)
        return parts

    # Building

    def _plan(self, definitions: Definitions, adopt: bool) -> dict[str, tuple[NetworkChange, Definitions]]:
        """Return what each part becomes, with its definitions; nothing has changed yet."""
        planned: dict[str, tuple[NetworkChange, Definitions]] = {}
        for part, queries in self._divided(definitions).items():
            before = self._record(part)
            change = changed(before, definitions.catalog, queries, self._buckets)
            if before is not None and not adopt and change.is_any:
                raise refused(self._root, before, change)
            given: dict[str, Given] = {**definitions.given, **self._inboxes(definitions, change.record)}
            planned[part] = change, replace(definitions, queries=queries, given=given)
        return planned

    def _notes(self, planned: Mapping[str, tuple[NetworkChange, Definitions]]) -> list[str]:
        """Return what is to be said of changes before they happen."""
        return [line for part, (change, _) in planned.items() for line in change.notes(self._record(part))]

    def _inboxes(self, definitions: Definitions, record: NetworkRecord) -> dict[str, Inbox]:
        """Return the inboxes of the timed tables that have neither a source nor a frame; given data is in them."""
        found: dict[str, Inbox] = {}
        for source in record.plan.sources:
            key, table = source.table.casefold(), definitions.table(source.table)
            is_given = key in definitions.data
            if key in found or source.time is None or table.source is not None or key in definitions.given:
                continue
            if is_given or self._live:
                found[key] = Inbox(self._root / "inbox" / source_name(table), table, is_open=not is_given)
                found[key].put(definitions.data.get(key, ()))
        return found

    def _record(self, part: str) -> NetworkRecord | None:
        return NetworkRecord.load(self._root / part)

    def _open(self, part: str) -> None:
        """Open the sinks of a part's queries."""
        definitions = self._planned[part][1]
        targets = [self._target(query, definitions) for query in definitions.queries]
        if part in self._deliveries:
            self._deliveries[part].change(targets)
        else:
            self._deliveries[part] = Delivery(self._root / part, targets, self._output, self._screen)
            counters = Counters(part, self._note_losses)
            self._jobs[part] = self._new_job(part, self._root / part, self._deliveries[part], counters)

    def _target(self, query: QueryDef, definitions: Definitions) -> Target:
        tree = query.tree
        if self._live and query.sink is None:
            query = query.model_copy(update={"sink": External(format="memory", options={})})
        place, callback = definitions.place("query", query.name), definitions.callbacks.get(query.name)
        return Target(
            query,
            tree.schema,
            tree.is_stream,
            tree.time,
            callback,
            place,
            self._keep,
        )

    # Running

    @on_checkpoint
    def start(self) -> None:
        """Start all jobs; results are delivered as they come."""
        for part in self._planned:
            self._start(part)

    def _start(self, part: str) -> None:
        change, definitions = self._planned[part]
        if definitions.queries:
            self._jobs[part].start(change.record, definitions)
        else:
            change.record.save(self._root / part)

    def begin(self) -> None:
        """Start, and read what has an end to that."""
        self.start()
        if not self.waits_for_rows:
            self.process_available()

    @property
    def waits_for_rows(self) -> bool:
        """Tell whether more can come than there is."""
        return self.is_endless

    def run_to_the_end(self) -> None:
        """Read all sources to their ends; if one of them has none, run until somebody interrupts."""
        if not self.is_endless:
            self.drain()
            return
        self.start()
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            raise

    def drain(self) -> None:
        """Read all sources to their ends, close the last instants and deliver everything."""
        self.start()
        self.close_instants()
        self.stop()

    @on_checkpoint
    def close_instants(self) -> None:
        """Take what the sources have for all that there is: the last instants are closed and delivered.

        Sources that have an end are read to it first.
        """
        for job in self._jobs.values():
            job.close_instants(read_all=not self.is_endless)

    @on_checkpoint
    def process_available(self) -> None:
        """Process what the sources have now; instants that are open stay open."""
        for job in self._jobs.values():
            job.process_available()

    def next_of(self, definitions: Definitions) -> NextNetwork:
        """Return what the network becomes with other definitions; raises if that cannot be run.

        Nothing has changed yet: `change` does it.
        """
        planned = self._plan(definitions, adopt=True)
        parts = {part: (change, own) for part, (change, own) in planned.items() if change.is_any}
        for change, own in parts.values():
            check_targets([self._target(query, own) for query in own.queries], self._output, self._screen)
            self._check_sources(own, change.record.plan.sources)
        return NextNetwork(definitions, parts, self._notes(parts))

    @on_checkpoint
    def change(self, to: NextNetwork) -> None:
        """Go on with another set of queries.

        Jobs whose queries stay the same are not touched. The others stop between two micro-batches and go on from
        their checkpoints: queries that stay miss nothing and repeat nothing.
        """
        self._definitions = to.definitions
        for part, planned in to.parts.items():
            if part in self._jobs:
                self._jobs[part].stop()
                self._deliveries[part].let_go([self._target(query, planned[1]) for query in planned[1].queries])
        for part, planned in to.parts.items():
            self._planned[part] = planned
            self._open(part)
            self._start(part)

    @on_checkpoint
    def refresh(self, table: str) -> None:
        """Read a static relation again: queries see the difference from the next instant on."""
        for part, job in self._jobs.items():
            if job.reads(table):
                job.stop()
                job.refresh(table)
                self._start(part)

    @on_checkpoint
    def push(self, table: str, rows: SourceRows) -> None:
        """Take rows of a table that has no source, and process them."""
        known = self._definitions.table(table)
        jobs = self._reading(table)
        if not jobs:
            hint = "register a query that reads it first"
            raise fail(Code.BAD_DEFINITION, f"no running query reads '{known.name}'", hint=hint)
        given = (own.given.get(table.casefold()) for _, own in self._planned.values())
        inbox = next((each for each in given if isinstance(each, Inbox) and each.is_open), None)
        if inbox is None:
            raise fail(Code.BAD_DEFINITION, f"'{known.name}' has rows of its own; nothing can be pushed into it")
        with self._pushing:
            inbox.push(rows)
        for job in jobs:
            job.process_available()

    @on_checkpoint
    def heartbeat(self, table: str, instant: int) -> None:
        """Say that nothing before an instant comes from a table any more."""
        for job in self._reading(table):
            job.heartbeat(table, instant)

    def check(self) -> bool:
        """Tell whether a job is running; raises if one has failed."""
        self.check_checkpoint()
        return bool(sum(job.check() for job in list(self._jobs.values())))

    def check_checkpoint(self) -> None:
        """Raise if somebody has removed the checkpoint."""
        if not all(delivery.has_checkpoint() for delivery in self._deliveries.values()):
            raise fail(
                Code.OTHER_CHECKPOINT,
                f"the checkpoint '{self._root}' has been removed while its queries run",
                hint="put it back from a copy, or start from a new one",
            )

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all jobs have ended, or for some time; tell whether they run on. Raises if one has failed."""
        end = None if seconds is None else time.monotonic() + seconds
        while self.check():
            if end is not None and time.monotonic() >= end:
                return True
            time.sleep(0.1)
        return False

    @on_checkpoint
    def stop(self) -> None:
        """Stop all jobs between two micro-batches."""
        for job in self._jobs.values():
            job.stop()

    @on_checkpoint
    def finish(self) -> None:
        """Stop, and complete the results."""
        self.stop()
        for delivery in self._deliveries.values():
            delivery.finish()
        self._clean_up()

    def abort(self) -> None:
        """Stop at once, and leave what has been delivered."""
        for job in self._jobs.values():
            job.abort()
        for delivery in self._deliveries.values():
            delivery.abort()
        self._clean_up()

    def _clean_up(self) -> None:
        if not self._is_kept:
            shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abort()

    # Telling

    @property
    def is_endless(self) -> bool:
        """Tell whether a table has no end, so that the queries run until they are stopped."""
        return any(
            definitions.is_endless(source.table)
            for change, definitions in self._planned.values()
            for source in change.record.plan.sources
        )

    def _note_losses(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Called with what was left out of tables so far; what a run with an end leaves out is told at its end."""
        if self._watch is not None and self.is_endless:
            self._watch.note(counts)

    @property
    def results(self) -> dict[str, KeptResults]:
        """The results that are kept in memory, by query."""
        return {name: kept for delivery in self._deliveries.values() for name, kept in delivery.results.items()}

    def has(self, query: str) -> bool:
        """Tell whether a query takes part."""
        return any(query == each.name for each in self._definitions.queries)

    def progress(self) -> dict[str, Progress]:
        """Return how far the jobs are, by part."""
        return {part: job.progress() for part, job in self._jobs.items() if self._planned[part][1].queries}

    def statistics(self, query: str | None = None) -> list[Figures]:
        """Return the figures of all parts of the network, or of those that serve one query."""
        found: list[Figures] = []
        for part, (change, _) in self._planned.items():
            plan = change.record.plan
            if query is None:
                found += self._jobs[part].statistics()
            elif query.casefold() in map(str.casefold, plan.queries):
                ids = plan.part(query).ids
                found += of_parts(self._jobs[part].statistics(), ids)
        return found

    def shed(self, query: str, fraction: float) -> None:
        """Lose a share of what a query can lose, from the next unit on of which nothing has been read."""
        if not self.has(query):
            raise fail(Code.BAD_DEFINITION, f"the query '{query}' does not run", hint="start() runs all queries")
        if not any(isinstance(job, Network) and job.shed(query, fraction) for job in self._jobs.values()):
            raise cannot_shed(query)

    def shedding(self) -> list[Loss]:
        """Return what the queries that shed have lost."""
        return [loss for job in self._jobs.values() if isinstance(job, Network) for loss in job.shedding()]

    def decisions(self) -> list[Decision]:
        """Return what was decided last, oldest first."""
        return [decision for job in self._jobs.values() if isinstance(job, Network) for decision in job.decisions()]

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out."""
        return [line for job in self._jobs.values() for line in job.losses()]

    def _reading(self, table: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.reads(table)]
