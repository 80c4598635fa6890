"""The Python API on Spark: changes that are followed, frames to go on with, and rows pushed beside endless sources."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cql
from cql.engine import Engine
from cql.errors import CqlError

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at"
BEST = "SELECT auction, MAX(price) AS price FROM bid GROUP BY auction"


def message_of(action: Callable[[], Any]) -> str:
    with pytest.raises(CqlError) as caught:
        action()
    return caught.value.diagnostics[0].message


class Downstream:
    """Ordinary code on Spark that reads a frame of changes: it keeps all rows that it was handed."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.rows: list[tuple[Any, ...]] = []
        assert frame.isStreaming
        self._query = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint)).start()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self.rows += [tuple(row) for row in frame.collect()]

    def finish(self) -> list[tuple[Any, ...]]:
        self._query.processAllAvailable()
        self._query.stop()
        return sorted(self.rows)


def test_changes_are_followed_and_go_on_as_frames_whenever_they_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    follow_and_go_on(spark, tmp_path)
    gc.collect()  # the files of frames go with the engine


def follow_and_go_on(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(spark)
    with engine:
        engine.execute(BID)
        best = engine.register("best", BEST)
        early = Downstream(best.dataframe(), tmp_path / "early")
        engine.start()
        seen: list[tuple[Any, ...]] = []
        follower = threading.Thread(
            target=lambda: seen.extend((c.ts, c.op, *c.row.values()) for c in best.changes(follow=True))
        )
        follower.start()
        engine.push("bid", [(7, 10, 1), (8, 30, 2)])
        frame = best.dataframe()
        assert frame.columns == ["ts", "op", "auction", "price"]
        late = Downstream(frame, tmp_path / "late")
        engine.push("bid", [(7, 20, 3)])
        assert best.instant == 2
        contents = best.snapshot_dataframe()
        assert sorted(map(tuple, contents.collect())) == [(7, 10), (8, 30)]
    follower.join(30)
    expected = [(1, "+", 7, 10), (2, "+", 8, 30), (3, "+", 7, 20), (3, "-", 7, 10)]
    assert sorted(seen) == sorted((c.ts, c.op, *c.row.values()) for c in best.changes()) == expected
    assert (early.finish(), late.finish()) == (expected, expected)
    assert best.instant == 3 and [batch.rows_in for batch in engine.history() if batch.rows_in] == [2, 1]
    assert {each.what for each in engine.progress()["integer"].operators} >= {"aggregate", "output"}


def test_with_a_checkpoint_a_frame_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    seen = []
    for rows in ([(7, 10, 1), (8, 30, 2)], [(7, 40, 3), (7, 50, 4)]):
        with Engine(spark, checkpoint=tmp_path / "kept") as engine:
            engine.execute(BID)
            bids = engine.register("bids", "SELECT COUNT(*) AS n FROM bid")
            read = Downstream(bids.dataframe(), tmp_path / "read")
            engine.push("bid", rows)
        seen += read.finish()
    assert seen == [(1, "+", 1), (2, "+", 2), (2, "-", 1), (3, "+", 3), (3, "-", 2)]


def test_a_frame_has_all_changes_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with Engine(spark, keep=2, checkpoint=tmp_path / "kept") as engine:
        engine.execute(f"{BID}; REGISTER QUERY f AS SELECT price FROM bid INTO parquet OPTIONS (path '{tmp_path}/f')")
        best = engine.register("best", BEST)
        engine.push("bid", [(7, 10, 1), (7, 30, 2), (8, 20, 3), (8, 10, 4)])
        assert "the first 2 changes of 'best' are gone" in message_of(best.dataframe)
        assert sorted(best.snapshot()["price"].to_pylist()) == [20, 30]
        assert "go to parquet" in message_of(engine.query("f").dataframe)


def test_pushing_and_waiting_end_beside_a_source_that_has_no_end(spark: SparkSession) -> None:
    with Engine(spark) as engine:
        engine.execute(
            "CREATE STREAM tick (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp "
            "FROM rate OPTIONS (rowsPerSecond '20'); CREATE STREAM s (k INT, t TIMESTAMP) TIMESTAMP BY t"
        )
        ticks = engine.register("ticks", "SELECT COUNT(*) AS n FROM tick")
        pushed = engine.register("pushed", "SELECT Istream(k) FROM s")
        engine.start()
        engine.push("s", [(1, "2026-01-01"), (2, "2026-01-02")])
        assert [change.row["k"] for change in pushed.changes()] == [1]
        engine.process_available()
        assert engine.progress()["timestamp"].rows_in["s"] == 2
        assert next(ticks.changes(follow=True)).op == "+"


def test_one_who_follows_gets_the_error_of_a_job_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("1,1\n2,2\n")
    with pytest.raises(cql.CqlError) as caught, Engine(spark) as engine:
        engine.execute(
            f"CREATE STREAM s (k INT, t INT) TIMESTAMP BY t FROM csv OPTIONS (path '{tmp_path}/in'); "
            "CREATE STREAM p (k INT, t INT) TIMESTAMP BY t"
        )
        values = engine.register("values", "SELECT Istream(k) FROM s")
        engine.register("other", "SELECT k FROM p")
        engine.start()
        for change in values.changes(follow=True):
            assert change.row == {"k": 1}
            (tmp_path / "in" / "2.csv").write_text("no,3\n")
    assert caught.value.diagnostics[0].code is cql.Code.BAD_DATA


@pytest.mark.spark(own_process=True)
def test_a_session_that_the_block_has_started_is_stopped_with_it(tmp_path: Path) -> None:
    program = """
import cql
from pyspark import SparkContext
from pyspark.sql import SparkSession

def run(spark):
    with cql.Engine(spark) as engine:
        engine.stream("bid", [{"price": 3, "at": 1}, {"price": 4, "at": 2}], timestamp="at")
        best = engine.register("best", "SELECT MAX(price) AS price FROM bid")
        engine.start()
        with cql.Engine() as other:
            other._session_of_spark()
        assert SparkContext._active_spark_context is not None, "another still needs it"
    print(best.snapshot().to_pylist(), SparkContext._active_spark_context is None)

run(None)
run(None)
run(SparkSession.builder.master("local[1]").getOrCreate())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(cql.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
    )
    right = "[{'price': 4}]"
    assert done.stdout.splitlines() == [f"{right} {stopped}" for stopped in (True, True, False)], done.stderr


def test_functions_and_aggregates_by_decorator_run_on_spark(spark: SparkSession) -> None:
    with Engine(spark) as engine:

        @engine.function
        def in_euros(price: int) -> float:
            return round(price * 0.908, 2)

        @engine.function(vectorized=True, arguments=["DOUBLE"], returns="DOUBLE")
        def doubled(price: pa.Array) -> pa.Array:
            return pc.multiply(price, 2)

        @engine.aggregate
        class Spread:
            def __init__(self) -> None:
                self.prices: list[int] = []

            def add(self, price: int) -> None:
                self.prices.append(price)

            def result(self) -> int:
                return max(self.prices) - min(self.prices)

        engine.execute("CREATE STREAM bid (price BIGINT, at INT) TIMESTAMP BY at")
        euros = engine.register("euros", "SELECT doubled(in_euros(spread(price))) AS euros FROM bid")
        engine.push("bid", [(10, 1), (25, 2)])
    assert euros.snapshot().to_pylist() == [{"euros": 27.24}]


def test_workers_schedule_as_the_setting_says(spark: SparkSession) -> None:
    with Engine(spark) as engine:

        @engine.function
        def policy(key: int) -> str:
            frame = sys._getframe()
            while not hasattr(frame.f_locals.get("self"), "_scheduler"):
                assert frame.f_back is not None
                frame = frame.f_back
            return type(frame.f_locals["self"]._scheduler).__name__

        engine.execute("SET scheduler = 'round-robin'; CREATE STREAM bid (price BIGINT, at INT) TIMESTAMP BY at")
        said = engine.register("said", "SELECT policy(k) AS said, k FROM (SELECT MAX(price) AS k FROM bid) AS c")
        engine.push("bid", [(10, 1), (25, 2), (7, 3)])
    assert said.snapshot().to_pylist() == [{"said": "RoundRobin", "k": 25}]
