"""Sources on Spark: a DataFrame for each table, and what makes rows of it inside a task.

Files that the engine can read are read by the engine. Spark hands out tickets (`tickets.py`), and a task opens the
files that its tickets name with the readers of the local engine: the same values, the same bad rows, the same
messages, by construction. Everything else is read by Spark: its columns are found by name and converted as those of a
Parquet file are. A file is read by one task, from its start to its end.

What goes wrong in a task reaches the driver as text only; `carrying` writes an error so that `translate` can read it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from cql.catalog import ColumnModel, External, RelationDef, StreamDef
from cql.errors import Code, CqlError, Diagnostic, fail, nearest
from cql.intervals import TimeDomain
from cql.settings import OnBadRow
from cql.source import Span
from cql.types import DataType, Kind
from runtime.columns.batch import BEGINNING, FOREVER, Columns, Ints
from runtime.connectors import FileSource, SourceRows
from runtime.connectors.file_log import FileLog, SourceFile
from runtime.connectors.file_options import PACE
from runtime.connectors.intake import FileChunk, Intake, Malformed, RowLayout, ahead_text, layout_of, no_rows
from runtime.connectors.named_columns import as_type
from runtime.connectors.options import is_read_by_engine
from runtime.connectors.parquet_files import fits
from runtime.connectors.paths import Place, is_remote
from runtime.connectors.registry import connector
from runtime.network.lateness import Lateness, goes_by_order
from runtime.spark.attempts import Attempt
from runtime.spark.columns import spark_type
from runtime.spark.tickets import Tickets, escaped, read_ticket
from runtime.spark.unreadable import cannot_read

Table = StreamDef | RelationDef

INSTANT, SIGN, PLACE, BAD, NOW = "instant", "sign", "place", "bad", "now"
"""The columns of `SourceFrame.typed` beside the payload `c0`, `c1`, .."""

_EVER = "36500d"
_CORRUPT = "_corrupt_record"


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Good rows in the order of their source; parts of one place come one after the other, and places are in order.

    `is_ordered` says that the places of the whole source are in order, from one micro-batch to the next as well.
    """

    rows: SourceRows
    place: str = ""
    skipped: int = 0
    """How many bad rows were left out since the part before."""
    is_ordered: bool = False


def on_time(part: SourcePart, judge: Lateness) -> tuple[SourceRows, int]:
    """Return the rows of a part that are not late, and how many are; those of a source without order all stay."""
    rows = part.rows
    if not part.is_ordered:
        return rows, 0
    mask = judge.on_time(part.place, rows.instants)
    late = len(rows) - int(mask.sum())
    return (rows.chosen(np.flatnonzero(mask)), late) if late else (rows, 0)


class PartReader(Protocol):
    """What makes rows of the batches of a frame; it is sent to the tasks."""

    def parts(self, batches: Iterable[pa.RecordBatch], newest: int | None = None) -> Iterator[SourcePart]:
        """Yield the rows of some batches; called in a task, with the batches of one partition.

        `newest` is the latest instant before them, as far as rows may not be too far ahead of that.
        """
        ...


@dataclass(frozen=True)
class SourceFrame:
    """How a table is read: `reader` makes rows of what `frame` hands to a task.

    `native` holds the same rows in Spark's own columns, for work that never goes to Python; None if only the reader
    can make them. `tickets` are those of a source of files.
    """

    table: Table
    frame: DataFrame
    reader: PartReader
    native: DataFrame | None = None
    tickets: Tickets | None = None

    def typed(self) -> DataFrame:
        """Return the rows as columns: `c0`, `c1`, .., `instant`, `sign` (of logs), `place`, and `bad`.

        `bad` is NULL for good rows; the other columns of a bad one mean nothing.
        """
        if self.native is not None:
            return self.native
        return self.frame.mapInArrow(_as_columns(self.reader, self.table), _typed_schema(self.table))

    def collected(self) -> list[Columns]:
        """Return the rows of a frame that is not a stream, in the order of its places."""
        parts = self.reader.parts(self.frame.toArrow().to_batches())
        return [part.rows.columns for part in parts]

    def check(self) -> None:
        """Raise if the files or the folder of the table are not there any more."""
        if isinstance(self.reader, FileReader):
            self.reader.source.place.check(is_followed=True)


