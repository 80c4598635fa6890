"""Attempts of a task: Spark tries one again that fails, in case that its process or machine was to blame.

What is wrong with a user's data or functions is wrong every time. So the first attempt of a task leaves a note of such
an error, and those that follow on the same machine end with it at once. Spark removes the note with its other files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pyspark import SparkFiles, TaskContext


class Attempt:
    """What is known of the earlier attempts of the task that runs here; nothing on the driver."""

    def __init__(self) -> None:
        context = TaskContext.get()
        self._note: Path | None = None
        self.error = ""
        """The error that ended an attempt before."""
        if context is not None:
            name = f"cql-error-{context.stageId()}-{context.partitionId()}"
            self._note = Path(SparkFiles.getRootDirectory()) / name
            if context.attemptNumber() > 0:
                with suppress(OSError):
                    self.error = self._note.read_text()

    def fails_with(self, error: str) -> None:
        """Let the attempts that follow end with an error."""
        if self._note is not None:
            with suppress(OSError):
                self._note.write_text(error)
