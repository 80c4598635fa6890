"""Opens the source of a table: which reader reads which format, file after file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from cql.catalog import RelationDef, StreamDef
from cql.errors import Code, fail
from runtime.formats.json_files import JsonReader
from runtime.formats.options import READS, Options
from runtime.formats.parquet_files import ParquetReader
from runtime.formats.paths import files_of
from runtime.formats.rows import Chunk, Intake, Layout, OnBadRow, Rows, layout_of
from runtime.formats.text_files import TextReader


class _FileReader(Protocol):
    def read(self, path: Path) -> Iterator[Chunk]: ...


_READERS: dict[str, Callable[[Layout, Options], _FileReader]] = {
    "csv": TextReader,
    "json": JsonReader,
    "parquet": ParquetReader,
    "stream": TextReader,
}
_BY_NAME = ("json", "parquet")


class SourceReader(Iterator[Rows]):
    """The rows of a table, some ten thousands at a time; `skipped` counts the bad ones that were left out."""

    def __init__(self, files: list[Path], reader: _FileReader, intake: Intake) -> None:
        self._intake = intake
        self._chunks = (chunk for file in files for chunk in reader.read(file))

    @property
    def skipped(self) -> int:
        return self._intake.skipped

    def __next__(self) -> Rows:
        while True:
            rows = self._intake.take(next(self._chunks))
            if len(rows):
                return rows


def open_source(table: StreamDef | RelationDef, on_bad_row: OnBadRow = "fail") -> SourceReader:
    """Return the rows of a table in the order of its source; raises if that cannot be read."""
    if table.source is None:
        raise fail(
            Code.BAD_DEFINITION,
            f"nothing says where the rows of '{table.name}' come from",
            hint="add FROM csv OPTIONS (path '..') to its definition",
        )
    options = Options(table.source, READS, "read")
    layout = layout_of(table)
    if options.format in _BY_NAME and not layout.is_named:
        raise fail(
            Code.BAD_DEFINITION,
            f"the timestamp of '{table.name}' has no name, and columns of {options.format} are found by name",
            hint="define it by CREATE .. TIMESTAMP BY column",
        )
    reader = _READERS[options.format](layout, options)
    return SourceReader(files_of(options.path()), reader, Intake(layout, on_bad_row))
