"""The micro-batches of a local host that were planned and are not committed, in a file that grows.

A line is written before its micro-batch runs: how far it reads each source, and its control messages. After a crash the
same micro-batches run again, under the same ids. A line that a crash has cut off never ran.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runtime.connectors.connector import Position
from runtime.connectors.result_files import writing
from runtime.local.state_files import unusable

_FILE = "planned.jsonl"


@dataclass(frozen=True)
class Plan:
    """What a micro-batch has: the positions after the arrivals of feeds, in order, and control messages by name."""

    id: int
    reads: Sequence[tuple[str, Position]] = ()
    messages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class PlanLog:
    """The file in the folder of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        with writing(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+")

    def plans(self, committed: int) -> list[Plan]:
        """Return the micro-batches after one that is committed."""
        with writing(self._path):
            self._file.seek(0)
            text = self._file.read()
            whole = text[: text.rfind("\n") + 1]
            self._file.truncate(len(whole.encode()))
        try:
            plans = [Plan(**json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError):
            raise unusable(self._path.parent, f"its file {_FILE} is damaged") from None
        return [plan for plan in plans if plan.id > committed]

    def add(self, plan: Plan) -> None:
        """Write down a micro-batch that is about to run."""
        with writing(self._path):
            self._file.write(json.dumps(asdict(plan)) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Make sure that what was written outlives a failure of the machine."""
        with writing(self._path):
            os.fsync(self._file.fileno())

    def clear(self) -> None:
        """Forget all micro-batches: they are committed."""
        with writing(self._path):
            self._file.truncate(0)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
