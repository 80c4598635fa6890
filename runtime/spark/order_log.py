"""Lateness by the order of a source, for a query without state: its checkpoint notes the latest instant so far.

A network keeps that in its state, and notes it as well where bad rows depend on it (`runtime/network/kept_order.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import Row

from runtime.connectors.result_files import write_atomically
from runtime.network.directives import Directives, FeedOrder
from runtime.network.lateness import PlaceSpan, overtaken
from runtime.spark.task_properties import tell


class OrderLog:
    """What a checkpoint knows of the order of a feed: the latest instant before the last micro-batch, and after it."""

    def __init__(self, folder: Path, context: SparkContext, feed: str, delay: int) -> None:
        self.feed = feed
        self.delay = delay
        self._context = context
        self._path = folder / "order.json"
        self._known = _Order(**json.loads(self._path.read_bytes())) if self._path.exists() else _Order()

    def in_order(self, batch_id: int, compute: Callable[[], list[Row]]) -> list[Row]:
        """Compute a micro-batch so that rows are left out that are late by the order of the feed, and note that.

        It is computed again if a task has kept one, because another reads what comes before it.
        """
        newest = self._known.before if self._known.batch == batch_id else self._known.newest
        self._tell(FeedOrder(newest))
        said = compute()
        if before := overtaken(_spans(said), self.delay, newest):
            self._tell(FeedOrder(newest, before))
            said = compute()
            assert not overtaken(_spans(said), self.delay, newest), "late rows are left out where they are read"
        lasts = [newest, *(span.last for span in _spans(said))]
        self._known = _Order(batch_id, newest, max((last for last in lasts if last is not None), default=None))
        write_atomically(self._path, json.dumps(asdict(self._known)).encode())
        return said

    def _tell(self, order: FeedOrder) -> None:
        tell(self._context, Directives(order={self.feed: order}))


@dataclass(frozen=True, slots=True)
class _Order:
    batch: int = -1
    before: int | None = None
    newest: int | None = None


def _spans(said: Sequence[Row]) -> list[PlaceSpan]:
    """The spans of all places, in the order of the source."""
    return sorted((PlaceSpan(*span) for each in said for span in json.loads(each.spans)), key=lambda span: span.place)
