"""Aggregates of users in the engine: what they are told, in which order, and what comes out at which instant."""

from __future__ import annotations

import datetime
import math
import os
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cql import types as t
from cql.bound import AggregateCall, ColumnRef
from cql.types import DataType
from runtime.aggregates.user import UserGroups, user_call
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import FOREVER
from runtime.state.cells import Cells
from runtime.user_errors import UserFunctionFailed
from tests.definition.aggregates import user_aggregate
from tests.definition.values import canonical, row_order

RUNS = int(os.environ.get("CQL_FUZZ", "60"))
"""How many random histories are tried, per aggregate."""

Row = tuple[Any, ...]
Lifetime = tuple[int, Row, int, int, int]
"""Slot, arguments, start, end, weight."""


class Told:
    """Returns all that it was told, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def add(self, *row: Any) -> None:
        self.calls.append(repr(row))

    def result(self) -> str:
        return " ".join(self.calls)


class Kept:
    """Returns the rows that are there; refuses to remove what is not."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, *row: Any) -> None:
        self.rows.append(row)

    def remove(self, *row: Any) -> None:
        self.rows.remove(row)

    def result(self) -> str:
        return " ".join(repr(row) for row in sorted(self.rows, key=row_order))


class Journal(Told):
    """Returns the additions and removals in order."""

    def add(self, *row: Any) -> None:
        self.calls.append(f"+{row[0]}")

    def remove(self, *row: Any) -> None:
        self.calls.append(f"-{row[0]}")


def apply(call: UserGroups, types: Sequence[DataType], rows: Sequence[Lifetime], cells: Sequence[tuple[int, int]],
          until: int) -> list[Any]:  # fmt: skip
    columns = [pa.array([row[1][i] for row in rows], arrow_type(each)) for i, each in enumerate(types)]
    slots, start, end, weight = (np.array([row[i] for row in rows], np.int64) for i in (0, 2, 3, 4))
    slot, instant = (np.array([cell[i] for cell in cells], np.int64) for i in (0, 1))
    return call.apply(slots, columns, start, end, weight, Cells(slot, instant, until)).to_pylist()


def alone(code: type, data_type: DataType, values: Sequence[Any], result: DataType = t.STRING) -> Any:
    """Return what a group of some values has as its result."""
    rows = [(0, (value,), 0, FOREVER, 1) for value in values]
    return apply(UserGroups(code, [data_type], result), [data_type], rows, [(0, 0)], 1)[0]


@pytest.mark.parametrize(
    ("data_type", "values", "told"),
    [
        (t.INT, [2, None, 1, 2], "(None,) (1,) (2,) (2,)"),
        (t.DOUBLE, [math.nan, 1.5, math.inf, -0.0], "(0.0,) (1.5,) (inf,) (nan,)"),
        (t.BOOLEAN, [True, False], "(False,) (True,)"),
        (t.STRING, ["ä", "b", ""], "('',) ('b',) ('ä',)"),
        (t.decimal(5, 2), [Decimal("1.50")], "(Decimal('1.50'),)"),
        (t.TIMESTAMP, [datetime.datetime(2024, 2, 29, 1)], f"({datetime.datetime(2024, 2, 29, 1)!r},)"),
    ],
    ids=str,
)
def test_values_are_told_in_ascending_order_as_python_has_them(data_type: DataType, values: Any, told: str) -> None:
    assert alone(Told, data_type, values) == told
    assert alone(Kept, data_type, values) == told


def test_without_arguments_rows_are_just_counted() -> None:
    call = UserGroups(Told, [], t.STRING)
    assert apply(call, [], [(0, (), 0, 5, 2)], [(0, 0), (0, 5)], 9) == ["() ()", None]


@pytest.mark.parametrize(
    ("returned", "data_type", "expected"),
    [
        (None, t.INT, None),
        (2**31, t.INT, None),
        (True, t.BIGINT, 1),
        (np.int64(7), t.BIGINT, 7),
        (2.5, t.decimal(4, 0), Decimal(3)),
        (7, t.DOUBLE, 7.0),
        (10**400, t.DOUBLE, math.inf),
        (datetime.datetime(2024, 1, 1), t.TIMESTAMP, datetime.datetime(2024, 1, 1)),
        (datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), t.TIMESTAMP, datetime.datetime(2024, 1, 1)),
    ],
)
def test_a_result_is_fitted_into_its_type(returned: Any, data_type: DataType, expected: Any) -> None:
    class Constant(Told):
        def result(self) -> Any:
            return returned

    assert alone(Constant, t.INT, [1], data_type) == expected


