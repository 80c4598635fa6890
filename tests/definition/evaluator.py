"""What a query means: every R(t) and every stream, computed instant by instant from the definitions.

Follows sections 2 and 5 of `../shared/papers/stream-cql.md` and section 3 of `../shared/design.md`:

- A run goes from the smallest to the largest instant of any element of any timed input; before it all
  relations are empty, and no time passes after it. A run that closes windows goes on to the smallest instant by which
  each window with a slide has come to a multiple of it.
- A log of a relation removes what is there: where the changes of an instant remove more of a row than there is, none
  is left.
- A relation at t is a function of the relations below it at t; a window at t of the elements of its stream up
  to t; the elements of a derived stream at t of its relation at t and at t - 1.
- A stream is a sequence: a registered one in source order, sorted by instant; elements of a derived one at
  the same instant in the order of the registered stream they come from if only windows, filters and projections
  without subqueries and stream operators lie between, otherwise in the order of their rows. Only windows that
  count rows can tell.
- Inside a subquery the rows around it are constants, in its windows and streams as well.

Instead of looping over all ticks it looks at the instants at which something may change. That this makes no
difference is tested: with `every_tick` it does loop over all of them.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from cql import bound
from cql.bound import Expr, JoinKind, Rel, RelToStreamKind, SetKind, SortKey
from cql.bound.relations import transform_expressions
from cql.catalog import Catalog
from cql.types import Kind
from runtime.columns.arrow_types import arrow_type
from runtime.operators.sample import sampled
from tests.definition import scalars
from tests.definition.aggregates import AGGREGATES, user_aggregate
from tests.definition.values import Row, Value, fit, order, row_order

Element = tuple[int, Sequence[Value], int]
"""An instant, a row, and +1 or -1."""

Bag = Counter[Row]
"""Rows with multiplicities; in changes they may be negative."""

Outer = tuple[Row, ...]
"""The rows around a subquery, the nearest first: what column references of depth 1, 2, .. mean."""


class Item(NamedTuple):
    """A row of a relation, and its position in the stream while it stands for one element of it."""

    row: Row
    origin: int | None = None


@dataclass(frozen=True)
class Result:
    """What a query yields: for a stream its elements, for a relation its changes, netted per instant."""

    changes: dict[int, Bag] = field(default_factory=dict)

    def relation_at(self, time: int) -> Bag:
        """Return R(t) of a query that yields a relation."""
        bag: Bag = Counter()
        for instant, change in self.changes.items():
            if instant <= time:
                bag.update(change)
        return _without_zeros(bag)

    def final(self) -> Bag:
        """Return the relation at the end of the run; of a stream, all that was ever in it."""
        return self.relation_at(max(self.changes, default=0))


def evaluate(
    root: Rel,
    data: Mapping[str, Sequence[Element]],
    functions: Mapping[str, Any] | None = None,
    *,
    every_tick: bool = False,
    closes_windows: bool = False,
) -> Result:
    """Return what a bound query yields on finite inputs, given by name.

    The instants of a static relation do not matter. `functions` holds the code of user functions and
    aggregates (see `user_code`).
    """
    run = _Run(root, data, functions or {}, every_tick, closes_windows)
    changes: dict[int, Bag] = {time: Counter() for time in run.instants(root)}
    if root.is_stream:
        for time, row in run.stream(root, ()):
            changes[time][row] += 1
    else:
        for time, change in changes.items():
            change.update(run.rows(root, time, ()))
            change.subtract(run.rows(root, time - 1, ()))
    return Result({time: netted for time, change in changes.items() if (netted := _without_zeros(change))})


def user_code(catalog: Catalog) -> dict[str, Any]:
    """Return the Python objects of a catalog's user functions and aggregates, by name."""
    return {user.name: user.code for user in (*catalog.functions.values(), *catalog.aggregates.values())}


