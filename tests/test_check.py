"""The invariants of bound trees: each of them is broken once, and named."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest

from cql import Catalog, bound
from cql import types as t
from cql.binder.expressions import AggregateRef
from cql.bound import Call, Case, Cast, ColumnRef, Exists, Expr, InSubquery, Literal, Rel, ScalarSubquery
from cql.bound.check import NODE_RULES, Checker, InternalError, check
from cql.bound.relations import with_expressions, with_inputs
from cql.intervals import TimeDomain
from tests.binding import bind, nodes, tables

ONE = Literal(1, type=t.INT, nullable=False)
TRUE = Literal(True, type=t.BOOLEAN, nullable=False)
NOTHING = Literal(None, type=t.INT)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return tables()


def changed(tree: Rel, node: type[Rel], **fields: Any) -> Rel:
    """Return a tree with fields of its topmost nodes of a class changed."""
    if isinstance(tree, node):
        return replace(tree, **fields)
    return with_inputs(tree, lambda below: changed(below, node, **fields))


def selecting(*items: Expr) -> Callable[[Rel], Rel]:
    """Return a change that puts other expressions into the select list."""
    names = tuple(f"c{at}" for at in range(len(items)))
    return lambda tree: changed(tree, bound.Project, items=items, names=names)


def where(predicate: Expr) -> Callable[[Rel], Rel]:
    return lambda tree: changed(tree, bound.Filter, predicate=predicate)


def windowed(spec: Any) -> Callable[[Rel], Rel]:
    return lambda tree: changed(tree, bound.Window, spec=spec)


def subquery() -> Rel:
    return bind("SELECT MAX(a) FROM U")


A = ColumnRef(0, type=t.INT, name="a")
B = ColumnRef(1, type=t.BIGINT, nullable=False, name="b")
SELECT = "SELECT a FROM S WHERE f"
GROUP = "SELECT a, SUM(b) FROM S GROUP BY a"
TOP = "SELECT a FROM S ORDER BY a LIMIT 3"
NUMBERED = "SELECT * FROM (SELECT a, ROW_NUMBER() OVER (PARTITION BY s ORDER BY b) AS n FROM S)"

BROKEN: dict[str, list[tuple[str, Callable[[Rel], Rel]]]] = {
    "a column belongs to a row in reach": [
        (SELECT, selecting(replace(A, depth=1))),
        (SELECT, selecting(replace(A, depth=-1))),
    ],
    "a column's position lies in its row": [
        (SELECT, selecting(replace(A, index=6))),
        (TOP, lambda tree: changed(tree, bound.TopN, keys=(bound.SortKey(1, False, True),))),
        (NUMBERED, lambda tree: changed(tree, bound.RowNumber, partition=(9,))),
        (
            "SELECT a FROM S [Partition By a Rows 1]",
            lambda tree: changed(tree, bound.Window, spec=bound.PartitionRowsSpec((7,), 1)),
        ),
        (SELECT, lambda tree: changed(tree, bound.StreamScan, timestamp=17)),
    ],
    "a column has the type of its row": [(SELECT, selecting(replace(A, type=t.BIGINT)))],
    "what can be NULL is said to be": [
        (SELECT, selecting(replace(A, nullable=False))),
        (SELECT, selecting(Literal(None, type=t.INT, nullable=False))),
        (SELECT, selecting(Call("add", (ONE, ONE), type=t.INT, nullable=False))),
        (SELECT, selecting(Call("coalesce", (A, A), type=t.INT, nullable=False))),
        (SELECT, selecting(Cast(ONE, type=t.BYTE, nullable=False))),
        (SELECT, selecting(Case(((TRUE, ONE),), NOTHING, type=t.INT, nullable=False))),
        (SELECT, selecting(ScalarSubquery(subquery(), type=t.INT, nullable=False))),
        (SELECT, selecting(InSubquery((ONE,), subquery(), type=t.BOOLEAN, nullable=False))),
        (SELECT, selecting(bound.UserCall("f", (), type=t.INT, nullable=False))),
        (GROUP, lambda tree: _call(tree, nullable=False)),
        (GROUP, lambda tree: _call(tree, function="mine", user_defined=True, nullable=False)),
        ("SELECT U.a FROM S LEFT JOIN U ON S.a = U.a", selecting(replace(A, index=7, type=t.STRING, nullable=False))),
    ],
    "a constant fits its type": [
        (SELECT, selecting(Literal(cast(Any, value), type=data_type, nullable=False)))
        for value, data_type in [
            *((2**31, t.INT), (-129, t.BYTE), (2**63, t.BIGINT), (True, t.INT), (1, t.BOOLEAN), (1, t.DOUBLE)),
            *((1.0, t.INT), ("1", t.INT), (1, t.STRING), (1, t.NULL), (1, t.decimal(3, 0)), ("x", t.TIMESTAMP)),
            *((Decimal("1.5"), t.decimal(3, 0)), (Decimal("100"), t.decimal(3, 1)), (Decimal("NaN"), t.decimal(3, 1))),
        ]
    ],
    "a call is of a function that exists": [(SELECT, selecting(Call("nonsense", (), type=t.INT)))],
    "a function gets arguments that it takes": [
        (SELECT, selecting(Call("upper", (ONE,), type=t.STRING))),
        (SELECT, selecting(Call("round", (Literal(Decimal(1), type=t.decimal(1, 0)), A), type=t.decimal(2, 0)))),
        (SELECT, selecting(Call("extract", (NOTHING, NOTHING), type=t.INT))),
    ],
    "a function gets its arguments in the types it works on": [(SELECT, selecting(Call("add", (A, B), type=t.BIGINT)))],
    "a call has the type of its function's results": [(SELECT, selecting(Call("add", (A, A), type=t.BIGINT)))],
    "a cast is between types that can be converted": [(SELECT, selecting(Cast(TRUE, type=t.TIMESTAMP)))],
    "a CASE has a branch": [(SELECT, selecting(Case((), ONE, type=t.INT)))],
    "the results of a CASE have its type": [(SELECT, selecting(Case(((TRUE, ONE),), B, type=t.INT)))],
    "a condition is BOOLEAN": [
        (SELECT, where(ONE)),
        (SELECT, selecting(Case(((ONE, ONE),), ONE, type=t.INT))),
        ("SELECT S.a FROM S JOIN U ON f", lambda tree: changed(tree, bound.Join, condition=A)),
        (GROUP, lambda tree: _call(tree, filter=A)),
    ],
    "IN compares values with columns of the same types": [
        (SELECT, where(InSubquery((B,), subquery(), type=t.BOOLEAN))),
        (SELECT, where(InSubquery((A, A), subquery(), type=t.BOOLEAN))),
    ],
    "IN is a condition": [(SELECT, selecting(InSubquery((A,), subquery(), type=t.INT)))],
    "EXISTS is a condition": [(SELECT, selecting(Exists(subquery(), type=t.INT)))],
    "a query used as a value has one column, of its type": [
        (SELECT, selecting(ScalarSubquery(subquery(), type=t.BIGINT)))
    ],
    "a subquery is a relation": [(SELECT, where(Exists(bind("SELECT a FROM U"), type=t.BOOLEAN)))],
    "an expression is of a known class": [(SELECT, selecting(AggregateRef(0, type=t.INT)))],
    "a projection has columns, and a name for each": [(SELECT, selecting())],
    "expressions over a stream's elements have no subquery": [
        (SELECT, lambda tree: _below_window(tree, lambda scan: bound.Filter(scan, Exists(subquery(), type=t.BOOLEAN))))
    ],
    "a window goes on a stream": [(SELECT, lambda tree: changed(tree, bound.Window, input=_relation("R")))],
    "a window holds something and moves on": [
        (SELECT, windowed(spec))
        for spec in [
            *(bound.RangeSpec(0), bound.RangeSpec(5, 6), bound.RangeSpec(5, 1), bound.RowsSpec(0)),
            *(bound.PartitionRowsSpec((), 1), bound.PartitionRowsSpec((0,), 0), bound.PartitionRowsSpec((0,), 1, 0)),
        ]
    ],
    "an operator on relations takes relations": [
        ("SELECT R.a FROM S [Rows 1], R", lambda tree: changed(tree, bound.Join, left=_relation("S"))),
        (
            "SELECT a FROM S [Rows 1] UNION SELECT a FROM R",
            lambda tree: changed(tree, bound.SetOperation, left=_stream()),
        ),
        ("SELECT DISTINCT a FROM S [Rows 1]", lambda tree: changed(tree, bound.Distinct, input=_stream())),
        ("Istream(SELECT a FROM S [Rows 1])", lambda tree: changed(tree, bound.RelToStream, input=_stream())),
        (TOP, lambda tree: changed(tree, bound.TopN, input=_stream())),
    ],
    "a top-n keeps a row": [(TOP, lambda tree: changed(tree, bound.TopN, limit=0))],
    "an order has a key": [
        (TOP, lambda tree: changed(tree, bound.TopN, keys=())),
        (NUMBERED, lambda tree: changed(tree, bound.RowNumber, keys=())),
    ],
    "both sides of a set operation have the same types": [
        (
            "SELECT a, s FROM S EXCEPT SELECT a, c FROM U",
            lambda tree: changed(
                tree, bound.SetOperation, right=cast(bound.RelToStream, bind("SELECT a, a FROM R")).input
            ),
        )
    ],
    "only Rstream speaks at every tick": [
        ("Istream(SELECT a FROM S [Now])", lambda tree: changed(tree, bound.RelToStream, every_tick=True))
    ],
    "a call is of an aggregate that exists": [
        (GROUP, lambda tree: _call(tree, function="last")),
        (GROUP, lambda tree: _call(tree, function="nonsense")),
    ],
    "an aggregate gets arguments that it takes": [(GROUP, lambda tree: _call(tree, arguments=()))],
    "an aggregate gets its arguments in the types it works on": [
        (GROUP, lambda tree: _call(tree, function="stddev", type=t.DOUBLE))
    ],
    "a call has the type of its results": [(GROUP, lambda tree: _call(tree, type=t.INT))],
    "DISTINCT goes with aggregates that take it": [
        (GROUP, lambda tree: _call(tree, function="approx_count_distinct", distinct=True))
    ],
    "columns have different names": [
        (SELECT, lambda tree: changed(tree, bound.Project, items=(A, A), names=("a", "A"))),
        (
            SELECT,
            lambda tree: changed(
                tree, bound.StreamScan, fields=bind("SELECT a, a FROM S").schema[:1] * 2, timestamp=None
            ),
        ),
    ],
    "a timestamp fits its clock": [(SELECT, lambda tree: changed(tree, bound.StreamScan, domain=TimeDomain.TIMESTAMP))],
    "a timestamp is never NULL": [(SELECT, lambda tree: changed(tree, bound.StreamScan, timestamp=0))],
    "a query has one clock": [
        (
            "SELECT S.a FROM S, R",
            lambda tree: changed(tree, bound.Join, right=replace(_relation("R"), domain=TimeDomain.TIMESTAMP)),
        )
    ],
}


def _call(tree: Rel, **fields: Any) -> Rel:
    aggregate = next(node for node in nodes(tree) if isinstance(node, bound.Aggregate))
    return changed(tree, bound.Aggregate, calls=(replace(aggregate.calls[0], **fields),))


def _relation(name: str) -> Any:
    table: Any = tables().table(name)
    return table.scan()


def _stream() -> Rel:
    return bind("SELECT a FROM U")


def _below_window(tree: Rel, make: Callable[[Rel], Rel]) -> Rel:
    scan = next(node for node in nodes(tree) if isinstance(node, bound.StreamScan))
    return changed(tree, bound.Window, input=make(scan))


CASES = [(invariant, query, change) for invariant, each in BROKEN.items() for query, change in each]


@pytest.mark.parametrize(
    ("invariant", "query", "change"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_broken_invariant_is_named(
    invariant: str, query: str, change: Callable[[Rel], Rel], catalog: Catalog
) -> None:
    tree = bind(query, catalog)
    with pytest.raises(InternalError) as caught:
        check(change(tree))
    assert str(caught.value).startswith(invariant)


def test_nodes_of_a_later_phase_bring_rules_of_their_own(catalog: Catalog) -> None:
    class Marked(bound.Distinct):
        """A node that this package does not know."""

    tree = Marked(cast(bound.RelToStream, bind(SELECT, catalog)).input)
    with pytest.raises(InternalError, match="known class"):
        check(tree)
    seen: list[Rel] = []

    def rule(node: Marked, checker: Checker) -> None:
        checker.relations(node.input)
        seen.append(node)

    check(tree, {Marked: rule})
    assert seen == [tree]


def test_every_node_of_the_algebra_has_a_rule() -> None:
    kinds = {kind for kind in vars(bound).values() if isinstance(kind, type) and issubclass(kind, Rel)}
    assert set(NODE_RULES) == kinds - {Rel}


def test_expressions_of_subqueries_are_checked(catalog: Catalog) -> None:
    tree = bind("SELECT a FROM S WHERE EXISTS (SELECT 1 FROM U WHERE U.a = S.a)", catalog)

    def spoil(expression: Expr) -> Expr:
        if isinstance(expression, Exists):
            return replace(expression, query=changed(expression.query, bound.Filter, predicate=ONE))
        return expression

    def everywhere(rel: Rel) -> Rel:
        return with_expressions(with_inputs(rel, everywhere), spoil)

    with pytest.raises(InternalError, match="a condition is BOOLEAN"):
        check(everywhere(tree))
