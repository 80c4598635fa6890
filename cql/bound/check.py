"""The invariants of bound trees: what every later phase may rely on.

`check` visits each node and expression of a tree and raises an `InternalError` that names the invariant
which does not hold. Tests run it on what the binder makes, the planner on what each rewrite rule leaves
behind. Types and NULLs are compared with the registry of functions (`cql.functions`): a claim that an
expression is never NULL has to follow from its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from cql import types as t
from cql.bound.expressions import (
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Exists,
    Expr,
    InSubquery,
    Literal,
    ScalarSubquery,
    UserCall,
    children,
    has_subquery,
)
from cql.bound.relations import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Project,
    Rel,
    RelationScan,
    RelToStream,
    RelToStreamKind,
    RowNumber,
    Sample,
    Schema,
    SetOperation,
    SortKey,
    StreamScan,
    TopN,
    Window,
    direct_inputs,
    scans,
)
from cql.bound.windows import PartitionRowsSpec, RangeSpec, RowsSpec, UnboundedSpec, WindowSpec
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import SCALARS, BadArguments
from cql.intervals import TimeDomain
from cql.types import DataType, Kind

NodeRule = Callable[[Any, "Checker"], None]
"""Checks a node, its inputs being checked already."""


class InternalError(AssertionError):
    """An invariant that does not hold: a mistake in this program, never in a query."""


def check(rel: Rel, rules: Mapping[type[Rel], NodeRule] | None = None) -> None:
    """Raise an InternalError if a tree breaks an invariant; `rules` adds nodes of a later phase."""
    require(len({scan.domain for scan in scans(rel) if scan.domain}) <= 1, "a query has one clock", rel)
    require_distinct([column.name for column in rel.schema], rel)
    Checker({**NODE_RULES, **(rules or {})}).rel(rel)


def require(holds: bool, invariant: str, culprit: object) -> None:
    """Raise an InternalError with the invariant and what breaks it, unless it holds."""
    if not holds:
        shown = str(culprit)
        raise InternalError(f"{invariant}: {shown if len(shown) < 500 else shown[:500] + ' ..'}")


def require_distinct(names: Sequence[str], culprit: object) -> None:
    """Raise an InternalError if two names are the same but for case."""
    require(len({name.casefold() for name in names}) == len(names), "columns have different names", culprit)


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks nodes and expressions. `outer` are the rows around the query at hand, the nearest first."""

    rules: Mapping[type[Rel], NodeRule]
    outer: tuple[Schema, ...] = ()

    def rel(self, rel: Rel) -> None:
        """Check a node and everything below it."""
        require(type(rel) in self.rules, "a node is of a known class", type(rel).__name__)
        for below in direct_inputs(rel):
            self.rel(below)
        self.rules[type(rel)](rel, self)

    def relations(self, *inputs: Rel) -> None:
        """Check that the inputs of an operator on relations are relations."""
        for rel in inputs:
            require(not rel.is_stream, "an operator on relations takes relations", rel)

    def condition(self, expression: Expr, row: Schema) -> None:
        """Check an expression that has to be true or false of a row, or NULL."""
        require(expression.type == t.BOOLEAN, "a condition is BOOLEAN", expression)
        self.expression(expression, row)

    def columns(self, positions: Iterable[int], row: Schema, culprit: object) -> None:
        """Check positions in a row."""
        require(all(0 <= at < len(row) for at in positions), "a column's position lies in its row", culprit)

    def order(self, keys: Sequence[SortKey], row: Schema, culprit: object) -> None:
        """Check the keys that rows are ordered by."""
        require(len(keys) > 0, "an order has a key", culprit)
        self.columns((key.column for key in keys), row, culprit)

    def expression(self, expression: Expr, row: Schema) -> None:
        """Check an expression over a row, with everything in it."""
        rule = _EXPRESSION_RULES.get(type(expression))
        require(rule is not None, "an expression is of a known class", type(expression).__name__)
        for part in children(expression):
            self.expression(part, row)
        if isinstance(expression, InSubquery | Exists | ScalarSubquery):
            require(not expression.query.is_stream, "a subquery is a relation", expression)
            replace(self, outer=(row, *self.outer)).rel(expression.query)
        if isinstance(expression, ColumnRef):
            _column(expression, (row, *self.outer))
        if rule is not None:
            rule(expression)


# Expressions


def _column(ref: ColumnRef, rows: tuple[Schema, ...]) -> None:
    require(0 <= ref.depth < len(rows), "a column belongs to a row in reach", ref)
    row = rows[ref.depth]
    require(0 <= ref.index < len(row), "a column's position lies in its row", ref)
    column = row[ref.index]
    require(column.type == ref.type, f"a column has the type of its row ({column.type})", ref)
    _require_nullable(ref, column.nullable)


