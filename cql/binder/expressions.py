"""Binds expressions: resolves columns, picks functions, types everything, converts constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cql import ast, bound
from cql import types as t
from cql.binder.constants import check_constants
from cql.binder.error_collection import each
from cql.binder.foreign_functions import ELSEWHERE
from cql.binder.limits import check_copies
from cql.binder.literals import convert, number_literal, timestamp_literal
from cql.binder.scope import Scope
from cql.binder.types import resolve_type
from cql.errors import Code, CqlError, fail, nearest, one_of
from cql.functions.aggregates import AGGREGATES, AggregateFunction
from cql.functions.scalars import (
    CALLABLE,
    EXTRACT_FIELDS,
    SCALARS,
    BadArguments,
    ScalarFunction,
    unify,
)
from cql.functions.user import UserAggregate, UserFunction
from cql.intervals import BadInterval
from cql.source import Span
from cql.types import DataType, Kind

if TYPE_CHECKING:
    from cql.catalog import Catalog

_OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "mod",
    "||": "concat",
    "=": "eq",
    "<>": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}


@dataclass(frozen=True, slots=True)
class AggregateRef(bound.Expr):
    """Stands for an aggregate until the block's grouping is known."""

    index: int


@dataclass(slots=True)
class Aggregates:
    """The aggregates of a block, each once."""

    calls: list[bound.AggregateCall] = field(default_factory=list)

    def reference(self, call: bound.AggregateCall) -> AggregateRef:
        """Return a reference to a call, adding it if it is new."""
        if call not in self.calls:
            self.calls.append(call)
        return AggregateRef(self.calls.index(call), type=call.type, nullable=call.nullable, span=call.span)


