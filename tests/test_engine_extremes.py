"""Extremes over time: the engine's MIN, MAX, ARG_MIN and ARG_MAX against their definition at every instant."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from cql import bound
from cql import types as t
from cql.types import DataType, Kind
from runtime.aggregates.extremes import EXTREMES, ExtremeCall, extreme_call
from runtime.columns import sort_codes as order
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, FOREVER
from runtime.state import sorted_runs as runs
from runtime.state.cells import Cells
from tests.definition.aggregates import AGGREGATES
from tests.definition.values import Value, canonical

CASES = int(os.environ.get("CQL_FUZZ", "40"))
"""How many random histories are tried."""

VALUES: dict[DataType, list[Value]] = {
    t.NULL: [None],
    t.BOOLEAN: [True, False, None],
    t.BYTE: [-128, 127, 0, 3, None],
    t.INT: [-(2**31), 2**31 - 1, 0, 5, None],
    t.BIGINT: [-(2**63), 2**63 - 1, 0, -1, 7, None],
    t.DOUBLE: [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, -2.5, 5e-324, None],
    t.STRING: ["", "a", "ab", "b", "é", "\U0001f600", "\uffff", "a\0", None],
    t.TIMESTAMP: [0, -5, 1_767_225_600_000_000, None],
    t.INTERVAL: [-(2**63), 2**63 - 1, 0, None],
    t.decimal(10, 2): [Decimal("1.50"), Decimal("-1.50"), Decimal("99999999.99"), None],
    t.decimal(38, 0): [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**64), Decimal(2**64 + 1), Decimal(-1), None],
}

Row = tuple[int, tuple[Value, ...], int, int, int]
"""A slot, arguments, start, end and weight."""


def aggregate(function: str, *types: DataType) -> bound.AggregateCall:
    arguments = tuple(bound.ColumnRef(at, type=each) for at, each in enumerate(types))
    return bound.AggregateCall(function, arguments, types[0], True)


def array(values: Sequence[Value], data_type: DataType) -> pa.Array:
    """Return values as a part of a longer array."""
    return pa.array([None, *values, None], arrow_type(data_type)).slice(1, len(values))


def python_values(column: pa.Array) -> list[Value]:
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return [canonical(value) for value in column.to_pylist()]


class History:
    """Rows that came so far, told to an engine call by call, and what is true of them."""

    def __init__(self, call: bound.AggregateCall, engine: ExtremeCall) -> None:
        self.call = call
        self.engine = engine
        self.rows: list[Row] = []
        self.chunks: dict[str, pa.RecordBatch] = {}

    def advance(self, rows: list[Row], since: int, until: int) -> None:
        """Hand over rows and check what the engine says of all instants at which something happens, and others."""
        self.rows += rows
        happening = {(slot, at) for slot, _, start, end, _ in self.rows for at in (start, end)}
        happening |= {(slot, since + 1) for slot, _ in happening}
        points = sorted((slot, at) for slot, at in happening if since <= at < until)
        cells = Cells(*(np.array([p[i] for p in points], np.int64) for i in (0, 1)), until)
        columns = [
            array([row[1][at] for row in rows], argument.type) for at, argument in enumerate(self.call.arguments)
        ]
        slot, start, end, weight = (np.array([row[i] for row in rows], np.int64) for i in (0, 2, 3, 4))
        result = self.engine.apply(slot, columns, start, end, weight, cells)
        assert result.type == arrow_type(self.call.type)
        assert python_values(result) == [self.expected(*point) for point in points], (self.rows, points)

    def expected(self, slot: int, at: int) -> Value:
        present: Counter[tuple[Value, ...]] = Counter()
        for own, values, start, end, weight in self.rows:
            if own == slot and start <= at < end:
                present[tuple(canonical(v) for v in values)] += weight
        assert min(present.values(), default=0) >= 0, "the test itself takes back what is not there"
        return AGGREGATES[self.call.function](list(present.elements()), self.call.type)

    def restart(self, fresh: ExtremeCall) -> None:
        """Go on with another engine, which knows only what this one has written."""
        made = self.engine.delta()
        assert not made.drop - set(self.chunks)
        self.chunks = {name: chunk for name, chunk in (self.chunks | made.put).items() if name not in made.drop}
        self.engine = fresh
        fresh.load(self.chunks)


def run(call: bound.AggregateCall, *steps: tuple[int, list[Row]]) -> None:
    history, since = History(call, extreme_call(call)), -100
    for until, rows in steps:
        history.advance(rows, since, until)
        since = until


def test_a_row_counts_from_its_start_up_to_its_end() -> None:
    call = aggregate("min", t.INT)
    engine = extreme_call(call)
    cells = Cells(np.zeros(4, np.int64), np.array([0, 2, 5, 9]), 10)
    result = engine.apply(
        np.zeros(2, np.int64),
        [pa.array([3, 1], pa.int32())],
        np.array([0, 2]),
        np.array([9, 5]),
        np.ones(2, np.int64),
        cells,
    )
    assert result.to_pylist() == [3, 1, 3, None]


def test_a_row_that_is_taken_back_gives_way_to_the_next() -> None:
    run(
        aggregate("max", t.INT),
        (10, [(0, (5,), 1, FOREVER, 1), (0, (4,), 1, FOREVER, 1), (0, (5,), 2, FOREVER, 1)]),
        (20, [(0, (5,), 11, FOREVER, -1), (0, (5,), 12, FOREVER, -1)]),
        (30, [(0, (4,), 21, FOREVER, -1)]),
    )


def test_a_row_with_a_known_end_can_be_taken_back_as_well() -> None:
    run(aggregate("min", t.INT), (10, [(0, (3,), 0, 30, 1), (0, (2,), 0, 40, 1)]), (35, [(0, (2,), 12, 40, -1)]))


def test_a_row_can_be_taken_back_for_a_while() -> None:
    run(aggregate("min", t.INT), (10, [(0, (3,), 0, FOREVER, 1)]), (20, [(0, (3,), 12, 25, -1)]), (30, []))


def test_a_row_waits_for_its_start() -> None:
    run(aggregate("min", t.INT), (10, [(0, (3,), 15, 25, 1), (0, (7,), 0, FOREVER, 1)]), (20, []), (30, []))


def test_rows_from_before_all_instants_count() -> None:
    run(aggregate("min", t.INT), (10, [(0, (3,), BEGINNING, FOREVER, 1), (0, (2,), 4, 6, 1)]))


def test_nothing_at_all_is_fine() -> None:
    run(aggregate("min", t.STRING), (10, []), (20, []))


def test_rows_that_cancelled_are_given_up() -> None:
    engine = extreme_call(aggregate("min", t.BIGINT))
    for step in range(200):
        values = np.arange(step * 50, step * 50 + 50)
        gone = values[values >= 100] - 100
        both = pa.array(np.concatenate([values, gone]))
        weight = np.concatenate([np.ones(50, np.int64), -np.ones(len(gone), np.int64)])
        slots, start, forever = np.zeros(len(both), np.int64), np.full(len(both), step), np.full(len(both), FOREVER)
        cells = Cells(np.zeros(1, np.int64), np.array([step]), step + 1)
        result = engine.apply(slots, [both], start, forever, weight, cells)
        assert result.to_pylist() == [max(0, step * 50 - 50)]
        assert len(engine) < 1000


def test_with_final_ends_only_rows_that_can_become_the_extreme_are_kept() -> None:
    engine = extreme_call(aggregate("max", t.BIGINT), final_ends=True)
    for step in range(50):
        start = np.arange(step * 100, step * 100 + 100)
        value = (start * 7919) % 1009
        cells = Cells(np.zeros(1, np.int64), start[:1], int(start[-1]) + 1)
        slots, weight = np.zeros(100, np.int64), np.ones(100, np.int64)
        engine.apply(slots, [pa.array(value)], start, start + 1000, weight, cells)
        assert len(engine) < 150


def test_what_is_written_is_proportional_to_what_changed() -> None:
    engine = extreme_call(aggregate("min", t.BIGINT))
    for step, count in enumerate((100_000, 10)):
        slots, ones = np.zeros(count, np.int64), np.ones(count, np.int64)
        cells = Cells(slots[:1], np.array([step]), step + 1)
        values, start = pa.array(np.arange(count)), np.full(count, step)
        engine.apply(slots, [values], start, np.full(count, FOREVER), ones, cells)
        written = sum(chunk.nbytes for chunk in engine.delta().put.values())
    assert written < 1000
    assert engine.delta().put == {}


@pytest.mark.parametrize("life", [300, 5_000, 100_000])
@pytest.mark.parametrize("ends_are_known", [False, True])
def test_large_batches_agree_with_a_scan_of_all_rows(life: int, ends_are_known: bool) -> None:
    count, size = 60_000, 20_000
    rng = np.random.default_rng(life)
    start = np.arange(count)
    slot, value, end = rng.integers(0, 3, count), rng.integers(0, 10**9, count), start + rng.integers(1, life, count)
    rows = [slot, value, start, end, np.ones(count, np.int64)]
    if not ends_are_known:
        forever = np.full(count, FOREVER)
        gone = [slot, value, end, forever, -np.ones(count, np.int64)]
        rows = [np.concatenate(both) for both in zip([*rows[:3], forever, rows[4]], gone, strict=True)]
    engine = extreme_call(aggregate("max", t.BIGINT), final_ends=ends_are_known)
    for since in range(0, count, size):
        until = since + size
        slots, values, starts, ends, weights = (each[(rows[2] >= since) & (rows[2] < until)] for each in rows)
        cells = Cells(np.repeat(np.arange(3), size), np.tile(np.arange(since, until), 3), until)
        result = engine.apply(slots, [pa.array(values)], starts, ends, weights, cells)
        for at in rng.integers(0, 3 * size, 100).tolist():
            instant = int(cells.instant[at])
            present = (slot == cells.slot[at]) & (start <= instant) & (instant < end)
            assert result[at].as_py() == (value[present].max() if present.any() else None)


def test_rows_are_sorted_by_their_columns_however_large_the_numbers() -> None:
    rng = Random(1)
    for _ in range(200):
        ranges = [rng.choice((1, 3, 2**20, 2**40, 2**63)) for _ in range(rng.randint(1, 4))]
        rows = [tuple(rng.randint(-each, each - 1) for each in ranges) for _ in range(rng.choice((0, 1, 5, 60)))]
        rows += rng.choices(rows, k=len(rows) // 2)
        columns = [np.array([row[at] for row in rows], np.int64) for at in range(len(ranges))]
        assert order.order_of(columns).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


def random_value(rng: Random, data_type: DataType) -> Value:
    if data_type.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE) and rng.random() < 0.5:
        return fit_number(rng.randint(-3, 3), data_type)
    return rng.choice(VALUES[data_type])


def fit_number(number: int, data_type: DataType) -> Value:
    return float(number) if data_type.kind is Kind.DOUBLE else number


def random_rows(
    rng: Random, types: Sequence[DataType], open_rows: list[Row], since: int, final_ends: bool
) -> list[Row]:
    """Return rows, among them some that take back open ones; all that starts does so at or after an instant."""
    rows: list[Row] = []
    for _ in range(rng.randint(0, 12)):
        start = since + rng.choice((0, 0, 1, 2, 3, 5, 9, 14))
        end = FOREVER if rng.random() < 0.4 else start + rng.choice((0, 1, 2, 3, 8, 20))
        row = (
            rng.randint(0, 2),
            tuple(random_value(rng, each) for each in types),
            start,
            end,
            rng.choice((1, 1, 1, 3)),
        )
        rows.append(row)
        if end > start and not (final_ends and end < FOREVER):
            open_rows += [row] * row[4]
    rng.shuffle(open_rows)
    for _ in range(rng.randint(0, 6)):
        if open_rows:
            slot, values, start, end, _ = open_rows.pop()
            start = max(start, since) + rng.choice((0, 0, 1, 4))
            if start >= end:
                continue
            back = rng.choice((end, end, start + 1 + rng.randint(0, 5)))
            rows.append((slot, values, start, min(back, end), -1))
    return rows


def with_small_thresholds(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small inputs go the ways that are meant for large ones, sometimes."""
    monkeypatch.setattr(runs, "_SAMPLE", rng.choice((1, 16)))
    monkeypatch.setattr(runs, "_FEWEST_IN_A_STEP", rng.choice((1, 3)))
    monkeypatch.setattr(runs, "_FEWEST_PASSED", rng.choice((0, 4096)))
    monkeypatch.setattr(order, "_FEW_TIMES", rng.choice((0, 16)))


@pytest.mark.fuzz
@pytest.mark.parametrize("final_ends", [False, True])
@pytest.mark.parametrize("function", EXTREMES)
def test_an_extreme_is_what_its_definition_says_at_every_instant(
    function: str, final_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(CASES):
        rng = Random(f"{function} {seed}")
        with_small_thresholds(rng, monkeypatch)
        types = [rng.choice(list(VALUES)) for _ in range(2 if function.startswith("arg") else 1)]
        call = aggregate(function, *types)
        history = History(call, extreme_call(call, final_ends))
        since, open_rows = rng.choice((0, 0, -50, 2**62)), list[Row]()
        for _ in range(rng.randint(1, 8)):
            until = since + rng.choice((0, 1, 3, 8, 20))
            history.advance(random_rows(rng, types, open_rows, since, final_ends), since, until)
            since = until
            if rng.random() < 0.3:
                history.restart(extreme_call(call, final_ends))
