"""Filters: moving a predicate past them, and what they say of every row of a stream or relation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cql.ast import SetKind
from cql.bound import (
    Aggregate,
    ColumnRef,
    Distinct,
    Expr,
    Filter,
    Join,
    Project,
    Rel,
    RelToStream,
    RowNumber,
    SetOperation,
    TopN,
    Window,
    conjuncts,
    direct_inputs,
)
from planner.expressions import columns_read, depends_on_row_only, moved, substituted
from planner.joins import FILTERS_ABOVE, condition_of, inputs_read, kind_of, may_filter, starts
from planner.logic import is_constant, simplified
from planner.logical import GroupTopN, JoinType, KeyedJoin, MultiJoin, StreamJoin


def filtered(rel: Rel, predicate: Expr) -> Filter:
    """Return a filter over a stream or relation."""
    return Filter(rel, predicate, span=predicate.span)


def push_through_filters(node: Rel, push: Callable[[Rel, Expr], Rel | None]) -> Rel | None:
    """Move the predicate of a filter below what it stands on, other filters aside: filters commute.

    `push` gets the first node below that is not a filter, and the predicate, and returns the node with
    the predicate inside, or None.
    """
    if not isinstance(node, Filter):
        return None
    if not isinstance(node.input, Filter):
        return push(node.input, node.predicate)
    below = push_through_filters(replace(node, input=node.input.input), push)
    return None if below is None else replace(node.input, input=below)


def known_predicates(rel: Rel) -> list[Expr]:
    """Return predicates, over its columns, that every row of a stream or relation satisfies.

    They are what filters below say of the row itself; nothing is inferred from them.
    """
    match rel:
        case Filter():
            own = [term for term in conjuncts(rel.predicate) if depends_on_row_only(term)]
            return own + known_predicates(rel.input)
        case Window() | Distinct() | TopN() | RelToStream() | RowNumber() | GroupTopN():
            return known_predicates(rel.input)
        case Project():
            return _renamed(known_predicates(rel.input), rel.items, rel)
        case Aggregate():
            return _renamed(known_predicates(rel.input), rel.keys, rel)
        case Join() | KeyedJoin() | MultiJoin() | StreamJoin():
            return [
                moved(term, rel, lambda at, start=start: at + start)  # type: ignore[misc]
                for side, start, passes in zip(
                    direct_inputs(rel), starts(rel), may_filter(rel, FILTERS_ABOVE), strict=True
                )
                if passes
                for term in known_predicates(side)
            ]
        case SetOperation():
            left = [moved(term, rel) for term in known_predicates(rel.left)]
            if rel.kind is SetKind.UNION:
                return [term for term in left if is_known(term, rel.right)]
            return left
    return []


def _renamed(terms: list[Expr], items: tuple[Expr, ...], rel: Rel) -> list[Expr]:
    """Return the predicates that can be said of the items: those over columns that are passed on."""
    places: dict[int, int] = {}
    for at, item in enumerate(items):
        if isinstance(item, ColumnRef) and item.depth == 0:
            places.setdefault(item.index, at)
    return [moved(term, rel, places.__getitem__) for term in terms if columns_read(term) <= places.keys()]


def is_known(predicate: Expr, rel: Rel) -> bool:
    """Tell whether a filter somewhere below already says what a predicate over a stream or relation says.

    It looks wherever the rules that push filters down would have brought the predicate.
    """
    predicate = simplified(predicate, as_filter=True)
    if is_constant(predicate, True):
        return True
    match rel:
        case Filter():
            said = [simplified(term, as_filter=True) for term in conjuncts(rel.predicate)]
            return moved(predicate, rel) in said or is_known(predicate, rel.input)
        case Window() | Distinct() | TopN() | RelToStream():
            return is_known(predicate, rel.input)
        case RowNumber() | GroupTopN():
            return max(columns_read(predicate), default=0) < len(rel.input.schema) and is_known(predicate, rel.input)
        case Project():
            return is_known(substituted(predicate, rel.items), rel.input)
        case Aggregate():
            return max(columns_read(predicate), default=0) < len(rel.keys) and is_known(
                substituted(predicate, rel.keys), rel.input
            )
        case Join() | KeyedJoin() | MultiJoin() | StreamJoin():
            condition = condition_of(rel)
            if condition is not None and kind_of(rel) is JoinType.INNER:
                said = [simplified(term, as_filter=True) for term in conjuncts(condition)]
                if moved(predicate, rel) in said:
                    return True
            read = inputs_read(rel, columns_read(predicate))
            return any(
                is_known(moved(predicate, side, lambda at, start=start: at - start), side)  # type: ignore[misc]
                for number, (side, start) in enumerate(zip(direct_inputs(rel), starts(rel), strict=True))
                if may_filter(rel, FILTERS_ABOVE)[number] and read in ([], [number])
            )
        case SetOperation():
            known = [is_known(moved(predicate, side), side) for side in (rel.left, rel.right)]
            return (
                all(known) if rel.kind is SetKind.UNION else any(known) if rel.kind is SetKind.INTERSECT else known[0]
            )
    return False
