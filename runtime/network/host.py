"""What a network asks of its host, which reads sources, runs workers on their pieces, and keeps their state.

A host goes on from a checkpoint, one micro-batch after another. It hands each to the network, whose `run` lets it be
computed and delivers the results; when `run` returns, the host commits. A micro-batch that is not committed is handed
over again after the next start, under the same id and with the same rows and control messages.

A host may run micro-batches on a thread of its own, or only while somebody waits: in `process_available`, `wait_for`
and `check`. `run` is never called by two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cql.settings import OnBadRow
from runtime.columns.batch import ChangeBatch, Columns
from runtime.network.definitions import Definitions, Table
from runtime.network.directives import Directives
from runtime.network.record import NetworkRecord
from runtime.network.reports import Report
from runtime.network.task import Task


class Results(Protocol):
    """The changes of one query in a micro-batch, in the order of time."""

    @property
    def rows(self) -> int:
        """How many rows they have."""

    def __iter__(self) -> Iterator[ChangeBatch]: ...


class Computed(NamedTuple):
    """What a micro-batch has come to: results of the queries that have any, by name, and a report of each place."""

    results: Mapping[str, Results]
    reports: Sequence[Report]


class MicroBatch(Protocol):
    """A micro-batch that is about to run. Ids grow, and a repetition has the same one."""

    @property
    def id(self) -> int:
        """Its number in the checkpoint."""

    @property
    def backlog(self) -> Sequence[float]:
        """What each source has for it, in whatever unit, before anything is read; empty if nobody knows."""

    def compute(self, directives: Directives) -> Computed:
        """Read, and run the workers of all places.

        It may be called again, with other directives, if tasks that read a source side by side have overtaken each
        other: places then start from the state before the micro-batch.
        """

    def accept(self, reports: Sequence[Report]) -> None:
        """Called once with the reports that count, before the results are delivered."""

    def reject(self, error: Exception) -> None:
        """Called if it cannot be computed and nothing of it was delivered: what it read may be corrected."""


class Host(Protocol):
    """Runs the micro-batches of one network, from a checkpoint."""

    @property
    def processors(self) -> int:
        """How many tasks can run at once."""

    @property
    def has_pace(self) -> bool:
        """Whether `allow` limits what a micro-batch reads."""

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of files that are not what they were."""

    # Life

    def open(self, record: NetworkRecord, task: Task, definitions: Definitions) -> None:
        """Get ready for a network: raises if a source cannot be opened. Nothing of the checkpoint has changed then."""

    def start(self, run: Callable[[MicroBatch], None]) -> None:
        """Run micro-batches from where the checkpoint is; returns at once."""

    def check(self) -> bool:
        """Tell whether it is running; raises if it has failed, or a source has disappeared."""

    def stop_after_this(self) -> None:
        """Let the micro-batch that is running be the last; called by `run`."""

    def stop(self) -> None:
        """Stop between two micro-batches: the one that is running is completed."""

    def abort(self) -> None:
        """Stop at once; the micro-batch that is running is done again after the next start. Called once or more."""

    # Working

    def look(self) -> None:
        """Find out what sources have that wait to be looked at, as folders of files do."""

    def allow(self, times: float | None) -> None:
        """Let the next micro-batch have some times as much as the last one, of each source; None: all there is."""

    def process_available(self) -> None:
        """Process everything that the sources have now; only for sources that do not always have more."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Run until something holds, or the host has stopped; raises if it fails before."""

    def is_committed(self, batch_id: int) -> bool:
        """Tell whether the checkpoint has a micro-batch behind it, of the last few."""

    def read_table(self, table: Table, on_bad_row: OnBadRow) -> Iterable[Columns]:
        """Return the rows of a static relation, read now."""

    # Control messages

    def tell(self, message: Mapping[str, Any]) -> str:
        """Give a control message to all places, with the next micro-batch, and return its name; later ones have
        greater.

        `runtime/network/worker.py` lists the messages. A repeated micro-batch has the messages that it had before.
        """

    def last_message(self) -> Mapping[str, Any]:
        """Return the message that was given last, before this start or after it; an empty one if there is none."""

    def forget_before(self, name: str) -> None:
        """Let go of messages before one: they have taken effect for good. The last one stays."""
