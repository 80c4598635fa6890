"""What all readers share: the layout of a table's files, and what happens to rows that do not fit it.

A reader turns a part of a file into a `FileChunk`: typed arrays, and marks on the values that are none of their type.
`Intake` turns chunks into `SourceRows`. A row is bad if a value is none of its type, if a NULL stands where none may
be, if it has no instant or no sign, if its instant is too far ahead, or if it is no row at all. Bad rows end the run or
are left out and counted; they are looked at one by one only to say what is wrong with the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql import types as t
from cql.catalog import ColumnModel, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.intervals import TimeDomain, duration_text
from cql.settings import OnBadRow
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, FOREVER, Columns, Ints, Mask, take
from runtime.connectors.ahead import ahead_of_clock, ahead_of_stream

INSTANT = ColumnModel(name="", type=t.BIGINT, nullable=False)
SIGN = ColumnModel(name="", type=t.STRING, nullable=False)
"""The first columns of STREAM's form, which have no names."""

_SIGNS = ("+", "-", "1", "-1")
_SIGN_VALUES = np.array([1, -1, 1, -1], np.int64)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source in the order of the source; `signs` None: all are added."""

    columns: Columns
    instants: Ints
    signs: Ints | None = None

    def __len__(self) -> int:
        return len(self.instants)

    def chosen(self, indices: Ints) -> SourceRows:
        """Return some of the rows."""
        signs = None if self.signs is None else self.signs[indices]
        return SourceRows(take(self.columns, indices), self.instants[indices], signs)


def no_rows(table: StreamDef | RelationDef) -> SourceRows:
    """Return no rows of a table."""
    none = np.empty(0, np.int64)
    columns = tuple(pa.nulls(0, arrow_type(column.type)) for column in table.columns)
    return SourceRows(columns, none, none if layout_of(table).sign is not None else None)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a table's files, and which of them are the table's, its instant and its sign."""

    table: str
    fields: tuple[ColumnModel, ...]
    payload: tuple[int, ...]
    instant: int | None = None
    sign: int | None = None
    ahead: int | None = None
    """By how many ticks instants may be ahead, if there is a limit."""

    @property
    def time(self) -> TimeDomain:
        """The clock of the instants."""
        assert self.instant is not None, "the table has no instants"
        return TimeDomain.TIMESTAMP if self.fields[self.instant].type.kind is t.Kind.TIMESTAMP else TimeDomain.INTEGER

    @property
    def is_named(self) -> bool:
        """Whether all columns can be found by name."""
        return all(column.name for column in self.fields)

    def check_named(self, format_name: str) -> None:
        """Raise if a column has no name by which it could be found."""
        if not self.is_named:
            raise fail(
                Code.BAD_DEFINITION,
                f"the timestamp of '{self.table}' has no name, and columns of {format_name} are found by name",
                hint="define it by CREATE .. TIMESTAMP BY column",
            )

    def title(self, at: int) -> str:
        """Return what messages call a column."""
        name = self.fields[at].name
        return (
            f"the column '{name}'" if name else f"column {at + 1}, the {'timestamp' if at == self.instant else 'sign'}"
        )


def layout_of(table: StreamDef | RelationDef) -> RowLayout:
    """Return how the files of a table are laid out.

    >>> from cql import Catalog
    >>> catalog = Catalog()
    >>> catalog.execute("REGISTER RELATION R (A INT)")
    >>> layout = layout_of(catalog.relations["r"])
    >>> layout.instant, layout.sign, layout.payload
    (0, 1, (2,))
    """
    return replace(_layout_of(table), ahead=table.ahead)


def _layout_of(table: StreamDef | RelationDef) -> RowLayout:
    columns = table.columns
    if isinstance(table, StreamDef):
        if table.timestamp is None:
            return RowLayout(table.name, (INSTANT, *columns), _positions(columns, 1), 0)
        at = [column.name for column in columns].index(table.timestamp)
        return RowLayout(table.name, columns, _positions(columns, 0), at)
    if table.time is None:
        return RowLayout(table.name, columns, _positions(columns, 0))
    if table.timestamp is None or table.sign is None:
        return RowLayout(table.name, (INSTANT, SIGN, *columns), _positions(columns, 2), 0, 1)
    named = {column.name: column for column in (table.timestamp, table.sign, *columns)}
    place = {name: at for at, name in enumerate(table.declared)}
    return RowLayout(
        table.name,
        tuple(named[name] for name in table.declared),
        tuple(place[column.name] for column in columns),
        place[table.timestamp.name],
        place[table.sign.name],
    )


