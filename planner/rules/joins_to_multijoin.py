"""Joins that all share their keys are one multiway join."""

from __future__ import annotations

from cql.bound import Expr, Rel, direct_inputs
from planner.expressions import columns_read, equality, moved
from planner.join_trees import Term, equal_expressions, is_inner, terms_of
from planner.joins import inputs_read, starts, with_condition
from planner.logic import order_key
from planner.logical import MultiJoin


def joins_to_multijoin(node: Rel) -> Rel | None:
    """Turn `(X ⋈[k = l] Y) ⋈[l = m] Z` into a multiway join of X, Y and Z on k = l = m.

        From S1 [Rows 9], S2 [Rows 9], S3 [Rows 9] Where S1.A = S2.A and S2.A = S3.A   ->   one join of three

    Law: inner joins are associative, equality is transitive. A join below is taken in as long as some key is
    still shared by all inputs; equalities between some of them only are tested besides. Inputs keep their
    order, so that columns do.
    """
    if not is_inner(node):
        return None
    relations = list(direct_inputs(node))
    at = 0
    while at < len(relations):
        if is_inner(relations[at]):
            wider = [*relations[:at], *direct_inputs(relations[at]), *relations[at + 1 :]]
            if _shared_keys(wider, terms_of(node, wider)):
                relations = wider
                continue
        at += 1
    if len(relations) < 3 or len(relations) == len(direct_inputs(node)):
        return None
    return _joined(node, relations)


def _shared_keys(relations: list[Rel], terms: list[Term]) -> list[list[list[Expr]]]:
    """Return the keys that all relations share: for each, by relation, the expressions that have to be equal."""
    whole = MultiJoin(tuple(relations), ())
    shared = []
    for equal in equal_expressions(terms):
        owned: list[list[Expr]] = [[] for _ in relations]
        for expression in sorted(equal, key=order_key):
            owners = inputs_read(whole, columns_read(expression))
            if len(owners) == 1:
                owned[owners[0]].append(expression)
        if all(owned):
            shared.append(owned)
    return sorted(shared, key=lambda owned: order_key(owned[0][0]))


def _joined(node: Rel, relations: list[Rel]) -> Rel:
    terms = terms_of(node, relations)
    shared = _shared_keys(relations, terms)
    begins = starts(MultiJoin(tuple(relations), ()))
    keys = tuple(
        tuple(moved(owned[at][0], rel, lambda index, start=start: index - start) for owned in shared)  # type: ignore[misc]
        for at, (rel, start) in enumerate(zip(relations, begins, strict=True))
    )
    conditions: list[Expr] = []
    chained = {expression for owned in shared for own in owned for expression in own}
    for term in terms:
        if not isinstance(term, tuple):
            conditions.append(term)
        elif not chained.issuperset(term):
            conditions.append(equality(*term))
    for owned in shared:
        conditions += [equality(own[0], other) for own in owned for other in own[1:]]
    return with_condition(MultiJoin(tuple(relations), keys, span=node.span), conditions)