@dataclass(frozen=True, slots=True)
class ExpressionBinder:
    """Binds expressions at one place of one block.

    `aggregates` collects them where they are allowed and is None where they are not; `place` names the
    clause for messages; `bind_subquery` binds a query that may refer to this block's columns; `aliases` are
    names of the select list that may be used here, `later` those that may not.
    """

    catalog: Catalog
    scope: Scope
    place: str
    bind_subquery: Callable[[ast.Query, Scope], bound.Rel]
    aggregates: Aggregates | None = None
    aliases: dict[str, ast.Expression | None] = field(default_factory=dict)
    later: frozenset[str] = frozenset()

    def bind(self, node: ast.Expression) -> bound.Expr:
        """Return the bound expression; raises with everything that is wrong in it."""
        handler = _HANDLERS.get(type(node))
        assert handler is not None, type(node).__name__
        return handler(self, node)

    def condition(self, node: ast.Expression) -> bound.Expr:
        """Return a bound expression that has to be a condition."""
        expression = self.bind(node)
        if expression.type.kind is Kind.NULL:
            return convert(expression, t.BOOLEAN)
        if expression.type.kind is not Kind.BOOLEAN:
            message = f"{self.place} needs a condition, not {expression.type}"
            raise fail(
                Code.TYPE_MISMATCH,
                message,
                node.span,
                hint="a condition is a comparison or something else that is true or false",
            )
        return expression

    def bind_all(self, nodes: Sequence[ast.Expression]) -> list[bound.Expr]:
        """Bind several expressions and report what is wrong in any of them."""
        return each(self.bind, nodes)

    # Leaves

    def _number(self, node: ast.Number) -> bound.Expr:
        return number_literal(node)

    def _string(self, node: ast.String) -> bound.Expr:
        return bound.Literal(node.value, type=t.STRING, nullable=False, span=node.span)

    def _boolean(self, node: ast.Boolean) -> bound.Expr:
        return bound.Literal(node.value, type=t.BOOLEAN, nullable=False, span=node.span)

    def _null(self, node: ast.Null) -> bound.Expr:
        return bound.Literal(None, type=t.NULL, nullable=True, span=node.span)

    def _timestamp(self, node: ast.TimestampLiteral) -> bound.Expr:
        return timestamp_literal(node.text, node.span)

    def _interval(self, node: ast.IntervalLiteral) -> bound.Expr:
        try:
            value = node.interval.microseconds()
        except BadInterval as error:
            raise fail(Code.BAD_LITERAL, str(error), node.span) from None
        return bound.Literal(value, type=t.INTERVAL, nullable=False, span=node.span)

    def _column(self, node: ast.Column) -> bound.Expr:
        try:
            return self.scope.resolve(node)
        except CqlError as error:
            unknown = error.diagnostics[0].code is Code.UNKNOWN_COLUMN
            if node.qualifier is None and unknown:
                if node.name.key in self.aliases:
                    return self.alias(node)
                if self.scope.row(node.name):
                    column = next(self.scope.columns_of(self.scope.input(node.name)))
                    raise fail(
                        Code.TYPE_MISMATCH,
                        f"'{node.name.text}' is an input, not a column",
                        node.span,
                        hint=f"name one of its columns, such as {node.name.text}.{column.name}; "
                        "a whole row stands only before IN (SELECT ..)",
                    ) from None
                if node.name.key in self.later:
                    raise fail(
                        Code.UNKNOWN_COLUMN,
                        f"'{node.name.text}' is a name of the select list, which {self.place} cannot use",
                        node.span,
                        hint="repeat the expression, or name it in a subquery or view",
                    ) from None
            raise

    def alias(self, node: ast.Column) -> bound.Expr:
        """Return what a name of the select list stands for."""
        expression = self.aliases[node.name.key]
        if expression is None:
            raise fail(
                Code.AMBIGUOUS_COLUMN,
                f"the select list has several '{node.name.text}'",
                node.span,
                hint="give them different names with AS",
            )
        return replace(self, aliases={}).bind(expression)

    # Operators

    def _unary(self, node: ast.Unary) -> bound.Expr:
        if node.operator == "NOT":
            return self._call("not", [self.condition(node.operand)], node.span)
        if isinstance(node.operand, ast.Number):
            literal = number_literal(node.operand, node.operator == "-")
            return replace(literal, span=node.span)
        operand = self.bind(node.operand)
        if node.operator == "+" and (operand.type.is_numeric or operand.type.kind is Kind.INTERVAL):
            return operand
        return self._call("negate", [operand], node.span, f"unary {node.operator}")

    def _binary(self, node: ast.Binary) -> bound.Expr:
        if isinstance(node.left, ast.Row):
            return self._row(node.left)
        left, right = self.bind_all([node.left, node.right])
        if node.operator.endswith("DISTINCT FROM"):
            distinct = self._call("is_distinct", self._times([left, right]), node.span, node.operator)
            return self._call("not", [distinct], node.span) if "NOT" in node.operator else distinct
        name = _OPERATORS[node.operator]
        operands = self._times([left, right]) if name in ("eq", "ne", "lt", "le", "gt", "ge") else [left, right]
        return self._call(name, operands, node.span, f"'{node.operator}'")

    def _logical(self, node: ast.Logical) -> bound.Expr:
        operands = each(self.condition, node.operands)
        flat = tuple(
            inner
            for part in operands
            for inner in (
                part.arguments if isinstance(part, bound.Call) and part.function == node.operator.lower() else (part,)
            )
        )
        return self._call(node.operator.lower(), list(flat), node.span)

    def _between(self, node: ast.Between) -> bound.Expr:
        operand, low, high = self._times(self.bind_all([node.operand, node.low, node.high]))
        check_copies(operand, 2, node.operand.span)
        above = self._call("ge", [operand, low], node.span, "BETWEEN")
        below = self._call("le", [operand, high], node.span, "BETWEEN")
        return self._negated(self._call("and", [above, below], node.span), node.negated)

    def _in_list(self, node: ast.InList) -> bound.Expr:
        if isinstance(node.operand, ast.Row):
            raise fail(
                Code.BAD_SUBQUERY,
                "a row stands before IN (SELECT ..) only",
                node.operand.span,
                hint="compare the columns one by one, joined by AND and OR",
            )
        operands = self._times(self.bind_all([node.operand, *node.items]))
        return self._negated(self._call("in", operands, node.span, "IN"), node.negated)

    def _like(self, node: ast.Like) -> bound.Expr:
        parts = [node.operand, node.pattern] + ([node.escape] if node.escape else [])
        escape = node.escape
        if escape and not (isinstance(escape, ast.String) and len(escape.value) == 1):
            raise fail(Code.BAD_ARGUMENTS, "ESCAPE takes a single character", escape.span)
        return self._negated(self._call("like", self.bind_all(parts), node.span, "LIKE"), node.negated)

    def _is_null(self, node: ast.IsNull) -> bound.Expr:
        return self._negated(self._call("is_null", [self.bind(node.operand)], node.span), node.negated)

    def _case(self, node: ast.Case) -> bound.Expr:
        conditions: list[bound.Expr]
        if node.operand is None:
            conditions = each(self.condition, [when for when, _ in node.branches])
        else:
            operand = self.bind(node.operand)
            check_copies(operand, len(node.branches), node.operand.span)
            values = self.bind_all([when for when, _ in node.branches])
            conditions = [self._call("eq", self._times([operand, v]), v.span, "CASE") for v in values]
        results = self.bind_all([then for _, then in node.branches])
        otherwise = self.bind(node.otherwise) if node.otherwise else self._null(ast.Null())
        results = self._times([*results, otherwise])
        try:
            common = unify([result.type for result in results], "the results of CASE")
        except BadArguments as error:
            raise fail(Code.TYPE_MISMATCH, str(error), node.span, hint="use CAST(x AS TYPE)") from None
        converted = [convert(result, common) for result in results]
        return bound.Case(
            tuple(zip(conditions, converted[:-1], strict=True)),
            converted[-1],
            type=common,
            nullable=any(result.nullable for result in converted),
            span=node.span,
        )

    def _cast(self, node: ast.Cast) -> bound.Expr:
        operand, target = self.bind(node.operand), resolve_type(node.target)
        if operand.type == target:
            return operand
        if operand.type.kind is Kind.NULL:
            return convert(operand, target)
        if not t.castable(operand.type, target):
            raise fail(Code.TYPE_MISMATCH, f"{operand.type} cannot be converted to {target}", node.span)
        if t.common_type(operand.type, target) == target:
            return replace(convert(operand, target), span=node.span)
        nullable = operand.nullable or target.kind is not Kind.STRING
        return bound.Cast(operand, type=target, nullable=nullable, span=node.span)

    def _extract(self, node: ast.Extract) -> bound.Expr:
        part = node.field.text.lower()
        if part == "epoch":
            return self._call("epoch", [self.bind(node.operand)], node.span, "EXTRACT(EPOCH ..)")
        if part not in EXTRACT_FIELDS:
            raise fail(
                Code.BAD_ARGUMENTS,
                f"EXTRACT knows no field '{node.field.text}'",
                node.field.span,
                hint=f"it takes {one_of([*EXTRACT_FIELDS, 'epoch'])}",
                candidates=nearest(part, EXTRACT_FIELDS),
            )
        operand = self.bind(node.operand)
        name = bound.Literal(part, type=t.STRING, nullable=False, span=node.field.span)
        return self._call("extract", [name, operand], node.span, "EXTRACT")

    def _row(self, node: ast.Row) -> bound.Expr:
        raise fail(
            Code.BAD_SUBQUERY,
            "a row stands before IN (SELECT ..) only",
            node.span,
            hint="compare the columns one by one, joined by AND",
        )

    # Subqueries

    def _in_query(self, node: ast.InQuery) -> bound.Expr:
        operands = self._row_operands(node.operand)
        query = self.bind_subquery(node.query, self.scope)
        if len(operands) != len(query.schema):
            raise fail(
                Code.COLUMN_COUNT,
                f"{_counted(len(operands), 'value')} before IN, and the query "
                f"has {_counted(len(query.schema), 'column')}",
                node.span,
                hint="the query selects as many columns as stand before IN",
            )
        common: list[DataType] = []
        for at, column in enumerate(query.schema):
            if operands[at].type.kind is Kind.STRING and column.type.kind is Kind.TIMESTAMP:
                operands[at] = self._times([operands[at], _typed(column)])[0]
            wanted = t.common_type(operands[at].type, column.type)
            if wanted is None:
                raise fail(
                    Code.TYPE_MISMATCH,
                    f"{operands[at].type} is compared with {column.type} ('{column.name}')",
                    node.span,
                    hint="use CAST(x AS TYPE)",
                )
            common.append(wanted)
        expression = bound.InSubquery(
            tuple(convert(operand, wanted) for operand, wanted in zip(operands, common, strict=True)),
            converted_columns(query, common),
            type=t.BOOLEAN,
            nullable=any(o.nullable for o in operands) or any(c.nullable for c in query.schema),
            span=node.span,
        )
        return self._negated(expression, node.negated)

    def _row_operands(self, node: ast.Expression) -> list[bound.Expr]:
        if isinstance(node, ast.Row):
            return self.bind_all(node.items)
        if isinstance(node, ast.Column) and node.qualifier is None:
            row = self.scope.row(node.name)
            if row:
                try:
                    return [self.scope.resolve(node)]
                except CqlError:
                    return row
        return [self.bind(node)]

    def _exists(self, node: ast.Exists) -> bound.Expr:
        query = self.bind_subquery(node.query, self.scope)
        return bound.Exists(query, type=t.BOOLEAN, nullable=False, span=node.span)

    def _scalar_query(self, node: ast.ScalarQuery) -> bound.Expr:
        query = self.bind_subquery(node.query, self.scope)
        if len(query.schema) != 1:
            raise fail(Code.BAD_SUBQUERY, f"a query used as a value has one column, not {len(query.schema)}", node.span)
        if not _at_most_one_row(query):
            raise fail(
                Code.BAD_SUBQUERY,
                "a query used as a value must have at most one row",
                node.span,
                hint="use an aggregate such as MAX(..), or ORDER BY .. LIMIT 1",
            )
        return bound.ScalarSubquery(query, type=query.schema[0].type, nullable=True, span=node.span)

    # Functions

    def _function(self, node: ast.Call) -> bound.Expr:
        key = node.function.key
        if key in AGGREGATES:
            return self._aggregate(node, AGGREGATES[key])
        if key in self.catalog.aggregates:
            return self._aggregate(node, self.catalog.aggregates[key])
        function = CALLABLE.get(key) or self.catalog.functions.get(key)
        if function is None:
            raise self._unknown_function(node.function)
        if node.distinct or node.filter or any(isinstance(a, ast.Star) for a in node.arguments):
            raise fail(
                Code.BAD_ARGUMENTS, f"'{node.function.text}' is not an aggregate: no *, DISTINCT or FILTER", node.span
            )
        arguments = self.bind_all([a for a in node.arguments if isinstance(a, ast.Expression)])
        if isinstance(function, UserFunction):
            converted = self._user_arguments(function, arguments, node)
            return bound.UserCall(function.name, converted, type=function.return_type, nullable=True, span=node.span)
        check_constants(function, arguments)
        if function.name in ("least", "greatest", "coalesce", "nullif"):
            arguments = self._times(arguments)
        call = self._call(function.name, arguments, node.span, node.function.text)
        return self._own_type(call, arguments) if function.name == "nullif" else call

    def _unknown_function(self, name: ast.Name) -> CqlError:
        known = [*CALLABLE, *AGGREGATES, *self.catalog.functions, *self.catalog.aggregates]
        hint = ELSEWHERE.get(name.key)
        candidates = () if hint else nearest(name.key, [*known, "istream", "dstream", "rstream"])
        hint = hint or "SHOW FUNCTIONS lists them all"
        return fail(Code.UNKNOWN_FUNCTION, f"there is no function '{name.text}'", name.span, hint, candidates)

    def _own_type(self, nullif: bound.Expr, arguments: list[bound.Expr]) -> bound.Expr:
        """Return NULLIF(a, b) with the type of `a`, as a CASE where comparing them needs a wider one."""
        value = arguments[0]
        if nullif.type == value.type:
            return nullif
        check_copies(value, 2, value.span)
        equal = self._call("eq", arguments, nullif.span)
        nothing = bound.Literal(None, type=value.type, nullable=True, span=nullif.span)
        return bound.Case(((equal, nothing),), value, type=value.type, nullable=True, span=nullif.span)

    def _aggregate(self, node: ast.Call, function: AggregateFunction | UserAggregate) -> bound.Expr:
        name = node.function.text
        if self.aggregates is None:
            raise _aggregate_not_allowed(name, self.place, node.span)
        inner = replace(self, aggregates=None, place=f"the argument of {name}", aliases={})
        condition = None
        if node.filter:
            condition = replace(inner, place="FILTER").condition(node.filter)
        if any(isinstance(argument, ast.Star) for argument in node.arguments):
            if node.function.key != "count":
                raise fail(Code.BAD_ARGUMENTS, f"only COUNT takes *, not {name}", node.span)
            if node.distinct:
                raise fail(
                    Code.BAD_ARGUMENTS,
                    "COUNT(DISTINCT *) counts nothing in particular",
                    node.span,
                    hint="name a column, or count the rows of (SELECT DISTINCT * FROM ..)",
                )
            call = bound.AggregateCall("count", (), t.BIGINT, False, filter=condition, span=node.span)
            return self.aggregates.reference(call)
        arguments = inner.bind_all([a for a in node.arguments if isinstance(a, ast.Expression)])
        if isinstance(function, UserAggregate):
            call = bound.AggregateCall(
                function.name,
                self._user_arguments(function, arguments, node),
                function.return_type,
                True,
                node.distinct,
                condition,
                True,
                span=node.span,
            )
            return self.aggregates.reference(call)
        return self.aggregates.reference(self._builtin_aggregate(node, function, arguments, condition))

    def _builtin_aggregate(
        self, node: ast.Call, function: AggregateFunction, arguments: list[bound.Expr], condition: bound.Expr | None
    ) -> bound.AggregateCall:
        name = node.function.text
        if node.distinct and not function.takes_distinct:
            raise fail(Code.BAD_ARGUMENTS, f"{name} does not take DISTINCT", node.span)
        if not arguments:
            raise fail(Code.BAD_ARGUMENTS, f"{name} needs an argument", node.span, hint=f"usage: {function.usage}")
        try:
            signature = function.rule([argument.type for argument in arguments])
        except BadArguments as error:
            raise fail(
                Code.BAD_ARGUMENTS, _about(name, str(error), arguments), node.span, hint=f"usage: {function.usage}"
            ) from None
        converted = tuple(convert(a, wanted) for a, wanted in zip(arguments, signature.arguments, strict=True))
        bound_name = function.name
        if bound_name in ("first", "last"):
            converted = (*converted, self._timestamp_column(node))
            bound_name = "arg_min" if bound_name == "first" else "arg_max"
        return bound.AggregateCall(
            bound_name, converted, signature.result, bool(signature.nullable), node.distinct, condition, span=node.span
        )

    def _timestamp_column(self, node: ast.Call) -> bound.Expr:
        name = node.function.text
        found = self.scope.timestamps()
        if len(found) == 1:
            owner = next(o for o in self.scope.inputs if o.timestamp is not None)
            return next(column for column in self.scope.columns_of(owner) if column.index == found[0])
        reason = "several streams" if found else "no stream with a named timestamp column"
        instead = "ARG_MIN" if node.function.key == "first" else "ARG_MAX"
        raise fail(
            Code.BAD_ARGUMENTS,
            f"{name} goes by a stream's timestamp, and FROM has {reason}",
            node.span,
            hint=f"say what to order by: {instead}(x, by)",
        )

    def _user_arguments(
        self, function: UserFunction | UserAggregate, arguments: list[bound.Expr], node: ast.Call
    ) -> tuple[bound.Expr, ...]:
        wanted = function.argument_types
        usage = f"{function.name}({', '.join(str(w) for w in wanted)})"
        if len(arguments) != len(wanted):
            raise fail(
                Code.BAD_ARGUMENTS,
                f"'{function.name}' takes {len(wanted)} arguments, not {len(arguments)}",
                node.span,
                hint=f"usage: {usage}",
            )
        for argument, target in zip(arguments, wanted, strict=True):
            if t.common_type(argument.type, target) != target:
                raise fail(
                    Code.BAD_ARGUMENTS,
                    f"'{function.name}' takes {target} here, not {argument.type}",
                    argument.span,
                    hint=f"usage: {usage}",
                )
        return tuple(convert(a, target) for a, target in zip(arguments, wanted, strict=True))

    def _window_call(self, node: ast.WindowCall) -> bound.Expr:
        if node.call.function.key != "row_number":
            raise fail(
                Code.BAD_ROW_NUMBER,
                f"{node.call.function.text} cannot be used with OVER",
                node.span,
                hint="only ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) can; for aggregates over "
                "a window, put the window after the stream's name: FROM s [Range 10 Seconds]",
            )
        raise fail(
            Code.BAD_ROW_NUMBER,
            "ROW_NUMBER can only be a column of a subquery or view",
            node.span,
            hint="SELECT .. FROM (SELECT .., ROW_NUMBER() OVER (..) AS n FROM ..) WHERE n <= 3",
        )

    # Helpers

    def _negated(self, expression: bound.Expr, negated: bool) -> bound.Expr:
        return self._call("not", [expression], expression.span) if negated else expression

    def _call(self, name: str, arguments: list[bound.Expr], span: Span, written: str | None = None) -> bound.Expr:
        function = SCALARS[name]
        types = [argument.type for argument in arguments]
        if name in ("add", "subtract", "multiply", "divide", "mod") and Kind.DECIMAL in [x.kind for x in types]:
            types = [_exact_type(argument) for argument in arguments]
        try:
            signature = function.rule(types)
        except BadArguments as error:
            raise self._clash(function, arguments, str(error), span, written) from None
        converted = tuple(convert(a, wanted) for a, wanted in zip(arguments, signature.arguments, strict=True))
        constants = [argument.value if isinstance(argument, bound.Literal) else None for argument in converted]
        return bound.Call(
            name,
            converted,
            span=span,
            type=function.result_type(signature, constants),
            nullable=function.can_be_null(signature, [argument.nullable for argument in converted]),
        )

    def _clash(
        self, function: ScalarFunction, arguments: list[bound.Expr], reason: str, span: Span, written: str | None
    ) -> CqlError:
        types = [argument.type for argument in arguments]
        if function.callable and function.name in CALLABLE and written and written[0] != "'":
            message = _about(written, reason, arguments)
            return fail(Code.BAD_ARGUMENTS, message, span, hint=f"usage: {function.usage}")
        names = " and ".join(str(each) for each in dict.fromkeys(types))
        hint = _quoted_number(arguments) or _way_out(function.name, {each.kind for each in types})
        return fail(Code.TYPE_MISMATCH, f"{written or function.usage} does not go with {names}", span, hint)

    def _times(self, expressions: list[bound.Expr]) -> list[bound.Expr]:
        """Return expressions with constant strings read as timestamps if they meet timestamps."""
        if not any(expression.type.kind is Kind.TIMESTAMP for expression in expressions):
            return expressions
        return [
            timestamp_literal(str(e.value), e.span)
            if isinstance(e, bound.Literal) and e.type.kind is Kind.STRING
            else e
            for e in expressions
        ]


