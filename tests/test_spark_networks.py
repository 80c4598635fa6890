"""Networks that live on Spark: queries that come and go, time that passes, checkpoints to go on from."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cql
from cql.engine import Engine, Query
from cql.errors import CqlError
from tests.agreement import disagreement
from tests.definition import Result, evaluate
from tests.random_data import Data

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from runtime.spark.run import SparkRun

pytestmark = pytest.mark.spark

TABLES = """
CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t;
CREATE RELATION r (k INT, name STRING, at INT, op STRING) TIMESTAMP BY at SIGN BY op;
CREATE RELATION d (k INT, title STRING) FROM csv OPTIONS (path 'd.csv');
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text("0,zero\n1,one\n2,two\n")


def changes(query: Query) -> list[tuple[Any, ...]]:
    """Return changes as tuples, in the order of time; those of one instant have no order."""
    return sorted((change.ts, change.op, *change.row.values()) for change in query.changes())


def netted(query: Query) -> Result:
    """Return the changes of each instant as a bag."""
    bags: dict[int, Counter[Any]] = {}
    for change in query.changes():
        assert isinstance(change.ts, int)
        bags.setdefault(change.ts, Counter())[tuple(change.row.values())] += int(f"{change.op}1")
    return Result({instant: bag for instant, bag in bags.items() if bag})


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(CqlError) as caught:
        action()
    return caught.value.diagnostics[0].message


# Queries that come and go

UNTOUCHED = "SELECT s.k, name, COUNT(*) AS n, SUM(v) AS total FROM s [Range 4], r WHERE s.k = r.k GROUP BY s.k, name"
JOINING = [
    "SELECT v, k FROM s [Rows 3]",
    "SELECT Istream(s.v, name) FROM s [Partition By k Rows 2], r WHERE s.k = r.k",
    "SELECT k, MAX(v) AS most FROM s [Range 4] GROUP BY k",
    "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS c GROUP BY n",
    "SELECT title, v FROM s [Range 2], d WHERE s.k = d.k",
]


class Feed:
    """Random rows for `s` and `r`, some instants at a time, and those that have not been given yet."""

    def __init__(self, seed: int, instants: int) -> None:
        rng = Random(seed)
        held: list[tuple[int, str]] = []
        self.data: Data = {
            "s": [],
            "r": [],
            "d": [(0, (k, title), 1) for k, title in enumerate(("zero", "one", "two"))],
        }
        for instant in range(1, instants + 1):
            for _ in range(rng.randint(1, 3)):
                self.data["s"].append((instant, (rng.randint(0, 3), rng.randint(0, 9), instant), 1))
            if held and rng.random() < 0.4:
                self.data["r"].append((instant, held.pop(rng.randrange(len(held))), -1))
            else:
                held.append((rng.randint(0, 3), rng.choice("xyz")))
                self.data["r"].append((instant, held[-1], 1))
        self.given = 0

    def give(self, engine: Engine, instants: int) -> None:
        """Push the rows of the next instants."""
        first, self.given = self.given, self.given + instants
        due = {name: [each for each in own if first < each[0] <= self.given] for name, own in self.data.items()}
        engine.push("r", [(*row, instant, "+" if sign > 0 else "-") for instant, row, sign in due["r"]])
        engine.push("s", [row for _, row, _ in due["s"]])

    def still_to_come(self) -> Data:
        """Return what a query that joins now sees: relations, and elements of streams from now on."""
        return {**self.data, "s": [element for element in self.data["s"] if element[0] > self.given]}


def agrees(query: Query, data: Data, until: int) -> str | None:
    """Return where the answers of a query before an instant differ from the definition; None if they agree."""
    expected = evaluate(query._tree, data).changes
    return disagreement(Result({at: bag for at, bag in expected.items() if at < until}), netted(query))


def test_queries_that_join_and_leave_change_no_answer(spark: SparkSession) -> None:
    """Ten times queries are registered or dropped; those that join see streams from then on, relations as they are."""
    feed = Feed(seed=5, instants=12)
    seen: dict[str, Data] = {}
    with Engine(spark) as engine:

        def join(number: int) -> None:
            seen[f"joined{number}"] = feed.still_to_come()
            engine.register(f"joined{number}", JOINING[number])
            feed.give(engine, 1)

        def leave(number: int) -> None:
            assert netted(engine.query(f"joined{number}")).changes
            assert agrees(engine.query(f"joined{number}"), seen[f"joined{number}"], feed.given) is None
            engine.drop(f"joined{number}")
            feed.give(engine, 1)

        engine.execute(TABLES)
        untouched = engine.register("untouched", UNTOUCHED)
        feed.give(engine, 1)
        join(0), join(1), join(2), leave(0), join(3), join(4), leave(1), join(0), leave(3), leave(0)
        feed.give(engine, 1)
    for name in ("joined2", "joined4"):
        assert agrees(engine.query(name), seen[name], feed.given + 1) is None, name
    alone = Engine(local=True)
    alone.execute(TABLES)
    same = alone.register("untouched", UNTOUCHED)
    Feed(seed=5, instants=12).give(alone, 12)
    alone.stop()
    assert changes(untouched) == changes(same)


