"""Hands the results of a query over to other code on Spark, as frames.

Changes travel through a folder: each micro-batch that has some is a Parquet file with its number as the name, which
appears as a whole, so Spark's file source reads each once, and a micro-batch that is delivered again after a crash
replaces itself. The files look as those of the `parquet` sink do.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cql.catalog import QueryDef
from cql.errors import Code, fail
from runtime.connectors.batch_sinks import FolderSink, SinkProgress
from runtime.connectors.keeping import KeptResults
from runtime.connectors.parquet import ParquetOptions
from runtime.connectors.result_files import parquet_schema, writing
from runtime.connectors.results import Result
from runtime.spark.native import folder_name
from runtime.spark.sources import spark_path


class Handing:
    """The changes of one query in a folder below another, and how Spark reads them there."""

    def __init__(self, query: QueryDef, below: Path) -> None:
        self.query = query
        tree = query.tree
        self._result = Result(query.name, tuple(tree.schema), tree.is_stream, tree.time)
        mark = hashlib.sha256(f"{query.text} {parquet_schema(self._result)}".encode()).hexdigest()[:8]
        self._folder = below / f"{Path(folder_name(query.name)).name}-{mark}"
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)

    def connect(self, kept: KeptResults) -> None:
        """Write all changes of a query, those that it has had and those that it will have; raises if some are gone."""
        sink = FolderSink(self._result, ParquetOptions(path=str(self._folder)))
        sink.resume(SinkProgress(sink.name))
        if not kept.pass_on(sink.put):
            raise fail(
                Code.FORGOTTEN,
                f"the first {kept.forgotten} changes of '{self.query.name}' are gone, and a DataFrame has all of them",
                hint="ask for it before the engine starts, or keep more: cql.Engine(keep=..)",
            )

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the changes as a streaming frame."""
        schema = from_arrow_schema(parquet_schema(self._result))
        path = spark_path(str(self._folder), streaming=True)
        return spark.readStream.schema(schema).option("maxFileAge", "3650d").parquet(path)


def contents_frame(spark: SparkSession, contents: pa.Table) -> DataFrame:
    """Return rows as a frame, with timestamps as those of changes."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) else field
        for field in contents.schema
    ]
    return spark.createDataFrame(contents.cast(pa.schema(fields)))
