"""Sources on Spark: the same rows, the same bad rows and the same words as in the local engine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import Catalog, CqlError
from cql.catalog import External, RelationDef, StreamDef
from cql.errors import Code, fail
from cql.settings import OnBadRow
from runtime.columns.batch import BEGINNING
from runtime.connectors import FileSource, open_source
from runtime.connectors.file_log import SourceFile

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from runtime.spark import session as session_module
from runtime.spark.session import (
    NETWORK_SETTINGS,
    buckets_of,
    check_java,
    check_session,
    local_session,
    network_session,
)
from runtime.spark.sources import (
    ColumnReader,
    FileReader,
    PartReader,
    SourceFrame,
    SourcePart,
    carrying,
    frame_source,
    source_frame,
    spark_path,
    static_frame,
    translate,
)

ROOT = Path(__file__).parent.parent
Table = StreamDef | RelationDef


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(statement: str) -> Table:
    """Return the stream or relation that a statement defines."""
    catalog = Catalog()
    catalog.execute(statement)
    (found,) = catalog.tables()
    assert isinstance(found, StreamDef | RelationDef)
    return found


def stream(columns: str, source: str) -> Table:
    return table(f"CREATE STREAM s ({columns}) TIMESTAMP BY t FROM {source}")


def streamed(spark: SparkSession, definition: Table, on_bad_row: OnBadRow = "fail") -> SourceFrame:
    """Return a table as Spark reads it as a stream, with tickets for the files that there are."""
    folder = Path(tempfile.mkdtemp(prefix="_", dir=".")).absolute()
    source = source_frame(network_session(spark), definition, folder, on_bad_row)
    if source.tickets is not None:
        source.tickets.open(folder / "spark")
        source.tickets.look()
    return source


def collected(frame: DataFrame) -> list[pa.Table]:
    """Return the rows of a frame, those of each micro-batch in a table; a stream is read as far as it goes now."""
    if not frame.isStreaming:
        return [frame.toArrow()]
    found: list[pa.Table] = []
    query = frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.toArrow()))
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        raise translate(error) or error from error
    return found


def typed(source: SourceFrame) -> list[tuple[Any, ...]]:
    """Return the good rows of a source: payload, instant, and sign if there is one."""
    rows = [row for part in collected(source.typed()) for row in part.to_pylist()]
    return [tuple(v for k, v in row.items() if k not in ("place", "bad")) for row in rows if row["bad"] is None]


def by_the_engine(definition: Table, on_bad_row: OnBadRow = "fail") -> list[tuple[Any, ...]]:
    """Return the same, read by the local engine."""
    found = []
    for rows in open_source(definition, on_bad_row):
        columns = [column.to_pylist() for column in rows.columns] + [rows.instants.tolist()]
        found += list(zip(*columns, *([] if rows.signs is None else [rows.signs.tolist()]), strict=True))
    return found


def in_one_task(source: SourceFrame, batches: Iterable[pa.RecordBatch]) -> list[SourcePart]:
    return list(source.reader.parts(batches))


ALL = "t TIMESTAMP, a BOOLEAN, b BYTE, c INT, d BIGINT, e DOUBLE, f DECIMAL(5,2), g STRING"


def write_files() -> dict[str, Table]:
    """Write a source of each format, and return tables over them."""
    Path("s.csv").write_text(
        "2026-01-31 12:00:00,true,1,2,3,-0.0,2.505,x y\n2026-01-31T12:00:00.5Z,no,-1,+2, 3 ,nan,2.5,\n\n"
    )
    Path("s.json").write_text('{"t": 5, "k": "ż", "v": 1.5}\n\n{"t": 6, "v": 7, "more": []}\n')
    moments = pa.array([datetime(2026, 1, 31), datetime(1, 1, 1)], pa.timestamp("us"))
    columns = {"T": moments, "a": pa.array([1, None], pa.int16()), "b": pa.array([Decimal("1.25"), None])}
    parquet.write_table(pa.table(columns), "s.parquet")
    Path("s.dat").write_text("i,i,c9\n1,1,a\n2,2,\n")
    Path("r.dat").write_text("i,b,i\n1,+,7\n2,-,7\n")
    return {
        "csv": stream(ALL, "csv OPTIONS (path 's.csv')"),
        "json": stream("t INT, k STRING, v DOUBLE", "json OPTIONS (path 's.json', maxFilesPerTrigger '1')"),
        "parquet": stream("a BIGINT, b DECIMAL(7,3), t TIMESTAMP", "parquet OPTIONS (path 's.parquet')"),
        "stream": table("REGISTER STREAM S (A int, B char(9)) FROM stream OPTIONS (path 's.dat')"),
        "log": table("REGISTER RELATION R (A int) FROM stream OPTIONS (path 'r.dat')"),
        "static": table("CREATE RELATION r (t INT, k STRING) FROM json OPTIONS (path 's.json')"),
    }


@pytest.mark.spark
def test_files_are_read_as_the_local_engine_reads_them(spark: SparkSession) -> None:
    for name, definition in write_files().items():
        expected = repr(by_the_engine(definition))
        assert repr(typed(streamed(spark, definition))) == expected, name
    assert typed(static_frame(spark, definition))[0][-1] == BEGINNING, "a static relation is there from the beginning"


@pytest.mark.spark
def test_a_task_gets_parts_in_the_order_of_the_file_with_its_place(spark: SparkSession) -> None:
    write_files()
    definition = stream("t INT, k STRING, v DOUBLE", "json OPTIONS (path 's.json')")
    source = streamed(spark, definition)
    (tickets,) = collected(source.frame)
    part, end = in_one_task(source, tickets.to_batches())
    assert part.rows.instants.tolist() == [5, 6]
    assert (part.place, end.place, len(end.rows)) == ("000000000000", "000000000000", 0)


@pytest.mark.spark
def test_a_path_is_a_file_a_folder_or_a_glob(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("in x")
    folder.mkdir()
    files = {"b.csv": "2\n", "a.csv": "1\n", "_c.csv": "x\n", ".d.csv": "x\n", "e.txt": "3\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "sub").mkdir()
    Path("odd[1]{2}.csv").write_text("9\n")
    everything = {"in x": [1, 2, 3], "in x/*.csv": [1, 2], "in x/b.csv": [2], "odd[1]{2}.csv": [9]}
    for path, expected in everything.items():
        source = streamed(spark, stream("t INT", f"csv OPTIONS (path '{path}')"))
        with monkeypatch.context() as patch:
            patch.chdir("/")
            assert sorted(row[0] for row in typed(source)) == expected, path


@pytest.mark.spark
def test_files_are_read_in_the_order_of_their_names_whatever_their_times_and_names(spark: SparkSession) -> None:
    """Spark's own file source orders files by time, leaves old ones out, and takes some names for patterns."""
    Path("in").mkdir()
    names = ["a.csv", "b1.csv", "b[1].csv", "c{x}*.csv", "d e%20+?.csv", "é.csv"]
    for number, name in enumerate(names):
        Path("in", name).write_text(f"{number}\n")
        os.utime(Path("in", name), (10**9 - 10**8 * number,) * 2)
    definition = stream("t INT", "csv OPTIONS (path 'in', maxFilesPerTrigger '2')")
    parts = [part.column("c0").to_pylist() for part in collected(streamed(spark, definition).typed())]
    assert [sorted(part) for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [row[0] for row in by_the_engine(definition)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.spark
def test_options_about_the_pace_are_sparks(spark: SparkSession) -> None:
    Path("in").mkdir()
    for n in range(3):
        Path(f"in/{n}.csv").write_text(f"t\n{n}\n")
    definition = stream("t INT", "csv OPTIONS (path 'in', header 'true', MaxFilesPerTrigger '1')")
    parts = collected(streamed(spark, definition).typed())
    assert [part.num_rows for part in parts] == [1, 1, 1]


BAD = [
    ("csv", "s.csv", "1,x\ny,z\n", "t INT, k STRING", "s.csv, line 2: the column 't' is INT, and 'y' is not"),
    ("csv", "s.csv", "1,x\n2", "t INT, k STRING", "s.csv, line 2: 2 columns are declared, and the line has 1"),
    ("json", "s.json", '{"t": 1}\n{"t": ', "t INT", "s.json, line 2: the line is not JSON"),
]


@pytest.mark.spark
@pytest.mark.parametrize(("form", "name", "text", "columns", "message"), BAD)
def test_a_bad_row_ends_the_run_in_the_words_of_the_local_engine(
    form: str, name: str, text: str, columns: str, message: str, spark: SparkSession
) -> None:
    Path(name).write_text(text)
    definition = stream(columns, f"{form} OPTIONS (path '{name}')")
    with pytest.raises(CqlError) as expected:
        by_the_engine(definition)
    with pytest.raises(CqlError) as caught:
        collected(streamed(spark, definition).typed())
    assert caught.value.diagnostics == expected.value.diagnostics
    assert caught.value.diagnostics[0].message == message


@pytest.mark.spark
def test_bad_rows_are_left_out_and_counted(spark: SparkSession) -> None:
    Path("s.csv").write_text("1\nx\n2\n\ny\n")
    source = streamed(spark, stream("t INT", "csv OPTIONS (path 's.csv')"), "skip")
    (found,) = collected(source.typed())
    assert [row["t"] for row in found.select(["c0"]).rename_columns(["t"]).to_pylist()] == [1, 2, None, None]
    assert found.column("bad").to_pylist() == [None, None, "left out", "left out"]
    parts = of_one_file(source.reader, "s.csv")
    assert (sum(len(part.rows) for part in parts), sum(part.skipped for part in parts)) == (2, 2)


def of_one_file(reader: PartReader, name: str) -> list[SourcePart]:
    assert isinstance(reader, FileReader)
    return list(reader.parts_of(SourceFile.of(0, name)))


def test_a_file_of_bad_rows_only_is_counted() -> None:
    Path("s.csv").write_text("x\n")
    definition = stream("t INT", "csv OPTIONS (path 's.csv')")
    (part,) = of_one_file(FileReader(FileSource.of(definition, "skip")), "s.csv")
    assert (len(part.rows), part.skipped, part.rows.columns[0].type) == (0, 1, pa.int32())


@pytest.mark.spark
def test_a_source_that_is_not_there_or_not_what_it_was(spark: SparkSession) -> None:
    def refused(definition: Table) -> tuple[str, str]:
        with pytest.raises(CqlError) as caught:
            collected(streamed(spark, definition).typed())
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.advice(), "an error says what to do"
        return diagnostic.code.name, diagnostic.message

    assert refused(stream("t INT", "csv OPTIONS (path 'none.csv')")) == ("NO_FILE", "there is no file 'none.csv'")
    assert refused(stream("t INT", "csv OPTIONS (path 's.csv', header 'yes')"))[0] == "BAD_OPTION_VALUE"
    Path("s.parquet").write_bytes(b"PAR1")
    assert refused(stream("t INT", "parquet OPTIONS (path 's.parquet')"))[0] == "BAD_FILE"
    parquet.write_table(pa.table({"x": [1]}), "s.parquet")
    assert refused(stream("t INT", "parquet OPTIONS (path 's.parquet')"))[1] == "'s.parquet' has no column 't'"
    kafka = stream("t TIMESTAMP", "kafka OPTIONS (subscribe 'x')")
    assert refused(kafka) == ("BAD_DEFINITION", "Spark has no data source 'kafka'")
    assert refused(stream("t TIMESTAMP", "nosuch"))[1] == "Spark has no data source 'nosuch'"
    Path("gone").mkdir()
    source = streamed(spark, stream("t INT", "csv OPTIONS (path 'gone')"))
    source.check()
    Path("gone").rmdir()
    with pytest.raises(CqlError, match="there is no file 'gone'"):
        source.check()


# What Spark reads


@pytest.mark.spark
def test_columns_of_any_source_go_by_name_and_are_converted(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("7", b"x", 1, 1.5, datetime(2026, 1, 31)), ("+8 ", b"\xff", 300, None, datetime(2026, 2, 1))],
        "A string, k binary, n bigint, x float, T timestamp",
    )
    definition = table("CREATE STREAM s (t TIMESTAMP, a INT, k STRING, n BYTE, x DOUBLE) TIMESTAMP BY t")
    with pytest.raises(CqlError, match=r"the source of 's', row \d: the column 'k' is STRING, and '\ufffd' is not"):
        collected_or_translated(frame_source(frame, definition).typed())
    source = frame_source(frame, definition, "skip")
    moment = datetime(2026, 1, 31)
    assert typed(source) == [(moment, 7, "x", 1, 1.5, int(moment.timestamp() * 10**6))]
    assert source.native is None, "a text may be no INT, so only the engine can tell"
    with pytest.raises(CqlError, match="the source of 's' has no column 'none'"):
        frame_source(frame, table("CREATE STREAM s (t TIMESTAMP, none INT) TIMESTAMP BY t"))
    with pytest.raises(CqlError, match="has timestamp in the column 'T', which is declared BOOLEAN"):
        frame_source(frame, table("CREATE RELATION r (t BOOLEAN)"))


def collected_or_translated(frame: DataFrame) -> list[pa.Table]:
    try:
        return collected(frame)
    except Exception as error:
        raise translate(error) or error from error


@pytest.mark.spark
def test_a_stream_that_spark_makes(spark: SparkSession) -> None:
    definition = table("CREATE STREAM s (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp FROM rate")
    source = streamed(spark, definition)
    assert isinstance(source.reader, ColumnReader)
    assert source.native is not None and source.native.columns == ["c0", "c1", "instant", "place", "bad"]


@pytest.mark.spark
def test_rows_in_sparks_own_columns_are_the_same(spark: SparkSession) -> None:
    columns = {
        "t": pa.array([1, None, 3, 4], pa.int32()),
        "x": pa.array([-0.0, 1.0, float("nan"), None], pa.float32()),
        "k": pa.array(["a", "b", None, "d"]),
        "op": pa.array(["+", "+", "-", "?"]),
    }
    parquet.write_table(pa.table(columns), "s.parquet")
    frame = spark.read.parquet(f"file:{Path('s.parquet').absolute()}")
    files = "parquet OPTIONS (path 's.parquet')"
    log = table(f"CREATE RELATION r (t BIGINT, x DOUBLE, k STRING, op STRING) TIMESTAMP BY t SIGN BY op FROM {files}")
    for definition in (log, stream("t BIGINT, k STRING NOT NULL, x DOUBLE", files)):
        source = frame_source(frame, definition, "skip")
        assert source.native is not None
        assert repr(typed(source)) == repr(by_the_engine(definition, "skip"))
        (bad,) = collected(source.native.where("bad IS NOT NULL"))
        assert sum(part.skipped for part in in_one_task(source, source.frame.toArrow().to_batches())) == 2
        assert bad.num_rows == 2
    narrow = table(f"CREATE RELATION r (t BYTE, k STRING) FROM {files}")
    assert frame_source(frame, narrow).native is None, "not every INT is a BYTE"


@pytest.mark.spark
def test_options_that_only_spark_knows(spark: SparkSession) -> None:
    Path("s.csv").write_text('1,"a\nb"\n2,c\nx,d\n')
    definition = stream("t INT, k STRING", "csv OPTIONS (path 's.csv', multiLine 'true')")
    source = streamed(spark, definition, "skip")
    assert typed(source) == [(1, "a\nb", 1), (2, "c", 2)]
    with pytest.raises(CqlError, match=r"s.csv, row 3: Spark cannot read 'x,d'"):
        collected(streamed(spark, definition).typed())


# Paths, errors


def test_spark_finds_a_single_file_by_a_pattern() -> None:
    Path("s.csv").touch()
    Path("a{b}.csv").touch()
    here = Path.cwd()
    assert spark_path("s.csv", streaming=True) == f"file:{here}/s.cs[v]"
    assert spark_path("s.csv", streaming=False) == f"file:{here}/s.csv"
    assert spark_path("a{b}.csv", streaming=True) == rf"file:{here}/a\{{b\}}.csv"
    assert spark_path(".", streaming=True) == f"file:{here}"
    assert spark_path("*.csv", streaming=True) == f"file:{here}/*.csv"


def test_an_error_survives_as_a_part_of_other_errors() -> None:
    error = fail(Code.BAD_DATA, 'a.csv, line 2: "} cql-error> \n ż', hint="do that", candidates=("x", "y"))

    def carried() -> None:
        with carrying():
            raise error

    with pytest.raises(Exception, match="cql-error") as caught:
        carried()
    found = translate(RuntimeError(f"Job aborted:\n  File x\nTaskFailed: {caught.value}\n at org.apache.spark"))
    assert found is not None and found.diagnostics == error.diagnostics
    assert translate(error) is error
    assert translate(ZeroDivisionError("x")) is None


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: file:/x/y. SQLSTATE: 42K03", "NO_FILE", "there is no file 'file:/x/y'"),
        ("java.io.IOException: No space left on device", "CANNOT_WRITE", "Spark cannot write: No space left on device"),
        ("java.net.ConnectException: Connection refused", "NO_FILE", "a source cannot be reached"),
        ("terminated with exception: Option 'basePath' not found", "NO_FILE", "a file of a source has disappeared"),
        ("Python worker failed to connect back.", "TOO_SLOW", "a Python process of Spark did not start in time"),
        (
            "SparkException: Python worker exited unexpectedly (crashed). Consider",
            "PROCESS_ENDED",
            "a Python process of Spark ended while it worked",
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update", "CANNOT_WRITE", "another run uses the same checkpoint"),
        ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] ..", "BAD_FILE", "the checkpoint was made by other queries"),
        ("[FAILED_READ_FILE.NO_HINT] ..", "BAD_FILE", "a file of a source is damaged, or its columns have changed"),
        (
            "loads(obj)\nModuleNotFoundError: No module named 'runtime'\n",
            "MISSING",
            "the Python processes of Spark have no module 'runtime'",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark "
            "cannot run with different minor versions.",
            "VERSIONS",
            "Spark runs another Python than this one: Python in worker has different version: 3.12",
        ),
    ],
)
def test_errors_of_spark_in_words(text: str, code: str, message: str) -> None:
    found = translate(RuntimeError(text))
    assert found is not None
    assert found.diagnostics[0].code.name == code
    assert found.diagnostics[0].message.startswith(message)
    assert found.diagnostics[0].advice()


