"""Binds statements that define something to catalog definitions, checked as a whole before anything changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cql import ast, bound, formats
from cql import types as t
from cql.binder.error_collection import each
from cql.binder.inputs import renamed
from cql.binder.queries import bind_query
from cql.binder.scope import columns_are
from cql.binder.types import resolve_type
from cql.catalog import Catalog, ColumnModel, External, QueryDef, RelationDef, StreamDef, Table, ViewDef
from cql.errors import Code, CqlError, fail, nearest
from cql.intervals import BadInterval, TimeDomain
from cql.options import check_query_options, check_source_options, read_options
from cql.parsing import parse_expression, parse_query
from cql.printer import to_text
from cql.source import SourceText
from cql.types import Kind

_UTILITY_HINT = "write an expression over the columns of its inputs, such as utility = a.price"

Defining = ast.CreateStream | ast.CreateRelation | ast.RegisterTable | ast.CreateView | ast.RegisterQuery


def bind_statement(statement: Defining, catalog: Catalog) -> Table | QueryDef:
    """Return the definition that a statement makes; the catalog is not changed."""
    match statement:
        case ast.CreateStream():
            catalog.check_free(statement.name.text, statement.name.span)
            return _stream(statement)
        case ast.CreateRelation():
            catalog.check_free(statement.name.text, statement.name.span)
            return _relation(statement)
        case ast.RegisterTable():
            catalog.check_free(statement.name.text, statement.name.span)
            return _registered_table(statement)
        case ast.CreateView():
            catalog.check_free(statement.name.text, statement.name.span)
            return _view(statement, catalog)
        case ast.RegisterQuery():
            return _query(statement, catalog)


def rebind(catalog: Catalog) -> None:
    """Bind the views and queries of a loaded catalog again, each under the settings it was defined with."""
    current = catalog.settings
    for defined in (*catalog.views.values(), *catalog.queries.values()):
        catalog.settings = defined.settings
        try:
            tree = bind_query(parse_query(defined.text), catalog, is_view=isinstance(defined, ViewDef)).tree
            if isinstance(defined, ViewDef):
                tree = renamed(tree, [ast.Name(name) for name in defined.columns], ast.Name(defined.name))
        except CqlError as error:
            raise CqlError(error.diagnostics, SourceText(f"<{defined.name}>", defined.text)) from None
        defined.attach(tree)
        if isinstance(defined, QueryDef) and (text := _option(defined.options, "utility")):
            defined.attach_utility(_utility(defined.name, parse_query(defined.text), parse_expression(text), catalog))
    catalog.settings = current


def _option(options: Mapping[str, str], name: str) -> str | None:
    """Return the value of an option, however its name is written."""
    return next((text for key, text in options.items() if key.casefold() == name), None)


# Streams and relations


def _stream(statement: ast.CreateStream) -> StreamDef:
    source, columns = _source_and_columns(statement.source, statement.columns, statement.name)
    at = _column_named(statement.timestamp, columns, "TIMESTAMP BY")
    clock = _clock(at, statement.timestamp)
    columns = [c.model_copy(update={"nullable": False}) if c is at else c for c in columns]
    delay = 0
    if statement.delay is not None:
        try:
            delay = statement.delay.interval.ticks(clock)
        except BadInterval as error:
            raise fail(
                Code.BAD_TIMESTAMP,
                f"DELAY: {error}",
                statement.delay.span,
                hint="use whole seconds, or a TIMESTAMP column as the timestamp",
            ) from None
        if delay < 0:
            raise fail(Code.BAD_TIMESTAMP, "DELAY cannot be negative", statement.delay.span)
    return StreamDef(
        name=statement.name.text, columns=tuple(columns), time=clock, timestamp=at.name, delay=delay, source=source
    )


def _relation(statement: ast.CreateRelation) -> RelationDef:
    source, columns = _source_and_columns(statement.source, statement.columns, statement.name)
    if statement.timestamp is None or statement.sign is None:
        return RelationDef(name=statement.name.text, columns=tuple(columns), source=source)
    at = _column_named(statement.timestamp, columns, "TIMESTAMP BY")
    sign = _column_named(statement.sign, columns, "SIGN BY")
    if at is sign:
        raise fail(
            Code.BAD_TIMESTAMP,
            "TIMESTAMP BY and SIGN BY name the same column",
            statement.sign.span,
            hint="one column says when the relation changes, another if a row is added or removed",
        )
    if sign.type.kind is not Kind.STRING and not sign.type.is_integer:
        raise fail(
            Code.BAD_TIMESTAMP,
            f"the sign '{sign.name}' is {sign.type}",
            statement.sign.span,
            hint="a sign is a STRING of '+' and '-', or an integer of 1 and -1",
        )
    rest = tuple(column for column in columns if column is not at and column is not sign)
    if not rest:
        raise fail(
            Code.BAD_DEFINITION,
            f"'{statement.name.text}' has no columns besides its timestamp and sign",
            statement.name.span,
        )
    return RelationDef(
        name=statement.name.text,
        columns=rest,
        time=_clock(at, statement.timestamp),
        timestamp=at,
        sign=sign,
        declared=tuple(column.name for column in columns),
        source=source,
    )


def _registered_table(statement: ast.RegisterTable) -> StreamDef | RelationDef:
    """STREAM's form: integer time in an unnamed first column, and `byte` is a character."""
    columns = tuple(
        column.model_copy(update={"type": t.STRING}) if column.type == t.BYTE else column
        for column in _columns(statement.columns)
    )
    source = None
    if statement.source is not None:
        if statement.source.inferred:
            raise fail(Code.CANNOT_INFER, "REGISTER lists its columns; nothing is inferred", statement.source.span)
        source = _source(statement.source)
    if statement.kind is ast.ObjectKind.STREAM:
        return StreamDef(name=statement.name.text, columns=columns, time=TimeDomain.INTEGER, source=source)
    return RelationDef(name=statement.name.text, columns=columns, time=TimeDomain.INTEGER, source=source)


