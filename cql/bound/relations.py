"""Streams and relations: the algebra that a query is bound to.

Each node knows its schema, whether it is a stream or a relation, whether it only grows (no element
ever leaves it), and the clock it lives on. All of it is derived from the node's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache

from cql.ast import RelToStreamKind, SetKind
from cql.bound.expressions import (
    AggregateCall,
    Exists,
    Expr,
    InSubquery,
    ScalarSubquery,
    conjuncts,
    has_subquery,
    walk,
    with_children,
)
from cql.bound.text import aggregate_text, expression_text, keys_text, sort_text, window_text
from cql.bound.windows import RangeSpec, UnboundedSpec, WindowSpec
from cql.intervals import TimeDomain
from cql.source import NO_SPAN, Span
from cql.types import BIGINT, DataType


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a schema."""

    name: str
    type: DataType
    nullable: bool = True


Schema = tuple[Field, ...]

Names = Sequence[Sequence[str]]
"""The column names of the inputs of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rel:
    """A stream or a relation."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def schema(self) -> Schema:
        raise AssertionError(f"{type(self).__name__} has no schema")

    @property
    def is_stream(self) -> bool:
        return False

    @property
    def grows(self) -> bool:
        """Tell whether no element can ever leave: a conservative test."""
        return False

    @property
    def time(self) -> TimeDomain | None:
        """The clock; None for what never changes."""
        return next((time for rel in inputs(self) if (time := rel.time)), None)

    def headline(self, inputs: Names) -> str:
        """Return one line about it: what it does, without its inputs, whose columns have these names."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StreamScan(Rel):
    """A registered stream. `timestamp` is the position of its timestamp column, if it has a name."""

    name: str
    fields: Schema
    domain: TimeDomain
    timestamp: int | None = None

    @property
    def schema(self) -> Schema:
        return self.fields

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def grows(self) -> bool:
        return True

    @property
    def time(self) -> TimeDomain | None:
        return self.domain

    def headline(self, inputs: Names) -> str:
        return f"stream {self.name}"


@dataclass(frozen=True, slots=True)
class RelationScan(Rel):
    """A registered relation: a signed log on a clock, or, without one, a static table."""

    name: str
    fields: Schema
    domain: TimeDomain | None = None

    @property
    def schema(self) -> Schema:
        return self.fields

    @property
    def grows(self) -> bool:
        return self.domain is None

    @property
    def time(self) -> TimeDomain | None:
        return self.domain

    def headline(self, inputs: Names) -> str:
        return f"relation {self.name}" + ("" if self.domain else " (static)")


@dataclass(frozen=True, slots=True)
class Window(Rel):
    """Stream to relation."""

    input: Rel
    spec: WindowSpec

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def grows(self) -> bool:
        return isinstance(self.spec, UnboundedSpec)

    def headline(self, inputs: Names) -> str:
        return f"window [{window_text(self.spec, inputs[0], self.time)}]"


@dataclass(frozen=True, slots=True)
class Filter(Rel):
    """Of a relation, or, below a window, of a stream."""

    input: Rel
    predicate: Expr

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def grows(self) -> bool:
        return self.input.grows and all(_stays_true(term) for term in conjuncts(self.predicate))

    def headline(self, inputs: Names) -> str:
        return f"filter {expression_text(self.predicate, inputs[0])}"


def _stays_true(predicate: Expr) -> bool:
    """Tell whether a predicate that is true of a row stays true as relations grow."""
    match predicate:
        case Exists():
            return predicate.query.grows
        case InSubquery():
            return predicate.query.grows and not any(has_subquery(operand) for operand in predicate.operands)
    return not has_subquery(predicate)


@dataclass(frozen=True, slots=True)
class Project(Rel):
    """Duplicates stay. `names` name the columns of the result. Of a relation or of a stream."""

    input: Rel
    items: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return tuple(Field(name, e.type, e.nullable) for name, e in zip(self.names, self.items, strict=True))

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def grows(self) -> bool:
        return self.input.grows and not any(has_subquery(item) for item in self.items)

    def headline(self, inputs: Names) -> str:
        texts = zip((expression_text(item, inputs[0]) for item in self.items), self.names, strict=True)
        return "project " + ", ".join(text if text == name else f"{text} AS {name}" for text, name in texts)


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Join(Rel):
    """The columns of the left input, then those of the right; no condition means all pairs."""

    kind: JoinKind
    left: Rel
    right: Rel
    condition: Expr | None = None

    @property
    def schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if self.kind in (JoinKind.RIGHT, JoinKind.FULL):
            left = tuple(replace(f, nullable=True) for f in left)
        if self.kind in (JoinKind.LEFT, JoinKind.FULL):
            right = tuple(replace(f, nullable=True) for f in right)
        return left + right

    @property
    def grows(self) -> bool:
        if self.kind is not JoinKind.INNER or not (self.left.grows and self.right.grows):
            return False
        return self.condition is None or all(_stays_true(term) for term in conjuncts(self.condition))

    def headline(self, inputs: Names) -> str:
        return f"{self.kind.value} join" + keys_text((), self.condition, *inputs)


class EmptyRow(Enum):
    """When an aggregate without keys has a row although its input is empty."""

    ONCE_SEEN = "once a stream or relation below has had an element"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Aggregate(Rel):
    """One row a group: the keys, then the aggregates. A group without rows does not exist.

    Without keys there is one group, and `empty_row` says what happens while the input is empty: SQL has
    a row (from the first element on; inside a subquery's value always), STREAM has none.
    """

    input: Rel
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    empty_row: EmptyRow = EmptyRow.ONCE_SEEN

    @property
    def schema(self) -> Schema:
        parts: tuple[Expr | AggregateCall, ...] = (*self.keys, *self.calls)
        return tuple(Field(n, part.type, part.nullable) for n, part in zip(self.names, parts, strict=True))

    def headline(self, inputs: Names) -> str:
        keys = ", ".join(expression_text(key, inputs[0]) for key in self.keys)
        calls = ", ".join(aggregate_text(call, inputs[0]) for call in self.calls)
        empty = "" if self.keys else f", empty row {self.empty_row.name.lower().replace('_', ' ')}"
        return f"aggregate {calls}" + (f" by {keys}" if keys else "") + empty


@dataclass(frozen=True, slots=True)
class Distinct(Rel):
    input: Rel

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def grows(self) -> bool:
        return self.input.grows

    def headline(self, inputs: Names) -> str:
        return "distinct"


@dataclass(frozen=True, slots=True)
class Sample(Rel):
    """The rows with the smallest hashes, `percent` of all that there can be: equal rows have one fate, at all times."""

    input: Rel
    percent: float

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def grows(self) -> bool:
        return self.input.grows

    def headline(self, inputs: Names) -> str:
        return f"sample of {self.percent:g} percent"


@dataclass(frozen=True, slots=True)
class SetOperation(Rel):
    """Both inputs have the same types. With `all` a bag operation, without a set operation."""

    kind: SetKind
    all: bool
    left: Rel
    right: Rel

    @property
    def schema(self) -> Schema:
        either = self.kind is SetKind.UNION
        return tuple(
            replace(a, nullable=a.nullable or (either and b.nullable))
            for a, b in zip(self.left.schema, self.right.schema, strict=True)
        )

    @property
    def grows(self) -> bool:
        return self.kind is not SetKind.EXCEPT and self.left.grows and self.right.grows

    def headline(self, inputs: Names) -> str:
        return self.kind.value.lower() + (" all" if self.all else "")


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of the input to order by."""

    column: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class TopN(Rel):
    """The first `limit` rows by the keys; ties fall to the other columns, left to right, ascending."""

    input: Rel
    keys: tuple[SortKey, ...]
    limit: int

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def headline(self, inputs: Names) -> str:
        return f"top {self.limit} by {sort_text(self.keys, inputs[0])}"


@dataclass(frozen=True, slots=True)
class RowNumber(Rel):
    """The input with a column that counts the rows of each partition in the order of the keys.

    Ties fall to the other columns as in `TopN`, so that the numbering is a function of the relation.
    """

    input: Rel
    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    name: str

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, Field(self.name, BIGINT, False))

    def headline(self, inputs: Names) -> str:
        within = ", ".join(inputs[0][at] for at in self.partition)
        return f"number rows of each ({within}) by {sort_text(self.keys, inputs[0])} as {self.name}"