def _quoted_number(arguments: Sequence[bound.Expr]) -> str | None:
    """Return a hint if a number in quotes meets numbers."""
    text = next((a for a in arguments if isinstance(a, bound.Literal) and a.type.kind is Kind.STRING), None)
    if text is None or not any(argument.type.is_numeric for argument in arguments):
        return None
    try:
        float(str(text.value))
    except ValueError:
        return None
    return f"a number is written without quotes: {text.value}"


_HANDLERS: dict[type[ast.Expression], Callable[[ExpressionBinder, Any], bound.Expr]] = {
    ast.Number: ExpressionBinder._number,
    ast.String: ExpressionBinder._string,
    ast.Boolean: ExpressionBinder._boolean,
    ast.Null: ExpressionBinder._null,
    ast.TimestampLiteral: ExpressionBinder._timestamp,
    ast.IntervalLiteral: ExpressionBinder._interval,
    ast.Column: ExpressionBinder._column,
    ast.Unary: ExpressionBinder._unary,
    ast.Binary: ExpressionBinder._binary,
    ast.Logical: ExpressionBinder._logical,
    ast.Between: ExpressionBinder._between,
    ast.InList: ExpressionBinder._in_list,
    ast.InQuery: ExpressionBinder._in_query,
    ast.Exists: ExpressionBinder._exists,
    ast.ScalarQuery: ExpressionBinder._scalar_query,
    ast.Row: ExpressionBinder._row,
    ast.Like: ExpressionBinder._like,
    ast.IsNull: ExpressionBinder._is_null,
    ast.Case: ExpressionBinder._case,
    ast.Cast: ExpressionBinder._cast,
    ast.Extract: ExpressionBinder._extract,
    ast.Call: ExpressionBinder._function,
    ast.WindowCall: ExpressionBinder._window_call,
}


