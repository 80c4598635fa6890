"""Text files: csv, and the data files of STREAM, read in blocks of whole lines.

A line is a row, as in Spark. Arrow splits a block into columns of text, and `values` makes values of them; lines with
the wrong number of columns or with a quote that is not closed are no rows. Columns go by position.

| in csv | means |
|---|---|
| an empty field | NULL, also for STRING and between quotes, unless another `nullValue` is given |
| `"..."` | may hold separators; in it `""` and `\\"` are a quote, and `\\\\` is a backslash |
| `header 'true'` | the first line of every file is passed over |
| a number, truth value or timestamp | is read as CAST reads a text, with white space around it, no control characters |

A data file of STREAM starts with a line that gives the type of each column: `i`, `f`, `b` or `cN`. It has no quotes,
no NULLs, and an empty field is an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cql.types import STRING
from runtime.columns.batch import Ints, Mask
from runtime.connectors.csv import CsvOptions
from runtime.connectors.intake import FileChunk, Malformed, RowLayout
from runtime.connectors.paths import damaged, reading
from runtime.connectors.values import decoded, from_text

ROWS = 65_536
"""About how many rows are read at a time."""

_FIRST_BLOCK, _SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 20, 1 << 18, 1 << 24
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SIGNATURE = re.compile(r"[if]|b|c\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, the number of the first, and how many there are."""

    text: bytes
    first: int
    count: int

    @classmethod
    def of(cls, text: bytes, first: int) -> Block:
        if b"\r" in text:
            return cls(text, first, len(text.splitlines()))
        return cls(text, first, text.count(b"\n") + (not text.endswith(b"\n")))

    def lines(self) -> list[bytes]:
        return self.text.splitlines()