def source_frame(
    spark: SparkSession, table: Table, folder: Path, on_bad_row: OnBadRow = "fail", name: str = "source"
) -> SourceFrame:
    """Return how Spark reads a table as a stream; what has to be remembered of it is kept in a folder.

    `name` is what the checkpoint of a streaming query knows the source by.
    """
    source = _source_of(table)
    if not is_read_by_engine(source):
        return frame_source(_read_by_spark(spark.readStream.name(name), table, source), table, on_bad_row)
    reader = FileReader(FileSource.of(table, on_bad_row))
    reader.source.place.check(is_followed=True)
    log = FileLog(folder, reader.source.find, reader.source.root)
    tickets = Tickets(folder / "tickets", log, name)
    pace = {key: text for key, text in source.options.items() if key.casefold() in map(str.casefold, PACE)}
    return SourceFrame(table, tickets.frame(spark, pace), reader, tickets=tickets)


def static_frame(spark: SparkSession, table: Table, on_bad_row: OnBadRow = "fail") -> SourceFrame:
    """Return how Spark reads all that a table holds now."""
    return frame_source(_read_by_spark(spark.read, table, _source_of(table)), table, on_bad_row)


def check_source(spark: SparkSession, table: Table, on_bad_row: OnBadRow = "fail") -> None:
    """Raise if a table cannot be read; nothing is remembered of it."""
    source = _source_of(table)
    if is_read_by_engine(source):
        FileSource.of(table, on_bad_row).place.check(is_followed=True)
    else:
        frame_source(_read_by_spark(spark.readStream.name("source"), table, source), table, on_bad_row)


def _source_of(table: Table) -> External:
    if table.source is None:
        raise fail(
            Code.BAD_DEFINITION,
            f"nothing says where the rows of '{table.name}' come from",
            hint="add FROM csv OPTIONS (path '..') to its definition",
        )
    return table.source


def frame_source(frame: DataFrame, table: Table, on_bad_row: OnBadRow = "fail") -> SourceFrame:
    """Return how a table is read from a DataFrame; its columns go by name."""
    layout = layout_of(table)
    layout.check_named("a DataFrame")
    fields = [_field(frame, table, column) for column in layout.fields]
    columns = [f.col(f"`{field.name}`").alias(f"f{at}") for at, field in enumerate(fields)]
    extra = [f.col(name) for name in (PLACE, _CORRUPT) if name in frame.columns]
    if PLACE not in frame.columns:
        extra.insert(0, f.lit("").alias(PLACE))
    if layout.ahead is not None and layout.time is TimeDomain.TIMESTAMP:
        extra.append(f.unix_micros(f.current_timestamp()).alias(NOW))
    chosen = frame.select(*columns, *extra)
    reader = ColumnReader(layout, on_bad_row)
    native = _native(chosen, table, layout, fields) if _CORRUPT not in frame.columns else None
    return SourceFrame(table, chosen, reader, native)


# Files that the engine reads


@dataclass(frozen=True)
class FileReader:
    """Reads the files that a frame has tickets for, as the local engine does."""

    source: FileSource

    def parts(self, batches: Iterable[pa.RecordBatch], newest: int | None = None) -> Iterator[SourcePart]:
        """Yield the rows of the files that some batches name the tickets of."""
        names = (name for batch in batches for name in batch.column(0).to_pylist())
        for file in sorted(map(read_ticket, names), key=lambda file: file.number):
            newest = yield from self.parts_of(file, newest)

    def parts_of(self, file: SourceFile, newest: int | None = None) -> Generator[SourcePart, None, int | None]:
        """Yield the rows of a file, and at its end what was left out after them; at least one part."""
        place = f"{file.number:012}"
        rows = self.source.rows([] if file.is_withdrawn else [file], newest)
        skipped = 0
        for some in rows:
            yield SourcePart(some, place, rows.skipped - skipped, is_ordered=True)
            skipped = rows.skipped
        yield SourcePart(no_rows(self.source.table), place, rows.skipped - skipped, is_ordered=True)
        return rows.newest


