"""Property: cutting a plan into fragments and buckets never changes an answer, nor does losing workers on the way."""

from __future__ import annotations

import os
import random

import pytest

import cql
from cql.errors import CqlError
from planner.plan import combine, compile_query
from runtime.fragments.layout import Layout, fragment_of, level_of
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.fragment_runs import run_fragments
from tests.random_queries import catalog, first_seed, random_data, random_query, report, tables_of

CASES = int(os.environ.get("CQL_FUZZ", "250"))
"""How many random queries are tried."""


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_buckets_never_change_an_answer(part: int) -> None:
    compared = 0
    for seed in range(first_seed() + part, first_seed() + CASES, 10):
        rng = random.Random(seed)
        text = random_query(rng)
        try:
            tree = cql.bind(text, catalog())
            plan = combine([compile_query("q", tree)])
        except CqlError:
            continue
        data = random_data(rng, catalog(), tables_of(text))
        found = run_fragments(plan, data, rng, rng.choice((1, 2, 3)))["q"]
        difference = disagreement(evaluate(tree, data), found)
        assert difference is None, report(text, data, seed=str(seed), plan=plan.explain(), at=difference)
        compared += 1
    assert compared > CASES // 20


def test_what_is_sent_goes_to_a_later_stage() -> None:
    for seed in range(300):
        try:
            plan = cql.compile(random_query(random.Random(seed)), catalog())
        except CqlError:
            continue
        for edge in Layout(plan).edges:
            if edge.source is None:
                assert level_of(fragment_of(plan.by_id[edge.producer])) < level_of(edge.to), seed
