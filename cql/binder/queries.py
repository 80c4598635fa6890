"""Binds queries: set operations, relation-to-stream operators, top-n, local views, and defaults.

Defaults applied here: a stream without a window gets the unbounded one; a result that only grows and
has no relation-to-stream operator is the stream of its inserts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cql import ast, bound
from cql import types as t
from cql.binder.blocks import BlockBinder
from cql.binder.error_collection import each
from cql.binder.expressions import converted_columns
from cql.binder.inputs import as_relation, bind_named, renamed
from cql.binder.limits import check_size
from cql.binder.ordering import position, sort_key
from cql.binder.scope import Scope, columns_are
from cql.catalog import Catalog
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.settings import Settings
from cql.source import Span
from cql.types import DataType


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A bound query and the streams, relations and views that its text names."""

    tree: bound.Rel
    depends_on: tuple[str, ...]


def bind_query(query: ast.Query, catalog: Catalog, *, is_view: bool = False) -> BoundQuery:
    """Bind a query against a catalog, under the catalog's settings."""
    binder = QueryBinder(catalog, catalog.settings)
    try:
        tree = binder.bind(query, None, numbered=is_view)
        check_size(tree, query.span)
        _check_clocks(binder.clocks)
        tree = _on_the_query_clock(_without_untyped(tree), binder.clocks)
        if not tree.is_stream and tree.grows:
            tree = bound.RelToStream(ast.RelToStreamKind.ISTREAM, tree, span=query.span)
    except RecursionError:
        raise fail(
            Code.TOO_DEEP,
            "this query nests too deeply",
            query.span,
            hint="move inner parts into views: CREATE VIEW name AS query",
        ) from None
    return BoundQuery(tree, tuple(binder.used))


@dataclass(slots=True)
class QueryBinder:
    """Binds one query.

    `used` collects the catalog names it mentions, `clocks` those that change with their clocks, `local`
    holds the WITH definitions in reach.
    """

    catalog: Catalog
    settings: Settings
    used: dict[str, None] = field(default_factory=dict)
    clocks: list[tuple[ast.Name, TimeDomain]] = field(default_factory=list)
    local: dict[str, bound.Rel] = field(default_factory=dict)

    def bind(self, query: ast.Query, outer: Scope | None, *, numbered: bool = False) -> bound.Rel:
        """Return a bound query. `outer` is the scope of the query around a subquery's value; `numbered`
        says that ROW_NUMBER may stand in the select list."""
        match query:
            case ast.Select():
                return BlockBinder(self, outer, numbered).bind(query)
            case ast.TopN():
                return self._top_n(query, outer, numbered)
            case ast.SetOperation():
                return self._set_operation(query, outer)
            case ast.RelToStream():
                relation = as_relation(self.bind(query.query, outer, numbered=numbered))
                return bound.RelToStream(query.kind, relation, self._every_tick(query, relation), span=query.span)
            case ast.NamedInput():
                return bind_named(self, query).rel
            case ast.With():
                with self._definitions(query):
                    return self.bind(query.query, outer, numbered=numbered)
        raise AssertionError(type(query).__name__)

    def subquery(self, query: ast.Query, scope: Scope) -> bound.Rel:
        """Return the relation of a query inside an expression; it may refer to columns of `scope`."""
        return as_relation(self.bind(query, scope))

    def _every_tick(self, query: ast.RelToStream, relation: bound.Rel) -> bool:
        if query.kind is not ast.RelToStreamKind.RSTREAM:
            return False
        if self.settings.rstream_clock == "auto":
            return relation.time is not TimeDomain.TIMESTAMP
        return self.settings.rstream_clock == "tick"

    def _top_n(self, query: ast.TopN, outer: Scope | None, numbered: bool) -> bound.Rel:
        if query.limit is None:
            raise fail(
                Code.BAD_ORDER,
                "a relation has no order, so ORDER BY needs a LIMIT",
                query.keys[0].span,
                hint="ORDER BY .. LIMIT n keeps the first n rows; otherwise leave ORDER BY out",
            )
        if not query.keys:
            raise fail(
                Code.BAD_ORDER,
                "LIMIT needs an ORDER BY that says which rows come first",
                _end(query),
                hint="write ORDER BY .. LIMIT n",
            )
        if query.limit == 0:
            raise fail(Code.BAD_ORDER, "LIMIT 0 leaves nothing", _end(query))
        if isinstance(query.query, ast.Select):
            return BlockBinder(self, outer, numbered).bind(query.query, query.keys, query.limit)
        relation = as_relation(self.bind(query.query, outer))
        keys = each(lambda key: _output_key(key, relation), query.keys)
        return bound.TopN(relation, tuple(keys), query.limit, span=query.span)

    def _set_operation(self, query: ast.SetOperation, outer: Scope | None) -> bound.Rel:
        left, right = each(lambda side: as_relation(self.bind(side, outer)), (query.left, query.right))
        name = query.kind.value
        if len(left.schema) != len(right.schema):
            raise fail(
                Code.COLUMN_COUNT,
                f"{name} needs as many columns on both sides: {len(left.schema)} and {len(right.schema)}",
                query.span,
            )
        common: list[DataType] = []
        for a, b in zip(left.schema, right.schema, strict=True):
            wanted = t.common_type(a.type, b.type)
            if wanted is None:
                raise fail(
                    Code.TYPE_MISMATCH,
                    f"{name} does not go with {a.type} ('{a.name}') and {b.type} ('{b.name}')",
                    query.span,
                    hint="use CAST(x AS TYPE)",
                )
            common.append(wanted)
        return bound.SetOperation(
            query.kind, query.all, converted_columns(left, common), converted_columns(right, common), span=query.span
        )

    @contextmanager
    def _definitions(self, query: ast.With) -> Iterator[None]:
        before = self.local
        defined: set[str] = set()
        try:
            for definition in query.definitions:
                name = definition.name
                if name.key in defined:
                    raise fail(Code.DUPLICATE_NAME, f"WITH defines '{name.text}' twice", name.span)
                defined.add(name.key)
                rel = self.bind(definition.query, None, numbered=True)
                if not rel.is_stream and rel.grows:
                    rel = bound.RelToStream(ast.RelToStreamKind.ISTREAM, rel, span=definition.span)
                self.local = self.local | {name.key: renamed(rel, definition.columns, name)}
            yield
        finally:
            self.local = before


