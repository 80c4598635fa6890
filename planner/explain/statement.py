"""EXPLAIN as a statement: a query, a registered query by name, or all of them."""

from __future__ import annotations

from collections.abc import Callable

from cql.bound import Rel
from cql.catalog import QueryDef
from planner.explain import explain
from planner.explain.rules import rules_text
from planner.optimize import optimize
from planner.plan import Plan, combine, compile_query

Target = Rel | QueryDef | tuple[QueryDef, ...]


def explain_statement(form: str, target: Target, network: Callable[[], Plan]) -> str:
    """Return what EXPLAIN prints: a registered query is shown as part of the network it shares with others."""
    if form == "RULES":
        return _rules(target)
    if isinstance(target, Rel):
        return explain(combine([compile_query("query", target)]), form)
    return explain(network(), form, target.name if isinstance(target, QueryDef) else None)


def _rules(target: Target) -> str:
    if isinstance(target, tuple):
        return "\n".join(f"query {query.name}\n{_rules(query)}" for query in target)
    tree = target.tree if isinstance(target, QueryDef) else target
    return rules_text(tree, optimize(tree)[1])
