"""Relations with fewer columns: what rules that drop columns are made of.

Projections, aggregates and joins treat each column on its own; filters and joins read those in their conditions
besides. Distinct, the set forms of set operations, Istream and top-n look at whole rows, so nothing is dropped
through them. No projection is ever put on a window or a scan: what these store is shared by queries with other
needs. Subqueries stay, for what they read is part of a query's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cql.ast import SetKind
from cql.bound import (
    Aggregate,
    Expr,
    Filter,
    Project,
    Rel,
    RelationScan,
    SetOperation,
    StreamScan,
    Window,
    conjuncts,
    direct_inputs,
    expressions,
    has_subquery,
    with_expressions,
)
from planner.expressions import columns, columns_read, remapped
from planner.joins import condition_of, keys_of, kind_of, starts, with_condition, with_keys, with_sides
from planner.logical import JoinType, KeyedJoin, MultiJoin, StreamJoin


def with_fewer_columns_below(node: Rel, *, project_joins: bool) -> Rel | None:
    """Return a projection, aggregate or semijoin over inputs without the columns that it does not read.

    With `project_joins`, joins and aggregates that feed other joins get a projection on top where that saves
    columns; otherwise columns are dropped only where they are made. None if nothing can be dropped.
    """
    narrower = _Narrower(project_joins)
    match node:
        case Project() | Aggregate():
            below = narrower.narrowed(node.input, _read(expressions(node)))
            return None if below is None else with_expressions(replace(node, input=below.rel), below.over)
        case KeyedJoin(kind=JoinType.SEMI | JoinType.ANTI):
            join = narrower.join(node, frozenset(range(len(node.left.schema))))
            return None if join is None else join.rel
    return None


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """A relation with some of the columns it had, and where each of them was."""

    rel: Rel
    kept: tuple[int, ...]

    def over(self, expression: Expr) -> Expr:
        """Return an expression over the columns as they were as one over those that are left."""
        return remapped(expression, {old: new for new, old in enumerate(self.kept)}.__getitem__)


def _read(found: Iterable[Expr]) -> frozenset[int]:
    return frozenset(at for expression in found for at in columns_read(expression))


@dataclass(frozen=True, slots=True)
class _Narrower:
    project_joins: bool

    def narrowed(self, rel: Rel, needed: frozenset[int]) -> _Narrowed | None:
        """Return a relation with the columns that are needed and fewer others than before, or None."""
        match rel:
            case Project():
                return _project(rel, needed)
            case Aggregate():
                return _aggregate(rel, needed)
            case Filter():
                below = self.narrowed(rel.input, needed | columns_read(rel.predicate))
                if below is None:
                    return None
                return replace(below, rel=replace(rel, input=below.rel, predicate=below.over(rel.predicate)))
            case KeyedJoin() | MultiJoin() | StreamJoin():
                return self.join(rel, needed)
            case SetOperation(kind=SetKind.UNION, all=True):
                return self._union(rel, needed)
        return None

    def join(self, join: KeyedJoin | MultiJoin | StreamJoin, needed: frozenset[int]) -> _Narrowed | None:
        condition = condition_of(join)
        needed = needed | _read([] if condition is None else [condition])
        sides, keys, kept = [], [], []
        changed = False
        for side, own, start in zip(direct_inputs(join), keys_of(join), starts(join), strict=True):
            width = len(side.schema)
            wanted = _read(own) | {at - start for at in needed if start <= at < start + width}
            narrow = self._input(side, wanted)
            changed = changed or narrow is not None
            narrow = narrow or _Narrowed(side, tuple(range(width)))
            sides.append(narrow.rel)
            keys.append(tuple(narrow.over(key) for key in own))
            kept.append(tuple(start + at for at in narrow.kept))
        if not changed:
            return None
        everything = _Narrowed(join, tuple(at for own in kept for at in own))
        result = with_keys(with_sides(join, sides), keys)
        if condition is not None:
            result = with_condition(result, [everything.over(term) for term in conjuncts(condition)])
        one_sided = kind_of(join) in (JoinType.SEMI, JoinType.ANTI)
        return _Narrowed(result, kept[0] if one_sided else everything.kept)

    def _input(self, side: Rel, needed: frozenset[int]) -> _Narrowed | None:
        """Return an input of a join with fewer columns: exactly those needed, if a projection may say so."""
        narrow = self.narrowed(side, needed)
        base = _below_filters(side if narrow is None else narrow.rel)
        if self.project_joins and isinstance(base, KeyedJoin | MultiJoin | StreamJoin | Aggregate):
            return _exactly(narrow or _Narrowed(side, tuple(range(len(side.schema)))), needed) or narrow
        return narrow

    def _union(self, union: SetOperation, needed: frozenset[int]) -> _Narrowed | None:
        """Both sides have to have the same columns, so each must be able to have exactly those needed."""
        needed = needed or frozenset({0})
        if len(needed) == len(union.schema):
            return None
        sides = []
        for side in (union.left, union.right):
            narrow = self.narrowed(side, needed) or _Narrowed(side, tuple(range(len(side.schema))))
            exact = narrow if set(narrow.kept) == needed else _exactly(narrow, needed)
            if exact is None or isinstance(_below_filters(narrow.rel), Window | StreamScan | RelationScan):
                return None
            sides.append(exact.rel)
        return _Narrowed(replace(union, left=sides[0], right=sides[1]), tuple(sorted(needed)))


def _project(project: Project, needed: frozenset[int]) -> _Narrowed | None:
    kept = [at for at, item in enumerate(project.items) if at in needed or has_subquery(item)] or [0]
    if len(kept) == len(project.items):
        return None
    items, names = (tuple(all_of_them[at] for at in kept) for all_of_them in (project.items, project.names))
    return _Narrowed(replace(project, items=items, names=names), tuple(kept))  # type: ignore[arg-type]


def _aggregate(aggregate: Aggregate, needed: frozenset[int]) -> _Narrowed | None:
    """Groups need all their keys; without keys one aggregate has to stay to have a row at all."""
    first = len(aggregate.keys)
    kept = [
        at
        for at, call in enumerate(aggregate.calls, first)
        if at in needed or any(map(has_subquery, [*call.arguments, *filter(None, [call.filter])]))
    ]
    kept = [*range(first), *kept] or [0]
    if len(kept) == len(aggregate.names):
        return None
    calls = tuple(aggregate.calls[at - first] for at in kept[first:])
    return _Narrowed(replace(aggregate, calls=calls, names=tuple(aggregate.names[at] for at in kept)), tuple(kept))


def _exactly(narrow: _Narrowed, needed: frozenset[int]) -> _Narrowed | None:
    """Return a projection to the columns that are needed, at least one; None if it would keep them all."""
    kept = sorted(needed) or [narrow.kept[0]]
    if len(kept) == len(narrow.kept):
        return None
    outputs = columns(narrow.rel)
    items = tuple(outputs[narrow.kept.index(at)] for at in kept)
    return _Narrowed(Project(narrow.rel, items, tuple(item.name for item in items), span=narrow.rel.span), tuple(kept))


def _below_filters(rel: Rel) -> Rel:
    while isinstance(rel, Filter):
        rel = rel.input
    return rel
