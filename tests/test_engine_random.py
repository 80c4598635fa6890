"""Property: the engine gives the results that the definition gives, at every instant.

A case is a query or a network of queries, data for its inputs, and a way to run it: how the input is cut into batches
and chunks, how late elements come, the scheduler, sharing, and how soon the engine tidies up its state. None of these
may change an answer. `tests/engine_cases.py` makes the cases; the definitional evaluator is the judge.
"""

from __future__ import annotations

import os
import random

import pytest

import cql
from tests.engine_cases import Case, check, random_case, random_setup
from tests.random_queries import Data, catalog, first_seed

CASES = int(os.environ.get("CQL_FUZZ", "3000"))
"""How many ways to run a query on data are tried."""

PARTS = 10
SETUPS = 4


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_agrees_with_the_definition(part: int) -> None:
    tried, refused, seed = 0, 0, first_seed() + part
    while tried < CASES // PARTS:
        rng = random.Random(seed)
        seed += PARTS
        case = random_case(rng)
        if case is None:
            refused += 1
            continue
        for _ in range(SETUPS):
            check(case, random_setup(rng, case))
            tried += 1
    assert refused <= 5 + tried // 10, "the planner refuses too much"


# --------------------------------------------------------------------------- networks that begin at different instants

LATER = (
    "Istream(SELECT k FROM D1 UNION ALL SELECT k FROM P1 [Now])",
    "Dstream(SELECT k FROM D1 UNION ALL SELECT k FROM P1 [Now])",
    "SELECT k FROM D1 UNION ALL SELECT k FROM P1 [Now]",
    "SELECT k, (SELECT COUNT(*) FROM P1 [Range 2]) AS n FROM D1",
    "SELECT COUNT(*) FROM D1 LEFT JOIN P1 [Range 2] ON D1.k = P1.k",
    "Rstream(SELECT k FROM D1 UNION ALL SELECT k FROM P1 [Now])",
    "Istream(SELECT k, (SELECT COUNT(*) FROM P1 [Range 2]) AS n FROM D1)",
    "SELECT k FROM (Istream(SELECT k FROM D1 UNION ALL SELECT k FROM P1 [Now])) [Range 3]",
)
"""Queries with a static relation, which is there from their own first instant on."""


@pytest.mark.parametrize("query", LATER)
def test_a_query_that_begins_later_than_the_network(query: str) -> None:
    texts = {"later": query, "earlier": "SELECT * FROM P2 [Now]"}
    data: Data = {
        "P1": [(5, (1, 1), 1), (6, (2, 1), 1), (11, (2, 1), 1)],
        "P2": [(1, (1, 1), 1), (9, (2, 2), 1), (20, (3, 3), 1)],
        "D1": [(0, (1, 1, "a"), 1), (0, (2, 1, "b"), 1)],
    }
    case = Case(texts, {name: cql.bind(text, catalog()) for name, text in texts.items()}, data, delay=0)
    for seed in range(5):
        check(case, random_setup(random.Random(seed), case))
