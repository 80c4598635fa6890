"""A query used as a value becomes a column of an outer join."""

from __future__ import annotations

from cql.bound import (
    Aggregate,
    Call,
    Case,
    ColumnRef,
    Expr,
    Literal,
    Project,
    Rel,
    ScalarSubquery,
    conjunction,
)
from planner.correlation import (
    Need,
    SingleGroup,
    correlation,
    grouped,
    placed,
    pulled,
    refers_outside,
    single_group,
)
from planner.expressions import all_of, column, columns, is_correlated, shifted
from planner.logical import JoinType, KeyedJoin
from planner.subquery_columns import TRUE, is_there, with_lookups


def scalar_subquery_to_join(node: Rel) -> Rel | None:
    """Turn a subquery's value, wherever it stands, into a column of a LEFT JOIN.

        Select * From S Where B > (Select Max(B) From R Where R.A = S.A)
        ->  Select S.* From S Left Join (Select A, Max(B) As m From R Group By A) On S.A = R.A Where S.B > m

    The query has one row at most, so the join keeps each row once, and without a row the value is NULL. An
    aggregate that compares `inner = outer` becomes one group for each value of `inner`. Where there is no
    group, the row of the aggregate is that of an empty group, and what stands on the aggregate is computed
    after the join: a count is 0 there, other aggregates are NULL. ORDER BY .. LIMIT 1 becomes a top-1 for each
    value.
    """
    return with_lookups(node, ScalarSubquery, _looked_up)


def _looked_up(relation: Rel, subquery: ScalarSubquery) -> tuple[Rel, Expr]:
    group = single_group(subquery.query)
    if group is not None and refers_outside(group.aggregate):
        return _of_group(relation, subquery, group)
    inner = pulled(subquery.query, Need.BAG)
    table, value = inner.relation, inner.columns[0]
    marker = None
    if not isinstance(value, ColumnRef) or value.depth:
        # Without a row the value is NULL, which an expression over NULLs need not be.
        marker = len(table.schema)
        outside = is_correlated(value)
        items = (*columns(table), TRUE if outside else value)
        names = (*(f.name for f in table.schema), "found" if outside else "value")
        table = Project(table, items, names, span=subquery.span)
        if not outside:
            value, marker = column(table, marker), None
    found = correlation(inner.predicates)
    width = len(relation.schema)
    inside = [shifted(item, width) for item in columns(table)]
    joined = KeyedJoin(
        JoinType.LEFT,
        relation,
        table,
        tuple(placed(outer, ()) for outer in found.outer),
        found.inner,
        all_of(placed(predicate, inside) for predicate in (*found.others, *found.outside)),
        span=subquery.span,
    )
    value = placed(value, columns(joined)[width:])
    if marker is not None:
        value = _if(is_there(column(joined, width + marker)), value)
    return joined, value


def _of_group(relation: Rel, subquery: ScalarSubquery, group: SingleGroup) -> tuple[Rel, Expr]:
    table, found = grouped(group.aggregate)
    joined = KeyedJoin(
        JoinType.LEFT,
        relation,
        table,
        tuple(placed(outer, ()) for outer in found.outer),
        columns(table)[: len(found.inner)],
        all_of(placed(predicate, ()) for predicate in found.outside),
        span=subquery.span,
    )
    results = _results(joined, len(relation.schema) + len(found.inner), group.aggregate)
    value = placed(group.columns[0], results)
    if group.conditions:
        value = _if(placed(conjunction(list(group.conditions)), results), value)
    return joined, value


def _results(joined: Rel, start: int, aggregate: Aggregate) -> list[Expr]:
    """Return the aggregates of a row's group after the join; without a group, those of an empty one."""
    results: list[Expr] = []
    for at, call in enumerate(aggregate.calls):
        result: Expr = column(joined, start + at)
        if not call.nullable:
            nothing = Literal(0, type=call.type, nullable=False)
            result = Call("coalesce", (result, nothing), type=call.type, nullable=False, span=call.span)
        results.append(result)
    return results


def _if(condition: Expr, value: Expr) -> Expr:
    nothing = Literal(None, type=value.type)
    return Case(((condition, value),), nothing, type=value.type, nullable=True, span=value.span)
