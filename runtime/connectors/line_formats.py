"""Changes as lines of text: JSON, csv, and the output of STREAM."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import ChangeBatch
from runtime.columns.texts import (
    by_distinct,
    escaped,
    instant_texts,
    json_text,
    json_texts,
    known_instants,
    lines,
    marks,
    plain_texts,
)
from runtime.connectors.csv import CsvOptions
from runtime.connectors.results import Result


class LineFormat(ABC):
    """How changes are written as lines; `head` is what stands before the first."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.head = b""

    @abstractmethod
    def lines(self, batch: ChangeBatch) -> bytes:
        """Return the lines of changes that weigh 1 or -1."""

    def instants(self, batch: ChangeBatch, null: str = "") -> pa.Array:
        """Return the instants as texts; what was there before all instants has none."""
        return instant_texts(batch.start, self.result.time).fill_null(null)


class JsonFormat(LineFormat):
    """An object for each change: instant, mark and the values of the row."""

    closing = "}"

    def lines(self, batch: ChangeBatch) -> bytes:
        parts = self.opening(batch)
        for at, (name, column) in enumerate(zip(self.result.names, batch.columns, strict=True)):
            parts += [f"{', ' if at else ''}{json_text(name)}: ", json_texts(column)]
        return lines([*parts, self.closing])

    def opening(self, batch: ChangeBatch) -> list[pa.Array | str]:
        """Return the parts of a line up to the first value."""
        ts, op = free_names(self.result.names)
        between = f', {json_text(op)}: "'
        return [f"{{{json_text(ts)}: ", self._instants(batch), between, marks(batch.weights), '", ']

    def _instants(self, batch: ChangeBatch) -> pa.Array:
        return json_texts(known_instants(batch.start, self.result.time))


class EnvelopeFormat(JsonFormat):
    """JSON lines on standard output: query, instant, mark, and the row as an object of its own."""

    closing = "}}"

    def opening(self, batch: ChangeBatch) -> list[pa.Array | str]:
        """Return the parts of a line up to the first value."""
        before = f'{{"query": {json_text(self.result.query)}, "ts": '
        return [before, self._instants(batch), ', "op": "', marks(batch.weights), '", "row": {']


class CsvFormat(LineFormat):
    """Instant, mark and values between separators; NULL is an empty field and an empty text `""`, as in Spark."""

    def __init__(self, result: Result, options: CsvOptions) -> None:
        super().__init__(result)
        self._separator = options.sep
        self._null = options.null_value
        self._special = re.compile(b'[\r\n"' + re.escape(self._separator.encode()) + b"]")
        if options.header:
            names = [*free_names(result.names), *result.names]
            self.head = self._separator.join(map(self._field, names)).encode() + b"\n"

    def lines(self, batch: ChangeBatch) -> bytes:
        parts: list[pa.Array | str] = [self.instants(batch, self._null), self._separator, marks(batch.weights)]
        for column in batch.columns:
            texts = plain_texts(column)
            if pa.types.is_string(column.type):
                texts = by_distinct(texts, self._field) if _has_empty(texts) else self._escaped(texts)
            parts += [self._separator, texts.fill_null(self._null)]
        return lines(parts)

    def _escaped(self, texts: pa.Array) -> pa.Array:
        return escaped(texts, self._special, self._field)

    def _field(self, text: str) -> str:
        if text and not self._special.search(text.encode()):
            return text
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class StreamFormat(LineFormat):
    """The output of STREAM; it had no NULLs, which are written as NULL here."""

    def lines(self, batch: ChangeBatch) -> bytes:
        parts: list[pa.Array | str] = ["[", self.instants(batch), "]:", marks(batch.weights)]
        for at, column in enumerate(batch.columns):
            is_double = pa.types.is_float64(column.type)
            texts = by_distinct(column, "{:g}".format) if is_double else plain_texts(column)
            parts += [", " if at else ":", texts.fill_null("NULL")]
        return lines(parts)


def free_names(names: Sequence[str]) -> tuple[str, str]:
    """Return the names of the columns for instant and mark: `ts` and `op`, unless columns are called so.

    >>> free_names(["k", "TS"])
    ('_ts', 'op')
    """
    taken = {name.casefold() for name in names}

    def free(name: str) -> str:
        return free(f"_{name}") if name in taken else name

    return free("ts"), free("op")


def json_objects(table: pa.Table, first: Mapping[str, str | int]) -> str:
    """Return the rows of a table as lines of JSON, after some values that are the same for all.

    >>> print(json_objects(pa.table({"k": [7]}), {"store": "s"}), end="")
    {"store": "s", "k": 7}
    """
    before = ", ".join(f"{json_text(name)}: {json_text(value)}" for name, value in first.items())
    parts: list[pa.Array | str] = [f"{{{before}"]
    for name, column in zip(table.schema.names, table.columns, strict=True):
        parts += [f", {json_text(name)}: ", json_texts(column.combine_chunks())]
    return lines([*parts, "}"]).decode() if len(table) else ""


def _has_empty(texts: pa.Array) -> bool:
    return bool(pc.any(pc.equal(pc.binary_length(texts), 0)).as_py())
