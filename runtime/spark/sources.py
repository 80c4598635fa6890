"""Sources on Spark: a DataFrame for each table, and what makes rows of it inside a task.

Files that the engine can read are read by the engine. Spark says which files a micro-batch has (its file source keeps
the log of what was read, and the pace), and the task opens them with the readers of the local engine: the same values,
the same bad rows, the same messages, by construction. Everything else is read by Spark: its columns are found by name
and converted as those of a Parquet file are. A file is read by one task, from its start to its end.

What goes wrong in a task reaches the driver as text only; `carrying` writes an error so that `translate` can read it.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from cql.options import SOURCE_OPTIONS
from cql.source import Span
from cql.types import DataType, Kind
from runtime.batch import BEGINNING, FOREVER, Columns, Ints
from runtime.formats import Rows, open_source
from runtime.formats.options import READS
from runtime.formats.parquet_files import converted, fits
from runtime.formats.paths import files_of, is_remote
from runtime.formats.rows import Chunk, Intake, Layout, Malformed, OnBadRow, layout_of
from runtime.formats.values import Converted, decoded, from_text
from runtime.spark.columns import spark_type

Table = StreamDef | RelationDef

INSTANT, SIGN, PLACE, BAD = "instant", "sign", "place", "bad"
"""The columns of `SourceFrame.typed` beside the payload `c0`, `c1`, .."""

FILE_LIST = "path string, modificationTime timestamp, length bigint, content binary"
_FILE_OPTIONS = {key.casefold() for key in SOURCE_OPTIONS["parquet"]} - {"path", "mergeschema"}
_READ_BY_TYPES = {"inferschema", "samplingratio", "enforceschema", "mergeschema"}
"""Options that say how to find out types, which are declared here."""
_IN_FILES = ("csv", "json", "parquet", "orc", "avro", "text", "xml")
_CORRUPT = "_corrupt_record"
_SPECIAL_IN_GLOBS = re.compile(r"([\\{}\[\]*?])")


@dataclass(frozen=True, slots=True)
class Part:
    """Good rows in the order of their source; parts of one place come one after the other, and places are in order."""

    rows: Rows
    place: str = ""
    skipped: int = 0
    """How many bad rows were left out since the part before."""


class PartReader(Protocol):
    """What makes rows of the batches of a frame; it is sent to the tasks."""

    def parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """Yield the rows of some batches; called in a task, with the batches of one partition."""
        ...


@dataclass(frozen=True)
class SourceFrame:
    """How a table is read: `reader` makes rows of what `frame` hands to a task.

    `native` holds the same rows in Spark's own columns, for work that never goes to Python; None if only the reader
    can make them.
    """

    table: Table
    frame: DataFrame
    reader: PartReader
    native: DataFrame | None = None

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
            _check_path(self.reader.path, streaming=True)


def source_frame(
    spark: SparkSession,
    table: Table,
    on_bad_row: OnBadRow = "fail",
    streaming: bool = True,
    native: bool = False,
    name: str | None = None,
) -> SourceFrame:
    """Return how Spark reads a table; with `native`, by Spark's own reader if it reads the same.

    `name` is what the checkpoint of a streaming query knows the source by.
    """
    if table.source is None:
        raise fail(
            Code.BAD_DEFINITION,
            f"nothing says where the rows of '{table.name}' come from",
            hint="add FROM csv OPTIONS (path '..') to its definition",
        )
    if not is_read_by_engine(table.source):
        frame = _read_by_spark(_opened(spark, streaming, name), table, table.source, streaming)
        return frame_source(frame, table, on_bad_row)
    reader = FileReader.of(table, table.source, on_bad_row, streaming)
    _check_path(reader.path, streaming)
    place = spark_path(reader.path, streaming)
    options = {key: text for key, text in table.source.options.items() if key.casefold() in _FILE_OPTIONS}
    opened = _opened(spark, streaming, name).options(**options)
    if native and table.source.format == "parquet":
        schema = spark.read.parquet(spark_path(str(files_of(reader.path)[0]), streaming=False)).schema
        found = _native_parquet(opened.format("parquet").schema(schema).load(place), table, on_bad_row)
        if found is not None:
            return found
    files = opened.format("binaryFile").schema(FILE_LIST).load(place)
    return SourceFrame(table, files.select("path"), reader)


def frame_source(frame: DataFrame, table: Table, on_bad_row: OnBadRow = "fail") -> SourceFrame:
    """Return how a table is read from a DataFrame; its columns go by name."""
    layout = layout_of(table)
    if not layout.is_named:
        raise fail(
            Code.BAD_DEFINITION,
            f"the timestamp of '{table.name}' has no name, and columns of a DataFrame are found by name",
            hint="define it by CREATE .. TIMESTAMP BY column",
        )
    fields = [_field(frame, table, column) for column in layout.fields]
    columns = [f.col(f"`{field.name}`").alias(f"f{at}") for at, field in enumerate(fields)]
    extra = [f.col(name) for name in (PLACE, _CORRUPT) if name in frame.columns]
    if PLACE not in frame.columns:
        extra.insert(0, f.lit("").alias(PLACE))
    chosen = frame.select(*columns, *extra)
    reader = ColumnReader(layout, on_bad_row)
    native = _native(chosen, table, layout, fields) if _CORRUPT not in frame.columns else None
    return SourceFrame(table, chosen, reader, native)


# Files that the engine reads


@dataclass(frozen=True)
class FileReader:
    """Reads the files that a frame names, as the local engine does."""

    table: Table
    """The table, with the options that its reader knows."""
    path: str
    on_bad_row: OnBadRow
    streaming: bool
    root: str
    """What to leave out of the names of files in messages, so that they are as the user wrote them."""

    @classmethod
    def of(cls, table: Table, source: External, on_bad_row: OnBadRow, streaming: bool = True) -> FileReader:
        """Return the reader of a table; raises if its options or columns do not go together."""
        options = {key.casefold(): text for key, text in source.options.items()}
        path = options.get("path", "").removeprefix("file:")
        known = {key: text for key, text in options.items() if key in map(str.casefold, READS[source.format])}
        read = table.model_copy(update={"source": External(format=source.format, options=known)})
        made = cls(read, path, on_bad_row, streaming, "" if os.path.isabs(path) else os.path.join(os.getcwd(), ""))
        open_source(made._at(os.devnull), on_bad_row)
        return made

    def parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """Yield the rows of the files that are named in some batches."""
        for batch in batches:
            for name in batch.column(0).to_pylist():
                yield from self._file(name)

    def _file(self, name: str) -> Iterator[Part]:
        path = re.sub("^file:/+", "/", name)
        skipped = 0
        try:
            self._check_name(path)
            source = open_source(self._at(path), self.on_bad_row)
            for rows in source:
                yield Part(rows, name, source.skipped - skipped)
                skipped = source.skipped
        except CqlError as error:
            raise CqlError([replace(d, message=d.message.replace(self.root, "")) for d in error.diagnostics]) from None
        if source.skipped > skipped:
            yield Part(_no_rows(self.table), name, source.skipped - skipped)

    def _check_name(self, path: str) -> None:
        """Raise for a name that Spark takes for a pattern: it hands out the other files of a micro-batch twice then."""
        if self.streaming and _SPECIAL_IN_GLOBS.search(path) and not os.path.samefile(self._absolute, path):
            raise fail(
                Code.BAD_FILE,
                f"'{path}' has one of {{}}[]*?\\ in its name, which Spark's file streams cannot read among others",
                hint="rename it",
            )

    @property
    def _absolute(self) -> str:
        return os.path.join(self.root, self.path)

    def _at(self, path: str) -> Table:
        assert self.table.source is not None
        options = {**self.table.source.options, "path": path}
        return self.table.model_copy(update={"source": External(format=self.table.source.format, options=options)})


def _no_rows(table: Table) -> Rows:
    intake = Intake(layout_of(table), "fail")
    none = [pa.nulls(0, to_arrow_type(spark_type(column.type))) for column in intake.layout.fields]
    return intake.take(Chunk("", "row", none, {}, lambda: np.empty(0, np.int64), lambda _, __: ""))


def is_read_by_engine(source: External) -> bool:
    """Return whether the engine's readers know a format, its options and the file system."""
    options = {key.casefold(): text for key, text in source.options.items()}
    known = {key.casefold() for key in READS.get(source.format, ())} | _FILE_OPTIONS | _READ_BY_TYPES
    encoding = options.get("encoding", options.get("charset", "utf-8")).lower()
    return (
        source.format in READS
        and (source.format == "stream" or (options.keys() <= known and encoding in ("utf-8", "utf8")))
        and not is_remote(options.get("path", ""))
    )


