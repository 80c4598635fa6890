"""Runs queries on Spark: a network for each clock, and queries without state each on its own.

A query without state whose stream no network reads is run by Spark alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from pyspark.sql import DataFrame, SparkSession

from cql import bound
from cql.catalog import Catalog, QueryDef, StreamDef
from cql.service import service_level
from planner import operators as op
from planner.network import compile_definition
from runtime.connectors import SourceRows
from runtime.delivery.delivery import Delivery
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.network import Network
from runtime.network.run import Job, NextNetwork, Run, RunOptions
from runtime.reports.progress import PART_NAMES
from runtime.spark.clusters import checkpoint_folder, prepare
from runtime.spark.frames import FrameCallback, FrameFunction, UserFrame
from runtime.spark.host import SparkHost
from runtime.spark.native import NativeJob, can_be_read_again, folder_name, native_stream
from runtime.spark.run_sources import check_sources
from runtime.spark.session import buckets_of, network_session
from runtime.user_errors import NOWHERE, Places


class SparkRun(Run):
    """Some queries of a catalog at work on Spark.

    `frames` are streaming DataFrames, and `data` all rows, of tables that have no source. `callbacks` are functions
    that take results, by query. `places` says where in a script tables and queries are defined, for errors. `options`
    are those of every run (`runtime/network/run.py`).
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        checkpoint: Path | None = None,
        frames: Mapping[str, DataFrame] | None = None,
        data: Mapping[str, Sequence[SourceRows]] | None = None,
        callbacks: Mapping[str, FrameCallback] | None = None,
        places: Places = NOWHERE,
        **options: Unpack[RunOptions],
    ) -> None:
        self._user_session = spark
        self._spark = network_session(spark)
        root = checkpoint_folder(checkpoint or Path(tempfile.mkdtemp(prefix="cql-")))
        definitions = self._defined(catalog, queries, frames, data, callbacks, places)
        super().__init__(definitions, root, is_kept=checkpoint is not None, **options)

    def _defined(
        self,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        frames: Mapping[str, DataFrame] | None,
        data: Mapping[str, Sequence[SourceRows]] | None,
        callbacks: Mapping[str, FrameCallback] | None,
        places: Places = NOWHERE,
    ) -> Definitions:
        """Return what is to be run, with what Spark was given for it."""
        given = {table: UserFrame(frame) for table, frame in (frames or {}).items()}
        functions = {query: FrameFunction(self._user_session, each) for query, each in (callbacks or {}).items()}
        return Definitions(catalog, list(queries), given, data or {}, functions, places)

    def next_network(
        self,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        frames: Mapping[str, DataFrame] | None = None,
        data: Mapping[str, Sequence[SourceRows]] | None = None,
        callbacks: Mapping[str, FrameCallback] | None = None,
    ) -> NextNetwork:
        """Return what the network becomes with another set of queries; raises if that cannot be run.

        Nothing has changed yet: `change` does it.
        """
        return self.next_of(self._defined(catalog, queries, frames, data, callbacks))

    @property
    def _buckets(self) -> int:
        return buckets_of(self._user_session)

    def _prepare(self) -> None:
        prepare(self._spark, self._root)

    def _new_job(self, part: str, folder: Path, delivery: Delivery, counters: Counters) -> Job:
        if part in PART_NAMES.values():
            return Network(SparkHost(self._spark, folder), folder, delivery, counters)
        return NativeJob(self._spark, folder, delivery, counters)

    def _check_sources(self, definitions: Definitions, sources: Iterable[op.Source]) -> None:
        check_sources(self._spark, definitions, sources)

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
