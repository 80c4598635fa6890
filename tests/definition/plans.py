"""What a plan means: the planner's nodes said with those of the language, for the evaluator.

Each is its definition in `planner/logical.py`, written out; nothing is simplified, so that a rule that is
wrong cannot be wrong here in the same way.

| in a plan | as a query |
|---|---|
| `KeyedJoin`, `MultiJoin` | a join on the equality of the keys and the residual |
| a semi-join, an antijoin | a filter [NOT] EXISTS |
| `StreamJoin`, filters and projections of a stream | Rstream, at every tick, of the same over the stream's Now window |
| `GroupTopN` | ROW_NUMBER, and a filter on the number |
"""

from __future__ import annotations

from dataclasses import replace

from cql.ast import RelToStreamKind
from cql.bound import (
    Call,
    ColumnRef,
    Exists,
    Expr,
    Filter,
    InSubquery,
    Join,
    JoinKind,
    Literal,
    Project,
    RangeSpec,
    Rel,
    RelToStream,
    RowNumber,
    ScalarSubquery,
    Window,
    conjunction,
    transform_expression,
    with_children,
    with_expressions,
    with_inputs,
)
from cql.types import BIGINT, BOOLEAN
from planner.logical import GroupTopN, JoinType, KeyedJoin, MultiJoin, StreamJoin


def meaning(plan: Rel) -> Rel:
    """Return a plan as a bound query."""
    if isinstance(plan, Filter | Project | StreamJoin) and plan.is_stream:
        return RelToStream(RelToStreamKind.RSTREAM, _now(plan), every_tick=True, span=plan.span)
    plan = with_expressions(with_inputs(plan, meaning), _in_subqueries)
    match plan:
        case KeyedJoin(kind=JoinType.SEMI | JoinType.ANTI):
            return _half_join(plan)
        case KeyedJoin():
            return Join(JoinKind[plan.kind.name], plan.left, plan.right, _condition(plan), span=plan.span)
        case MultiJoin():
            return _multi_join(plan)
        case GroupTopN():
            return _group_top_n(plan)
    return plan


def _in_subqueries(expression: Expr) -> Expr:
    if isinstance(expression, InSubquery | Exists | ScalarSubquery):
        expression = replace(expression, query=meaning(expression.query))
    return with_children(expression, _in_subqueries)


def _now(stream: Rel) -> Rel:
    """Return the relation that holds, at each instant, the elements that a stream has at it."""
    match stream:
        case Filter() | Project() if stream.is_stream:
            return with_expressions(replace(stream, input=_now(stream.input)), _in_subqueries)
        case StreamJoin():
            left, right = Window(meaning(stream.stream), RangeSpec(1)), meaning(stream.relation)
            return Join(JoinKind.INNER, left, right, _condition(stream), span=stream.span)
    return Window(meaning(stream), RangeSpec(1), span=stream.span)


def _equal(left: Expr, right: Expr) -> Expr:
    return Call("eq", (left, right), type=BOOLEAN, nullable=left.nullable or right.nullable)


def _moved(expression: Expr, by: int) -> Expr:
    def change(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth == depth:
            return replace(part, index=part.index + by)
        return None

    return transform_expression(expression, change)


def _condition(join: KeyedJoin | StreamJoin) -> Expr:
    width = len((join.left if isinstance(join, KeyedJoin) else join.stream).schema)
    keys = zip(join.left_keys, join.right_keys, strict=True)
    terms = [_equal(left, _moved(right, width)) for left, right in keys]
    return conjunction(terms if join.residual is None else [*terms, join.residual])


def _half_join(join: KeyedJoin) -> Rel:
    width = len(join.left.schema)

    def seen_from_the_right(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth >= depth:
            if part.depth == depth and part.index >= width:
                return replace(part, index=part.index - width)
            return replace(part, depth=part.depth + 1)
        return None

    matches = Filter(join.right, transform_expression(_condition(join), seen_from_the_right))
    found: Expr = Exists(matches, type=BOOLEAN, nullable=False)
    if join.kind is JoinType.ANTI:
        found = Call("not", (found,), type=BOOLEAN, nullable=False)
    return Filter(join.left, found, span=join.span)


def _multi_join(join: MultiJoin) -> Rel:
    result, start = join.relations[0], len(join.relations[0].schema)
    terms = [] if join.residual is None else [join.residual]
    for relation, keys in zip(join.relations[1:], join.keys[1:], strict=True):
        terms += [_equal(a, _moved(b, start)) for a, b in zip(join.keys[0], keys, strict=True)]
        result, start = Join(JoinKind.INNER, result, relation), start + len(relation.schema)
    return Filter(result, conjunction(terms), span=join.span)


def _group_top_n(top: GroupTopN) -> Rel:
    numbered = RowNumber(top.input, top.partition, top.keys, top.number or "number", span=top.span)
    number = ColumnRef(len(top.input.schema), type=BIGINT, nullable=False)
    limit = Literal(top.limit, type=BIGINT, nullable=False)
    first = Filter(numbered, Call("le", (number, limit), type=BOOLEAN, nullable=False))
    items = tuple(ColumnRef(at, type=column.type, nullable=column.nullable) for at, column in enumerate(top.schema))
    return Project(first, items, tuple(column.name for column in top.schema), span=top.span)