def test_results_follow_the_lifetimes_of_rows() -> None:
    for code in (Told, Kept):
        call = UserGroups(code, [t.INT], t.STRING)
        rows = [(0, (1,), 0, 4, 1), (0, (2,), 2, FOREVER, 1), (1, (7,), 3, 9, 2)]
        first = apply(call, [t.INT], rows, [(0, 0), (0, 2), (0, 4), (1, 3)], 5)
        assert first == ["(1,)", "(1,) (2,)", "(2,)", "(7,) (7,)"]
        taken_back = [(0, (2,), 6, FOREVER, -1)]
        assert apply(call, [t.INT], taken_back, [(0, 6), (1, 9)], 10) == [None, None]


def test_rows_that_start_or_end_after_the_heartbeat_wait_for_it() -> None:
    call = UserGroups(Kept, [t.INT], t.STRING)
    assert apply(call, [t.INT], [(0, (1,), 0, 7, 1), (0, (2,), 5, 9, 1)], [(0, 0)], 5) == ["(1,)"]
    assert apply(call, [t.INT], [], [(0, 5), (0, 7)], 8) == ["(1,) (2,)", "(2,)"]
    assert apply(call, [t.INT], [], [(0, 9)], 10) == [None]


def test_within_an_instant_changes_are_netted_and_additions_come_first() -> None:
    call = UserGroups(Journal, [t.INT], t.STRING)
    rows = [(0, (1,), 0, 3, 1), (0, (9,), 0, FOREVER, 1), (0, (5,), 3, 8, 1), (0, (4,), 3, 8, 1), (0, (6,), 3, 3, 1)]
    assert apply(call, [t.INT], rows, [(0, 3)], 4) == ["+1 +9 +4 +5 -1"]
    renewed = [(0, (4,), 8, FOREVER, 1)]
    assert apply(call, [t.INT], renewed, [(0, 8)], 9) == ["+1 +9 +4 +5 -1 -5"]


def test_a_group_that_lost_all_rows_starts_anew() -> None:
    call = UserGroups(Journal, [t.INT], t.STRING)
    rows = [(0, (1,), 0, 2, 1), (0, (2,), 5, FOREVER, 1)]
    assert apply(call, [t.INT], rows, [(0, 0), (0, 2), (0, 5)], 6) == ["+1", None, "+2"]


def test_distinct_rows_are_added_once() -> None:
    argument = ColumnRef(0, type=t.INT)
    for code, last in ((Told, "(1,)"), (Kept, "(1,)")):
        call = user_call(AggregateCall("f", (argument,), t.STRING, True, distinct=True, user_defined=True), code)
        rows = [(0, (1,), 0, 2, 2), (0, (1,), 1, 5, 1), (0, (2,), 0, 3, 1)]
        assert apply(call, [t.INT], rows, [(0, 1), (0, 2), (0, 3)], 4) == ["(1,) (2,)", "(1,) (2,)", last]


