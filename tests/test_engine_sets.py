"""Texts as sets of words: the engine's ways to compare them agree with the definition, and with each other.

Which way the engine takes depends on how many texts, words and pairs there are, so that pairs are drawn from few and
from many of each, in runs as joins make them and in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from cql import types as t
from cql.types import DataType
from runtime.exact_sums.lanes import double_sums
from runtime.expressions import sets
from runtime.expressions.words import split_words
from tests.definition import Value
from tests.strategies import inputs_to_try
from tests.test_engine_expressions import Row, as_array, assert_agrees, bits, call, column, literal

FUNCTIONS: dict[str, DataType] = {"overlap": t.BIGINT, "inner_product": t.DOUBLE}
GAPS = (" ", " ", " ", "  ", "\t", "\n", "\v", "\f", "\r", " \r\n")
NO_GAPS = ("\x1c", "\x85", "\u00a0", "\u3000", "\x00", "")
"""What other languages take for white space, or nobody does."""

WEIGHTS = ("1", "2", "-1", "0.1", "0.7", "1e16", "-1e16", "3e-5", "1e308", "5e-324", "-0.0")
ODD_WEIGHTS = ("inf", "-Infinity", "NaN", "", "x", "1_0", "0x1", "\x011\x7f")


def random_text(rng: Random, vocabulary: int, most: int, odd: float) -> str:
    """Return some words, of which few or many have weights; odd ones are rare."""
    weighted = rng.choice((0.0, 0.5, 1.0))
    text = rng.choice(("", "", " ", "\n"))
    for _ in range(rng.randrange(most + 1)):
        word = f"w{rng.randrange(vocabulary)}" if rng.random() < 0.95 else rng.choice(("", "ä", "a:b", "\U0001f600"))
        if rng.random() < weighted:
            word += ":" + rng.choice(ODD_WEIGHTS if rng.random() < odd else WEIGHTS)
        text += word + rng.choice(NO_GAPS if rng.random() < odd else GAPS)
    return text


def random_pairs(rng: Random, left: Sequence[str], right: Sequence[str], count: int) -> list[Row]:
    """Return pairs of texts, some of them NULL, in runs of the same text on one side or without."""
    nulls = rng.choice((0.0, 0.0, 0.1))
    run = rng.choice((1, 1, 20))
    rows: list[Row] = []
    while len(rows) < count:
        a = None if rng.random() < nulls else rng.choice(left)
        rows += [(a, None if rng.random() < nulls else rng.choice(right)) for _ in range(run)]
    return rows[:count] if rng.random() < 0.5 else [(b, a) for a, b in rows[:count]]


def columns_of(rng: Random, rows: Sequence[Row]) -> list[pa.Array]:
    return [as_array(rng, values, t.STRING) for values in zip(*rows, strict=True)]


A, B = column(0, t.STRING), column(1, t.STRING)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("vocabulary", [3, 70, 2000])
def test_random_texts_agree_with_the_definition(name: str, vocabulary: int) -> None:
    rng = Random(vocabulary)
    for _ in range(inputs_to_try(120) // 6):
        most, odd = rng.choice((1, 4, 12, 40)), rng.choice((0.0, 0.0, 0.05, 0.3))
        left, right = (
            [random_text(rng, vocabulary, most, odd) for _ in range(rng.choice((1, 3, 30, 300)))] for _ in "ab"
        )
        rows = random_pairs(rng, left, right, rng.choice((1, 10, 400)))
        columns = columns_of(rng, rows)
        assert_agrees(call(name, FUNCTIONS[name], A, B), columns, rows)
        constant = literal(rng.choice(left), t.STRING)
        assert_agrees(call(name, FUNCTIONS[name], constant, B), columns, rows)
        assert_agrees(call(name, FUNCTIONS[name], A, constant), columns, rows)


LIMITS = ("_FEW_WORDS", "_MOST_COMBINATIONS", "_MOST_CELLS", "_BLOCK")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_way_has_the_same_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever limits are so low that what they allow is never done."""
    rng = Random(name)
    texts = [random_text(rng, 50, 12, 0.01) for _ in range(20)]
    rows = random_pairs(rng, texts, texts, 800)
    columns = columns_of(rng, rows)
    for lowered in (some for count in range(len(LIMITS) + 1) for some in combinations(LIMITS, count)):
        with monkeypatch.context() as changed:
            for each in lowered:
                changed.setattr(sets, each, 1)
            assert_agrees(call(name, FUNCTIONS[name], A, B), columns, rows, f"{name} with {lowered}")


@pytest.mark.parametrize(("few_words", "all_pairs", "way"), [(256, 0, "bits"), (0, 2**23, "all"), (0, 0, "pairs")])
def test_the_way_is_the_one_that_the_limits_leave(
    few_words: int, all_pairs: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name, function in {"bits": "_common_bits", "all": "_of_all", "pairs": "_of_pairs"}.items():
        real = getattr(sets, function)
        monkeypatch.setattr(sets, function, lambda *a, name=name, real=real: (taken.append(name), real(*a))[1])
    monkeypatch.setattr(sets, "_FEW_WORDS", few_words)
    monkeypatch.setattr(sets, "_MOST_COMBINATIONS", all_pairs)
    a, b = pa.array(["a b c", "b d c"] * 50), pa.array(["c b", "a b"] * 50)
    assert sets.overlap(t.BIGINT, a, b).to_pylist() == [2, 1] * 50
    assert taken == [way]


def test_sums_are_exact_and_symmetric() -> None:
    rng = Random(0)
    rows: list[Row] = []
    for _ in range(50):
        words = [f"w{at}:{rng.choice(WEIGHTS)}" for at in range(rng.randrange(3, 40))]
        rows.append((" ".join(words), " ".join(rng.sample(words, len(words)))))
    columns = columns_of(rng, rows)
    assert_agrees(call("inner_product", t.DOUBLE, A, B), columns, rows)
    assert sets.inner_product(t.DOUBLE, *columns).equals(sets.inner_product(t.DOUBLE, *columns[::-1]))


def test_double_sums_are_those_of_fsum() -> None:
    rng = Random(1)
    values = np.array([rng.choice((1e16, 1.0, -1e16, 0.1, 3e-200, -7.25)) for _ in range(2000)])
    group = np.array([rng.randrange(400) for _ in values])
    expected = [math.fsum(values[group == each]) for each in range(401)]
    assert [bits(value) for value in double_sums(values, group, 401).tolist()] == [bits(value) for value in expected]


# Words


def test_words_are_what_stands_between_white_space() -> None:
    rng = Random(2)
    texts: list[Value] = [random_text(rng, 9, 6, 0.2) for _ in range(200)] + [None, "", " "]
    first, words = split_words(as_array(rng, texts, t.STRING))
    found = [words[start:stop].to_pylist() for start, stop in pairwise(first)]
    assert found == [[word.decode() for word in str(text or "").encode().split()] for text in texts]
