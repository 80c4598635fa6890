"""Results as tables on standard output: a block for each query, its columns aligned, instant and mark on each line.

Changes are gathered until there are enough to choose the widths of columns by, or the query ends. On a terminal
headings and marks are coloured and lines are cut to its width; elsewhere the text is plain and whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cql.intervals import TimeDomain, duration_text
from cql.visible import OBEYED_BYTES, visible
from runtime.columns.batch import ChangeBatch, concat
from runtime.columns.texts import by_distinct, escaped, instant_texts, lines, marks, plain_texts
from runtime.connectors.results import Result, Writer

_ENOUGH = 1000
"""How many changes are gathered before they are printed."""

_MARK = 1
_STYLES = {"+": "green", "-": "red"}


class Screen:
    """Where queries print their tables, and which of them printed last."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.speaker: object = None
        self._console = Console(file=out, highlight=False)

    def title(self, name: str, what: str) -> None:
        """Print the line above a table."""
        if self.speaker is not None:
            self.out.write("\n")
        name = visible(name)
        self._styled(Text.assemble((name, "bold cyan"), f" ({what})"), f"{name} ({what})")

    def heading(self, line: str) -> None:
        """Print the names of columns."""
        self._styled(Text(line, "bold"), line)

    def rows(self, text: str, mark_at: int) -> None:
        """Print lines that have their mark at a position."""
        if not self._console.is_terminal:
            self.out.write(text)
            return
        for line in text.splitlines():
            styled = Text(line)
            styled.stylize(_STYLES.get(line[mark_at : mark_at + 1], ""), mark_at, mark_at + 1)
            self._styled(styled, line)

    def _styled(self, styled: Text, plain: str) -> None:
        if self._console.is_terminal:
            self._console.print(styled, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self.out.write(plain + "\n")


class TableWriter(Writer):
    """Prints the changes of a query as a table."""

    def __init__(self, result: Result, screen: Screen) -> None:
        self._result = result
        self._screen = screen
        self._names = ["ts", "", *map(visible, result.names)]
        self._widths = [max(cell_len(name), 1) for name in self._names]
        self._to_the_right = [result.time is not TimeDomain.TIMESTAMP, False]
        self._to_the_right += [column.type.is_numeric for column in result.columns]
        self._waiting: list[ChangeBatch] = []
        self._has_printed = False

    def _write(self, batch: ChangeBatch) -> None:
        self._waiting.append(batch)
        if sum(map(len, self._waiting)) >= _ENOUGH:
            self._print_waiting()

    def close(self) -> None:
        """Print what is left, or that there is nothing."""
        if self._waiting:
            self._print_waiting()
        elif not self._has_printed:
            self._screen.title(self._result.query, "no results")
            self._screen.speaker = self
        self._screen.out.flush()

    def abort(self) -> None:
        """Print what has been gathered."""
        if self._waiting:
            self._print_waiting()
        self._screen.out.flush()

    def _print_waiting(self) -> None:
        batch, self._waiting = concat(self._waiting), []
        cells = [instant_texts(batch.start, self._result.time).fill_null(""), marks(batch.weights)]
        cells += [shown_texts(column) for column in batch.columns]
        widths = [max(width, _width(column)) for width, column in zip(self._widths, cells, strict=True)]
        if self._screen.speaker is not self:
            self._screen.title(self._result.query, "stream" if self._result.is_stream else "relation")
        if self._screen.speaker is not self or widths != self._widths:
            self._widths = widths
            heading = lines(self._aligned([pa.array([name]) for name in self._names]))
            self._screen.heading(heading.decode().rstrip())
        self._screen.rows(lines(self._aligned(cells)).decode(), self._widths[0] + 2)
        self._screen.speaker = self
        self._has_printed = True

    def _aligned(self, cells: Sequence[pa.Array]) -> list[pa.Array | str]:
        """Return the parts of lines; the last column is not filled up."""
        parts: list[pa.Array | str] = []
        for at, column in enumerate(cells):
            is_last = at == len(cells) - 1 and not self._to_the_right[at]
            parts += ["  " if at else "", _padded(column, 0 if is_last else self._widths[at], self._to_the_right[at])]
        return parts


def table_text(table: pa.Table, null: str = "NULL") -> str:
    """Return a table as lines: the names of its columns, then its rows, numbers to the right."""
    parts: list[pa.Array | str] = []
    for at, name in enumerate(table.schema.names):
        column = table.column(at).combine_chunks()
        cells = pa.concat_arrays([pa.array([visible(name)]), shown_texts(column, null)])
        to_the_right = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        to_the_right |= pa.types.is_decimal(column.type)
        is_last = at == table.num_columns - 1 and not to_the_right
        parts += ["  " if at else "", _padded(cells, 0 if is_last else _width(cells), to_the_right)]
    return "\n".join(line.rstrip() for line in lines(parts).decode().split("\n"))


def shown_texts(column: pa.Array, null: str = "NULL") -> pa.Array:
    """Return values as they are shown to people."""
    if pa.types.is_duration(column.type):
        return by_distinct(column.view(pa.int64()), _interval_text).fill_null(null)
    texts = plain_texts(column)
    if pa.types.is_string(column.type):
        texts = escaped(texts, OBEYED_BYTES, visible)
    return texts.fill_null(null)


def _interval_text(microseconds: int) -> str:
    return duration_text(microseconds, TimeDomain.TIMESTAMP)


def _width(column: pa.Array) -> int:
    """Return how many cells of a terminal the widest text takes."""
    if _is_ascii(column):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return max(map(cell_len, pc.unique(column).to_pylist()))


def _padded(column: pa.Array, width: int, to_the_right: bool) -> pa.Array:
    if _is_ascii(column):
        return pc.utf8_lpad(column, width) if to_the_right else pc.utf8_rpad(column, width)

    def padded(text: str) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if to_the_right else text + blanks

    return by_distinct(column, padded)


def _is_ascii(column: pa.Array) -> bool:
    return bool(pc.all(pc.string_is_ascii(column)).as_py())
