"""What the state of a network holds, without Spark: hand-worked tables, and that any state can be looked at."""

from __future__ import annotations

import os
import random
from datetime import datetime
from functools import partial

import pyarrow as pa
import pytest

from cql.catalog import Catalog
from cql.intervals import TimeDomain
from planner.plan import Plan, combine, compile_query
from runtime.local.run import by_clock
from runtime.network.messages import bytes_batch
from runtime.network.worker import Worker
from runtime.network.worker_state import load_worker
from tests.fragment_runs import Cluster, run_fragments
from tests.random_queries import catalog, first_seed, random_data, tables_of
from tests.state_cases import (
    ASKS,
    BIDS,
    STREAMS,
    contents_of,
    elements,
    final_contents,
    plan_of,
    rows_of,
)
from tests.test_plan_random import network

CASES = int(os.environ.get("CQL_FUZZ", "50"))
"""How many random networks are looked at."""

DATA = {"bid": elements(BIDS), "ask": elements(ASKS)}

JOIN = """SELECT b.auction, b.price, a.price AS asked FROM bid [Range 4 Seconds] AS b, ask [Range 10 Seconds] AS a
          WHERE b.auction = a.auction"""
EXISTS = """SELECT * FROM bid [Range 4 Seconds] AS b
            WHERE EXISTS (SELECT * FROM ask [Range 10 Seconds] AS a WHERE a.auction = b.auction)"""
OUTER = """SELECT b.auction, a.price FROM bid [Range 4 Seconds] AS b
           LEFT JOIN ask [Range 2 Seconds] AS a ON b.auction = a.auction"""
EXCEPT = "SELECT auction FROM bid [Range 4 Seconds] EXCEPT ALL SELECT auction FROM ask [Range 6 Seconds]"

