"""Queries without state, in tasks or in Spark's own columns, and prefixes of others: the answers are the engine's."""

from __future__ import annotations

import datetime
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import CqlError
from cql.session import Session
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.random_queries import catalog, first_seed, random_data, report, tables_of
from tests.test_plan_random import network

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from runtime.local.run import LocalRun
from runtime.spark.native import InColumns, InTasks, NativeJob
from runtime.spark.run import SparkRun
from tests.spark_runs import run_on_spark, with_files

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "k": pa.array([1, 2, None, 1, 2], pa.int32()),
        "v": [1.5, None, 2.0, -1.0, 4.0],
        "n": ["a", "b", "c", None, "e"],
        "at": [datetime.datetime(2026, 1, 1, 0, 0, second, 5) for second in (1, 2, 2, 4, 9)],
    }
)
STREAM = "CREATE STREAM s (k INT, v DOUBLE, n STRING, at TIMESTAMP) TIMESTAMP BY at FROM parquet OPTIONS (path '{}')"
STATELESS = "SELECT Istream(k + 1 AS k, v / 2 AS half, n || 'x' AS n, at) FROM s WHERE v > 0 OR n = 'b'"


def session(folder: Path, query: str = STATELESS, name: str = "q") -> Session:
    source = folder / "in"
    source.mkdir(exist_ok=True)
    parquet.write_table(ROWS, source / "1.parquet")
    made = Session()
    made.run(STREAM.format(source))
    made.run(f"REGISTER QUERY {name} AS {query} INTO parquet OPTIONS (path '{folder / name}')")
    return made


def written(folder: Path) -> pa.Table:
    return pa.concat_tables(parquet.read_table(path) for path in sorted(folder.glob("*.parquet")))


