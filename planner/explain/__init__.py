"""Plans for reading: a text tree, JSON, DOT and Mermaid, and what each rewrite rule changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cql.errors import Code, fail, nearest, one_of
from planner.explain.graph import to_dot, to_mermaid
from planner.explain.rules import rules_text
from planner.explain.text import to_text

if TYPE_CHECKING:
    from planner.plan import Plan

__all__ = ["FORMS", "explain", "rules_text"]

FORMS: dict[str, Callable[[Plan], str]] = {
    "text": to_text,
    "json": lambda plan: plan.to_json(),
    "dot": to_dot,
    "mermaid": to_mermaid,
}


def explain(plan: Plan, form: str = "text", query: str | None = None) -> str:
    """Return a plan, or the part that one query uses, in one of the forms."""
    writer = FORMS.get(form.lower())
    if writer is None:
        raise fail(
            Code.BAD_OPTION_VALUE,
            f"there is no form '{form}' to explain in",
            hint=f"it takes {one_of(list(FORMS))}",
            candidates=nearest(form, FORMS),
        )
    if query is None:
        return writer(plan)
    if writer is to_text:
        return to_text(plan, query)
    return writer(plan.part(query))
