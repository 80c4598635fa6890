"""What follows from little input and is much: it comes in pieces, and what has to be kept all the same has a bound."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import cql
from planner.plan import combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.connectors.results import repeated_in_blocks
from runtime.engine.executor import Executor
from runtime.network.changes import merged
from runtime.network.overflow import Overflow, kept_elsewhere
from runtime.operators.aggregate import Aggregate
from runtime.operators.streams import netted_lifetimes
from runtime.state import future_changes as agenda
from runtime.state.future_changes import Agenda

BLOCK = 50
STREAMS = "".join(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at BIGINT) TIMESTAMP BY at;" for name in "abc")
HOT = "FROM a [Range 1000], b [Range 1000] WHERE a.k = b.k"
CROSS = "FROM a [Range 1000], b [Range 1000]"


def executor_of(query: str, **options: int) -> Executor:
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    plan = combine([compile_query("q", cql.bind(query, catalog))])
    taps = [each.id for each in plan.operators]
    return Executor(plan, check=True, **({"block_rows": BLOCK} | options), taps=taps)


def push(executor: Executor, instants: list[int], until: int) -> None:
    """Push the same rows, all with one key, into all streams."""
    start = np.array(instants, np.int64)
    rows = (pa.array(np.ones(len(start), np.int64)), pa.array(np.arange(len(start))), pa.array(start))
    for source in executor.plan.sources:
        executor.push(source.id, ChangeBatch(rows, start, None, None, until))


@pytest.mark.parametrize("query", [
    f"SELECT a.v, b.v AS w {HOT}",
    f"SELECT a.v, b.v AS w {CROSS}",
    f"SELECT a.v, b.v AS w {CROSS} WHERE a.v <> b.v",
    f"SELECT a.v, COUNT(*) AS n {HOT} GROUP BY a.v",
    f"SELECT DISTINCT a.v, b.v AS w {HOT}",
    f"SELECT a.v, b.v AS w {HOT} AND a.v = 1 UNION ALL SELECT a.v, b.v AS w {CROSS}",
    "SELECT a.v, b.v AS w FROM a [Range 1000] LEFT JOIN b [Range 1000] ON a.k = b.k",
    "SELECT a.v FROM a [Range 1000], b [Range 1000], c [Range 1000] WHERE a.k = b.k AND b.k = c.k AND c.v < 3",
    "SELECT a.v, b.v AS w FROM a [Rows 30], b [Rows 30] WHERE a.k = b.k",
])  # fmt: skip
def test_what_follows_from_a_chunk_is_put_out_in_pieces(query: str) -> None:
    executor = executor_of(query)
    push(executor, [5] * 20 + [6] * 20, 10)
    executor.run()
    sizes = {each.id: [len(batch) for batch in executor.take_tapped(each.id)] for each in executor.plan.operators}
    assert max(map(max, filter(None, sizes.values()))) <= BLOCK
    joins = [own for name, own in sizes.items() if "join" in name]
    assert sum(joins[-1]) > 5 * BLOCK
    assert len(executor.take("q")) > 0


def test_no_queue_holds_what_a_join_makes() -> None:
    executor = executor_of(f"SELECT a.v % 3 AS g, COUNT(*) AS n {HOT} GROUP BY g")
    push(executor, list(range(60)), 100)
    executor.run()
    figures = executor.statistics_now().figures
    held = [each.elements_peak for each in figures if each.kind == "queue"]
    made = max(each.elements_out or 0 for each in figures if each.kind == "operator")
    assert made == 3600
    assert max(each or 0 for each in held) <= 2 * BLOCK + 60


def test_elements_of_a_stream_come_in_pieces_of_whole_instants() -> None:
    executor = executor_of("SELECT Istream(a.v, b.v AS w) FROM a [Range Unbounded], b [Range Unbounded]")
    push(executor, [1] * 3 + [2] * 3 + [9] * 20, 100)
    pieces = []
    while executor.step():
        pieces += [len(each) for each in executor.take_tapped(executor.plan.output("q").id) if len(each)]
    assert sum(pieces) == 26 * 26
    assert pieces[:1] == [36] or pieces[:2] == [9, 27]


def test_aggregation_above_a_join_holds_cells_and_not_pairs() -> None:
    most = 0
    with patch.object(agenda, "LONG", 100):
        executor = executor_of(f"SELECT COUNT(*) AS n {CROSS}")
        (aggregate,) = (each for each in executor.operators.values() if isinstance(each, Aggregate))
        push(executor, list(range(100)), 200)
        while executor.step():
            most = max(most, *map(len, aggregate.agendas))
    assert 0 < most < 2500


def test_rstream_speaks_at_billions_of_instants_piece_by_piece() -> None:
    executor = executor_of("SELECT Rstream(v) FROM a [Range Unbounded]")
    push(executor, [0, 2_000_000_000], 2_000_000_001)
    output = executor.plan.output("q").id
    pieces = []
    while len(pieces) < 5 and executor.step():
        pieces += [each for each in executor.take_tapped(output) if len(each)]
    assert [len(each) for each in pieces] == [BLOCK] * len(pieces)
    assert np.concatenate([each.start for each in pieces]).tolist() == list(range(BLOCK * len(pieces)))


@pytest.mark.parametrize(("window", "count"), [
    ("Range 10", 11), ("Range 10 Slide 2", 11), ("Rows 1", None), ("Range 3000000000 Slide 1000000000", None),
])  # fmt: skip
def test_instants_at_which_nothing_is_there_cost_nothing(window: str, count: int | None) -> None:
    executor = executor_of(f"SELECT Rstream(v) FROM a [{window}]" + ("" if count else " WHERE v > 5"))
    push(executor, [0, 2_000_000_000], 2_000_000_001)
    executor.run()
    assert len(executor.take("q")) == (count or 0)


def test_lifetimes_of_rows_that_enter_and_leave_add_up() -> None:
    columns = (pa.array([7, 7, 8, 7]),)
    start, end = np.array([0, 5, 3, 9]), np.array([20, 20, 4, 10])
    found = netted_lifetimes(columns, start, end, np.array([1, -1, 2, 3]))
    rows = [(columns[0][at].as_py(), *rest) for at, *rest in zip(*(each.tolist() for each in found), strict=True)]
    assert sorted(rows) == [(7, 0, 5, 1), (7, 9, 10, 3), (8, 3, 4, 2)]


def test_an_agenda_is_cut_where_so_much_is_due() -> None:
    coming = Agenda()
    coming.put(np.array([1, 1, 1, 4, 4, 9]), [pa.array(range(6))])
    assert [coming.cut(20, most) for most in (1, 3, 4, 5, 6)] == [2, 4, 4, 9, 20]
    coming.take(4)
    assert [coming.cut(20, most) for most in (1, 2, 3)] == [5, 9, 20]


def test_changes_that_weigh_much_are_written_a_few_at_a_time() -> None:
    batch = ChangeBatch((pa.array([1, 2, 3, 4]),), np.arange(4), None, np.array([1, -5, 2, 1]), 9)
    with patch("runtime.connectors.results.BLOCK_ROWS", 2):
        parts = list(repeated_in_blocks(batch))
    assert [len(part) for part in parts] == [1, 2, 2, 1, 2, 1]
    assert [weight for part in parts for weight in part.weights.tolist()] == [1, *[-1] * 5, 1, 1, 1]


def test_what_is_sent_beyond_some_bytes_is_in_a_file(tmp_path: Path) -> None:
    with patch("runtime.network.overflow.MOST_BYTES", 10):
        overflow = Overflow(tmp_path / "overflow")
        sent = [overflow.passed(each) for each in (b"12345678", b"abc", b"defg")]
        overflow.close()
    assert sent[0] == b"12345678" and b"abc" not in sent[1]
    assert [kept_elsewhere(each) for each in sent] == [b"12345678", b"abc", b"defg"]
    assert len(list((tmp_path / "overflow").iterdir())) == 1


def test_results_of_several_places_are_merged_by_time_with_a_piece_of_each_at_hand() -> None:
    read: list[int] = []

    def place(*pieces: list[int]):  # type: ignore[no-untyped-def]
        for each in pieces:
            read.append(each[0])
            start = np.array(each, np.int64)
            yield ChangeBatch((pa.array(start),), start, None, None, 0)

    found = merged([place([1, 2, 5], [5, 9]), place([2, 3]), place([4, 8], [100])])
    first = list(islice(found, 1))
    assert [each.start.tolist() for each in first] == [[1, 2, 2, 3]]
    assert read == [1, 2, 4]
    assert [instant for each in found for instant in each.start.tolist()] == [4, 5, 5, 8, 9, 100]


def test_a_query_that_keeps_too_much_ends_with_an_error_that_names_it_and_the_operator() -> None:
    with cql.Engine(local=True) as engine:
        engine.execute(f"{STREAMS} SET max_memory = '1 MB';")
        engine.register("small", "SELECT k FROM a [Now]")
        engine.register("pairs", f"SELECT a.v, b.v AS w {HOT}")
        rows = [(1, at, 5) for at in range(500)]
        engine.push("a", rows)
        with pytest.raises(cql.CqlError) as raised:
            engine.push("b", rows)
            engine.push("a", [(1, 1, 9)])
            engine.push("b", [(1, 1, 9)])
            engine.stop()
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code.text == "E514"
    assert "query pairs" in diagnostic.message and "output-" in diagnostic.message
    assert "max_memory" in (diagnostic.hint or "")


@pytest.mark.parametrize("value", ["lots", "0 MB", "-1"])
def test_a_bound_on_memory_is_a_size_or_off(value: str) -> None:
    catalog = cql.Catalog()
    catalog.execute("SET max_memory = off; SET max_memory = '64 MB';")
    assert catalog.settings.memory_bytes == 64 << 20
    with pytest.raises(cql.CqlError, match="max_memory"):
        catalog.execute(f"SET max_memory = '{value}';")
