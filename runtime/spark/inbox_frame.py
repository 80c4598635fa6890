"""How Spark reads the rows that are given in Python: the files of an inbox, in the order of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from cql.catalog import StreamDef
from runtime.network.inbox import Inbox, read_inbox
from runtime.spark.sources import SourceFrame, SourcePart, spark_path
from runtime.spark.tickets import FILE_LIST


def inbox_frame(spark: SparkSession, inbox: Inbox, name: str) -> SourceFrame:
    """Return how Spark reads an inbox, in the order of the names of files; it removes files that are processed."""
    is_read_once = inbox.is_open and isinstance(inbox.table, StreamDef)
    files = (
        spark.readStream.name(name)
        .format("binaryFile")
        .schema(FILE_LIST)
        .option("maxFileAge", "3650d")
        .option("cleanSource", "delete" if is_read_once else "off")
        .load(spark_path(str(inbox.folder), streaming=True))
    )
    return SourceFrame(inbox.table, files.select("path"), InboxReader())


@dataclass(frozen=True)
class InboxReader:
    """Reads the files of an inbox."""

    def parts(self, batches: Iterable[pa.RecordBatch], newest: int | None = None) -> Iterator[SourcePart]:
        """Yield the rows of the files that are named in some batches."""
        for batch in batches:
            for name in sorted(batch.column(0).to_pylist()):
                rows = read_inbox(Path(re.sub("^file:/+", "/", name)))
                yield SourcePart(rows, Path(name).name, is_ordered=True)
