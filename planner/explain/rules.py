"""EXPLAIN RULES: what each rewrite rule changed."""

from __future__ import annotations

from collections.abc import Sequence

from cql.bound import Rel
from planner.rewriting import AppliedRule
from planner.text import plan_text


def rules_text(before: Rel, steps: Sequence[AppliedRule]) -> str:
    """Return the plan as bound, then each rule that changed it with the plan after it."""
    parts = ["as written", _indented(plan_text(before))]
    for number, step in enumerate(steps, 1):
        parts += [f"{number}. {step.rule.replace('_', ' ')}", _indented(plan_text(step.after))]
    if not steps:
        parts.append("no rule changed anything")
    return "\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
