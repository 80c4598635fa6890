"""JSON lines: an object on each line, read in blocks of whole lines. Keys are columns; a missing one is NULL.

Arrow reads a block as a whole; a block that it refuses is read again line by line, which finds the lines that are no
objects and the values of the wrong type. A TIMESTAMP is a text, a DECIMAL a number or a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from cql.catalog import ColumnModel
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints
from runtime.connectors.intake import FileChunk, Malformed, RowLayout
from runtime.connectors.text_files import Block, blocks
from runtime.connectors.values import canonical, decimal_value, from_text, text_value, whole_value

_BLANK_LINE = re.compile(rb"(?:\A|\n)[ \t\r]*\n")


class JsonReader:
    """Reads files of JSON lines."""

    def __init__(self, layout: RowLayout) -> None:
        self._fields = layout.fields

    def read(self, path: Path) -> Iterator[FileChunk]:
        """Yield the chunks of a file."""
        for block in blocks(path):
            yield _by_arrow(str(path), block, self._fields) or _by_line(str(path), block, self._fields)


def _by_arrow(file: str, block: Block, fields: Sequence[ColumnModel]) -> FileChunk | None:
    """Return the rows of a block, or None if there is anything that has to be looked at line by line."""
    schema = pa.schema([(column.name, _parsed_type(column.type)) for column in fields])
    try:
        block.text.decode()
        table = arrow_json.read_json(
            pa.BufferReader(block.text),
            arrow_json.ReadOptions(use_threads=False, block_size=len(block.text) + 1),
            arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        table.validate(full=any(column.type.kind is Kind.DECIMAL for column in fields))
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if table.num_rows != (len(_full_lines(block)) if _BLANK_LINE.search(block.text) else block.count):
        return None
    arrays = []
    for column in fields:
        array = canonical(table[column.name].combine_chunks())
        if column.type.kind is Kind.TIMESTAMP:
            array, bad = from_text(array, column.type)
            if bad is not None:
                return None
        arrays.append(array)

    def raw(at: int, row: int) -> str:
        return str(arrays[at][row].as_py())

    return FileChunk(file, "line", arrays, {}, lambda: _full_lines(block), raw)


def _parsed_type(data_type: DataType) -> pa.DataType:
    return pa.string() if data_type.kind is Kind.TIMESTAMP else arrow_type(data_type)


def _full_lines(block: Block) -> Ints:
    """Return the numbers of the lines that are not blank."""
    return np.array([at for at, line in enumerate(block.lines(), block.first) if line.strip()], np.int64)


def _by_line(file: str, block: Block, fields: Sequence[ColumnModel]) -> FileChunk:
    """Return the rows of a block, their bad values marked."""
    objects: list[dict[str, Any]] = []
    numbers: list[int] = []
    malformed: list[Malformed] = []
    lines = block.lines()
    is_ended = block.text.endswith((b"\n", b"\r"))
    for number, line in enumerate(lines, block.first):
        found = _object(line) if line.strip() else None
        if isinstance(found, dict):
            objects.append(found)
            numbers.append(number)
        elif found is not None:
            malformed.append(Malformed(number, found, not is_ended and number == block.first + len(lines) - 1))
    written = [[found.get(column.name) for found in objects] for column in fields]
    values = [[_value(value, column.type) for value in texts] for column, texts in zip(fields, written, strict=True)]
    arrays = [canonical(pa.array(found, arrow_type(column.type))) for column, found in zip(fields, values, strict=True)]
    masks = (
        np.array([a is not None and b is None for a, b in zip(texts, found, strict=True)], np.bool_)
        for texts, found in zip(written, values, strict=True)
    )
    bad = {at: mask for at, mask in enumerate(masks) if mask.any()}

    def raw(at: int, row: int) -> str:
        value = written[at][row]
        return value if isinstance(value, str) else json.dumps(value, default=str)

    return FileChunk(file, "line", arrays, bad, lambda: np.array(numbers, np.int64), raw, malformed)


def _object(line: bytes) -> dict[str, Any] | str:
    """Return the object on a line, or what is wrong with the line."""
    try:
        found = json.loads(line.decode(), parse_float=Decimal)
    except UnicodeDecodeError:
        return "the line is not UTF-8"
    except (ValueError, InvalidOperation, RecursionError):
        return "the line is not JSON"
    return found if isinstance(found, dict) else "the line is JSON, and no object"


def _value(value: Any, data_type: DataType) -> Any:
    """Return a value of a type, or None if it is NULL or of another type."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    match data_type.kind:
        case Kind.BOOLEAN:
            return value if isinstance(value, bool) else None
        case Kind.STRING:
            return value if isinstance(value, str) and _is_encodable(value) else None
        case Kind.TIMESTAMP:
            return text_value(value, data_type) if isinstance(value, str) else None
        case Kind.DOUBLE:
            return _double(value) if is_number else None
        case Kind.DECIMAL if isinstance(value, str):
            return text_value(value, data_type)
        case Kind.DECIMAL:
            return decimal_value(value, data_type) if is_number and not isinstance(value, float) else None
    return whole_value(value, data_type) if is_number and isinstance(value, int) else None


def _double(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _is_encodable(text: str) -> bool:
    """Return whether a text has a form in UTF-8; a half of a surrogate pair has none."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
