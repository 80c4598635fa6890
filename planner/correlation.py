"""Subqueries that refer to the query around them, taken apart so that they can be joined to it.

The row around a subquery is a constant in it. `pulled` makes of a subquery a relation that refers to nothing
outside, and predicates that do: for each row around, the rows of the subquery are those rows of the relation
for which the predicates hold. Predicates rise through filters, projections and inner joins. Through DISTINCT,
GROUP BY and LIMIT rise only those of the form `inner = outer`: the operator then works within each value of
`inner`. Through windows, set operations and the optional side of an outer join nothing rises; that is an
error, which rules take as "does not apply" and `require_no_subqueries`, when all rules are done, lets through.

In what is pulled, references of depth 0 are to the relation and those of depth 1, 2, .. to the queries
around, as in the subquery itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from cql.bound import (
    Aggregate,
    AggregateCall,
    ColumnRef,
    Distinct,
    EmptyRow,
    Exists,
    Expr,
    Filter,
    InSubquery,
    Join,
    JoinKind,
    Project,
    Rel,
    RowNumber,
    ScalarSubquery,
    SetOperation,
    TopN,
    Window,
    conjuncts,
    direct_inputs,
    expressions,
    has_subquery,
    transform_expression,
    walk,
)
from cql.bound.relations import subqueries
from cql.errors import Code, CqlError, fail, one_of
from cql.source import NO_SPAN
from planner.expressions import (
    all_of,
    column,
    columns,
    columns_read,
    equality,
    is_correlated,
    shifted,
    substituted,
)
from planner.logical import GroupTopN, JoinType, KeyedJoin

SUBQUERIES = (InSubquery, Exists, ScalarSubquery)


class Need(Enum):
    """What of a subquery's result matters: whether there are rows, which ones, or also how often each."""

    EXISTENCE = 0
    SET = 1
    BAG = 2


@dataclass(frozen=True, slots=True)
class Pulled:
    """A subquery taken apart: a relation, its columns over that relation, and what its rows must satisfy."""

    relation: Rel
    columns: tuple[Expr, ...]
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pulled predicates by form: pairs `inner = outer`, those that read the outside only, and the others."""

    inner: tuple[Expr, ...]
    outer: tuple[Expr, ...]
    outside: tuple[Expr, ...]
    others: tuple[Expr, ...]


def pulled(query: Rel, need: Need) -> Pulled:
    """Take a subquery apart; raises CANNOT_DECORRELATE. The subqueries inside it have to be gone.

    Where only the existence of rows matters, the columns may be those of something below.
    """
    if not refers_outside(query):
        return Pulled(query, columns(query))
    match query:
        case Filter():
            inner = pulled(query.input, _rows_of(need))
            return _filtered(inner, conjuncts(query.predicate))
        case Project() | Distinct() | TopN() | Aggregate(keys=(_, *_)) if need is Need.EXISTENCE:
            return pulled(query.input, need)
        case Project():
            inner = pulled(query.input, need)
            items = tuple(substituted(item, inner.columns) for item in query.items)
            return replace(inner, columns=items)
        case Distinct() if need is Need.SET:
            return pulled(query.input, need)
        case Distinct() | TopN() | GroupTopN() | RowNumber():
            return _within_keys(query)
        case Aggregate():
            return _aggregated(query)
        case Join(kind=JoinKind.INNER) | KeyedJoin(kind=JoinType.INNER):
            return _joined(query.left, query.right, _conditions(query), need)
        case KeyedJoin(kind=JoinType.SEMI) if need is not Need.BAG and _right_refers_outside(query):
            both = _joined(query.left, query.right, _conditions(query), need)
            return replace(both, columns=both.columns[: len(query.left.schema)])
        case KeyedJoin(kind=JoinType.LEFT | JoinType.SEMI | JoinType.ANTI) | Join(kind=JoinKind.LEFT):
            return _left_joined(query, need)
    raise _obstacle(query, _place(query), _instead(query))


def refers_outside(rel: Rel) -> bool:
    """Tell whether a subquery refers to a query around it."""
    return any(True for _ in _outer_references(rel))


def free_of_subqueries(rel: Rel) -> bool:
    """Tell whether there is no subquery in any expression of a plan."""
    if any(has_subquery(expression) for expression in expressions(rel)):
        return False
    return all(free_of_subqueries(below) for below in direct_inputs(rel))


def correlation(predicates: Iterable[Expr]) -> Correlation:
    """Sort pulled predicates by their form."""
    inner: list[Expr] = []
    outer: list[Expr] = []
    outside: list[Expr] = []
    others: list[Expr] = []
    for predicate in predicates:
        sides = _sides(predicate)
        if not columns_read(predicate):
            outside.append(predicate)
        elif sides is None:
            others.append(predicate)
        elif sides not in zip(inner, outer, strict=True):
            inner.append(sides[0])
            outer.append(sides[1])
    return Correlation(tuple(inner), tuple(outer), tuple(outside), tuple(others))


def _sides(predicate: Expr) -> tuple[Expr, Expr] | None:
    """Return the inner and the outer side of `inner = outer`, whichever way round it is written."""
    if getattr(predicate, "function", None) != "eq":
        return None
    left, right = predicate.arguments  # type: ignore[attr-defined]
    for inner, outer in ((left, right), (right, left)):
        if not is_correlated(inner) and not columns_read(outer):
            return inner, outer
    return None


def placed(expression: Expr, items: Sequence[Expr]) -> Expr:
    """Return a pulled expression as one of the query around, in which `items` are the relation's columns."""

    def change(part: Expr, depth: int) -> Expr | None:
        assert depth == 0, "subqueries inside have to be gone"
        if isinstance(part, ColumnRef):
            return items[part.index] if part.depth == 0 else replace(part, depth=part.depth - 1)
        return None

    return transform_expression(expression, change)


