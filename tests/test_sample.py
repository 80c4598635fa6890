"""TABLESAMPLE: which rows are in a sample depends on their values alone, so a sample is as exact as any relation."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

import cql
from cql.errors import CqlError
from planner.plan import combine, compile_query
from runtime.columns.batch import Columns
from runtime.operators.sample import sampled
from tests.definition.notation import catalog
from tests.test_engine_operators import changes

SAMPLE = "SELECT * FROM S [Range 3] TABLESAMPLE (50 PERCENT)"


def rows(count: int) -> Columns:
    return pa.array(np.arange(count)), pa.array([f"row {at % 97}" for at in range(count)])


@pytest.mark.parametrize("percent", [0.0, 1.0, 12.5, 50.0, 99.0, 100.0])
def test_a_sample_has_about_its_share_of_rows(percent: float) -> None:
    assert 100 * sampled(rows(20_000), 20_000, percent).mean() == pytest.approx(percent, abs=0.8)


def test_all_rows_are_in_the_whole_and_none_in_nothing() -> None:
    assert sampled(rows(1000), 1000, 100.0).all()
    assert not sampled(rows(1000), 1000, 0.0).any()


def test_a_larger_sample_has_all_rows_of_a_smaller_one() -> None:
    masks = [sampled(rows(5000), 5000, percent) for percent in (5.0, 20.0, 60.0)]
    assert not (masks[0] & ~masks[1]).any()
    assert not (masks[1] & ~masks[2]).any()


def test_a_row_has_one_fate_wherever_it_is() -> None:
    order = np.array(Random(1).sample(range(3000), 3000))
    mask = sampled(rows(3000), 3000, 30.0)
    moved = sampled(tuple(column.take(pa.array(order)) for column in rows(3000)), 3000, 30.0)
    assert (moved == mask[order]).all()
    assert (sampled(tuple(column.slice(1000, 500) for column in rows(3000)), 500, 30.0) == mask[1000:1500]).all()


def test_rows_are_told_apart_by_null_and_by_every_column() -> None:
    values = pa.array([None, 0, 1] * 1000, pa.int64()), pa.array([1, 2, 3] * 1000)
    for columns in (values, values[:1]):
        mask = sampled(columns, 3000, 50.0).reshape(1000, 3)
        assert (mask == mask[0]).all()


def test_a_sample_follows_its_window() -> None:
    elements = " ".join(f"{value}@{at}" for at in range(1, 9) for value in range(at, at + 5))
    window = changes("SELECT * FROM S [Range 3]", S=elements)
    assert changes("SELECT * FROM S [Range 3] TABLESAMPLE (100 PERCENT)", S=elements) == window
    assert not changes("SELECT * FROM S [Range 3] TABLESAMPLE (0 PERCENT)", S=elements)
    kept = {word[1:] for words in changes(SAMPLE, S=elements).values() for word in words.split()}
    assert 0 < len(kept) < 12
    chosen = {at: [word for word in words.split() if word[1:] in kept] for at, words in window.items()}
    expected = {at: sorted(words) for at, words in chosen.items() if words}
    assert {at: sorted(words.split()) for at, words in changes(SAMPLE, S=elements).items()} == expected


def test_a_sample_of_what_only_grows_only_grows() -> None:
    assert cql.bind("SELECT * FROM S TABLESAMPLE (10 PERCENT)", catalog()).is_stream


def test_a_sample_keeps_the_buckets_of_its_input() -> None:
    tree = cql.bind("SELECT a, COUNT(*) FROM S [Range 3] TABLESAMPLE (10 PERCENT) GROUP BY a", catalog())
    plan = combine([compile_query("q", tree)])
    assert [operator.kind for operator in plan.operators if operator.placement == "hash"] == [
        "seq-window",
        "sample",
        "aggregate",
        "output",
    ]
    assert sum(edge.route == "hash" for operator in plan.operators for edge in operator.inputs) == 1


def test_there_are_no_more_than_100_percent() -> None:
    with pytest.raises(CqlError, match="up to 100 PERCENT, not 101"):
        cql.bind("SELECT * FROM S TABLESAMPLE (101 PERCENT)", catalog())