def _end(query: ast.TopN) -> Span:
    """Return the place of the number after LIMIT, which ends the query."""
    return Span(query.span.end - len(str(query.limit)), query.span.end)


def _output_key(key: ast.SortKey, relation: bound.Rel) -> bound.SortKey:
    """Return an ORDER BY item after a set operation: an output column by name or position."""
    names = [column.name.casefold() for column in relation.schema]
    node = key.expression
    if isinstance(node, ast.Column) and node.qualifier is None and node.name.key in names:
        return sort_key(key, names.index(node.name.key))
    at = position(node, len(names))
    if at is None:
        raise fail(
            Code.BAD_ORDER,
            "after a set operation, ORDER BY takes a column of the result",
            node.span,
            hint=columns_are([column.name for column in relation.schema]),
        )
    return sort_key(key, at)


def _on_the_query_clock(tree: bound.Rel, clocks: Sequence[tuple[ast.Name, TimeDomain]]) -> bound.Rel:
    """Return a query in which no Rstream of a static relation speaks a million times a second."""
    if not any(clock is TimeDomain.TIMESTAMP for _, clock in clocks):
        return tree

    def visit(rel: bound.Rel) -> bound.Rel:
        rel = bound.with_inputs(rel, visit)
        if isinstance(rel, bound.RelToStream) and rel.every_tick and rel.input.time is None:
            return replace(rel, every_tick=False)
        return rel

    return visit(tree)


def _without_untyped(tree: bound.Rel) -> bound.Rel:
    """Return a query whose columns all have a type: a bare NULL is a STRING."""
    if isinstance(tree, bound.RelToStream):
        return replace(tree, input=_without_untyped(tree.input))
    return converted_columns(tree, [t.STRING if f.type == t.NULL else f.type for f in tree.schema])


def _check_clocks(clocks: Sequence[tuple[ast.Name, TimeDomain]]) -> None:
    """Raise if a query reads inputs on different clocks."""
    for name, clock in clocks:
        first, first_clock = clocks[0]
        if clock is not first_clock:
            raise fail(
                Code.MIXED_TIME,
                f"'{name.text}' is timed by {clock.value}, '{first.text}' by {first_clock.value}",
                name.span,
                hint="all inputs of a query need the same kind of timestamps",
            )
