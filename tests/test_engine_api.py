"""The engine from Python: statements, data, pushed rows, results, functions, and what goes wrong."""

from __future__ import annotations

import datetime
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import cql
from cql.engine import Change, Engine, Query
from cql.errors import Code, fail
from cql.session import Listing
from runtime.connectors import keeping

BID = "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at"
ROWS = [(1, 10, 1), (2, 20, 1), (1, 30, 3), (2, 5, 7)]
DICTS = [dict(zip(("auction", "price", "at"), row, strict=True)) for row in ROWS]


@pytest.fixture
def engine() -> Engine:
    return Engine(local=True)


def code_of(action: Any) -> str:
    with pytest.raises(cql.CqlError) as caught:
        action()
    return caught.value.diagnostics[0].code.name


def changes(query: Query) -> list[tuple[Any, ...]]:
    """Return changes as tuples; those of one instant have no order."""
    found = [(change.ts, change.op, *change.row.values()) for change in query.changes()]
    return sorted(found, key=lambda change: (change[0], repr(change)))


def test_the_engine_is_loaded_when_it_is_asked_for() -> None:
    program = "import cql, sys; before = 'cql.engine' in sys.modules; print(before, cql.Engine.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "Engine"]
    with pytest.raises(AttributeError):
        _ = cql.Motor  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [{"spark": object()}, {"checkpoint": "kept"}])
def test_a_local_engine_takes_nothing_of_spark(given: dict[str, Any]) -> None:
    assert code_of(lambda: Engine(**given, local=True)) == "BAD_DEFINITION"


def test_spark_is_needed_when_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session() -> None:
        raise fail(Code.MISSING, "Spark needs Java")

    monkeypatch.setattr("runtime.spark.session.local_session", no_session)
    engine = Engine()
    engine.execute(BID)
    query = engine.register("query", "SELECT price FROM bid")
    assert code_of(engine.start) == "MISSING"
    assert code_of(query.snapshot) == "BAD_DEFINITION", "it has not been started"


# Data


@pytest.mark.parametrize(
    "data",
    [
        DICTS,
        (row for row in DICTS),
        pa.Table.from_pylist(DICTS),
        pa.Table.from_pylist(DICTS).to_batches()[0],
        pa.Table.from_pylist(DICTS).to_batches(max_chunksize=2),
        pa.Table.from_pylist(DICTS).to_reader(),
        pd.DataFrame(DICTS),
        pd.DataFrame(DICTS, index=[4, 3, 2, 1]),
    ],
    ids=["dicts", "generator", "table", "record batch", "record batches", "reader", "data frame", "labelled rows"],
)
def test_a_stream_is_given_as_data(engine: Engine, data: Any) -> None:
    engine.stream("bid", data, timestamp="at")
    best = engine.register("best", "SELECT MAX(price) AS p FROM bid [Range 3 Seconds]")
    engine.start()
    assert changes(best) == [
        (1, "+", 20),
        (3, "+", 30),
        (3, "-", 20),
        (6, "+", None),
        (6, "-", 30),
        (7, "+", 5),
        (7, "-", None),
    ]
    assert best.snapshot().to_pylist() == [{"p": 5}]


def test_the_types_of_a_stream_are_those_of_its_data(engine: Engine) -> None:
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    engine.stream("s", [{"a": 1, "b": 0.5, "c": "x", "d": True, "e": Decimal("1.50"), "t": noon}], timestamp="t")
    (listing,) = engine.execute("DESCRIBE s")
    assert isinstance(listing, Listing)
    assert [row[1] for row in listing.rows] == ["BIGINT", "DOUBLE", "STRING", "BOOLEAN", "DECIMAL(3,2)", "TIMESTAMP"]
    everything = engine.register("everything", "SELECT * FROM s")
    engine.start()
    (change,) = everything.changes()
    assert change.ts == change.row["t"] == datetime.datetime(2026, 1, 1, 12)
    assert [change.row[name] for name in "abcde"] == [1, 0.5, "x", True, Decimal("1.50")]


def test_late_rows_are_put_in_order_within_the_delay(engine: Engine) -> None:
    engine.stream("s", [{"t": 5}, {"t": 3}, {"t": 1}, {"t": 9}], timestamp="t", delay="2 seconds")
    seen = engine.register("seen", "SELECT Istream(t) FROM s")
    engine.start()
    assert [change.ts for change in seen.changes()] == [3, 5, 9]
    (source,) = [part for part in engine.stats() if part["kind"] == "source"]
    assert (source["elements_in"], source["late"]) == (4, 1)


