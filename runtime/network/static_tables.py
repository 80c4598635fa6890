"""The contents of static relations, kept in the checkpoint from when they were read.

A network that goes on from its checkpoint goes on with the rows that its state was made from, whatever has become of
the table since. Reading a table again makes a new version of it, which takes effect at an instant of its own; the
version before is kept until then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cql.settings import OnBadRow
from planner import operators as op
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Columns, concat_columns
from runtime.connectors.result_files import write_atomically, writing
from runtime.network.definitions import Definitions, Table
from runtime.network.messages import batch_bytes
from runtime.user_errors import placed

ReadTable = Callable[[Table, OnBadRow], Iterable[Columns]]
"""Reads all rows of a table that has a source."""


@dataclass(frozen=True)
class StaticContents:
    """What static relations hold: packed rows by source and version."""

    packed: dict[str, dict[int, bytes]]
    versions: dict[str, int]
    news: dict[str, int]
    """The versions that places have not been told of yet."""


class StaticTables:
    """A folder with the versions of each table, `<table>.<version>.arrow`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stale: set[str] = set()
        self.versions: dict[str, int] = {}

    def forget(self, table: str) -> None:
        """Read a table again next time."""
        self._stale.add(table.casefold())

    def contents(
        self, sources: Iterable[op.Source], definitions: Definitions, told: Mapping[str, int], read: ReadTable
    ) -> StaticContents:
        """Return what the static relations among some sources hold; those that are new or stale are read.

        `told` has the versions that places have been told of, or have begun with; `read` reads a table.
        """
        packed: dict[str, dict[int, bytes]] = {}
        news: dict[str, int] = {}
        for source in sources:
            if source.time is not None:
                continue
            key = source.table.casefold()
            kept = self._kept(key)
            if not kept or key in self._stale:
                version = max(kept, default=0) + 1
                with placed(definitions.place("table", source.table)):
                    rows = _packed(source.table, definitions, read)
                self._write(key, version, rows)
                kept = self._kept(key)
                self._stale.discard(key)
            self.versions[key] = newest = max(kept)
            if told.get(key, newest) < newest:
                news[key] = newest
            packed[source.id] = {version: kept[version].read_bytes() for version in sorted(kept)[-2:]}
        return StaticContents(packed, dict(self.versions), news)

    def _kept(self, key: str) -> dict[int, Path]:
        names = self._folder.glob("*.arrow") if self._folder.exists() else ()
        return {int(path.stem.rpartition(".")[2]): path for path in names if _table_of(path) == key}

    def _write(self, key: str, version: int, rows: bytes) -> None:
        path = self._folder / f"{_file_name(key)}.{version}.arrow"
        with writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, rows)


def _file_name(key: str) -> str:
    return json.dumps(key)[1:-1].replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")


def _table_of(path: Path) -> str:
    name = path.stem.rpartition(".")[0]
    found: str = json.loads(f'"{name.replace("%5c", chr(92)).replace("%2f", "/").replace("%25", "%")}"')
    return found


def _packed(name: str, definitions: Definitions, read: ReadTable) -> bytes:
    """Return the rows of a static relation: those that were given, or those that are read now."""
    table, given = definitions.table(name), definitions.data.get(name.casefold())
    if given is not None:
        parts: Sequence[Columns] = [each.columns for each in given]
    else:
        parts = list(read(table, definitions.catalog.settings.on_bad_row))
    types = [arrow_type(column.type) for column in table.columns]
    columns = concat_columns(parts) if parts else tuple(pa.nulls(0, each) for each in types)
    return batch_bytes(pa.record_batch(list(columns), names=[f"c{at}" for at in range(len(columns))]))
