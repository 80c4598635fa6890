"""Rows that are given in Python, on their way to a host: files that a network reads like any other source.

What has been put is there until it has been processed, and, of the log of a relation, for queries that come later. A
network that is started again from its checkpoint goes on with it. Rows that are put again as a whole, as the data of a
program that is run again, are known by their content and are not read twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from runtime.connectors.intake import SourceRows
from runtime.connectors.result_files import write_atomically, writing
from runtime.network.definitions import Table
from runtime.network.messages import batch_bytes, bytes_batch


class Inbox:
    """The rows of one table; while it `is_open`, more can come."""

    def __init__(self, folder: Path, table: Table, is_open: bool) -> None:
        self.folder = folder
        self.table = table
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
        """The file that has the number of what is pushed next: no name is used twice, because hosts know them all."""
        return self.folder / ".next"

    def put(self, parts: Iterable[SourceRows]) -> None:
        """Take rows that are all there is; nothing happens if they have been taken before."""
        for number, rows in enumerate(parts):
            blob = _packed(rows)
            self._write(f"{number:012}-{hashlib.sha256(blob).hexdigest()[:16]}", blob)

    def _write(self, name: str, blob: bytes) -> None:
        path = self.folder / f"{name}.arrow"
        if not path.exists():
            write_atomically(path, blob)


def _packed(rows: SourceRows) -> bytes:
    arrays = [pa.array(rows.instants)]
    if rows.signs is not None:
        arrays.append(pa.array(rows.signs))
    names = ["instant", "sign"][: len(arrays)] + [f"c{at}" for at in range(len(rows.columns))]
    return batch_bytes(pa.record_batch([*arrays, *rows.columns], names=names))


def read_inbox(path: Path) -> SourceRows:
    """Return the rows of a file of an inbox."""
    batch = bytes_batch(path.read_bytes())
    columns = tuple(batch.column(name) for name in batch.schema.names if name.startswith("c"))
    signs = np.asarray(batch.column("sign")) if "sign" in batch.schema.names else None
    return SourceRows(columns, np.asarray(batch.column("instant")), signs)
