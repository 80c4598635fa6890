"""A filter on the keys of one input of a join also filters the other input."""

from __future__ import annotations

from dataclasses import replace

from cql.bound import ColumnRef, Expr, Rel, direct_inputs
from planner.expressions import columns_read, moved
from planner.joins import FILTERS_IN_CONDITION, AnyJoin, keys_of, may_filter, with_sides
from planner.logic import simplified
from planner.logical import KeyedJoin, MultiJoin, StreamJoin
from planner.predicates import filtered, is_known, known_predicates


def copy_key_filter_across_join(node: Rel) -> Rel | None:
    """Turn `(σ[p(k)] X) ⋈[k = l] Y` into `(σ[p(k)] X) ⋈[k = l] (σ[p(l)] Y)`.

        From S1 [Rows 9], S2 [Rows 9] Where S1.A = S2.A and S1.A > 10   ->   filter A > 10 over both windows

    Law V10: rows that match have equal keys, so p holds for both or for neither. Only rows that need a match
    may be dropped: not the left ones of a left or antijoin. The copy stands above Y's window, whatever that
    window is (N11); other rules may take it further. Keys are columns, so that copies of copies come to an
    end, and nothing is copied that a filter below already says.
    """
    if not isinstance(node, KeyedJoin | MultiJoin | StreamJoin):
        return None
    sides = list(direct_inputs(node))
    for source in range(len(sides)):
        for predicate in known_predicates(sides[source]):
            for target in range(len(sides)):
                if target != source and may_filter(node, FILTERS_IN_CONDITION)[target]:
                    copy = _copy(node, predicate, source, target)
                    if copy is not None and not is_known(copy, sides[target]):
                        sides[target] = filtered(sides[target], copy)
    if all(new is old for new, old in zip(sides, direct_inputs(node), strict=True)):
        return None
    return with_sides(node, sides)


def _copy(join: AnyJoin, predicate: Expr, source: int, target: int) -> Expr | None:
    """Return a predicate over one input as one over another; None if it reads more than keys."""
    keys = keys_of(join)
    partners: dict[int, int] = {}
    for key, partner in zip(keys[source], keys[target], strict=True):
        if isinstance(key, ColumnRef) and isinstance(partner, ColumnRef):
            partners.setdefault(key.index, partner.index)
    read = columns_read(predicate)
    if not read or not read <= partners.keys():
        return None
    side = direct_inputs(join)[target]
    copy = simplified(moved(predicate, side, partners.__getitem__), as_filter=True)
    return replace(copy, span=predicate.span) if columns_read(copy) else None
