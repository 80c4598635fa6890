"""A network on a host: what is decided, computed, delivered and told, micro-batch by micro-batch.

The host here runs nothing: it hands over micro-batches whose results and reports are said by the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.catalog import Catalog, External
from cql.settings import OnBadRow
from runtime.columns.batch import ChangeBatch, Columns
from runtime.controllers.decision_log import DecisionLog
from runtime.controllers.idle_watch import IDLENESS
from runtime.delivery.delivery import Delivery
from runtime.delivery.targets import Target
from runtime.network.control_log import ControlLog
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions, Table
from runtime.network.directives import Directives, FeedOrder
from runtime.network.host import Computed, Host, MicroBatch
from runtime.network.network import Network
from runtime.network.record import NetworkRecord, changed
from runtime.network.reports import Report
from runtime.network.task import Task

STREAM = "CREATE STREAM s (k INT, t INT) TIMESTAMP BY t; CREATE STREAM r (k INT, t INT) TIMESTAMP BY t;"
JOIN = "SELECT s.k FROM s [Range 4], r [Range 4] WHERE s.k = r.k"
SHED = (
    "SELECT Rstream(COUNT(*) AS n) FROM s [Range 2 Seconds Slide 2 Seconds] "
    "WITH (shedding = 'window', max_gap = 9, max_latency = '4 seconds')"
)


class Rows(list[ChangeBatch]):
    """The changes of a query."""

    @property
    def rows(self) -> int:
        return sum(map(len, self))


def rows_of(*keys: int) -> Rows:
    return Rows([ChangeBatch((pa.array(keys, pa.int64()),), np.arange(len(keys)), None, None, len(keys))])


@dataclass
class Batch:
    """A micro-batch whose reports are said, one after the other; `told` is the last message that it brings."""

    id: int
    told: str
    results: Mapping[str, Rows] = field(default_factory=dict)
    reports: list[Report | Exception] = field(default_factory=lambda: [Report(place="single-0/0")])
    backlog: Sequence[float] = ()
    directives: list[Directives] = field(default_factory=list)
    accepted: list[Sequence[Report]] = field(default_factory=list)
    rejected: list[Exception] = field(default_factory=list)

    def compute(self, directives: Directives) -> Computed:
        self.directives.append(directives)
        report = self.reports[len(self.directives) - 1]
        if isinstance(report, Exception):
            raise report
        return Computed(self.results, [replace(report, told=self.told)])

    def accept(self, reports: Sequence[Report]) -> None:
        self.accepted.append(reports)

    def reject(self, error: Exception) -> None:
        self.rejected.append(error)


class SaidHost:
    """Runs an empty micro-batch whenever somebody waits; others are run by `does`."""

    processors = 1
    has_pace = False
    notes: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.control = ControlLog(folder / "control")
        self.task: Task | None = None
        self._run: Callable[[MicroBatch], None] | None = None
        self._next = 0

    def does(self, **said: Any) -> Batch:
        """Let the network run a micro-batch, and commit it."""
        assert self._run is not None, "the host has been started"
        batch = Batch(self._next, f"{len(list(self.control.folder.iterdir())) - 1:08}.txt", **said)
        self._run(batch)
        self._next += 1
        return batch

    def open(self, record: NetworkRecord, task: Task, definitions: Definitions) -> None:
        self.task = task

    def start(self, run: Callable[[MicroBatch], None]) -> None:
        self._run = run

    def check(self) -> bool:
        return self._run is not None

    def stop_after_this(self) -> None:
        self._is_last = True

    def stop(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._run = None

    def look(self) -> None:
        """There is nothing to look at."""

    def allow(self, times: float | None) -> None:
        """Nothing is read."""

    def process_available(self) -> None:
        self.does()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.does()

    def is_committed(self, batch_id: int) -> bool:
        return batch_id < self._next

    def read_table(self, table: Table, on_bad_row: OnBadRow) -> Iterable[Columns]:
        return ()

    def tell(self, message: Mapping[str, Any]) -> str:
        return self.control.tell(message)

    def last_message(self) -> Mapping[str, Any]:
        return self.control.last()

    def forget_before(self, name: str) -> None:
        """Messages are kept, for the tests to see."""


class Started:
    """A network of one query at work, on a checkpoint in a folder."""

    def __init__(self, folder: Path, query: str = JOIN, settings: str = "") -> None:
        catalog = Catalog()
        catalog.execute(f"{settings} {STREAM} REGISTER QUERY q AS {query};")
        (registered,) = catalog.queries.values()
        registered = registered.model_copy(update={"sink": External(format="memory", options={})})
        record = changed(NetworkRecord.load(folder), catalog, [registered], 1).record
        tree = registered.tree
        self.host = SaidHost(folder)
        self.delivery = Delivery(folder, [Target(registered, tree.schema, tree.is_stream, tree.time)])
        host: Host = self.host
        self.network = Network(host, folder, self.delivery, Counters("integer"))
        self.network.start(record, Definitions(catalog, [registered]))

    def end(self) -> None:
        self.network.abort()
        self.delivery.abort()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    network = Started(tmp_path)
    yield network
    network.end()


def test_a_micro_batch_is_computed_accepted_delivered_and_counted(started: Started) -> None:
    report = Report(place="single-0/0", taken={"s": 3}, newest=7)
    batch = started.host.does(results={"q": rows_of(1, 2)}, reports=[report])
    assert len(batch.directives) == len(batch.accepted) == 1 and not batch.rejected
    assert started.delivery.delivered("q") == 0
    assert [len(each) for each in started.delivery.results["q"].batches] == [2]
    progress = started.network.progress()
    assert progress.batch == 0 and progress.rows_out == {"q": 2} and progress.newest == 7


def test_tasks_are_told_how_far_sources_and_edges_were(started: Started) -> None:
    started.host.does(reports=[Report(place="single-0/0", order={"s": 9}, complete={"edge": 4})])
    batch = started.host.does()
    assert batch.directives == [Directives(complete={"edge": 4}, order={"s": FeedOrder(9)})]


def test_a_micro_batch_is_computed_again_if_tasks_have_overtaken_each_other(started: Started) -> None:
    started.host.does(reports=[Report(place="single-0/0", order={"s": 9})])
    overtaken = Report(place="single-0/0", overtaken={"s": {"001": 20}})
    right = Report(place="single-0/0", order={"s": 30})
    batch = started.host.does(reports=[overtaken, right])
    assert [each.order for each in batch.directives] == [{"s": FeedOrder(9)}, {"s": FeedOrder(9, {"001": 20})}]
    assert [[report.order for report in reports] for reports in batch.accepted] == [[{"s": 30}]]


def test_what_a_micro_batch_read_may_be_corrected_only_if_nothing_of_it_was_delivered(started: Started) -> None:
    error = ValueError("a bad row")
    with pytest.raises(ValueError, match="a bad row"):
        started.host.does(reports=[error])
    batch = Batch(0, "", reports=[error])
    with pytest.raises(ValueError, match="a bad row"):
        started.network.run(batch)
    assert batch.rejected == [error]
    started.host.does(results={"q": rows_of(1)})
    again = Batch(0, "", reports=[error])
    with pytest.raises(ValueError, match="a bad row"):
        started.network.run(again)
    assert not again.rejected


def test_a_network_stops_after_the_micro_batch_that_closes_its_instants(started: Started) -> None:
    started.network.close_instants(read_all=True)
    assert started.host.control.last() == {"ended": ["s", "r"]}
    assert not started.network.check()


def test_tables_that_had_ended_go_on_after_the_next_start(tmp_path: Path) -> None:
    first = Started(tmp_path)
    first.network.close_instants(read_all=False)
    first.end()
    second = Started(tmp_path)
    assert second.host.control.last() == {"resumed": ["s", "r"]}
    second.end()


def test_heartbeats_are_told_and_waited_for(started: Started) -> None:
    started.network.heartbeat("S", 12)
    assert started.host.control.last() == {"heartbeats": {"s": 12}}
    assert started.network.progress().batch == 0, "a micro-batch has brought it"


def test_what_is_shed_is_written_before_it_is_told_and_is_the_same_in_a_repetition(tmp_path: Path) -> None:
    first = Started(tmp_path, SHED)
    first.host.does(reports=[Report(place="single-0/0", taken={"s": 10}, first=0, newest=5)])
    assert first.network.shed("q", 0.5)
    batch = first.host.does()
    (decision,) = first.network.decisions()
    assert (decision.batch, decision.subject, decision.reason) == (1, "q", "by hand")
    assert decision.decision["fraction"] == 0.5
    first.end()
    second = Started(tmp_path, SHED)
    again = Batch(1, "")
    second.network.run(again)
    assert again.directives[0].schedules == batch.directives[0].schedules
    assert second.network.decisions() == [decision]
    second.end()


def test_idle_tables_are_written_down_before_they_are_told(started: Started, tmp_path: Path) -> None:
    started.host.does()
    started.network._tell_idle({"s": 11.0})
    assert started.host.control.last() == {"idle": ["s"]}
    (decision,) = DecisionLog(tmp_path / "decisions").newest()
    assert (decision.batch, decision.controller, decision.subject) == (1, IDLENESS, "s")