def _check_path(path: str, streaming: bool) -> None:
    """Raise if there is nothing to read. Files may still come into a folder, or to match a glob, if time goes on."""
    if not streaming or not (os.path.isdir(path) or glob.has_magic(path)):
        files_of(path)


def spark_path(path: str, streaming: bool) -> str:
    """Return the path by which Spark finds the same files; its file streams do not take that of a single file.

    >>> spark_path("/none/[1].csv", streaming=True)
    'file:/none/[1].csv'
    """
    absolute = os.path.abspath(path)
    if not os.path.exists(absolute):
        return f"file:{absolute}"
    escaped = _SPECIAL_IN_GLOBS.sub(r"\\\1", absolute)
    if streaming and escaped == absolute and not os.path.isdir(absolute):
        folder, name = os.path.split(absolute)
        escaped = os.path.join(folder, re.sub(r"([A-Za-z0-9])(?=[^A-Za-z0-9]*$)", r"[\1]", name))
    return f"file:{escaped}"


# Everything that Spark reads


def _opened(spark: SparkSession, streaming: bool, name: str | None) -> DataStreamReader | DataFrameReader:
    if not streaming:
        return spark.read
    return spark.readStream if name is None else spark.readStream.name(name)


def _read_by_spark(
    reader: DataStreamReader | DataFrameReader, table: Table, source: External, streaming: bool
) -> DataFrame:
    opened = reader.format(source.format)
    options = dict(source.options)
    path = next((key for key in options if key.casefold() == "path"), None)
    if path is not None and source.format in _IN_FILES and not is_remote(options[path]):
        _check_path(options[path], streaming)
        options[path] = spark_path(options[path], streaming)
    is_parsed = source.format in ("csv", "json")
    if source.format in _IN_FILES:
        opened = opened.schema(_declared_schema(layout_of(table), with_corrupt=is_parsed))
    if is_parsed:
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    try:
        frame = opened.options(**options).load()
    except Exception as error:
        raise translate(error) or error from error
    return _with_place(frame) if source.format in _IN_FILES else frame