def test_relations_are_given_as_contents_or_as_changes(engine: Engine) -> None:
    engine.relation("names", [{"k": 1, "name": "one"}, {"k": 2, "name": "two"}])
    log = [{"t": 1, "op": "+", "k": 1}, {"t": 2, "op": "+", "k": 2}, {"t": 4, "op": "-", "k": 1}]
    engine.relation("present", log, timestamp="t", sign="op")
    who = engine.register("who", "SELECT name FROM names, present WHERE names.k = present.k")
    engine.start()
    assert changes(who) == [(1, "+", "one"), (2, "+", "two"), (4, "-", "one")]
    assert who.snapshot().to_pylist() == [{"name": "two"}]


def test_sources_of_statements_are_read_too(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "bids.csv").write_text("1,10,1\n2,20,2\n")
    engine.execute(
        f"{BID} FROM csv OPTIONS (path '{tmp_path}/bids.csv'); REGISTER QUERY q AS SELECT price FROM bid; START;"
    )
    assert changes(engine.query("Q")) == [(1, "+", 10), (2, "+", 20)]


# Pushing


def test_pushed_rows_give_results_at_once(engine: Engine) -> None:
    engine.execute(BID)
    recent = engine.register("recent", "SELECT price FROM bid [Range 2 Seconds]")
    engine.push("bid", [(1, 10, 1)])
    assert changes(recent) == []
    engine.push("BID", [{"price": 20, "at": 2}])
    assert changes(recent) == [(1, "+", 10)]
    engine.heartbeat("bid", 4)
    assert changes(recent) == [(1, "+", 10), (2, "+", 20), (3, "-", 10)]
    assert recent.snapshot().to_pylist() == [{"price": 20}]
    engine.push("bid", pa.table({"at": [6], "price": [30]}))
    engine.stop()
    assert changes(recent)[3:] == [(4, "-", 20), (6, "+", 30)]


def test_an_input_that_is_silent_holds_back_the_others(engine: Engine) -> None:
    engine.execute(f"{BID}; CREATE STREAM other (k INT, t INT) TIMESTAMP BY t")
    pairs = engine.register("pairs", "SELECT price, k FROM bid [Range 9], other [Range 9] WHERE k = auction")
    engine.push("bid", [(1, 10, 1), (1, 20, 5)])
    assert changes(pairs) == []
    engine.push("other", [(1, 2), (1, 3)])
    assert changes(pairs) == [(2, "+", 10, 1)]


def test_time_in_timestamps_is_pushed_as_datetimes_or_texts(engine: Engine) -> None:
    engine.execute("CREATE STREAM s (v DOUBLE, t TIMESTAMP) TIMESTAMP BY t")
    now = engine.register("now", "SELECT Istream(v) FROM s")
    engine.push("s", [{"v": 1, "t": "2026-01-01 00:00:00"}])
    engine.push("s", [{"v": 2, "t": datetime.datetime(2026, 1, 1, 0, 0, 1)}])
    engine.heartbeat("s", datetime.datetime(2026, 1, 1, 1, 0, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1))))
    assert [change.ts for change in now.changes()] == [
        datetime.datetime(2026, 1, 1, 0, 0, 0),
        datetime.datetime(2026, 1, 1, 0, 0, 1),
    ]
    assert code_of(lambda: engine.heartbeat("s", "soon")) == "BAD_TIMESTAMP"


