"""Runs queries in this process on local hosts: from a checkpoint, where they go on, or over folders that are followed.

Files of results appear as micro-batches are delivered, each once. A run without an end commits every now and then, any
other one when it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from cql.catalog import Catalog, QueryDef
from cql.errors import Code, fail
from planner import operators as op
from runtime.connectors.connector import ReadSettings
from runtime.connectors.sources import source_of
from runtime.delivery.delivery import Delivery
from runtime.local.host import LocalHost
from runtime.network.counters import Counters
from runtime.network.definitions import Definitions
from runtime.network.network import Network
from runtime.network.run import Run, RunOptions
from runtime.user_errors import NOWHERE, Places, placed

COMMIT_SECONDS = 0.2
"""How often a run without an end commits."""


class LocalHostRun(Run):
    """Some queries of a catalog at work in this process; without a checkpoint, what is kept goes with the process."""

    def __init__(
        self,
        catalog: Catalog,
        queries: Iterable[QueryDef],
        checkpoint: Path | None,
        *,
        places: Places = NOWHERE,
        **options: Unpack[RunOptions],
    ) -> None:
        definitions = Definitions(catalog, list(queries), places=places)
        root = (checkpoint or Path(tempfile.mkdtemp(prefix="cql-"))).absolute()
        super().__init__(definitions, root, is_kept=checkpoint is not None, **options)

    def _prepare(self) -> None:
        """Raise if the checkpoint is that of another host."""
        if any(self._root.glob("*/spark")):
            raise fail(
                Code.OTHER_CHECKPOINT,
                f"the checkpoint '{self._root}' was made on Spark",
                hint="run on Spark: --engine spark, or give the local engine a checkpoint of its own",
            )

    @property
    def _buckets(self) -> int:
        return 1

    def _new_job(self, part: str, folder: Path, delivery: Delivery, counters: Counters) -> Network:
        seconds = COMMIT_SECONDS if self.is_endless else None
        return Network(LocalHost(folder, seconds), folder, delivery, counters)

    def _check_sources(self, definitions: Definitions, sources: Iterable[op.Source]) -> None:
        settings = definitions.catalog.settings
        for source in sources:
            with placed(definitions.place("table", source.table)):
                source_of(definitions.table(source.table), ReadSettings(settings.on_bad_row))
