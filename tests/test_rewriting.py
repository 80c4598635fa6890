"""The driver of rewrite rules: it walks, it stops, and it names the rule that breaks a plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import cql
from cql import bound
from cql.bound import Rel
from planner.invariants import verify
from planner.optimize import optimize
from planner.rewriting import Rewriter, RuleError, Stage
from planner.rules import RULES


@pytest.fixture
def tree() -> Rel:
    catalog = cql.Catalog()
    catalog.execute("CREATE STREAM s (a INT, b INT, t INT) TIMESTAMP BY t; CREATE RELATION r (a INT, n STRING)")
    return cql.bind("SELECT a, b FROM s [Rows 5] WHERE a > 1 AND a IN (SELECT a FROM r WHERE n = 'x')", catalog)


def changes_names(node: Rel) -> Rel | None:
    if isinstance(node, bound.Project) and "b" in node.names:
        return replace(node, names=tuple("c" if name == "b" else name for name in node.names))
    return None


def changes_kind(node: Rel) -> Rel | None:
    if isinstance(node, bound.Project) and isinstance(node.input, bound.Filter) and len(node.items) == 2:
        return bound.RelToStream(bound.RelToStreamKind.ISTREAM, replace(node, input=bound.Distinct(node.input)))
    return None


def loses_the_window(node: Rel) -> Rel | None:
    if isinstance(node, bound.Filter) and isinstance(node.input, bound.Window):
        return replace(node, input=bound.Distinct(node.input.input))
    return None


def never_ends(node: Rel) -> Rel | None:
    return replace(node, limit=node.limit + 1) if isinstance(node, bound.TopN) else None


def back_and_forth(node: Rel) -> Rel | None:
    if isinstance(node, bound.Window) and isinstance(node.spec, bound.RowsSpec):
        return replace(node, spec=bound.RangeSpec(node.spec.rows))
    return None


def forth_and_back(node: Rel) -> Rel | None:
    if isinstance(node, bound.Window) and isinstance(node.spec, bound.RangeSpec):
        return replace(node, spec=bound.RowsSpec(node.spec.ticks))
    return None


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [(changes_names, "schema"), (changes_kind, "kind"), (loses_the_window, "an operator on relations takes relations")],
)
def test_a_rule_that_breaks_a_plan_is_named(rule: object, complaint: str, tree: Rel) -> None:
    rewriter = Rewriter((Stage("bad", (rule,)),), verify=verify)  # type: ignore[arg-type]
    with pytest.raises(RuleError, match=complaint) as caught:
        rewriter.rewrite(tree)
    assert rule.__name__ in str(caught.value)  # type: ignore[attr-defined]


def test_a_rule_that_never_ends_is_named(tree: Rel) -> None:
    top = bound.TopN(tree, (bound.SortKey(0, False, True),), 1)
    with pytest.raises(RuleError, match="never_ends"):
        Rewriter((Stage("bad", (never_ends,)),)).rewrite(top)


def test_rules_that_undo_each_other_are_noticed(tree: Rel) -> None:
    with pytest.raises(RuleError, match="'bad' does not come to an end"):
        Rewriter((Stage("bad", (back_and_forth, forth_and_back)),)).rewrite(tree)


def test_rules_reach_into_subqueries(tree: Rel) -> None:
    seen: list[str] = []

    def note(node: Rel) -> Rel | None:
        seen.append(type(node).__name__)
        return None

    Rewriter((Stage("look", (note,)),)).rewrite(tree)
    assert "RelationScan" in seen and "StreamScan" in seen


def test_a_rule_can_be_switched_off(tree: Rel) -> None:
    for name in RULES:
        if name in ("in_to_exists", "exists_to_semijoin"):
            continue
        assert all(step.rule != name for step in optimize(tree, frozenset({name}))[1])


def test_steps_tell_what_happened(tree: Rel) -> None:
    plan, steps = optimize(tree)
    assert steps[0].before is tree and steps[-1].after is plan
    assert all(before.after is after.before for before, after in pairwise(steps))
    assert all(step.before != step.after for step in steps)