# Everything that Spark reads


def _read_by_spark(reader: DataStreamReader | DataFrameReader, table: Table, source: External) -> DataFrame:
    opened, known = reader.format(source.format), connector(source.format)
    options = dict(source.options)
    path = next((key for key in options if key.casefold() == "path"), None)
    if path is not None and known.is_in_files and not is_remote(options[path]):
        Place(options[path]).check(is_followed=isinstance(reader, DataStreamReader))
        options[path] = spark_path(options[path], isinstance(reader, DataStreamReader))
    is_parsed = "columnNameOfCorruptRecord" in known.spark_options
    if known.is_in_files:
        opened = opened.schema(_declared_schema(layout_of(table), with_corrupt=is_parsed))
        options = {"maxFileAge": _EVER, **options}
    if is_parsed:
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    try:
        frame = opened.options(**options).load()
    except Exception as error:
        raise translate(error) or cannot_read(table.name, source.format, error) from error
    return _with_place(frame) if known.is_in_files else frame


def spark_path(path: str, streaming: bool) -> str:
    """Return the path by which Spark finds the same files; its file streams do not take that of a single file.

    >>> spark_path("/none/[1].csv", streaming=True)
    'file:/none/[1].csv'
    """
    absolute = os.path.abspath(path)
    if not os.path.exists(absolute):
        return f"file:{absolute}"
    pattern = escaped(absolute)
    if streaming and pattern == absolute and not os.path.isdir(absolute):
        folder, name = os.path.split(absolute)
        pattern = os.path.join(folder, re.sub(r"([A-Za-z0-9])(?=[^A-Za-z0-9]*$)", r"[\1]", name))
    return f"file:{pattern}"


def _declared_schema(layout: RowLayout, with_corrupt: bool) -> s.StructType:
    fields = [s.StructField(column.name, spark_type(column.type)) for column in layout.fields]
    return s.StructType([*fields, s.StructField(_CORRUPT, s.StringType())] if with_corrupt else fields)


def _with_place(frame: DataFrame) -> DataFrame:
    """Return a frame of files with where each row stands, as far as Spark knows."""
    start = f.lpad(f.col("_metadata.file_block_start").cast("string"), 15, "0")
    return frame.select("*", f.concat(f.col("_metadata.file_path"), f.lit("#"), start).alias(PLACE))


def _field(frame: DataFrame, table: Table, column: ColumnModel) -> s.StructField:
    """Return the column of a frame that a column of a table is; raises if there is none, or of another type."""
    same = [field for field in frame.schema.fields if field.name.casefold() == column.name.casefold()]
    exact = [field for field in same if field.name == column.name]
    if len(exact or same) != 1:
        known = [name for name in frame.columns if name not in (PLACE, _CORRUPT)]
        guesses = nearest(column.name, known)
        message = f"the source of '{table.name}' has no column '{column.name}'"
        raise fail(Code.BAD_FILE, message, hint=f"its columns are {', '.join(known[:8])}", candidates=guesses)
    found = (exact or same)[0]
    if not _is_convertible(found.dataType, column.type):
        raise fail(
            Code.BAD_FILE,
            f"the source of '{table.name}' has {found.dataType.simpleString()} in the column '{found.name}', which is "
            f"declared {column.type}",
            hint="declare the column as the source has it, and CAST it in the query",
        )
    return found


def _is_convertible(found: s.DataType, declared: DataType) -> bool:
    if isinstance(found, s.StringType) or (isinstance(found, s.BinaryType) and declared.kind is Kind.STRING):
        return True
    try:
        return fits(to_arrow_type(found, timezone="UTC"), declared)
    except Exception:
        return False