def test_a_failure_names_the_method_and_its_arguments() -> None:
    class Fails(Told):
        def add(self, x: int) -> None:
            if x == 3:
                raise ValueError("not three")

        def result(self) -> Any:
            return "text"

    call = UserGroups(Fails, [t.INT], t.STRING, "fails")
    with pytest.raises(UserFunctionFailed, match=r"^fails\.add\(3\) failed: ValueError: not three$") as caught:
        apply(call, [t.INT], [(0, (3,), 0, FOREVER, 1)], [(0, 0)], 1)
    assert (caught.value.function, caught.value.arguments) == ("fails.add", (3,))
    assert isinstance(caught.value.cause, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(UserFunctionFailed, match=r"^Fails\.result\(\) failed: .*'text'"):
        alone(Fails, t.INT, [1], t.INT)


# State


def restored(call: UserGroups, saved: dict[str, pa.RecordBatch], code: type, types: Sequence[DataType]) -> UserGroups:
    """Write what is new to the saved chunks and return a call that is loaded from them."""
    delta = call.delta()
    for name in delta.drop:
        del saved[name]
    assert not saved.keys() & delta.put.keys(), "names are never used again"
    saved.update(delta.put)
    made = UserGroups(code, types, t.STRING)
    made.load(saved)
    return made


def test_the_log_does_not_outgrow_what_is_there() -> None:
    call = UserGroups(Kept, [t.INT], t.STRING)
    saved: dict[str, pa.RecordBatch] = {}
    for now in range(0, 20_000, 500):
        rows = [(k % 7, (k,), k, k + 20, 1) for k in range(now, now + 500)]
        apply(call, [t.INT], rows, [(0, now + 499)], now + 500)
        delta = call.delta()
        saved = {name: rows for name, rows in (saved | delta.put).items() if name not in delta.drop}
        assert sum(map(len, saved.values())) < 2_500


def test_groups_without_rows_can_be_forgotten() -> None:
    call = UserGroups(Kept, [t.INT], t.STRING)
    apply(call, [t.INT], [(0, (1,), 0, 2, 1), (1, (1,), 0, FOREVER, 1)], [(0, 0), (0, 2), (1, 0)], 3)
    call.forget(np.array([0]))
    assert apply(call, [t.INT], [(0, (5,), 3, FOREVER, 1)], [(0, 3), (1, 3)], 4) == ["(5,)", "(1,)"]


# Random histories

TYPES = (t.DOUBLE, t.STRING)


def _random_history(rng: random.Random) -> list[Lifetime]:
    """Return rows of a few groups; some are taken back later, by rows of negative weight."""
    rows: list[Lifetime] = []
    for _ in range(rng.randint(0, 40)):
        row = (rng.choice((None, math.nan, -0.0, 0.0, 1.0, 2.5, -math.inf)), rng.choice((None, "", "a")))
        slot, start, weight = rng.randint(0, 2), rng.randint(0, 20), rng.randint(1, 2)
        if rng.random() < 0.6:
            rows.append((slot, row, start, start + rng.randint(0, 10), weight))
        else:
            rows.append((slot, row, start, FOREVER, weight))
            if rng.random() < 0.7:
                rows.append((slot, row, start + rng.randint(0, 10), FOREVER, -weight))
    return rows


def _defined(history: Sequence[Lifetime], slot: int, instant: int, code: type) -> Any:
    bag: Counter[Row] = Counter()
    for of, row, start, end, weight in history:
        if of == slot and start <= instant < end:
            bag[tuple(map(canonical, row))] += weight
    return user_aggregate(code, sorted(bag.elements(), key=row_order))


@pytest.mark.fuzz
@pytest.mark.parametrize("code", [Told, Kept])
def test_results_are_those_of_the_definition_whatever_the_batches(code: type) -> None:
    for seed in range(RUNS):
        rng = random.Random(f"{code.__name__} {seed}")
        history = _random_history(rng)
        call, saved = UserGroups(code, TYPES, t.STRING), dict[str, pa.RecordBatch]()
        left = rng.sample(history, len(history))
        heartbeats = sorted({rng.randint(1, 30) for _ in range(rng.randint(0, 6))} | {40})
        since = 0
        for until in heartbeats:
            known = [row[2] < until or rng.random() < 0.3 for row in left]
            batch = list(compress(left, known))
            left = [row for row, is_known in zip(left, known, strict=True) if not is_known]
            cells = [(slot, instant) for slot in range(3) for instant in range(since, until)]
            cells = [
                cell for cell in cells
                if rng.random() < 0.2 or any(cell in ((r[0], r[2]), (r[0], r[3])) for r in history)
            ]  # fmt: skip
            found = apply(call, TYPES, batch, cells, until)
            expected = [_defined(history, slot, instant, code) for slot, instant in cells]
            assert found == expected, f"seed {seed}, before {until}"
            since = until
            if rng.random() < 0.4:
                call = restored(call, saved, code, TYPES)