@dataclass(frozen=True, slots=True)
class RelToStream(Rel):
    """Relation to stream. `every_tick` says when an Rstream speaks: at every tick of the clock, or at
    the instants where an input has an element or a slide falls."""

    kind: RelToStreamKind
    input: Rel
    every_tick: bool = False

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def grows(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        return self.kind.value.capitalize() + (" at every tick" if self.every_tick else "")


# Walking and rebuilding trees. A node's inputs and expressions are found by looking at its fields, so that
# node classes of later phases take part without being listed here.


def direct_inputs(rel: Rel) -> tuple[Rel, ...]:
    """Return the streams and relations that a node is made from, those of subqueries left out."""
    found: list[Rel] = []
    for value in _values(rel):
        if isinstance(value, Rel):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(part for part in value if isinstance(part, Rel))
    return tuple(found)


def inputs(rel: Rel) -> tuple[Rel, ...]:
    """Return the streams and relations that a node reads; those of subqueries come last."""
    return direct_inputs(rel) + tuple(subqueries(rel))


def subqueries(rel: Rel) -> Iterator[Rel]:
    """Yield the queries inside a node's own expressions."""
    for expression in expressions(rel):
        for part in walk(expression):
            if isinstance(part, InSubquery | Exists | ScalarSubquery):
                yield part.query


def expressions(rel: Rel) -> tuple[Expr, ...]:
    """Return a node's own expressions."""
    return tuple(found for value in _values(rel) for found in _expressions_in(value))


def _expressions_in(value: object) -> Iterator[Expr]:
    match value:
        case Expr():
            yield value
        case AggregateCall():
            yield from value.arguments
            if value.filter is not None:
                yield value.filter
        case tuple():
            for part in value:
                yield from _expressions_in(part)


def with_inputs(rel: Rel, change: Callable[[Rel], Rel]) -> Rel:
    """Return a node with its direct inputs changed; the node itself if none is."""

    def changed(value: object) -> object:
        if isinstance(value, Rel):
            return change(value)
        if isinstance(value, tuple) and any(isinstance(part, Rel) for part in value):
            return _same_or(value, tuple(changed(part) for part in value))
        return value

    return _rebuilt(rel, changed)


def with_expressions(rel: Rel, change: Callable[[Expr], Expr]) -> Rel:
    """Return a node with its own expressions changed; the node itself if none is."""
    return _rebuilt(rel, lambda value: _with_expressions(value, change))


def _with_expressions(value: object, change: Callable[[Expr], Expr]) -> object:
    match value:
        case Expr():
            return change(value)
        case AggregateCall():
            arguments = _same_or(value.arguments, tuple(change(argument) for argument in value.arguments))
            condition = None if value.filter is None else change(value.filter)
            if arguments is value.arguments and condition is value.filter:
                return value
            return replace(value, arguments=arguments, filter=condition)  # type: ignore[arg-type]
        case tuple():
            return _same_or(value, tuple(_with_expressions(part, change) for part in value))
    return value


def _values(rel: Rel) -> list[object]:
    return [getattr(rel, name) for name in _field_names(type(rel))]  # type: ignore[arg-type]


@cache
def _field_names(node: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(node) if f.name != "span")


def _rebuilt(rel: Rel, change: Callable[[object], object]) -> Rel:
    changes = {}
    for name in _field_names(type(rel)):  # type: ignore[arg-type]
        before = getattr(rel, name)
        after = change(before)
        if after is not before:
            changes[name] = after
    return replace(rel, **changes) if changes else rel  # type: ignore[arg-type]


def _same_or(before: tuple[object, ...], after: tuple[object, ...]) -> tuple[object, ...]:
    """Return the old tuple if the new one holds the very same objects."""
    return before if all(a is b for a, b in zip(before, after, strict=True)) else after


def scans(rel: Rel) -> Iterator[StreamScan | RelationScan]:
    """Yield the registered streams and relations below a node, from left to right."""
    if isinstance(rel, StreamScan | RelationScan):
        yield rel
    for below in inputs(rel):
        yield from scans(below)


def slides(rel: Rel) -> tuple[int, ...]:
    """Return the different slides of the windows of a query, those of its subqueries as well, the shortest first."""
    found = {slide for below in inputs(rel) for slide in slides(below)}
    if isinstance(rel, Window) and isinstance(rel.spec, RangeSpec) and rel.spec.slide is not None:
        found.add(rel.spec.slide)
    return tuple(sorted(found))


def transform_expressions(rel: Rel, change: Callable[[Expr, int], Expr | None], depth: int = 0) -> Rel:
    """Return a tree with its expressions changed from the top down.

    `change` gets each expression and how many queries it lies inside of, and returns a replacement,
    or None to have its operands visited.
    """
    rel = with_inputs(rel, lambda below: transform_expressions(below, change, depth))
    return with_expressions(rel, lambda expression: transform_expression(expression, change, depth))


def transform_expression(expression: Expr, change: Callable[[Expr, int], Expr | None], depth: int = 0) -> Expr:
    """Return an expression changed from the top down, with the insides of its subqueries."""
    changed = change(expression, depth)
    if changed is not None:
        return changed
    expression = with_children(expression, lambda part: transform_expression(part, change, depth))
    if isinstance(expression, InSubquery | Exists | ScalarSubquery):
        return replace(expression, query=transform_expressions(expression.query, change, depth + 1))
    return expression