def _source_and_columns(
    source: ast.SourceSpec | None, columns: Sequence[ast.ColumnDef], name: ast.Name
) -> tuple[External | None, list[ColumnModel]]:
    declared = _columns(columns)
    if source is None or not source.inferred:
        if not declared:
            raise fail(
                Code.BAD_DEFINITION,
                f"'{name.text}' has no columns",
                name.span,
                hint=f"write {name.text} (column TYPE, ..), or FROM csv SCHEMA INFERRED OPTIONS (path '..')",
            )
        return (None if source is None else _source(source)), declared
    external = _source(source)
    path = next((option.value.span for option in source.options if option.key.key == "path"), source.span)
    found = formats.connector(external.format).columns(external.options, path)
    given = {column.name.casefold(): column for column in declared}
    missing = set(given) - {column.name.casefold() for column in found}
    if missing:
        column = next(c for c in columns if c.name.key in missing)
        raise fail(
            Code.UNKNOWN_COLUMN,
            f"the source has no column '{column.name.text}'",
            column.name.span,
            candidates=nearest(column.name.text, [c.name for c in found]),
        )
    return external, [given.get(column.name.casefold(), column) for column in found]


def _source(source: ast.SourceSpec) -> External:
    format_name = formats.canonical(source.format.text)
    check_source_options(format_name, source.options, source.span)
    return External(format=format_name, options=read_options(source.options))


def _columns(definitions: Sequence[ast.ColumnDef]) -> list[ColumnModel]:
    seen: set[str] = set()

    def column(definition: ast.ColumnDef) -> ColumnModel:
        if definition.name.key in seen:
            raise fail(
                Code.DUPLICATE_NAME, f"the column '{definition.name.text}' is defined twice", definition.name.span
            )
        seen.add(definition.name.key)
        return ColumnModel(
            name=definition.name.text, type=resolve_type(definition.type), nullable=not definition.not_null
        )

    return each(column, definitions)


def _column_named(name: ast.Name, columns: Sequence[ColumnModel], clause: str) -> ColumnModel:
    for column in columns:
        if column.name.casefold() == name.key:
            return column
    known = [column.name for column in columns]
    raise fail(
        Code.UNKNOWN_COLUMN,
        f"{clause}: there is no column '{name.text}'",
        name.span,
        hint=None if nearest(name.text, known) else columns_are(known),
        candidates=nearest(name.text, known),
    )


