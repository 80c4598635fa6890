"""Streaming DataFrames of the user as tables: their columns, and names for their sources.

Spark finds the sources of a query in its checkpoint by name, so those of a frame get names of the table's: what is
read, and how far, then survives any change of the queries around it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type

from cql.binder.inference import column_type
from cql.errors import Code, fail
from cql.types import DataType


def column_types(name: str, frame: DataFrame) -> Iterator[tuple[str, DataType]]:
    """Yield the columns of a frame with the types that they have as columns of a table."""
    for field in frame.schema.fields:
        try:
            arrow = to_arrow_type(field.dataType, timezone="UTC")
        except Exception:
            raise fail(
                Code.CANNOT_INFER,
                f"the column '{field.name}' of the frame for '{name}' is {field.dataType.simpleString()}, which no "
                "type of CQL holds",
                hint="select the columns that are needed, or cast it",
            ) from None
        yield field.name, column_type(arrow, field.name)