def _declared_schema(layout: Layout, with_corrupt: bool) -> s.StructType:
    fields = [s.StructField(column.name, spark_type(column.type)) for column in layout.fields]
    return s.StructType([*fields, s.StructField(_CORRUPT, s.StringType())] if with_corrupt else fields)


def _with_place(frame: DataFrame) -> DataFrame:
    """Return a frame of files with where each row stands, as far as Spark knows."""
    start = f.lpad(f.col("_metadata.file_block_start").cast("string"), 15, "0")
    return frame.select("*", f.concat(f.col("_metadata.file_path"), f.lit("#"), start).alias(PLACE))


def _native_parquet(frame: DataFrame, table: Table, on_bad_row: OnBadRow) -> SourceFrame | None:
    """Return a table of Parquet files read by Spark; None if its reader would not read the same."""
    found = {name.casefold() for name in frame.columns}
    if not {column.name.casefold() for column in layout_of(table).fields} <= found:
        return None
    made = frame_source(_with_place(frame), table, on_bad_row)
    return made if made.native is not None else None


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

    layout: Layout
    on_bad_row: OnBadRow

    def parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """Yield the rows of some batches, those of each place apart."""
        intake = Intake(self.layout, self.on_bad_row)
        place, seen = "", 0
        for batch in batches:
            for run in place_runs(batch):
                here = run.column(PLACE)[0].as_py()
                seen = seen if here == place else 0
                place, before = here, intake.skipped
                rows = intake.take(self._chunk(run, place, seen))
                yield Part(rows, place, intake.skipped - before)
                seen += len(run)

    def _chunk(self, run: pa.RecordBatch, place: str, seen: int) -> Chunk:
        numbers = np.arange(seen + 1, seen + len(run) + 1, dtype=np.int64)
        malformed: list[Malformed] = []
        if _CORRUPT in run.schema.names:
            run, numbers, malformed = _without_corrupt(run, numbers)
        found = [run.column(f"f{at}") for at in range(len(self.layout.fields))]
        values = [_values(array, field.type) for array, field in zip(found, self.layout.fields, strict=True)]
        bad = {at: wrong for at, (_, wrong) in enumerate(values) if wrong is not None}
        file = re.sub("^file:/+", "/", place.partition("#")[0]) or f"the source of '{self.layout.table}'"

        def raw(at: int, row: int) -> str:
            value = found[at][row].as_py()
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

        return Chunk(file, "row", [array for array, _ in values], bad, lambda: numbers, raw, malformed)


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


def _values(array: pa.Array, data_type: DataType) -> Converted:
    """Return an array of Spark as values of a type."""
    if pa.types.is_binary(array.type):
        return decoded(array)
    if pa.types.is_string(array.type) and data_type.kind is not Kind.STRING:
        return from_text(array, data_type)
    return converted(array, data_type)


# Spark's own columns


def _native(frame: DataFrame, table: Table, layout: Layout, fields: list[s.StructField]) -> DataFrame | None:
    """Return the typed columns of a frame, or None if a value could be none of its type."""
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


def _typed(part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
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
    try:
        yield
    except CqlError as error:
        raise TaskFailed(carried(error)) from None


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
        Code.NOT_AVAILABLE,
        "the Python processes of Spark have no module '{what}'",
        "ship it with the job: spark-submit --py-files for this package, --archives for those it needs",
    ),
    (
        r"Python worker failed to connect back",
        Code.NOT_AVAILABLE,
        "a Python process of Spark did not start in time",
        "the machine may have too much to do, or too little memory; a run with a checkpoint goes on from there",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\] (?P<what>Python in worker .*?), PySpark",
        Code.NOT_AVAILABLE,
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
