"""Worked instants: what queries yield, instant by instant, as a table that reads as plain text and can be checked.

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
`12:00:00.5` on the clock of TIMESTAMP. Every instant at which a query says something new has a line. Inputs are the
author's; what stands in other columns is checked against the definitional evaluator, as bags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from cql import Catalog, bind, bound
from cql.catalog import RelationDef, StreamDef
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
    """The cells of a table by line; `instants` has the first column of it."""

    columns: tuple[str, ...]
    instants: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    def column(self, at: int) -> dict[str, str]:
        return {instant: line[at] for instant, line in zip(self.instants, self.cells, strict=True)}


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
    return text[: heading.start()] + _written(_answered(table, catalog))


# Tables as text


def _parsed(text: str) -> Table:
    first, *lines = (line for line in text.splitlines() if line.strip())
    columns = _cells(first)[1:]
    if lines and re.fullmatch(r"[-+ |]+", lines[0]):
        lines = lines[1:]
    parts = [_cells(line) for line in lines]
    padded = [(*line, *("",) * (len(columns) + 1 - len(line))) for line in parts]
    for line in padded:
        if len(line) != len(columns) + 1:
            raise BadTable(f"the line at {line[0]} has {len(line)} cells, the heading {len(columns) + 1}")
    if len({line[0] for line in padded}) < len(padded):
        raise BadTable("an instant has two lines")
    return Table(columns, tuple(line[0] for line in padded), tuple(line[1:] for line in padded))


def _cells(line: str) -> tuple[str, ...]:
    """Return the cells of a line; `||` is an operator, not a border."""
    return tuple(cell.strip() for cell in re.split(r"(?<!\|)\|(?!\|)", line))


def _written(table: Table) -> str:
    names = ("at", *table.columns)
    lines = [(instant, *cells) for instant, cells in zip(table.instants, table.cells, strict=True)]
    widths = [max(len(line[at]) for line in (names, *lines)) for at in range(len(names))]

    def row(line: tuple[str, ...]) -> str:
        first, *rest = line
        cells = [first.rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        return " " + " | ".join(cells).rstrip()

    border = "+".join("-" * (width + 2) for width in widths[:-1]) + "+" + "-" * (widths[-1] + 1)
    return "\n".join([row(names), border, *map(row, lines)]) + "\n"


# What should stand in a table


def _answered(table: Table, catalog: Catalog) -> Table:
    data: dict[str, list[Element]] = {}
    inputs: dict[int, Callable[[int], str]] = {}
    for at, name in enumerate(table.columns):
        found = catalog.streams.get(name.casefold()) or catalog.relations.get(name.casefold())
        if found:
            data[found.name] = list(_elements(table.column(at), found))
    outputs: dict[int, tuple[bound.Rel, Result]] = {}
    for at, name in enumerate(table.columns):
        tree = _query(name.removeprefix(CHANGES), catalog)
        if name not in data:
            given = {scan.name: _of(data, scan.name) for scan in bound.scans(tree)}
            outputs[at] = tree, evaluate(tree, given, user_code(catalog))
    if not outputs:
        raise BadTable("no column of this table is a query")
    clock = next((tree.time for tree, _ in outputs.values() if tree.time), None)
    spoken = {instant for _, result in outputs.values() for instant in result.changes}
    written = {_instant(text) for text in table.instants if text != ALWAYS}
    shown = _day_time if clock and clock.name == "TIMESTAMP" else str
    given_lines = dict(zip((_instant(t) if t != ALWAYS else None for t in table.instants), table.cells, strict=True))

    def line(instant: int | None) -> tuple[str, ...]:
        given = given_lines.get(instant, ("",) * len(table.columns))
        answers = []
        for at, name in enumerate(table.columns):
            if at not in outputs:
                answers.append(given[at] or NOTHING)
            elif instant is None:
                answers.append("")
            else:
                tree, result = outputs[at]
                wanted = _rows_text(result, tree, instant, changes=name.startswith(CHANGES))
                answers.append(_kept(given[at], wanted))
        return tuple(answers)

    instants: list[int | None] = [None] if ALWAYS in table.instants else []
    instants += sorted(written | spoken)
    return Table(table.columns, tuple(ALWAYS if i is None else shown(i) for i in instants), tuple(map(line, instants)))


def _of(data: Mapping[str, list[Element]], name: str) -> list[Element]:
    if name not in data:
        raise BadTable(f"the table has no column for the input {name}")
    return data[name]


def _query(text: str, catalog: Catalog) -> bound.Rel:
    registered = catalog.queries.get(text.casefold())
    return registered.tree if registered else bind(text, catalog)


def _rows_text(result: Result, tree: bound.Rel, instant: int, changes: bool) -> list[str]:
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
    words = [] if given == NOTHING else [re.sub(r",\s+", ",", word) for word in _WORD.findall(given)]
    same = Counter(words) == Counter(wanted) and bool(given)
    return " ".join(words if same else wanted) or NOTHING


# Elements and rows as text


def _elements(cells: Mapping[str, str], table: StreamDef | RelationDef) -> Iterable[Element]:
    schema = table.scan().schema
    named = next((at for at, f in enumerate(schema) if isinstance(table, StreamDef) and f.name == table.timestamp), None)
    static = isinstance(table, RelationDef) and table.time is None
    types = [column.type for at, column in enumerate(schema) if at != named]
    for when, cell in cells.items():
        if cell in ("", NOTHING):
            continue
        if static != (when == ALWAYS):
            raise BadTable(f"the rows of {table.name} stand {'only' if static else 'not'} at `{ALWAYS}`")
        instant = 0 if static else _instant(when)
        for word in _WORD.findall(cell):
            sign = -1 if word[0] == "-" and isinstance(table, RelationDef) else +1
            signed = isinstance(table, RelationDef) and not static
            row = _row(word[1:] if signed else word, types, table.name)
            if named is not None:
                row = (*row[:named], instant, *row[named:])
            yield instant, row, sign


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
