"""Makes the syntax nodes: one method for each rule of `grammar/cql.lark`.

A method gets the rule's place and its children, already built; what was left out of an optional
part arrives as None. Nothing here knows what names mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lark import Token

from cql import ast
from cql.errors import Code, fail
from cql.intervals import BadInterval, Interval, Unit, interval_part, parse_interval
from cql.source import Span

Children = list[Any]


@dataclass(frozen=True, slots=True)
class _StreamedSelect(ast.Query):
    """`Select Istream(..) From ..` until it is known whether a top-n clause follows."""

    kind: ast.RelToStreamKind
    query: ast.Select


@dataclass(frozen=True, slots=True)
class _SelectList(ast.Node):
    items: tuple[ast.SelectItem | ast.Star, ...]
    kind: ast.RelToStreamKind | None
    distinct: bool


def _token_span(token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)


def _present(children: Children) -> Children:
    return [child for child in children if child is not None]


def _finished(query: ast.Query) -> ast.Query:
    """Return a query with the R2S operator of its select list put outside."""
    if isinstance(query, _StreamedSelect):
        return ast.RelToStream(query.kind, query.query, span=query.span)
    return query


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


class AstBuilder:
    """Has one method for each rule, of the same name.

    Which keyword was written is told by a token's type, not by its text: ignoring case, `İ` is a letter of
    keywords too, and upper case does not make it an `I`.
    """

    # Statements

    def start(self, span: Span, c: Children) -> ast.Statement:
        statement: ast.Statement = c[0]
        return statement

    def create_stream(self, span: Span, c: Children) -> ast.CreateStream:
        name, columns, timestamp, delay, source = c
        return ast.CreateStream(name, columns or (), timestamp, delay, source, span=span)

    def create_relation(self, span: Span, c: Children) -> ast.CreateRelation:
        name, columns, timestamp, sign, source = c
        return ast.CreateRelation(name, columns or (), timestamp, sign, source, span=span)

    def columns(self, span: Span, c: Children) -> tuple[ast.ColumnDef, ...]:
        return tuple(c)

    def column_def(self, span: Span, c: Children) -> ast.ColumnDef:
        name, type_name, not_null = c
        return ast.ColumnDef(self.name(span, [name]), type_name, not_null is not None, span=span)

    def type(self, span: Span, c: Children) -> ast.TypeName:
        word, *parameters = _present(c)
        return ast.TypeName(_upper(word), tuple(_whole(p) for p in parameters), span=span)

    def timestamp_type(self, span: Span, c: Children) -> ast.TypeName:
        return ast.TypeName("TIMESTAMP", span=span)

    def source(self, span: Span, c: Children) -> ast.SourceSpec:
        name, inferred, options = c
        return ast.SourceSpec(name, options or (), inferred is not None, span=span)

    def sink(self, span: Span, c: Children) -> ast.SinkSpec:
        name, options = c
        return ast.SinkSpec(name, options or (), span=span)

    def options(self, span: Span, c: Children) -> tuple[ast.Option, ...]:
        return tuple(_present(c))

    with_options = options

    def option(self, span: Span, c: Children) -> ast.Option:
        key, value = c
        return ast.Option(key, value, span=span)

    setting = option

    def option_key(self, span: Span, c: Children) -> ast.Name:
        if c[0].type == "STRING":
            return ast.Name(_unquoted(c[0]), span=span)
        return ast.Name(".".join(c), span=span)

    def create_view(self, span: Span, c: Children) -> ast.CreateView:
        name, columns, query = c
        return ast.CreateView(name, columns or (), query, span=span)

    def name_list(self, span: Span, c: Children) -> tuple[ast.Name, ...]:
        return tuple(c)

    def register_table(self, span: Span, c: Children) -> ast.RegisterTable:
        kind, name, columns, source = c
        return ast.RegisterTable(ast.ObjectKind[kind.type], name, columns, source, span=span)

    def register_query(self, span: Span, c: Children) -> ast.RegisterQuery:
        name, query, options, sink = c
        return ast.RegisterQuery(name, query, options or (), sink, span=span)

    def query_statement(self, span: Span, c: Children) -> ast.QueryStatement:
        if isinstance(c[0], ast.NamedInput):
            raise fail(Code.SYNTAX, "a name alone is not a query", span, hint=f"write SELECT * FROM {c[0].name.text}")
        return ast.QueryStatement(c[0], span=span)

    def try_query(self, span: Span, c: Children) -> ast.Try:
        return ast.Try(c[0], span=span)

    def drop(self, span: Span, c: Children) -> ast.Drop:
        return ast.Drop(ast.ObjectKind[c[0].type], c[1], span=span)

    def explain(self, span: Span, c: Children) -> ast.Explain:
        form, target = c
        return ast.Explain(form.type.removeprefix("EXPLAIN_") if form else "TEXT", target, span=span)

    def explain_named(self, span: Span, c: Children) -> ast.Name:
        name: ast.Name = c[0]
        return name

    def explain_all(self, span: Span, c: Children) -> None:
        return None

    def show(self, span: Span, c: Children) -> ast.Show:
        return ast.Show(c[0].text.upper(), span=c[0].span)

    def describe(self, span: Span, c: Children) -> ast.Describe:
        return ast.Describe(c[0], span=span)

    def set_setting(self, span: Span, c: Children) -> ast.SetSetting:
        return ast.SetSetting(c[0], c[1], span=span)

    def start_run(self, span: Span, c: Children) -> ast.Start:
        return ast.Start(span=span)

    def stop_run(self, span: Span, c: Children) -> ast.Stop:
        return ast.Stop(span=span)

    # Queries

    def query(self, span: Span, c: Children) -> ast.Query:
        definitions, body, keys, limit = c
        stream_kind = None
        if isinstance(body, _StreamedSelect):
            stream_kind, body = body.kind, body.query
        if keys is not None or limit is not None:
            body = ast.TopN(body, keys or (), limit, span=span)
        if stream_kind:
            body = ast.RelToStream(stream_kind, body, span=span)
        return ast.With(definitions, body, span=span) if definitions else body

    def with_clause(self, span: Span, c: Children) -> tuple[ast.Cte, ...]:
        return tuple(c)

    def cte(self, span: Span, c: Children) -> ast.Cte:
        name, columns, query = c
        return ast.Cte(name, columns or (), query, span=span)

    def set_operation(self, span: Span, c: Children) -> ast.SetOperation:
        left, kind, quantifier, right = c
        return ast.SetOperation(
            ast.SetKind[kind.type],
            quantifier is not None and quantifier.type == "ALL",
            _finished(left),
            _finished(right),
            span=span,
        )

    def rel_to_stream(self, span: Span, c: Children) -> ast.RelToStream:
        return ast.RelToStream(ast.RelToStreamKind[c[0].type], c[1], span=span)

    def named_operand(self, span: Span, c: Children) -> ast.NamedInput:
        return ast.NamedInput(c[0], c[1], span=span)

    def select(self, span: Span, c: Children) -> ast.Query:
        quantifier, listed, inputs, where, group_by, having = c
        select = ast.Select(
            listed.items,
            inputs,
            where,
            group_by or (),
            having,
            listed.distinct or (quantifier is not None and quantifier.type == "DISTINCT"),
            span=span,
        )
        return _StreamedSelect(listed.kind, select, span=span) if listed.kind else select

    def select_list(self, span: Span, c: Children) -> _SelectList:
        return _SelectList(c[0], None, False)

    def streamed_list(self, span: Span, c: Children) -> _SelectList:
        kind, distinct, items = c
        return _SelectList(items, ast.RelToStreamKind[kind.type], distinct is not None)

    def select_items(self, span: Span, c: Children) -> tuple[ast.SelectItem | ast.Star, ...]:
        return tuple(c)

    def select_expression(self, span: Span, c: Children) -> ast.SelectItem:
        return ast.SelectItem(c[0], c[1], span=span)

    def star(self, span: Span, c: Children) -> ast.Star:
        return ast.Star(c[0] if c else None, span=span)

    def group_by(self, span: Span, c: Children) -> tuple[ast.Expression, ...]:
        return tuple(c)

    partition_by = group_by

    def order_by(self, span: Span, c: Children) -> tuple[ast.SortKey, ...]:
        return tuple(c)

    def sort_key(self, span: Span, c: Children) -> ast.SortKey:
        expression, direction, nulls = c
        return ast.SortKey(
            expression,
            direction is not None and direction.type == "DESC",
            None if nulls is None else nulls.type == "NULLS_FIRST",
            span=span,
        )

    def limit(self, span: Span, c: Children) -> int:
        return _whole(c[0])

    # Inputs

    def inputs(self, span: Span, c: Children) -> tuple[ast.TableRef, ...]:
        return tuple(c)

    def join(self, span: Span, c: Children) -> ast.Join:
        left, kind, right, condition = c
        return ast.Join(kind, left, right, condition, span=span)

    def cross_join(self, span: Span, c: Children) -> ast.Join:
        return ast.Join(ast.JoinKind.CROSS, c[0], c[1], None, span=span)

    def inner_join(self, span: Span, c: Children) -> ast.JoinKind:
        return ast.JoinKind.INNER

    def left_join(self, span: Span, c: Children) -> ast.JoinKind:
        return ast.JoinKind.LEFT

    def right_join(self, span: Span, c: Children) -> ast.JoinKind:
        return ast.JoinKind.RIGHT

    def full_join(self, span: Span, c: Children) -> ast.JoinKind:
        return ast.JoinKind.FULL

    def named_input(self, span: Span, c: Children) -> ast.NamedInput:
        name, (window, alias) = c
        return ast.NamedInput(name, window, alias, span=span)

    def subquery_input(self, span: Span, c: Children) -> ast.SubqueryInput:
        query, (window, alias) = c
        return ast.SubqueryInput(query, window, alias, span=span)

    def sampled_input(self, span: Span, c: Children) -> ast.SampledInput:
        single, percent = c
        if float(percent) > 100:
            raise fail(Code.BAD_LITERAL, f"a sample has up to 100 PERCENT, not {percent}", _token_span(percent))
        return ast.SampledInput(single, self.number(_token_span(percent), [percent]), span=span)

    def tail(self, span: Span, c: Children) -> tuple[ast.Window | None, ast.Name | None]:
        window = next((child for child in c if isinstance(child, ast.Window)), None)
        alias = next((child for child in c if isinstance(child, ast.Name)), None)
        return window, alias

    # Windows

    def range_window(self, span: Span, c: Children) -> ast.RangeWindow:
        return ast.RangeWindow(c[0], c[1], span=span)

    def unbounded_range(self, span: Span, c: Children) -> ast.RangeWindow:
        return ast.RangeWindow(None, span=span)

    def rows_window(self, span: Span, c: Children) -> ast.RowsWindow:
        return ast.RowsWindow(_whole(c[0]), span=span)

    def unbounded_rows(self, span: Span, c: Children) -> ast.RowsWindow:
        return ast.RowsWindow(None, span=span)

    def now_window(self, span: Span, c: Children) -> ast.NowWindow:
        return ast.NowWindow(span=span)

    def partition_window(self, span: Span, c: Children) -> ast.PartitionWindow:
        *columns, count, duration = c
        return ast.PartitionWindow(tuple(columns), _whole(count), duration, span=span)

    def partition_column(self, span: Span, c: Children) -> tuple[ast.Name | None, ast.Name]:
        return c[0], c[1]

    # Lengths of time

    def plain_duration(self, span: Span, c: Children) -> ast.IntervalLiteral:
        amount, unit = c
        if "e" in amount.lower():
            raise fail(Code.BAD_LITERAL, "an interval takes a plain number", _token_span(amount))
        try:
            part = interval_part(str(amount), unit) if unit else (str(amount), Unit.SECOND)
        except BadInterval as error:
            raise fail(Code.BAD_LITERAL, str(error), _token_span(unit)) from None
        return ast.IntervalLiteral(Interval((part,)), span=span)

    interval_number = plain_duration

    def text_duration(self, span: Span, c: Children) -> ast.IntervalLiteral:
        return self._interval_from_text(_unquoted(c[0]), span)

    def interval_text(self, span: Span, c: Children) -> ast.IntervalLiteral:
        text, unit = _unquoted(c[0]), c[1]
        return self._interval_from_text(f"{text} {unit}" if unit else text, span)

    def _interval_from_text(self, text: str, span: Span) -> ast.IntervalLiteral:
        try:
            return ast.IntervalLiteral(parse_interval(text), span=span)
        except BadInterval as error:
            raise fail(Code.BAD_LITERAL, str(error), span) from None

    # Expressions

    def or_(self, span: Span, c: Children) -> ast.Logical:
        return ast.Logical("OR", tuple(c), span=span)

    def and_(self, span: Span, c: Children) -> ast.Logical:
        return ast.Logical("AND", tuple(c), span=span)

    def not_(self, span: Span, c: Children) -> ast.Unary:
        return ast.Unary("NOT", c[0], span=span)

    def comparison(self, span: Span, c: Children) -> ast.Binary:
        left, operator, right = c
        return ast.Binary("<>" if operator == "!=" else str(operator), left, right, span=span)

    def binary(self, span: Span, c: Children) -> ast.Binary:
        left, operator, right = c
        return ast.Binary(str(operator), left, right, span=span)

    def minus(self, span: Span, c: Children) -> ast.Binary:
        return ast.Binary("-", c[0], c[1], span=span)

    def times(self, span: Span, c: Children) -> ast.Binary:
        return ast.Binary("*", c[0], c[1], span=span)

    def negative(self, span: Span, c: Children) -> ast.Unary:
        return ast.Unary("-", c[0], span=span)

    def positive(self, span: Span, c: Children) -> ast.Unary:
        return ast.Unary("+", c[0], span=span)

    def between(self, span: Span, c: Children) -> ast.Between:
        return ast.Between(c[0], c[1], c[2], span=span)

    def not_between(self, span: Span, c: Children) -> ast.Between:
        return replace(self.between(span, c), negated=True)

    def in_(self, span: Span, c: Children) -> ast.InList | ast.InQuery:
        operand, found = c
        if isinstance(found, ast.Query):
            return ast.InQuery(operand, found, span=span)
        return ast.InList(operand, found, span=span)

    def not_in(self, span: Span, c: Children) -> ast.InList | ast.InQuery:
        return replace(self.in_(span, c), negated=True)

    def in_list(self, span: Span, c: Children) -> tuple[ast.Expression, ...] | ast.Query:
        """Return the items; a lone query in a second pair of parentheses is the query itself."""
        return c[0].query if len(c) == 1 and isinstance(c[0], ast.ScalarQuery) else tuple(c)

    def in_query(self, span: Span, c: Children) -> ast.Query:
        query: ast.Query = c[0]
        return query

    def like(self, span: Span, c: Children) -> ast.Like:
        return ast.Like(c[0], c[1], c[2], span=span)

    def not_like(self, span: Span, c: Children) -> ast.Like:
        return replace(self.like(span, c), negated=True)

    def is_null(self, span: Span, c: Children) -> ast.IsNull:
        return ast.IsNull(c[0], span=span)

    def is_not_null(self, span: Span, c: Children) -> ast.IsNull:
        return ast.IsNull(c[0], True, span=span)

    def is_distinct(self, span: Span, c: Children) -> ast.Binary:
        return ast.Binary("IS DISTINCT FROM", c[0], c[1], span=span)

    def is_not_distinct(self, span: Span, c: Children) -> ast.Binary:
        return ast.Binary("IS NOT DISTINCT FROM", c[0], c[1], span=span)

    def row(self, span: Span, c: Children) -> ast.Row:
        return ast.Row(tuple(c), span=span)

    def scalar_query(self, span: Span, c: Children) -> ast.ScalarQuery:
        return ast.ScalarQuery(c[0], span=span)

    def exists(self, span: Span, c: Children) -> ast.Exists:
        return ast.Exists(c[0], span=span)

    def column(self, span: Span, c: Children) -> ast.Column:
        return ast.Column(c[1], c[0], span=span)

    def soft_column(self, span: Span, c: Children) -> ast.Column:
        return ast.Column(ast.Name(str(c[0]), span=span), span=span)

    def call(self, span: Span, c: Children) -> ast.Call | ast.WindowCall:
        function, distinct, arguments, condition, over = c
        call = ast.Call(function, arguments or (), distinct is not None, condition, span=span)
        return ast.WindowCall(call, over[0], over[1], span=span) if over else call

    def arguments(self, span: Span, c: Children) -> tuple[ast.Expression, ...]:
        return tuple(c)

    def star_argument(self, span: Span, c: Children) -> tuple[ast.Star]:
        return (ast.Star(span=span),)

    def over(self, span: Span, c: Children) -> tuple[tuple[ast.Expression, ...], tuple[ast.SortKey, ...]]:
        return c[0] or (), c[1] or ()

    def case(self, span: Span, c: Children) -> ast.Case:
        operand, *branches, otherwise = c
        return ast.Case(operand, tuple(branches), otherwise, span=span)

    def branch(self, span: Span, c: Children) -> tuple[ast.Expression, ast.Expression]:
        return c[0], c[1]

    def cast(self, span: Span, c: Children) -> ast.Cast:
        return ast.Cast(c[0], c[1], span=span)

    def extract(self, span: Span, c: Children) -> ast.Extract:
        return ast.Extract(c[0], c[1], span=span)

    def number(self, span: Span, c: Children) -> ast.Number:
        return ast.Number(str(c[0]), span=span)

    def string(self, span: Span, c: Children) -> ast.String:
        return ast.String(_unquoted(c[0]), span=span)

    def boolean(self, span: Span, c: Children) -> ast.Boolean:
        return ast.Boolean(c[0].type == "TRUE", span=span)

    def null(self, span: Span, c: Children) -> ast.Null:
        return ast.Null(span=span)

    def timestamp_literal(self, span: Span, c: Children) -> ast.TimestampLiteral:
        return ast.TimestampLiteral(_unquoted(c[0]), span=span)

    def name(self, span: Span, c: Children) -> ast.Name:
        token = c[0]
        text = _unquoted(token) if token.type == "QUOTED" else str(token)
        return ast.Name(text, span=_token_span(token))


def _upper(word: str) -> str:
    """Return a word in capitals; a word that is not ASCII could turn into other letters, and stays."""
    return str(word).upper() if word.isascii() else str(word)


def _whole(token: Token) -> int:
    """Return the value of a number that has to be a whole one."""
    if not token.isascii() or not token.isdigit():
        raise fail(Code.BAD_LITERAL, f"a whole number is needed here, not {token}", _token_span(token))
    if len(token) > 18:
        raise fail(Code.BAD_LITERAL, f"{token} is too large a count", _token_span(token))
    return int(token)
