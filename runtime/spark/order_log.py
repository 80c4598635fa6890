"""Lateness by the order of a source, for a query without state: its checkpoint notes the latest instant so far.

A network keeps that in its state (`runtime/network/worker.py`), and notes it as well where bad rows depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Row

from runtime.connectors.result_files import write_atomically
from runtime.network.lateness import PlaceSpan, overtaken
from runtime.spark.task_properties import tell_order


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
        tell_order(self._context, {self.feed: {"newest": newest}})
        said = compute()
        if before := overtaken(_spans(said), self.delay, newest):
            tell_order(self._context, {self.feed: {"newest": newest, "before": before}})
            said = compute()
            assert not overtaken(_spans(said), self.delay, newest), "late rows are left out where they are read"
        lasts = [newest, *(span.last for span in _spans(said))]
        self._known = _Order(batch_id, newest, max((last for last in lasts if last is not None), default=None))
        write_atomically(self._path, json.dumps(asdict(self._known)).encode())
        return said


class KeptOrder:
    """What a network tells its tasks of the order of each feed, kept for where a row is judged by those before it.

    A micro-batch that is repeated after a restart is told what it was told before: what was known after the last one
    that is committed. What is told of two micro-batches is kept, because the last of them may not be.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "order.json"
        self._commits = folder / "spark" / "commits"

    def keep(self, batch_id: int, order: Mapping[str, Any]) -> None:
        """Note what the micro-batch after one is to be told."""
        kept = {number: known for number, known in self._known().items() if int(number) >= batch_id - 2}
        write_atomically(self._path, json.dumps({**kept, str(batch_id): order}).encode())

    def last(self) -> dict[str, dict[str, Any]]:
        """Return what the first micro-batch of a run is told."""
        known = self._known()
        committed = [number for number in known if (self._commits / number).exists()]
        return known[max(committed, key=int)] if committed else {}

    def _known(self) -> dict[str, dict[str, dict[str, Any]]]:
        found: dict[str, Any] = json.loads(self._path.read_bytes()) if self._path.exists() else {}
        return found


@dataclass(frozen=True, slots=True)
class _Order:
    batch: int = -1
    before: int | None = None
    newest: int | None = None


def _spans(said: Sequence[Row]) -> list[PlaceSpan]:
    """The spans of all places, in the order of the source."""
    return sorted((PlaceSpan(*span) for each in said for span in json.loads(each.spans)), key=lambda span: span.place)