def test_a_query_that_cannot_join_leaves_the_network_as_it_is(spark: SparkSession) -> None:
    with Engine(spark) as engine:
        engine.execute(TABLES)
        kept = engine.register("kept", "SELECT k FROM s [Range 2]")
        engine.push("s", [(1, 1, 1)])
        folder = Path("taken")
        folder.write_text("a file")
        registering = "REGISTER QUERY bad AS SELECT k FROM s INTO csv OPTIONS (path 'taken')"
        assert "taken" in refusal(lambda: engine.execute(registering))
        assert "bad" not in engine.catalog.queries
        engine.push("s", [(2, 2, 2)])
    assert changes(kept) == [(1, "+", 1), (2, "+", 2)]


# Networks from checkpoints


def test_a_network_goes_on_from_its_checkpoint(spark: SparkSession) -> None:
    def engine_of(*queries: str, adopt: bool = False) -> Engine:
        engine = Engine(spark, checkpoint="kept", adopt=adopt)
        engine.execute(TABLES)
        for name in queries:
            engine.register(name, {"sums": "SELECT k, SUM(v) AS total FROM s GROUP BY k"}.get(name, JOINING[3]))
        return engine

    with engine_of("sums") as engine:
        engine.push("s", [(1, 10, 1), (2, 20, 2)])
        assert changes(engine.query("sums")) == [(1, "+", 1, 10)]
    assert changes(engine.query("sums")) == [(1, "+", 1, 10)], "the instant 2 is left open"
    with engine_of("sums") as engine:
        engine.push("s", [(1, 5, 3), (1, 5, 4)])
        assert changes(engine.query("sums")) == [(2, "+", 2, 20), (3, "+", 1, 15), (3, "-", 1, 10)]
    inbox = [path.name for path in Path("kept/inbox").rglob("*.arrow")]
    assert "000000000000.arrow" not in inbox, "what has been processed is removed"
    message = refusal(engine_of("sums", "groups").start)
    assert "belongs to other queries: it has no groups" in message
    assert "here there is no sums; the contents of " in refusal(engine_of("groups").start)
    with engine_of("sums", "groups", adopt=True) as engine:
        engine.push("s", [(2, 1, 5), (2, 1, 6)])
        assert changes(engine.query("sums")) == [
            (4, "+", 1, 20),
            (4, "-", 1, 15),
            (5, "+", 2, 21),
            (5, "-", 2, 20),
        ]
        assert changes(engine.query("groups")) == [(5, "+", 1, 1)], "it sees the stream from then on"
        network = engine._network
        assert network is not None
        assert engine.notes == [
            "groups runs in one bucket: the network has too few stages to spread it; a new checkpoint would have them"
        ], "the network has one stage, and the query needs two"
        to = network.next_network(engine.catalog, [engine.catalog.query("groups")])
        assert [note.partition(":")[0] for note in to.notes] == ["the contents of 1 store are given up"]


def test_what_has_been_drained_is_read_on_when_more_has_come(spark: SparkSession) -> None:
    catalog = cql.Catalog()
    catalog.execute(
        "CREATE STREAM f (k INT, t INT) TIMESTAMP BY t FROM csv OPTIONS (path 'in');"
        "REGISTER QUERY counts AS SELECT k, COUNT(*) AS n FROM f [Range 3] GROUP BY k INTO csv OPTIONS (path 'out')"
    )
    Path("in").mkdir()
    Path("in/1.csv").write_text("7,1\n7,2\n")
    for more in ("", "8,3\n7,6\n", "8,6\n7,2\n9,7\n"):
        if more:
            Path(f"in/{len(more)}.csv").write_text(more)
        with SparkRun(spark, catalog, catalog.queries.values(), checkpoint=Path("kept")) as run:
            run.drain()
    lines = [line for path in sorted(Path("out").glob("part-*")) for line in path.read_text().splitlines()]
    assert sorted(lines) == (
        ["1,+,7,1", "2,+,7,2", "2,-,7,1", "3,+,8,1", "4,+,7,1", "4,-,7,2", "5,-,7,1", "6,+,7,1", "6,-,8,1", "7,+,9,1"]
    )
    assert run.losses() == ["f: left out: 2 rows came too late"], "the instant 6 was closed by the end of the drain"


# Relations


def test_a_static_relation_is_read_again_when_it_is_asked_for(spark: SparkSession) -> None:
    with Engine(spark) as engine:
        engine.execute(TABLES)
        titles = engine.register("titles", "SELECT title, v FROM s [Range 10], d WHERE s.k = d.k")
        engine.push("s", [(1, 5, 1), (2, 6, 2)])
        Path("d.csv").write_text("1,uno\n2,two\n")
        engine.push("s", [(3, 7, 3)])
        assert changes(titles) == [(1, "+", "one", 5), (2, "+", "two", 6)]
        engine.refresh("d")
        engine.push("s", [(1, 8, 4)])
        late = engine.register("late", "SELECT title, k FROM d, (SELECT COUNT(*) AS n FROM s) AS c")
        assert "is not static" in refusal(lambda: engine.refresh("s"))
    assert changes(titles)[2:] == [(3, "+", "uno", 5), (3, "-", "one", 5), (4, "+", "uno", 8)]
    assert changes(late) == []