def converted_columns(rel: bound.Rel, wanted: Sequence[DataType]) -> bound.Rel:
    """Return a relation with its columns converted to some types, names kept."""
    if all(column.type == target for column, target in zip(rel.schema, wanted, strict=True)):
        return rel
    items = tuple(convert(_typed(column, at), wanted[at]) for at, column in enumerate(rel.schema))
    return bound.Project(rel, items, tuple(column.name for column in rel.schema), span=rel.span)


def _typed(column: bound.Field, index: int = 0) -> bound.ColumnRef:
    return bound.ColumnRef(index, 0, column.name, type=column.type, nullable=column.nullable)


def _exact_type(expression: bound.Expr) -> DataType:
    """Return an integer constant's own number of digits as its decimal type, as Spark does."""
    if isinstance(expression, bound.Literal) and expression.type.is_integer:
        return t.decimal(max(1, len(str(abs(int(expression.value or 0))))), 0)
    return expression.type


def _at_most_one_row(query: bound.Rel) -> bool:
    match query:
        case bound.Aggregate():
            return not query.keys
        case bound.TopN():
            return query.limit == 1 or _at_most_one_row(query.input)
        case bound.Project() | bound.Filter() | bound.Distinct():
            return _at_most_one_row(query.input)
    return False


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _about(name: str, reason: str, arguments: Sequence[bound.Expr]) -> str:
    """Return what is wrong with the arguments of a function: `abs takes a number, not STRING`."""
    if len(arguments) == 1 and re.fullmatch(r"it takes an? \w+", reason):
        reason += f", not {arguments[0].type}"
    return f"{name} {reason.removeprefix('it ')}" if reason.startswith("it ") else f"{name}: {reason}"


def _way_out(function: str, kinds: set[Kind]) -> str:
    """Return advice for operands that do not go together."""
    match function:
        case "add" if Kind.STRING in kinds:
            return "strings are joined by ||; use CAST(x AS TYPE) for other types"
        case "concat" if Kind.STRING not in kinds:
            return "|| joins strings; conditions are joined by OR"
        case "concat" | "like":
            return "make a string of it: CAST(x AS STRING)"
        case "add" | "subtract" if Kind.TIMESTAMP in kinds:
            return "what is added to a timestamp is an interval: INTERVAL '10' SECOND"
        case _ if Kind.TIMESTAMP in kinds:
            return "write a timestamp as '2026-01-31 12:00:00', or compare its seconds: epoch(x)"
    return "use CAST(x AS TYPE)"


def _aggregate_not_allowed(name: str, place: str, span: Span) -> CqlError:
    hint = "compute it in a subquery or view first"
    if place == "WHERE":
        hint = "conditions on aggregates go into HAVING"
    elif place.startswith("GROUP BY"):
        hint = "group by other columns; the aggregate is computed for each group"
    return fail(Code.AGGREGATE_NOT_ALLOWED, f"the aggregate {name} cannot stand in {place}", span, hint)
