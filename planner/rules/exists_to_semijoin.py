"""A condition EXISTS becomes a semi-join, NOT EXISTS an antijoin."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import Filter, Join, JoinKind, Rel, conjuncts
from cql.errors import CqlError
from planner.expressions import all_of
from planner.subquery_columns import existence, half_joined, without_subquery_conditions


def exists_to_semijoin(node: Rel) -> Rel | None:
    """Turn a conjunct `[NOT] EXISTS (query)` of a filter or of an inner join's condition into a join.

        Select * From S Where B > 1 and Exists (Select * From R Where R.A = S.A)
        ->  (Select * From S Where B > 1) semi join R on S.A = R.A

    A row is kept if the query has a row for it: if the relation below the query's correlated predicates has a
    row that satisfies them. That is said of each row by itself, so multiplicities stay. Queries inside the
    query are turned into joins first; what cannot be is left alone.
    """
    if isinstance(node, Join):
        terms = [] if node.condition is None else conjuncts(node.condition)
        is_wanted = node.kind is JoinKind.INNER and any(existence(term) for term in terms)
        return without_subquery_conditions(node) if is_wanted else None
    if not isinstance(node, Filter):
        return None
    terms = conjuncts(node.predicate)
    for at, term in enumerate(terms):
        found = existence(term)
        if found is None:
            continue
        kind, exists = found
        rest = all_of(terms[:at] + terms[at + 1 :])
        relation = node.input if rest is None else replace(node, predicate=rest)
        try:
            return half_joined(kind, relation, exists)
        except CqlError:
            continue
    return None
