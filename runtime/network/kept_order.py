"""What a network tells its tasks of the order of each feed, kept for where a row is judged by those before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime.connectors.result_files import write_atomically
from runtime.network.directives import FeedOrder


class KeptOrder:
    """What micro-batches are told of the order of feeds, in a file of the checkpoint.

    A micro-batch that is repeated after a restart is told what it was told before: what was known after the last one
    that is committed. What is told of two micro-batches is kept, because the last of them may not be.
    """

    def __init__(self, folder: Path, is_committed: Callable[[int], bool]) -> None:
        self._path = folder / "order.json"
        self._is_committed = is_committed

    def keep(self, batch_id: int, order: Mapping[str, FeedOrder]) -> None:
        """Note what the micro-batch after one is to be told."""
        kept = {number: known for number, known in self._known().items() if int(number) >= batch_id - 2}
        told = {feed: {"newest": known.newest} for feed, known in order.items()}
        write_atomically(self._path, json.dumps({**kept, str(batch_id): told}).encode())

    def last(self) -> dict[str, FeedOrder]:
        """Return what the first micro-batch of a run is told."""
        known = self._known()
        committed = [number for number in known if self._is_committed(int(number))]
        last = known[max(committed, key=int)] if committed else {}
        return {feed: FeedOrder(**told) for feed, told in last.items()}

    def _known(self) -> dict[str, dict[str, dict[str, Any]]]:
        found: dict[str, Any] = json.loads(self._path.read_bytes()) if self._path.exists() else {}
        return found