def _literal(literal: Literal) -> None:
    _require_nullable(literal, literal.value is None)
    require(literal.value is None or _holds(literal.type, literal.value), "a constant fits its type", literal)


def _holds(data_type: DataType, value: object) -> bool:
    """Tell whether a value that is not NULL is one of a type."""
    match data_type.kind:
        case Kind.NULL:
            return False
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.STRING:
            return isinstance(value, str)
        case Kind.DOUBLE:
            return isinstance(value, float)
        case Kind.DECIMAL:
            if not isinstance(value, Decimal) or not value.is_finite():
                return False
            _, digits, exponent = value.as_tuple()
            whole = len(digits) + int(exponent) if value else 0
            return -int(exponent) <= data_type.scale and whole <= data_type.precision - data_type.scale
    bits = {Kind.BYTE: 8, Kind.INT: 32}.get(data_type.kind, 64)
    return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _call(call: Call) -> None:
    require(call.function in SCALARS, "a call is of a function that exists", call)
    function, types = SCALARS[call.function], tuple(argument.type for argument in call.arguments)
    constants = [argument.value if isinstance(argument, Literal) else None for argument in call.arguments]
    try:
        signature = function.rule(types)
        result = function.result_type(signature, constants)
    except (BadArguments, LookupError, AssertionError) as error:
        raise InternalError(f"a function gets arguments that it takes: {call}: {error}") from None
    require(signature.arguments == types, "a function gets its arguments in the types it works on", call)
    require(result == call.type, f"a call has the type of its function's results ({result})", call)
    _require_nullable(call, function.can_be_null(signature, [argument.nullable for argument in call.arguments]))


def _user_call(call: UserCall) -> None:
    _require_nullable(call, True)


def _cast(cast: Cast) -> None:
    source, target = cast.operand.type, cast.type
    require(t.castable(source, target), "a cast is between types that can be converted", cast)
    exact = source.kind is not Kind.NULL and t.common_type(source, target) == target
    _require_nullable(cast, cast.operand.nullable or not (exact or target.kind is Kind.STRING))


def _case(case: Case) -> None:
    results = [*(then for _, then in case.branches), case.otherwise]
    require(len(case.branches) > 0, "a CASE has a branch", case)
    require(all(when.type == t.BOOLEAN for when, _ in case.branches), "a condition is BOOLEAN", case)
    require(all(result.type == case.type for result in results), "the results of a CASE have its type", case)
    _require_nullable(case, any(result.nullable for result in results))


def _in_subquery(expression: InSubquery) -> None:
    columns, operands = expression.query.schema, expression.operands
    require(expression.type == t.BOOLEAN, "IN is a condition", expression)
    require(
        [operand.type for operand in operands] == [column.type for column in columns],
        "IN compares values with columns of the same types",
        expression,
    )
    can_be_null = any(operand.nullable for operand in operands) or any(column.nullable for column in columns)
    _require_nullable(expression, can_be_null)


def _exists(expression: Exists) -> None:
    require(expression.type == t.BOOLEAN, "EXISTS is a condition", expression)


def _scalar_subquery(expression: ScalarSubquery) -> None:
    types = [column.type for column in expression.query.schema]
    require(types == [expression.type], "a query used as a value has one column, of its type", expression)
    _require_nullable(expression, True)


def _require_nullable(claimed: Expr | AggregateCall, can_be_null: bool) -> None:
    require(claimed.nullable or not can_be_null, "what can be NULL is said to be", claimed)


_EXPRESSION_RULES: dict[type[Expr], Callable[[Any], None]] = {
    ColumnRef: lambda ref: None,
    Literal: _literal,
    Call: _call,
    UserCall: _user_call,
    Cast: _cast,
    Case: _case,
    InSubquery: _in_subquery,
    Exists: _exists,
    ScalarSubquery: _scalar_subquery,
}


# Streams and relations


def _stream_scan(scan: StreamScan, checker: Checker) -> None:
    require_distinct([column.name for column in scan.fields], scan)
    if scan.timestamp is None:
        return
    checker.columns([scan.timestamp], scan.fields, scan)
    column = scan.fields[scan.timestamp]
    require(
        (column.type == t.TIMESTAMP) == (scan.domain is TimeDomain.TIMESTAMP),
        "a timestamp fits its clock",
        scan,
    )
    require(not column.nullable, "a timestamp is never NULL", scan)


def _relation_scan(scan: RelationScan, checker: Checker) -> None:
    require_distinct([column.name for column in scan.fields], scan)