def test_what_spark_writes_is_what_the_engine_writes(spark: SparkSession, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with LocalRun(session(here).catalog, session(here).catalog.queries.values()) as local:
        local.drain()
    known = session(there).catalog
    with SparkRun(spark, known, known.queries.values(), checkpoint=tmp_path / "checkpoint") as run:
        assert [type(job) for job in run._jobs.values()] == [NativeJob]
        run.drain()
        assert isinstance(run._jobs["native/q"]._work, InTasks)  # type: ignore[union-attr]
        assert run.progress()["native/q"].rows_in == {"s": 5}
        assert run.progress()["native/q"].rows_out == {"q": 4}
    expected = parquet.read_table(here / "q")
    found = written(there / "q")
    assert [(field.name, field.type) for field in found.schema] == [(f.name, f.type) for f in expected.schema]
    assert found.sort_by("n").to_pylist() == expected.sort_by("n").to_pylist()


def test_spark_alone_writes_the_results_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    known = session(tmp_path).catalog
    frame = spark.readStream.schema("k int, v double, n string, at timestamp_ntz").parquet(str(tmp_path / "in"))
    known.streams["s"] = known.streams["s"].model_copy(update={"source": None})
    with SparkRun(spark, known, known.queries.values(), frames={"s": frame}) as run:
        run.start()
        run.process_available()
        assert isinstance(run._jobs["native/q"]._work, InColumns)  # type: ignore[union-attr]
        assert run.progress()["native/q"].rows_out == {"q": 4}
    there = session(tmp_path, name="there").catalog
    with LocalRun(there, there.queries.values()) as local:
        local.drain()
    found = written(tmp_path / "q").sort_by("n")
    assert found.to_pylist() == parquet.read_table(tmp_path / "there").sort_by("n").to_pylist()


def test_tasks_call_functions_of_the_user_and_say_which_row_they_failed_on(spark: SparkSession, tmp_path: Path) -> None:
    made = session(tmp_path)

    @made.catalog.function
    def inverse(value: float) -> float:
        return 1 / (value - 4.0)

    made.run("DROP QUERY q")
    made.run(
        f"REGISTER QUERY q AS SELECT Istream(inverse(v) AS i) FROM s INTO parquet OPTIONS (path '{tmp_path / 'q'}')"
    )
    with (
        pytest.raises(CqlError, match=r"inverse\(None\) failed: TypeError.* on the row k = 2"),
        SparkRun(spark, made.catalog, made.catalog.queries.values()) as run,
    ):
        run.drain()
    assert not list((tmp_path / "q").glob("*.parquet"))


def test_bad_rows_of_a_csv_are_left_out_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("k,at\n1,1\nx,2\n3,3\n")
    made = Session()
    made.run("SET on_bad_row = skip")
    made.run(
        "CREATE STREAM s (k INT, at INT) TIMESTAMP BY at FROM csv "
        f"OPTIONS (path '{tmp_path / 'rows.csv'}', header 'true')"
    )
    made.run(f"REGISTER QUERY q AS SELECT Istream(k + 1 AS k) FROM s INTO parquet OPTIONS (path '{tmp_path / 'q'}')")
    with SparkRun(spark, made.catalog, made.catalog.queries.values()) as run:
        run.drain()
        assert run.losses() == ["s: left out: 1 row was bad"]
    assert written(tmp_path / "q")["k"].to_pylist() == [2, 4]


def test_a_query_without_state_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """The second file has the same instants again: most of its rows are late, which is known after a start."""
    for rows, losses in ((4, []), (5, ["s: left out: 4 rows came too late"])):
        known = session(tmp_path).catalog
        with SparkRun(spark, known, known.queries.values(), checkpoint=tmp_path / "checkpoint") as run:
            run.drain()
            assert run.losses() == losses
        assert len(written(tmp_path / "q")) == rows
        parquet.write_table(ROWS, tmp_path / "in" / "2.parquet")


def test_a_bad_row_ends_the_run_and_nothing_of_it_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    known = session(tmp_path).catalog
    bad = ROWS.set_column(3, "at", pa.nulls(5, pa.timestamp("us")))
    parquet.write_table(bad, tmp_path / "in" / "1.parquet")
    with (
        pytest.raises(CqlError, match=r"in/1\.parquet, row 1: the column 'at' is NULL"),
        SparkRun(spark, known, known.queries.values(), checkpoint=tmp_path / "checkpoint") as run,
    ):
        run.drain()
    assert not list((tmp_path / "q").glob("*.parquet"))


def test_a_stream_that_a_network_reads_is_read_by_the_network_alone(spark: SparkSession, tmp_path: Path) -> None:
    made = session(tmp_path)
    made.run("REGISTER QUERY sums AS SELECT k, SUM(v) AS v FROM s [Range 1 Minute] GROUP BY k INTO memory")
    with SparkRun(spark, made.catalog, made.catalog.queries.values()) as run:
        assert list(run._jobs) == ["timestamp"]
        run.drain()
    assert len(written(tmp_path / "q")) == 4


def in_the_order_of_time(folder: Path) -> None:
    """Give files the times of their names' order, by which Spark's own source reads them."""
    for number, file in enumerate(sorted(folder.iterdir())):
        os.utime(file, (1_000_000_000 + number,) * 2)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_frames_give_the_answers_of_the_definition(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    texts, trees = network(seed + first_seed())
    rng = random.Random(seed)
    names = sorted({name for text in texts.values() for name in tables_of(text)})
    data = random_data(rng, catalog(), names)
    known = with_files(catalog(), data, tmp_path, rng)
    frames: dict[str, DataFrame] = {}
    for kind in (known.streams, known.relations):
        for key, table in list(kind.items()):
            if table.source is not None and table.source.format == "parquet" and table.time is not None:
                folder = table.source.options["path"]
                in_the_order_of_time(Path(folder))
                schema = spark.read.parquet(folder).schema
                frames[key] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
                kind[key] = table.model_copy(update={"source": None})  # type: ignore[assignment]
    known.execute(";".join(f"REGISTER QUERY {name} AS {text}" for name, text in texts.items()))
    found = run_on_spark(spark, known, list(known.queries.values()), frames=frames)
    for name, tree in trees.items():
        difference = disagreement(evaluate(tree, data), found[name])
        assert difference is None, report(texts[name], data, seed=str(seed), at=difference)
