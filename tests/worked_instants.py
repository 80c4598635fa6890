"""Worked instants: what queries yield, instant by instant, as a table that people read and tests check.

A block has statements, then a table. Time goes down; a column is an input or a query:

    REGISTER STREAM S (k STRING, v INT);

     at | S           | S [Rows 2]
    ----+-------------+-------------
      1 | (a,1)       | (a,1)
      2 | (b,2) (a,3) | (a,3) (b,2)

| heading | cells |
|---|---|
| a stream | the elements that arrive; a named timestamp column is left out, `at` says it |
| a relation | its changes, `+(1,x) -(2,y)`; of a static one its rows, at the instant `always` |
| a query, or the name of one or of a view | of a stream its elements, of a relation its contents |
| `changes of` a query | the changes of a relation |

Rows of one column go without parentheses, and `-` is nothing. Instants are integers, or times of day such as
`12:00:00.5` on the clock of TIMESTAMP. Every instant at which a query says something new has a line.
Inputs are the author's; what stands in other columns is checked against the definitional evaluator, as bags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from cql import Catalog, bind, bound
from cql.catalog import RelationDef, StreamDef
from cql.intervals import TimeDomain
from cql.session import Session
from cql.types import DataType, Kind
from tests.definition import Element, Result, Row, Value, evaluate, user_code
from tests.definition.values import row_order

NOTHING = "-"
ALWAYS = "always"
CHANGES = "changes of "

_HEADING = re.compile(r"^ *at *\|.*$", re.MULTILINE)
_WORD = re.compile(r"[+-]?\([^()]*\)|\S+")
_DAY_TIME = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_SECOND = 1_000_000


class BadTable(ValueError):
    """A table that cannot be read; the message says why."""


@dataclass(frozen=True)
class Table:
    """The cells of each instant, in columns; the instant None stands for always."""

    columns: tuple[str, ...]
    lines: dict[int | None, tuple[str, ...]]

    def column(self, at: int) -> dict[int | None, str]:
        return {instant: cells[at] for instant, cells in self.lines.items()}


def worked(text: str, functions: Catalog | None = None) -> str:
    """Return a block with its table as it should be; `functions` has the user functions that it may call."""
    heading = _HEADING.search(text)
    if not heading:
        raise BadTable("there is no table: its heading starts with `at |`")
    catalog = Catalog()
    if functions:
        catalog = Catalog(functions=functions.functions, aggregates=functions.aggregates)
    Session(catalog).run(text[: heading.start()])
    table = _parsed(text[heading.start() :])
    day_times = any(stream.time is TimeDomain.TIMESTAMP for stream in catalog.streams.values())
    return text[: heading.start()] + _written(_answered(table, catalog), _day_time if day_times else str)


# Tables as text


def _parsed(text: str) -> Table:
    first, *lines = (line for line in text.splitlines() if line.strip())
    columns = _cells(first)[1:]
    if lines and re.fullmatch(r"[-+ |]+", lines[0]):
        lines = lines[1:]
    found: dict[int | None, tuple[str, ...]] = {}
    for line in lines:
        when, *cells = _cells(line)
        instant = None if when == ALWAYS else _instant(when)
        if instant in found:
            raise BadTable(f"the instant {when} has two lines")
        if len(cells) > len(columns):
            raise BadTable(f"the line at {when} has more cells than the heading")
        found[instant] = (*cells, *[""] * (len(columns) - len(cells)))
    return Table(columns, found)


def _cells(line: str) -> tuple[str, ...]:
    """Return the cells of a line; `||` is an operator, not a border."""
    return tuple(cell.strip() for cell in re.split(r"(?<!\|)\|(?!\|)", line))


def _written(table: Table, shown: Callable[[int], str]) -> str:
    names = ("at", *table.columns)
    lines = [(ALWAYS if at is None else shown(at), *cells) for at, cells in table.lines.items()]
    widths = [max(len(line[at]) for line in (names, *lines)) for at in range(len(names))]

    def row(line: tuple[str, ...]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        return " " + " | ".join([line[0].rjust(widths[0]), *padded[1:]]).rstrip()

    border = "+".join("-" * (width + 2) for width in widths[:-1]) + "+" + "-" * (widths[-1] + 1)
    return "\n".join([row(names), border, *map(row, lines)]) + "\n"


# What should stand in a table


def _answered(table: Table, catalog: Catalog) -> Table:
    inputs = {
        at: found
        for at, name in enumerate(table.columns)
        if (found := catalog.streams.get(name.casefold()) or catalog.relations.get(name.casefold()))
    }
    data = {found.name: list(_elements(table.column(at), found)) for at, found in inputs.items()}
    arrivals = [word for at in inputs for cell in table.column(at).values() for word in _words(cell)]
    outputs = {at: _output(name, catalog, data) for at, name in enumerate(table.columns) if at not in inputs}
    if not outputs:
        raise BadTable("no column of this table is a query")
    spoken = {instant for _, result in outputs.values() for instant in result.changes}
    instants: list[int | None] = [None] if None in table.lines else []
    instants += sorted(spoken.union(instant for instant in table.lines if instant is not None))

    def line(instant: int | None) -> tuple[str, ...]:
        given = table.lines.get(instant, ("",) * len(table.columns))
        cells = []
        for at, name in enumerate(table.columns):
            if at in outputs and instant is not None:
                wanted = _rows_text(*outputs[at], instant, changes=name.startswith(CHANGES))
                in_order = sorted(wanted, key=arrivals.index) if set(wanted) <= set(arrivals) else wanted
                cells.append(_kept(given[at], in_order))
            else:
                cells.append(given[at] or ("" if instant is None else NOTHING))
        return tuple(cells)

    return Table(table.columns, {instant: line(instant) for instant in instants})


def _output(name: str, catalog: Catalog, data: Mapping[str, list[Element]]) -> tuple[bound.Rel, Result]:
    """Return the query that a heading means, and what it yields."""
    text = name.removeprefix(CHANGES)
    registered = catalog.queries.get(text.casefold())
    tree = registered.tree if registered else bind(text, catalog)
    given = {scan.name: _of(data, scan.name) for scan in bound.scans(tree)}
    return tree, evaluate(tree, given, user_code(catalog), closes_windows=catalog.settings.end == "close")


def _of(data: Mapping[str, list[Element]], name: str) -> list[Element]:
    if name not in data:
        raise BadTable(f"the table has no column for the input {name}")
    return data[name]


def _rows_text(tree: bound.Rel, result: Result, instant: int, changes: bool) -> list[str]:
    """Return what a query shows at an instant, in the order of the rows."""
    if tree.is_stream or changes:
        bag = result.changes.get(instant, Counter())
    else:
        bag = result.relation_at(instant)
    signed = changes and not tree.is_stream
    types = [column.type for column in tree.schema]
    words = []
    for row in sorted(bag, key=lambda row: (bag[row] > 0, row_order(row))):
        sign = ("+" if bag[row] > 0 else "-") if signed else ""
        words += [sign + _row_text(row, types)] * abs(bag[row])
    return words


def _kept(given: str, wanted: list[str]) -> str:
    """Return what is wanted, in the author's words if they say the same."""
    words = _words(given)
    return " ".join(words if Counter(words) == Counter(wanted) else wanted) or NOTHING


