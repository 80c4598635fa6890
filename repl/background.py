"""Queries that run while statements are typed: a thread that drives them, and what it has to tell.

The thread owns the run: it starts it, reads sources to their ends or waits, and finishes or gives up. Others ask it to
stop, look at its samples and latest results, and change its queries while it only waits. Nothing here prints.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cql.bound import Rel
from cql.catalog import QueryDef
from cql.visible import visible
from repl.samples import SampleHistory, sample

if TYPE_CHECKING:
    from runtime.columns.batch import ChangeBatch
    from runtime.connectors.keeping import KeptResults
    from runtime.engine.statistics import Figures
    from runtime.local.run import LocalRun
    from runtime.spark.run import SparkRun

LATEST = 200
"""How many changes of each query are remembered."""

_SAMPLES = 0.5
"""How many seconds lie between two samples."""

_WAITS = 0.1
"""How often, in seconds, a run without an end is looked after."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown:
    """A change as it is shown: its instant, + or -, and its values."""

    instant: str
    mark: str
    values: tuple[str, ...]


class Latest:
    """The latest changes of one query, as texts, and how many there have been."""

    def __init__(self, tree: Rel) -> None:
        self._time = tree.time
        self.names = tuple(visible(field.name) for field in tree.schema)
        self.to_the_right = tuple(field.type.is_numeric for field in tree.schema)
        self.changes: deque[Shown] = deque(maxlen=LATEST)
        self.count = 0
        self._position = 0

    def follow(self, kept: KeptResults) -> None:
        """Remember the last of what is kept that is new."""
        batches, self._position = kept.since(max(self._position, kept.kept_from))
        self._add(batches)

    def _add(self, batches: Iterable[ChangeBatch]) -> None:
        from runtime.columns.texts import instant_texts, marks
        from runtime.connectors.results import repeated
        from runtime.connectors.tables import shown_texts

        for batch in batches:
            if not len(batch):
                continue
            whole = repeated(batch)
            self.count += len(whole)
            last = whole.slice(max(0, len(whole) - LATEST), len(whole))
            cells = [instant_texts(last.start, self._time).fill_null(""), marks(last.weights)]
            cells += [shown_texts(column) for column in last.columns]
            for instant, mark, *values in zip(*(column.to_pylist() for column in cells), strict=True):
                self.changes.append(Shown(instant, mark, tuple(values)))


class Background:
    """Queries at work in a thread of their own; `doing` says in words what it is at."""

    def __init__(self, queries: Sequence[QueryDef], when_ended: Callable[[], None]) -> None:
        self.queries = {query.name: query for query in queries}
        self.latest = {name: Latest(query.tree) for name, query in self.queries.items() if query.sink is None}
        self.course = SampleHistory()
        self.doing = "starting"
        self.began = time.monotonic()
        self.ended: float | None = None
        self.error: BaseException | None = None
        self.notes: list[str] = []
        """What there is to know before anything is read."""
        self.losses: list[str] = []
        self.figures: list[Figures] = []
        self._when_ended = when_ended
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cql run", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it is still at work."""
        return self.ended is None

    @property
    def seconds(self) -> float:
        """For how long it has run, or ran."""
        return (self.ended or time.monotonic()) - self.began

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, or for some time; tell whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ask it to stop: what has been read is brought to its end."""
        self._stopping.set()
        self.doing = "stopping"

    def current_figures(self) -> Sequence[Figures]:
        """Return what is known of the parts of the network; while it runs, of its operators."""
        return self.figures or self.course.last.operators

    def now_running(self, queries: Sequence[QueryDef]) -> None:
        """Note that the queries have changed."""
        self.queries = {query.name: query for query in queries}
        kept = self.latest
        self.latest = {
            name: kept.get(name) or Latest(query.tree) for name, query in self.queries.items() if query.sink is None
        }

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error
        self.ended = time.monotonic()
        self.doing = "failed" if self.error else "ended"
        self._when_ended()

    def _run(self) -> None:
        raise NotImplementedError

    def _collect(self, results: Mapping[str, KeptResults]) -> None:
        """Take what queries have yielded since the last time."""
        for name, kept in results.items():
            if name in self.latest:
                self.latest[name].follow(kept)


class LocalBackground(Background):
    """Queries at work in this process."""

    def __init__(
        self, queries: Sequence[QueryDef], when_ended: Callable[[], None], make: Callable[[], LocalRun]
    ) -> None:
        super().__init__(queries, when_ended)
        self._make = make

    def _run(self) -> None:
        def look() -> None:
            self._collect(dict(run.results))
            self.course.add(sample(run))

        run = self._make()
        with run:
            self.doing = "reading"
            sampled = 0.0
            for _ in run.steps():
                if time.monotonic() - sampled > _SAMPLES:
                    look()
                    sampled = time.monotonic()
                if self._stopping.is_set():
                    break
            self.doing = "closing the last instants"
        look()
        self.losses, self.figures = run.losses(), run.statistics()


class SparkBackground(Background):
    """Queries at work on Spark."""

    def __init__(
        self,
        queries: Sequence[QueryDef],
        when_ended: Callable[[], None],
        make: Callable[[], SparkRun],
        *,
        stays_open: bool,
    ) -> None:
        super().__init__(queries, when_ended)
        self._make = make
        self._stays_open = stays_open
        """Whether instants that are open when it stops stay so, for the next run from the same checkpoint."""
        self._network: SparkRun | None = None
        self._is_waiting = False
        self._lock = threading.Lock()
        self.doing = "starting Spark"

    def stop(self) -> None:
        """Ask it to stop; reading to the end of sources is broken off between two micro-batches."""
        super().stop()
        if self._network is not None and not self._is_waiting:
            self._network.stop()

    def current_figures(self) -> Sequence[Figures]:
        """Return what is known of the parts of the network, if it is not being started."""
        with self._lock, suppress(RuntimeError):
            if self._is_waiting and self._network is not None:
                return self._network.statistics()
        return super().current_figures()

    def changed(self, change: Callable[[SparkRun], T]) -> T | None:
        """Return what comes of changing the run; None if it has an end that it is on the way to."""
        with self._lock:
            if not self._is_waiting or self._network is None or self._stopping.is_set():
                return None
            return change(self._network)

    def _run(self) -> None:
        self._network = run = self._make()
        self.notes = list(run.notes)
        enough = threading.Event()
        sampler = threading.Thread(target=self._keep_sampling, args=(run, enough), name="cql samples", daemon=True)
        with run:
            self.doing = "starting the queries"
            run.start()
            sampler.start()
            try:
                if run.is_endless:
                    self._wait(run)
                else:
                    self.doing = "reading to the end"
                    self._until_stopped(run.close_instants)
            finally:
                enough.set()
                sampler.join()
        self._look(run)
        self.losses, self.figures = run.losses(), run.statistics()

    def _wait(self, run: SparkRun) -> None:
        self.doing = "running"
        self._is_waiting = True
        while not self._stopping.wait(_WAITS):
            with self._lock:
                if not run.wait(0):
                    return
        with self._lock:
            self._is_waiting = False
        if not self._stays_open:
            self.doing = "closing the last instants"
            run.close_instants()

    def _until_stopped(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            if not self._stopping.is_set():
                raise

    def _keep_sampling(self, run: SparkRun, enough: threading.Event) -> None:
        while not enough.wait(_SAMPLES):
            with self._lock:
                self._look(run)

    def _look(self, run: SparkRun) -> None:
        """Take a sample; if a micro-batch is being counted just now, the next one will do."""
        with suppress(RuntimeError):
            self._collect(run.results)
            self.course.add(sample(run))