def test_tables_in_the_form_of_stream_have_columns_ts_and_op(engine: Engine) -> None:
    engine.execute("REGISTER RELATION R (A int)")
    everything = engine.register("everything", "SELECT * FROM R")
    engine.push("R", [{"ts": 1, "op": "+", "A": 7}, {"ts": 3, "op": "-", "A": 7}])
    engine.push("R", [(4, "+", 8)])
    engine.stop()
    assert changes(everything) == [(1, "+", 7), (3, "-", 7), (4, "+", 8)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"auctoin": 1, "price": 1, "at": 1}], "'bid' has no column 'auctoin'"),
        ([{"price": "dear", "at": 1}], "the column 'price' of 'bid' is INT, and these are STRING"),
        ([{"price": 1.5, "at": 1}], "the column 'price' of 'bid' is INT, and these are DOUBLE"),
        ([{"price": 2**40, "at": 1}], "the column 'price' of 'bid' is INT, and "),
        ([{"price": 1}], "the data for 'bid', row 1: the column 'at' is NULL, and a row needs its instant"),
        ([{"price": 1, "at": "x"}, {"price": 1, "at": 2}], "the values of the column 'at' have no common type"),
        ([(1, 2)], "these are no rows"),
        ([1, 2], "these are no rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_the_engine_goes_on(engine: Engine, rows: Any, message: str) -> None:
    engine.execute(BID)
    seen = engine.register("seen", "SELECT Istream(price) FROM bid")
    with pytest.raises(cql.CqlError) as caught:
        engine.push("bid", rows)
    assert caught.value.diagnostics[0].message.startswith(message)
    engine.push("bid", ROWS)
    engine.stop()
    assert [change.row["price"] for change in seen.changes()] == [10, 20, 30, 5]


def test_what_cannot_be_pushed(engine: Engine) -> None:
    engine.execute(f"{BID}; CREATE STREAM idle (t INT) TIMESTAMP BY t; CREATE VIEW v AS SELECT at FROM bid")
    engine.stream("given", [{"t": 1}], timestamp="t")
    engine.register("q", "SELECT at, t FROM bid [Now], given [Now]")
    engine.start()
    assert code_of(lambda: engine.push("nothing", [])) == "UNKNOWN_TABLE"
    assert code_of(lambda: engine.push("v", [])) == "BAD_DEFINITION"
    assert code_of(lambda: engine.push("idle", [(1,)])) == "BAD_DEFINITION"
    assert code_of(lambda: engine.push("given", [(1,)])) == "BAD_DEFINITION"


# The life of an engine


def test_without_streams_to_push_the_engine_stops_by_itself_and_can_start_again(engine: Engine) -> None:
    engine.stream("bid", DICTS, timestamp="at")
    first = engine.register("first", "SELECT COUNT(*) AS n FROM bid")
    engine.start()
    assert first.snapshot().to_pylist() == [{"n": 4}]
    second = engine.register("second", "SELECT SUM(price) AS s FROM bid")
    assert code_of(second.snapshot) == "BAD_DEFINITION"
    engine.start()
    assert (first.snapshot().to_pylist(), second.snapshot().to_pylist()) == ([{"n": 4}], [{"s": 65}])


def test_a_running_engine_is_not_started_and_a_stopped_one_takes_no_rows(engine: Engine) -> None:
    engine.execute(BID)
    engine.register("q", "SELECT at FROM bid")
    engine.push("bid", ROWS)
    assert code_of(engine.start) == "BAD_DEFINITION"
    engine.execute("STOP")
    engine.stop()
    assert code_of(lambda: engine.push("bid", ROWS)) == "BAD_DEFINITION"


def test_as_a_context_the_engine_stops_at_the_end(tmp_path: Path) -> None:
    with Engine(local=True) as engine:
        engine.execute(f"{BID}; REGISTER QUERY q AS SELECT price FROM bid INTO csv OPTIONS (path '{tmp_path}/out')")
        engine.push("bid", ROWS)
        assert list((tmp_path / "out").glob("part*")) == []
    assert (tmp_path / "out" / "part-00000.csv").read_text() == "1,+,10\n1,+,20\n3,+,30\n7,+,5\n"
    assert code_of(engine.query("q").snapshot) == "BAD_DEFINITION"


def test_a_failure_inside_the_context_leaves_no_results(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Engine(local=True) as engine:
        engine.execute(f"{BID}; REGISTER QUERY q AS SELECT price FROM bid INTO csv OPTIONS (path '{tmp_path}/out')")
        engine.push("bid", ROWS)
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_the_data_of_a_stream_goes_with_it(engine: Engine) -> None:
    engine.stream("s", DICTS, timestamp="at")
    engine.execute("DROP STREAM s; CREATE STREAM s (v INT, t INT) TIMESTAMP BY t")
    seen = engine.register("seen", "SELECT v FROM s")
    engine.push("s", [(1, 1)])
    engine.stop()
    assert changes(seen) == [(1, "+", 1)]


# Results


def test_changes_are_objects_and_columns(engine: Engine) -> None:
    engine.stream("bid", DICTS, timestamp="at")
    dear = engine.register("dear", "SELECT Istream(price AS op) FROM bid WHERE price > 20")
    engine.start()
    assert list(dear.changes()) == [Change(3, "+", {"op": 30})]
    assert dear.to_arrow().to_pydict() == {"ts": [3], "_op": ["+"], "op": [30]}
    assert repr(dear) == "Query('dear')"


def test_a_query_without_results_has_its_columns_all_the_same(engine: Engine) -> None:
    engine.execute(BID)
    none = engine.register("none", "SELECT price, at FROM bid WHERE price < 0")
    engine.start()
    assert none.to_arrow().schema == pa.schema(
        [("ts", pa.int64()), ("op", pa.string()), ("price", pa.int32()), ("at", pa.int32())]
    )
    assert none.snapshot().schema == pa.schema([("price", pa.int32()), ("at", pa.int32())])


def test_a_snapshot_holds_rows_as_often_as_the_relation(engine: Engine) -> None:
    engine.stream("s", [{"v": v, "t": t} for t, v in ((1, 5), (1, 5), (2, 6), (3, 5), (4, 7))], timestamp="t")
    last = engine.register("last", "SELECT v FROM s [Rows 4]")
    engine.start()
    assert sorted(last.snapshot()["v"].to_pylist()) == [5, 5, 6, 7]


def test_statistics_are_those_of_the_query(engine: Engine) -> None:
    engine.stream("bid", DICTS, timestamp="at")
    dear = engine.register("dear", "SELECT Istream(price) FROM bid WHERE price > 9")
    engine.register("all", "SELECT SUM(price) AS s FROM bid")
    assert engine.stats() == dear.stats() == []
    engine.start()
    kinds = [(part["kind"], part["what"], part.get("elements_out")) for part in dear.stats()]
    assert ("source", "bid", None) in kinds and ("operator", "output", 3) in kinds
    assert not any(what == "aggregate" for _, what, _ in kinds)
    assert len(dear.stats()) < len(engine.stats())
    (listing,) = engine.execute("SHOW STATS")
    assert isinstance(listing, Listing) and len(listing.rows) == len(engine.stats())


def test_statements_answer(engine: Engine) -> None:
    answers = engine.execute(f"{BID}; EXPLAIN SELECT price FROM bid; SHOW STATS; SHOW STREAMS")
    assert [type(answer) for answer in answers] == [str, Listing, Listing]


# Functions


def test_functions_and_aggregates_of_the_user(engine: Engine) -> None:
    @engine.function
    def half(price: int) -> float:
        return price / 2

    @engine.aggregate(arguments=["INT"], returns="BIGINT")
    class Spread:
        def __init__(self) -> None:
            self.values: list[int] = []

        def add(self, value: int) -> None:
            self.values.append(value)

        def result(self) -> int:
            return max(self.values) - min(self.values)

    engine.stream(
        "bid", pa.Table.from_pylist(DICTS, pa.schema([("price", pa.int32()), ("at", pa.int32())])), timestamp="at"
    )
    halves = engine.register("halves", "SELECT Istream(half(price) AS h) FROM bid")
    spread = engine.register("spread", "SELECT SPREAD(price) AS s FROM bid")
    engine.start()
    assert [change.row["h"] for change in halves.changes()] == [5.0, 10.0, 15.0, 2.5]
    assert spread.snapshot().to_pylist() == [{"s": 25}]


def test_a_vectorized_function_takes_and_returns_columns(engine: Engine) -> None:
    calls: list[int] = []

    @engine.function(vectorized=True, arguments=["BIGINT", "BIGINT"], returns="DOUBLE")
    def share(price: pa.Array, of: pa.Array) -> pa.Array:
        calls.append(len(price))
        return pc.divide(pc.cast(price, pa.float64()), of)

    engine.stream("bid", [*DICTS, {"auction": 3, "price": None, "at": 8}], timestamp="at")
    shares = engine.register("shares", "SELECT Istream(share(price, 10) AS s) FROM bid WHERE share(10, 10) = 1")
    engine.start()
    assert [change.row["s"] for change in shares.changes()] == [1.0, 2.0, 3.0, 0.5, None]
    assert max(calls) > 1, "it is called with many rows at once"
    assert cql.Catalog.from_json(engine.catalog.to_json(), trusted=True).functions["share"].vectorized


@pytest.mark.parametrize("kind", ["BOOLEAN", "BYTE", "INT", "BIGINT", "DOUBLE", "STRING", "TIMESTAMP", "DECIMAL(9,2)"])
def test_a_vectorized_function_takes_columns_of_any_type(kind: str) -> None:
    with Engine(local=True) as engine:
        engine.function(lambda column: column, name="same", vectorized=True, arguments=[kind], returns=kind)
        engine.execute("CREATE STREAM s (v INT, t INT) TIMESTAMP BY t")
        value = "CAST(CAST(v AS STRING) AS TIMESTAMP)" if kind == "TIMESTAMP" else f"CAST(v AS {kind})"
        query = engine.register("q", f"SELECT Istream({value} AS v, same({value}) AS w) FROM s")
        engine.push("s", [(1, 1), (None, 2), (0, 3)])
    assert [change.row["v"] for change in query.changes()] == [change.row["w"] for change in query.changes()]
    assert len(list(query.changes())) == 3


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda price: price.slice(1), "it returned 0 values for 1 rows"),
        (lambda price: ["dear"] * len(price), "Failed to parse string: 'dear'"),
        (lambda price: pc.divide(price, pc.subtract(price, 30)), "bad(30) failed: ArrowInvalid: divide by zero"),
    ],
)
def test_a_vectorized_function_that_fails_is_named_with_its_row(engine: Engine, returned: Any, message: str) -> None:
    engine.function(returned, name="bad", vectorized=True, arguments=["BIGINT"], returns="BIGINT")
    engine.stream("bid", DICTS, timestamp="at")
    engine.register("q", "SELECT Istream(bad(price) AS b) FROM bid")
    with pytest.raises(cql.CqlError) as caught:
        engine.start()
    assert caught.value.diagnostics[0].code is cql.Code.FUNCTION_FAILED
    assert message in caught.value.diagnostics[0].message and "price = " in caught.value.diagnostics[0].message


