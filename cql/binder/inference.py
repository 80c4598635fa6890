"""The types that columns of Arrow have in CQL.

PyArrow is imported only when asked for, because that takes longer than compiling a query.
"""

from __future__ import annotations

from typing import Any

from cql import types as t
from cql.errors import Code, fail


def column_type(arrow_type: Any, name: str) -> t.DataType:
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
        return column_type(arrow_type.value_type, name)
    if pa.types.is_decimal(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision <= t.MAX_PRECISION:
        return t.decimal(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return t.TIMESTAMP
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_null(arrow_type):
        return t.STRING
    raise fail(
        Code.CANNOT_INFER,
        f"the column '{name}' has the type {arrow_type}, which CQL does not have",
        hint="list the columns to read; others are left out",
    )
