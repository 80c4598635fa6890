"""Runs queries on Spark: a job for each clock, their results to the sinks.

Queries on integer time, on TIMESTAMP time and on no clock at all are jobs of their own, because their instants cannot
be compared. A checkpoint holds a folder for each of them; without one, a temporary folder does, for as long as the
run takes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from pyspark.sql import SparkSession

from cql.catalog import Catalog, QueryDef
from planner.network import compile_definition
from planner.plan import combine
from runtime.formats.results import MemoryWriter
from runtime.formats.sinks import Output
from runtime.formats.tables import Screen
from runtime.local import by_clock
from runtime.spark.delivery import Delivery, Target
from runtime.spark.job import Job
from runtime.statistics import Figures


class SparkRun:
    """Some queries of a catalog at work; a context that stops them at its end."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        *,
        output: Output = "table",
        out: TextIO | None = None,
        checkpoint: Path | None = None,
    ) -> None:
        self._temporary = None if checkpoint else tempfile.mkdtemp(prefix="cql-")
        self._root = checkpoint or Path(str(self._temporary))
        self._jobs: list[Job] = []
        self._deliveries: list[Delivery] = []
        definitions = {query.name: query for query in queries}
        functions = {each.name: each.code for each in (*catalog.functions.values(), *catalog.aggregates.values())}
        screen = Screen(out or sys.stdout)
        share = catalog.settings.sharing == "on"
        try:
            for part in by_clock(compile_definition(query, share) for query in definitions.values()):
                plan = combine(part)
                own = [definitions[name] for name in plan.queries]
                targets = [Target(q, q.tree.schema, plan.output(q.name).is_stream, q.tree.time) for q in own]
                time = next((q.tree.time for q in own if q.tree.time is not None), None)
                folder = self._root / (time.name.lower() if time else "timeless")
                folder.mkdir(parents=True, exist_ok=True)
                self._deliveries.append(Delivery(folder, targets, output, screen))
                self._jobs.append(Job(spark, catalog, plan, functions, self._deliveries[-1], folder))
        except BaseException:
            self.abort()
            raise

    def drain(self) -> None:
        """Read all sources to their ends, close the last instants and deliver everything."""
        for job in self._jobs:
            job.start()
        for job in self._jobs:
            job.drain()

    @property
    def results(self) -> dict[str, MemoryWriter]:
        """The results that are kept in memory, by query."""
        return {name: kept for delivery in self._deliveries for name, kept in delivery.results.items()}

    def statistics(self) -> list[Figures]:
        """Return what is known of the sources."""
        return [figures for job in self._jobs for figures in job.statistics()]

    def losses(self) -> list[str]:
        """Return a line for each table of which rows were left out."""
        return [line for job in self._jobs for line in job.losses()]

    def finish(self) -> None:
        """Complete the results."""
        for delivery in self._deliveries:
            delivery.finish()
        self._clean_up()

    def abort(self) -> None:
        """Stop, and leave what has been delivered."""
        for job in self._jobs:
            job.stop()
        for delivery in self._deliveries:
            delivery.abort()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abort()