# Time


def test_heartbeats_and_idle_streams_do_not_hold_up_others(spark: SparkSession) -> None:
    with Engine(spark) as engine:
        engine.execute("CREATE STREAM a (k INT, t INT) TIMESTAMP BY t; CREATE STREAM b (k INT, t INT) TIMESTAMP BY t")
        every = engine.register("every", "Istream(SELECT k, t FROM a UNION ALL SELECT k, t FROM b)")
        engine.push("a", [(1, 1), (2, 4)])
        assert changes(every) == [], "b may still bring something for the instant 1"
        engine.heartbeat("b", 3)
        assert changes(every) == [(1, "+", 1, 1)]
        engine.execute("SET idle_timeout = '2 seconds'")
        both = engine.register("both", "SELECT a.k, b.t FROM a [Range 100], b [Range 100] WHERE a.k = b.k")
        engine.push("a", [(3, 10)])
        assert wait_until(lambda: len(changes(every)) == 2), "b is idle, and everything before 10 is complete"
        engine.push("b", [(3, 2), (3, 9), (3, 10), (1, 12)])
        engine.push("a", [(1, 12)])
        assert changes(every)[2:] == [(10, "+", 3, 10), (10, "+", 3, 10)]
        (progress,) = engine.progress().values()
        assert progress.late == {"a": 0, "b": 2}
    assert changes(both) == [(10, "+", 3, 10), (12, "+", 1, 12)]


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def test_what_is_left_out_is_counted_and_progress_tells_how_far_a_network_is(spark: SparkSession) -> None:
    keys = range(20)
    Path("in").mkdir()
    Path("in/1.csv").write_text("".join(f"{k},{at}\n" for at in (1, 50) for k in keys) + "bad,51\n")
    with Engine(spark) as engine:
        engine.execute("SET on_bad_row = skip")
        files = spark.readStream.schema("k STRING, t INT").csv(str(Path("in").absolute()))
        engine.stream("s", files, timestamp="t", delay="5 seconds")
        engine.execute("CREATE STREAM f (k INT, t INT) TIMESTAMP BY t DELAY 5 SECONDS FROM csv OPTIONS (path 'in')")
        counts = engine.register("counts", "SELECT k, COUNT(*) AS n FROM f GROUP BY k")
        same = engine.register("same", "SELECT CAST(k AS INT) AS k, COUNT(*) AS n FROM s WHERE k <> 'bad' GROUP BY k")
        engine.start()
        engine.process_available()
        (first,) = engine.progress().values()
        Path("in/2.csv").write_text("".join(f"{k},{at}\n" for at in (7, 47, 60) for k in keys))
        engine.process_available()
        (then,) = engine.progress().values()
        stats = {(each["kind"], each["what"]): each for each in engine.stats()}
    assert (first.rows_in, first.skipped, first.late) == ({"f": 40, "s": 41}, {"f": 1, "s": 0}, {"f": 0, "s": 0})
    assert (first.newest, first.closed, first.rows_out) == (51, 45, {"counts": 20, "same": 20})
    assert then.late == {"f": 20, "s": 20}, "the buckets add up"
    assert (then.rows_in, then.newest, then.closed) == ({"f": 100, "s": 101}, 60, 55)
    assert then.rows_out == {"counts": 20 * 5, "same": 20 * 5}, "a count at 1, and two changes each at 47 and 50"
    assert first.batch < then.batch and then.batch_seconds > 0 and then.rows_per_second > 0 and then.state_bytes > 0
    assert sum(batch.rows_in for batch in then.course) == 201
    assert stats["source", "f"]["late"] == 20 and stats["source", "f"]["elements_in"] == 100
    assert changes(counts) == changes(same)
    assert Counter(change.row["n"] for change in counts.changes() if change.op == "+") == dict.fromkeys(
        (1, 2, 3, 4), 20
    )


# Functions that take results


def test_a_function_gets_the_changes_of_each_micro_batch_as_a_frame(spark: SparkSession) -> None:
    taken: list[tuple[int, list[Any]]] = []

    def take(frame: DataFrame, batch_id: int) -> None:
        assert frame.columns == ["ts", "op", "k", "n"] and frame.sparkSession is spark
        taken.append((batch_id, [tuple(row) for row in frame.orderBy("ts", "op").collect()]))

    with Engine(spark) as engine:
        engine.execute(TABLES)
        query = engine.register("counts", "SELECT k, COUNT(*) AS n FROM s GROUP BY k", into=take)
        engine.push("s", [(1, 0, 1), (1, 0, 2)])
        engine.push("s", [(1, 0, 3)])
        assert "go to" in refusal(lambda: list(query.changes()))
    assert [rows for _, rows in taken] == [
        [(1, "+", 1, 1)],
        [(2, "+", 1, 2), (2, "-", 1, 1)],
        [(3, "+", 1, 3), (3, "-", 1, 2)],
    ]
    ids = [batch_id for batch_id, _ in taken]
    assert ids == sorted(set(ids))
