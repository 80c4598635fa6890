"""Rows that are given in Python, on their way to Spark: files that a network reads like any other source.

What has been put is there until it has been processed, and, of the log of a relation, for queries that come later. A
network that is started again from its checkpoint goes on with it. Rows that are put again as a whole, as the data of a
program that is run again, are known by their content and are not read twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from cql.catalog import StreamDef
from runtime.connectors.intake import SourceRows
from runtime.connectors.result_files import write_atomically, writing
from runtime.network.messages import batch_bytes, bytes_batch
from runtime.spark.sources import SourceFrame, SourcePart, Table, spark_path
from runtime.spark.tickets import FILE_LIST


class Inbox:
    """The rows of one table; while it `is_open`, more can come."""

    def __init__(self, folder: Path, table: Table, is_open: bool) -> None:
        self._folder = folder
        self._table = table
        self.is_open = is_open
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_endless(self) -> bool:
        """Whether it has no end that could be read to."""
        return self.is_open

    @property
    def runs_dry(self) -> bool:
        """Whether it has so much now and no more until somebody adds to it."""
        return True

    def push(self, rows: SourceRows) -> None:
        """Take rows that come after all others."""
        number = int(self._next.read_text()) if self._next.exists() else 0
        write_atomically(self._next, str(number + 1).encode())
        self._write(f"{number:012}", _packed(rows))

    @property
    def _next(self) -> Path:
        """The file that has the number of what is pushed next: no name is used twice, because Spark knows them all."""
        return self._folder / ".next"

    def put(self, parts: Iterable[SourceRows]) -> None:
        """Take rows that are all there is; nothing happens if they have been taken before."""
        for number, rows in enumerate(parts):
            blob = _packed(rows)
            self._write(f"{number:012}-{hashlib.sha256(blob).hexdigest()[:16]}", blob)

    def _write(self, name: str, blob: bytes) -> None:
        path = self._folder / f"{name}.arrow"
        if not path.exists():
            write_atomically(path, blob)

    def frame(self, spark: SparkSession, name: str) -> SourceFrame:
        """Return how Spark reads it, in the order of the names of files; it removes those that have been processed."""
        is_read_once = self.is_open and isinstance(self._table, StreamDef)
        files = (
            spark.readStream.name(name)
            .format("binaryFile")
            .schema(FILE_LIST)
            .option("maxFileAge", "3650d")
            .option("cleanSource", "delete" if is_read_once else "off")
            .load(spark_path(str(self._folder), streaming=True))
        )
        return SourceFrame(self._table, files.select("path"), InboxReader())


@dataclass(frozen=True)
class InboxReader:
    """Reads the files of an inbox."""

    def parts(self, batches: Iterable[pa.RecordBatch], newest: int | None = None) -> Iterator[SourcePart]:
        """Yield the rows of the files that are named in some batches."""
        for batch in batches:
            for name in sorted(batch.column(0).to_pylist()):
                rows = _unpacked(Path(re.sub("^file:/+", "/", name)).read_bytes())
                yield SourcePart(rows, Path(name).name, is_ordered=True)


def _packed(rows: SourceRows) -> bytes:
    arrays = [pa.array(rows.instants)]
    if rows.signs is not None:
        arrays.append(pa.array(rows.signs))
    names = ["instant", "sign"][: len(arrays)] + [f"c{at}" for at in range(len(rows.columns))]
    return batch_bytes(pa.record_batch([*arrays, *rows.columns], names=names))


def _unpacked(blob: bytes) -> SourceRows:
    batch = bytes_batch(blob)
    columns = tuple(batch.column(name) for name in batch.schema.names if name.startswith("c"))
    signs = np.asarray(batch.column("sign")) if "sign" in batch.schema.names else None
    return SourceRows(columns, np.asarray(batch.column("instant")), signs)
