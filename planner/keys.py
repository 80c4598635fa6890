"""Which columns identify a row: the reason why a relation has no row twice.

NULL counts as a value here, as it does for DISTINCT and GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence

from cql.ast import SetKind
from cql.bound import (
    Aggregate,
    ColumnRef,
    Distinct,
    Expr,
    Filter,
    Join,
    JoinKind,
    Project,
    Rel,
    RowNumber,
    SetOperation,
    TopN,
)
from planner.logical import GroupTopN, JoinType, KeyedJoin


def key_of(rel: Rel) -> frozenset[int] | None:
    """Return columns of which no two rows of a relation have the same values at any instant, or None.

    No columns at all means that there is one row at most.
    """
    match rel:
        case Aggregate():
            return frozenset(range(len(rel.keys)))
        case Distinct():
            inner = key_of(rel.input)
            return _all(rel) if inner is None else inner
        case SetOperation():
            return _of_set_operation(rel)
        case Filter() | TopN():
            return key_of(rel.input)
        case KeyedJoin(kind=JoinType.SEMI | JoinType.ANTI):
            return key_of(rel.left)
        case Project():
            return _projected(key_of(rel.input), rel.items)
        case Join(kind=JoinKind.INNER) | KeyedJoin(kind=JoinType.INNER):
            return _of_inner_join(rel)
        case RowNumber():
            inner = key_of(rel.input)
            return frozenset((*rel.partition, len(rel.input.schema))) if inner is None else inner
        case GroupTopN():
            return _of_group_top_n(rel)
    return None


def _of_group_top_n(rel: GroupTopN) -> frozenset[int] | None:
    inner = key_of(rel.input)
    if inner is not None or (rel.limit > 1 and rel.number is None):
        return inner
    number = () if rel.limit == 1 else (len(rel.input.schema),)
    return frozenset((*rel.partition, *number))


def _of_inner_join(rel: Join | KeyedJoin) -> frozenset[int] | None:
    left, right = key_of(rel.left), key_of(rel.right)
    if left is None or right is None:
        return None
    return left | {at + len(rel.left.schema) for at in right}


def _all(rel: Rel) -> frozenset[int]:
    return frozenset(range(len(rel.schema)))


def _of_set_operation(rel: SetOperation) -> frozenset[int] | None:
    if rel.kind is SetKind.UNION:
        return None if rel.all else _all(rel)
    left, right = key_of(rel.left), key_of(rel.right)
    if left is not None or rel.kind is SetKind.EXCEPT:
        return _all(rel) if left is None and not rel.all else left
    return _all(rel) if right is None and not rel.all else right


def _projected(key: frozenset[int] | None, items: Sequence[Expr]) -> frozenset[int] | None:
    if key is None:
        return None
    places: dict[int, int] = {}
    for at, item in enumerate(items):
        if isinstance(item, ColumnRef) and item.depth == 0:
            places.setdefault(item.index, at)
    return frozenset(places[at] for at in key) if key <= places.keys() else None