def deepened(expression: Expr) -> Expr:
    """Return an expression of a query as a subquery of it would write it."""

    def change(part: Expr, depth: int) -> Expr | None:
        if isinstance(part, ColumnRef) and part.depth >= depth:
            return replace(part, depth=part.depth + 1)
        return None

    return transform_expression(expression, change)


def key_names(keys: Sequence[Expr]) -> tuple[str, ...]:
    """Return names for columns that hold some expressions."""
    return tuple(key.name if isinstance(key, ColumnRef) and key.name else f"key{at}" for at, key in enumerate(keys))


# Through operators


def _rows_of(need: Need) -> Need:
    """Return what matters of an input of which a row may be left out."""
    return Need.SET if need is Need.EXISTENCE else need


def _filtered(inner: Pulled, terms: Iterable[Expr]) -> Pulled:
    found = [substituted(term, inner.columns) for term in terms]
    own = all_of(term for term in found if not is_correlated(term))
    relation = inner.relation if own is None else Filter(inner.relation, own, span=own.span)
    rising = tuple(term for term in found if is_correlated(term))
    return Pulled(relation, inner.columns, inner.predicates + rising)


def _joined(left: Rel, right: Rel, terms: Sequence[Expr], need: Need) -> Pulled:
    first, second = pulled(left, _rows_of(need)), pulled(right, _rows_of(need))
    width = len(first.relation.schema)
    items = first.columns + tuple(shifted(item, width) for item in second.columns)
    rising = first.predicates + tuple(shifted(term, width) for term in second.predicates)
    found = [substituted(term, items) for term in terms]
    condition = all_of(term for term in found if not is_correlated(term))
    relation = Join(JoinKind.INNER, first.relation, second.relation, condition)
    return Pulled(relation, items, rising + tuple(term for term in found if is_correlated(term)))


def _conditions(join: Join | KeyedJoin) -> list[Expr]:
    """Return what a pair of rows has to satisfy, over the columns of both."""
    if isinstance(join, Join):
        return [] if join.condition is None else conjuncts(join.condition)
    width = len(join.left.schema)
    keys = zip(join.left_keys, join.right_keys, strict=True)
    terms = [equality(left, shifted(right, width)) for left, right in keys]
    return terms if join.residual is None else terms + conjuncts(join.residual)


def _right_refers_outside(join: Join | KeyedJoin) -> bool:
    return refers_outside(join.right) or any(is_correlated(term) for term in _conditions(join))


