"""What is to be run on Spark: queries, the tables that they read, and how Spark reads these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.source import NO_SPAN, Span
from planner import operators as op
from runtime.connectors import SourceRows
from runtime.spark.delivery import FrameCallback
from runtime.spark.frames import reads_files, with_named_sources
from runtime.spark.inbox import Inbox
from runtime.spark.network_record import source_name
from runtime.spark.sources import SourceFrame, check_source, frame_source, source_frame
from runtime.user_errors import NOWHERE, Places, placed

Table = StreamDef | RelationDef

BOUNDED = frozenset({"csv", "json", "parquet", "stream", "orc", "avro", "text", "xml"})
"""The formats of files: what is there can be read to its end."""


@dataclass(frozen=True)
class Definitions:
    """What is to be run: queries, and the tables that they read.

    Tables that have no source are given, by their names in lower case: as streaming `frames`, or as `data`, all of
    it; the others are pushed into `inboxes`. `callbacks` are functions that take results, by query.
    """

    catalog: Catalog
    queries: Sequence[QueryDef]
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    data: Mapping[str, Sequence[SourceRows]] = field(default_factory=dict)
    inboxes: Mapping[str, Inbox] = field(default_factory=dict)
    callbacks: Mapping[str, FrameCallback] = field(default_factory=dict)
    places: Places = field(default_factory=lambda: NOWHERE)

    def place(self, kind: str, name: str) -> Span:
        """Return where in a script a table or query is defined."""
        return self.places.get((kind, name.casefold()), NO_SPAN)

    def table(self, name: str) -> Table:
        """Return the definition of a table."""
        return self.catalog.as_read(name)

    def is_endless(self, name: str) -> bool:
        """Tell whether a table has no end that could be read to."""
        key, table = name.casefold(), self.table(name)
        if key in self.inboxes:
            return self.inboxes[key].is_open
        if key in self.frames or table.source is None or table.time is None:
            return key in self.frames
        return table.source.format not in BOUNDED or self.catalog.settings.files == "follow"

    def runs_dry(self, name: str) -> bool:
        """Tell whether a table has so much now and no more until somebody adds to it: files, and pushed rows."""
        key, source = name.casefold(), self.table(name).source
        if key in self.frames:
            return reads_files(self.frames[key])
        return source is None or source.format in BOUNDED


def opened_source(spark: SparkSession, definitions: Definitions, source: op.Source, folder: Path) -> SourceFrame:
    """Return how Spark reads what feeds a source; what has to be remembered of files is kept below a folder."""
    table, on_bad_row = definitions.table(source.table), definitions.catalog.settings.on_bad_row
    key, name = source.table.casefold(), source_name(table, source.epoch)
    with placed(definitions.place("table", source.table)):
        if key in definitions.frames:
            return frame_source(with_named_sources(definitions.frames[key], spark, name), table, on_bad_row)
        if key in definitions.inboxes:
            return definitions.inboxes[key].frame(spark, name)
        return source_frame(spark, table, folder / "files" / name, on_bad_row, name)


def check_sources(spark: SparkSession, definitions: Definitions, sources: Iterable[op.Source]) -> None:
    """Raise if one of some sources cannot be read."""
    on_bad_row = definitions.catalog.settings.on_bad_row
    for source in sources:
        key, table = source.table.casefold(), definitions.table(source.table)
        with placed(definitions.place("table", source.table)):
            if key in definitions.frames:
                frame_source(definitions.frames[key], table, on_bad_row)
            elif source.time is not None and key not in definitions.inboxes:
                check_source(spark, table, on_bad_row)
