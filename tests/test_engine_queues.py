"""Queues: every reader gets every row once and in order, in whatever pieces, and no piece announces too much."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch, concat, empty_batch
from runtime.engine.queues import Queue, Waiting

ROUNDS = int(os.environ.get("CQL_FUZZ", "1000"))
"""How many random queues are tried."""

TYPES = (pa.int64(), pa.string())


def batch(starts: Sequence[int], until: int, ends: Sequence[int] | None = None) -> ChangeBatch:
    """Return a batch whose rows are numbered by their starts."""
    columns = (pa.array(starts, pa.int64()), pa.array([f"row {at}" for at in starts], pa.string()))
    end = None if ends is None else np.array(ends, np.int64)
    return ChangeBatch(columns, np.array(starts, np.int64), end, None, until)


def heartbeat(until: int) -> ChangeBatch:
    return empty_batch(TYPES, until)


def queue(*readers: str, is_stream: bool = True) -> Queue:
    return Queue("queue/source", readers or ("select:0",), is_stream)


def contents(piece: ChangeBatch) -> tuple[list[int], int]:
    return piece.start.tolist(), piece.until


def drained(q: Queue, reader: str, most_rows: int) -> list[tuple[list[int], int]]:
    found = []
    while q.waiting(reader):
        found.append(contents(q.pop(reader, most_rows)))
    return found


# ---------------------------------------------------------------------------------------------------- heartbeats


def test_a_part_of_a_stream_announces_the_instant_of_the_next_element() -> None:
    q = queue()
    q.put(batch([1, 2, 5, 9], until=10), 0)
    assert drained(q, "select:0", 2) == [([1, 2], 5), ([5, 9], 10)]


def test_an_instant_of_a_stream_stays_whole() -> None:
    q = queue()
    q.put(batch([1, 4, 4, 4, 7], until=8), 0)
    assert drained(q, "select:0", 2) == [([1], 4), ([4, 4, 4], 7), ([7], 8)]


def test_a_part_of_a_relation_announces_the_smallest_start_behind_it() -> None:
    q = queue(is_stream=False)
    q.put(batch([8, 3, 3, 20, 5], until=6), 0)
    assert drained(q, "select:0", 2) == [([8, 3], 3), ([3, 20], 5), ([5], 6)]


def test_a_part_of_a_relation_announces_no_more_than_its_batch() -> None:
    q = queue(is_stream=False)
    q.put(batch([3, 20, 30], until=6), 0)
    assert drained(q, "select:0", 1) == [([3], 6), ([20], 6), ([30], 6)]


def test_a_heartbeat_moves_that_of_the_batch_before_it() -> None:
    q = queue()
    q.put(batch([1, 2], until=3), 0)
    q.put(heartbeat(7), 1)
    q.put(heartbeat(9), 2)
    assert q.waiting("select:0") == Waiting(0, 2, q.held_bytes)
    assert drained(q, "select:0", 10) == [([1, 2], 9)]


def test_a_heartbeat_reaches_a_reader_in_the_middle_of_a_batch() -> None:
    q = queue()
    q.put(batch([1, 2], until=3), 0)
    assert contents(q.pop("select:0", 1)) == ([1], 2)
    q.put(heartbeat(7), 1)
    assert drained(q, "select:0", 10) == [([2], 7)]


def test_heartbeats_without_rows_arrive_as_one_with_the_oldest_arrival() -> None:
    q = queue("fast:0", "slow:0")
    q.put(batch([1], until=2), 0)
    assert contents(q.pop("fast:0", 10)) == ([1], 2)
    q.put(heartbeat(7), 4)
    q.put(heartbeat(9), 5)
    assert q.waiting("fast:0") == Waiting(4, 0, 0)
    assert drained(q, "fast:0", 10) == [([], 9)]
    assert drained(q, "slow:0", 10) == [([1], 9)]


def test_a_heartbeat_that_says_nothing_new_is_not_passed_on() -> None:
    q = queue()
    q.put(heartbeat(7), 0)
    assert drained(q, "select:0", 10) == [([], 7)]
    q.put(heartbeat(7), 1)
    assert q.waiting("select:0") is None


def test_heartbeats_do_not_pile_up_before_a_slow_reader() -> None:
    q = queue("fast:0", "slow:0")
    for until in range(1000):
        q.put(heartbeat(until), until)
        q.pop("fast:0", 1)
    assert drained(q, "slow:0", 1) == [([], 999)]


def test_a_heartbeat_may_not_go_back() -> None:
    q = queue()
    q.put(heartbeat(7), 0)
    with pytest.raises(AssertionError, match="goes back from 7 to 6"):
        q.put(heartbeat(6), 0)


# -------------------------------------------------------------------------------------------------------- pieces


def test_small_batches_come_as_one() -> None:
    q = queue()
    for at in range(5):
        q.put(batch([at], until=at + 1), at)
    assert drained(q, "select:0", 2) == [([0, 1], 2), ([2, 3], 4), ([4], 5)]


def test_a_batch_that_fits_is_not_cut() -> None:
    q = queue()
    q.put(batch([1, 2], until=3), 0)
    q.put(batch([3, 4, 5], until=6), 1)
    assert drained(q, "select:0", 4) == [([1, 2], 3), ([3, 4, 5], 6)]


def test_a_whole_batch_is_handed_on_as_it_is() -> None:
    q = queue()
    given = batch([1, 2], until=3)
    q.put(given, 0)
    assert q.pop("select:0", 2) is given


def test_ends_and_weights_survive_being_put_together() -> None:
    q = queue(is_stream=False)
    q.put(batch([1], until=2), 0)
    q.put(batch([2], until=3, ends=[8]), 1)
    assert q.pop("select:0", 2).ends.tolist() == [FOREVER, 8]


def test_nothing_can_be_taken_from_an_empty_queue() -> None:
    with pytest.raises(AssertionError, match="nothing in queue/source waits for select:0"):
        queue().pop("select:0", 1)


# ---------------------------------------------------------------------------------------------------- accounting


def test_what_the_slowest_reader_has_taken_is_gone() -> None:
    q = queue("fast:0", "slow:0")
    q.put(batch([1, 2], until=3), 0)
    q.put(batch([3, 4], until=5), 1)
    total = q.held_bytes
    drained(q, "fast:0", 2)
    assert (q.elements("fast:0"), q.elements("slow:0"), q.held_elements) == (0, 4, 4)
    q.pop("slow:0", 2)
    assert (q.held_elements, q.held_bytes) == (2, total // 2)
    assert len(q._held) == 1
    q.pop("slow:0", 1)
    q.pop("slow:0", 1)
    assert (q.held_elements, q.held_bytes, len(q._held)) == (0, 0, 0)


def test_peaks_and_totals() -> None:
    q = queue()
    one = batch([1, 2], until=3)
    q.put(one, 0)
    q.pop("select:0", 5)
    q.put(batch([3, 4, 5], until=6), 1)
    q.pop("select:0", 5)
    q.put(batch([6], until=7), 2)
    assert (q.total_batches, q.total_elements, q.peak_elements, q.held_elements) == (3, 6, 3, 1)
    assert q.total_bytes > q.peak_bytes > one.nbytes > q.held_bytes > 0


def test_the_oldest_arrival_is_that_of_the_next_row() -> None:
    q = queue()
    q.put(batch([1, 2], until=3), 5)
    q.put(batch([3], until=4), 8)
    arrivals = []
    while waiting := q.waiting("select:0"):
        arrivals.append(waiting.arrival)
        q.pop("select:0", 1)
    assert arrivals == [5, 5, 8]


# ------------------------------------------------------------------------------------------------------ property


def random_batch(rng: random.Random, is_stream: bool, since: int) -> ChangeBatch:
    until = since + rng.choice((0, 1, 3, 10))
    most = until - 1 if is_stream else until + 8
    rows = rng.choice((0, 0, 1, 2, 5, 30)) if most >= since else 0
    starts = [rng.randint(since, most) for _ in range(rows)]
    if is_stream:
        return batch(sorted(starts), until)
    ends = [at + rng.randint(0, 9) for at in starts] if rng.random() < 0.5 else None
    return batch(starts, until, ends)


@pytest.mark.fuzz
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "relation"])
def test_readers_get_all_rows_in_order_under_heartbeats_that_hold(is_stream: bool) -> None:
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        readers = [f"reader:{port}" for port in range(rng.randint(1, 3))]
        q = queue(*readers, is_stream=is_stream)
        given = [random_batch(rng, is_stream, 0)]
        for _ in range(rng.randint(0, 12)):
            given.append(random_batch(rng, is_stream, given[-1].until))
        taken: dict[str, list[ChangeBatch]] = {reader: [] for reader in readers}
        for arrival, each in enumerate(given):
            q.put(each, arrival)
            for reader in readers:
                while q.waiting(reader) and rng.random() < 0.5:
                    taken[reader].append(q.pop(reader, rng.choice((1, 2, 7, 100))))
        for reader in readers:
            while q.waiting(reader):
                taken[reader].append(q.pop(reader, rng.choice((1, 2, 7, 100))))
            assert_same(taken[reader], given, is_stream)
        assert (q.held_elements, q.held_bytes, len(q._held)) == (0, 0, 0), seed


def assert_same(pieces: list[ChangeBatch], given: list[ChangeBatch], is_stream: bool) -> None:
    """Assert that pieces have the rows that were given, and keep the promises of their heartbeats."""
    since = BEGINNING
    for piece in pieces:
        piece.check(is_stream, since)
        assert len(piece) or piece.until > since, "a piece says nothing"
        since = piece.until
    assert since == given[-1].until
    whole, right = concat([given[0].slice(0, 0), *pieces]), concat(given)
    assert all(a.equals(b) for a, b in zip(whole.columns, right.columns, strict=True))
    for mine, theirs in ((whole.start, right.start), (whole.ends, right.ends), (whole.weights, right.weights)):
        assert mine.tolist() == theirs.tolist()