def test_a_function_that_fails_is_named_with_its_query_and_row(engine: Engine) -> None:
    @engine.function
    def share(price: int) -> float:
        return 100 / (price - 30)

    engine.stream("bid", DICTS, timestamp="at")
    engine.register("fine", "SELECT price FROM bid")
    engine.register("shares", "SELECT share(price) AS s FROM bid")
    with pytest.raises(cql.CqlError) as caught:
        engine.start()
    problem = caught.value.diagnostics[0]
    assert problem.code is cql.Code.FUNCTION_FAILED
    failed = "query shares: share(30) failed: ZeroDivisionError: division by zero, on the row "
    assert problem.message.startswith(failed) and "price = 30" in problem.message.removeprefix(failed)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# Mistakes


def test_errors_point_into_the_text_that_was_given(engine: Engine) -> None:
    engine.execute(BID)
    with pytest.raises(cql.CqlError) as caught:
        engine.register("q", "SELECT prise FROM bid")
    assert caught.value.render().startswith("<q>:1:8: E202: there is no column 'prise'")
    assert list(engine.catalog.queries) == []


def test_definitions_that_make_no_sense_change_nothing(engine: Engine) -> None:
    assert code_of(lambda: engine.stream("s", DICTS, timestamp="when")) == "UNKNOWN_COLUMN"
    assert code_of(lambda: engine.stream("s", DICTS, timestamp="at", delay="soon")) in ("BAD_LITERAL", "SYNTAX")
    assert code_of(lambda: engine.stream("s", [{"t": None}], timestamp="t")) == "BAD_TIMESTAMP"
    assert code_of(lambda: engine.stream("s", [{"t": 1}, {"t": None}], timestamp="t")) == "BAD_DATA"
    assert code_of(lambda: engine.stream("s", [], timestamp="t")) == "CANNOT_INFER"
    assert code_of(lambda: engine.relation("s", DICTS, timestamp="at")) == "BAD_DEFINITION"
    assert list(engine.catalog.tables()) == []
    engine.execute("CREATE RELATION r (k INT)")
    engine.register("q", "SELECT k FROM r")
    assert code_of(engine.start) == "BAD_DEFINITION"


