"""Property: the engine gives the results that the definition gives, at every instant.

A case is a query or a network of queries, data for its inputs, and a way to run it: how the input is cut into batches
and chunks, how late elements come, the scheduler, sharing, and how soon the engine tidies up its state. None of these
may change an answer. `tests/engine_cases.py` makes the cases; the definitional evaluator is the judge.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.engine_cases import check, random_case, random_setup
from tests.random_queries import first_seed

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
