"""Trees of inner joins: what they join, and all their conditions, whatever join each stands at.

Positions are those among the columns of all leaves in order.
"""

from __future__ import annotations

from itertools import pairwise

from cql.bound import Expr, Rel, conjuncts, direct_inputs
from planner.expressions import shifted
from planner.joins import condition_of, keys_of, starts
from planner.logical import JoinType, KeyedJoin, MultiJoin

Term = Expr | tuple[Expr, Expr]
"""A condition, or two expressions that have to be equal."""


def is_inner(node: Rel) -> bool:
    """Tell whether a node is an inner join that knows its keys."""
    return isinstance(node, MultiJoin) or (isinstance(node, KeyedJoin) and node.kind is JoinType.INNER)


def terms_of(node: Rel, leaves: list[Rel]) -> list[Term]:
    """Return all conditions of a tree of joins above its leaves."""
    if any(node is leaf for leaf in leaves):
        return []
    assert isinstance(node, KeyedJoin | MultiJoin)
    found: list[Term] = []
    begins = starts(node)
    for side, start in zip(direct_inputs(node), begins, strict=True):
        for term in terms_of(side, leaves):
            if isinstance(term, tuple):
                found.append((shifted(term[0], start), shifted(term[1], start)))
            else:
                found.append(shifted(term, start))
    keys = [[shifted(key, start) for key in own] for own, start in zip(keys_of(node), begins, strict=True)]
    for first, second in pairwise(keys):
        found.extend(zip(first, second, strict=True))
    condition = condition_of(node)
    if condition is not None:
        found.extend(conjuncts(condition))
    return found


def equal_expressions(terms: list[Term]) -> list[list[Expr]]:
    """Return the sets of expressions that have to be equal."""
    classes: list[list[Expr]] = []
    for term in terms:
        if not isinstance(term, tuple):
            continue
        met = [known for known in classes if term[0] in known or term[1] in known]
        merged = list(dict.fromkeys([*(e for known in met for e in known), *term]))
        classes = [known for known in classes if not any(known is one for one in met)] + [merged]
    return classes
