"""The first rows of partitions over time: the engine against the definition at every instant."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from cql import types as t
from cql.bound import SortKey
from cql.types import DataType
from planner.operators import SortBy
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, FOREVER, ChangeBatch
from runtime.operators.top_n_state import Firsts
from tests.definition.evaluator import _numbered, _sorted
from tests.definition.values import Row, canonical
from tests.test_engine_extremes import VALUES, array, python_values, random_value, with_small_thresholds

CASES = int(os.environ.get("CQL_FUZZ", "60"))
"""How many random histories are tried."""

Life = tuple[Row, int, int, int]
"""A row, its start, end and weight."""


def key(column: int, descending: bool = False, nulls_first: bool = True) -> SortBy:
    return SortBy(column=column, descending=descending, nulls_first=nulls_first)


def bag_at(lives: Iterable[Life], at: int) -> Counter[Row]:
    bag: Counter[Row] = Counter()
    for row, start, end, weight in lives:
        if start <= at < end:
            bag[row] += weight
    assert min(bag.values(), default=0) >= 0, f"a row is there less than no times at {at}"
    return +bag


class History:
    """Rows that came so far, told to an engine batch by batch, and what is true of them."""

    def __init__(
        self,
        types: Sequence[DataType],
        partition: tuple[int, ...],
        keys: tuple[SortBy, ...],
        limit: int,
        numbered: bool,
    ) -> None:
        self.types, self.partition, self.keys, self.limit, self.numbered = types, partition, keys, limit, numbered
        self.engine = self.fresh()
        self.given: list[Life] = []
        self.answered: list[Life] = []
        self.chunks: dict[str, pa.RecordBatch] = {}

    def fresh(self) -> Firsts:
        return Firsts(self.partition, self.keys, self.limit, self.numbered, [arrow_type(each) for each in self.types])

    def advance(self, lives: list[Life], since: int, until: int) -> list[Life]:
        """Hand over a batch, check the answer at every instant up to its heartbeat, and return it."""
        self.given += [(tuple(canonical(v) for v in row), *rest) for row, *rest in lives]
        columns = tuple(array([life[0][at] for life in lives], each) for at, each in enumerate(self.types))
        start, end, weight = (np.array([life[i] for life in lives], np.int64) for i in (1, 2, 3))
        made = self.engine.apply(ChangeBatch(columns, start, end, weight, until))
        made.check(is_stream=False, since=since)
        answer = self._lives(made)
        assert all(life[1] < until and (life[2] < until or life[2] == FOREVER) for life in answer)
        self.answered += answer
        for at in self.instants(since, until):
            assert bag_at(self.answered, at) == self.expected(at), (self.given, at)
        return answer

    def instants(self, since: int, until: int) -> list[int]:
        happening = {instant for life in self.given for instant in life[1:3]} | {since, until - 1}
        return sorted(at for at in happening if since <= at < until)

    def expected(self, at: int) -> Counter[Row]:
        keys = [SortKey(each.column, each.descending, each.nulls_first) for each in self.keys]
        numbered = list(_numbered(_sorted(bag_at(self.given, at).elements(), keys), self.partition))
        return Counter(row if self.numbered else row[:-1] for row in numbered if row[-1] <= self.limit)

    def restart(self) -> None:
        """Go on with another engine, which knows only what this one has written."""
        made = self.engine.delta()
        self.chunks = {name: chunk for name, chunk in (self.chunks | made.put).items() if name not in made.drop}
        self.engine = self.fresh()
        self.engine.load(self.chunks)

    def _lives(self, batch: ChangeBatch) -> list[Life]:
        types = [arrow_type(each) for each in (*self.types, *([t.BIGINT] if self.numbered else []))]
        assert [column.type for column in batch.columns] == types
        rows = zip(*(python_values(column) for column in batch.columns), strict=True)
        return list(
            zip(rows, batch.start.tolist(), batch.ends.tolist(), batch.weights.tolist(), strict=True),
        )


def test_the_next_row_takes_the_place_of_one_that_leaves() -> None:
    history = History([t.INT], (), (key(0),), 2, numbered=False)
    assert sorted(history.advance([((3,), 0, 9, 1), ((1,), 2, 5, 1), ((2,), 2, FOREVER, 1)], 0, 8)) == [
        ((1,), 2, 5, 1),
        ((2,), 2, FOREVER, 1),
        ((3,), 0, 2, 1),
        ((3,), 5, FOREVER, 1),
    ]
    assert history.advance([], 8, 12) == [((3,), 9, FOREVER, -1)]


def test_a_row_that_is_there_three_times_counts_three_times() -> None:
    history = History([t.STRING, t.INT], (0,), (key(1, descending=True),), 3, numbered=False)
    history.advance([(("a", 1), 0, FOREVER, 3), (("a", 2), 1, FOREVER, 2), (("b", 1), 1, FOREVER, 4)], 0, 5)
    history.advance([(("a", 2), 6, FOREVER, -1), (("b", 1), 6, FOREVER, -2)], 5, 10)


def test_numbers_move_up_when_a_row_before_them_leaves() -> None:
    history = History([t.INT], (), (key(0),), 3, numbered=True)
    history.advance([((value,), 0, FOREVER, 1) for value in (4, 2, 1, 3)], 0, 1)
    assert sorted(history.advance([((2,), 1, FOREVER, -1)], 1, 2)) == [
        ((2, 2), 1, FOREVER, -1),
        ((3, 2), 1, FOREVER, 1),
        ((3, 3), 1, FOREVER, -1),
        ((4, 3), 1, FOREVER, 1),
    ]


def test_what_happens_behind_the_first_rows_changes_nothing() -> None:
    history = History([t.INT], (), (key(0),), 2, numbered=False)
    history.advance([((1,), 0, FOREVER, 1), ((2,), 0, FOREVER, 1)], 0, 1)
    assert history.advance([((3,), 1, 4, 1), ((5,), 2, FOREVER, 1), ((5,), 3, FOREVER, -1)], 1, 9) == []


def test_a_limit_of_zero_leaves_nothing() -> None:
    assert History([t.INT], (), (key(0),), 0, numbered=True).advance([((1,), 0, FOREVER, 1)], 0, 5) == []


def test_rows_from_before_all_instants_are_put_out_then() -> None:
    history = History([t.INT], (), (), 1, numbered=False)
    assert history.advance([((1,), BEGINNING, FOREVER, 1)], BEGINNING, 5) == [((1,), BEGINNING, FOREVER, 1)]


def test_rows_that_cancelled_are_given_up() -> None:
    history = History([t.INT], (), (key(0),), 3, numbered=False)
    for step in range(60):
        rows = [((step * 10 + at,), step, FOREVER, 1) for at in range(10)]
        rows += [((row[0] - 20,), step, FOREVER, -1) for row, *_ in rows if row[0] >= 20]
        history.engine.apply(
            ChangeBatch(
                (array([row[0] for row, *_ in rows], t.INT),),
                np.full(len(rows), step),
                None,
                np.array([weight for *_, weight in rows]),
                step + 1,
            )
        )
        assert len(history.engine) < 150


def random_lives(rng: Random, rows: Sequence[Row], open_lives: list[Life], since: int) -> list[Life]:
    """Return lives of some rows, among them some that take back open ones."""
    lives: list[Life] = []
    for _ in range(rng.randint(0, 12)):
        start = since + rng.choice((0, 0, 1, 2, 3, 5, 9, 14))
        end = FOREVER if rng.random() < 0.4 else start + rng.choice((0, 1, 2, 3, 8, 20))
        lives.append((rng.choice(rows), start, end, rng.choice((1, 1, 1, 3))))
        if end > start:
            open_lives += [lives[-1]] * lives[-1][3]
    rng.shuffle(open_lives)
    for _ in range(min(rng.randint(0, 6), len(open_lives))):
        row, start, end, _ = open_lives.pop()
        start = max(start, since) + rng.choice((0, 0, 1, 4))
        if start < end:
            lives.append((row, start, min(end, rng.choice((end, end, start + 1 + rng.randint(0, 5)))), -1))
    return lives


@pytest.mark.fuzz
@pytest.mark.parametrize("numbered", [False, True])
def test_the_first_rows_are_what_their_definition_says_at_every_instant(
    numbered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(CASES):
        rng = Random(f"{numbered} {seed}")
        with_small_thresholds(rng, monkeypatch)
        types = [rng.choice(list(VALUES)) for _ in range(rng.randint(1, 4))]
        columns = range(len(types))
        partition = tuple(rng.sample(columns, rng.choice((0, 0, 1, min(2, len(types))))))
        keys = tuple(key(rng.choice(columns), rng.random() < 0.5, rng.random() < 0.5) for _ in range(rng.randint(0, 3)))
        history = History(types, partition, keys, rng.choice((1, 2, 3, 5, 50)), numbered)
        rows = [tuple(random_value(rng, each) for each in types) for _ in range(rng.choice((3, 6, 20)))]
        since, open_lives = rng.choice((0, 0, -50, 2**62)), list[Life]()
        for _ in range(rng.randint(1, 8)):
            until = since + rng.choice((0, 1, 3, 8, 20))
            history.advance(random_lives(rng, rows, open_lives, since), since, until)
            since = until
            if rng.random() < 0.3:
                history.restart()