def _window(window: Window, checker: Checker) -> None:
    require(window.input.is_stream, "a window goes on a stream", window)
    require(_makes_sense(window.spec), "a window holds something and moves on", window.spec)
    if isinstance(window.spec, PartitionRowsSpec):
        checker.columns(window.spec.columns, window.schema, window)


def _makes_sense(spec: WindowSpec) -> bool:
    match spec:
        case UnboundedSpec():
            return True
        case RangeSpec():
            return spec.ticks >= 1 and (spec.slide is None or 1 < spec.slide <= spec.ticks)
        case RowsSpec():
            return spec.rows >= 1
        case PartitionRowsSpec():
            return len(spec.columns) > 0 and spec.rows >= 1 and (spec.ticks is None or spec.ticks >= 1)


def _filter(rel: Filter, checker: Checker) -> None:
    _stateless(rel, rel.input, (rel.predicate,))
    checker.condition(rel.predicate, rel.input.schema)


def _project(rel: Project, checker: Checker) -> None:
    require(0 < len(rel.items) == len(rel.names), "a projection has columns, and a name for each", rel)
    _stateless(rel, rel.input, rel.items)
    for item in rel.items:
        checker.expression(item, rel.input.schema)


def _stateless(rel: Rel, below: Rel, expressions: Sequence[Expr]) -> None:
    plain = not below.is_stream or not any(has_subquery(expression) for expression in expressions)
    require(plain, "expressions over a stream's elements have no subquery", rel)


def _join(join: Join, checker: Checker) -> None:
    checker.relations(join.left, join.right)
    if join.condition is not None:
        checker.condition(join.condition, join.left.schema + join.right.schema)


def _aggregate(rel: Aggregate, checker: Checker) -> None:
    checker.relations(rel.input)
    require(len(rel.names) == len(rel.keys) + len(rel.calls), "an aggregate has a name for each column", rel)
    for key in rel.keys:
        checker.expression(key, rel.input.schema)
    for call in rel.calls:
        for argument in call.arguments:
            checker.expression(argument, rel.input.schema)
        if call.filter is not None:
            checker.condition(call.filter, rel.input.schema)
        _aggregate_call(call)


def _aggregate_call(call: AggregateCall) -> None:
    if call.user_defined:
        _require_nullable(call, True)
        return
    known = call.function in AGGREGATES and call.function not in ("first", "last")
    require(known, "a call is of an aggregate that exists", call)
    function, types = AGGREGATES[call.function], tuple(argument.type for argument in call.arguments)
    try:
        signature = function.rule(types)
    except BadArguments as error:
        raise InternalError(f"an aggregate gets arguments that it takes: {call}: {error}") from None
    require(signature.arguments == types, "an aggregate gets its arguments in the types it works on", call)
    require(signature.result == call.type, f"a call has the type of its results ({signature.result})", call)
    require(function.takes_distinct or not call.distinct, "DISTINCT goes with aggregates that take it", call)
    _require_nullable(call, signature.nullable is not False)


def _distinct(rel: Distinct, checker: Checker) -> None:
    checker.relations(rel.input)


def _sample(rel: Sample, checker: Checker) -> None:
    checker.relations(rel.input)
    require(0 <= rel.percent <= 100, "a sample has a share of all rows", rel)


def _set_operation(rel: SetOperation, checker: Checker) -> None:
    checker.relations(rel.left, rel.right)
    left, right = ([column.type for column in side.schema] for side in (rel.left, rel.right))
    require(left == right, "both sides of a set operation have the same types", rel)


def _top_n(rel: TopN, checker: Checker) -> None:
    checker.relations(rel.input)
    require(rel.limit >= 1, "a top-n keeps a row", rel)
    checker.order(rel.keys, rel.input.schema, rel)


def _row_number(rel: RowNumber, checker: Checker) -> None:
    checker.relations(rel.input)
    checker.columns(rel.partition, rel.input.schema, rel)
    checker.order(rel.keys, rel.input.schema, rel)


def _rel_to_stream(rel: RelToStream, checker: Checker) -> None:
    checker.relations(rel.input)
    require(rel.kind is RelToStreamKind.RSTREAM or not rel.every_tick, "only Rstream speaks at every tick", rel)


NODE_RULES: dict[type[Rel], NodeRule] = {
    StreamScan: _stream_scan,
    RelationScan: _relation_scan,
    Window: _window,
    Filter: _filter,
    Project: _project,
    Join: _join,
    Aggregate: _aggregate,
    Distinct: _distinct,
    Sample: _sample,
    SetOperation: _set_operation,
    TopN: _top_n,
    RowNumber: _row_number,
    RelToStream: _rel_to_stream,
}
"""The nodes of `cql.bound`; a phase with more nodes passes rules for them to `check`."""
