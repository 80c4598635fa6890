"""How values travel: the Arrow type of each CQL type.

TIMESTAMP and INTERVAL are microseconds; the rest is what its name says. Nothing here computes.
"""

from __future__ import annotations

import pyarrow as pa

from cql.types import DataType, Kind

_ARROW: dict[Kind, pa.DataType] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.BYTE: pa.int8(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.INTERVAL: pa.duration("us"),
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that holds values of a type.

    >>> arrow_type(DataType(Kind.DECIMAL, 10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    if data_type.kind is Kind.DECIMAL:
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW[data_type.kind]
