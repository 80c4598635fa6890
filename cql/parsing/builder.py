"""Turns Lark's parse tree into syntax nodes: one method for each rule of `grammar/cql.lark`.

A method gets the rule's place and its children, already built; what was left out of an optional
part arrives as None. Nothing here knows what names mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Tree
from lark.tree import Meta

from cql import ast
from cql.errors import Code, fail
from cql.intervals import BadInterval, Interval, Unit, interval_part, parse_interval
from cql.source import NO_SPAN, Span

Children = list[Any]

MAX_LEVELS = 250
"""How many levels a parse tree may have, so that what recurses through syntax trees has stack enough."""


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


def _span(meta: Meta) -> Span:
    return NO_SPAN if meta.empty else Span(meta.start_pos, meta.end_pos)


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


class Builder:
    """Has one method for each rule, of the same name.

    Which keyword was written is told by a token's type, not by its text: ignoring case, `İ` is a letter of
    keywords too, and upper case does not make it an `I`.
    """

    def build(self, tree: Tree[Token], level: int = 0) -> Any:
        """Return the node for a parse tree, children first."""
        if level > MAX_LEVELS:
            raise RecursionError(f"a syntax tree has at most {MAX_LEVELS} levels")
        children = [self.build(child, level + 1) if type(child) is Tree else child for child in tree.children]
        return getattr(self, tree.data)(tree.meta, children)

    # Statements

    def start(self, meta: Meta, c: Children) -> ast.Statement:
        statement: ast.Statement = c[0]
        return statement

    def create_stream(self, meta: Meta, c: Children) -> ast.CreateStream:
        name, columns, timestamp, delay, source = c
        return ast.CreateStream(name, columns or (), timestamp, delay, source, span=_span(meta))

    def create_relation(self, meta: Meta, c: Children) -> ast.CreateRelation:
        name, columns, timestamp, sign, source = c
        return ast.CreateRelation(name, columns or (), timestamp, sign, source, span=_span(meta))

    def columns(self, meta: Meta, c: Children) -> tuple[ast.ColumnDef, ...]:
        return tuple(c)

    def column_def(self, meta: Meta, c: Children) -> ast.ColumnDef:
        name, type_name, not_null = c
        return ast.ColumnDef(self.name(meta, [name]), type_name, not_null is not None, span=_span(meta))

    def type(self, meta: Meta, c: Children) -> ast.TypeName:
        word, *parameters = _present(c)
        return ast.TypeName(_upper(word), tuple(_whole(p) for p in parameters), span=_span(meta))

    def timestamp_type(self, meta: Meta, c: Children) -> ast.TypeName:
        return ast.TypeName("TIMESTAMP", span=_span(meta))

    def source(self, meta: Meta, c: Children) -> ast.SourceSpec:
        name, inferred, options = c
        return ast.SourceSpec(name, options or (), inferred is not None, span=_span(meta))

    def sink(self, meta: Meta, c: Children) -> ast.SinkSpec:
        name, options = c
        return ast.SinkSpec(name, options or (), span=_span(meta))

    def options(self, meta: Meta, c: Children) -> tuple[ast.Option, ...]:
        return tuple(_present(c))

    with_options = options

    def option(self, meta: Meta, c: Children) -> ast.Option:
        key, value = c
        return ast.Option(key, value, span=_span(meta))

    setting = option

    def option_key(self, meta: Meta, c: Children) -> ast.Name:
        if c[0].type == "STRING":
            return ast.Name(_unquoted(c[0]), span=_span(meta))
        return ast.Name(".".join(c), span=_span(meta))

    def create_view(self, meta: Meta, c: Children) -> ast.CreateView:
        name, columns, query = c
        return ast.CreateView(name, columns or (), query, span=_span(meta))

    def name_list(self, meta: Meta, c: Children) -> tuple[ast.Name, ...]:
        return tuple(c)

    def register_table(self, meta: Meta, c: Children) -> ast.RegisterTable:
        kind, name, columns, source = c
        return ast.RegisterTable(ast.ObjectKind[kind.type], name, columns, source, span=_span(meta))

    def register_query(self, meta: Meta, c: Children) -> ast.RegisterQuery:
        name, query, options, sink = c
        return ast.RegisterQuery(name, query, options or (), sink, span=_span(meta))

    def query_statement(self, meta: Meta, c: Children) -> ast.QueryStatement:
        return ast.QueryStatement(c[0], span=_span(meta))

    def drop(self, meta: Meta, c: Children) -> ast.Drop:
        return ast.Drop(ast.ObjectKind[c[0].type], c[1], span=_span(meta))

    def explain(self, meta: Meta, c: Children) -> ast.Explain:
        form, target = c
        return ast.Explain(form.type.removeprefix("EXPLAIN_") if form else "TEXT", target, span=_span(meta))

    def explain_named(self, meta: Meta, c: Children) -> ast.Name:
        name: ast.Name = c[0]
        return name

    def explain_all(self, meta: Meta, c: Children) -> None:
        return None

    def show(self, meta: Meta, c: Children) -> ast.Show:
        return ast.Show(c[0].text.upper(), span=c[0].span)

    def describe(self, meta: Meta, c: Children) -> ast.Describe:
        return ast.Describe(c[0], span=_span(meta))

    def set_setting(self, meta: Meta, c: Children) -> ast.SetSetting:
        return ast.SetSetting(c[0], c[1], span=_span(meta))

    def start_run(self, meta: Meta, c: Children) -> ast.Start:
        return ast.Start(span=_span(meta))

    def stop_run(self, meta: Meta, c: Children) -> ast.Stop:
        return ast.Stop(span=_span(meta))

    # Queries

    def query(self, meta: Meta, c: Children) -> ast.Query:
        definitions, body, keys, limit = c
        stream_kind = None
        if isinstance(body, _StreamedSelect):
            stream_kind, body = body.kind, body.query
        if keys is not None or limit is not None:
            body = ast.TopN(body, keys or (), limit, span=_span(meta))
        if stream_kind:
            body = ast.RelToStream(stream_kind, body, span=_span(meta))
        if isinstance(body, ast.NamedInput):
            raise fail(
                Code.SYNTAX,
                "a name alone is not a query",
                body.span,
                hint=f"write SELECT * FROM {body.name.text}",
            )
        return ast.With(definitions, body, span=_span(meta)) if definitions else body

    def with_clause(self, meta: Meta, c: Children) -> tuple[ast.Cte, ...]:
        return tuple(c)

    def cte(self, meta: Meta, c: Children) -> ast.Cte:
        name, columns, query = c
        return ast.Cte(name, columns or (), query, span=_span(meta))

    def set_operation(self, meta: Meta, c: Children) -> ast.SetOperation:
        left, kind, quantifier, right = c
        return ast.SetOperation(
            ast.SetKind[kind.type],
            quantifier is not None and quantifier.type == "ALL",
            _finished(left),
            _finished(right),
            span=_span(meta),
        )

    def rel_to_stream(self, meta: Meta, c: Children) -> ast.RelToStream:
        return ast.RelToStream(ast.RelToStreamKind[c[0].type], c[1], span=_span(meta))

    def named_operand(self, meta: Meta, c: Children) -> ast.NamedInput:
        return ast.NamedInput(c[0], c[1], span=_span(meta))

    def select(self, meta: Meta, c: Children) -> ast.Query:
        quantifier, listed, inputs, where, group_by, having = c
        select = ast.Select(
            listed.items,
            inputs,
            where,
            group_by or (),
            having,
            listed.distinct or (quantifier is not None and quantifier.type == "DISTINCT"),
            span=_span(meta),
        )
        return _StreamedSelect(listed.kind, select, span=_span(meta)) if listed.kind else select

    def select_list(self, meta: Meta, c: Children) -> _SelectList:
        return _SelectList(c[0], None, False)

    def streamed_list(self, meta: Meta, c: Children) -> _SelectList:
        kind, distinct, items = c
        return _SelectList(items, ast.RelToStreamKind[kind.type], distinct is not None)

    def select_items(self, meta: Meta, c: Children) -> tuple[ast.SelectItem | ast.Star, ...]:
        return tuple(c)

    def select_expression(self, meta: Meta, c: Children) -> ast.SelectItem:
        return ast.SelectItem(c[0], c[1], span=_span(meta))

    def star(self, meta: Meta, c: Children) -> ast.Star:
        return ast.Star(c[0] if c else None, span=_span(meta))

    def group_by(self, meta: Meta, c: Children) -> tuple[ast.Expression, ...]:
        return tuple(c)

    partition_by = group_by

    def order_by(self, meta: Meta, c: Children) -> tuple[ast.SortKey, ...]:
        return tuple(c)

    def sort_key(self, meta: Meta, c: Children) -> ast.SortKey:
        expression, direction, nulls = c
        return ast.SortKey(
            expression,
            direction is not None and direction.type == "DESC",
            None if nulls is None else nulls.type == "NULLS_FIRST",
            span=_span(meta),
        )

    def limit(self, meta: Meta, c: Children) -> int:
        return _whole(c[0])

    # Inputs

    def inputs(self, meta: Meta, c: Children) -> tuple[ast.TableRef, ...]:
        return tuple(c)

    def join(self, meta: Meta, c: Children) -> ast.Join:
        left, kind, right, condition = c
        return ast.Join(kind, left, right, condition, span=_span(meta))

    def cross_join(self, meta: Meta, c: Children) -> ast.Join:
        return ast.Join(ast.JoinKind.CROSS, c[0], c[1], None, span=_span(meta))

    def inner_join(self, meta: Meta, c: Children) -> ast.JoinKind:
        return ast.JoinKind.INNER

    def left_join(self, meta: Meta, c: Children) -> ast.JoinKind:
        return ast.JoinKind.LEFT

    def right_join(self, meta: Meta, c: Children) -> ast.JoinKind:
        return ast.JoinKind.RIGHT

    def full_join(self, meta: Meta, c: Children) -> ast.JoinKind:
        return ast.JoinKind.FULL

    def named_input(self, meta: Meta, c: Children) -> ast.NamedInput:
        name, (window, alias) = c
        return ast.NamedInput(name, window, alias, span=_span(meta))

    def subquery_input(self, meta: Meta, c: Children) -> ast.SubqueryInput:
        query, (window, alias) = c
        return ast.SubqueryInput(query, window, alias, span=_span(meta))

    def tail(self, meta: Meta, c: Children) -> tuple[ast.Window | None, ast.Name | None]:
        window = next((child for child in c if isinstance(child, ast.Window)), None)
        alias = next((child for child in c if isinstance(child, ast.Name)), None)
        return window, alias

    # Windows

    def range_window(self, meta: Meta, c: Children) -> ast.RangeWindow:
        return ast.RangeWindow(c[0], c[1], span=_span(meta))

    def unbounded_range(self, meta: Meta, c: Children) -> ast.RangeWindow:
        return ast.RangeWindow(None, span=_span(meta))

    def rows_window(self, meta: Meta, c: Children) -> ast.RowsWindow:
        return ast.RowsWindow(_whole(c[0]), span=_span(meta))

    def unbounded_rows(self, meta: Meta, c: Children) -> ast.RowsWindow:
        return ast.RowsWindow(None, span=_span(meta))

    def now_window(self, meta: Meta, c: Children) -> ast.NowWindow:
        return ast.NowWindow(span=_span(meta))

    def partition_window(self, meta: Meta, c: Children) -> ast.PartitionWindow:
        *columns, count, duration = c
        return ast.PartitionWindow(tuple(columns), _whole(count), duration, span=_span(meta))

    def partition_column(self, meta: Meta, c: Children) -> tuple[ast.Name | None, ast.Name]:
        return c[0], c[1]

    # Lengths of time

    def plain_duration(self, meta: Meta, c: Children) -> ast.IntervalLiteral:
        amount, unit = c
        if "e" in amount.lower():
            raise fail(Code.BAD_LITERAL, "an interval takes a plain number", _token_span(amount))
        try:
            part = interval_part(str(amount), unit) if unit else (str(amount), Unit.SECOND)
        except BadInterval as error:
            raise fail(Code.BAD_LITERAL, str(error), _token_span(unit)) from None
        return ast.IntervalLiteral(Interval((part,)), span=_span(meta))

    interval_number = plain_duration

    def text_duration(self, meta: Meta, c: Children) -> ast.IntervalLiteral:
        return self._interval_from_text(_unquoted(c[0]), _span(meta))

    def interval_text(self, meta: Meta, c: Children) -> ast.IntervalLiteral:
        text, unit = _unquoted(c[0]), c[1]
        return self._interval_from_text(f"{text} {unit}" if unit else text, _span(meta))

    def _interval_from_text(self, text: str, span: Span) -> ast.IntervalLiteral:
        try:
            return ast.IntervalLiteral(parse_interval(text), span=span)
        except BadInterval as error:
            raise fail(Code.BAD_LITERAL, str(error), span) from None

    # Expressions

    def or_(self, meta: Meta, c: Children) -> ast.Logical:
        return ast.Logical("OR", tuple(c), span=_span(meta))

    def and_(self, meta: Meta, c: Children) -> ast.Logical:
        return ast.Logical("AND", tuple(c), span=_span(meta))

    def not_(self, meta: Meta, c: Children) -> ast.Unary:
        return ast.Unary("NOT", c[0], span=_span(meta))

    def comparison(self, meta: Meta, c: Children) -> ast.Binary:
        left, operator, right = c
        return ast.Binary("<>" if operator == "!=" else str(operator), left, right, span=_span(meta))

    def binary(self, meta: Meta, c: Children) -> ast.Binary:
        left, operator, right = c
        return ast.Binary(str(operator), left, right, span=_span(meta))

    def minus(self, meta: Meta, c: Children) -> ast.Binary:
        return ast.Binary("-", c[0], c[1], span=_span(meta))

    def times(self, meta: Meta, c: Children) -> ast.Binary:
        return ast.Binary("*", c[0], c[1], span=_span(meta))

    def negative(self, meta: Meta, c: Children) -> ast.Unary:
        return ast.Unary("-", c[0], span=_span(meta))

    def positive(self, meta: Meta, c: Children) -> ast.Unary:
        return ast.Unary("+", c[0], span=_span(meta))

    def between(self, meta: Meta, c: Children) -> ast.Between:
        return ast.Between(c[0], c[1], c[2], span=_span(meta))

    def not_between(self, meta: Meta, c: Children) -> ast.Between:
        return replace(self.between(meta, c), negated=True)

    def in_(self, meta: Meta, c: Children) -> ast.InList | ast.InQuery:
        operand, found = c
        if isinstance(found, ast.Query):
            return ast.InQuery(operand, found, span=_span(meta))
        return ast.InList(operand, found, span=_span(meta))

    def not_in(self, meta: Meta, c: Children) -> ast.InList | ast.InQuery:
        return replace(self.in_(meta, c), negated=True)

    def in_list(self, meta: Meta, c: Children) -> tuple[ast.Expression, ...] | ast.Query:
        """Return the items; a lone query in a second pair of parentheses is the query itself."""
        return c[0].query if len(c) == 1 and isinstance(c[0], ast.ScalarQuery) else tuple(c)

    def in_query(self, meta: Meta, c: Children) -> ast.Query:
        query: ast.Query = c[0]
        return query

    def like(self, meta: Meta, c: Children) -> ast.Like:
        return ast.Like(c[0], c[1], c[2], span=_span(meta))

    def not_like(self, meta: Meta, c: Children) -> ast.Like:
        return replace(self.like(meta, c), negated=True)

    def is_null(self, meta: Meta, c: Children) -> ast.IsNull:
        return ast.IsNull(c[0], span=_span(meta))

    def is_not_null(self, meta: Meta, c: Children) -> ast.IsNull:
        return ast.IsNull(c[0], True, span=_span(meta))

    def is_distinct(self, meta: Meta, c: Children) -> ast.Binary:
        return ast.Binary("IS DISTINCT FROM", c[0], c[1], span=_span(meta))

    def is_not_distinct(self, meta: Meta, c: Children) -> ast.Binary:
        return ast.Binary("IS NOT DISTINCT FROM", c[0], c[1], span=_span(meta))

    def row(self, meta: Meta, c: Children) -> ast.Row:
        return ast.Row(tuple(c), span=_span(meta))

    def scalar_query(self, meta: Meta, c: Children) -> ast.ScalarQuery:
        return ast.ScalarQuery(c[0], span=_span(meta))

    def exists(self, meta: Meta, c: Children) -> ast.Exists:
        return ast.Exists(c[0], span=_span(meta))

    def column(self, meta: Meta, c: Children) -> ast.Column:
        return ast.Column(c[1], c[0], span=_span(meta))

    def soft_column(self, meta: Meta, c: Children) -> ast.Column:
        return ast.Column(ast.Name(str(c[0]), span=_span(meta)), span=_span(meta))

    def call(self, meta: Meta, c: Children) -> ast.Call | ast.WindowCall:
        function, distinct, arguments, condition, over = c
        call = ast.Call(function, arguments or (), distinct is not None, condition, span=_span(meta))
        return ast.WindowCall(call, over[0], over[1], span=_span(meta)) if over else call

    def arguments(self, meta: Meta, c: Children) -> tuple[ast.Expression, ...]:
        return tuple(c)

    def star_argument(self, meta: Meta, c: Children) -> tuple[ast.Star]:
        return (ast.Star(span=_span(meta)),)

    def over(self, meta: Meta, c: Children) -> tuple[tuple[ast.Expression, ...], tuple[ast.SortKey, ...]]:
        return c[0] or (), c[1] or ()

    def case(self, meta: Meta, c: Children) -> ast.Case:
        operand, *branches, otherwise = c
        return ast.Case(operand, tuple(branches), otherwise, span=_span(meta))

    def branch(self, meta: Meta, c: Children) -> tuple[ast.Expression, ast.Expression]:
        return c[0], c[1]

    def cast(self, meta: Meta, c: Children) -> ast.Cast:
        return ast.Cast(c[0], c[1], span=_span(meta))

    def extract(self, meta: Meta, c: Children) -> ast.Extract:
        return ast.Extract(c[0], c[1], span=_span(meta))

    def number(self, meta: Meta, c: Children) -> ast.Number:
        return ast.Number(str(c[0]), span=_span(meta))

    def string(self, meta: Meta, c: Children) -> ast.String:
        return ast.String(_unquoted(c[0]), span=_span(meta))

    def boolean(self, meta: Meta, c: Children) -> ast.Boolean:
        return ast.Boolean(c[0].type == "TRUE", span=_span(meta))

    def null(self, meta: Meta, c: Children) -> ast.Null:
        return ast.Null(span=_span(meta))

    def timestamp_literal(self, meta: Meta, c: Children) -> ast.TimestampLiteral:
        return ast.TimestampLiteral(_unquoted(c[0]), span=_span(meta))

    def name(self, meta: Meta, c: Children) -> ast.Name:
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