def _words(cell: str) -> list[str]:
    return [] if cell == NOTHING else [re.sub(r",\s+", ",", word) for word in _WORD.findall(cell)]


# Elements and rows as text


def _elements(cells: Mapping[int | None, str], table: StreamDef | RelationDef) -> Iterable[Element]:
    schema = table.scan().schema
    named = table.scan().timestamp if isinstance(table, StreamDef) else None
    types = [column.type for at, column in enumerate(schema) if at != named]
    static = table.time is None
    signed = isinstance(table, RelationDef) and not static
    for instant, cell in cells.items():
        words = _words(cell)
        if words and static != (instant is None):
            raise BadTable(f"the rows of {table.name} stand {'only' if static else 'not'} at `{ALWAYS}`")
        for word in words:
            if signed and word[0] not in "+-":
                raise BadTable(f"{word} is a change of {table.name} and has no sign")
            row = _row(word[1:] if signed else word, types, table.name)
            if named is not None:
                row = (*row[:named], instant, *row[named:])
            yield instant or 0, row, -1 if signed and word[0] == "-" else +1


def _row(word: str, types: list[DataType], owner: str) -> Row:
    inside = word[1:-1] if word.startswith("(") else word
    parts = [part.strip() for part in inside.split(",")]
    if len(parts) != len(types):
        raise BadTable(f"{word} has {len(parts)} values, {owner} has {len(types)} columns")
    return tuple(_value(part, data_type) for part, data_type in zip(parts, types, strict=True))


def _row_text(row: Row, types: list[DataType]) -> str:
    values = [_value_text(value, data_type) for value, data_type in zip(row, types, strict=True)]
    return values[0] if len(values) == 1 else f"({','.join(values)})"


def _value(text: str, data_type: DataType) -> Value:
    if text == "NULL":
        return None
    match data_type.kind:
        case Kind.STRING:
            return text
        case Kind.BOOLEAN:
            return text == "true"
        case Kind.TIMESTAMP:
            return _instant(text)
        case Kind.DOUBLE:
            return float(text)
        case Kind.DECIMAL:
            return Decimal(text)
    return int(text)


def _value_text(value: Value, data_type: DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if data_type.kind is Kind.TIMESTAMP and isinstance(value, int):
        return _day_time(value)
    return str(value)


def _instant(text: str) -> int:
    """Return an instant: a number, or a time of day as microseconds."""
    time = _DAY_TIME.fullmatch(text)
    if time:
        hours, minutes, seconds = (int(part) for part in time.groups()[:3])
        return ((hours * 60 + minutes) * 60 + seconds) * _SECOND + int((time[4] or "").ljust(6, "0"))
    if not re.fullmatch(r"-?\d+", text):
        raise BadTable(f"'{text}' is not an instant")
    return int(text)


def _day_time(instant: int) -> str:
    seconds, fraction = divmod(instant, _SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text