def test_an_rstream_works_for_what_it_says_and_not_for_the_time_that_passes(engine: Engine) -> None:
    """Listing the ticks from the first element of any query, or between two elements, would take gigabytes."""
    engine.execute("CREATE STREAM a (k INT, t INT) TIMESTAMP BY t; CREATE STREAM b (k INT, t INT) TIMESTAMP BY t")
    engine.register("other", "SELECT k FROM b")
    spoken = engine.register("spoken", "Rstream(SELECT k FROM a [Range 2])")
    engine.push("b", [(0, -2_000_000_000)])
    engine.push("a", [(1, 5), (2, 2_000_000_000)])
    engine.stop()
    assert changes(spoken) == [(5, "+", 1), (6, "+", 1), (2_000_000_000, "+", 2)]


# Progress


def test_progress_tells_how_far_the_queries_on_each_clock_are(engine: Engine) -> None:
    engine.execute(f"{BID} DELAY 2 SECONDS; CREATE STREAM s (v INT, t TIMESTAMP) TIMESTAMP BY t")
    assert engine.progress() == {} and engine.history() == []
    engine.register("sums", "SELECT auction, SUM(price) AS s FROM bid [Range 5] GROUP BY auction")
    engine.register("values", "SELECT Istream(v) FROM s WHERE v > 1")
    engine.push("bid", [(1, 10, 1), (2, 20, 3), (1, 30, 9)])
    engine.push("bid", [(1, 40, 2), (1, 5, 12)])
    engine.push("s", [(1, "2026-01-01"), (2, "2026-01-02")])
    engine.heartbeat("s", "2026-01-03 00:00:01")
    progress = engine.progress()
    assert progress.keys() == {"integer", "timestamp"}
    bids = progress["integer"]
    assert (bids.rows_in, bids.late, bids.rows_out) == ({"bid": 5}, {"bid": 1}, {"sums": 5})
    assert (bids.newest, bids.closed, bids.instants, bids.lag) == (12, 10, {"sums": 9}, 2)
    assert bids.state_bytes > 0 and bids.rows_per_second > 0 and bids.behind_now is None
    assert {each.what for each in bids.operators} >= {"aggregate", "output"} and bids.stores
    assert next(each for each in bids.operators if each.what == "output").elements_out == 5
    last = progress["timestamp"]
    assert last.lag == 0 and last.instants == {"values": 1767398400999999}
    assert last.behind_now is not None and last.behind_now > 0


