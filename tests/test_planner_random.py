"""Random queries on random data: all rewrite rules together change no answer, nor does switching some of them off.

The plan that a query is bound to and the plan after the rules are both interpreted by the definitional evaluator.
"""

import random
from collections import Counter

import pytest

import cql
from planner.optimize import optimize
from planner.rules import RULES
from tests.agreement import plans_disagree, plans_report
from tests.random_queries import Case, first_seed, random_case
from tests.strategies import inputs_to_try

MOST_REFUSED = 0.03
"""Of random queries, the part that the planner may refuse: correlation that is not an equality, and the like."""


def _case(seed: int) -> tuple[random.Random, Case]:
    rng = random.Random(seed)
    return rng, random_case(rng)


@pytest.mark.fuzz
def test_the_plan_after_all_rules_answers_as_the_plan_before() -> None:
    cases = inputs_to_try(1000)
    refused: Counter[str] = Counter()
    for seed in range(first_seed(), first_seed() + cases):
        _, case = _case(seed)
        tree = cql.bind(case.query, case.catalog)
        try:
            plan, steps = optimize(tree)
        except cql.CqlError as error:
            refused[error.diagnostics[0].code.text] += 1
            continue
        if plans_disagree(tree, plan, case.data) is not None:
            pytest.fail(f"seed {seed}\n{plans_report(case.query, tree, plan, case.data, steps)}", pytrace=False)
    assert refused.total() <= MOST_REFUSED * cases + 5, refused
    assert refused.keys() <= {"E601", "E602"}


@pytest.mark.fuzz
def test_switching_rules_off_changes_no_answer() -> None:
    for seed in range(first_seed(), first_seed() + inputs_to_try(300)):
        rng, case = _case(seed)
        disabled = frozenset(name for name in RULES if rng.random() < 0.25)
        tree = cql.bind(case.query, case.catalog)
        try:
            plan, steps = optimize(tree, disabled)
        except cql.CqlError:
            continue  # it needs one of the rules to be planned at all
        assert not disabled & {step.rule for step in steps}
        if plans_disagree(tree, plan, case.data) is not None:
            pytest.fail(
                f"seed {seed}, without {sorted(disabled)}\n" + plans_report(case.query, tree, plan, case.data, steps),
                pytrace=False,
            )


@pytest.mark.fuzz
def test_what_the_rules_leave_behind_they_leave_alone() -> None:
    for seed in range(first_seed(), first_seed() + inputs_to_try(200)):
        _, case = _case(seed)
        try:
            plan, _ = optimize(cql.bind(case.query, case.catalog))
        except cql.CqlError:
            continue
        assert optimize(plan)[0] == plan, f"seed {seed}: {case.query}"