@dataclass(frozen=True)
class ColumnReader:
    """Makes rows of columns that Spark has read: `f0`, `f1`, .. in the order of the layout, and the place."""

    layout: RowLayout
    on_bad_row: OnBadRow

    def parts(self, batches: Iterable[pa.RecordBatch], newest: int | None = None) -> Iterator[SourcePart]:
        """Yield the rows of some batches, those of each place apart."""
        intake = Intake(self.layout, self.on_bad_row, newest)
        place, seen = "", 0
        for batch in batches:
            for run in place_runs(batch):
                here = run.column(PLACE)[0].as_py()
                seen = seen if here == place else 0
                place, before = here, intake.skipped
                rows = intake.take(self._chunk(run, place, seen))
                yield SourcePart(rows, place, intake.skipped - before)
                seen += len(run)

    def _chunk(self, run: pa.RecordBatch, place: str, seen: int) -> FileChunk:
        numbers = np.arange(seen + 1, seen + len(run) + 1, dtype=np.int64)
        malformed: list[Malformed] = []
        if _CORRUPT in run.schema.names:
            run, numbers, malformed = _without_corrupt(run, numbers)
        found = [run.column(f"f{at}") for at in range(len(self.layout.fields))]
        values = [as_type(array, field.type) for array, field in zip(found, self.layout.fields, strict=True)]
        bad = {at: wrong for at, (_, wrong) in enumerate(values) if wrong is not None}
        file = re.sub("^file:/+", "/", place.partition("#")[0]) or f"the source of '{self.layout.table}'"

        def raw(at: int, row: int) -> str:
            value = found[at][row].as_py()
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

        now = run.column(NOW)[0].as_py() if NOW in run.schema.names and len(run) else None
        return FileChunk(file, "row", [array for array, _ in values], bad, lambda: numbers, raw, malformed, now)


