"""The operators of the engine: every kind has one, windows and stream operators do what they say, buckets add up.

Tables are instants in, changes out, in the notation of `tests/definition/notation.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cql
from planner import operators as op
from planner.json_codec import ExprField
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.columns.row_codes import row_codes
from runtime.engine.executor import Executor
from runtime.expressions import compile_projection
from tests import engine_runs
from tests.definition import Result
from tests.definition.notation import catalog, elements, sorted_words, written
from tests.engine_cases import Case, Setup, Taken, batches_of, check, random_case, random_setup, sources_by_table
from tests.random_queries import first_seed

SPLITS = int(os.environ.get("CQL_FUZZ", "60"))
"""How many queries are split over buckets."""


# ------------------------------------------------------------------------------------------------ windows and streams


def changes(query: str, **data: str) -> dict[int, str]:
    """Return what the engine makes of a query, by instant; it is the same for all ways to cut the input."""
    known = catalog()
    tree = cql.bind(query, known)
    plan = combine([compile_query("q", tree)])
    given = {scan.name: elements(data.get(scan.name, "")) for scan in cql.bound.scans(tree)}
    found = [engine_runs.run(plan, given, random.Random(seed), chunk_rows=rows)["q"] for seed, rows in enumerate(CUTS)]
    assert all(each.changes == found[0].changes for each in found)
    return {time: written(bag, signed=not tree.is_stream) for time, bag in sorted(found[0].changes.items())}


CUTS = (1, 1, 2, 1000)

WINDOWS = {
    "a range holds a row for its length": (
        "SELECT * FROM S [Range 3]", "1@1 2@2 9@9", {1: "+1", 2: "+2", 4: "-1", 5: "-2", 9: "+9"},
    ),
    "equal rows are counted": (
        "SELECT * FROM S [Range 3]", "1@1 1@1 1@4 9@9", {1: "+1 +1", 4: "-1", 7: "-1", 9: "+9"},
    ),
    "now is one instant": ("SELECT * FROM S [Now]", "1@1 2@2 2@2", {1: "+1", 2: "-1 +2 +2"}),
    "a slide moves both ends up to its multiples": (
        "SELECT * FROM S [Range 4 Slide 2]", "1@1 2@2 3@3 9@9", {2: "+1 +2", 4: "+3", 6: "-1 -2", 8: "-3"},
    ),
    "rows keep the last ones, ties in source order": (
        "SELECT * FROM S [Rows 2]", "1@1 2@2 3@2 4@2 5@7", {1: "+1", 2: "-1 +3 +4", 7: "-3 +5"},
    ),
    "rows of equal values leave one by one": (
        "SELECT * FROM S [Rows 2]", "1@1 1@2 1@3 2@4", {1: "+1", 2: "+1", 4: "-1 +2"},
    ),
    "an unbounded window only grows": ("SELECT * FROM S", "1@1 1@2", {1: "+1", 2: "+1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_of_a_stream(name: str) -> None:
    query, given, expected = WINDOWS[name]
    found = changes(query, S=given)
    assert sorted_words(found) == sorted_words(_as_stream_or_relation(query, expected))


def _as_stream_or_relation(query: str, expected: Mapping[int, str]) -> dict[int, str]:
    """Return a table with the signs that the result has: what can only grow is a stream."""
    is_stream = cql.bind(query, catalog()).is_stream
    return {time: text.replace("+", "") if is_stream else text for time, text in expected.items()}


PARTITIONS = {
    "the last rows of each key": (
        "SELECT * FROM K [Partition By k Rows 1]", "a1@1 b1@1 a2@2 b2@5 a3@5",
        {1: "+a1 +b1", 2: "-a1 +a2", 5: "-b1 +b2 -a2 +a3"},
    ),
    "a range lets them expire as well": (
        "SELECT * FROM K [Partition By k Rows 2 Range 3]", "a1@1 a2@2 a3@3 b1@9",
        {1: "+a1", 2: "+a2", 3: "-a1 +a3", 5: "-a2", 6: "-a3", 9: "+b1"},
    ),
    "a key that comes back starts anew": (
        "SELECT * FROM K [Partition By k Rows 1 Range 2]", "a1@1 a2@9", {1: "+a1", 3: "-a1", 9: "+a2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_window_of_the_last_rows_of_each_key(name: str) -> None:
    query, given, expected = PARTITIONS[name]
    assert sorted_words(changes(query, K=given)) == sorted_words(expected)


STREAMS = {
    "what enters": ("Istream(SELECT * FROM S [Range 2])", "1@1 1@2 2@9", {1: "1", 2: "1", 9: "2"}),
    "what enters as an equal row leaves is nothing new": (
        "Istream(SELECT * FROM S [Range 2])", "1@1 1@3 2@3", {1: "1", 3: "2"},
    ),
    "what leaves": ("Dstream(SELECT * FROM S [Range 2])", "1@1 2@2 3@9", {3: "1", 4: "2"}),
    "what leaves as an equal row enters has not left": ("Dstream(SELECT * FROM S [Range 2])", "1@1 1@3 9@9", {5: "1"}),
    "all there is at every tick": (
        "Rstream(SELECT * FROM S [Range 2])", "1@1 2@4 3@6", {1: "1", 2: "1", 4: "2", 5: "2", 6: "3"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_a_relation(name: str) -> None:
    query, given, expected = STREAMS[name]
    assert changes(query, S=given) == expected


@pytest.mark.parametrize(
    ("operation", "other"), [("EXCEPT ALL", ""), ("INTERSECT ALL", "1@1 1@2 1@2 1@3 1@3 1@3"), ("UNION ALL", "")]
)
def test_a_row_that_is_there_once_more_enters_once(operation: str, other: str) -> None:
    query = f"Istream(SELECT * FROM S [Now] {operation} SELECT * FROM T [Now])"
    assert changes(query, S="1@1 1@2 1@2 1@3 1@3 1@3", T=other) == {1: "1", 2: "1", 3: "1"}


def test_an_rstream_of_elements_speaks_when_its_inputs_do() -> None:
    second = 1_000_000
    given = " ".join(f"{row},{at * second}@{at * second}" for row, at in ((1, 1), (2, 2), (3, 9)))
    found = changes("Rstream(SELECT v FROM E [Range 5 Seconds])", E=given)
    assert found == {1 * second: "1", 2 * second: "1 2", 9 * second: "3"}


# ------------------------------------------------------------------------------------------------------------- buckets


def routes(plan: Plan) -> dict[str, tuple[ExprField, ...]] | None:
    """Return by which keys the rows of each source are sent to buckets; None unless it is one way for each."""
    if any((each.placement, each.level) not in (("source", 0), ("hash", 0)) for each in plan.operators):
        return None
    found: dict[str, set[tuple[ExprField, ...]]] = {}
    for each in plan.operators:
        for edge in each.inputs:
            if edge.route == "hash":
                producer = plan.by_id[edge.operator]
                while isinstance(producer, op.Select):
                    producer = plan.by_id[producer.inputs[0].operator]
                if not isinstance(producer, op.Source):
                    return None
                found.setdefault(producer.id, set()).add(edge.keys)
    sources = {each.id for each in plan.operators if isinstance(each, op.Source)}
    if found.keys() != sources or any(len(keys) > 1 for keys in found.values()):
        return None
    return {source: next(iter(keys)) for source, keys in found.items()}


def split(case: Case, setup: Setup) -> dict[str, Result]:
    """Return what comes out if each bucket of the rows has an executor of its own."""
    with setup.tidiness():
        plan = case.shared
        by, taken, count = routes(plan), Taken(case.trees), 2 + setup.seed % 2
        assert by is not None
        batches = {
            table: batches_of(sources[0], case.data[table], setup.batch_rows, random.Random(setup.seed))
            for table, sources in sources_by_table(plan).items()
        }
        for bucket in range(count):
            executor = setup.executor(case)
            know_all(executor, batches)
            for table, sources in sources_by_table(plan).items():
                for source in sources:
                    own = [in_bucket(batch, by[source.id], case.functions, bucket, count) for batch in batches[table]]
                    feed(executor, source, own)
            executor.run()
            taken.take(executor)
    return taken.results()


def know_all(executor: Executor, batches: Mapping[str, Sequence[ChangeBatch]]) -> None:
    """Tell a bucket when the sources begin and speak, which it cannot know from its own rows."""
    for table, sources in sources_by_table(executor.plan).items():
        instants = np.concatenate([batch.start for batch in batches[table]] or [np.empty(0, np.int64)])
        for source in sources:
            known = executor.clock.sources[source.id]
            if source.time is not None and len(instants):
                known.first, known.last = int(instants.min()), int(instants.max())
                known.recent, known.is_watched = [np.unique(instants)], False


def feed(executor: Executor, source: op.Source, batches: Sequence[ChangeBatch]) -> None:
    """Push the rows of one source; it ends when all of them have ended."""
    last = executor.clock.sources[source.id].last
    for batch in batches:
        if source.time is None:
            executor.push_static(source.id, batch.columns)
        else:
            executor.push(source.id, batch)
    if source.time is not None:
        executor.clock.sources[source.id].last = last
        executor.end(source.id)


def in_bucket(
    batch: ChangeBatch, keys: tuple[ExprField, ...], functions: Mapping[str, Any], bucket: int, count: int
) -> ChangeBatch:
    found: list[pa.Array] = list(compile_projection(keys, functions)(batch.columns, len(batch)))
    codes = row_codes(found, len(batch)).codes
    return batch.filter((codes >> np.uint64(7)) % np.uint64(count) == bucket)


@pytest.mark.fuzz
def test_the_answers_of_buckets_add_up_to_the_answer() -> None:
    tried, seed = 0, first_seed()
    while tried < SPLITS:
        seed += 1
        rng = random.Random(seed + 10**9)
        case = random_case(rng)
        if case is not None and routes(case.shared) is not None:
            setup = replace(random_setup(rng, case), share=True)
            if setup.limits != "clashing":
                check(case, setup, split)
                tried += 1


def test_every_synopsis_and_store_tells_what_it_holds_and_held_at_most() -> None:
    known = cql.Catalog()
    known.execute("CREATE STREAM a (k INT, t INT) TIMESTAMP BY t; CREATE STREAM b (k INT, t INT) TIMESTAMP BY t")
    plan = cql.compile("SELECT a.k, COUNT(*) FROM a [Range 5], b [Rows 3] WHERE a.k = b.k GROUP BY a.k", known)
    executor = Executor(plan)
    for first, count in ((0, 5), (100, 1)):
        for source in (each for each in plan.operators if isinstance(each, op.Source)):
            part = [(first + at, (1, first + at), 1) for at in range(count)]
            executor.push(source.id, engine_runs.to_batch(source, part, first + count))
        executor.run()
    found = {each.name: each for each in executor.statistics_now().figures if each.kind in ("synopsis", "store")}
    assert found.keys() == {each.id for each in (*plan.synopses, *plan.stores)}
    join = next(each for each in plan.synopses if each.role == "left")
    assert found[join.id].elements_peak > found[join.id].elements_now, "rows of the range have expired"
    counts = next(each for each in plan.synopses if each.role == "groups")
    for name in (join.store, counts.id):
        figures = found[name]
        assert figures.bytes_peak is not None and figures.bytes_now is not None
        assert figures.bytes_peak >= figures.bytes_now and figures.bytes_peak > 0