def blocks(path: Path) -> Iterator[Block]:
    """Yield a file in blocks of about `ROWS` lines; what is compressed is decompressed."""
    size, first = _FIRST_BLOCK, 1
    start: list[bytes] = []
    with reading(path), _opened(path) as file:
        data = file.read(size).removeprefix(_BYTE_ORDER_MARK)
        while data:
            following = file.read(size)
            end = data.rfind(b"\n") + 1 if following else len(data)
            if end:
                block = Block.of(b"".join([*start, data[:end]]), first)
                yield block
                first += block.count
                size = min(max(len(block.text) // block.count * ROWS, _SMALLEST_BLOCK), _LARGEST_BLOCK)
                start = []
            start.append(data[end:])
            data = following


def _opened(path: Path) -> pa.NativeFile:
    # A pipe has no length, which Arrow asks a file for that it opens itself.
    source = path.open("rb", buffering=0) if path.is_fifo() else str(path)
    return pa.input_stream(source, compression="detect", buffer_size=0)


@dataclass(frozen=True, slots=True)
class TextDialect:
    """How lines are split into fields; without a quote nothing is quoted."""

    separator: str = ","
    quote: str | None = None
    escape: str | None = None
    null: str | None = None

    def unescaped(self, text: bytes) -> bytes:
        """Return lines whose escaped quotes are doubled instead, as Arrow reads them."""
        quote, escape = (self.quote or "").encode(), (self.escape or "").encode()
        if not quote or not escape or quote == escape or escape not in text or quote not in text:
            return text
        q, e, s = re.escape(quote), re.escape(escape), re.escape(self.separator.encode())
        inside = rb"(?:[^%b%b\r\n]|%b[^\r\n]|%b%b)*" % (q, e, e, q, q)
        fields = re.compile(rb"(?<![^%b\r\n])%b(%b)%b" % (s, q, inside, q))
        escapes = re.compile(rb"%b([%b%b])" % (e, q, e))

        def doubled(found: re.Match[bytes]) -> bytes:
            return quote * 2 if found[1] == quote else escape

        return fields.sub(lambda field: quote + escapes.sub(doubled, field[1]) + quote, text)

    def is_open(self, line: bytes) -> bool:
        """Return whether a quote is opened and not closed in a line: whether one is left without the quoted fields."""
        if not self.quote or self.quote.encode() not in line:
            return False
        q, s = re.escape(self.quote.encode()), re.escape(self.separator.encode())
        opening = rb"(?<![^%b])%b" % (s, q)
        rest = re.sub(rb"%b(?:[^%b]|%b%b)*%b" % (opening, q, q, q, q), b"", line)
        return re.search(opening, rest) is not None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a block by column, as bytes, and where its rows and other lines stand."""

    columns: tuple[pa.Array, ...]
    malformed: tuple[Malformed, ...]
    block: Block
    skipped: frozenset[int]

    def numbers(self) -> Ints:
        """Return the number of the line of each row."""
        skipped = self.skipped | {line.number for line in self.malformed}
        found = [at for at, line in enumerate(self.block.lines(), self.block.first) if line and at not in skipped]
        return np.array(found, np.int64)


def split(block: Block, dialect: TextDialect, width: int) -> Fields:
    """Return the fields of a block."""
    block = replace(block, text=dialect.unescaped(block.text))
    columns, uneven = _split_by_arrow(block.text, dialect, width)
    rows = len(columns[0]) + len(uneven)
    lines = block.lines() if uneven or rows != block.count else []
    full = [at for at, line in enumerate(lines, block.first) if line]
    if (lines and rows != len(full)) or dialect.is_open(_last_line(block.text)):
        return _split_around_quotes(block, dialect, width)
    return _fields(columns, block, {full[at]: found for at, found in uneven.items()}, lines)


def _last_line(text: bytes) -> bytes:
    return text.rstrip(b"\r\n").rpartition(b"\n")[2].rpartition(b"\r")[2]


def _split_around_quotes(block: Block, dialect: TextDialect, width: int) -> Fields:
    """Return the fields of a block in which a quote runs over the end of a line; such lines are no rows."""
    lines = block.lines()
    opened = {at for at, line in enumerate(lines, block.first) if dialect.is_open(line)}
    kept = [(at, line) for at, line in enumerate(lines, block.first) if line and at not in opened]
    columns, uneven = _split_by_arrow(b"\n".join(line for _, line in kept), dialect, width)
    fields = _fields(columns, block, {kept[at][0]: found for at, found in uneven.items()}, lines)
    broken = tuple(Malformed(at, "a quote is opened and not closed in the line") for at in sorted(opened))
    return replace(fields, malformed=fields.malformed + broken)


def _fields(columns: tuple[pa.Array, ...], block: Block, uneven: dict[int, int], lines: list[bytes]) -> Fields:
    """Return the fields of a block, given the number of fields of uneven lines; those that are blank are no rows."""
    width = len(columns)
    blank = frozenset(at for at in uneven if not lines[at - block.first].strip())
    last = block.first + len(lines) - 1
    malformed = [
        Malformed(at, _miscounted(width, found), at == last and found < width and not block.text.endswith(b"\n"))
        for at, found in uneven.items()
        if at not in blank
    ]
    return Fields(columns, tuple(malformed), block, blank)


def _miscounted(width: int, found: int) -> str:
    columns = "1 column is" if width == 1 else f"{width} columns are"
    return f"{columns} declared, and the line has {found}"


def _split_by_arrow(text: bytes, dialect: TextDialect, width: int) -> tuple[tuple[pa.Array, ...], dict[int, int]]:
    """Return columns of bytes, and the lines that have another number of fields, by their place among the full ones."""
    uneven: dict[int, int] = {}

    def note(row: csv.InvalidRow) -> str:
        uneven[row.number - 1] = row.actual_columns
        return "skip"

    names = [str(at) for at in range(width)]
    if not text:
        return tuple(pa.nulls(0, pa.binary()) for _ in names), uneven
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        csv.ParseOptions(delimiter=dialect.separator, quote_char=dialect.quote or False, invalid_row_handler=note),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=dialect.null is not None,
            quoted_strings_can_be_null=dialect.null == "",
        ),
    )
    return tuple(column.combine_chunks() for column in table.columns), uneven


class TextReader:
    """Reads text files whose rows are lines."""

    def __init__(self, layout: RowLayout, dialect: TextDialect, *, has_header: bool) -> None:
        self._layout = layout
        self._dialect = dialect
        self._has_header = has_header

    def read(self, path: Path) -> Iterator[FileChunk]:
        """Yield the chunks of a file."""
        for number, block in enumerate(blocks(path)):
            if number == 0 and self._has_header:
                block = self._without_first_line(path, block)
            yield self._chunk(path, block)

    def _without_first_line(self, path: Path, block: Block) -> Block:
        first = block.lines()[0] if block.text else b""
        self._check_first(path, first)
        rest = block.text[len(first) :].removeprefix(b"\r").removeprefix(b"\n")
        return Block(rest, block.first + 1, block.count - 1)

    def _check_first(self, path: Path, line: bytes) -> None:
        """Raise if the first line is not what it has to be."""

    def _chunk(self, path: Path, block: Block) -> FileChunk:
        layout = self._layout
        fields = split(block, self._dialect, len(layout.fields))
        arrays: list[pa.Array] = []
        bad: dict[int, Mask] = {}
        for at, column in enumerate(fields.columns):
            texts, undecodable = decoded(_with_nulls(column, self._dialect.null))
            values, wrong = from_text(texts, STRING if at == layout.sign else layout.fields[at].type)
            arrays.append(values)
            marks = [mask for mask in (undecodable, wrong) if mask is not None]
            if marks:
                bad[at] = np.logical_or.reduce(marks)
        return FileChunk(
            str(path), "line", arrays, bad, fields.numbers, partial(_raw_field, fields.columns), fields.malformed
        )


def _raw_field(columns: tuple[pa.Array, ...], at: int, row: int) -> str:
    return (columns[at][row].as_py() or b"").decode("utf-8", "replace")


def _with_nulls(column: pa.Array, null: str | None) -> pa.Array:
    """Return a column in which a text that stands for NULL is NULL."""
    if not null:
        return column
    return pc.if_else(pc.equal(column, null.encode()), pa.scalar(None, column.type), column)


class CsvReader(TextReader):
    """Reads files of csv."""

    def __init__(self, layout: RowLayout, options: CsvOptions) -> None:
        dialect = TextDialect(options.sep, options.quote, options.escape, options.null_value)
        super().__init__(layout, dialect, has_header=options.header)


class StreamReader(TextReader):
    """Reads data files of STREAM."""

    def __init__(self, layout: RowLayout) -> None:
        super().__init__(layout, TextDialect(), has_header=True)

    def _check_first(self, path: Path, line: bytes) -> None:
        _check_signature(path, line.decode("latin-1"), self._layout)


def _check_signature(path: Path, line: str, layout: RowLayout) -> None:
    """Raise if the first line of a data file of STREAM does not fit the table."""
    letters = [letter.strip() for letter in line.split(",")]
    shown = line if len(line) <= 40 else line[:40] + ".."
    if not all(map(_SIGNATURE.fullmatch, letters)):
        raise damaged(path, f"starts with '{shown}'", "the first line gives the types of its columns: i, f, b or cN")
    if len(letters) != len(layout.fields):
        needed = "a timestamp, a sign" if layout.sign is not None else "a timestamp"
        raise damaged(
            path,
            f"has {len(letters)} columns by its first line '{shown}', and {layout.table} needs {len(layout.fields)}",
            f"its rows are {needed} and the columns that are declared",
        )
