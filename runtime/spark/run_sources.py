"""How Spark reads the tables of a run: those with sources, frames of the user, and rows that are pushed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from planner import operators as op
from runtime.network.definitions import Definitions
from runtime.network.inbox import Inbox
from runtime.network.record import source_name
from runtime.spark.frames import UserFrame, with_named_sources
from runtime.spark.inbox_frame import inbox_frame
from runtime.spark.sources import SourceFrame, check_source, frame_source, source_frame
from runtime.user_errors import placed


def opened_source(spark: SparkSession, definitions: Definitions, source: op.Source, folder: Path) -> SourceFrame:
    """Return how Spark reads what feeds a source; what has to be remembered of files is kept below a folder."""
    table, on_bad_row = definitions.table(source.table), definitions.catalog.settings.on_bad_row
    name = source_name(table, source.epoch)
    with placed(definitions.place("table", source.table)):
        match definitions.given.get(source.table.casefold()):
            case UserFrame(frame):
                return frame_source(with_named_sources(frame, spark, name), table, on_bad_row)
            case Inbox() as inbox:
                return inbox_frame(spark, inbox, name)
        return source_frame(spark, table, folder / "files" / name, on_bad_row, name)


def check_sources(spark: SparkSession, definitions: Definitions, sources: Iterable[op.Source]) -> None:
    """Raise if one of some sources cannot be read."""
    on_bad_row = definitions.catalog.settings.on_bad_row
    for source in sources:
        table, given = definitions.table(source.table), definitions.given.get(source.table.casefold())
        with placed(definitions.place("table", source.table)):
            if isinstance(given, UserFrame):
                frame_source(given.frame, table, on_bad_row)
            elif source.time is not None and given is None:
                check_source(spark, table, on_bad_row)
