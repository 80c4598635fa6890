"""Finds the columns of a source by looking at it: FROM csv SCHEMA INFERRED.

Files are looked into with PyArrow, the first file standing for all of them. Imported only when asked
for, because importing PyArrow takes longer than compiling a query.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cql import types as t
from cql.catalog import ColumnModel, External
from cql.errors import Code, fail
from cql.source import Span

if TYPE_CHECKING:
    import pyarrow as pa

_RATE = (ColumnModel(name="timestamp", type=t.TIMESTAMP), ColumnModel(name="value", type=t.BIGINT))


def infer_columns(source: External, span: Span) -> list[ColumnModel]:
    """Return the columns that a source has; raises if they cannot be found out."""
    if source.format == "rate":
        return list(_RATE)
    readers = {"csv": _csv_schema, "json": _json_schema, "parquet": _parquet_schema}
    if source.format not in readers:
        raise fail(Code.CANNOT_INFER, f"the columns of a {source.format} source cannot be inferred", span,
                   hint="list the columns: name (column TYPE, ..)")
    path = _first_file(source, span)
    try:
        schema = readers[source.format](path, {key.lower(): value for key, value in source.options.items()})
    except OSError as error:
        raise fail(Code.NO_FILE, f"'{path}' cannot be read: {error.strerror or error}", span) from None
    except ValueError as error:
        raise fail(Code.CANNOT_INFER, f"no columns can be read from '{path}': {error}", span) from None
    return [ColumnModel(name=field.name, type=_type(field.type, field.name, span)) for field in schema]


def _first_file(source: External, span: Span) -> Path:
    options = {key.lower(): value for key, value in source.options.items()}
    pattern = options["path"]
    found = sorted(glob.glob(pattern)) or ([pattern] if Path(pattern).exists() else [])
    for name in found:
        path = Path(name)
        if path.is_file():
            return path
        inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith(("_", ".")))
        if inside:
            return inside[0]
    raise fail(Code.NO_FILE, f"there is no file '{pattern}'", span,
               hint="paths are relative to the working directory; list the columns if the file comes later")


def _csv_schema(path: Path, options: dict[str, str]) -> pa.Schema:
    from pyarrow import csv

    header = options.get("header", "false").lower() == "true"
    read = csv.ReadOptions(autogenerate_column_names=not header, block_size=1 << 20)
    parse = csv.ParseOptions(delimiter=options.get("sep", options.get("delimiter", ",")))
    with csv.open_csv(path, read_options=read, parse_options=parse) as reader:
        schema: Any = reader.schema
        if header:
            return schema
        import pyarrow as pa

        return pa.schema([pa.field(f"_c{at}", field.type) for at, field in enumerate(schema)])


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


def _type(arrow_type: Any, name: str, span: Span) -> t.DataType:
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
    if pa.types.is_decimal(arrow_type):
        return t.decimal(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return t.TIMESTAMP
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_null(arrow_type):
        return t.STRING
    raise fail(Code.CANNOT_INFER, f"the column '{name}' has the type {arrow_type}, which CQL does not have", span,
               hint="list the columns to read; others are left out")
