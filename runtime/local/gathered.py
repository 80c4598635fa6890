"""The results of one query in a micro-batch; beyond some megabytes they wait on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from runtime.columns.batch import ChangeBatch
from runtime.network.messages import pack_changes, unpack_changes

MOST_BYTES = 64 << 20
"""How many bytes wait in memory."""


class Gathered:
    """Changes in the order of time."""

    def __init__(self) -> None:
        self.rows = 0
        self._nbytes = 0
        self._first: list[ChangeBatch] = []
        self._lengths: list[int] = []
        self._file: BinaryIO | None = None

    def add(self, batch: ChangeBatch) -> None:
        """Add changes that come after all others."""
        self.rows += len(batch)
        self._nbytes += batch.nbytes
        if self._nbytes <= MOST_BYTES:
            self._first.append(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="cql-")  # noqa: SIM115
        blob = pack_changes(batch)
        self._file.write(blob)
        self._lengths.append(len(blob))

    def __iter__(self) -> Iterator[ChangeBatch]:
        yield from self._first
        if self._file is not None:
            self._file.seek(0)
            for length in self._lengths:
                yield unpack_changes(self._file.read(length), 0)
            self._file.close()
