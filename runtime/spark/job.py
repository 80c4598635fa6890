"""A network of queries as one Spark Structured Streaming query.

Every source is read once and packed; the pieces go through one stateful operator for each stage of the layout; what
comes out is collected on the driver and delivered. Time is in the pieces, not in Spark's watermarks: messages such as
"this source has ended" are files in the checkpoint that Spark reads like any other source, so they are part of its
log and of every repetition.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import StreamingQuery

from cql.catalog import Catalog, RelationDef, StreamDef
from cql.errors import Code, fail, one_of
from planner import operators as op
from planner.plan import Plan
from runtime.batch import ChangeBatch, Columns, concat, concat_columns
from runtime.formats import open_source
from runtime.fragments.layout import Layout
from runtime.fragments.packing import COUNTS, RESULTS, unpack_changes, unpack_values
from runtime.local import losses_text
from runtime.rows import is_sorted, order_by
from runtime.spark.delivery import Delivery
from runtime.spark.labels import label
from runtime.spark.processor import FragmentProcessor, Task
from runtime.spark.reading import LABELLED, read_control, read_source
from runtime.spark.sources import carrying, source_frame, translate
from runtime.statistics import Figures
from runtime.types import arrow_type

Table = StreamDef | RelationDef

BOUNDED = frozenset({"csv", "json", "parquet", "stream", "orc", "avro", "text"})
"""The formats of files: what is there can be read to its end."""


class Job:
    """A plan at work on Spark. All of its timed sources are on one clock."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        plan: Plan,
        functions: Mapping[str, Any],
        delivery: Delivery,
        checkpoint: Path,
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._delivery = delivery
        self._checkpoint = checkpoint
        self._control = checkpoint / "control"
        self._sources = [each for each in plan.operators if isinstance(each, op.Source)]
        self._partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        delays = {each.id: _delay(self._table(each)) for each in self._sources}
        layout = Layout(plan, self._partitions, delays)
        places = (*layout.places, (RESULTS, 0))
        self._task = Task(
            network=hashlib.sha256(f"{checkpoint}{plan.to_json()}".encode()).hexdigest()[:16],
            layout=layout,
            functions=dict(functions),
            static={each.id: self._static(each) for each in self._sources if each.time is None},
            labels={place: label(*place, self._partitions) for place in places},
        )
        self.counts: dict[str, dict[str, int]] = {}
        self._query: StreamingQuery | None = None

    def _table(self, source: op.Source) -> Table:
        table = self._catalog.table(source.table)
        assert isinstance(table, StreamDef | RelationDef), "plans read streams and relations"
        if table.source is not None and table.source.format not in BOUNDED:
            raise fail(
                Code.NOT_AVAILABLE,
                f"'{table.name}' is read from {table.source.format}, which has no end: such runs are not there yet",
                hint=f"sources that can be run to their ends: {one_of(sorted(BOUNDED))}",
            )
        return table

    def _static(self, source: op.Source) -> Columns:
        """Return the rows of a static relation, read on the driver."""
        parts = [rows.columns for rows in open_source(self._table(source), self._catalog.settings.on_bad_row)]
        types = [arrow_type(column.type) for column in source.columns]
        return concat_columns(parts) if parts else tuple(pa.nulls(0, each) for each in types)

    # Running

    def start(self) -> None:
        """Start the query; results are delivered as they come."""
        self._control.mkdir(parents=True, exist_ok=True)
        with translated():
            self._query = (
                self._pieces()
                .writeStream.foreachBatch(self._deliver)
                .option("checkpointLocation", str(self._checkpoint / "spark"))
                .queryName(f"cql {self._task.network}")
                .start()
            )

    def drain(self) -> None:
        """Process all that the sources have, close their last instants, and stop."""
        assert self._query is not None, "the job has not been started"
        with translated():
            self._query.processAllAvailable()
            self._tell({"ended": [each.id for each in self._sources if each.time is not None]})
            self._query.processAllAvailable()
        self.stop()

    def stop(self) -> None:
        """Stop after the micro-batch that is running."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def statistics(self) -> list[Figures]:
        """Return what is known of the sources."""
        read, late, skipped = (self.counts.get(what, {}) for what in ("read", "late", "skipped"))
        return [
            Figures(
                each.id,
                "source",
                each.table,
                elements_in=read.get(each.id, 0),
                late=late.get(each.id, 0),
                skipped=skipped.get(each.id, 0),
            )
            for each in self._sources
        ]

    def losses(self) -> list[str]:
        """Return a line for each table of which rows came too late or could not be read."""
        lines = []
        for source in self._sources:
            late, skipped = (self.counts.get(what, {}).get(source.id, 0) for what in ("late", "skipped"))
            lines += losses_text(source.table, late, skipped)
        return lines

    def _tell(self, message: Mapping[str, Any]) -> None:
        """Give a message to all places, with the next micro-batch."""
        number = len(list(self._control.iterdir()))
        hidden = self._control / f".{number:08}"
        hidden.write_text(json.dumps(message) + "\n")
        os.replace(hidden, self._control / f"{number:08}.txt")

    def _pieces(self) -> DataFrame:
        """Return the frame that ends in the results."""
        schema = from_arrow_schema(LABELLED)
        control = self._spark.readStream.schema("value string").text(str(self._control))
        pieces = control.mapInArrow(read_control(self._task), schema)
        for source in self._sources:
            if source.time is not None:
                found = source_frame(self._spark, self._table(source), self._catalog.settings.on_bad_row)
                reading = read_source(self._task, source.id, found.reader)
                pieces = pieces.unionAll(found.frame.mapInArrow(reading, schema))
        for stage in range(self._task.layout.levels):
            pieces = pieces.groupBy("label").transformWithStateInPandas(
                FragmentProcessor(self._task, stage), outputStructType=schema, outputMode="append", timeMode="none"
            )
        return pieces

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        """Called by Spark with the results of a micro-batch."""
        found: dict[str, list[ChangeBatch]] = {}
        for row in sorted(frame.select("kind", "about", "place", "blob").collect()):
            if row.kind == COUNTS:
                self._count(unpack_values(row.blob))
            else:
                found.setdefault(row.about, []).append(unpack_changes(row.blob, 0))
        with carrying():
            self._delivery.deliver(batch_id, {query: _in_order(batches) for query, batches in found.items()})

    def _count(self, known: Mapping[str, Mapping[str, int]]) -> None:
        for what, by_source in known.items():
            counts = self.counts.setdefault(what, {})
            for source, count in by_source.items():
                counts[source] = max(counts.get(source, 0), count)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of Spark into errors for the user, as far as they are known."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _delay(table: Table) -> int:
    return table.delay if isinstance(table, StreamDef) else 0


def _in_order(batches: Sequence[ChangeBatch]) -> ChangeBatch:
    """Return the results of several buckets in the order of time."""
    batch = concat(batches)
    return batch if is_sorted(batch.start) else batch.take(order_by(batch.start))