def _clock(column: ColumnModel, name: ast.Name) -> TimeDomain:
    if column.type.kind is Kind.TIMESTAMP:
        return TimeDomain.TIMESTAMP
    if column.type.kind in (Kind.INT, Kind.BIGINT):
        return TimeDomain.INTEGER
    raise fail(
        Code.BAD_TIMESTAMP,
        f"'{column.name}' is {column.type} and cannot be the timestamp",
        name.span,
        hint="a timestamp is TIMESTAMP, or INT or BIGINT counting seconds",
    )


# Views and queries


def _view(statement: ast.CreateView, catalog: Catalog) -> ViewDef:
    result = bind_query(statement.query, catalog, is_view=True)
    tree = renamed(result.tree, statement.columns, statement.name)
    is_stream = None if statement.kind is None else statement.kind is ast.ObjectKind.STREAM
    _check_declared_types(statement, tree)
    view = ViewDef(
        name=statement.name.text,
        text=to_text(statement.query),
        settings=catalog.settings,
        depends_on=result.depends_on,
        columns=tuple(column.text for column in statement.columns),
        is_stream=is_stream,
    )
    view.attach(tree)
    return view


def _check_declared_types(statement: ast.CreateView, tree: bound.Rel) -> None:
    """Raise if a STREAM script declares text where its view has numbers, or the other way round."""
    for declared, column in zip(statement.types, tree.schema, strict=False):
        wanted = t.STRING if declared.word == "BYTE" else resolve_type(declared)
        if t.common_type(wanted, column.type) is None:
            raise fail(
                Code.TYPE_MISMATCH,
                f"'{column.name}' is declared {declared.word}, its query gives {column.type}",
                declared.span,
            )


def _query(statement: ast.RegisterQuery, catalog: Catalog) -> QueryDef:
    if statement.name.key in catalog.queries:
        taken = catalog.queries[statement.name.key].name
        raise fail(
            Code.DUPLICATE_NAME,
            f"there is a query '{taken}' already",
            statement.name.span,
            hint=f"choose another name, or DROP QUERY {taken} first",
        )
    check_query_options(statement.name.text, statement.options, catalog.settings)
    result = bind_query(statement.query, catalog)
    sink = None
    if statement.sink is not None:
        sink = External(
            format=formats.canonical(statement.sink.format.text), options=read_options(statement.sink.options)
        )
    query = QueryDef(
        name=statement.name.text,
        text=to_text(statement.query),
        settings=catalog.settings,
        depends_on=result.depends_on,
        options=read_options(statement.options),
        sink=sink,
    )
    query.attach(result.tree)
    for option in statement.options:
        if option.key.key == "utility":
            query.attach_utility(_utility(query.name, statement.query, option.value, catalog))
    return query


def _utility(name: str, query: ast.Query, worth: ast.Expression, catalog: Catalog) -> bound.Rel:
    """Return the query that computes what each row of a query is worth before it is aggregated or projected."""
    block = query.query if isinstance(query, ast.RelToStream) else query
    if not isinstance(block, ast.Select):
        message = f"the query '{name}' is not one SELECT block, whose pairs could have a utility"
        raise fail(Code.CANNOT_SHED, message, worth.span, hint="leave out the utility")
    alone = replace(block, items=(ast.SelectItem(worth),), group_by=(), having=None, distinct=False)
    tree = bind_query(alone, catalog).tree
    assert isinstance(tree, bound.Project)
    (item,), (column,) = tree.items, tree.schema
    if isinstance(tree.input, bound.Aggregate):
        message = f"the utility of the query '{name}' is that of a pair of rows, and cannot have an aggregate in it"
        raise fail(Code.AGGREGATE_NOT_ALLOWED, message, worth.span, hint=_UTILITY_HINT)
    if any(isinstance(part, bound.ScalarSubquery | bound.Exists | bound.InSubquery) for part in bound.walk(item)):
        message = f"the utility of the query '{name}' is that of a pair of rows, and cannot have a subquery in it"
        raise fail(Code.CANNOT_SHED, message, worth.span, hint=_UTILITY_HINT)
    if not column.type.is_numeric:
        raise fail(
            Code.TYPE_MISMATCH,
            f"the utility of the query '{name}' is {column.type}, and has to be a number",
            worth.span,
            hint=_UTILITY_HINT,
        )
    return tree


def result_kind(tree: bound.Rel) -> str:
    """Return `stream` or `relation`."""
    return "stream" if tree.is_stream else "relation"