def _left_joined(join: Join | KeyedJoin, need: Need) -> Pulled:
    """Predicates on the side that is kept rise; the other side and the condition stay as they are."""
    inner = pulled(join.left, _rows_of(need))
    width = len(inner.relation.schema)
    items = inner.columns + tuple(shifted(item, width) for item in columns(join.right))
    condition = all_of(substituted(term, items) for term in _conditions(join))
    if refers_outside(join.right) or (condition is not None and is_correlated(condition)):
        raise _obstacle(join, _place(join), _instead(join))
    kind = JoinType[join.kind.name]
    relation = KeyedJoin(kind, inner.relation, join.right, residual=condition, span=join.span)
    if kind is JoinType.LEFT:
        items = inner.columns + columns(relation)[width:]
    else:
        items = inner.columns
    return Pulled(relation, items, inner.predicates)


def _within_keys(query: Distinct | TopN | GroupTopN | RowNumber) -> Pulled:
    """Let `inner = outer` rise through an operator that can work within each value of `inner`."""
    inner = pulled(query.input, Need.SET if isinstance(query, Distinct) else Need.BAG)
    found = _only_pairs(inner, query)
    if any(is_correlated(item) for item in inner.columns):
        raise _obstacle(query, _place(query), "use it in a query around that one, or join the two in FROM")
    width = len(inner.columns)
    names = tuple(f.name for f in query.input.schema) + key_names(found.inner)
    table = Project(inner.relation, inner.columns + found.inner, names, span=query.span)
    within = tuple(range(width, width + len(found.inner)))
    relation: Rel
    match query:
        case Distinct():
            relation = replace(query, input=table)
        case TopN():
            relation = GroupTopN(table, within, query.keys, query.limit, span=query.span)
        case GroupTopN() | RowNumber():
            relation = replace(query, input=table, partition=query.partition + within)
    numbers = range(len(table.schema), len(relation.schema))
    items = tuple(column(relation, at) for at in (*range(width), *numbers))
    rising = tuple(equality(outer, column(relation, at)) for at, outer in zip(within, found.outer, strict=True))
    return Pulled(relation, items, rising + found.outside)


def _aggregated(query: Aggregate) -> Pulled:
    """Let `inner = outer` rise through a GROUP BY: there are groups for each value of `inner` then."""
    if not query.keys and query.empty_row is not EmptyRow.NEVER:
        place = "below an aggregate without GROUP BY that is joined with something else"
        raise _obstacle(query, place, _JOIN_INSTEAD)
    relation, found = grouped(query)
    width = len(query.keys)
    items = tuple(column(relation, at) for at in range(width))
    items += tuple(column(relation, at + len(found.inner)) for at in range(width, len(query.schema)))
    rising = tuple(equality(outer, column(relation, width + at)) for at, outer in enumerate(found.outer))
    return Pulled(relation, items, rising + found.outside)


def grouped(query: Aggregate) -> tuple[Aggregate, Correlation]:
    """Return an aggregate for each value of what it is correlated by: those keys come after its own."""
    inner = pulled(query.input, Need.BAG)
    found = _only_pairs(inner, query)
    keys = tuple(substituted(key, inner.columns) for key in query.keys)
    calls = tuple(_call_over(call, inner.columns) for call in query.calls)
    width = len(keys)
    names = query.names[:width] + key_names(found.inner) + query.names[width:]
    result = replace(query, input=inner.relation, keys=keys + found.inner, calls=calls, names=names)
    if any(is_correlated(expression) for expression in expressions(result)):
        raise _obstacle(query, "inside an aggregate or its GROUP BY", _JOIN_INSTEAD)
    return result, found


def _call_over(call: AggregateCall, items: Sequence[Expr]) -> AggregateCall:
    condition = None if call.filter is None else substituted(call.filter, items)
    return replace(call, arguments=tuple(substituted(argument, items) for argument in call.arguments), filter=condition)


def _only_pairs(inner: Pulled, query: Rel) -> Correlation:
    found = correlation(inner.predicates)
    if found.others:
        raise _obstacle(found.others[0], f"{_place(query)}, and not in a comparison with =", _instead(query))
    return found


# A single group


@dataclass(frozen=True, slots=True)
class SingleGroup:
    """A query of one row at most: an aggregate without keys, conditions on its row, columns made of it."""

    aggregate: Aggregate
    conditions: tuple[Expr, ...]
    columns: tuple[Expr, ...]