class _Run:
    """A query over its inputs. All methods are functions of their arguments; results are remembered."""

    def __init__(
        self,
        root: Rel,
        data: Mapping[str, Sequence[Element]],
        functions: Mapping[str, Any],
        every_tick: bool,
        closes_windows: bool,
    ) -> None:
        self.functions = functions
        self.every_tick = every_tick
        self.elements: dict[str, list[tuple[int, Row, int]]] = {}
        occurring: list[int] = []
        timed = False
        for scan in bound.scans(root):
            types = [column.type for column in scan.schema]
            self.elements[scan.name] = [
                (instant, tuple(fit(v, t) for v, t in zip(row, types, strict=True)), sign)
                for instant, row, sign in data[scan.name]
            ]
            timed = timed or scan.domain is not None
            occurring += self._scan_instants(scan)
        # Without a clock everything happens at 0; with a clock but no element nothing ever happens.
        self.start, self.end = (min(occurring, default=1), max(occurring, default=0)) if timed else (0, 0)
        if closes_windows and occurring:
            self.end = max([self.end, *(-(-self.end // slide) * slide for slide in _slides(root))])
        self._remembered: dict[Any, Any] = {}

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]

    # When something may change

    def instants(self, rel: Rel) -> list[int]:
        """Return the instants at which a stream has elements or a relation changes, and maybe others."""

        def compute() -> list[int]:
            if self.every_tick:
                return list(range(self.start, self.end + 1))
            possible = {self.start, *self._possible_changes(rel)}
            return sorted(time for time in possible if self.start <= time <= self.end)

        return self._once(("instants", id(rel)), compute)  # type: ignore[no-any-return]

    def _possible_changes(self, rel: Rel) -> Iterator[int]:
        below = [time for input in bound.inputs(rel) for time in self.instants(input)]
        match rel:
            case bound.StreamScan() | bound.RelationScan():
                yield from self._scan_instants(rel)
            case bound.Window(spec=bound.RangeSpec(ticks=ticks, slide=slide)):
                step = slide or 1
                for time in below:
                    yield -(-time // step) * step
                    yield -(-(time + ticks) // step) * step
            case bound.Window(spec=bound.PartitionRowsSpec(ticks=int(ticks))):
                for time in below:
                    yield from (time, time + ticks)
            case bound.Aggregate():
                yield from below
                for scan in bound.scans(rel):
                    yield from self._scan_instants(scan)
            case bound.RelToStream(kind=RelToStreamKind.RSTREAM, every_tick=True):
                for time, until in pairwise([*sorted(below), self.end + 1]):
                    if self.depends_on_outer(rel) or self.relation(rel.input, time, ()):
                        yield from range(time, until)
            case bound.RelToStream(kind=RelToStreamKind.RSTREAM):
                yield from self._clock(rel.input)
            case _:
                yield from below

    def _scan_instants(self, scan: bound.StreamScan | bound.RelationScan) -> Iterator[int]:
        if scan.domain is not None:
            yield from (instant for instant, _, _ in self.elements[scan.name])

    def _clock(self, rel: Rel) -> set[int]:
        """Return the instants at which an Rstream speaks that does not speak at every tick: those where a registered
        stream or relation below it has an element; below a window that slides, the slides from the first element
        on instead."""

        def compute() -> set[int]:
            times = {time for below in bound.inputs(rel) for time in self._clock(below)}
            match rel:
                case bound.StreamScan() | bound.RelationScan():
                    times.update(self._scan_instants(rel))
                case bound.Window(spec=bound.RangeSpec(slide=int(slide))) if times:
                    first = min(time for scan in bound.scans(rel) for time in self._scan_instants(scan))
                    times = set(range(-(-first // slide) * slide, self.end + 1, slide))
            return times

        return self._once(("clock", id(rel)), compute)  # type: ignore[no-any-return]

    # Streams

    def stream(self, rel: Rel, outer: Outer) -> list[tuple[int, Row]]:
        """Return the elements of a stream, all of them, in the order of the stream."""

        def compute() -> list[tuple[int, Row]]:
            if isinstance(rel, bound.StreamScan):
                elements = sorted(self.elements[rel.name], key=lambda element: element[0])
                return [(instant, row) for instant, row, _ in elements]
            assert isinstance(rel, bound.RelToStream), type(rel).__name__
            return [(time, item.row) for time in self.instants(rel) for item in self._emitted(rel, time, outer)]

        outer = outer if outer and self.depends_on_outer(rel) else ()
        return self._once(("stream", id(rel), outer), compute)  # type: ignore[no-any-return]

    def _emitted(self, rel: bound.RelToStream, time: int, outer: Outer) -> list[Item]:
        """Return the elements of a derived stream at an instant."""
        now = self.relation(rel.input, time, outer)
        before = self.relation(rel.input, time - 1, outer)
        match rel.kind:
            case RelToStreamKind.ISTREAM:
                return _in_stream_order(_surplus(_in_stream_order(now), before))
            case RelToStreamKind.DSTREAM:
                return _in_stream_order(_surplus(reversed(_in_stream_order(before)), now))
            case RelToStreamKind.RSTREAM:
                speaks = rel.every_tick or time in self._clock(rel.input)
                return _in_stream_order(now) if speaks else []

    # Relations

    def relation(self, rel: Rel, time: int, outer: Outer) -> list[Item]:
        """Return R(t), inside the given rows around it."""
        if time < self.start:
            return []
        instants = self.instants(rel)
        since = instants[bisect_right(instants, time) - 1]
        outer = outer if outer and self.depends_on_outer(rel) else ()
        return self._once(  # type: ignore[no-any-return]
            ("relation", id(rel), since, outer), lambda: self._relation(rel, since, outer)
        )

    def depends_on_outer(self, rel: Rel) -> bool:
        """Tell whether a subquery, or a part of one, refers to the rows around it."""
        return self._once(("correlated", id(rel)), lambda: _correlated(rel))  # type: ignore[no-any-return]

    def rows(self, rel: Rel, time: int, outer: Outer) -> list[Row]:
        return [item.row for item in self.relation(rel, time, outer)]

    def _relation(self, rel: Rel, time: int, outer: Outer) -> list[Item]:
        match rel:
            case bound.RelationScan():
                return _items(self._contents(rel, time))
            case bound.Window():
                held = _window(rel.spec, self.stream(rel.input, outer), time)
                return held if _in_source_order(rel) else _items(item.row for item in held)
            case bound.Filter():
                kept = [
                    item
                    for item in self.relation(rel.input, time, outer)
                    if self.value(rel.predicate, item.row, time, outer) is True
                ]
                return _items(item.row for item in kept) if _has_subquery(rel) else kept
            case bound.Project():
                made = [
                    Item(tuple(self.value(e, item.row, time, outer) for e in rel.items), item.origin)
                    for item in self.relation(rel.input, time, outer)
                ]
                return _items(item.row for item in made) if _has_subquery(rel) else made
            case bound.Join():
                return _items(self._join(rel, time, outer))
            case bound.Aggregate():
                return _items(self._aggregate(rel, time, outer))
            case bound.Distinct():
                return _items(dict.fromkeys(self.rows(rel.input, time, outer)))
            case bound.Sample():
                there = self.rows(rel.input, time, outer)
                return _items(row for row, chosen in zip(there, _chosen(rel, there), strict=True) if chosen)
            case bound.SetOperation():
                left, right = (Counter(self.rows(side, time, outer)) for side in (rel.left, rel.right))
                return _items(_set_operation(rel.kind, rel.all, left, right).elements())
            case bound.TopN():
                return _items(_sorted(self.rows(rel.input, time, outer), rel.keys)[: rel.limit])
            case bound.RowNumber():
                return _items(_numbered(_sorted(self.rows(rel.input, time, outer), rel.keys), rel.partition))
        raise NotImplementedError(type(rel).__name__)

    def _contents(self, scan: bound.RelationScan, time: int) -> Iterable[Row]:
        bag: Bag = Counter()
        if scan.domain is None:
            bag.update(row for _, row, _ in self.elements[scan.name])
            return bag.elements()
        changes: dict[int, Bag] = {}
        for instant, row, sign in self.elements[scan.name]:
            changes.setdefault(instant, Counter())[row] += sign
        for instant in sorted(changes):
            if instant <= time:
                bag = Counter({row: max(bag[row] + changes[instant][row], 0) for row in {*bag, *changes[instant]}})
        return bag.elements()

    def _join(self, rel: bound.Join, time: int, outer: Outer) -> Iterator[Row]:
        left, right = self.rows(rel.left, time, outer), self.rows(rel.right, time, outer)
        matched_left, matched_right = set(), set()
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                if rel.condition is None or self.value(rel.condition, a + b, time, outer) is True:
                    matched_left.add(i)
                    matched_right.add(j)
                    yield a + b
        if rel.kind in (JoinKind.LEFT, JoinKind.FULL):
            nothing = (None,) * len(rel.right.schema)
            yield from (a + nothing for i, a in enumerate(left) if i not in matched_left)
        if rel.kind in (JoinKind.RIGHT, JoinKind.FULL):
            nothing = (None,) * len(rel.left.schema)
            yield from (nothing + b for j, b in enumerate(right) if j not in matched_right)

    def _aggregate(self, rel: bound.Aggregate, time: int, outer: Outer) -> list[Row]:
        groups: dict[Row, list[Row]] = {}
        for row in self.rows(rel.input, time, outer):
            key = tuple(self.value(e, row, time, outer) for e in rel.keys)
            groups.setdefault(key, []).append(row)
        if not rel.keys and not groups and self._has_empty_row(rel, time):
            groups[()] = []
        return [
            key + tuple(self._aggregated(call, rows, time, outer) for call in rel.calls) for key, rows in groups.items()
        ]

    def _has_empty_row(self, rel: bound.Aggregate, time: int) -> bool:
        match rel.empty_row:
            case bound.EmptyRow.NEVER:
                return False
            case bound.EmptyRow.ALWAYS:
                return True
            case bound.EmptyRow.ONCE_SEEN:
                return any(
                    scan.domain is None or any(instant <= time for instant in self._scan_instants(scan))
                    for scan in bound.scans(rel)
                )

    def _aggregated(self, call: bound.AggregateCall, rows: list[Row], time: int, outer: Outer) -> Value:
        if call.filter is not None:
            rows = [row for row in rows if self.value(call.filter, row, time, outer) is True]
        arguments = [tuple(self.value(e, row, time, outer) for e in call.arguments) for row in rows]
        if call.distinct:
            arguments = list(dict.fromkeys(arguments))
        if call.user_defined:
            given = [tuple(_for_user(call.arguments, row)) for row in sorted(arguments, key=row_order)]
            return fit(_from_user(user_aggregate(self.functions[call.function], given)), call.type)
        value = AGGREGATES[call.function](arguments, call.type)
        assert value is not None or call.nullable, f"{call} cannot be NULL"
        return value

    # Expressions

    def value(self, expression: Expr, row: Row, time: int, outer: Outer) -> Value:
        """Return the value of an expression over a row of the relation it belongs to, at an instant."""
        value = self._value(expression, row, time, outer)
        assert value is not None or expression.nullable, f"{expression} cannot be NULL"
        return value

    def _value(self, expression: Expr, row: Row, time: int, outer: Outer) -> Value:
        def value(operand: Expr) -> Value:
            return self.value(operand, row, time, outer)

        match expression:
            case bound.ColumnRef(depth=depth, index=index):
                return (row, *outer)[depth][index]
            case bound.Literal():
                return fit(expression.value, expression.type)
            case bound.Call():
                return scalars.call(expression.function, [value(a) for a in expression.arguments], expression.type)
            case bound.UserCall():
                given = [value(a) for a in expression.arguments]
                returned = self.functions[expression.function](*_for_user(expression.arguments, given))
                return fit(_from_user(returned), expression.type)
            case bound.Cast(operand=operand):
                return scalars.cast(value(operand), operand.type, expression.type)
            case bound.Case():
                chosen = (result for condition, result in expression.branches if value(condition) is True)
                return value(next(chosen, expression.otherwise))
            case bound.InSubquery():
                wanted = [value(operand) for operand in expression.operands]
                found = self.rows(expression.query, time, (row, *outer))
                return scalars.any_of(*(scalars.all_of(*map(scalars.equal, wanted, candidate)) for candidate in found))
            case bound.Exists():
                return bool(self.rows(expression.query, time, (row, *outer)))
            case bound.ScalarSubquery():
                found = self.rows(expression.query, time, (row, *outer))
                assert len(found) <= 1, "a query used as a value has at most one row"
                return found[0][0] if found else None
        raise NotImplementedError(type(expression).__name__)


def _without_zeros(bag: Bag) -> Bag:
    return Counter({row: count for row, count in bag.items() if count})


def _correlated(rel: Rel) -> bool:
    """Tell whether an expression anywhere in a (sub)query refers to a row around that query."""
    found = []

    def look(expression: Expr, depth: int) -> None:
        if isinstance(expression, bound.ColumnRef) and expression.depth > depth:
            found.append(expression)

    transform_expressions(rel, look)
    return bool(found)


def _has_subquery(rel: Rel) -> bool:
    return any(bound.has_subquery(expression) for expression in bound.expressions(rel))


def _in_source_order(rel: Rel) -> bool:
    """Tell whether the elements of a stream or window are those of a registered stream, in its order."""
    match rel:
        case bound.StreamScan():
            return True
        case bound.Window() | bound.RelToStream():
            return _in_source_order(rel.input)
        case bound.Filter() | bound.Project():
            return not _has_subquery(rel) and _in_source_order(rel.input)
    return False


def _items(rows: Iterable[Row]) -> list[Item]:
    return [Item(row) for row in rows]


def _window(spec: bound.WindowSpec, elements: list[tuple[int, Row]], time: int) -> list[Item]:
    """Return what a window holds at an instant: section 2.3 of the sheet."""
    past = [(instant, Item(row, at)) for at, (instant, row) in enumerate(elements) if instant <= time]
    match spec:
        case bound.UnboundedSpec():
            held = past
        case bound.RangeSpec(ticks=ticks, slide=slide):
            edge = time if slide is None else time // slide * slide
            held = [(instant, item) for instant, item in past if edge - ticks < instant <= edge]
        case bound.RowsSpec(rows=count):
            held = past[-count:]
        case bound.PartitionRowsSpec(columns=columns, rows=count, ticks=ticks):
            groups: dict[Row, list[tuple[int, Item]]] = {}
            for instant, item in past:
                groups.setdefault(tuple(item.row[c] for c in columns), []).append((instant, item))
            held = [element for group in groups.values() for element in group[-count:]]
            if ticks is not None:
                held = [(instant, item) for instant, item in held if time - ticks < instant]
    return [item for _, item in held]


def _in_stream_order(items: Iterable[Item]) -> list[Item]:
    return sorted(items, key=lambda i: row_order(i.row) if i.origin is None else [(i.origin, None)])


def _surplus(items: Iterable[Item], others: Iterable[Item]) -> list[Item]:
    """Return the bag difference of two relations: among equal rows, the first ones have their match."""
    unmatched = Counter(item.row for item in others)
    surplus = []
    for item in items:
        if unmatched[item.row]:
            unmatched[item.row] -= 1
        else:
            surplus.append(item)
    return surplus


def _chosen(sample: bound.Sample, rows: Sequence[Row]) -> list[bool]:
    """Return which rows are in a sample. Which hash it goes by is no matter of meaning: it is that of the engine."""
    kinds = [arrow_type(column.type) for column in sample.schema]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return [bool(each) for each in sampled(tuple(columns), len(rows), sample.percent)]


def _set_operation(kind: SetKind, keep_all: bool, left: Bag, right: Bag) -> Bag:
    if not keep_all:
        left, right = Counter(set(left)), Counter(set(right))
    match kind:
        case SetKind.UNION:
            return left + right if keep_all else left | right
        case SetKind.EXCEPT:
            return left - right
        case SetKind.INTERSECT:
            return left & right


def _sorted(rows: Iterable[Row], keys: Sequence[SortKey]) -> list[Row]:
    """Return rows in the order of the keys, ties in the order of all columns; sorting is stable."""
    result = sorted(rows, key=row_order)
    for key in reversed(keys):
        result.sort(key=lambda row: order(row[key.column]), reverse=key.descending)
        result.sort(key=lambda row: (row[key.column] is None) != key.nulls_first)
    return result


def _slides(rel: Rel) -> Iterator[int]:
    """Yield the slides of all windows of a query, those of its subqueries as well."""
    if isinstance(rel, bound.Window) and isinstance(rel.spec, bound.RangeSpec) and rel.spec.slide:
        yield rel.spec.slide
    for below in bound.inputs(rel):
        yield from _slides(below)


def _numbered(rows: Iterable[Row], partition: Sequence[int]) -> Iterator[Row]:
    counts: Counter[Row] = Counter()
    for row in rows:
        key = tuple(row[column] for column in partition)
        counts[key] += 1
        yield (*row, counts[key])


def _for_user(arguments: Sequence[Expr], values: Sequence[Value]) -> Iterator[Any]:
    for argument, value in zip(arguments, values, strict=True):
        is_time = argument.type.kind is Kind.TIMESTAMP and value is not None
        yield scalars.to_datetime(value) if is_time else value  # type: ignore[arg-type]


def _from_user(value: Any) -> Any:
    return scalars.from_datetime(value) if isinstance(value, datetime.datetime) else value
