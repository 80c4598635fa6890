"""A projection that only chooses columns moves above the join."""

from __future__ import annotations

from collections.abc import Sequence

from cql.bound import ColumnRef, Expr, Join, Project, Rel, direct_inputs
from planner.expressions import columns, remapped, substituted
from planner.joins import (
    AnyJoin,
    condition_of,
    keys_of,
    kind_of,
    owners_of,
    starts,
    with_condition,
    with_keys,
    with_sides,
)
from planner.logical import JoinType, KeyedJoin, MultiJoin, StreamJoin


def pull_project_above_join(node: Rel) -> Rel | None:
    """Turn `(π[columns] X) ⋈ Y` into `π[columns] (X ⋈ Y)`.

        From (Select A From S1 [Rows 9]) As V, S2 [Rows 9] ..   ->   the join reads S1's window itself

    Law: a join passes columns on untouched. Joins then meet joins and windows directly, whatever views lie
    between, and share what these store; `prune_columns` puts a projection back where it saves something. Only
    columns: anything computed would turn NULL in the rows without a match of an outer join.
    """
    if not isinstance(node, Join | KeyedJoin | MultiJoin | StreamJoin):
        return None
    below = direct_inputs(node)
    if not any(_chooses(side) for side in below):
        return None
    chosen = [list(side.items) if _chooses(side) else list(columns(side)) for side in below]  # type: ignore[attr-defined]
    sides = [side.input if _chooses(side) else side for side in below]  # type: ignore[attr-defined]
    wide = with_sides(node, sides)
    places = _places(node, wide, chosen)
    condition = condition_of(node)
    wide = with_keys(wide, [_over(keys, items) for keys, items in zip(keys_of(node), chosen, strict=True)])
    if condition is not None:
        wide = with_condition(wide, [remapped(condition, places.__getitem__)])
    fields, outputs = node.schema, columns(wide)
    if kind_of(node) in (JoinType.SEMI, JoinType.ANTI) and not _chooses(below[0]):
        return wide
    items = tuple(outputs[places[at]] for at in range(len(fields)))
    return Project(wide, items, tuple(f.name for f in fields), span=node.span)


def _chooses(rel: Rel) -> bool:
    return isinstance(rel, Project) and all(isinstance(i, ColumnRef) and i.depth == 0 for i in rel.items)


def _over(keys: tuple[Expr, ...], items: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(substituted(key, items) for key in keys)


def _places(join: AnyJoin, wide: AnyJoin, chosen: Sequence[Sequence[Expr]]) -> list[int]:
    """Return where the columns of all inputs are found among those of the wider join."""
    narrow_starts, wide_starts = starts(join), starts(wide)
    places = []
    for at, owner in enumerate(owners_of(join)):
        item = chosen[owner][at - narrow_starts[owner]]
        assert isinstance(item, ColumnRef)
        places.append(wide_starts[owner] + item.index)
    return places
