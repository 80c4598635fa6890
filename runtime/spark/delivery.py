"""Delivers results on the driver: what a micro-batch computed goes to the sinks of its queries, once.

Spark computes a micro-batch again if the driver ended before it was committed, and hands over the same results under
the same id. So delivering is idempotent: doing it again replaces what was done.

| sink | what a batch does | after a crash |
|---|---|---|
| `csv`, `json`, `parquet` | writes a file `part-<batch id>` under a hidden name and renames it | exactly once |
| `stream` | adds to a file whose length was noted before, and is cut back to for a repetition | exactly once |
| standard output | prints | at least once: the last batch may come again |
| a function of the user | calls it with the changes and the batch id | at least once, under the same id |
| `memory` | adds to what this process keeps | gone with the process |

After every delivery the checkpoint notes the last batch of each query, so that a network which was stopped and not
killed repeats nothing anywhere. A run from a new checkpoint replaces the files of an earlier one, whose checkpoint
cannot go on with them then (`runtime/connectors/claims.py`).
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cql.catalog import QueryDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.query import MOST_KEPT
from cql.source import NO_SPAN, Span
from runtime.columns.batch import ChangeBatch
from runtime.connectors.batch_sinks import FolderSink, MemorySink, Sink, SinkProgress
from runtime.connectors.claims import Held, Owner, lock, this_process
from runtime.connectors.connector import SinkSettings
from runtime.connectors.keeping import KeptResults
from runtime.connectors.python_data import Callback, called, changes_table
from runtime.connectors.result_files import sync, writing
from runtime.connectors.results import Result, ResultColumn
from runtime.connectors.sinks import Output, sink_of
from runtime.connectors.tables import Screen
from runtime.user_errors import placed

_RECORD = "delivery.json"
_LOCK = "delivery.lock"


FrameCallback = Callable[[DataFrame, int], None]
"""A function of the user: takes the changes of a micro-batch, and its id, as those of `foreachBatch` do."""


@dataclass(frozen=True)
class FrameFunction:
    """A function of the user, given tables of Arrow as frames of a session."""

    spark: SparkSession
    function: FrameCallback

    def __call__(self, changes: pa.Table, batch_id: int) -> None:
        self.function(self.spark.createDataFrame(changes), batch_id)


@dataclass(frozen=True)
class Target:
    """A query and the shape of its results; with a callback they go there, otherwise to its sink."""

    query: QueryDef
    columns: Sequence[ResultColumn]
    is_stream: bool
    time: TimeDomain | None
    callback: Callback | None = None
    place: Span = NO_SPAN
    """Where in a script it is said where the results go."""
    keep: int = MOST_KEPT
    """How many rows of changes are kept, if they are kept in memory."""


class Delivery:
    """The sinks of a network, and in its checkpoint what they have; a checkpoint serves one delivery at a time.

    Without a checkpoint nothing is remembered beyond this object. Tables and JSON lines go to a shared `screen`.
    """

    def __init__(
        self,
        checkpoint: Path | None,
        targets: Sequence[Target],
        output: Output = "table",
        screen: Screen | None = None,
    ) -> None:
        self._lock = None if checkpoint is None else _locked(checkpoint)
        self._checkpoint = checkpoint
        self._output: Output = output
        self._screen = screen or Screen(sys.stdout)
        self._sinks: dict[str, Sink] = {}
        self._targets: dict[str, Target] = {}
        try:
            self._record = DeliveryRecord(None if checkpoint is None else checkpoint / _RECORD)
            self.change(targets)
        except BaseException:
            self._unlock()
            raise

    def change(self, targets: Sequence[Target]) -> None:
        """Deliver to these from now on; those that are the same go on, and the others are forgotten."""
        _check_apart(targets)
        self.let_go(targets)
        sinks: dict[str, Sink] = {}
        for target in targets:
            name = target.query.name
            if self._targets.get(name) == target:
                sinks[name] = self._sinks[name]
                continue
            if name in self._targets:
                self._record.forget(name)
            with placed(target.place):
                sinks[name] = sink = _opened(target, self._output, self._screen, self._owner(name))
                sink.resume(self._record.progress(name, sink.name))
        for name in self._targets.keys() - sinks.keys():
            self._record.forget(name)
        if self._targets:
            self._record.save()
        before, self._sinks = self.results, sinks
        for name, kept in before.items():
            if self.results.get(name) is not kept:
                kept.close()
        self._targets = {target.query.name: target for target in targets}

    def let_go(self, targets: Sequence[Target]) -> None:
        """Let others have the places of results that are not among these targets."""
        for name, target in self._targets.items():
            if target not in targets:
                self._sinks[name].close()

    def has_checkpoint(self) -> bool:
        """Tell whether the checkpoint is still where it was; without one, there is none to lose."""
        if self._checkpoint is None or self._lock is None:
            return True
        try:
            return os.path.samestat(os.stat(self._checkpoint / _LOCK), os.fstat(self._lock))
        except OSError:
            return False

    def _owner(self, query: str) -> Owner:
        folder = "" if self._checkpoint is None else str(self._checkpoint.absolute())
        return Owner(query, folder, self._record.id)

    @property
    def results(self) -> dict[str, KeptResults]:
        """The results that are kept in memory, by query."""
        return {name: sink.kept for name, sink in self._sinks.items() if isinstance(sink, MemorySink)}

    def delivered(self, query: str) -> int:
        """Return the last batch whose results of a query were delivered, or -1."""
        return self._sinks[query].progress.delivered

    def has_delivered(self, batch_id: int) -> bool:
        """Tell whether results of a micro-batch, or of a later one, have been delivered."""
        return any(sink.progress.delivered >= batch_id for sink in self._sinks.values())

    def deliver(self, batch_id: int, results: Mapping[str, Iterable[ChangeBatch]]) -> None:
        """Write the results of a micro-batch, in the order of time; what has been delivered already is left as it is.

        There are only results here that have rows.
        """
        due = [sink for sink in self._sinks.values() if batch_id > sink.progress.delivered]
        found = {sink: results[name] for name, sink in self._sinks.items() if sink in due and name in results}
        begun = [sink.begin(batch_id, sink in found) for sink in due]
        if any(begun):
            self._record.save()
        for sink, batches in found.items():
            sink.put(batch_id, batches)
        for sink in due:
            sink.progress.delivered = batch_id
        if found:
            self._record.save()

    def deliver_frame(self, batch_id: int, query: str, changes: DataFrame) -> None:
        """Hand a frame with the results of a query to its function."""
        sink = self._sinks[query]
        assert isinstance(sink, CallbackSink), "frames go to functions"
        with self._delivering(batch_id, sink) as is_due:
            if is_due:
                sink.put_frame(batch_id, changes)

    def deliver_files(self, batch_id: int, query: str, write: Callable[[], Sequence[Path]]) -> None:
        """Put files that `write` writes to the hidden folder of a batch in their places; that may be needed no more."""
        sink = self._sinks[query]
        assert isinstance(sink, FolderSink), "files go to folders"
        with self._delivering(batch_id, sink) as is_due:
            if is_due:
                sink.put_files(batch_id, write)

    @contextmanager
    def _delivering(self, batch_id: int, sink: Sink) -> Iterator[bool]:
        """Get ready for a batch, and note that it was delivered; gives whether it is still to be."""
        is_due = batch_id > sink.progress.delivered
        if is_due and sink.begin(batch_id, has_rows=True):
            self._record.save()
        yield is_due
        if is_due:
            sink.progress.delivered = batch_id
            self._record.save()

    def finish(self) -> None:
        """Complete all results, and let the checkpoint go."""
        try:
            for sink in self._sinks.values():
                sink.finish()
            self._record.save()
        finally:
            self._unlock()

    def abort(self) -> None:
        """Stop where the last delivery ended, and let the checkpoint go."""
        for kept in self.results.values():
            kept.close()
        self._unlock()

    def _unlock(self) -> None:
        for sink in self._sinks.values():
            sink.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


# Sinks


class CallbackSink(Sink):
    """A function of the user."""

    name = "function"

    def __init__(self, target: Target, callback: Callback) -> None:
        self._target = target
        self._callback = callback

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Call the function with the changes of a batch."""
        target = self._target
        names = [column.name for column in target.columns]
        table = changes_table(list(batches), names, [column.type for column in target.columns], target.time)
        called(target.query.name, self._callback, table, batch_id)

    def put_frame(self, batch_id: int, changes: DataFrame) -> None:
        """Call the function with a frame; it is computed as often as the function asks for it."""
        function = self._callback
        assert isinstance(function, FrameFunction), "a function that takes frames"
        called(self._target.query.name, function.function, changes, batch_id)


