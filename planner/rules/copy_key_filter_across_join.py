"""A filter on the keys of one input of a join also filters the other input."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from cql.bound import Aggregate, ColumnRef, Expr, Join, Project, Rel, SetOperation, direct_inputs
from planner.expressions import columns_read, moved
from planner.joins import FILTERS_IN_CONDITION, keys_of, may_filter, owners_of, starts, with_sides
from planner.logic import simplified
from planner.logical import KeyedJoin, MultiJoin, StreamJoin
from planner.predicates import filtered, is_known, known_predicates


def copy_key_filter_across_join(node: Rel) -> Rel | None:
    """Turn `(σ[p(k)] X) ⋈[k = l] Y` into `(σ[p(k)] X) ⋈[k = l] (σ[p(l)] Y)`.

        From S1 [Rows 9], S2 [Rows 9] Where S1.A = S2.A and S1.A > 10   ->   filter A > 10 over both windows

    Law V10: rows that match have equal keys, so p holds for both or for neither. Only rows that need a match
    may be dropped: not the left ones of a left or antijoin. The copy stands above Y's window, whatever that
    window is (N11); other rules may take it further. Keys are columns, and those of Y not computed below it, so
    that a copy stays as large as it is wherever it goes and copies of copies come to an end. Nothing is copied
    that a filter below already says.
    """
    if not isinstance(node, KeyedJoin | MultiJoin | StreamJoin):
        return None
    sides = list(direct_inputs(node))
    keys, may = keys_of(node), may_filter(node, FILTERS_IN_CONDITION)
    for source, target in permutations(range(len(sides)), 2):
        if may[target]:
            partners = _partners(keys[source], keys[target])
            for predicate in known_predicates(sides[source], frozenset(partners)):
                copy = _copy(predicate, partners, direct_inputs(node)[target])
                if copy is not None and not is_known(copy, sides[target]):
                    sides[target] = filtered(sides[target], copy)
    if all(new is old for new, old in zip(sides, direct_inputs(node), strict=True)):
        return None
    return with_sides(node, sides)


def _partners(keys: tuple[Expr, ...], others: tuple[Expr, ...]) -> dict[int, int]:
    """Return, for columns that are keys of one input, the columns of another that they have to be equal to."""
    partners: dict[int, int] = {}
    for key, other in zip(keys, others, strict=True):
        if isinstance(key, ColumnRef) and isinstance(other, ColumnRef):
            partners.setdefault(key.index, other.index)
    return partners


def _copy(predicate: Expr, partners: dict[int, int], side: Rel) -> Expr | None:
    """Return a predicate over keys of one input as one over another; None if these are computed."""
    if any(_is_computed(side, partners[at]) for at in columns_read(predicate)):
        return None
    copy = simplified(moved(predicate, side, partners.__getitem__), as_filter=True)
    return replace(copy, span=predicate.span) if columns_read(copy) else None


def _is_computed(rel: Rel, at: int) -> bool:
    """Tell whether a projection or a GROUP BY below computes a column, rather than passing one on."""
    match rel:
        case Project() | Aggregate():
            items = rel.items if isinstance(rel, Project) else rel.keys
            if at >= len(items):
                return False
            item = items[at]
            return _is_computed(rel.input, item.index) if isinstance(item, ColumnRef) else True
        case Join() | KeyedJoin() | MultiJoin() | StreamJoin():
            owner = owners_of(rel)[at]
            return _is_computed(direct_inputs(rel)[owner], at - starts(rel)[owner])
        case SetOperation():
            return _is_computed(rel.left, at) or _is_computed(rel.right, at)
    below = direct_inputs(rel)
    return len(below) == 1 and at < len(below[0].schema) and _is_computed(below[0], at)
