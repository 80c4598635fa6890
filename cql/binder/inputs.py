"""Binds the items of FROM: names, subqueries, windows and joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cql import ast, bound
from cql.binder.error_collection import each
from cql.binder.expressions import ExpressionBinder
from cql.binder.limits import MAX_LEVELS
from cql.binder.scope import FromItem, Scope
from cql.catalog import RelationDef, StreamDef, ViewDef
from cql.errors import Code, fail
from cql.intervals import BadInterval, TimeDomain

if TYPE_CHECKING:
    from cql.binder.queries import QueryBinder


@dataclass(frozen=True, slots=True)
class BoundInput:
    """A relation with the inputs that its columns belong to."""

    rel: bound.Rel
    inputs: tuple[FromItem, ...]


def bind_inputs(binder: QueryBinder, refs: Sequence[ast.TableRef], outer: Scope | None) -> BoundInput:
    """Return the join of the items of FROM; comma means all pairs."""
    if len(refs) > MAX_LEVELS:
        raise fail(
            Code.TOO_DEEP,
            f"FROM joins {len(refs)} inputs",
            refs[0].span.cover(refs[-1].span),
            hint=f"there may be up to {MAX_LEVELS}",
        )
    items = each(lambda ref: _bind_ref(binder, ref, outer), refs)
    joined = items[0]
    for item in items[1:]:
        joined = _joined(bound.JoinKind.INNER, joined, item, None)
    _check_names(joined.inputs, refs)
    return joined


def as_relation(rel: bound.Rel) -> bound.Rel:
    """Return a relation: a stream without a window gets the unbounded one."""
    if not rel.is_stream:
        return rel
    return bound.Window(rel, bound.UnboundedSpec(), span=rel.span)


def renamed(rel: bound.Rel, columns: Sequence[ast.Name], owner: ast.Name) -> bound.Rel:
    """Return a stream or relation under new column names, if some are given."""
    if not columns:
        return rel
    if len(columns) != len(rel.schema):
        raise fail(
            Code.COLUMN_COUNT,
            f"'{owner.text}' names {len(columns)} columns, its query has {len(rel.schema)}",
            owner.span,
        )
    _check_distinct(columns)
    names = tuple(column.text for column in columns)
    if isinstance(rel, bound.RelToStream):
        return replace(rel, input=_with_names(rel.input, names))
    return _with_names(rel, names)


def _with_names(rel: bound.Rel, names: tuple[str, ...]) -> bound.Rel:
    items = tuple(
        bound.ColumnRef(at, 0, column.name, type=column.type, nullable=column.nullable)
        for at, column in enumerate(rel.schema)
    )
    return bound.Project(rel, items, names, span=rel.span)


def _check_distinct(names: Sequence[ast.Name]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.key in seen:
            raise fail(Code.DUPLICATE_NAME, f"the column '{name.text}' is named twice", name.span)
        seen.add(name.key)


def _bind_ref(binder: QueryBinder, ref: ast.TableRef, outer: Scope | None) -> BoundInput:
    match ref:
        case ast.NamedInput():
            return bind_named(binder, ref)
        case ast.SubqueryInput():
            return _bind_subquery(binder, ref, outer)
        case ast.SampledInput():
            below = _bind_ref(binder, ref.input, outer)
            return replace(below, rel=bound.Sample(below.rel, float(ref.percent.text), span=ref.span))
        case ast.Join():
            return _bind_join(binder, ref, outer)
    raise AssertionError(type(ref).__name__)


def bind_named(binder: QueryBinder, ref: ast.NamedInput) -> BoundInput:
    """Return a stream, relation, view or local view by name, with its window."""
    alias = ref.alias or ref.name
    timestamp: int | None = None
    hidden: tuple[str, ...] = ()
    local = binder.local.get(ref.name.key)
    if local is not None:
        rel, what = local, f"'{ref.name.text}'"
    else:
        table = binder.catalog.table(ref.name.text, ref.name.span)
        binder.used[table.name] = None
        what = f"'{table.name}'"
        match table:
            case StreamDef():
                scan = table.scan(ref.name.span)
                rel, timestamp = scan, scan.timestamp
            case RelationDef():
                rel = table.scan(ref.name.span)
                hidden = tuple(column.name for column in (table.timestamp, table.sign) if column)
            case ViewDef():
                rel = replace(table.tree, span=ref.name.span)
                if table.is_stream is False:
                    rel = as_relation(rel)
                elif table.is_stream and ref.window and not rel.is_stream:
                    # STREAM's scripts declare views of relations as streams and put windows on them.
                    rel = bound.RelToStream(ast.RelToStreamKind.ISTREAM, rel, span=ref.name.span)
        if rel.time:
            binder.clocks.append((ref.name, rel.time))
    rel = _windowed(binder, rel, ref.window, alias, what)
    return BoundInput(rel, (FromItem(alias.text, rel.schema, 0, timestamp, hidden),))


def _bind_subquery(binder: QueryBinder, ref: ast.SubqueryInput, outer: Scope | None) -> BoundInput:
    rel = binder.bind(ref.query, outer, numbered=True)
    if ref.window and not rel.is_stream:
        if not rel.grows:
            raise fail(
                Code.WINDOW_ON_RELATION,
                "this subquery yields a relation, and windows go on streams",
                ref.window.span,
                hint="make a stream of it first: FROM Istream(SELECT ..) [..]",
            )
        rel = bound.RelToStream(ast.RelToStreamKind.ISTREAM, rel, span=ref.span)
    rel = _windowed(binder, rel, ref.window, ref.alias, "this subquery")
    name = ref.alias.text if ref.alias else None
    return BoundInput(rel, (FromItem(name, rel.schema, 0),))


def _bind_join(binder: QueryBinder, ref: ast.Join, outer: Scope | None) -> BoundInput:
    left, right = each(lambda side: _bind_ref(binder, side, outer), (ref.left, ref.right))
    kind = bound.JoinKind.INNER if ref.kind is ast.JoinKind.CROSS else bound.JoinKind[ref.kind.name]
    pairs = _joined(bound.JoinKind.INNER, left, right, None)
    _check_names(pairs.inputs, (ref,))
    condition = None
    if ref.condition is not None:
        scope = Scope(list(pairs.inputs), outer)
        condition = ExpressionBinder(binder.catalog, scope, "ON", binder.subquery).condition(ref.condition)
    joined = _joined(kind, left, right, condition)
    return replace(joined, rel=replace(joined.rel, span=ref.span))


def _joined(kind: bound.JoinKind, left: BoundInput, right: BoundInput, condition: bound.Expr | None) -> BoundInput:
    rel = bound.Join(kind, left.rel, right.rel, condition)
    shift = len(left.rel.schema)
    inputs = (*left.inputs, *(replace(owner, start=owner.start + shift) for owner in right.inputs))
    schema = rel.schema
    return BoundInput(rel, tuple(replace(o, fields=schema[o.start : o.start + len(o.fields)]) for o in inputs))


def _check_names(inputs: Sequence[FromItem], refs: Sequence[ast.TableRef]) -> None:
    seen: set[str] = set()
    for owner, ref in zip(inputs, _leaves(refs), strict=True):
        if owner.name is None:
            continue
        if owner.name.casefold() in seen:
            raise fail(
                Code.DUPLICATE_NAME,
                f"FROM has two inputs named '{owner.name}'",
                ref.span,
                hint=f"give one of them another name: {owner.name} AS x",
            )
        seen.add(owner.name.casefold())


def _leaves(refs: Sequence[ast.TableRef]) -> Iterator[ast.TableRef]:
    """Yield the inputs below joins, from left to right."""
    for ref in refs:
        if isinstance(ref, ast.Join):
            yield from _leaves((ref.left, ref.right))
        else:
            yield ref


# Windows


def _windowed(
    binder: QueryBinder, rel: bound.Rel, window: ast.Window | None, alias: ast.Name | None, what: str
) -> bound.Rel:
    if window is None:
        return as_relation(rel)
    if not rel.is_stream:
        hint = "leave the window out: a relation is what it is at every instant"
        if isinstance(rel, bound.RelationScan) is False:
            hint = "make a stream of it with Istream(..), or leave the window out"
        raise fail(Code.WINDOW_ON_RELATION, f"{what} is a relation, and windows go on streams", window.span, hint)
    return bound.Window(rel, _spec(binder, rel, window, alias), span=window.span)


def _spec(binder: QueryBinder, rel: bound.Rel, window: ast.Window, alias: ast.Name | None) -> bound.WindowSpec:
    clock = rel.time
    extra = 1 if binder.settings.range_bounds == "closed" else 0
    match window:
        case ast.RangeWindow(duration=None) | ast.RowsWindow(count=None):
            return bound.UnboundedSpec()
        case ast.NowWindow():
            return bound.RangeSpec(1)
        case ast.RangeWindow(duration=duration, slide=slide):
            assert duration is not None
            length = _ticks(duration, clock, "Range", 1 - extra)
            step = None if slide is None else _ticks(slide, clock, "Slide")
            if step is not None and step > length:
                raise fail(
                    Code.BAD_WINDOW,
                    "Slide is larger than Range, so that elements would be skipped",
                    slide.span if slide else window.span,
                    hint="Slide is at most as long as Range",
                )
            return bound.RangeSpec(length + extra, None if step == 1 else step)
        case ast.RowsWindow(count=count):
            assert count is not None
            return bound.RowsSpec(_rows(count, window))
        case ast.PartitionWindow():
            columns = each(lambda column: _partition_column(rel, *column, alias), window.columns)
            ticks = None if window.duration is None else _ticks(window.duration, clock, "Range", 1 - extra) + extra
            return bound.PartitionRowsSpec(tuple(dict.fromkeys(columns)), _rows(window.count, window), ticks)
    raise AssertionError(type(window).__name__)


def _ticks(duration: ast.IntervalLiteral, clock: TimeDomain | None, what: str, least: int = 1) -> int:
    if clock is None:
        raise fail(
            Code.BAD_WINDOW,
            f"{what} needs a clock, and this input never changes",
            duration.span,
            hint="leave the window out",
        )
    try:
        ticks = duration.interval.ticks(clock)
    except BadInterval as error:
        hint = "use whole seconds; a stream with a TIMESTAMP column as its timestamp has a finer clock"
        raise fail(
            Code.BAD_WINDOW, f"{what}: {error}", duration.span, hint=hint if clock is TimeDomain.INTEGER else None
        ) from None
    if ticks < least:
        raise fail(
            Code.BAD_WINDOW,
            f"{what} must be longer than 0",
            duration.span,
            hint="[Now] holds the elements of the current instant"
            if what == "Range"
            else "without Slide, the window moves at every instant",
        )
    return ticks


def _rows(count: int, window: ast.Window) -> int:
    if count < 1:
        raise fail(Code.BAD_WINDOW, "a window of 0 rows is always empty", window.span)
    return count


def _partition_column(rel: bound.Rel, qualifier: ast.Name | None, name: ast.Name, alias: ast.Name | None) -> int:
    scope = Scope([FromItem(alias.text if alias else None, rel.schema, 0)])
    span = qualifier.span.cover(name.span) if qualifier else name.span
    return scope.resolve(ast.Column(name, qualifier, span=span)).index
