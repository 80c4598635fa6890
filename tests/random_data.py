"""Random finite inputs for the streams and relations of a catalog, and what to do when a case fails.

Values are few (0 to 3, four strings, NULL) and instants close together, so that matches, ties, duplicates, equal
rows exactly a window's length apart, bursts and gaps all happen in a dozen elements. An element is
`(instant, row, sign)`: instants count the ticks of the input's clock (seconds, or microseconds for TIMESTAMP time),
a timestamp column holds its element's instant, and a relation deletes only what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from random import Random

from cql import Catalog
from cql.catalog import ColumnModel, RelationDef, StreamDef
from cql.intervals import TimeDomain
from cql.types import Kind

Value = bool | int | float | Decimal | str | None
Row = tuple[Value, ...]
Data = dict[str, list[tuple[int, Row, int]]]
"""The elements of every input by its name, in source order; those of a static relation have the instant 0."""

SECOND = 1_000_000
NEW_YEAR = 1_767_225_600 * SECOND
"""2026-01-01 in microseconds since 1970."""

INTEGERS = ((0, 1), (1, 2), (0, 1, 2), (0, 1, 2, 3), (0, 1, 1, 1, 2, 3))
"""Of these sets one holds all integers of a case."""

STRINGS = ("a", "b", "ab", "")
DOUBLES = (0.0, 0.5, 1.0, 2.0, -1.5)
ODD_DOUBLES = (-0.0, math.nan, math.inf, -math.inf, 0.1)


def random_data(
    rng: Random,
    catalog: Catalog,
    names: Iterable[str] | None = None,
    most: int = 10,
    odd_values: bool = True,
    bad_removals: bool = False,
) -> Data:
    """Return elements for the streams and relations of a catalog, or for those named, at most `most` each.

    Without `odd_values` there are no NaN, infinities and negative zeros and no integers that overflow. With
    `bad_removals` some logs remove rows that are not there.
    """
    maker = _Data(rng, most, odd_values and rng.random() < 0.08, bad_removals)
    inputs: list[StreamDef | RelationDef] = [*catalog.streams.values(), *catalog.relations.values()]
    wanted = None if names is None else {name.casefold() for name in names}
    return {t.name: maker.elements(t) for t in inputs if wanted is None or t.name.casefold() in wanted}


class _Data:
    """Makes the elements of all inputs of one case on a common pair of timelines."""

    def __init__(self, rng: Random, most: int, odd: bool, bad_removals: bool) -> None:
        self.rng = rng
        self.bad = bad_removals and rng.random() < 0.3
        self.most = most
        self.odd = odd
        self.nulls = rng.choice((0.0, 0.0, 0.1, 0.1, 0.3))
        self.integers = rng.choice(INTEGERS)
        span = rng.choice((1, 4, 8, 8, 12, 20))
        offset = rng.choice((0, 0, 0, 0, 1, 5, -7, 1_000_003, -2_000_000_000))
        # In TIMESTAMP time half seconds, now and then a microsecond off.
        base = rng.choice((NEW_YEAR, NEW_YEAR, NEW_YEAR, 0, -3 * SECOND, NEW_YEAR + 123_457))
        self.timelines = {
            TimeDomain.INTEGER: [offset + tick for tick in range(span + 1)],
            TimeDomain.TIMESTAMP: [
                base + tick * SECOND // 2 + (rng.choice((-1, 1)) if rng.random() < 0.1 else 0)
                for tick in range(span + 1)
            ],
        }
        # An element long after the others lets windows run empty before the end.
        self.late = rng.random() < 0.5
        self.lengths = {
            TimeDomain.INTEGER: (1, 2, 3, 4, 5, 6),
            TimeDomain.TIMESTAMP: (1, SECOND, 3 * SECOND // 2, 2 * SECOND, 3 * SECOND),
        }

    def elements(self, table: StreamDef | RelationDef) -> list[tuple[int, Row, int]]:
        if isinstance(table, StreamDef):
            return self._stream(table)
        if table.time is None:
            return [(0, self._row(table.columns), 1) for _ in range(self._count())]
        return self._log(table, table.time)

    def _count(self) -> int:
        if self.rng.random() < 0.05:
            return 0
        return min(self.most, self.rng.choice((1, 3, 4, 5, 6, 8, self.most)))

    def _instants(self, clock: TimeDomain, count: int) -> list[int]:
        """Return instants in order; often several elements share one, now and then all of them do."""
        if not count:
            return []
        timeline = self.timelines[clock]
        different = min(len(timeline), max(1, round(count * self.rng.choice((0.1, 0.5, 0.8, 1.0)))))
        chosen = self.rng.sample(timeline, different)
        return sorted(chosen + [self.rng.choice(chosen) for _ in range(count - different)])

    def _stream(self, table: StreamDef) -> list[tuple[int, Row, int]]:
        stamp = next((at for at, c in enumerate(table.columns) if c.name == table.timestamp), None)
        count = self._count()
        rows = [(instant, self._row(table.columns)) for instant in self._instants(table.time, count)]
        if rows and count < self.most and self.rng.random() < 0.5:
            instant, row = self.rng.choice(rows)
            rows.append((instant + self.rng.choice(self.lengths[table.time]), row))
            rows.sort(key=lambda element: element[0])
        if self.late:
            self.late = False
            rows.append((self.timelines[table.time][-1] + 5 * self.lengths[table.time][1], self._row(table.columns)))
        return [
            (instant, row if stamp is None else (*row[:stamp], instant, *row[stamp + 1 :]), 1) for instant, row in rows
        ]

    def _log(self, table: RelationDef, clock: TimeDomain) -> list[tuple[int, Row, int]]:
        held: list[Row] = []
        log = []
        for instant in self._instants(clock, self._count()):
            if self.bad and self.rng.random() < 0.3:
                log.append((instant, self.rng.choice(log)[1] if log else self._row(table.columns), -1))
            elif held and self.rng.random() < 0.4:
                log.append((instant, held.pop(self.rng.randrange(len(held))), -1))
            else:
                held.append(self._row(table.columns))
                log.append((instant, held[-1], 1))
        return log

    def _row(self, columns: Sequence[ColumnModel]) -> Row:
        return tuple(self._value(column) for column in columns)

    def _value(self, column: ColumnModel) -> Value:
        rng = self.rng
        if column.nullable and rng.random() < self.nulls:
            return None
        odd = self.odd and rng.random() < 0.3
        match column.type.kind:
            case Kind.BOOLEAN:
                return rng.random() < 0.5
            case Kind.BYTE | Kind.INT | Kind.BIGINT:
                return 2**31 - 1 if odd and column.type.kind is not Kind.BYTE else rng.choice(self.integers)
            case Kind.DECIMAL:
                return Decimal(rng.choice(self.integers))
            case Kind.DOUBLE:
                return rng.choice(ODD_DOUBLES if odd else DOUBLES)
            case Kind.TIMESTAMP:
                return rng.choice(self.timelines[TimeDomain.TIMESTAMP])
            case _:
                return rng.choice(STRINGS)


# ------------------------------------------------------------------------------------------------- failing cases


def minimise(data: Mapping[str, Sequence[tuple[int, Row, int]]], fails: Callable[[Data], bool]) -> Data:
    """Return a smallest part of the data on which a test still fails: no element can be left out.

    A row and its deletion are left out together. `fails` must not raise.
    """
    smallest = {name: list(elements) for name, elements in data.items()}
    shrunk = True
    while shrunk:
        shrunk = False
        for name in smallest:
            at = len(smallest[name]) - 1
            while at >= 0:
                fewer = smallest | {name: _without(smallest[name], at)}
                if fails(fewer):
                    smallest, shrunk = fewer, True
                at = min(at, len(smallest[name])) - 1
    return smallest


def _without(elements: Sequence[tuple[int, Row, int]], at: int) -> list[tuple[int, Row, int]]:
    """Return a log without an element; without an insertion, its deletion goes too if it would have no match."""
    kept = [element for index, element in enumerate(elements) if index != at]
    balance: dict[str, int] = {}
    result = []
    for instant, row, sign in kept:
        held = balance.get(repr(row), 0) + sign
        if held < 0:
            continue
        balance[repr(row)] = held
        result.append((instant, row, sign))
    return result


def report(query: str, data: Mapping[str, Sequence[tuple[int, Row, int]]], **parts: str) -> str:
    """Return a failing case for people: the query, the parts (plans, differing results), and the data."""
    lines = ["", query]
    for title, text in parts.items():
        lines += ["", f"{title.replace('_', ' ')}:", *("  " + line for line in text.splitlines())]
    lines += ["", "data:"]
    for name, elements in data.items():
        lines.append(f"  {name}: {list(elements)}")
    return "\n".join(lines)