def test_a_table_without_a_source_is_refused() -> None:
    with pytest.raises(CqlError, match="nothing says where the rows of 's' come from"):
        source_frame(None, table("CREATE STREAM s (t INT) TIMESTAMP BY t"), Path("none"))  # type: ignore[arg-type]
    unnamed = table("REGISTER STREAM S (A int)").model_copy(update={"source": External(format="rate")})
    with pytest.raises(CqlError, match="the timestamp of 'S' has no name"):
        frame_source(None, unnamed)  # type: ignore[arg-type]


# Sessions


def fake_java(version: str) -> None:
    program = Path("java/bin/java")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    Path("java/release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')


@pytest.mark.parametrize(("version", "is_good"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("1.8.0", False)])
def test_java_has_to_be_new_enough(version: str, is_good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(version)
    monkeypatch.setenv("JAVA_HOME", str(Path("java").absolute()))
    if is_good:
        assert check_java() == Path("java/bin/java").absolute()
    else:
        with pytest.raises(CqlError, match=f"Spark needs Java 17 or newer, and '.*java/bin/java' is {version}"):
            check_java()


def test_java_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    with pytest.raises(CqlError, match="and there is none in JAVA_HOME, which is '/none'"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(CqlError, match="and there is none on the PATH"):
        check_java()


def test_an_archive_is_used_when_it_has_been_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path("spark.jsa.17")
    made.touch()
    session_module._adopt(Path("spark.jsa"))
    assert made.exists(), "it may still be being written"
    os.utime(made, (0, 0))
    session_module._adopt(Path("spark.jsa"))
    assert Path("spark.jsa").exists() and not made.exists()


@pytest.mark.spark
def test_the_session_of_the_process_is_used(spark: SparkSession) -> None:
    assert local_session() is spark


def test_a_session_of_another_spark_is_refused() -> None:
    class Other:
        version = "3.5.0"

    with pytest.raises(CqlError, match=r"the session runs Spark 3.5.0, and PySpark .* is installed"):
        check_session(Other())  # type: ignore[arg-type]


@pytest.mark.spark
def test_networks_have_a_session_beside_the_users(own_session: SparkSession) -> None:
    own_session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    own_session.conf.set("spark.sql.shuffle.partitions", "5")
    beside = network_session(own_session)
    assert {key: beside.conf.get(key) for key in NETWORK_SETTINGS} == NETWORK_SETTINGS
    assert own_session.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    assert buckets_of(own_session) == 5
    own_session.conf.set("spark.sql.shuffle.partitions", "200")
    assert buckets_of(own_session) == 2, "Spark's default says nothing; there is one for each core"


@pytest.mark.spark(own_process=True)
def test_a_session_is_quiet() -> None:
    program = "from runtime.spark.session import local_session\nspark = local_session()\n"
    program += "print(spark.range(3).mapInArrow(lambda batches: batches, 'id bigint').count())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert list(Path().iterdir()) == [], "nothing is left in the working directory"


@pytest.mark.spark(own_process=True)
def test_a_session_that_cannot_start_says_why() -> None:
    program = "from runtime.spark.session import local_session\nfrom cql import CqlError\n"
    program += "try:\n    local_session({'spark.driver.memory': '1k'})\nexcept CqlError as error:\n    print(error)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("Spark did not start: "), done.stderr
