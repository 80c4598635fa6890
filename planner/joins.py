"""All joins through one pair of glasses: their inputs, kind and condition, whatever class they are.

A condition is over the columns of all inputs in order. `FILTERS_ABOVE` and `FILTERS_IN_CONDITION` are the
two laws of moving selections around joins: below which inputs may a predicate go that stands above the
join, and below which if it is a conjunct of the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from cql.bound import Expr, Join, Rel, conjuncts, direct_inputs, with_inputs
from planner.expressions import all_of
from planner.logic import in_order
from planner.logical import JoinType, KeyedJoin, MultiJoin, StreamJoin

AnyJoin = Join | KeyedJoin | MultiJoin | StreamJoin

FILTERS_ABOVE: dict[JoinType, tuple[bool, bool]] = {
    JoinType.INNER: (True, True),
    JoinType.LEFT: (True, False),
    JoinType.RIGHT: (False, True),
    JoinType.FULL: (False, False),
    JoinType.SEMI: (True, False),
    JoinType.ANTI: (True, False),
}
"""V10: a row that is kept without a match must not be dropped on the other side, nor its NULLs be tested."""

FILTERS_IN_CONDITION: dict[JoinType, tuple[bool, bool]] = {
    JoinType.INNER: (True, True),
    JoinType.LEFT: (False, True),
    JoinType.RIGHT: (True, False),
    JoinType.FULL: (False, False),
    JoinType.SEMI: (True, True),
    JoinType.ANTI: (False, True),
}
"""A row that fails the condition matches nothing; that drops it, unless it is kept without a match."""


def kind_of(join: AnyJoin) -> JoinType:
    """Return a join's kind; joins without one are inner joins."""
    match join:
        case Join():
            return JoinType[join.kind.name]
        case KeyedJoin():
            return join.kind
    return JoinType.INNER


def may_filter(join: AnyJoin, laws: dict[JoinType, tuple[bool, bool]]) -> tuple[bool, ...]:
    """Return, for each input of a join, whether a law lets a predicate go there."""
    kind = kind_of(join)
    return laws[kind] if not isinstance(join, MultiJoin) else (True,) * len(join.relations)


def starts(join: AnyJoin) -> list[int]:
    """Return where the columns of each input begin among those of all."""
    return list(accumulate((len(rel.schema) for rel in direct_inputs(join)[:-1]), initial=0))


def inputs_read(join: AnyJoin, columns: frozenset[int]) -> list[int]:
    """Return the inputs that some of the join's columns come from."""
    owners = owners_of(join)
    return sorted({owners[at] for at in columns})


def owners_of(join: AnyJoin) -> list[int]:
    """Return the input that each column comes from."""
    return [at for at, rel in enumerate(direct_inputs(join)) for _ in rel.schema]


def condition_of(join: AnyJoin) -> Expr | None:
    """Return what pairs have to satisfy besides equal keys."""
    return join.condition if isinstance(join, Join) else join.residual


def with_condition(join: AnyJoin, terms: Sequence[Expr]) -> AnyJoin:
    """Return a join with another condition: the AND of some terms, in canonical order."""
    condition = all_of(in_order([part for term in terms for part in conjuncts(term)]))
    if isinstance(join, Join):
        return replace(join, condition=condition)
    return replace(join, residual=condition)


def with_sides(join: AnyJoin, relations: Sequence[Rel]) -> AnyJoin:
    """Return a join of other inputs."""
    values = iter(relations)
    result = with_inputs(join, lambda _: next(values))
    assert isinstance(result, AnyJoin)
    return result


def keys_of(join: AnyJoin) -> list[tuple[Expr, ...]]:
    """Return the keys of each input, over that input's columns."""
    match join:
        case MultiJoin():
            return list(join.keys)
        case KeyedJoin() | StreamJoin():
            return [join.left_keys, join.right_keys]
    return [() for _ in direct_inputs(join)]


def with_keys(join: AnyJoin, keys: Sequence[tuple[Expr, ...]]) -> AnyJoin:
    """Return a join with other keys, one tuple for each input."""
    match join:
        case MultiJoin():
            return replace(join, keys=tuple(keys))
        case KeyedJoin() | StreamJoin():
            return replace(join, left_keys=keys[0], right_keys=keys[1])
    return join
