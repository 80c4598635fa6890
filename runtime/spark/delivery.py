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
import re
import shutil
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cql.catalog import QueryDef
from cql.errors import Code, CqlError, fail
from cql.intervals import TimeDomain
from cql.query import MOST_KEPT
from cql.source import NO_SPAN, Span
from runtime.columns.batch import ChangeBatch
from runtime.connectors.claims import Claim, Held, Owner, lock, this_process
from runtime.connectors.keeping import KeptResults
from runtime.connectors.line_formats import StreamFormat
from runtime.connectors.options import WRITES, Options
from runtime.connectors.python_data import Callback, called, changes_table
from runtime.connectors.result_files import parts_of, result_file, sync, writing
from runtime.connectors.results import Result, ResultColumn, Writer, repeated_in_blocks
from runtime.connectors.sinks import Output, open_sink
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


@dataclass(slots=True)
class SinkProgress:
    """How far the results of one query are: the last batch delivered, and the one last begun in a file that grows."""

    sink: str
    delivered: int = -1
    begun: int = -1
    length: int = 0
    """How long the file was before that batch."""


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


class Sink(ABC):
    """Where the results of one query go; `name` is how the checkpoint knows it."""

    name: str = ""
    progress: SinkProgress
    claim: Claim | None = None
    """The right to the place of the result, where that can have only one owner."""

    def resume(self, progress: SinkProgress) -> None:
        """Go on from where the checkpoint says; called once, before anything else."""
        self.progress = progress
        if self.claim is not None:
            self.claim.open(goes_on=progress.begun >= 0)

    def check_place(self) -> None:
        """Raise if the place of the result is gone, or has another owner."""
        if self.claim is not None:
            self.claim.check()

    def take_place(self) -> None:
        """Make the place the result's own, whoever had it before."""
        if self.claim is not None:
            self.claim.take()

    def close(self) -> None:
        """Let others have the place; called once or several times."""
        if self.claim is not None:
            self.claim.close()

    def begin(self, batch_id: int, has_rows: bool) -> bool:
        """Get ready for a batch, and tell whether the checkpoint has to know before it is written."""
        return False

    @abstractmethod
    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Write the results of a batch, of which there are some; again if that was begun before."""

    def finish(self) -> None:
        """Complete the result, also one without any batch; called once, after the last."""
        if self.progress.begun < 0:
            self.begin(0, has_rows=False)
        self.check_place()


class FolderSink(Sink):
    """A folder with a file for each batch that has rows; nobody but its owner, if it has one, writes there."""

    def __init__(self, result: Result, options: Options, owner: Owner | None = None) -> None:
        self._result = result
        self._options = options
        self._folder = Path(options.path())
        if owner is not None:
            self.claim = Claim(self._folder, owner, is_folder=True)
        self._pattern = parts_of(options.format)
        self._hidden = re.compile(rf"\.part-\d+\.{options.format}\.[0-9a-f]{{12}}|\.files-\d+")
        self._is_first = True
        self.name = f"{options.format} {self._folder.absolute()}"
        if self._folder.exists() and not self._folder.is_dir():
            raise _in_the_way(self._folder, "a file", f"a folder of {options.format} files")

    def resume(self, progress: SinkProgress) -> None:
        """Remove what a crash has left under hidden names."""
        super().resume(progress)
        self._remove(self._hidden)

    def begin(self, batch_id: int, has_rows: bool) -> bool:
        """Remove the files of an earlier run before the first batch of this one.

        A batch that is done again may have no rows now: an input that ended its first try has been corrected.
        """
        self.check_place()
        is_first, self._is_first = self._is_first, False
        if self.progress.begun >= 0:
            if is_first and not has_rows:
                self._remove(re.compile(rf"part-{batch_id:08}(-\d+)?\.{self._options.format}"))
            return False
        self.take_place()
        self._remove(self._pattern)
        self.progress.begun = batch_id
        return True

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Write the file of a batch; it appears, or replaces itself, as a whole."""
        path = self._folder / f"part-{batch_id:08}.{self._options.format}"
        with writing(path):
            with result_file(self._result, self._options, path) as writer:
                for batch in batches:
                    writer.write(batch)
            sync(path)
            sync(self._folder)

    def put_files(self, batch_id: int, write: Callable[[], Sequence[Path]]) -> None:
        """Let others write the files of a batch to its hidden folder, and put them in their places."""
        hidden = hidden_folder(self._folder, batch_id)
        with writing(self._folder):
            shutil.rmtree(hidden, ignore_errors=True)
            hidden.mkdir(parents=True)
            written = write()
            self.check_place()
            self._remove(re.compile(rf"part-{batch_id:08}-\d+\.{self._options.format}"))
            for number, path in enumerate(written):
                path.replace(self._folder / f"part-{batch_id:08}-{number:05}.{self._options.format}")
            shutil.rmtree(hidden)
            sync(self._folder)

    def _remove(self, pattern: re.Pattern[str]) -> None:
        with writing(self._folder):
            if self._folder.is_dir():
                for path in self._folder.iterdir():
                    if pattern.fullmatch(path.name):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()


