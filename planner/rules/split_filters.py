"""A filter of a conjunction is a filter of each conjunct."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Filter, Rel, conjuncts


def split_filters(node: Rel) -> Rel | None:
    """Turn `σ[p and q] X` into `σ[p] σ[q] X`, so that each conjunct moves on its own.

        Select * From S [Rows 9] Where A > 1 and B > 2   ->   filter A > 1 over filter B > 2

    Law: p AND q is true where both are. `merge_filters` is the way back.
    """
    if not isinstance(node, Filter):
        return None
    terms = conjuncts(node.predicate)
    if len(terms) == 1:
        return None
    result = node.input
    for term in reversed(terms):
        result = replace(node, input=result, predicate=term)
    return result
