"""Each rewrite rule by itself: its fixture as text and executed, and its soundness on random queries.

A fixture `tests/fixtures/rules/<rule>.txt` holds cases: a title, a query, and the plan after applying the rule alone
(with the rules that a first line `uses: a, b` names), compared as text. `make golden` writes the plans anew. The
plan before and the plan after are also executed on random data, so that no fixture can bless a wrong rewrite.
"""

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import cql
from cql.bound import Rel
from planner.rewriting import AppliedRule, Rewriter, Stage
from planner.rules import RULES, STAGES
from planner.text import plan_text
from tests.agreement import plans_disagree, plans_report
from tests.random_data import random_data
from tests.random_queries import first_seed, random_case, tables_of
from tests.strategies import inputs_to_try

FOLDER = Path(__file__).parent / "fixtures" / "rules"
RULE_FILES = sorted(path.stem for path in (Path(__file__).parent.parent / "planner" / "rules").glob("[!_]*.py"))
UNCHANGED = "(unchanged)"
"""How the title of a case begins in which the rule must not apply."""

DATA_SETS = 30


@dataclass(frozen=True)
class Example:
    """A case of a fixture."""

    title: str
    query: str
    plan: str


@dataclass(frozen=True)
class Fixture:
    """A fixture file: the rule it is about, the rules that prepare the ground, and its cases."""

    rule: str
    uses: tuple[str, ...]
    examples: tuple[Example, ...]

    def text(self) -> str:
        """Return the file as it is written."""
        head = f"uses: {', '.join(self.uses)}\n" if self.uses else ""
        return head + "---\n".join(f"-- {e.title}\n{e.query}\n=>\n{e.plan}\n" for e in self.examples)

    def applied(self, query: str) -> tuple[Rel, Rel, list[AppliedRule]]:
        """Return the plan of a query before and after the rule, and the steps in between."""
        tree = cql.bind(query, _catalog())
        rules = tuple(RULES[name] for name in (*self.uses, self.rule))
        rewriter = Rewriter([Stage("fixture", rules)])
        return tree, rewriter.rewrite(tree), rewriter.steps


@cache
def _catalog() -> cql.Catalog:
    catalog = cql.Catalog()
    catalog.execute((FOLDER / "catalog.cql").read_text())
    return catalog


def _fixture(rule: str) -> Fixture:
    path = FOLDER / f"{rule}.txt"
    if not path.exists():
        pytest.fail(f"the rule {rule} has no fixture tests/fixtures/rules/{rule}.txt", pytrace=False)
    text = path.read_text()
    uses: tuple[str, ...] = ()
    if text.startswith("uses:"):
        first, _, text = text.partition("\n")
        uses = tuple(name.strip() for name in first.removeprefix("uses:").split(","))
    return Fixture(rule, uses, tuple(_example(part, path) for part in text.split("\n---\n")))


def _example(text: str, path: Path) -> Example:
    title, _, rest = text.strip("\n").partition("\n")
    query, arrow, plan = rest.partition("\n=>")
    assert title.startswith("-- ") and arrow, f"{path.name}: a case is `-- title`, a query, `=>` and a plan:\n{text}"
    return Example(title.removeprefix("-- "), query, plan.strip("\n"))


# Fixtures


@pytest.mark.golden
@pytest.mark.parametrize("rule", RULE_FILES)
def test_the_plans_of_the_fixture(rule: str, request: pytest.FixtureRequest) -> None:
    fixture = _fixture(rule)
    found = Fixture(
        rule,
        fixture.uses,
        tuple(Example(e.title, e.query, plan_text(fixture.applied(e.query)[1])) for e in fixture.examples),
    )
    if request.config.getoption("--update-golden"):
        (FOLDER / f"{rule}.txt").write_text(found.text())
        return
    for expected, actual in zip(fixture.examples, found.examples, strict=True):
        assert actual.plan == expected.plan, f"{expected.title}: if the new plan is right, `make golden` writes it"


@pytest.mark.parametrize("rule", RULE_FILES)
def test_the_rule_applies_where_its_fixture_says(rule: str) -> None:
    fixture = _fixture(rule)
    for example in fixture.examples:
        applied = rule in {step.rule for step in fixture.applied(example.query)[2]}
        assert applied != example.title.startswith(UNCHANGED), example.title
    assert not all(example.title.startswith(UNCHANGED) for example in fixture.examples), "it never applies"


@pytest.mark.parametrize("rule", RULE_FILES)
def test_the_plans_of_the_fixture_answer_alike(rule: str) -> None:
    fixture = _fixture(rule)
    for example in fixture.examples:
        before, after, steps = fixture.applied(example.query)
        for seed in range(DATA_SETS):
            data = random_data(random.Random(seed), _catalog(), tables_of(example.query, _catalog()), most=8)
            if plans_disagree(before, after, data) is not None:
                pytest.fail(
                    f"{example.title}\n{plans_report(example.query, before, after, data, steps)}", pytrace=False
                )


def test_every_rule_file_is_in_the_pipeline_and_has_a_fixture() -> None:
    assert set(RULE_FILES) == set(RULES), "planner/rules/*.py and STAGES list the same rules"
    fixtures = {path.stem for path in FOLDER.glob("*.txt")}
    assert fixtures == set(RULE_FILES)


def test_no_rule_stands_twice_in_a_stage() -> None:
    for stage in STAGES:
        assert len(set(stage.rules)) == len(stage.rules), stage.name


# Random queries


def _inputs() -> range:
    """These cases run every rule many times; they are fewer."""
    return range(first_seed(), first_seed() + max(700, inputs_to_try(0) // 10))


RARE = ("connect_joins",)
"""One in some hundred queries has three inputs in an order that is not connected; fixtures of the rule are executed."""


@pytest.mark.fuzz
def test_each_rule_anywhere_keeps_the_answer() -> None:
    """All rules one at a time, in random order: whatever plan a rule meets, it must not change what it says."""
    fired: Counter[str] = Counter()
    for seed in _inputs():
        rng = random.Random(seed)
        case = random_case(rng, most=7)
        tree = plan = cql.bind(case.query, case.catalog)
        order = rng.sample(list(RULES), len(RULES))
        for rule in (*RULES, *order) if rng.random() < 0.5 else order * 2:
            rewriter = Rewriter([Stage("one", (RULES[rule],))])
            after = rewriter.rewrite(plan)
            if after is plan:
                continue
            fired[rule] += 1
            if plans_disagree(tree, after, case.data) is not None:
                report = plans_report(case.query, plan, after, case.data, rewriter.steps)
                pytest.fail(f"seed {seed}: {rule}\n{report}", pytrace=False)
            plan = after
    assert [rule for rule in RULES if not fired[rule] and rule not in RARE] == [], "rules that no random query needed"
