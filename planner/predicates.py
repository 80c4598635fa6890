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
    conjunction,
    conjuncts,
    direct_inputs,
    has_subquery,
    walk,
)
from planner.expressions import columns_read, depends_on_row_only, is_correlated, moved, substituted
from planner.joins import FILTERS_ABOVE, condition_of, inputs_read, kind_of, may_filter, starts
from planner.logic import is_constant, simplified
from planner.logical import GroupTopN, JoinType, KeyedJoin, MultiJoin, StreamJoin

LARGEST = 500
"""How many parts a predicate may come to have by taking in what it reads; beyond that, moving it does not pay."""


def filtered(rel: Rel, predicate: Expr) -> Filter:
    """Return a filter over a stream or relation; a filter there that reads the same columns takes it in.

    So there are never more filters on top of each other than sets of columns to read.
    """
    at = rel
    above: list[Filter] = []
    while isinstance(at, Filter):
        if go_together(at.predicate, predicate):
            said = conjuncts(at.predicate)
            terms = [*said, *(term for term in conjuncts(predicate) if term not in said)]
            result = replace(at, predicate=conjunction(terms))
            for node in reversed(above):
                result = replace(node, input=result)
            return result
        above.append(at)
        at = at.input
    return Filter(rel, predicate, span=predicate.span)


def go_together(one: Expr, other: Expr) -> bool:
    """Tell whether two predicates may go to the same places, because they read the same columns."""
    return destiny(one) == destiny(other) and not has_subquery(one) and not has_subquery(other)


def destiny(predicate: Expr) -> tuple[frozenset[int], bool]:
    """Return what decides where a predicate without subqueries may go: its columns, and whether it is correlated."""
    return columns_read(predicate), is_correlated(predicate)


def becomes_too_large(predicate: Expr, pushed: Expr) -> bool:
    """Tell whether a predicate grows too large by being pushed below what computes the columns that it reads."""
    before, after = (sum(1 for _ in walk(expression)) for expression in (predicate, pushed))
    return after > max(before, LARGEST)


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


def known_predicates(rel: Rel, about: frozenset[int]) -> list[Expr]:
    """Return predicates about some columns, and no others, that every row of a stream or relation satisfies.

    They are what filters below say of the row itself; nothing is inferred from them.
    """
    if not about:
        return []
    match rel:
        case Filter():
            return _said_about(rel.predicate, about) + known_predicates(rel.input, about)
        case Window() | Distinct() | TopN() | RelToStream():
            return known_predicates(rel.input, about)
        case RowNumber() | GroupTopN():
            return known_predicates(rel.input, about & frozenset(range(len(rel.input.schema))))
        case Project():
            return _renamed(rel, rel.items, about)
        case Aggregate():
            return _renamed(rel, rel.keys, about)
        case Join() | KeyedJoin() | MultiJoin() | StreamJoin():
            return _known_of_inputs(rel, about)
        case SetOperation():
            left = [moved(term, rel) for term in known_predicates(rel.left, about)]
            if rel.kind is SetKind.UNION:
                return [term for term in left if is_known(moved(term, rel.right), rel.right)]
            return left
    return []


def _said_about(predicate: Expr, about: frozenset[int]) -> list[Expr]:
    """Return the conjuncts of a filter that are about some columns of the row and nothing else."""
    return [
        term
        for term in conjuncts(predicate)
        if depends_on_row_only(term) and (read := columns_read(term)) and read <= about
    ]


def _known_of_inputs(rel: Join | KeyedJoin | MultiJoin | StreamJoin, about: frozenset[int]) -> list[Expr]:
    """Return what is known of the rows of a join because filters below its inputs say it."""
    found: list[Expr] = []
    passes = may_filter(rel, FILTERS_ABOVE)
    for at, (side, start) in enumerate(zip(direct_inputs(rel), starts(rel), strict=True)):
        there = frozenset(range(start, start + len(side.schema))) & about
        if passes[at] and there:
            known = known_predicates(side, frozenset(column - start for column in there))
            found += [moved(term, rel, lambda column: column + start) for term in known]  # noqa: B023
    return found


def _renamed(rel: Project | Aggregate, items: tuple[Expr, ...], about: frozenset[int]) -> list[Expr]:
    """Return the predicates that can be said of the items: those over columns that are passed on."""
    places: dict[int, int] = {}
    for at, item in enumerate(items):
        if at in about and isinstance(item, ColumnRef) and item.depth == 0:
            places.setdefault(item.index, at)
    return [moved(term, rel, places.__getitem__) for term in known_predicates(rel.input, frozenset(places))]


def is_known(predicate: Expr, rel: Rel) -> bool:
    """Tell whether a filter somewhere below already says what a predicate over a stream or relation says.

    It looks wherever the rules that push filters down would have brought the predicate.
    """
    predicate = simplified(predicate, as_filter=True)
    if is_constant(predicate, True):
        return True
    match rel:
        case Filter():
            return _says(rel.predicate, moved(predicate, rel)) or is_known(predicate, rel.input)
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
            return _is_known_of_join(predicate, rel)
        case SetOperation():
            known = [is_known(moved(predicate, side), side) for side in (rel.left, rel.right)]
            return (
                all(known) if rel.kind is SetKind.UNION else any(known) if rel.kind is SetKind.INTERSECT else known[0]
            )
    return False


def _is_known_of_join(predicate: Expr, rel: Join | KeyedJoin | MultiJoin | StreamJoin) -> bool:
    """Tell whether the condition of a join, or a filter below one of its inputs, says what a predicate says."""
    condition = condition_of(rel)
    if condition is not None and kind_of(rel) is JoinType.INNER and _says(condition, moved(predicate, rel)):
        return True
    read = inputs_read(rel, columns_read(predicate))
    return any(
        is_known(moved(predicate, side, lambda at, start=start: at - start), side)  # type: ignore[misc]
        for number, (side, start) in enumerate(zip(direct_inputs(rel), starts(rel), strict=True))
        if may_filter(rel, FILTERS_ABOVE)[number] and read in ([], [number])
    )


def _says(condition: Expr, predicate: Expr) -> bool:
    """Tell whether a predicate in its simplest form is one of the conjuncts of a condition."""
    terms = conjuncts(condition)
    return predicate in terms or predicate in [simplified(term, as_filter=True) for term in terms]
