"""The input manager: whatever the order of arrival within the delay, elements come out in the order of time."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch
from runtime.connectors import SourceRows
from runtime.local.inputs import InputManager

CASES = int(os.environ.get("CQL_FUZZ", "300"))
"""How many random arrivals are tried."""

Element = tuple[int, int]


def rows(
    instants: Sequence[int], values: Sequence[int] | None = None, signs: Sequence[int] | None = None
) -> SourceRows:
    """Return rows of one column; values count from 0 if none are given."""
    column = pa.array(range(len(instants)) if values is None else values, pa.int64())
    return SourceRows((column,), np.array(instants, np.int64), None if signs is None else np.array(signs, np.int64))


def elements(batches: Sequence[ChangeBatch]) -> list[Element]:
    return [pair for b in batches for pair in zip(b.start.tolist(), b.columns[0].to_pylist(), strict=True)]


class Source:
    """An input manager whose every batch is checked."""

    def __init__(self, delay: int = 0, is_stream: bool = True) -> None:
        self.manager = InputManager([pa.int64()], delay)
        self.is_stream = is_stream
        self.seen: list[Element] = []
        self._since = BEGINNING

    def take(self, batches: list[ChangeBatch]) -> list[Element]:
        for batch in batches:
            batch.check(self.is_stream, self._since)
            assert (batch.start < batch.until).all()
            self._since = batch.until
        assert not batches or self._since == self.manager.until
        found = elements(batches)
        self.seen += found
        return found

    def add(self, *instants: int) -> list[Element]:
        return self.take(self.manager.add(rows(instants)))


def test_an_instant_is_released_when_a_later_one_is_seen() -> None:
    source = Source()
    assert source.add(1, 2, 2) == [(1, 0)]
    assert source.manager.until == 2
    assert source.add(2, 5) == [(2, 1), (2, 2), (2, 0)]
    assert source.take(source.manager.finish()) == [(5, 1)]
    assert source.manager.late == 0


def test_a_delay_holds_back_what_may_still_be_preceded() -> None:
    source = Source(delay=10)
    assert source.add(100, 95) == []
    assert source.manager.until == 90
    assert source.add(90, 111) == [(90, 0), (95, 1), (100, 0)]
    assert source.manager.until == 101
    assert source.manager.held == 1


def test_an_element_at_the_heartbeat_is_not_late_and_one_before_it_is() -> None:
    source = Source(delay=10)
    source.add(100)
    source.add(90, 89)
    assert source.manager.late == 1
    assert source.take(source.manager.finish()) == [(90, 0), (100, 0)]


def test_lateness_does_not_depend_on_how_elements_are_cut_into_rows() -> None:
    together, apart = Source(), Source()
    together.add(5, 3, 6, 5, 6)
    for instant in (5, 3, 6, 5, 6):
        apart.add(instant)
    assert together.manager.late == apart.manager.late == 2


def test_elements_of_one_instant_come_in_one_batch_and_in_the_order_of_arrival() -> None:
    manager = InputManager([pa.int64()])
    batches = [*manager.add(rows([1, 2], [10, 20])), *manager.add(rows([2, 2, 3], [21, 22, 30])), *manager.finish()]
    assert [elements([batch]) for batch in batches] == [
        [(1, 10)],
        [(2, 20), (2, 21), (2, 22)],
        [(3, 30)],
    ]


def test_a_heartbeat_releases_and_makes_what_is_before_it_late() -> None:
    source = Source(delay=100)
    source.add(10, 20)
    assert source.take(source.manager.heartbeat(15)) == [(10, 0)]
    assert source.add(14, 15) == []
    assert source.manager.late == 1
    assert source.take(source.manager.heartbeat(12)) == []
    assert source.take(source.manager.finish()) == [(15, 1), (20, 1)]


def test_a_heartbeat_without_rows_is_an_empty_batch_of_the_declared_types() -> None:
    (batch,) = InputManager([pa.int32(), pa.string()]).heartbeat(7)
    assert (len(batch), batch.until, [c.type for c in batch.columns]) == (0, 7, [pa.int32(), pa.string()])


def test_nothing_new_gives_no_batch() -> None:
    source = Source()
    source.add(5)
    assert source.manager.add(rows([])) == []
    assert source.manager.add(rows([5])) == []
    assert InputManager([pa.int64()]).finish() == []


def test_signs_are_weights() -> None:
    manager = InputManager([pa.int64()])
    batches = manager.add(rows([1, 2, 3], [7, 7, 8], [1, -1, 1])) + manager.finish()
    assert [batch.weights.tolist() for batch in batches] == [[1, -1], [1]]


def test_a_static_relation_is_one_batch_at_the_beginning() -> None:
    source = Source(is_stream=False)
    for _ in range(5):
        assert source.add(BEGINNING, BEGINNING) == []
    (batch,) = source.manager.finish()
    assert len(batch) == 10 and set(batch.start.tolist()) == {BEGINNING}


@pytest.mark.parametrize("delay", [0, 5, 2**63 - 1])
def test_instants_at_the_ends_of_time_do_not_overflow(delay: int) -> None:
    source = Source(delay)
    source.add(BEGINNING + 1, BEGINNING + 3, BEGINNING + 2)
    source.add(FOREVER - 1)
    source.take(source.manager.finish())
    instants = [instant for instant, _ in source.seen]
    assert instants == sorted(instants) and len(instants) + source.manager.late == 4
    assert source.manager.late == (1 if delay == 0 else 0)


def test_sorted_rows_without_delay_are_not_copied() -> None:
    manager = InputManager([pa.int64()])
    added = rows(range(1000))
    (batch,) = manager.add(added)
    assert batch.start.base is added.instants or batch.start is added.instants
    assert batch.columns[0].buffers()[1].address == added.columns[0].buffers()[1].address
    more = rows(range(1000, 2000))
    first, second = manager.add(more)
    assert (len(first), len(second)) == (1, 999)
    assert second.columns[0].buffers()[1].address == more.columns[0].buffers()[1].address


def test_memory_is_proportional_to_what_is_held_back() -> None:
    manager = InputManager([pa.int64()], delay=10)
    for first in range(0, 1_000_000, 10_000):
        manager.add(rows(range(first, first + 10_000)))
        held = [run.rows.columns[0].get_total_buffer_size() for run in manager._runs]
        assert sum(held) <= 2 * 8 * manager.held
    assert manager.held == 11


def test_small_additions_make_few_runs() -> None:
    manager = InputManager([pa.int64()], delay=10_000)
    for instant in range(5000):
        manager.add(rows([instant ^ 1]))
    assert manager.held == 5000
    assert len(manager._runs) <= 14


def arrivals(rng: random.Random) -> tuple[list[int], int]:
    """Return instants in the order of arrival, some of them late, and a delay."""
    delay = rng.choice([0, 1, 3, 20])
    spread = rng.choice([0, delay, delay, 3 * delay + 2])
    instants = sorted(rng.randint(-50, 50) for _ in range(rng.randint(0, 60)))
    return sorted(instants, key=lambda instant: instant + rng.randint(0, spread)), delay


def by_definition(instants: list[int], delay: int) -> tuple[list[Element], int]:
    """Return the elements in time order, ties in arrival order, and how many are late, one element at a time."""
    kept, heartbeat = [], BEGINNING
    for number, instant in enumerate(instants):
        if instant >= heartbeat:
            kept.append((instant, number))
        heartbeat = max(heartbeat, instant - delay)
    return sorted(kept), len(instants) - len(kept)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(5))
def test_any_arrival_within_the_delay_gives_the_elements_in_order_and_late_ones_are_counted(part: int) -> None:
    for seed in range(part * CASES // 5, (part + 1) * CASES // 5):
        rng = random.Random(seed)
        instants, delay = arrivals(rng)
        source, at = Source(delay), 0
        while at < len(instants):
            size = rng.choice([1, 2, 7, 30])
            cut = instants[at : at + size]
            source.take(source.manager.add(rows(cut, range(at, at + len(cut)))))
            at += size
        source.take(source.manager.finish())
        assert (source.seen, source.manager.late) == by_definition(instants, delay), f"seed {seed}"