def _opened(target: Target, output: Output, screen: Screen, owner: Owner | None = None) -> Sink:
    """Return the sink of a query, whose place is to be an owner's; raises if it cannot be opened."""
    query = target.query
    if target.callback is not None:
        return CallbackSink(target, target.callback)
    result = Result(query.name, tuple(target.columns), target.is_stream, target.time)
    return sink_of(query, result, SinkSettings(output, screen, owner, target.keep))


def check_targets(targets: Sequence[Target], output: Output, screen: Screen) -> None:
    """Raise if the sinks of some queries cannot be opened together; nothing is written."""
    _check_apart(targets)
    for target in targets:
        with placed(target.place):
            _opened(target, output, screen)


def _check_apart(targets: Sequence[Target]) -> None:
    """Raise if two queries write to one path: of two results, one would be lost."""
    seen: dict[str, str] = {}
    for query, place in ((t.query, t.place) for t in targets if t.callback is None and t.query.sink):
        path = {key.casefold(): text for key, text in query.sink.options.items()}.get("path") if query.sink else None
        other = seen.setdefault(os.path.abspath(path), query.name) if path else query.name
        if other != query.name:
            message = f"the queries '{other}' and '{query.name}' both write to '{path}'"
            raise fail(Code.CANNOT_WRITE, message, place, hint="give each a path of its own")