def test_the_history_has_a_line_for_each_round_in_which_something_happened(engine: Engine) -> None:
    engine.execute(f"{BID}; CREATE STREAM s (v INT, t TIMESTAMP) TIMESTAMP BY t")
    engine.register("prices", "SELECT price FROM bid")
    engine.register("values", "SELECT v FROM s")
    for at in range(3):
        engine.push("bid", [(1, 10, at), (2, 20, at)])
    engine.push("s", [(1, "2026-01-01")])
    engine.stop()
    done = [(each.part, dict(each.tables), dict(each.queries)) for each in engine.history() if each.rows_in]
    assert done == [
        ("integer", {"bid": 2}, {}),
        ("integer", {"bid": 2}, {"prices": 2}),
        ("integer", {"bid": 2}, {"prices": 2}),
        ("timestamp", {"s": 1}, {}),
    ]
    frame = pd.DataFrame(engine.history())
    assert frame["rows_out"].sum() == 7 and frame["at"].is_monotonic_increasing and (frame["seconds"] > 0).all()


# Following changes


def bids(engine: Engine, query: str = "SELECT Istream(price) FROM bid") -> Query:
    """Return a query that waits for pushed rows of `bid`."""
    engine.execute(BID)
    found = engine.register("query", query)
    engine.start()
    return found


def in_a_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_one_who_follows_gets_what_was_and_what_comes_until_the_engine_stops(engine: Engine) -> None:
    query = bids(engine)
    engine.push("bid", [(1, 10, 1), (1, 20, 2)])
    seen: list[int] = []
    follower = in_a_thread(lambda: seen.extend(change.row["price"] for change in query.changes(follow=True)))
    for at in range(3, 50):
        engine.push("bid", [(1, 10 * at, at)])
    assert follower.is_alive()
    engine.stop()
    follower.join(10)
    assert seen == [10 * at for at in range(1, 50)]
    assert [change.row["price"] for change in query.changes(follow=True)] == seen, "it can be followed afterwards"


def test_changes_are_followed_as_instants_close(engine: Engine) -> None:
    query = bids(engine)
    followed = query.changes(follow=True)
    pusher = in_a_thread(lambda: [engine.push("bid", [(1, at, at)]) for at in range(5)] and None)
    assert [next(followed).ts for _ in range(4)] == [0, 1, 2, 3]
    pusher.join()
    followed.close()  # type: ignore[attr-defined]
    assert list(followed) == []