def single_group(query: Rel) -> SingleGroup | None:
    """Return a query of one row, which is always there before its conditions are asked, or None."""
    match query:
        case Aggregate(keys=(), empty_row=EmptyRow.ALWAYS):
            return SingleGroup(query, (), columns(query))
        case Distinct() | TopN():
            return single_group(query.input)
        case Filter() | Project():
            below = single_group(query.input)
            if below is None:
                return None
            if isinstance(query, Project):
                return replace(below, columns=tuple(substituted(item, below.columns) for item in query.items))
            terms = tuple(substituted(term, below.columns) for term in conjuncts(query.predicate))
            return replace(below, conditions=below.conditions + terms)
    return None


# What cannot be done, in words

_JOIN_INSTEAD = "join the two in FROM and aggregate there"


def require_no_subqueries(rel: Rel) -> None:
    """Raise CANNOT_DECORRELATE if an expression of a plan still holds a subquery, and say why it does."""
    for below in (*direct_inputs(rel), *subqueries(rel)):
        require_no_subqueries(below)
    for expression in expressions(rel):
        for part in walk(expression):
            if isinstance(part, SUBQUERIES):
                _raise_reason(part, rel)


def _raise_reason(subquery: InSubquery | Exists | ScalarSubquery, owner: Rel) -> None:
    group = single_group(subquery.query)
    if group is not None and refers_outside(group.aggregate):
        grouped(group.aggregate)
    else:
        pulled(subquery.query, Need.BAG if isinstance(subquery, ScalarSubquery) else Need.EXISTENCE)
    if isinstance(owner, Join):
        raise fail(
            Code.CANNOT_DECORRELATE,
            "this subquery depends on both sides of the outer join it is a condition of",
            subquery.span,
            hint="let it depend on one side, or compute what it needs in a subquery of FROM",
        )
    raise fail(
        Code.CANNOT_DECORRELATE,
        "this subquery cannot be turned into a join",
        subquery.span,
        hint="write it as a join in FROM",
    )


def _obstacle(where: Rel | Expr, place: str, instead: str) -> CqlError:
    references = _outer_references(where) if isinstance(where, Rel) else _outside_of(where, 0)
    reference = next(iter(references), None)
    name = "a column" if reference is None else f"'{reference.name}'"
    return fail(
        Code.CANNOT_DECORRELATE,
        f"{name} of the query around is used {place}: this cannot be turned into a join",
        NO_SPAN if reference is None else reference.span,
        hint=instead,
    )


def _place(query: Rel) -> str:
    match query:
        case Window():
            return "below a window"
        case SetOperation():
            return f"in a part of {query.kind.value}"
        case Join():
            return "in the condition or on the optional side of an outer join"
        case KeyedJoin():
            return "two subqueries further in"
        case Distinct():
            return "below DISTINCT"
        case TopN() | GroupTopN():
            return "below ORDER BY .. LIMIT"
        case RowNumber():
            return "below ROW_NUMBER"
        case Aggregate():
            return "below an aggregate"
    return "here"


def _instead(query: Rel) -> str:
    match query:
        case Window():
            return "put the condition on what the window yields, not inside its stream"
        case SetOperation():
            return "write a subquery for each part, and combine their values with " + one_of(["AND", "OR"])
        case Join():
            return "put the condition into WHERE, or join with JOIN instead"
        case KeyedJoin():
            return "let a subquery refer to the query directly around it only"
        case Aggregate():
            return "compare with = there, or " + _JOIN_INSTEAD
    return "compare with = there, or join the two in FROM"


def _outer_references(rel: Rel, depth: int = 0) -> Iterator[ColumnRef]:
    """Yield the references in a query, `depth` subqueries deep, to what is around the outermost of them."""
    for expression in expressions(rel):
        yield from _outside_of(expression, depth)
    for below in direct_inputs(rel):
        yield from _outer_references(below, depth)


def _outside_of(expression: Expr, depth: int) -> Iterator[ColumnRef]:
    for part in walk(expression):
        if isinstance(part, ColumnRef):
            if part.depth > depth:
                yield part
        elif isinstance(part, SUBQUERIES):
            yield from _outer_references(part.query, depth + 1)
