"""Properties: an executor that is saved and restored goes on as if it had never stopped; a save writes what changed.

Whatever is kept goes through bytes, as it does on its way to Spark's state store, and a restored executor is a fresh
one: nothing but chunks and the position gets across.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from planner import operators as op
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.engine.checkpoint import CheckpointDelta, restore, save_delta
from runtime.engine.executor import Executor
from tests.definition import Result
from tests.engine_cases import Case, Setup, Taken, check, pushes, random_case, random_setup
from tests.random_queries import first_seed

CASES = int(os.environ.get("CQL_FUZZ", "400"))
"""How many interrupted runs are tried."""

PARTS = 4


class Kept:
    """A checkpoint outside of the engine: bytes by name."""

    def __init__(self) -> None:
        self._chunks: dict[str, bytes] = {}
        self._meta = "{}"

    def apply(self, delta: CheckpointDelta) -> int:
        """Write a delta and return how many bytes of chunks that took."""
        assert not delta.put.keys() & delta.drop, "what is new is not gone"
        written = {name: _to_bytes(chunk) for name, chunk in delta.put.items()}
        held = {name for name in self._chunks if name.startswith("held/")}
        assert not (self._chunks.keys() - held) & written.keys(), "a name is used once"
        self._chunks = {name: blob for name, blob in self._chunks.items() if name not in delta.drop} | written
        self._meta = json.dumps(delta.meta)
        return sum(map(len, written.values()))

    def restore(self, executor: Executor) -> None:
        chunks = {name: _from_bytes(blob) for name, blob in self._chunks.items()}
        restore(executor, chunks, json.loads(self._meta))

    @property
    def nbytes(self) -> int:
        return sum(map(len, self._chunks.values()))


def _to_bytes(chunk: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, chunk.schema) as writer:
        writer.write_batch(chunk)
    return bytes(sink.getvalue())


def _from_bytes(blob: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        table = reader.read_all().combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


# ------------------------------------------------------------------------------------------------------ going on


def interrupted(case: Case, setup: Setup) -> dict[str, Result]:
    """Return what comes out if the work is saved now and then and now and then done by a fresh executor."""
    rng = random.Random(setup.seed)
    with setup.tidiness():
        executor, kept, taken = setup.executor(case), Kept(), Taken(case.trees)
        for push in pushes(executor.plan, case, setup):
            push(executor)
            if rng.random() < 0.6:
                executor.run()
                if rng.random() < 0.7:
                    taken.take(executor)
                kept.apply(save_delta(executor))
                if rng.random() < 0.4:
                    executor = setup.executor(case)
                    kept.restore(executor)
        executor.run()
        taken.take(executor)
    return taken.results()


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_a_restored_executor_goes_on_as_if_it_had_never_stopped(part: int) -> None:
    tried, seed = 0, first_seed() + part
    while tried < CASES // PARTS:
        rng = random.Random(-seed - 1)
        seed += PARTS
        case = random_case(rng)
        if case is None:
            continue
        for _ in range(2):
            check(case, random_setup(rng, case), interrupted)
            tried += 1


# -------------------------------------------------------------------------------------------- what a save writes


STREAMS = """
CREATE STREAM a (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts;
CREATE STREAM b (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts;
CREATE RELATION r (k BIGINT, v DOUBLE, at TIMESTAMP, sign INT) TIMESTAMP BY at SIGN BY sign;
"""
STEP = 100
ROWS = 200
"""A row every so many microseconds, and so many in a batch."""

QUERIES = {
    "range": "SELECT k, SUM(v) AS s FROM a [Range 2 Seconds] GROUP BY k",
    "slide": "SELECT k, COUNT(*) AS n FROM a [Range 2 Seconds Slide 200 Milliseconds] GROUP BY k",
    "extreme": "SELECT k, MAX(v) AS m FROM a [Range 2 Seconds] GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM a [Range 2 Seconds]",
    "join": "SELECT a.k, a.v, b.v AS w FROM a [Range 2 Seconds], b [Range 2 Seconds] WHERE a.k = b.k",
    "rows": "SELECT a.k, b.v FROM a [Rows 20000], b [Now] WHERE a.k = b.k AND b.v > 95",
    "partition": "SELECT k, v FROM a [Partition By k Rows 20]",
    "semijoin": "SELECT * FROM a [Range 2 Seconds] WHERE k IN (SELECT k FROM b [Range 1 Second])",
    "outer": "SELECT a.k, b.v FROM a [Range 2 Seconds] LEFT JOIN b [Range 1 Second] ON a.k = b.k",
    "istream": "Istream(SELECT k, v FROM a [Range 2 Seconds] WHERE v > 50)",
}


def plan_of(text: str) -> Plan:
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    return combine([compile_query("q", cql.bind(text, catalog))])


def batch(source: op.Source, number: int, rng: np.random.Generator) -> ChangeBatch:
    instants = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.int64) * STEP
    columns: Mapping[str, Any] = {
        "ts": pa.array(instants).cast(pa.timestamp("us")),
        "k": pa.array(rng.integers(0, 1000, ROWS)),
        "v": pa.array(rng.random(ROWS) * 100),
    }
    return ChangeBatch(
        tuple(columns[column.name] for column in source.columns), instants, None, None, int(instants[-1]) + 1
    )


@pytest.mark.parametrize("query", QUERIES)
def test_what_a_save_writes_is_bounded_by_what_changed_not_by_the_window(query: str) -> None:
    executor, kept, rng = Executor(plan_of(QUERIES[query])), Kept(), np.random.default_rng(5)
    sources = [each for each in executor.plan.operators if isinstance(each, op.Source)]
    written, changed = [], 0
    for number in range(300):
        for source in sources:
            pushed = batch(source, number, rng)
            executor.push(source.id, pushed)
            changed += pushed.nbytes
        executor.run()
        changed += executor.take("q").nbytes
        written.append(kept.apply(save_delta(executor)))
    window = 20_000
    assert kept.nbytes > window * 16 / 2, "the state is much larger than a batch"
    late = written[100:]
    assert sum(written) < 10 * changed
    assert np.median(late) < kept.nbytes / 16


def test_a_second_save_without_input_writes_nothing() -> None:
    executor = Executor(plan_of(QUERIES["join"]))
    for each in executor.plan.operators:
        if isinstance(each, op.Source):
            executor.push(each.id, batch(each, 0, np.random.default_rng(1)))
    executor.run()
    executor.take("q")
    assert save_delta(executor).put
    assert not save_delta(executor).put


def test_chunks_do_not_change_after_they_are_written() -> None:
    executor, rng = Executor(plan_of(QUERIES["semijoin"])), np.random.default_rng(3)
    written: list[tuple[pa.RecordBatch, bytes]] = []
    for number in range(60):
        for each in executor.plan.operators:
            if isinstance(each, op.Source):
                executor.push(each.id, batch(each, number, rng))
        executor.run()
        written += [(chunk, _to_bytes(chunk)) for chunk in save_delta(executor).put.values()]
    assert all(_to_bytes(chunk) == blob for chunk, blob in written)


def test_a_position_is_small_and_only_of_an_executor_that_is_done() -> None:
    executor = Executor(plan_of(QUERIES["join"]))
    sources = [each for each in executor.plan.operators if isinstance(each, op.Source)]
    executor.push(sources[0].id, batch(sources[0], 0, np.random.default_rng(1)))
    with pytest.raises(AssertionError, match="processed everything"):
        save_delta(executor)
    executor.run()
    assert len(json.dumps(save_delta(executor).meta)) < 4000
