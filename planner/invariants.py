"""The invariants of logical plans: those of bound trees, and those of the planner's own nodes.

The driver of rewrite rules calls `verify` after each rule that changed something, so that a rule which
breaks a plan is named where it happens and not where it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from cql.bound import Expr, Rel
from cql.bound.check import Checker, NodeRule, check, require
from planner.logical import GroupTopN, KeyedJoin, MultiJoin, StreamJoin


def verify(plan: Rel) -> None:
    """Raise an InternalError that names the invariant, if a plan breaks one."""
    check(plan, NODE_RULES)


def _keyed_join(join: KeyedJoin, checker: Checker) -> None:
    checker.relations(join.left, join.right)
    _keys(join, (join.left, join.right), (join.left_keys, join.right_keys), checker)
    _residual(join.residual, (join.left, join.right), checker)


def _stream_join(join: StreamJoin, checker: Checker) -> None:
    require(join.stream.is_stream, "a stream join takes a stream first", join)
    checker.relations(join.relation)
    _keys(join, (join.stream, join.relation), (join.left_keys, join.right_keys), checker)
    _residual(join.residual, (join.stream, join.relation), checker)


def _multi_join(join: MultiJoin, checker: Checker) -> None:
    checker.relations(*join.relations)
    require(len(join.relations) > 2, "a multiway join has more than two inputs", join)
    require(len(join.keys[0]) > 0, "a multiway join has keys", join)
    _keys(join, join.relations, join.keys, checker)
    _residual(join.residual, join.relations, checker)


def _group_top_n(top: GroupTopN, checker: Checker) -> None:
    checker.relations(top.input)
    require(top.limit >= 1, "a top-n keeps a row", top)
    checker.columns(top.partition, top.input.schema, top)
    checker.order(top.keys, top.input.schema, top)


def _keys(join: Rel, inputs: Sequence[Rel], keys: Sequence[tuple[Expr, ...]], checker: Checker) -> None:
    require(len(inputs) == len(keys), "every input of a join has keys", join)
    require(len({len(own) for own in keys}) == 1, "the inputs of a join have as many keys", join)
    for rel, own in zip(inputs, keys, strict=True):
        for key in own:
            checker.expression(key, rel.schema)
    for together in zip(*keys, strict=True):
        require(len({key.type for key in together}) == 1, "keys that are compared have one type", join)


def _residual(residual: Expr | None, inputs: Sequence[Rel], checker: Checker) -> None:
    if residual is not None:
        checker.condition(residual, tuple(column for rel in inputs for column in rel.schema))


NODE_RULES: dict[type[Rel], NodeRule] = {
    KeyedJoin: _keyed_join,
    StreamJoin: _stream_join,
    MultiJoin: _multi_join,
    GroupTopN: _group_top_n,
}
