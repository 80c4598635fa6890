"""Writes the results of queries: to standard output, to folders of csv, json or parquet, to files of STREAM.

What arrives are changes in the order of time: rows that start at their instant, weighing +n or -n, which are written n
times. A sink shows its result when it is closed, not before: it is written under a hidden name and renamed, and a
sink that is given up leaves nothing behind.

| sink | what is written |
|---|---|
| `csv`, `json`, `parquet` | a folder `path` with one file, `part-00000`; it replaces those of other runs |
| `stream` | the file `path`, a line `[instant]:+:value, value` for each change, doubles with six digits |
| `memory` | nothing: the changes are kept in `KeptResults.batches` |
| `console`, or none | standard output, as a table or as JSON lines |

The columns in a folder are `ts` and `op`, the instant and + or -, and then those of the row; where a row has a column
of that name, an underscore is put before ours. Such files can be read as a relation: TIMESTAMP BY ts SIGN BY op.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from cql.catalog import QueryDef
from cql.intervals import TimeDomain
from runtime.columns.batch import ChangeBatch
from runtime.connectors.batch_sinks import Sink, WriterSink, in_the_way
from runtime.connectors.claims import check_free, release
from runtime.connectors.connector import Output, SinkSettings
from runtime.connectors.file_options import FileOptions
from runtime.connectors.line_formats import EnvelopeFormat, LineFormat
from runtime.connectors.options import sink_format
from runtime.connectors.result_files import FileWriter, parts_of, result_file, writing
from runtime.connectors.results import Result, ResultColumn, Writer
from runtime.connectors.tables import Screen, TableWriter


class OutputWriter(Writer):
    """Writes lines to standard output as they come."""

    def __init__(self, form: LineFormat, out: TextIO) -> None:
        self._form = form
        self._out = out

    def _write(self, batch: ChangeBatch) -> None:
        self._out.write(self._form.lines(batch).decode())

    def close(self) -> None:
        """Complete the result."""
        self._out.flush()

    def abort(self) -> None:
        """Leave what has been written: nobody takes it for complete."""
        self._out.flush()


class WholeResult(Writer):
    """Writes a whole result: with it, what another run has left in the place of the result is gone.

    `parts` are the names of the files of results, if the place is a folder with several of them.
    """

    def __init__(self, writer: FileWriter, path: Path, parts: re.Pattern[str] | None = None) -> None:
        self._writer = writer
        self._path = path
        self._parts = parts

    def write(self, batch: ChangeBatch) -> None:
        """Write changes; nothing is left of the result if that fails."""
        self._writer.write(batch)

    _write = write

    def close(self) -> None:
        """Put the result in its place."""
        try:
            self._take_over()
        except BaseException:
            self.abort()
            raise
        self._writer.close()

    def abort(self) -> None:
        """Give the result up; what another run has left stays."""
        self._writer.abort()

    def _take_over(self) -> None:
        if self._parts is None:
            release(self._path, is_folder=False)
            return
        folder = self._path.parent
        release(folder, is_folder=True)
        with writing(folder):
            for path in folder.iterdir():
                if path != self._path and self._parts.fullmatch(path.name):
                    path.unlink()


def open_sink(
    query: QueryDef,
    columns: Sequence[ResultColumn],
    is_stream: bool,
    time: TimeDomain | None,
    output: Output = "table",
    screen: Screen | None = None,
) -> Writer:
    """Return a writer for the results of a query: to its sink, or to standard output in the form of `output`.

    Queries that print tables share a `screen`, so that a heading is printed whenever another one speaks.
    """
    return whole_writer(query, Result(query.name, tuple(columns), is_stream, time), SinkSettings(output, screen))


def whole_writer(query: QueryDef, result: Result, settings: SinkSettings) -> Writer:
    """Return what writes the results of a query as a whole, to its sink or to standard output."""
    if query.sink is None:
        return screen_writer(result, settings)
    connector, options = sink_format(query.sink)
    return connector.writer(result, options, settings)


def sink_of(query: QueryDef, result: Result, settings: SinkSettings) -> Sink:
    """Return what takes the results of a query a batch at a time, for its sink or for standard output."""
    if query.sink is None:
        return WriterSink(screen_writer(result, settings))
    connector, options = sink_format(query.sink)
    return connector.sink(result, options, settings)


def screen_writer(result: Result, settings: SinkSettings) -> Writer:
    """Return a writer to standard output."""
    screen = settings.screen or Screen(sys.stdout)
    if settings.output == "table":
        return TableWriter(result, screen)
    return OutputWriter(EnvelopeFormat(result), screen.out)


def file_writer(result: Result, options: FileOptions) -> Writer:
    """Return what writes a whole result to a file."""
    path = Path(options.path)
    if path.is_dir():
        raise in_the_way(path, "a folder", "a file")
    check_free(path, is_folder=False)
    return WholeResult(result_file(result, options, path), path)


def folder_writer(result: Result, options: FileOptions) -> Writer:
    """Return what writes a whole result to a folder, as one file."""
    folder = Path(options.path)
    if folder.exists() and not folder.is_dir():
        raise in_the_way(folder, "a file", f"a folder of {options.format} files")
    check_free(folder, is_folder=True)
    part = folder / f"part-00000.{options.format}"
    return WholeResult(result_file(result, options, part), part, parts_of(options.format))
