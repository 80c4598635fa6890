"""Binds one SELECT block: inputs, WHERE, GROUP BY and aggregates, HAVING, select list, DISTINCT, top-n.

Expressions of a grouped block are bound over the rows of FROM first, with placeholders for aggregates,
and then expressed over the groups: a part that equals a key becomes that key, a placeholder its
aggregate, and a column that is left over is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cql import ast, bound
from cql.binder.error_collection import each, gather
from cql.binder.expressions import AggregateRef, Aggregates, ExpressionBinder
from cql.binder.inputs import bind_inputs
from cql.binder.ordering import position, sort_key
from cql.binder.scope import Scope
from cql.bound.relations import transform_expression
from cql.errors import Code, CqlError, fail
from cql.functions.aggregates import AGGREGATES
from cql.printer import to_text
from cql.source import Span

if TYPE_CHECKING:
    from cql.binder.queries import QueryBinder


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the select list; a ROW_NUMBER has no expression but its own partition and order."""

    name: str
    expression: bound.Expr | None
    numbering: ast.WindowCall | None = None


@dataclass(slots=True)
class BlockBinder:
    """Binds one block. `outer` is the scope around a subquery's value, `numbered` allows ROW_NUMBER."""

    binder: QueryBinder
    outer: Scope | None
    numbered: bool = False
    aggregates: Aggregates = field(default_factory=Aggregates)
    scope: Scope = field(default_factory=Scope)
    keys: tuple[bound.Expr, ...] = ()
    grouped: bool = False
    stars: frozenset[Span] = frozenset()

    def bind(self, select: ast.Select, order: Sequence[ast.SortKey] = (), limit: int | None = None) -> bound.Rel:
        """Return the bound block, with a top-n on top if there is one."""
        source = bind_inputs(self.binder, select.inputs, self.outer)
        self.scope = Scope(list(source.inputs), self.outer)
        self.stars = frozenset(item.span for item in select.items if isinstance(item, ast.Star))
        rel = source.rel
        where, keys, items, having, sort_nodes = self._expressions(select, order)
        if where is not None:
            rel = bound.Filter(rel, where, span=where.span)
        self.keys = tuple(keys)
        self.grouped = bool(select.group_by) or bool(self.aggregates.calls) or having is not None
        if self.grouped:
            rel = self._aggregate(rel, select)
            having, items, sort_nodes = self._over_groups(having, items, sort_nodes)
            if having is not None:
                rel = bound.Filter(rel, having, span=having.span)
        return self._finish(rel, select, items, sort_nodes, limit)

    def _expressions(
        self, select: ast.Select, order: Sequence[ast.SortKey]
    ) -> tuple[
        bound.Expr | None, list[bound.Expr], list[Item], bound.Expr | None, list[tuple[ast.SortKey, bound.Expr]]
    ]:
        """Bind everything over the rows of FROM and report what is wrong anywhere."""
        aliases = _aliases(select)
        plain = ExpressionBinder(
            self.binder.catalog, self.scope, "WHERE", self.binder.subquery, later=frozenset(aliases)
        )
        collecting = replace(plain, place="SELECT", aggregates=self.aggregates)
        where: list[bound.Expr] = []
        keys: list[bound.Expr] = []
        items: list[Item] = []
        having: list[bound.Expr] = []
        sort: list[tuple[ast.SortKey, bound.Expr]] = []

        def bind_where() -> None:
            if select.where is not None:
                where.append(plain.condition(select.where))

        def bind_keys() -> None:
            grouping = replace(plain, place="GROUP BY", aliases=aliases)
            keys.extend(each(lambda key: self._key(grouping, key, select), select.group_by))

        def bind_items() -> None:
            parts = each(lambda item: self._items(collecting, item), select.items)
            items.extend(item for part in parts for item in part)

        def bind_having() -> None:
            if select.having is not None:
                having.append(replace(collecting, place="HAVING", aliases=aliases).condition(select.having))

        def bind_order() -> None:
            ordering = replace(collecting, place="ORDER BY", aliases=aliases)
            sort.extend(each(lambda key: (key, self._sort_node(ordering, key, select)), order))

        gather([bind_where, bind_keys, bind_items, bind_having, bind_order])
        return where[0] if where else None, keys, items, having[0] if having else None, sort

    def _key(self, grouping: ExpressionBinder, node: ast.Expression, select: ast.Select) -> bound.Expr:
        if not isinstance(node, ast.Number):
            return grouping.bind(node)
        return self._at_position(replace(grouping, place=f"GROUP BY {node.text}"), node, select)

    def _sort_node(self, ordering: ExpressionBinder, key: ast.SortKey, select: ast.Select) -> bound.Expr:
        node = key.expression
        if isinstance(node, ast.Column) and node.qualifier is None and node.name.key in ordering.aliases:
            return ordering.alias(node)
        return self._at_position(ordering, node, select)

    def _at_position(self, binder: ExpressionBinder, node: ast.Expression, select: ast.Select) -> bound.Expr:
        """Return the column of the select list that a number stands for, * expanded; or else the expression."""
        listed: list[ast.Expression | bound.ColumnRef] = []
        for item in select.items:
            listed += self._star(item) if isinstance(item, ast.Star) else [item.expression]
        at = position(node, len(listed))
        found = node if at is None else listed[at]
        return found if isinstance(found, bound.Expr) else binder.bind(found)

    def _star(self, star: ast.Star) -> list[bound.ColumnRef]:
        owners = [self.scope.input(star.qualifier)] if star.qualifier else self.scope.inputs
        columns = (column for owner in owners for column in self.scope.columns_of(owner))
        return [replace(column, span=star.span) for column in columns]

    def _items(self, collecting: ExpressionBinder, item: ast.SelectItem | ast.Star) -> list[Item]:
        if isinstance(item, ast.Star):
            return [Item(column.name, column) for column in self._star(item)]
        node = item.expression
        if isinstance(node, ast.WindowCall) and node.call.function.key == "row_number" and self.numbered:
            return [Item(item.alias.text if item.alias else "row_number", None, self._checked(node))]
        return [Item(_name_of(item), collecting.bind(node))]

    def _checked(self, node: ast.WindowCall) -> ast.WindowCall:
        call = node.call
        if call.arguments or call.distinct or call.filter:
            raise fail(Code.BAD_ROW_NUMBER, "ROW_NUMBER() takes nothing in its parentheses", node.span)
        if not node.order:
            raise fail(
                Code.BAD_ROW_NUMBER,
                "ROW_NUMBER() needs ORDER BY inside OVER (..)",
                node.span,
                hint="say which row comes first: OVER (PARTITION BY .. ORDER BY ..)",
            )
        return node

    # Groups

    def _aggregate(self, rel: bound.Rel, select: ast.Select) -> bound.Rel:
        empty = bound.EmptyRow.ALWAYS if self.outer else bound.EmptyRow.ONCE_SEEN
        if self.binder.settings.empty_aggregate == "stream":
            empty = bound.EmptyRow.NEVER
        names = [f"key{at}" for at in range(len(self.keys))]
        for at, key in enumerate(self.keys):
            if isinstance(key, bound.ColumnRef):
                names[at] = key.name
        names += [call.function for call in self.aggregates.calls]
        return bound.Aggregate(rel, self.keys, tuple(self.aggregates.calls), _unique(names), empty, span=select.span)

    def _over_groups(
        self, having: bound.Expr | None, items: list[Item], order: list[tuple[ast.SortKey, bound.Expr]]
    ) -> tuple[bound.Expr | None, list[Item], list[tuple[ast.SortKey, bound.Expr]]]:
        """Return what was bound over the rows of FROM, over the groups; everything not grouped is reported."""
        plain = [having] if having is not None else []
        plain += [item.expression for item in items if item.expression is not None]
        plain += [expression for _, expression in order]
        regrouped = iter(each(self._regrouped, plain))
        return (
            None if having is None else next(regrouped),
            [item if item.expression is None else replace(item, expression=next(regrouped)) for item in items],
            [(key, next(regrouped)) for key, _ in order],
        )

    def _regrouped(self, expression: bound.Expr) -> bound.Expr:
        """Return an expression over the rows of FROM as one over the groups."""

        def change(part: bound.Expr, depth: int) -> bound.Expr | None:
            if isinstance(part, AggregateRef):
                at = len(self.keys) + part.index
                name = self.aggregates.calls[part.index].function
                return bound.ColumnRef(at, depth, name, type=part.type, nullable=part.nullable, span=part.span)
            local = part
            if isinstance(part, bound.ColumnRef):
                if part.depth != depth:
                    return part
                local = replace(part, depth=0)
            elif depth:
                return None
            if local in self.keys:
                at = self.keys.index(local)
                key_name = local.name if isinstance(local, bound.ColumnRef) else f"key{at}"
                return bound.ColumnRef(at, depth, key_name, type=part.type, nullable=part.nullable, span=part.span)
            if isinstance(part, bound.ColumnRef):
                raise self._not_grouped(part)
            return None

        return transform_expression(expression, change)

    def _not_grouped(self, column: bound.ColumnRef) -> CqlError:
        if column.span in self.stars:
            message = "* takes columns that are neither grouped nor inside an aggregate"
            hint = "name the columns of GROUP BY and the aggregates instead"
            return fail(Code.NOT_GROUPED, message, column.span, hint)
        grouping = "add it to GROUP BY" if self.keys else f"write GROUP BY {column.name}"
        message = f"'{column.name}' is neither grouped nor inside an aggregate"
        hint = f"{grouping}, or choose one value: MAX({column.name})"
        return fail(Code.NOT_GROUPED, message, column.span, hint)

    # The result

    def _finish(
        self,
        rel: bound.Rel,
        select: ast.Select,
        items: list[Item],
        order: Sequence[tuple[ast.SortKey, bound.Expr]],
        limit: int | None,
    ) -> bound.Rel:
        numberings = [item.numbering for item in items if item.numbering is not None]
        if numberings:
            _check_numberings(numberings, select, limit)
            return self._numbered_block(rel, select, items)
        names = _unique([item.name for item in items])
        columns = [item.expression for item in items if item.expression is not None]
        visible = len(columns)
        sort_keys = []
        for key, expression in order:
            sort_keys.append(sort_key(key, _place_in(columns, expression)))
            if select.distinct and len(columns) > visible:
                raise fail(
                    Code.BAD_ORDER,
                    "with DISTINCT, ORDER BY takes what is selected",
                    key.span,
                    hint="select it too, or leave DISTINCT out",
                )
        all_names = _with_hidden(names, len(columns))
        result: bound.Rel = bound.Project(rel, tuple(columns), all_names, span=select.span)
        if select.distinct:
            result = bound.Distinct(result, span=select.span)
        if limit is not None:
            result = bound.TopN(result, tuple(sort_keys), limit, span=select.span)
        if len(columns) > visible:
            result = _first_columns(result, visible)
        return result

    def _numbered_block(self, rel: bound.Rel, select: ast.Select, items: list[Item]) -> bound.Rel:
        """Return a block with ROW_NUMBER: the other columns, numbered, in the order they were written."""
        numbering = next(item.numbering for item in items if item.numbering is not None)
        binder = ExpressionBinder(
            self.binder.catalog, self.scope, "OVER", self.binder.subquery, self.aggregates if self.grouped else None
        )

        def bind(node: ast.Expression) -> bound.Expr:
            expression = binder.bind(node)
            return self._regrouped(expression) if self.grouped else expression

        before = len(self.aggregates.calls)
        columns = [item.expression for item in items if item.expression is not None]
        visible = len(columns)
        partition = [_place_in(columns, e) for e in each(bind, numbering.partition)]
        order = [
            sort_key(key, _place_in(columns, e))
            for key, e in zip(
                numbering.order,
                each(lambda key: bind(key.expression), numbering.order),
                strict=True,
            )
        ]
        if len(self.aggregates.calls) > before:
            raise fail(Code.BAD_ROW_NUMBER, "an aggregate inside OVER must also be selected", numbering.span)
        names = _unique([item.name for item in items])
        plain_names = [name for name, item in zip(names, items, strict=True) if item.numbering is None]
        number_name = next(n for n, item in zip(names, items, strict=True) if item.numbering is not None)
        hidden = _with_hidden(names, len(columns) + 1)[len(names) :]
        projected = bound.Project(rel, tuple(columns), (*plain_names, *hidden), span=select.span)
        numbered = bound.RowNumber(projected, tuple(partition), tuple(order), number_name, span=numbering.span)
        plain_at = iter(range(visible))
        chosen = [len(columns) if item.numbering is not None else next(plain_at) for item in items]
        return _columns(numbered, chosen, names)


