"""The files of a table: which there are, and their rows, file after file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cql.catalog import External, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.settings import OnBadRow
from runtime.connectors.connector import ReadSettings, RowSource
from runtime.connectors.file_connector import FileConnector, FileFormatReader
from runtime.connectors.file_log import SourceFile
from runtime.connectors.file_options import FileOptions
from runtime.connectors.intake import FileChunk, Intake, SourceRows, layout_of
from runtime.connectors.options import file_format, readable
from runtime.connectors.paths import Place


@dataclass(frozen=True)
class FileSource:
    """The files of a table: which there are, and how their rows are read.

    `root` is the folder that paths are relative to, as long as the working directory is that.
    """

    table: StreamDef | RelationDef
    on_bad_row: OnBadRow
    place: Place
    root: str

    @classmethod
    def of(cls, table: StreamDef | RelationDef, on_bad_row: OnBadRow = "fail") -> FileSource:
        """Return the files of a table; raises if its options or columns do not go together."""
        _, options = _format(table)
        source = cls(table, on_bad_row, options.place(), os.getcwd())
        source._reader()
        return source

    def find(self) -> list[str]:
        """Return the paths of the files that there are now, in the order in which they are to be read."""
        return [str(path) for path in self.place.files()]

    def rows(self, files: Iterable[SourceFile], newest: int | None = None) -> SourceReader:
        """Return the rows of some files; raises if one of them is not what it was when it was noted.

        `newest` is the latest instant before them, as far as rows may not be too far ahead of that.
        """
        return SourceReader(files, self._reader(), Intake(layout_of(self.table), self.on_bad_row, newest), self.root)

    def _reader(self) -> FileFormatReader:
        layout, (connector, options) = layout_of(self.table), _format(self.table)
        if connector.finds_columns_by_name:
            layout.check_named(connector.name)
        return connector.reader(layout, options)


class SourceReader(Iterator[SourceRows]):
    """The rows of a table, some ten thousands at a time; `skipped` counts the bad ones that were left out."""

    def __init__(self, files: Iterable[SourceFile], reader: FileFormatReader, intake: Intake, root: str) -> None:
        self._reader = reader
        self._intake = intake
        self._root = root
        self._chunks = (chunk for file in files for chunk in self._read(file))

    @property
    def skipped(self) -> int:
        return self._intake.skipped

    @property
    def newest(self) -> int | None:
        """The latest instant so far, where rows may not be too far ahead of it."""
        return self._intake.newest

    def __next__(self) -> SourceRows:
        while True:
            rows = self._intake.take(next(self._chunks))
            if len(rows):
                return rows

    def _read(self, file: SourceFile) -> Iterator[FileChunk]:
        """Yield the chunks of a file that is what it was, before it is read and after."""
        file.check(self._root)
        with _relative(self._root):
            for chunk in self._reader.read(Path(self._root, file.path)):
                yield replace(chunk, file=file.path, now=file.found_at)
        file.check(self._root)


@contextmanager
def _relative(root: str) -> Iterator[None]:
    """Let errors name files as the user wrote them."""
    try:
        yield
    except CqlError as error:
        folder = os.path.join(root, "")
        raise CqlError([replace(d, message=d.message.replace(folder, "")) for d in error.diagnostics]) from None


def open_source(table: StreamDef | RelationDef, on_bad_row: OnBadRow = "fail") -> SourceReader:
    """Return the rows of a table in the order of its source; raises if that cannot be read."""
    source = FileSource.of(table, on_bad_row)
    source.place.check()
    files = (SourceFile.of(number, path, with_fingerprint=False) for number, path in enumerate(source.find()))
    return source.rows(list(files))


def source_of(table: StreamDef | RelationDef, settings: ReadSettings) -> RowSource:
    """Return the source of a table, also one without an end; raises if none but Spark reads it."""
    return readable(_external(table)).source(table, settings)


def _external(table: StreamDef | RelationDef) -> External:
    if table.source is None:
        raise fail(
            Code.BAD_DEFINITION,
            f"nothing says where the rows of '{table.name}' come from",
            hint="add FROM csv OPTIONS (path '..') to its definition",
        )
    return table.source


def _format(table: StreamDef | RelationDef) -> tuple[FileConnector[Any], FileOptions]:
    return file_format(_external(table))
