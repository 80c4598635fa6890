"""The check after tests on Spark: what is left behind is named, and does not disturb the tests after it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import leftovers as module
from tests.leftovers import leftovers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_nothing_is_left_of_a_test_that_cleans_up(spark: SparkSession, tmp_path: Path) -> None:
    before = threading.enumerate()
    rows = spark.readStream.format("rate").load()
    rows.writeStream.foreachBatch(lambda batch, number: None).start().stop()
    threading.Thread(target=int).start()
    (tmp_path / "cql-spark-7.log").touch()
    (tmp_path / "other").mkdir()
    assert leftovers(before, tmp_path) == []


def test_queries_of_any_session_are_found_and_stopped(own_session: SparkSession, tmp_path: Path) -> None:
    query = own_session.readStream.format("rate").load().writeStream.format("noop").queryName("endless").start()
    assert leftovers(threading.enumerate(), tmp_path) == ["the streaming query endless is still active"]
    assert not query.isActive
    assert leftovers(threading.enumerate(), tmp_path) == []


def test_threads_that_keep_the_process_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.1)
    before, end = threading.enumerate(), threading.Event()
    for name, daemon in (("worker", False), ("helper", True)):
        threading.Thread(target=end.wait, name=name, daemon=daemon).start()
    try:
        assert leftovers(before, tmp_path) == ["the thread worker is still running"]
    finally:
        end.set()


def test_temporary_checkpoints_are_found(tmp_path: Path) -> None:
    (tmp_path / "cql-abc").mkdir()
    assert leftovers(threading.enumerate(), tmp_path) == ["the temporary folder cql-abc is still there"]
