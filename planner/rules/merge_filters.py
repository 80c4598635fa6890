"""Filters on top of each other are one filter."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Filter, Rel, conjunction, conjuncts
from planner.logic import in_order, simplified


def merge_filters(node: Rel) -> Rel | None:
    """Turn `σ[p] σ[q] X` into `σ[p and q] X`, the conjuncts in canonical order and each only once.

        Select * From (Select * From S [Rows 9] Where B > 2) Where A > 1   ->   .. Where A > 1 and B > 2

    Law: p AND q is true where both are. The order depends on the conjuncts alone, so that a query gives the
    same plan however its conditions were arranged; with FALSE among them, nothing else counts.
    """
    if not isinstance(node, Filter):
        return None
    written = conjuncts(node.predicate)
    below = node.input
    while isinstance(below, Filter):
        written += conjuncts(below.predicate)
        below = below.input
    terms = in_order(written)
    if below is node.input and len(terms) == len(written) and all(map(_same, terms, written)):
        return None
    return replace(node, input=below, predicate=simplified(conjunction(terms), as_filter=True))


def _same(a: object, b: object) -> bool:
    return a is b