def _positions(columns: Sequence[ColumnModel], first: int) -> tuple[int, ...]:
    return tuple(range(first, first + len(columns)))


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no row."""

    number: int
    what: str
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class FileChunk:
    """A part of a file: an array for each column, NULL where a value is none of its type and `bad` is true.

    `numbers` returns where in the file each row stands, `raw` a value as it is written there. `now` is what the clock
    on the wall showed, in microseconds, when the rows were found; None: they come just now.
    """

    file: str
    unit: Literal["line", "row"]
    arrays: Sequence[pa.Array]
    bad: dict[int, Mask]
    numbers: Callable[[], Ints]
    raw: Callable[[int, int], str]
    malformed: Sequence[Malformed] = ()
    now: int | None = None

    @property
    def length(self) -> int:
        """How many rows there are, good and bad."""
        return len(self.arrays[0])


class Intake:
    """Makes rows of chunks; `skipped` counts the bad rows that were left out, `newest` is the latest instant so far."""

    def __init__(self, layout: RowLayout, on_bad_row: OnBadRow, newest: int | None = None) -> None:
        self.layout = layout
        self.skipped = 0
        self.newest = newest
        self._on_bad_row = on_bad_row

    def take(self, chunk: FileChunk) -> SourceRows:
        """Return the good rows of a chunk; raises for the first bad one if that is asked for."""
        layout = self.layout
        bad = dict(chunk.bad)
        instants = np.full(chunk.length, BEGINNING, np.int64)
        signs = None
        if layout.instant is not None:
            instants, outside = _instants(chunk.arrays[layout.instant])
            _mark(bad, layout.instant, outside)
        if layout.sign is not None:
            signs, unknown = _signs(chunk.arrays[layout.sign])
            _mark(bad, layout.sign, unknown)
        for at, column in enumerate(layout.fields):
            if not column.nullable and chunk.arrays[at].null_count:
                _mark(bad, at, _nulls(chunk.arrays[at]))
        if layout.instant is not None and layout.ahead is not None:
            _mark(bad, layout.instant, self._ahead(chunk, instants, bad))
        rows = SourceRows(tuple(chunk.arrays[at] for at in layout.payload), instants, signs)
        if not bad and not chunk.malformed:
            return rows
        if self._on_bad_row == "fail":
            raise self._failure(chunk, bad)
        good = ~np.logical_or.reduce(list(bad.values())) if bad else np.ones(chunk.length, np.bool_)
        self.skipped += len(chunk.malformed) + chunk.length - int(good.sum())
        return rows.chosen(np.flatnonzero(good))

    def _ahead(self, chunk: FileChunk, instants: Ints, bad: Mapping[int, Mask]) -> Mask:
        """Return which rows are too far ahead; those that are bad anyway count for nothing."""
        most = self.layout.ahead
        assert most is not None
        if self.layout.time is TimeDomain.TIMESTAMP:
            now = time.time_ns() // 1000 if chunk.now is None else chunk.now
            return ahead_of_clock(instants, now, most)
        if bad:
            instants = np.where(np.logical_or.reduce(list(bad.values())), BEGINNING, instants)
        newest = BEGINNING if self.newest is None else self.newest
        found = ahead_of_stream(instants, newest, most)
        newest = max(newest, int(np.where(found, BEGINNING, instants).max(initial=BEGINNING)))
        self.newest = None if newest == BEGINNING else newest
        return found

    def _failure(self, chunk: FileChunk, bad: dict[int, Mask]) -> CqlError:
        """Return the error about the first bad row of a chunk."""
        found = [(line.number, line.what, line.is_cut_off) for line in chunk.malformed]
        for at, mask in bad.items():
            row = int(mask.argmax())
            found.append((int(chunk.numbers()[row]), self._complaint(chunk, at, row), False))
        number, what, is_cut_off = min(found)
        remedy = "the file seems to be cut off; write it again" if is_cut_off else f"correct the {chunk.unit}"
        if what.endswith(_AHEAD):
            remedy = f"{remedy}, let rows be further ahead: SET max_ahead = off"
        return fail(
            Code.BAD_DATA,
            f"{chunk.file}, {chunk.unit} {number}: {what}",
            hint=f"{remedy}, or leave bad rows out: SET on_bad_row = skip",
        )

    def _complaint(self, chunk: FileChunk, at: int, row: int) -> str:
        title = self.layout.title(at)
        is_bad = at in chunk.bad and bool(chunk.bad[at][row])
        if not is_bad and not chunk.arrays[at][row].is_valid:
            return f"{title} is NULL" + (", and a row needs its instant" if at == self.layout.instant else "")
        value = _short(chunk.raw(at, row))
        if at == self.layout.sign:
            return f"{title} is {value}, and a sign is +, -, 1 or -1"
        if at == self.layout.instant and not is_bad:
            if _instants(chunk.arrays[at].slice(row, 1))[1].all():
                return f"{title} is {value}, which no instant can be"
            return f"{title} is {value}, {ahead_text(self.layout)}"
        return f"{title} is {self.layout.fields[at].type}, and {value} is not"


_AHEAD = "as SET max_ahead has it"


def ahead_text(layout: RowLayout) -> str:
    """Return what is to be said of a row that is too far ahead."""
    assert layout.ahead is not None
    of = "the clock" if layout.time is TimeDomain.TIMESTAMP else "the rows before it"
    return f"more than {duration_text(layout.ahead, layout.time)} ahead of {of}, {_AHEAD}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "..")


def _mark(bad: dict[int, Mask], at: int, mask: Mask) -> None:
    if mask.any():
        bad[at] = mask | bad[at] if at in bad else mask


def _nulls(array: pa.Array) -> Mask:
    return np.asarray(array.is_null())


def _instants(array: pa.Array) -> tuple[Ints, Mask]:
    """Return instants as numbers, and where they are NULL or beyond all instants."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    values = np.asarray(array.cast(pa.int64()).fill_null(BEGINNING))
    return values, (values == BEGINNING) | (values == FOREVER)


def _signs(array: pa.Array) -> tuple[Ints, Mask]:
    """Return signs as 1 and -1, and where they are something else."""
    texts = pc.utf8_trim_whitespace(array.cast(pa.string()))
    found = np.asarray(pc.index_in(texts, pa.array(_SIGNS)).fill_null(-1))
    return _SIGN_VALUES[found], found < 0