def test_one_who_follows_gets_the_error_of_a_run_that_fails(engine: Engine) -> None:
    @engine.function
    def inverse(price: int) -> float:
        return 1 / price

    query = bids(engine, "SELECT Istream(inverse(price) AS i) FROM bid")
    caught: list[str] = []

    def follow() -> None:
        try:
            list(query.changes(follow=True))
        except cql.CqlError as error:
            caught.append(error.diagnostics[0].code.name)

    follower = in_a_thread(follow)
    engine.push("bid", [(1, 1, 1)])
    assert code_of(lambda: engine.push("bid", [(1, 0, 2)])) == "FUNCTION_FAILED"
    follower.join(10)
    assert caught == ["FUNCTION_FAILED"]


def test_one_who_follows_ends_with_the_block_that_fails(engine: Engine) -> None:
    query = bids(engine)
    seen: list[Change] = []
    follower = in_a_thread(lambda: seen.extend(query.changes(follow=True)))
    with pytest.raises(KeyError), engine:
        engine.push("bid", ROWS)
        raise KeyError
    follower.join(10)
    assert not follower.is_alive()


# What is kept


def test_the_last_changes_are_kept_and_the_contents_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_FEWEST_FOLDED", 8)
    engine = Engine(local=True, keep=10)
    rows = bids(engine, "SELECT auction, COUNT(*) AS n FROM bid [Rows 7] GROUP BY auction")
    rng = random.Random(3)
    kept = engine._run.results["query"]  # type: ignore[union-attr]
    window: list[int] = []
    for at in range(500):
        engine.push("bid", [(auction := rng.randrange(5), 0, at)])
        if at % 17 == 0:
            found = {row["auction"]: row["n"] for row in rows.snapshot().to_pylist()}
            assert found == dict(Counter(window[-7:])), at
        window.append(auction)
    engine.stop()
    assert {row["auction"]: row["n"] for row in rows.snapshot().to_pylist()} == dict(Counter(window[-7:]))
    assert len(list(rows.changes())) == 10 and rows.forgotten == kept._changes - 10 > 400
    assert len(kept._batches) < 30, "what is not kept does not stay"


def test_elements_of_a_stream_beyond_what_is_kept_are_gone() -> None:
    engine = Engine(local=True, keep=3)
    prices = bids(engine)
    for at in range(10):
        engine.push("bid", [(1, at, at), (1, at, at)])
    engine.stop()
    assert [change.row["price"] for change in prices.changes()] == [8, 9, 9]
    assert prices.snapshot()["price"].to_pylist() == [8, 9, 9]
    assert prices.forgotten == 17


def test_one_who_follows_too_slowly_is_told_what_is_gone() -> None:
    engine = Engine(local=True, keep=5)
    prices = bids(engine)
    engine.push("bid", [(1, 1, 1), (1, 2, 2)])
    followed = prices.changes(follow=True)
    assert next(followed).row == {"price": 1}
    engine.push("bid", [(1, at, at) for at in range(3, 20)])
    with pytest.raises(cql.CqlError, match="12 changes of 'query' are gone"):
        list(followed)
    assert code_of(lambda: Engine(local=True, keep=0)) == "BAD_DEFINITION"


def test_the_last_closed_instant_is_known(engine: Engine) -> None:
    engine.execute(f"{BID}; CREATE STREAM s (v INT, t TIMESTAMP) TIMESTAMP BY t")
    prices = engine.register("prices", "SELECT price FROM bid [Range 2]")
    values = engine.register("values", "SELECT v FROM s")
    engine.start()
    assert prices.instant is None
    engine.push("bid", [(1, 10, 4)])
    assert prices.instant == 3 and prices.snapshot().num_rows == 0
    engine.heartbeat("bid", 9)
    assert prices.instant == 8 and prices.snapshot().num_rows == 0
    engine.push("s", [(1, "2026-01-01")])
    engine.stop()
    assert prices.instant == 8
    assert values.instant == datetime.datetime(2026, 1, 1)


def test_frames_need_spark(engine: Engine) -> None:
    query = bids(engine)
    assert code_of(query.dataframe) == "BAD_DEFINITION"
    assert code_of(query.snapshot_dataframe) == "BAD_DEFINITION"
