"""The changes of a query in a micro-batch, in the order of time, read piece by piece from where buckets have put them.

Each place sends its changes in that order. Only one piece of each place is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime.columns.batch import ChangeBatch, concat
from runtime.columns.row_codes import is_sorted, order_by
from runtime.network.messages import unpack_changes


@dataclass
class Changes:
    """Packed changes, by place, and how many rows they have."""

    places: dict[str, list[bytes]] = field(default_factory=dict)
    rows: int = 0

    def add(self, place: str, rows: int, blob: bytes) -> None:
        """Add a piece, the next one of its place."""
        self.places.setdefault(place, []).append(blob)
        self.rows += rows

    def __iter__(self) -> Iterator[ChangeBatch]:
        return merged([(unpack_changes(blob, 0) for blob in blobs) for blobs in self.places.values()])


def merged(places: Sequence[Iterable[ChangeBatch]]) -> Iterator[ChangeBatch]:
    """Yield batches of several places, each in the order of time, as batches in the order of time."""
    coming = [iter(each) for each in places]
    held = [next(each, None) for each in coming]
    while found := {at: batch for at, batch in enumerate(held) if batch is not None}:
        bound = min(int(batch.start[-1]) for batch in found.values())
        parts: list[ChangeBatch] = []
        for at, batch in found.items():
            count = int(np.searchsorted(batch.start, bound, side="right"))
            parts.append(batch.slice(0, count))
            held[at] = batch.slice(count, len(batch)) if count < len(batch) else next(coming[at], None)
        together = concat(parts)
        yield together if is_sorted(together.start) else together.take(order_by(together.start))
