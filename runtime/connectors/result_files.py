"""Files that hold results. They are written under a hidden name and appear, complete, when they are closed.

A file that is given up leaves nothing behind, neither the hidden file nor the folders that were made for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import ChangeBatch
from runtime.columns.texts import known_instants, marks
from runtime.connectors.file_connector import FileConnector
from runtime.connectors.file_options import FileOptions
from runtime.connectors.line_formats import LineFormat, free_names
from runtime.connectors.registry import connector
from runtime.connectors.results import Result, Writer


class PendingFile:
    """A file under a hidden name beside its place; it appears there when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
        self._made = [folder for folder in path.parents if not folder.exists()]
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.hidden.touch()

    def appear(self) -> None:
        """Put the file in its place."""
        with writing(self.path):
            self.hidden.replace(self.path)

    def discard(self) -> None:
        """Remove the file and the folders that were made for it."""
        with contextlib.suppress(OSError):
            self.hidden.unlink(missing_ok=True)
            for folder in self._made:
                folder.rmdir()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is written into errors for people."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail(
            Code.CANNOT_WRITE,
            f"'{path}' cannot be written: {reason}",
            hint="check the path, its permissions and the disk",
        ) from None


def sync(path: Path) -> None:
    """Make sure that a file or the names in a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears, or changes, as a whole, and survives a failure of the machine.

    Whatever a checkpoint consists of is written like this before anything refers to it. Until then it has a hidden
    name, which Spark and lists of files pass over.
    """
    hidden = path.with_name(f".{path.name}.new")
    with writing(path):
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
        sync(path.parent)


class FileWriter(Writer):
    """Writes to a pending file; who derives from it says how."""

    def __init__(self, path: Path) -> None:
        self._pending = PendingFile(path)

    def write(self, batch: ChangeBatch) -> None:
        """Write changes; nothing is left of the file if that fails."""
        try:
            with writing(self._pending.path):
                super().write(batch)
        except BaseException:
            self.abort()
            raise

    def close(self) -> None:
        """Complete the file and put it in its place."""
        try:
            with writing(self._pending.path):
                self._end()
            self._pending.appear()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Give the file up."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._end()
        self._pending.discard()

    @abstractmethod
    def _end(self) -> None:
        """Write what stands at the end; called once or several times."""


class LinesWriter(FileWriter):
    """Writes lines to a file."""

    def __init__(self, form: LineFormat, path: Path) -> None:
        super().__init__(path)
        self._form = form
        self._file = self._pending.hidden.open("wb", buffering=1 << 20)
        self._file.write(form.head)

    def _write(self, batch: ChangeBatch) -> None:
        self._file.write(self._form.lines(batch))

    def _end(self) -> None:
        self._file.close()


class ParquetWriter(FileWriter):
    """Writes a Parquet file that Spark reads with the same types; an INTERVAL is its microseconds."""

    def __init__(self, result: Result, compression: str, path: Path) -> None:
        self._schema = parquet_schema(result)
        self._time = result.time
        super().__init__(path)
        with writing(path):
            self._file = parquet.ParquetWriter(self._pending.hidden, self._schema, compression=compression)

    def _write(self, batch: ChangeBatch) -> None:
        columns = [known_instants(batch.start, self._time), marks(batch.weights), *batch.columns]
        arrays = [_stored(array, field.type) for array, field in zip(columns, self._schema, strict=True)]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))

    def _end(self) -> None:
        self._file.close()


def parts_of(format_name: str) -> re.Pattern[str]:
    """Return the names of the files of a result in its folder."""
    return re.compile(rf"part-\d+(-\d+)?\.{format_name}")


def result_file(result: Result, options: FileOptions, path: Path) -> FileWriter:
    """Return what writes results to a file of the format that the options are of."""
    format_ = connector(options.format)
    assert isinstance(format_, FileConnector), "results in files are of a format of files"
    return format_.file_writer(result, options, path)


def parquet_schema(result: Result) -> pa.Schema:
    """Return the columns of a result in Parquet: instant, + or -, and those of the row."""
    ts, op = free_names(result.names)
    clock = pa.timestamp("us", "UTC") if result.time is TimeDomain.TIMESTAMP else pa.int64()
    columns = [(column.name, _stored_type(column.type)) for column in result.columns]
    return pa.schema([(ts, clock), (op, pa.string()), *columns])


def _stored_type(data_type: DataType) -> pa.DataType:
    special = {Kind.TIMESTAMP: pa.timestamp("us", "UTC"), Kind.INTERVAL: pa.int64(), Kind.NULL: pa.string()}
    return special.get(data_type.kind) or arrow_type(data_type)


def _stored(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array.view(wanted) if pa.types.is_duration(array.type) else array.cast(wanted)
