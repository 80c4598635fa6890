"""Sinks that take the results of a query a batch at a time, each so that a batch may come again.

A batch whose delivery was begun and not committed comes again under the same number, with the same results. Putting it
again replaces what was put, where the place of the results allows that: `runtime/delivery/delivery.py` has the table.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from cql.errors import Code, CqlError, fail
from runtime.columns.batch import ChangeBatch
from runtime.connectors.claims import Claim, Owner
from runtime.connectors.file_options import FileOptions
from runtime.connectors.keeping import KeptResults
from runtime.connectors.line_formats import StreamFormat
from runtime.connectors.result_files import parts_of, result_file, sync, writing
from runtime.connectors.results import Result, Writer, repeated_in_blocks


@dataclass(slots=True)
class SinkProgress:
    """How far the results of one query are: the last batch delivered, and the one last begun in a file that grows."""

    sink: str
    delivered: int = -1
    begun: int = -1
    length: int = 0
    """How long the file was before that batch."""


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

    def __init__(self, result: Result, options: FileOptions, owner: Owner | None = None) -> None:
        self._result = result
        self._options = options
        self._folder = Path(options.path)
        if owner is not None:
            self.claim = Claim(self._folder, owner, is_folder=True)
        self._pattern = parts_of(options.format)
        self._hidden = re.compile(rf"\.part-\d+\.{options.format}\.[0-9a-f]{{12}}|\.files-\d+")
        self._is_first = True
        self.name = f"{options.format} {self._folder.absolute()}"
        if self._folder.exists() and not self._folder.is_dir():
            raise in_the_way(self._folder, "a file", f"a folder of {options.format} files")

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

    def __init__(self, result: Result, options: FileOptions, owner: Owner | None) -> None:
        self._format = StreamFormat(result)
        self._path = Path(options.path)
        self.name = f"stream {self._path.absolute()}"
        if self._path.is_dir():
            raise in_the_way(self._path, "a folder", "a file")
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


def in_the_way(path: Path, found: str, wanted: str) -> CqlError:
    message = f"'{path}' is {found}, and {wanted} is to be written there"
    return fail(Code.CANNOT_WRITE, message, hint="choose another path, or remove what is there")