def place_runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the parts of a batch that have one place each."""
    first = 0
    for end in pc.run_end_encode(batch.column(PLACE)).run_ends.to_pylist() if len(batch) else ():
        yield batch.slice(first, end - first)
        first = end


def _without_corrupt(run: pa.RecordBatch, numbers: Ints) -> tuple[pa.RecordBatch, Ints, list[Malformed]]:
    """Return the rows that Spark could read, and the others as lines that are no rows."""
    texts = run.column(_CORRUPT)
    is_read = np.asarray(texts.is_null())
    lost = zip(numbers[~is_read].tolist(), texts.drop_null().to_pylist(), strict=True)
    malformed = [Malformed(number, f"Spark cannot read {text[:40]!r}") for number, text in lost]
    return run.filter(pa.array(is_read)), numbers[is_read], malformed


# Spark's own columns


def _native(frame: DataFrame, table: Table, layout: RowLayout, fields: list[s.StructField]) -> DataFrame | None:
    """Return the typed columns of a frame, or None if a value could be none of its type."""
    if goes_by_order(layout):
        return None
    columns: list[Column] = []
    for at, (field, column) in enumerate(zip(fields, layout.fields, strict=True)):
        value = _total(f.col(f"f{at}"), field.dataType, column.type)
        if value is None:
            return None
        columns.append(value)
    made = [columns[at].alias(f"c{number}") for number, at in enumerate(layout.payload)]
    complaints: list[Column] = []
    if layout.instant is None:
        made.append(f.lit(BEGINNING).cast("bigint").alias(INSTANT))
    else:
        instant = _ticks(columns[layout.instant], layout.fields[layout.instant].type)
        made.append(instant.alias(INSTANT))
        complaints.append(f.when(instant.isNull() | instant.isin(BEGINNING, FOREVER), "no instant"))
        if layout.ahead is not None:
            complaints.append(f.when(instant > f.col(NOW) + layout.ahead, f"an instant {ahead_text(layout)}"))
    if layout.sign is not None:
        text = f.trim(columns[layout.sign].cast("string"))
        made.append(f.when(text.isin("+", "1"), 1).when(text.isin("-", "-1"), -1).cast("int").alias(SIGN))
        complaints.append(f.when(text.isNull() | ~text.isin("+", "-", "1", "-1"), "no sign"))
    for at, column in enumerate(layout.fields):
        if not column.nullable and at not in (layout.instant, layout.sign):
            complaints.append(f.when(columns[at].isNull(), f"{layout.title(at)} is NULL"))
    bad = f.coalesce(*complaints) if complaints else f.lit(None)
    return frame.select(*made, f.col(PLACE), bad.cast("string").alias(BAD))


_WIDTHS: dict[type[s.DataType], int] = {s.ByteType: 1, s.ShortType: 2, s.IntegerType: 4, s.LongType: 8}
_NARROWEST = {Kind.BYTE: 1, Kind.INT: 4, Kind.BIGINT: 8}


def _total(column: Column, found: s.DataType, declared: DataType) -> Column | None:
    """Return a column as values of a type if all of its values are."""
    width = _WIDTHS.get(type(found), 99)
    match declared.kind:
        case Kind.BYTE | Kind.INT | Kind.BIGINT if width <= _NARROWEST[declared.kind]:
            return column.cast(spark_type(declared))
        case Kind.DOUBLE if width <= 8 or isinstance(found, s.FloatType | s.DoubleType):
            return f.nanvl(column.cast("double") + f.lit(0.0), f.lit(float("nan")))
        case Kind.TIMESTAMP if isinstance(found, s.TimestampType | s.TimestampNTZType):
            return column.cast("timestamp_ntz")
        case _ if found == spark_type(declared):
            return column
    return None


def _ticks(column: Column, data_type: DataType) -> Column:
    """Return instants as numbers; the session is on UTC."""
    if data_type.kind is Kind.TIMESTAMP:
        return f.unix_micros(column.cast("timestamp"))
    return column.cast("bigint")


def _typed_schema(table: Table) -> s.StructType:
    payload = [s.StructField(f"c{at}", spark_type(column.type)) for at, column in enumerate(table.columns)]
    sign = [s.StructField(SIGN, s.IntegerType())] if layout_of(table).sign is not None else []
    texts = [s.StructField(name, s.StringType()) for name in (PLACE, BAD)]
    return s.StructType([*payload, s.StructField(INSTANT, s.LongType()), *sign, *texts])


def _as_columns(reader: PartReader, table: Table) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what `typed` does in a task."""
    schema = pa.schema([(field.name, to_arrow_type(field.dataType)) for field in _typed_schema(table)])

    def columns(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying():
            for part in reader.parts(batches):
                yield from _typed(part, schema)

    return columns


def _typed(part: SourcePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    n = len(part.rows)
    signs = [pa.array(part.rows.signs, pa.int32())] if part.rows.signs is not None else []
    place = pa.repeat(part.place, n)
    arrays = [*part.rows.columns, pa.array(part.rows.instants), *signs, place, pa.nulls(n, pa.string())]
    yield pa.record_batch(arrays, schema=schema)
    if part.skipped:
        none = [pa.nulls(part.skipped, field.type) for field in schema]
        none[-1] = pa.repeat("left out", part.skipped)
        yield pa.record_batch(none, schema=schema)


# Errors on their way to the driver


class TaskFailed(Exception):
    """An error for the user, written so that it survives as a part of other errors' texts."""


_CARRIED = re.compile(r'<cql-error (\{"diagnostics".*?\}) cql-error>')


@contextmanager
def carrying() -> Iterator[None]:
    """Turn errors for the user into such that `translate` reads from whatever Spark makes of them."""
    attempt = Attempt()
    if attempt.error:
        raise TaskFailed(attempt.error)
    try:
        yield
    except CqlError as error:
        text = carried(error)
        attempt.fails_with(text)
        raise TaskFailed(text) from None


def carried(error: CqlError) -> str:
    """Return an error for the user as a text that `translate` finds in other texts."""
    return f"<cql-error {_to_json(error)} cql-error>"


def _to_json(error: CqlError) -> str:
    found = [(d.code.name, d.message, (d.span.start, d.span.end), d.hint, d.candidates) for d in error.diagnostics]
    return json.dumps({"diagnostics": found}).replace(">", "\\u003e")


def _from_json(text: str) -> CqlError:
    found: list[Any] = json.loads(text)["diagnostics"]
    return CqlError(
        [Diagnostic(Code[code], text, Span(*span), hint, tuple(more)) for code, text, span, hint, more in found]
    )


_MEANINGS: list[tuple[str, Code, str, str]] = [
    (
        r"PATH_NOT_FOUND\] (?:Path does not exist: )?(?P<what>\S+?)\.? ",
        Code.NO_FILE,
        "there is no file '{what}'",
        "check the path",
    ),
    (
        r"FILE_NOT_EXIST|FileNotFoundException|Option 'basePath' not found",
        Code.NO_FILE,
        "a file of a source has disappeared while it was read",
        "leave files in their places until they are read, or set ignoreMissingFiles",
    ),
    (
        r"(?:DATA_SOURCE_NOT_FOUND|KAFKA_DATA_SOURCE_NOT_ENABLED)\] .*?data source: (?P<what>[^\s.]+)",
        Code.BAD_DEFINITION,
        "Spark has no data source '{what}'",
        "start Spark with the package that has it: spark.jars.packages",
    ),
    (
        r"ConnectException|UnknownHostException|Connection refused",
        Code.NO_FILE,
        "a source cannot be reached: the connection is refused",
        "check its host and port, and that it is running",
    ),
    (
        r"(?P<what>No space left on device|Disk quota exceeded|Read-only file system|Permission denied)",
        Code.CANNOT_WRITE,
        "Spark cannot write: {what}",
        "check the checkpoint, its permissions and the disk",
    ),
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|Concurrent update to the log|ConcurrentModification",
        Code.CANNOT_WRITE,
        "another run uses the same checkpoint",
        "stop it, or give this one a checkpoint of its own",
    ),
    (
        r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_INVALID_PROVIDER|STREAMING_STATEFUL_OPERATOR_",
        Code.BAD_FILE,
        "the checkpoint was made by other queries or another version",
        "start from a new checkpoint",
    ),
    (
        r"(?P<what>FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|PARQUET_COLUMN_DATA_TYPE_MISMATCH|CANNOT_MERGE_SCHEMAS)",
        Code.BAD_FILE,
        "a file of a source is damaged, or its columns have changed ({what})",
        "write it again with the columns that are declared",
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<what>[^']+)'",
        Code.MISSING,
        "the Python processes of Spark have no module '{what}'",
        "ship it with the job: spark-submit --py-files for this package, --archives for those it needs",
    ),
    (
        r"Python worker failed to connect back",
        Code.TOO_SLOW,
        "a Python process of Spark did not start in time",
        "the machine may have too much to do, or too little memory; a run with a checkpoint goes on from there",
    ),
    (
        r"Python worker exited unexpectedly",
        Code.PROCESS_ENDED,
        "a Python process of Spark ended while it worked",
        "it may have been killed for want of memory; a run with a checkpoint goes on from there. A session of one "
        "machine tries a task again if its master says so: local[2, 4]",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\] (?P<what>Python in worker .*?), PySpark",
        Code.VERSIONS,
        "Spark runs another Python than this one: {what}",
        "set PYSPARK_PYTHON to a Python of this version that all machines have",
    ),
]


def translate(error: BaseException) -> CqlError | None:
    """Return what an error of Spark means to the user; None if it is none that is known."""
    if isinstance(error, CqlError):
        return error
    text = f"{error} "
    carried = _CARRIED.search(text)
    if carried:
        return _from_json(carried[1])
    for pattern, code, message, hint in _MEANINGS:
        found = re.search(pattern, text)
        if found:
            return fail(code, message.format(**found.groupdict()), hint=hint)
    return None
