"""Property: sharing never changes an answer.

Several random queries are compiled into one network, and each is read back from the shared operators and
evaluated; it has to agree with what the query means by definition, at every instant, and so does the network in
which nothing is shared. The operators are interpreted naively (`tests/definition/operators.py`).
"""

from __future__ import annotations

import os
import random

import pytest

import cql
from cql.bound import Rel
from cql.errors import Code, CqlError
from planner.plan import Plan, QueryPlan, combine, compile_query
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.definition.operators import query_of
from tests.definition.plans import meaning
from tests.random_queries import catalog, random_data, random_query, report, tables_of

NETWORKS = int(os.environ.get("CQL_FUZZ", "150"))
"""How many random networks are tried."""

REFUSED = {Code.CANNOT_DECORRELATE, Code.CANNOT_PLAN}


def network(seed: int) -> tuple[dict[str, str], dict[str, Rel]]:
    """Return the texts and bound trees of two to four queries that can be planned; some share parts."""
    rng = random.Random(seed)
    texts: dict[str, str] = {}
    trees: dict[str, Rel] = {}
    for number in range(rng.randint(2, 4)):
        text = random_query(rng)
        if texts and rng.random() < 0.3:
            text = f"SELECT * FROM ({rng.choice(list(texts.values()))}) AS shared"
        try:
            tree = cql.bind(text, catalog())
            compile_query("probe", tree)
        except CqlError as error:
            assert {d.code for d in error.diagnostics} <= REFUSED | {
                Code.DUPLICATE_NAME,
                Code.BAD_ROW_NUMBER,
            }, text
            continue
        texts[f"q{number}"], trees[f"q{number}"] = text, tree
    return texts, trees


def compiled(trees: dict[str, Rel], share: bool) -> Plan:
    plans: list[QueryPlan] = [compile_query(name, tree, share=share) for name, tree in trees.items()]
    return combine(plans)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_sharing_never_changes_an_answer(part: int) -> None:
    compared = 0
    for seed in range(part, NETWORKS, 10):
        texts, trees = network(seed)
        shared, unshared = compiled(trees, True), compiled(trees, False)
        assert len(shared.operators) <= len(unshared.operators)
        assert len(shared.stores) <= len(unshared.stores)
        rng = random.Random(-seed - 1)
        for name, tree in trees.items():
            data = random_data(rng, catalog(), tables_of(texts[name]))
            expected = evaluate(tree, data)
            for plan in (shared, unshared):
                difference = disagreement(expected, evaluate(meaning(query_of(plan, name)), data))
                assert difference is None, report(texts[name], data, plan=plan.explain("text", name), at=difference)
            compared += 1
    assert compared > NETWORKS // 10


def test_random_networks_share_something() -> None:
    saved = 0
    for seed in range(20):
        _, trees = network(seed)
        saved += len(compiled(trees, False).stores) - len(compiled(trees, True).stores)
    assert saved > 0
