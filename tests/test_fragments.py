"""Property: cutting a plan into fragments and buckets never changes an answer, nor does losing workers on the way."""

from __future__ import annotations

import os
import random

import pytest

import cql
from cql.bound import Rel
from cql.errors import CqlError
from planner.plan import Plan, combine, compile_query
from runtime.network.layout import NetworkLayout, fragment_of, level_of
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.fragment_runs import FragmentRun, run_fragments
from tests.random_data import Data
from tests.random_queries import catalog, first_seed, random_data, random_query, report, tables_of
from tests.test_plan_random import network

CASES = int(os.environ.get("CQL_FUZZ", "250"))
"""How many random queries are tried."""

STREAMS = {stream.name for stream in catalog().streams.values()}


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
        data = random_data(rng, catalog(), tables_of(text), bad_removals=True)
        closes = rng.random() < 0.4
        found = run_fragments(plan, data, rng, rng.choice((1, 2, 3)), closes_windows=closes)["q"]
        difference = disagreement(evaluate(tree, data, closes_windows=closes), found)
        assert difference is None, report(text, data, seed=str(seed), plan=plan.explain(), at=difference)
        compared += 1
    assert compared > CASES // 20


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_queries_that_join_and_leave_a_network_change_no_answer(part: int) -> None:
    """A query that joins sees streams from then on and relations as they are; the others notice nothing."""
    joined = 0
    for seed in range(first_seed() + part, first_seed() + CASES // 2, 10):
        rng = random.Random(seed)
        texts, trees = network(seed)
        names = [name for name in trees if trees[name].time is trees[next(iter(trees))].time is not None]
        if len(names) < 2:
            continue
        spread = {name: rng.random() < 0.8 for name in names}
        data = random_data(rng, catalog(), sorted({each for text in texts.values() for each in tables_of(text)}))
        members, seen = {names[0]: 0}, {names[0]: data}
        run = FragmentRun(_living(trees, members, spread), data, rng, rng.choice((1, 2, 3)))
        waiting, epoch = names[1:], 0
        while run.step() or waiting:
            if rng.random() < 0.5 and (waiting or len(members) > 1):
                if waiting and rng.random() < 0.7:
                    epoch += 1
                    for name in [waiting.pop(0) for _ in range(rng.randint(1, len(waiting)))]:
                        members[name], seen[name] = epoch, _suffix(run, data)
                        joined += 1
                elif len(members) > 1:
                    del members[rng.choice(list(members))]
                run.change(_living(trees, members, spread))
        for name, found in run.finish().items():
            difference = disagreement(evaluate(trees[name], seen[name]), found)
            assert difference is None, report(texts[name], seen[name], seed=str(seed), which=name, at=difference)
    assert joined > CASES // 20


def _living(trees: dict[str, Rel], members: dict[str, int], spread: dict[str, bool]) -> Plan:
    return combine(compile_query(n, trees[n], epoch=epoch, spread=spread[n]) for n, epoch in members.items())


def _suffix(run: FragmentRun, data: Data) -> Data:
    """Return what a query that joins now sees: relations, and the elements of streams that are still to come."""
    return {name: run.remaining(name) if name in STREAMS else elements for name, elements in data.items()}


def test_what_is_sent_goes_to_a_later_stage() -> None:
    for seed in range(300):
        try:
            plan = cql.compile(random_query(random.Random(seed)), catalog())
        except CqlError:
            continue
        for edge in NetworkLayout(plan).edges:
            if edge.source is None:
                assert level_of(fragment_of(plan.by_id[edge.producer])) < level_of(edge.to), seed
