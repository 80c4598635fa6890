"""Runs queries on Spark: a network for each clock, and queries without state each on its own.

A query without state whose stream no network reads is run by Spark alone (`native.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession

from cql import bound
from cql.catalog import Catalog, QueryDef, StreamDef
from cql.query import MOST_KEPT
from cql.service import service_level
from planner import operators as op
from planner.network import compile_definition
from runtime.connectors import SourceRows
from runtime.connectors.sinks import Output
from runtime.delivery.delivery import Delivery
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.network import Network
from runtime.network.record import NetworkRecord, source_name
from runtime.network.run import Job, NetworkRun
from runtime.reports.loss_warnings import Warn
from runtime.reports.progress import PART_NAMES
from runtime.spark.clusters import checkpoint_folder, prepare
from runtime.spark.frames import FrameCallback, FrameFunction, UserFrame
from runtime.spark.host import SparkHost
from runtime.spark.inbox import Inbox
from runtime.spark.native import NativeJob, can_be_read_again, folder_name, native_stream
from runtime.spark.run_sources import check_sources
from runtime.spark.session import buckets_of, network_session
from runtime.user_errors import NOWHERE, Places


class SparkRun(NetworkRun):
    """Some queries of a catalog at work on Spark; a context that stops them at its end.

    `frames` are streaming DataFrames, and `data` all rows, of tables that have no source. With `live`, the rows of
    those that have neither are pushed, and results that go to no sink are kept. `callbacks` are functions that take
    results, by query. `places` says where in a script tables and queries are defined, for errors.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        output: Output = "table",
        out: TextIO | None = None,
        checkpoint: Path | None = None,
        frames: Mapping[str, DataFrame] | None = None,
        data: Mapping[str, Sequence[SourceRows]] | None = None,
        callbacks: Mapping[str, FrameCallback] | None = None,
        live: bool = False,
        adopt: bool = False,
        keep: int = MOST_KEPT,
        places: Places = NOWHERE,
        warn: Warn | None = None,
    ) -> None:
        self._user_session = spark
        self._spark = network_session(spark)
        folder = None if checkpoint is None else checkpoint_folder(checkpoint)
        definitions = self.definitions(catalog, queries, frames=frames, data=data, callbacks=callbacks, places=places)
        super().__init__(
            definitions, output=output, out=out, checkpoint=folder, live=live, adopt=adopt, keep=keep, warn=warn
        )

    def definitions(
        self,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        frames: Mapping[str, DataFrame] | None = None,
        data: Mapping[str, Sequence[SourceRows]] | None = None,
        callbacks: Mapping[str, FrameCallback] | None = None,
        places: Places = NOWHERE,
    ) -> Definitions:
        """Return what is to be run, with what Spark was given for it."""
        given = {table: UserFrame(frame) for table, frame in (frames or {}).items()}
        functions = {query: FrameFunction(self._user_session, each) for query, each in (callbacks or {}).items()}
        return Definitions(catalog, list(queries), given, data or {}, functions, places)

    def _prepare(self) -> None:
        prepare(self._spark, self._root)

    @property
    def _buckets(self) -> int:
        return buckets_of(self._user_session)

    def _new_job(self, part: str, folder: Path, delivery: Delivery, counters: Counters) -> Job:
        if part in PART_NAMES.values():
            return Network(SparkHost(self._spark, folder), folder, delivery, counters)
        return NativeJob(self._spark, folder, delivery, counters)

    def _check_sources(self, definitions: Definitions, sources: Iterable[op.Source]) -> None:
        check_sources(self._spark, definitions, sources)

    # Queries that Spark runs alone

    def _divided(self, definitions: Definitions) -> dict[str, list[QueryDef]]:
        """Return the queries of each part; queries stay where they are, if they can."""
        known = [*PART_NAMES.values(), *(str(path.relative_to(self._root)) for path in self._root.glob("native/*"))]
        members = {part: record.queries for part in known if (record := self._record(part)) is not None}
        native = {query.name: self._native_stream(query, definitions) for query in definitions.queries}
        readers: dict[str, set[str]] = {}
        for query in definitions.queries:
            for scan in bound.scans(query.tree):
                readers.setdefault(scan.name, set()).add(query.name)
        parts: dict[str, list[QueryDef]] = {part: [] for part in members}
        for query in definitions.queries:
            clock, own = PART_NAMES[query.tree.time], folder_name(query.name)
            stream = native[query.name]
            is_free = False
            if stream is not None and query.name not in members.get(clock, ()):
                others = readers[stream.name] - {query.name}
                is_free = all(native[each] for each in others) and (not others or can_be_read_again(stream))
            stays = stream is not None and own in members
            parts.setdefault(own if is_free or stays else clock, []).append(query)
        return parts

    def _native_stream(self, query: QueryDef, definitions: Definitions) -> StreamDef | None:
        if service_level(query.options, query.settings).policy != "none":
            return None
        return native_stream(query, compile_definition(query), definitions, query.name in definitions.callbacks)

    # Rows that are given

    def _rows_given(self, definitions: Definitions, record: NetworkRecord) -> dict[str, Inbox]:
        """Return the inboxes of the timed tables that have neither a source nor a frame; given data is in them."""
        found: dict[str, Inbox] = {}
        for source in record.plan.sources:
            key, table = source.table.casefold(), definitions.table(source.table)
            is_given = key in definitions.data
            if key in found or source.time is None or table.source is not None or key in definitions.given:
                continue
            if is_given or self._live:
                found[key] = Inbox(self._root / "inbox" / source_name(table), table, is_open=not is_given)
                found[key].put(definitions.data.get(key, ()))
        return found
