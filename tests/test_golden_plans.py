"""Golden plans: what the compiler makes of the corpus and of networks that share, reviewed as diffs.

A file shows the plan of everything that a script registers, and the rules that fired for each query. The folder
`sharing` has networks made to show what is shared and what is not. `make golden` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import cql
from planner import operators as op
from planner.network import Network
from planner.optimize import optimize
from planner.plan import Plan, combine, compile_query
from planner.rules import RULES
from tests.conftest import GOLDEN_FOLDER
from tests.corpus_catalog import corpus_catalog, golden_name
from tests.test_corpus import FILES, every_file
from tests.test_plan import DRAWN_JOIN, FILTERS_STAY, LARGEST, STREAMS

SHARING = sorted((Path(__file__).parent / "fixtures" / "sharing").glob("*.cql"))


def plan_and_rules(catalog: cql.Catalog) -> str:
    """Return the plan of a catalog's queries, and which rules each of them went through."""
    rules = ["rules"]
    for query in catalog.queries.values():
        fired = dict.fromkeys(step.rule for step in optimize(query.tree)[1])
        rules.append(f"  {query.name}: {', '.join(fired) or 'none'}")
    return Network.of_catalog(catalog).plan.explain() + "\n" + "\n".join(rules)


@every_file
def test_the_plan_of_a_script(path: Path, golden: Callable[[str, str], None]) -> None:
    golden(golden_name("plans", path), plan_and_rules(corpus_catalog(path)))


@every_file
def test_the_plan_of_a_script_survives_json(path: Path) -> None:
    plan = Network.of_catalog(corpus_catalog(path)).plan
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("path", SHARING, ids=lambda path: path.stem)
def test_the_plan_of_a_network_that_shares(path: Path, golden: Callable[[str, str], None]) -> None:
    catalog = cql.Catalog()
    catalog.execute(path.read_text(encoding="utf-8"), path.name)
    golden(f"plans/sharing/{path.stem}.txt", plan_and_rules(catalog))


def test_the_figures_of_the_thesis(golden: Callable[[str, str], None]) -> None:
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    join, largest = cql.bind(DRAWN_JOIN, catalog), cql.bind(LARGEST, catalog)
    alone = compile_query("join", join, share=False, disabled=FILTERS_STAY)
    golden("plans/figures/figure_2_2.txt", combine([alone]).explain())
    both = [compile_query(name, tree, disabled=FILTERS_STAY) for name, tree in (("join", join), ("max", largest))]
    golden("plans/figures/figure_2_3.txt", combine(both).explain())


@pytest.mark.parametrize("form", ["json", "dot", "mermaid"])
def test_the_other_forms_of_a_plan(form: str, golden: Callable[[str, str], None]) -> None:
    path = next(p for p in FILES if p.name == "sharing.cql")
    golden(f"plans/forms/sharing.{form}", Network.of_catalog(corpus_catalog(path)).plan.explain(form))


def golden_texts() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (GOLDEN_FOLDER / "plans").rglob("*.txt"))


def test_every_operator_is_in_a_golden_plan() -> None:
    shown = set(re.findall(r"#([a-z-]+)-[0-9a-f]{8}\b", golden_texts()))
    assert {kind.model_fields["kind"].default for kind in op.OPERATOR_TYPES} <= shown


def test_every_rule_is_in_a_golden_plan() -> None:
    fired = {rule for line in re.findall(r"^  \w+: (.*)$", golden_texts(), re.MULTILINE) for rule in line.split(", ")}
    assert set(RULES) <= fired


def test_there_are_enough_golden_plans() -> None:
    assert len(list((GOLDEN_FOLDER / "plans").rglob("*.txt"))) >= 80
