"""Stores, indexes, slots and the agenda against the plainest models of them: lists and dictionaries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql.bound import RangeSpec
from runtime.columns.batch import FOREVER, ChangeBatch, Columns
from runtime.columns.int_buffer import GrowingInts
from runtime.columns.row_codes import row_codes
from runtime.state.code_index import CodeRuns
from runtime.state.future_changes import Agenda
from runtime.state.group_table import SlotTable
from runtime.state.store import RangeEnds, RowsEnds, Store, StoredEnds, Stub, by_keys
from tests.engine_cases import clashing_codes, small_limits
from tests.random_queries import first_seed

ROUNDS = int(os.environ.get("CQL_FUZZ", "20"))
"""How many random sequences of operations are tried on each structure."""

SEEDS = range(first_seed(), first_seed() + ROUNDS)
TYPES = (pa.int64(), pa.string())


@pytest.fixture(params=["usual", "small", "clashing"])
def tidiness(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test as usual, tidying up all the time, and with codes of keys that clash as well."""
    if request.param == "usual":
        yield
        return
    with small_limits() if request.param == "small" else clashing_codes():
        yield


def ints(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


def columns(keys: Sequence[int | None]) -> Columns:
    return pa.array(keys, pa.int64()), pa.array([f"text {key}" for key in keys], pa.string())


def first_column(rows: Columns, length: int) -> Columns:
    return rows[:1]


# ---------------------------------------------------------------------------------------------------- growing integers


@pytest.mark.fuzz
def test_growing_integers_are_a_list_that_forgets_its_beginning() -> None:
    for seed in SEEDS:
        rng = Random(seed)
        numbers, model, base = GrowingInts(), [], 0
        for _ in range(30):
            new = [rng.randrange(100) for _ in range(rng.choice((0, 1, 50, 900)))]
            numbers.append(ints(new))
            model += new
            base = rng.randint(base, len(model)) if rng.random() < 0.4 else base
            numbers.cut(base)
            assert numbers.values.tolist() == model[base:]
            assert 8 * (len(model) - base) <= numbers.nbytes <= 9 * len(model)
            positions = [rng.randrange(base, len(model)) for _ in range(5)] if base < len(model) else []
            assert numbers.at(ints(positions)).tolist() == [model[at] for at in positions]


# -------------------------------------------------------------------------------------------------------------- indexes


@pytest.mark.fuzz
@pytest.mark.parametrize("bits", [2, 6, 64])
def test_an_index_finds_every_position_of_a_code_and_no_other_code_of_enough_bits(bits: int, tidiness: None) -> None:
    for seed in SEEDS:
        rng, runs, model, oldest, following = Random(seed), CodeRuns(), dict[int, int](), 0, 0
        for _ in range(12):
            new = [rng.getrandbits(bits) << (64 - bits) for _ in range(rng.choice((0, 1, 7, 60)))]
            positions = range(following, following + len(new))
            following += len(new)
            runs.add(np.array(new, np.uint64), ints(positions), oldest)
            model |= dict(zip(positions, new, strict=True))
            oldest = rng.randint(oldest, following) if rng.random() < 0.4 else oldest
            if rng.random() < 0.3:
                runs.forget_before(oldest)
            asked = [rng.choice([*model.values(), rng.getrandbits(64)]) for _ in range(8)]
            low, high = (
                ints([rng.randint(0, following) for _ in asked]),
                ints([rng.randint(0, following) for _ in asked]),
            )
            for bounds in ((None, None), (low, high)):
                owner, found = runs.find(np.array(asked, np.uint64), *bounds)
                pairs = list(zip(owner.tolist(), found.tolist(), strict=True))
                assert len(set(pairs)) == len(pairs), "a position is found once"
                wanted = {
                    (i, at)
                    for i, code in enumerate(asked)
                    for at, its in model.items()
                    if its == code and at >= oldest and (bounds[0] is None or low[i] <= at < high[i])
                }
                assert wanted <= set(pairs)
                if bits < 40:
                    assert all(model[at] == asked[i] for i, at in pairs if asked[i] in model.values())


# ------------------------------------------------------------------------------------------------------------- stores


def log(rows: int) -> tuple[Store, list[Stub]]:
    """Return a log of a stream with readers of windows of different lengths."""
    store = Store(TYPES, is_log=True)
    return store, [
        store.stub(RangeEnds(RangeSpec(5))),
        store.stub(RangeEnds(RangeSpec(40))),
        store.stub(RowsEnds(rows)),
    ]


def test_whoever_comes_first_appends_and_the_others_find_the_rows_there() -> None:
    store, (first, second, _) = log(3)
    first.append(columns([1, 2]), ints([1, 2]), None, None)
    second.append(columns([1]), ints([1]), None, None)
    assert (len(store), first.seen, second.seen) == (2, 2, 1)
    second.append(columns([2, 3]), ints([2, 4]), None, None)
    assert (len(store), first.seen, second.seen) == (3, 2, 3)


def test_a_stub_does_not_show_what_it_has_not_seen() -> None:
    store, (first, second, _) = log(3)
    store.index("k", by_keys(first_column))
    first.append(columns([7, 7]), ints([1, 2]), None, None)
    second.append(columns([7]), ints([1]), None, None)
    codes = row_codes(columns([7])[:1], 1).codes
    for stub, shown in ((first, [0, 1]), (second, [0])):
        assert sorted(stub.find("k", codes, ints([0]), ints([9]))[1].tolist()) == shown


def test_the_rule_of_a_stub_says_how_long_rows_live() -> None:
    _, (short, long, last_three) = log(3)
    for stub in (short, long, last_three):
        stub.append(columns([1, 2, 3, 4]), ints([1, 2, 2, 9]), None, None)
    last_three.told = 1
    everything = ints(range(4))
    assert short.lifetimes(everything)[1].tolist() == [6, 7, 7, 14]
    assert long.lifetimes(everything)[1].tolist() == [41, 42, 42, 49]
    assert last_three.lifetimes(everything)[1].tolist() == [9, FOREVER, FOREVER, FOREVER]


def test_a_part_stays_as_long_as_one_stub_needs_it() -> None:
    store, (short, long, last_three) = log(2)
    for stub in (short, long, last_three):
        for at in range(3):
            stub.append(columns([at]), ints([at]), None, None)
    short.forget_before(30)
    assert len(store) == 3
    long.forget_before(41)
    assert len(store) == 3
    last_three.told = 1
    last_three.forget_before(2)
    assert (store.base, len(store)) == (1, 2)


def expected_bytes(store: Store) -> int:
    """Return the bytes of values, offsets and lifetimes: all but the bitmaps that some of Arrow's functions add."""
    rows = store.rows_since(store.base)
    numbers = (store.start,) if store.is_log else (store.start, store.end, store.weight)
    texts = sum(len(text) for text in rows[1].to_pylist())
    return sum(each.nbytes for each in numbers) + (8 + 4) * len(store) + texts


@pytest.mark.fuzz
def test_bytes_are_those_of_the_rows_that_are_there(tidiness: None) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        store = Store(TYPES, is_log=rng.random() < 0.5)
        stub = store.stub(RangeEnds(RangeSpec(20)) if store.is_log else StoredEnds())
        for now in range(0, 200, 5):
            keys = [rng.randrange(50) for _ in range(rng.choice((0, 1, 9)))]
            end = None if store.is_log else ints([now + rng.choice((3, 20, 60)) for _ in keys])
            stub.append(columns(keys), ints([now] * len(keys)), end, None)
            if rng.random() < 0.5:
                stub.forget_before(now)
            parts = store._parts
            counted = sum(column.nbytes for part in parts for column in part.columns)
            assert store.nbytes == counted + sum(numbers.nbytes for numbers in store._numbers)
            bitmaps = sum(2 * (part.last - part.first + 8) // 8 for part in parts)
            assert 0 <= store.nbytes - expected_bytes(store) <= bitmaps


@pytest.mark.fuzz
def test_stubs_of_different_progress_see_their_rows_of_a_relation(tidiness: None) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        store = Store(TYPES, is_log=False)
        store.index("k", by_keys(first_column))
        stubs = [store.stub(StoredEnds()) for _ in range(2)]
        log, places = [], [0, 0]
        for now in range(0, 120, 4):
            for _ in range(rng.choice((0, 1, 6))):
                key, end = rng.choice((None, 1, 2, 3)), rng.choice((now + 3, now + 30, FOREVER))
                log.append((key, now, end, rng.choice((1, 1, 2))))
                if rng.random() < 0.4:
                    log.append((key, now + 1, end, -log[-1][3]))
            reader = rng.randrange(2)
            behind = log[places[reader] :]
            places[reader] = len(log)
            keys, start, end, weight = ([row[i] for row in behind] for i in range(4))
            stubs[reader].append(columns(keys), ints(start), ints(end), ints(weight))
            stubs[reader].forget_before(now)
            for stub, place in zip(stubs, places, strict=True):
                assert_same_rows(stub, log[:place], max(stub.needed, 0))


def assert_same_rows(stub: Stub, log: Sequence[tuple[int | None, int, int, int]], since: int) -> None:
    """Compare how often each key is there from some instant on, as a stub finds it, with a log."""
    keys = (1, 2, 3)
    codes = row_codes((pa.array(keys, pa.int64()),), len(keys)).codes
    owner, positions = stub.find("k", codes, ints([since] * 3), ints([FOREVER] * 3))
    start, end = stub.lifetimes(positions)
    weight = stub.weights(positions)
    assert weight is not None
    found = stub.store.rows(positions)[0].to_pylist()
    for at, key in enumerate(keys):
        mine = (owner == at) & np.array([each == key for each in found], np.bool_)
        for instant in (since, since + 1, since + 10, since + 50):
            there = mine & (start <= instant) & (end > instant)
            wanted = sum(w for k, s, e, w in log if k == key and s <= instant < e)
            assert int(weight[there].sum()) == wanted, f"{key} at {instant}"


def test_a_reader_is_told_of_ends_by_rows_that_are_taken_back() -> None:
    store = Store(TYPES, is_log=True)
    window, reader = store.stub(RowsEnds(2)), store.stub(RowsEnds(2))
    window.append(columns([1, 2, 3]), ints([1, 2, 3]), None, None)
    batch = ChangeBatch(columns([1, 2, 3]), ints([1, 2, 3]), ints([3, FOREVER, FOREVER]), None, 4)
    reader.take_in(batch)
    assert reader.lifetimes(ints(range(3)))[1].tolist() == [3, FOREVER, FOREVER]
    window.append(columns([4]), ints([6]), None, None)
    later = ChangeBatch(columns([2, 4]), ints([6, 6]), None, ints([-1, 1]), 7)
    assert reader.lifetimes(ints(range(3)))[1].tolist() == [3, FOREVER, FOREVER]
    reader.take_in(later)
    assert reader.lifetimes(ints(range(4)))[1].tolist() == [3, 6, FOREVER, FOREVER]


# -------------------------------------------------------------------------------------------------------------- slots


@pytest.mark.fuzz
def test_slots_are_a_dictionary_whose_numbers_are_used_again(tidiness: None) -> None:
    for seed in SEEDS:
        rng = Random(seed)
        table, model = SlotTable(TYPES, [pa.float64()]), dict[int | None, tuple[int, int, float | None]]()
        table.add_lanes(["n"])
        kept: dict[str, pa.RecordBatch] = {}
        for _ in range(20):
            keys = [rng.choice((None, *range(40))) for _ in range(rng.choice((1, 3, 30)))]
            slots = table.slots(columns(keys), len(keys)).tolist()
            for key, slot in zip(keys, slots, strict=True):
                assert model.setdefault(key, (slot, 0, None))[0] == slot
            chosen = sorted(set(keys), key=str)
            places = ints([model[key][0] for key in chosen])
            for key in chosen:
                model[key] = (model[key][0], rng.randrange(9), rng.random())
            values = pa.array([model[key][2] for key in chosen], pa.float64())
            table.remember(places, {"n": ints([model[key][1] for key in chosen])}, (values,))
            if rng.random() < 0.3:
                gone = rng.sample(sorted(model, key=str), len(model) // 2)
                table.release(ints([model.pop(key)[0] for key in gone]))
            delta = table.delta()
            kept = {name: chunk for name, chunk in kept.items() if name not in delta.drop} | delta.put
            loaded = SlotTable(TYPES, [pa.float64()])
            loaded.load(kept)
            for each in (table, loaded):
                assert_same_groups(each, model)


def assert_same_groups(table: SlotTable, model: dict[int | None, tuple[int, int, float | None]]) -> None:
    assert len(table) == len(model)
    assert sorted(np.flatnonzero(table.in_use()).tolist()) == sorted(slot for slot, _, _ in model.values())
    slots = ints([slot for slot, _, _ in model.values()])
    assert [column.to_pylist() for column in table.keys(slots)] == [c.to_pylist() for c in columns(list(model))]
    if model:
        assert table.lane("n", slots).tolist() == [n for _, n, _ in model.values()]
    assert table.remembered(slots)[0].to_pylist() == [value for _, _, value in model.values()]
    assert table.slots(columns(list(model)), len(model)).tolist() == slots.tolist()


def test_lanes_that_no_group_has_a_value_in_yet_survive() -> None:
    table = SlotTable([pa.int64()])
    table.slots((pa.array([5]),), 1)
    table.add_lanes(["a", "b"])
    loaded = SlotTable([pa.int64()])
    loaded.load(table.delta().put)
    assert loaded.lane_names == ("a", "b")
    assert loaded.lane("b", ints([0])).tolist() == [0]


# ------------------------------------------------------------------------------------------------------------- agenda


@pytest.mark.fuzz
def test_the_agenda_gives_back_what_is_due_in_the_order_in_which_it_was_put(tidiness: None) -> None:
    for seed in SEEDS:
        rng, agenda, model, number, now = Random(seed), Agenda(), list[tuple[int, int]](), 0, 0
        kept: dict[str, pa.RecordBatch] = {}
        for _ in range(40):
            for _ in range(rng.choice((0, 1, 2))):
                new = [now + rng.randrange(30) for _ in range(rng.choice((0, 1, 10)))]
                new = sorted(new) if rng.random() < 0.5 else new
                agenda.put(ints(new), [pa.array(range(number, number + len(new)), pa.int64())])
                model += zip(new, range(number, number + len(new)), strict=True)
                number += len(new)
            assert len(agenda) == len(model)
            now += rng.choice((0, 1, 1, 8))
            taken = agenda.take(now)
            found = [] if taken is None else list(zip(taken[0].tolist(), taken[1][0].to_pylist(), strict=True))
            due = sorted(((at, which) for at, which in model if at < now))
            assert sorted(found, key=lambda row: row[0]) == due, "those of one instant are in their order"
            model = [row for row in model if row[0] >= now]
            delta = agenda.delta()
            kept = {name: chunk for name, chunk in kept.items() if name not in delta.drop} | delta.put
            if rng.random() < 0.2:
                agenda = Agenda()
                agenda.load(kept, now)
                agenda.delta()
                kept = dict(kept)