# The inputs end at 9: counts and groups are those of 9, and synopses hold the rows that are there at 10 or later.
HELD = {
    "a time window": (
        JOIN,
        "binary-join-.*/left",
        ["start", "end", "auction", "price", "at"],
        [(8, 12, 8, 40, 8), (9, 13, 7, 50, 9)],
    ),
    "a longer one": (
        JOIN,
        "binary-join-.*/right",
        ["start", "end", "auction", "price", "at"],
        [(1, 11, 7, 11, 1), (3, 13, 8, 21, 3), (6, 16, 9, 31, 6), (9, 19, 7, 41, 9)],
    ),
    "results to come": (
        JOIN,
        "operator/output-.*/agenda",
        ["instant", "weight", "auction", "price", "asked"],
        [(11, -1, 7, 50, 11), (12, -1, 8, 40, 21), (13, -1, 7, 50, 41)],
    ),
    "the last rows": (
        "SELECT * FROM bid [Rows 2]",
        "seq-window-.*/window",
        ["start", "end", "auction", "price", "at"],
        [(8, None, 8, 40, 8), (9, None, 7, 50, 9)],
    ),
    "the last rows of each key": (
        "SELECT * FROM bid [Partition By auction Rows 1]",
        "seq-window-.*/window",
        ["start", "end", "weight", "auction", "price", "at"],
        [(5, None, 1, 9, 5, 5), (8, None, 1, 8, 40, 8), (9, None, 1, 7, 50, 9)],
    ),
    "the last rows of each key, as long as they live": (
        "SELECT * FROM bid [Partition By auction Rows 1 Range 4 Seconds]",
        "seq-window-.*/window",
        ["start", "end", "weight", "auction", "price", "at"],
        [(8, 12, 1, 8, 40, 8), (9, 13, 1, 7, 50, 9)],
    ),
    "the keys of a partitioned window": (
        "SELECT * FROM bid [Partition By auction Rows 1]",
        "operator/seq-window-.*/keys",
        ["auction", "rows"],
        [(7, 3), (8, 2), (9, 1)],
    ),
    "groups, also those that have lost their rows": (
        "SELECT auction, SUM(price) AS total FROM bid [Range 4 Seconds] GROUP BY auction",
        "operator/aggregate-.*/groups",
        ["auction", "sum(price)", "rows", "sum(price) n", "sum(price) s0"],
        [(7, 50, 1, 1, 50), (8, 40, 1, 1, 40), (9, None, 0, 0, 0)],
    ),
    "changes of groups to come": (
        "SELECT auction, SUM(price) AS total FROM bid [Range 4 Seconds] GROUP BY auction",
        "operator/aggregate-.*/agenda",
        ["instant", "auction", "rows", "sum(price) n", "sum(price) s0"],
        [(12, 8, -1, -1, -40), (13, 7, -1, -1, -50)],
    ),
    "values of extremes": (
        "SELECT auction, ARG_MAX(at, price) AS best FROM bid [Range 4 Seconds] GROUP BY auction",
        "operator/aggregate-.*/0",
        ["end", "weight", "auction", "at", "price"],
        [(12, 1, 8, 8, 40), (13, 1, 7, 9, 50)],
    ),
    "different values": (
        "SELECT auction, COUNT(DISTINCT price) AS n FROM bid [Range 6 Seconds] GROUP BY auction",
        "operator/aggregate-.*/0/groups",
        ["auction", "price", "count"],
        [(7, 10, 0), (7, 30, 1), (7, 50, 1), (8, 20, 0), (8, 40, 1), (9, 5, 1)],
    ),
    "different values to come and go": (
        "SELECT auction, COUNT(DISTINCT price) AS n FROM bid [Range 6 Seconds] GROUP BY auction",
        "operator/aggregate-.*/0/agenda",
        ["instant", "auction", "price", "count"],
        [(10, 7, 30, -1), (11, 9, 5, -1), (14, 8, 40, -1), (15, 7, 50, -1)],
    ),
    "values of a user's aggregate": (
        "SELECT auction, spread(price) AS s FROM bid [Range 4 Seconds] GROUP BY auction",
        "operator/aggregate-.*/0",
        ["start", "end", "weight", "auction", "price"],
        [(8, 12, 1, 8, 40), (9, 13, 1, 7, 50)],
    ),
    "rows with counts": (
        "SELECT DISTINCT auction FROM bid [Range 4 Seconds]",
        "operator/duplicate-eliminate-.*/groups",
        ["auction", "count"],
        [(7, 1), (8, 1), (9, 0)],
    ),
    "rows of two sides": (
        EXCEPT,
        "operator/except-.*/groups",
        ["auction", "left", "right"],
        [(7, 1, 1), (8, 1, 0), (9, 0, 1)],
    ),
    "first rows": (
        "SELECT auction, price FROM bid [Range 4 Seconds] ORDER BY price DESC LIMIT 1",
        "operator/top-n-.*/rows",
        ["end", "weight", "auction", "price"],
        [(12, 1, 8, 40), (13, 1, 7, 50)],
    ),
    "rows and their matches": (
        EXISTS,
        "operator/semijoin-.*/rows/groups",
        ["auction", "price", "at", "rows", "matches"],
        [(7, 10, 1, 0, 0), (7, 30, 4, 0, 0), (7, 50, 9, 1, 1), (8, 20, 2, 0, 0), (8, 40, 8, 1, 1), (9, 5, 5, 0, 0)],
    ),
    "keys of matches": (
        EXISTS,
        "operator/semijoin-.*/keys/groups",
        ["auction", "count"],
        [(7, 2), (8, 1), (9, 1)],
    ),
    "keys of matches that leave": (
        EXISTS,
        "operator/semijoin-.*/keys/agenda",
        ["instant", "auction", "count"],
        [(11, 7, -1), (13, 8, -1), (16, 9, -1), (19, 7, -1)],
    ),
    "rows without a match": (
        OUTER,
        "operator/binary-join-.*/unmatched0/groups",
        ["auction", "price", "at", "rows", "matches"],
        [(7, 10, 1, 0, 0), (7, 30, 4, 0, 0), (7, 50, 9, 1, 1), (8, 20, 2, 0, 0), (8, 40, 8, 1, 0), (9, 5, 5, 0, 0)],
    ),
    "elements to come": (
        "SELECT Dstream(auction) FROM bid [Range 4 Seconds]",
        "operator/d-stream-.*/agenda",
        ["instant", "weight", "auction"],
        [(12, -1, 8), (13, -1, 7)],
    ),
}


