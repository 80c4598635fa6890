"""Shedding in buckets: decisions come with micro-batches, workers come and go, and answers are as they should be."""

from __future__ import annotations

import json
import os
from collections import Counter
from random import Random

import pytest

from cql import CqlError
from planner.plan import combine
from shedding.insert_drops import compile_all, units_of_query
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.fragment_runs import FragmentRun
from tests.shedding_runs import expected, random_data
from tests.test_shedding_engine import random_network


@pytest.mark.fuzz
def test_in_buckets_what_is_delivered_is_the_exact_answer_at_kept_instants() -> None:
    counted: Counter[str] = Counter()
    for seed in range(int(os.environ.get("CQL_FUZZ", "60"))):
        rng = Random(f"fragments {seed}")
        catalog, data = random_network(rng), random_data(rng)
        try:
            plan = combine(compile_all(catalog.queries.values()))
        except CqlError:
            continue
        run = FragmentRun(plan, data, rng, buckets=rng.choice((1, 2, 3)))
        while run.step():
            for name, schedule in run.schedules.all.items():
                if rng.random() < 0.4:
                    share = rng.random() * schedule.batch / (schedule.batch + 1)
                    run.schedules.decide(name, rng.choice((0.0, share, share, 1.0)))
            if rng.random() < 0.2:
                run.schedules.take_over(json.loads(json.dumps(run.schedules.to_values())))
        results = run.finish()
        for name, query in catalog.queries.items():
            exact, units = evaluate(query.tree, data), units_of_query(plan, name)
            wanted = exact
            if units is not None:
                wanted = expected(plan, name, exact, run.schedules.all[units.schedule], data)
                counted["lost"] += wanted.changes != exact.changes
                counted["delivered"] += bool(wanted.changes)
            problem = disagreement(wanted, results[name])
            assert problem is None, f"seed {seed}: {query.text}\n{units}\n{problem}"
    assert counted["lost"] > 10 and counted["delivered"] > 20, counted
