"""A filter of a conjunction is a filter for each set of columns that its conjuncts read."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Expr, Filter, Rel, conjunction, conjuncts, has_subquery
from planner.predicates import destiny


def split_filters(node: Rel) -> Rel | None:
    """Turn `σ[p and q] X` into `σ[p] σ[q] X`, so that each conjunct moves on its own.

        Select * From S [Rows 9] Where A > 1 and B > 2 and A < 5   ->   filter A > 1 and A < 5 over filter B > 2

    Law: p AND q is true where both are. Conjuncts that read the same columns can go to the same places, so they
    stay together, except for those with subqueries, each of which has a join to become. `merge_filters` is the
    way back.
    """
    if not isinstance(node, Filter):
        return None
    groups: dict[object, list[Expr]] = {}
    for term in conjuncts(node.predicate):
        groups.setdefault(term if has_subquery(term) else destiny(term), []).append(term)
    if len(groups) == 1:
        return None
    result = node.input
    for terms in reversed(groups.values()):
        result = replace(node, input=result, predicate=conjunction(terms))
    return result
