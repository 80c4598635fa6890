"""Delivers results on the driver: what a micro-batch computed goes to the sinks of its queries, once.

A host computes a micro-batch again if the driver ended before it was committed, and hands over the same results under
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

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cql.errors import Code, fail
from runtime.columns.batch import ChangeBatch
from runtime.connectors.batch_sinks import FolderSink, MemorySink, Sink
from runtime.connectors.claims import Held, Owner, lock, this_process
from runtime.connectors.keeping import KeptResults
from runtime.connectors.python_data import Callback
from runtime.connectors.result_files import writing
from runtime.connectors.sinks import Output
from runtime.connectors.tables import Screen
from runtime.delivery.record import DeliveryRecord
from runtime.delivery.targets import CallbackSink, Target, check_apart, opened
from runtime.user_errors import placed

_RECORD = "delivery.json"
_LOCK = "delivery.lock"


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
        check_apart(targets)
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
                sinks[name] = sink = opened(target, self._output, self._screen, self._owner(name))
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

    def deliver_call(self, batch_id: int, query: str, call: Callable[[Callback], None]) -> None:
        """Let `call` hand the results of a query to its function; that may be needed no more."""
        sink = self._sinks[query]
        assert isinstance(sink, CallbackSink), "a function takes the results"
        with self._delivering(batch_id, sink) as is_due:
            if is_due:
                call(sink.callback)

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
