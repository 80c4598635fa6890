"""Control messages to all places of a network: files in its checkpoint, which hosts read like any other source.

So they are part of its log: a message takes effect with one micro-batch, in all places, and again when that one is
repeated. `runtime/network/worker.py` lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from runtime.connectors.result_files import write_atomically, writing


class ControlLog:
    """The messages of one network, numbered in the order in which they were given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def tell(self, message: Mapping[str, Any]) -> str:
        """Give a message to all places, with the next micro-batch, and return its name; later ones have greater."""
        with self._lock:
            told = self._told()
            name = f"{int(told[-1].stem) + 1 if told else 0:08}.txt"
            write_atomically(self.folder / name, f"{json.dumps(message)}\n".encode())
            return name

    def last(self) -> dict[str, Any]:
        """Return the message that was given last, or an empty one."""
        told = self._told()
        found: dict[str, Any] = json.loads(told[-1].read_text()) if told else {}
        return found

    def forget_before(self, name: str) -> None:
        """Remove messages that have taken effect for good; the last one stays."""
        for path in self._told()[:-1]:
            if path.name >= name:
                break
            path.unlink(missing_ok=True)

    def _told(self) -> list[Path]:
        """Return the messages that are there, in order; what a crash has left under a hidden name is none."""
        return sorted(self.folder.glob("[0-9]*.txt"))
