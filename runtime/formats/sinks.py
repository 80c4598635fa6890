"""Writes the results of queries: to standard output, to folders of csv, json or parquet, to files of STREAM.

What arrives are changes in the order of time: rows that start at their instant, weighing +n or -n, which are written n
times. A sink shows its result when it is closed, not before: it is written under a hidden name and renamed, and a
sink that is given up leaves nothing behind.

| sink | what is written |
|---|---|
| `csv`, `json`, `parquet` | a folder `path` with one file, `part-00000`; a new run replaces that file |
| `stream` | the file `path`, a line `[instant]:+:value, value` for each change, doubles with six digits |
| `memory` | nothing: the changes are kept in `Kept.batches` |
| `console`, or none | standard output, as a table or as JSON lines |

The columns in a folder are `ts` and `op`, the instant and + or -, and then those of the row; where a row has a column
of that name, an underscore is put before ours. Such files can be read as a relation: TIMESTAMP BY ts SIGN BY op.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

from cql.catalog import QueryDef
from cql.errors import Code, CqlError, fail
from cql.intervals import TimeDomain
from runtime.batch import ChangeBatch
from runtime.formats.keeping import Kept
from runtime.formats.line_formats import EnvelopeFormat, LineFormat, StreamFormat
from runtime.formats.options import WRITES, Options
from runtime.formats.result_files import LinesWriter, result_file
from runtime.formats.results import Result, ResultColumn, Writer
from runtime.formats.tables import Screen, TableWriter

Output = Literal["table", "jsonl"]


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
    result = Result(query.name, tuple(columns), is_stream, time)
    if query.sink is None or query.sink.format == "console":
        if query.sink is not None:
            Options(query.sink, WRITES, "write")
        screen = screen or Screen(sys.stdout)
        return TableWriter(result, screen) if output == "table" else OutputWriter(EnvelopeFormat(result), screen.out)
    options = Options(query.sink, WRITES, "write")
    match options.format:
        case "memory":
            return Kept(is_stream)
        case "stream":
            return LinesWriter(StreamFormat(result), _file(options.path()))
    return result_file(result, options, _part(options))


def _file(path: str) -> Path:
    if Path(path).is_dir():
        raise _in_the_way(path, "a folder", "a file")
    return Path(path)


def _part(options: Options) -> Path:
    path = options.path()
    if Path(path).exists() and not Path(path).is_dir():
        raise _in_the_way(path, "a file", f"a folder of {options.format} files")
    return Path(path) / f"part-00000.{options.format}"


def _in_the_way(path: str, found: str, wanted: str) -> CqlError:
    message = f"'{path}' is {found}, and {wanted} is to be written there"
    return fail(Code.CANNOT_WRITE, message, hint="choose another path, or remove what is there")
