"""Overflow: what a bucket sends beyond some megabytes of a micro-batch goes to a file, and its place there is sent.

So neither the processes of Spark nor the driver ever hold all that follows from a micro-batch. The folder is one that
all machines see; whoever starts a micro-batch removes what is left of the one before.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 32 << 20
"""How many bytes are sent as they are."""

_MARK = b"\0elsewhere "
"""What a place begins with, and a batch of Arrow never does."""


class Overflow:
    """What one bucket sends of one micro-batch."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sent = self._written = 0
        self._file: BinaryIO | None = None

    def passed(self, blob: bytes) -> bytes:
        """Return bytes as they are, or, if there were too many before, their place in a file."""
        self._sent += len(blob)
        if self._folder is None or self._sent <= MOST_BYTES:
            return blob
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / uuid.uuid4().hex).open("xb")
        self._file.write(blob)
        place = json.dumps([self._file.name, self._written, len(blob)])
        self._written += len(blob)
        return _MARK + place.encode()

    def close(self) -> None:
        """Complete the file."""
        if self._file is not None:
            self._file.close()


def kept_elsewhere(blob: bytes) -> bytes:
    """Return the bytes that were sent."""
    if bytes(blob[: len(_MARK)]) != _MARK:
        return blob
    path, at, length = json.loads(bytes(blob[len(_MARK) :]))
    with open(path, "rb") as file:
        file.seek(at)
        return file.read(length)