def _check_numberings(numberings: Sequence[ast.WindowCall], select: ast.Select, limit: int | None) -> None:
    if len(numberings) > 1 or select.distinct or limit is not None:
        raise fail(
            Code.BAD_ROW_NUMBER,
            "a SELECT with ROW_NUMBER has only one, and no DISTINCT or LIMIT",
            numberings[-1].span if len(numberings) > 1 else select.span,
            hint="put the rest into a query around it",
        )


def _aliases(select: ast.Select) -> dict[str, ast.Expression | None]:
    """Return what the names that AS gives stand for; None for a name given to different expressions."""
    aliases: dict[str, ast.Expression | None] = {}
    for item in select.items:
        if isinstance(item, ast.SelectItem) and item.alias:
            same = aliases.get(item.alias.key, item.expression) == item.expression
            aliases[item.alias.key] = item.expression if same else None
    return aliases


def _name_of(item: ast.SelectItem) -> str:
    if item.alias:
        return item.alias.text
    node = item.expression
    if isinstance(node, ast.Column):
        return node.name.text
    if isinstance(node, ast.Call) and node.function.key in AGGREGATES:
        node = replace(node, function=replace(node.function, text=node.function.key))
    return to_text(node)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return names made different: the second `a` becomes `a_1`.

    >>> _unique(["a", "b", "A"])
    ('a', 'b', 'A_1')
    """
    taken = {name.casefold() for name in names}
    seen: set[str] = set()
    result = []
    for name in names:
        chosen, count = name, 0
        while chosen.casefold() in seen or (count and chosen.casefold() in taken):
            count += 1
            chosen = f"{name}_{count}"
        seen.add(chosen.casefold())
        result.append(chosen)
    return tuple(result)


def _with_hidden(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return `count` names: those given, then names for columns that serve an order only."""
    return _unique([*names, *(f"sort{at}" for at in range(count - len(names)))])


def _place_in(columns: list[bound.Expr], expression: bound.Expr) -> int:
    """Return where an expression stands among columns, adding it at the end if it does not."""
    if expression not in columns:
        columns.append(expression)
    return columns.index(expression)


def _first_columns(rel: bound.Rel, count: int) -> bound.Rel:
    return _columns(rel, range(count), [column.name for column in rel.schema[:count]])


def _columns(rel: bound.Rel, chosen: Sequence[int], names: Sequence[str]) -> bound.Rel:
    schema = rel.schema
    items = tuple(
        bound.ColumnRef(at, 0, schema[at].name, type=schema[at].type, nullable=schema[at].nullable) for at in chosen
    )
    return bound.Project(rel, items, tuple(names), span=rel.span)
