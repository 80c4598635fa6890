"""The driver of rewrite rules: walks the plan, applies rules in order, checks what they leave behind.

A rule looks at one node and returns a replacement, or None where it does not apply. The driver does
the walking: inputs first, then the node, again until the rule finds nothing more; a rule that has to
see the whole of a tree of joins is marked `outermost_first` and tried at a node before its inputs. After
each rule that changed something the plan must have the same schema and kind and satisfy all invariants;
otherwise the rule is named as the culprit.

Plans are immutable and a rule is a function of its node, so a subtree in which a rule found nothing
is remembered and not walked again: a pass over a plan costs what changed since the pass before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache

from cql.bound import (
    Exists,
    Expr,
    InSubquery,
    Rel,
    ScalarSubquery,
    expressions,
    has_subquery,
    with_children,
    with_expressions,
)

Rewrite = Callable[[Rel], Rel | None]

_OUTERMOST_FIRST: set[Rewrite] = set()


def outermost_first(rule: Rewrite) -> Rewrite:
    """Mark a rule that is tried at a node before it is tried at the node's inputs."""
    _OUTERMOST_FIRST.add(rule)
    return rule


Nodes = dict[int, Rel]
"""Nodes by identity, kept so that no other node takes their id."""

MOST_PASSES = 50
"""How often a stage may run over a plan; real plans need two or three passes."""

MOST_CHANGES = 20_000
"""How often a rule may apply in one pass; real plans need a few dozen, deeply nested ones thousands."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Rules that are applied, in order, until none of them changes the plan any more."""

    name: str
    rules: tuple[Rewrite, ...]


@dataclass(frozen=True, slots=True)
class AppliedRule:
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
    steps: list[AppliedRule] = field(default_factory=list)
    _settled: dict[Rewrite, Nodes] = field(default_factory=dict)
    _plain: Nodes = field(default_factory=dict)

    def rewrite(self, plan: Rel) -> Rel:
        """Return the plan after all stages."""
        for stage in self.stages:
            plan = self.run(stage, plan)
        return plan

    def run(self, stage: Stage, plan: Rel) -> Rel:
        """Return the plan after one stage."""
        rules = [rule for rule in stage.rules if rule.__name__ not in self.disabled]
        for _ in range(MOST_PASSES):
            before = plan
            for rule in rules:
                plan = self._applied(rule, plan)
            if plan is before:
                return plan
        raise RuleError(f"the stage '{stage.name}' does not come to an end")

    def _applied(self, rule: Rewrite, plan: Rel) -> Rel:
        changed = _Walk(rule, self._settled.setdefault(rule, {}), self._plain).over(plan)
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
        self.steps.append(AppliedRule(name, plan, changed))
        return changed


@dataclass(slots=True)
class _Walk:
    """A walk of a rule over a plan: `settled` are subtrees where it finds nothing, `plain` nodes without queries
    in their expressions."""

    rule: Rewrite
    settled: Nodes
    plain: Nodes
    changes: int = 0

    def over(self, plan: Rel) -> Rel:
        try:
            return self.visit(plan)
        except RecursionError:
            raise RuleError(f"rule {self.rule.__name__} does not come to an end") from None

    def visit(self, node: Rel) -> Rel:
        while id(node) not in self.settled:
            replacement = self.replacement(node) if self.rule in _OUTERMOST_FIRST else None
            if replacement is None:
                node = self._inputs_visited(node)
                replacement = self.replacement(node)
            if replacement is None:
                self.settled[id(node)] = node
                break
            node = replacement
        return node

    def replacement(self, node: Rel) -> Rel | None:
        """Return what the rule makes of a node; None where it does not apply."""
        replacement = self.rule(node)
        if replacement is None or replacement is node:
            return None
        self.changes += 1
        if self.changes > MOST_CHANGES:
            raise RuleError(f"rule {self.rule.__name__} does not come to an end")
        return replacement

    def _inputs_visited(self, node: Rel) -> Rel:
        changes: dict[str, object] = {}
        for name in _field_names(type(node)):  # type: ignore[arg-type]
            before = getattr(node, name)
            after: object = before
            if isinstance(before, Rel):
                after = self.visit(before)
            elif isinstance(before, tuple) and before and isinstance(before[0], Rel):
                visited = tuple(self.visit(part) for part in before)
                after = before if all(a is b for a, b in zip(before, visited, strict=True)) else visited
            if after is not before:
                changes[name] = after
        if changes:
            node = replace(node, **changes)  # type: ignore[arg-type]
        if id(node) in self.plain:
            return node
        if not any(has_subquery(expression) for expression in expressions(node)):
            self.plain[id(node)] = node
            return node
        changed = with_expressions(node, self._in_subqueries)
        return node if changed == node else changed

    def _in_subqueries(self, expression: Expr) -> Expr:
        if isinstance(expression, InSubquery | Exists | ScalarSubquery):
            query = self.visit(expression.query)
            if query is not expression.query:
                expression = replace(expression, query=query)
        return with_children(expression, self._in_subqueries) if has_subquery(expression) else expression


@cache
def _field_names(node: type[Rel]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(node) if f.name != "span")
