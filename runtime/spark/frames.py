"""DataFrames of the user: streaming ones as tables, with their columns and names for their sources, and functions that
take changes as frames.

Spark finds the sources of a query in its checkpoint by name, so those of a frame get names of the table's: what is
read, and how far, then survives any change of the queries around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from cql.binder.inference import column_type
from cql.errors import Code, fail
from cql.types import DataType

FrameCallback = Callable[[DataFrame, int], None]
"""A function of the user: takes the changes of a micro-batch, and its id, as those of `foreachBatch` do."""


@dataclass(frozen=True)
class FrameFunction:
    """A function of the user, given tables of Arrow as frames of a session."""

    spark: SparkSession
    function: FrameCallback

    def __call__(self, changes: pa.Table, batch_id: int) -> None:
        self.function(self.spark.createDataFrame(changes), batch_id)


@dataclass(frozen=True)
class UserFrame:
    """A streaming frame that was given for a table."""

    frame: DataFrame
    is_endless = True

    @property
    def runs_dry(self) -> bool:
        """Whether it has so much now and no more until somebody adds to it."""
        return reads_files(self.frame)


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


def reads_files(frame: DataFrame) -> bool:
    """Tell whether everything that a streaming frame reads are files."""

    def is_of_files(plan: Any) -> bool:
        children = [plan.children().apply(at) for at in range(plan.children().size())]
        return plan.getClass().getSimpleName() != "StreamingRelationV2" and all(map(is_of_files, children))

    return is_of_files(frame._jdf.queryExecution().analyzed())


def with_named_sources(frame: DataFrame, spark: SparkSession, name: str) -> DataFrame:
    """Return a frame in another session, with names for those of its sources that have none."""
    jvm = spark._jvm
    assert jvm is not None, "a session has a JVM"
    naming = jvm.org.apache.spark.sql.catalyst.streaming
    count = 0

    def named(plan: Any) -> Any:
        nonlocal count
        if plan.getClass().getSimpleName() in ("StreamingRelation", "StreamingRelationV2"):
            if plan.sourceIdentifyingName().getClass().getSimpleName() == "UserProvided":
                return plan
            count += 1
            return plan.withSourceIdentifyingName(naming.UserProvided(f"{name}_{count}"))
        children = [plan.children().apply(at) for at in range(plan.children().size())]
        made = [named(child) for child in children]
        if all(before.equals(after) for before, after in zip(children, made, strict=True)):
            return plan
        return plan.withNewChildren(jvm.PythonUtils.toSeq(made))

    plan = named(frame._jdf.queryExecution().analyzed())
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