class Spread:
    """How far values are apart."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def add(self, value: int) -> None:
        self.values.append(value)

    def result(self) -> int:
        return max(self.values) - min(self.values)


def registered(query: str) -> Catalog:
    known = Catalog()
    known.execute(STREAMS)
    known.aggregate(Spread, arguments=["INT"], returns="BIGINT")
    known.execute(f"REGISTER QUERY q AS {query}")
    return known


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", HELD)
def test_what_is_held_at_the_end(case: str, seed: int) -> None:
    query, pattern, columns, rows = HELD[case]
    contents = final_contents(registered(query), DATA, buckets=1 + seed, seed=seed)
    assert rows_of(contents, pattern) == (columns, sorted(rows, key=repr))


def test_a_part_says_what_it_is_and_which_queries_use_it() -> None:
    known = registered(JOIN)
    known.execute("REGISTER QUERY recent AS SELECT Rstream(*) FROM bid [Range 4 Seconds]")
    lines = {line.what: line for line in final_contents(known, DATA, buckets=1).lines()}
    assert lines["rows of source ask (stream)"].queries == ("q",)
    join = lines["binary-join on bid.auction = ask.auction: rows (auction, price, at); leave after 4 seconds"]
    assert (join.kind, join.rows, join.bytes, join.buckets, join.queries) == ("synopsis", 2, None, 1, ("q",))


def test_without_a_plan_there_are_ids_and_numbers() -> None:
    contents = final_contents(registered(JOIN), DATA, with_plan=False)
    assert {(line.kind, line.what, line.queries) for line in contents.lines()} == {
        ("log", "", ()),
        ("operator", "", ()),
    }
    names, rows = rows_of(contents, "operator/output-.*/agenda")
    assert names == ["instant", "c0", "c1", "c2", "c3"]
    assert rows == [(11, -1, 7, 50, 11), (12, -1, 8, 40, 21), (13, -1, 7, 50, 41)]


def test_state_that_the_plan_does_not_know_is_shown_as_such() -> None:
    clusters: list[Cluster] = []
    run_fragments(plan_of(registered(JOIN)), DATA, random.Random(0), 1, watch=clusters.append)
    contents = contents_of(clusters[-1], plan_of(registered("SELECT * FROM bid [Rows 2]")))
    assert {line.what for line in contents.lines() if line.kind != "log"} == {"not in the plan"}


def test_rows_wait_until_their_instants_are_complete() -> None:
    seen: set[int] = set()
    known = registered("SELECT * FROM bid [Rows 2]")

    def watch(cluster: Cluster) -> None:
        contents = contents_of(cluster, plan_of(known))
        if not contents.sources():
            return  # no bucket has been given anything yet
        (source,) = contents.sources()
        waiting = [row for row in BIDS[: source.read] if source.until is None or row[-1] >= source.until]
        found = [] if source.status == "ended" else rows_of(contents, "waiting/.*")[1]
        assert found == ([] if source.status == "ended" else [(row[-1], 1, *row) for row in waiting])
        seen.add(source.read)

    for seed in range(5):
        run_fragments(plan_of(known), DATA, random.Random(seed), 1, watch=watch)
    assert len(seen) > 3


def test_sources_tell_how_far_they_are() -> None:
    bid, ask = sorted(final_contents(registered(JOIN), DATA).sources(), key=lambda line: line.table)[::-1]
    assert (bid.table, bid.first, bid.last, bid.until, bid.read, bid.late, bid.status) == (
        "bid",
        1,
        9,
        9,
        6,
        0,
        "ended",
    )
    assert (ask.table, ask.first, ask.last, ask.read) == ("ask", 1, 9, 4)


def test_instants_of_timestamps_are_timestamps() -> None:
    known = Catalog()
    known.execute(
        "CREATE STREAM tick (v INT, start TIMESTAMP) TIMESTAMP BY start;"
        "REGISTER QUERY q AS SELECT Rstream(*) FROM tick [Range 1 Minute]"
    )
    second = 1_000_000
    data = {"tick": [(at * second, (at, at * second), 1) for at in (1, 30, 90)]}
    contents = final_contents(known, data, time=TimeDomain.TIMESTAMP)
    names, rows = rows_of(contents, "r-stream-.*/relation")
    assert names == ["_start", "end", "v", "start"]
    times = [datetime(1970, 1, 1, 0, 1, 30), datetime(1970, 1, 1, 0, 2, 30)]
    assert rows == [(times[0], times[1], 90, times[0])]


# Any state can be looked at


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(5))
def test_any_state_can_be_looked_at(part: int) -> None:
    """Counts do not depend on whether values are read, and synopses hold what their workers say that they do."""
    looked: list[str] = []
    for seed in range(first_seed() + part, first_seed() + CASES, 5):
        texts, trees = network(seed)
        names = sorted({name for text in texts.values() for name in tables_of(text)})
        data = random_data(random.Random(seed), catalog(), names)
        for queries in by_clock(compile_query(name, tree) for name, tree in trees.items()):
            plan = combine(queries)
            run_fragments(plan, data, random.Random(seed), 1 + seed % 3, watch=partial(_look, plan, seed, looked))
    assert len(looked) > CASES


def _look(plan: Plan, seed: int, looked: list[str], cluster: Cluster) -> None:
    contents, counted = contents_of(cluster, plan), contents_of(cluster, plan, whole=False)
    lines = contents.lines()
    assert lines == counted.lines(), seed
    for line in lines:
        rows = contents.rows(line.id)
        assert len(rows) == line.rows and line.what != "not in the plan", (seed, line)
        assert len({name.casefold() for name in rows.schema.names}) == rows.num_columns, (seed, line)
        if line.kind == "synopsis" and not line.id.startswith("seq-window"):
            assert len(rows) == _rows_of_stubs(cluster, line.id), (seed, line)
        looked.append(line.id)


def _rows_of_stubs(cluster: Cluster, synopsis: str) -> int:
    """Return how many rows the workers of a cluster still need for a synopsis, as they would be made again."""
    count = 0
    for place, (chunks, position) in cluster.states().items():
        worker = Worker(cluster.layout, *place, {}, {})
        batches: dict[str, pa.RecordBatch] = {name: bytes_batch(blob) for name, blob in chunks.items()}
        load_worker(worker, batches, position)
        stub = worker.executor.stubs.get(synopsis)
        if stub is not None:
            ends = stub.lifetimes(pa.array(range(stub.store.base, stub.seen), pa.int64()).to_numpy())[1]
            count += int((ends > stub.needed).sum())
    return count
