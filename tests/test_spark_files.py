"""Files on Spark as on the local engine: none is left out, doubled or read in another order without a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from cql import CqlError
from cql.errors import Code
from cql.session import Session

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from runtime.delivery.delivery import Delivery
from runtime.local.run import LocalRun
from runtime.spark.run import SparkRun

pytestmark = pytest.mark.spark

CASES = ("old", "odd", "twelve", "late", "plain")


def session(out: str, sink: str = "parquet") -> Session:
    """Return queries over a folder each; `plain` has no state, and Spark runs it without a network."""
    made = Session()
    for name in CASES:
        delay = "DELAY 2 SECONDS" if name == "late" else ""
        query = f"SELECT Istream(k, v) FROM {name}" + ("" if name == "plain" else " [Range 100]")
        made.run(
            f"CREATE STREAM {name} (k STRING, v INT, at INT) TIMESTAMP BY at {delay} "
            f"FROM csv OPTIONS (path '{name}', maxFilesPerTrigger '{3 if name == 'plain' else 1}');"
            f"REGISTER QUERY q_{name} AS {query} INTO {sink} OPTIONS (path '{out}/{name}');"
        )
    return made


def write(name: str, *instants: int, seconds: int = 10**9) -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"k{instant},{instant},{instant}\n" for instant in instants))
    os.utime(path, (seconds, seconds))
    return path


def results(out: str) -> dict[str, list[Any]]:
    return {
        name: sorted(
            tuple(row.values())
            for path in (Path(out) / name).glob("*.parquet")
            for row in parquet.read_table(path).to_pylist()
        )
        for name in CASES
    }


def run(spark: SparkSession, made: Session) -> list[str]:
    """Run to the end from the checkpoint, and return what was left out."""
    with SparkRun(spark, made.catalog, made.catalog.queries.values(), checkpoint=Path("kept")) as running:
        running.drain()
        return sorted(running.losses())


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with equal times, names that Spark takes for patterns, and late rows, within files and between."""
    monkeypatch.chdir(tmp_path)
    write("old/1.csv", 1)
    for number, name in enumerate(("a", "x1", "x[1]", "z{a}*")):
        write(f"odd/{name}.csv", number)
    for number in range(12):
        write(f"twelve/{number:02}.csv", number)
    write("late/1.csv", 5, 10, 7, 8, 11, 9, 1, 20)
    for number, instants in enumerate(((1, 5), (4, 6), (5, 9), (6, 10))):
        write(f"plain/{number}.csv", *instants)


def test_both_engines_read_the_same_rows_of_the_same_files(spark: SparkSession) -> None:
    made = session("spark")
    late = ["late: left out: 2 rows came too late", "plain: left out: 3 rows came too late"]
    assert run(spark, made) == late
    write("old/2.csv", 2, seconds=10**9 - 30 * 86_400)
    write("plain/4.csv", 8, 11, seconds=10**8)
    assert run(spark, session("spark")) == [late[0], "plain: left out: 1 row came too late"]
    here = session("here")
    with LocalRun(here.catalog, here.catalog.queries.values()) as running:
        running.drain()
        assert sorted(running.losses()) == [late[0], "plain: left out: 4 rows came too late"]
    assert results("spark") == results("here")
    assert [len(rows) for rows in results("here").values()] == [2, 4, 12, 6, 6]


def test_a_repeated_micro_batch_reads_the_same_files_or_says_that_it_cannot(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise OSError("the machine is gone")

    with monkeypatch.context() as patch, pytest.raises(Exception, match="the machine is gone"):
        patch.setattr(Delivery, "deliver", lost)
        run(spark, session("spark"))
    path = Path("late/1.csv")
    text = path.read_text()
    spoilings: dict[str, Callable[[], object]] = {
        "is gone, and its rows have not been delivered": path.unlink,
        "it has 5 bytes, and had": lambda: path.write_text("k,1,1"),
        "it has other contents": lambda: path.write_text(text.replace("k20", "k21")),
    }
    for message, spoil in spoilings.items():
        spoil()
        with pytest.raises(CqlError, match=message) as caught:
            run(spark, session("spark"))
        assert caught.value.diagnostics[0].code is Code.CHANGED_SOURCE
        assert "late/1.csv" in caught.value.diagnostics[0].message
        path.write_text(text)
    assert "late: left out: 2 rows came too late" in run(spark, session("spark"))
    assert [len(rows) for rows in results("spark").values()] == [1, 4, 12, 6, 5]
    path.write_text(text + "k30,30,30\n")
    with pytest.raises(CqlError, match=r"'late/1\.csv' is not what it was when it was found"):
        run(spark, session("spark"))