# What the checkpoint knows


@dataclass(slots=True)
class DeliveryRecord:
    """The progress of all queries of a network, in a file that changes as a whole; None: it is not kept."""

    path: Path | None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells the checkpoint from all others."""
    _queries: dict[str, SinkProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            try:
                found = json.loads(self.path.read_bytes())
                self._queries = {name: SinkProgress(**values) for name, values in found["queries"].items()}
                self.id = found["id"]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise fail(
                    Code.BAD_FILE,
                    f"'{self.path}' does not say what has been delivered: {error}",
                    hint="the checkpoint is damaged or of another version; start from a new one",
                ) from None

    def progress(self, query: str, sink: str) -> SinkProgress:
        """Return the progress of a query, which begins anew if its results go somewhere else than before."""
        found = self._queries.get(query)
        if found is None or found.sink != sink:
            self._queries[query] = found = SinkProgress(sink)
        return found

    def forget(self, query: str) -> None:
        """Forget a query: one of the same name begins anew."""
        self._queries.pop(query, None)

    def save(self) -> None:
        """Write the record, so that it survives a failure of the machine."""
        if self.path is None:
            return
        hidden = self.path.with_name(f".{self.path.name}.new")
        queries = {name: asdict(progress) for name, progress in self._queries.items()}
        text = json.dumps({"id": self.id, "queries": queries})
        with writing(self.path):
            with hidden.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(self.path)
            sync(self.path.parent)


def _locked(checkpoint: Path) -> int:
    """Return an open file that keeps others out as long as this process lives, and says who keeps them out."""
    path = checkpoint / _LOCK
    with writing(path):
        checkpoint.mkdir(parents=True, exist_ok=True)
        try:
            handle = lock(path)
        except Held as held:
            raise fail(
                Code.OTHER_CHECKPOINT,
                f"the checkpoint '{checkpoint}' is in use by {held.text.strip() or 'another process'}",
                hint="stop that network first, or give this one a checkpoint of its own",
            ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{this_process()}\n".encode(), 0)
    return handle