def hidden_folder(folder: Path, batch_id: int) -> Path:
    """Return where files of a batch are before they are put in their places in a folder."""
    return folder / f".files-{batch_id:08}"


class GrowingFile(Sink):
    """A file of STREAM, to which every batch adds its lines; nobody but its owner writes to it."""

    def __init__(self, result: Result, options: Options, owner: Owner | None) -> None:
        self._format = StreamFormat(result)
        self._path = Path(options.path())
        self.name = f"stream {self._path.absolute()}"
        if self._path.is_dir():
            raise _in_the_way(self._path, "a folder", "a file")
        if owner is not None and (self._path.is_file() or not self._path.exists()):
            self.claim = Claim(self._path, owner, is_folder=False)

    def begin(self, batch_id: int, has_rows: bool) -> bool:
        """Note how long the file is, or cut it back to what it was before a batch that is done again."""
        self.check_place()
        progress = self.progress
        with writing(self._path):
            if progress.begun < 0:
                self.take_place()
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_bytes(self._format.head)
                progress.length = len(self._format.head)
            elif progress.begun >= batch_id:
                self._cut()
            elif has_rows:
                progress.length = self._size()
            else:
                return False
        progress.begun = batch_id
        return True

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Add the lines of a batch; what was added is taken back if that fails."""
        try:
            with writing(self._path), self._path.open("ab") as file:
                for part in chain.from_iterable(map(repeated_in_blocks, batches)):
                    file.write(self._format.lines(part))
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError, CqlError):
                self._cut()
            raise

    def _cut(self) -> None:
        self._size()
        os.truncate(self._path, self.progress.length)

    def _size(self) -> int:
        size = self._path.stat().st_size if self._path.exists() else -1
        if size < self.progress.length:
            raise fail(
                Code.CANNOT_WRITE,
                f"'{self._path}' is shorter than the checkpoint says: someone else has changed or removed it",
                hint="put it back, or start from a new checkpoint",
            )
        return size


class WriterSink(Sink):
    """Standard output, as tables or JSON lines."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Print the changes of a batch, all that the writer gathers included."""
        for batch in batches:
            self._writer.write(batch)
        self._writer.abort()

    def finish(self) -> None:
        """Print that there is nothing, if there was nothing."""
        self._writer.close()


class MemorySink(Sink):
    """Keeps the changes in this process; what an earlier one had is gone with it."""

    def __init__(self, kept: KeptResults) -> None:
        self.kept = kept

    def resume(self, progress: SinkProgress) -> None:
        """Begin anew."""
        self.progress = SinkProgress(progress.sink)

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Keep the changes of a batch."""
        self.kept.put(batch_id, batches)

    def finish(self) -> None:
        """Nothing more comes."""
        self.kept.close()


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
    if query.sink is None or query.sink.format == "console":
        return WriterSink(open_sink(query, target.columns, target.is_stream, target.time, output, screen))
    options = Options(query.sink, WRITES, "write")
    if options.format == "memory":
        return MemorySink(KeptResults(target.is_stream, target.keep))
    result = Result(query.name, tuple(target.columns), target.is_stream, target.time)
    return (GrowingFile if options.format == "stream" else FolderSink)(result, options, owner)


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


def _in_the_way(path: Path, found: str, wanted: str) -> CqlError:
    message = f"'{path}' is {found}, and {wanted} is to be written there"
    return fail(Code.CANNOT_WRITE, message, hint="choose another path, or remove what is there")


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
