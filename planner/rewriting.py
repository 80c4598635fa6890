"""The driver of rewrite rules: walks the plan, applies rules in order, checks what they leave behind.

A rule looks at one node and returns a replacement, or None where it does not apply. The driver does
the walking: inputs first, then the node, again until the rule finds nothing more. After each rule
that changed something the plan must have the same schema and kind and satisfy all invariants;
otherwise the rule is named as the culprit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cql.bound import (
    Exists,
    Expr,
    InSubquery,
    Rel,
    ScalarSubquery,
    with_children,
    with_expressions,
    with_inputs,
)

Rewrite = Callable[[Rel], Rel | None]

MOST_PASSES = 50
"""How often a stage may run over a plan; real plans need two or three passes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Rules that are applied, in order, until none of them changes the plan any more."""

    name: str
    rules: tuple[Rewrite, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one rule did to a plan."""

    rule: str
    before: Rel
    after: Rel


class RuleError(AssertionError):
    """A rule broke an invariant: a mistake in this program, not in the query."""


@dataclass(slots=True)
class Rewriter:
    """Applies stages of rules; `disabled` names rules to leave out, `steps` records what happened."""

    stages: Sequence[Stage]
    disabled: frozenset[str] = frozenset()
    verify: Callable[[Rel], None] | None = None
    steps: list[Step] = field(default_factory=list)

    def rewrite(self, plan: Rel) -> Rel:
        """Return the plan after all stages."""
        for stage in self.stages:
            for _ in range(MOST_PASSES):
                before = plan
                for rule in stage.rules:
                    if rule.__name__ not in self.disabled:
                        plan = self._applied(rule, plan)
                if plan is before:
                    break
            else:
                raise RuleError(f"the stage '{stage.name}' does not come to an end")
        return plan

    def _applied(self, rule: Rewrite, plan: Rel) -> Rel:
        changed = apply_everywhere(rule, plan)
        if changed is plan:
            return plan
        name = rule.__name__
        if [(f.name, f.type) for f in changed.schema] != [(f.name, f.type) for f in plan.schema]:
            raise RuleError(f"rule {name} changed the schema from {plan.schema} to {changed.schema}")
        if changed.is_stream != plan.is_stream:
            raise RuleError(f"rule {name} turned a {'stream' if plan.is_stream else 'relation'} into the other kind")
        if self.verify is not None:
            try:
                self.verify(changed)
            except AssertionError as error:
                raise RuleError(f"rule {name} broke an invariant: {error}") from error
        self.steps.append(Step(name, plan, changed))
        return changed


def apply_everywhere(rule: Rewrite, node: Rel) -> Rel:
    """Return a plan with a rule applied at every node, inputs first; the same object if it never applies."""
    node = with_inputs(node, lambda below: apply_everywhere(rule, below))
    node = with_expressions(node, lambda expression: _in_subqueries(rule, expression))
    for _ in range(MOST_PASSES):
        replacement = rule(node)
        if replacement is None or replacement is node:
            return node
        node = replacement
    raise RuleError(f"rule {rule.__name__} does not come to an end")


def _in_subqueries(rule: Rewrite, expression: Expr) -> Expr:
    if isinstance(expression, InSubquery | Exists | ScalarSubquery):
        query = apply_everywhere(rule, expression.query)
        if query is not expression.query:
            expression = replace(expression, query=query)
    inner = with_children(expression, lambda part: _in_subqueries(rule, part))
    return expression if inner == expression else inner
