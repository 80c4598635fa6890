"""Finds the columns of a source by looking at it: FROM csv SCHEMA INFERRED.

Files are looked into with PyArrow, the first file standing for all of them. Imported only when asked
for, because importing PyArrow takes longer than compiling a query.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cql import types as t
from cql.catalog import ColumnModel, External
from cql.errors import Code, fail
from cql.source import NO_SPAN, Span

if TYPE_CHECKING:
    import pyarrow as pa

_RATE = (ColumnModel(name="timestamp", type=t.TIMESTAMP), ColumnModel(name="value", type=t.BIGINT))


def infer_columns(source: External, span: Span) -> list[ColumnModel]:
    """Return the columns that a source has; raises if they cannot be found out."""
    if source.format == "rate":
        return list(_RATE)
    readers = {"csv": _csv_schema, "json": _json_schema, "parquet": _parquet_schema}
    if source.format not in readers:
        raise fail(
            Code.CANNOT_INFER,
            f"the columns of a {source.format} source cannot be inferred",
            span,
            hint="list the columns: name (column TYPE, ..)",
        )
    options = {key.lower(): value for key, value in source.options.items()}
    place = options["path"]
    try:
        path = _first_file(place, span)
        schema = readers[source.format](path, options)
    except OSError as error:
        raise fail(Code.NO_FILE, f"'{place}' cannot be read: {error.strerror or error}", span) from None
    except (ValueError, TypeError, NotImplementedError) as error:
        hint = (
            "if something else than a comma separates its columns, say so: sep ';'" if source.format == "csv" else None
        )
        raise fail(Code.CANNOT_INFER, f"no columns can be read from '{place}': {error}", span, hint=hint) from None
    _check_names(schema.names, place, span)
    return [ColumnModel(name=field.name, type=column_type(field.type, field.name, span)) for field in schema]


def _check_names(names: Sequence[str], place: str, span: Span) -> None:
    if not names:
        raise fail(Code.CANNOT_INFER, f"'{place}' has no columns", span)
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen or not name:
            what = f"two columns '{name}'" if name else "a column without a name"
            raise fail(
                Code.CANNOT_INFER, f"'{place}' has {what}", span, hint="list the columns: name (column TYPE, ..)"
            )
        seen.add(name.casefold())


def _first_file(pattern: str, span: Span) -> Path:
    if not pattern:
        raise fail(Code.NO_FILE, "the path is empty", span)
    found = sorted(glob.glob(pattern)) or ([pattern] if Path(pattern).exists() else [])
    for name in found:
        path = Path(name)
        if path.is_file():
            return path
        inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith(("_", ".")))
        if inside:
            return inside[0]
    raise fail(
        Code.NO_FILE,
        f"there is no file '{pattern}'",
        span,
        hint="paths are relative to the working directory; list the columns if the file comes later",
    )


def _csv_schema(path: Path, options: dict[str, str]) -> pa.Schema:
    import pyarrow as pa
    from pyarrow import csv

    header = options.get("header", "false").lower() == "true"
    read = csv.ReadOptions(autogenerate_column_names=not header, block_size=1 << 20)
    separator = options.get("sep", options.get("delimiter", ","))
    parse = csv.ParseOptions(delimiter={"\\t": "\t"}.get(separator, separator))
    with csv.open_csv(path, read_options=read, parse_options=parse) as reader:
        fields = [(f.name, pa.string() if pa.types.is_time(f.type) else f.type) for f in reader.schema]
    return pa.schema(fields if header else [(f"_c{at}", each) for at, (_, each) in enumerate(fields)])


def _json_schema(path: Path, options: dict[str, str]) -> pa.Schema:
    import io

    from pyarrow import json

    with path.open("rb") as file:
        head = file.read(1 << 20)
    if len(head) == 1 << 20:
        head = head[: head.rfind(b"\n") + 1]
    return json.read_json(io.BytesIO(head)).schema


def _parquet_schema(path: Path, options: dict[str, str]) -> pa.Schema:
    from pyarrow import parquet

    return parquet.read_schema(path)


def column_type(arrow_type: Any, name: str, span: Span = NO_SPAN) -> t.DataType:
    """Return the type of values that Arrow has in a column; raises if CQL has none for them."""
    import pyarrow as pa

    if pa.types.is_boolean(arrow_type):
        return t.BOOLEAN
    if pa.types.is_int8(arrow_type):
        return t.BYTE
    if pa.types.is_int16(arrow_type) or pa.types.is_int32(arrow_type):
        return t.INT
    if pa.types.is_integer(arrow_type):
        return t.BIGINT
    if pa.types.is_floating(arrow_type):
        return t.DOUBLE
    if pa.types.is_dictionary(arrow_type):
        return column_type(arrow_type.value_type, name, span)
    if pa.types.is_decimal(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision <= t.MAX_PRECISION:
        return t.decimal(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return t.TIMESTAMP
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_null(arrow_type):
        return t.STRING
    raise fail(
        Code.CANNOT_INFER,
        f"the column '{name}' has the type {arrow_type}, which CQL does not have",
        span,
        hint="list the columns to read; others are left out",
    )
