"""The files of a table as a source: in the order of a log, with positions in it.

A position is the number of a file in the log, and how many good rows of that file come before. A file that is gone or
is not what was noted is an error, so what comes after a position is the same whenever it is read (`file_log.py`). A
file that was read in part is read on from there; one that ended a run before any of it was committed may be corrected.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from runtime.connectors.connector import Arrival, Position, ReadSettings, RowReader, RowSource, Table
from runtime.connectors.file_log import FileLog, SourceFile
from runtime.connectors.intake import SourceRows, no_rows
from runtime.connectors.sources import FileSource, SourceReader

_PAUSE = 0.1
"""How many seconds pass between two looks for new files, at least."""
_SHARE = 10
"""How many times as long as a look takes no other is taken."""


class LoggedFiles(RowSource):
    """The files of a table, those that are there, or also those that come later."""

    def __init__(self, table: Table, settings: ReadSettings) -> None:
        self._files = FileSource.of(table, settings.on_bad_row)
        self._files.place.check(settings.is_followed)
        self._is_followed = settings.is_followed
        self._log = FileLog(settings.folder, self._files.find, self._files.root)
        self._begun = self._settled = 0
        """The numbers of the files before which all have been begun, and before which nothing may change."""
        self.is_bounded = not settings.is_followed

    def start(self) -> Position:
        """Return the position before the first file."""
        return {"file": 0, "rows": 0}

    def read(self, position: Position, given_out: Position | None = None) -> RowReader:
        """Return the rows after a position; raises if a file that was given out is not what it was."""
        self.settle(position)
        self._begun = max(self._settled, _first_untouched(given_out or position))
        notes = self._log.open(self._settled, self._begun)
        return _LoggedReader(self, position, notes)

    def settle(self, position: Position) -> None:
        """Take the files before a position for done with; one of which rows are settled may not change any more."""
        self._log.settle(position["file"])
        self._settled = _first_untouched(position)

    def reject(self) -> None:
        """Note that the files that were begun, of which nothing is settled, may be corrected."""
        if self._begun > self._settled:
            self._log.reject(list(range(self._settled, self._begun)))

    def known(self, number: int) -> list[SourceFile]:
        """Return the files that are known from a number on."""
        return self._log.since(number)

    def discover(self) -> list[SourceFile]:
        """Return the files that are new; those that are followed when they are complete."""
        return self._log.discover(only_complete=self._is_followed)

    def begin(self, file: SourceFile, newest: int | None) -> SourceReader:
        """Return the rows of a file."""
        self._begun = max(self._begun, file.number + 1)
        return self._files.rows([] if file.is_withdrawn else [file], newest)

    def no_rows(self) -> SourceRows:
        """Return no rows of the table."""
        return no_rows(self._files.table)


def _first_untouched(position: Position) -> int:
    """Return the number of the first file of which nothing comes before a position."""
    number: int = position["file"]
    return number + bool(position["rows"])


class _LoggedReader(RowReader):
    def __init__(self, source: LoggedFiles, position: Position, notes: list[str]) -> None:
        self.notes = notes
        self._source = source
        self._waiting = deque([*source.known(position["file"]), *source.discover()])
        self._newest: int | None = position.get("newest")
        """The latest instant before the file that is read, where rows may not be too far ahead of it."""
        self._passed: int = position["rows"]
        """How many good rows of the next file are passed over, because the position is after them."""
        self._current: _Reading | None = None
        self._next_look = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether all files have been read, and no more are looked for."""
        return self._source.is_bounded and self._current is None and not self._waiting

    def poll(self) -> Arrival | None:
        """Return the next rows of a file; at its end none, and the position after it."""
        if self._current is None and not self._begin():
            return None
        assert self._current is not None, "a file is read"
        arrival = self._current.next()
        if arrival is not None:
            return arrival
        ended, self._current = self._current, None
        self._newest = ended.rows.newest
        position = {"file": ended.number + 1, "rows": 0, "newest": self._newest}
        return Arrival(self._source.no_rows(), position, ended.skipped_now())

    def _begin(self) -> bool:
        """Begin the next file, if there is one."""
        if not self._waiting and not self._source.is_bounded:
            self._look()
        if not self._waiting:
            return False
        file = self._waiting.popleft()
        rows = self._source.begin(file, self._newest)
        self._current = _Reading(file.number, rows, self._newest, self._passed)
        self._passed = 0
        return True

    def _look(self) -> None:
        """Look for new files, if that is due; the longer it takes, the rarer."""
        began = time.monotonic()
        if began >= self._next_look:
            self._waiting.extend(self._source.discover())
            ended = time.monotonic()
            self._next_look = ended + max(_PAUSE, _SHARE * (ended - began))


class _Reading:
    """A file that is being read, from a number of good rows on."""

    def __init__(self, number: int, rows: SourceReader, newest: int | None, passed: int) -> None:
        self.number = number
        self.rows = rows
        self._newest = newest
        self._passed = passed
        self._read = 0
        self._skipped = 0

    def next(self) -> Arrival | None:
        """Return the next rows, or None at the end of the file."""
        for rows in self.rows:
            first = self._read
            self._read += len(rows)
            if self._read > self._passed:
                position = {"file": self.number, "rows": self._read, "newest": self._newest}
                later = rows.chosen(np.arange(self._passed - first, len(rows))) if first < self._passed else rows
                return Arrival(later, position, self.skipped_now())
            self.skipped_now()
        return None

    def skipped_now(self) -> int:
        """Return how many bad rows were left out since the last time."""
        before, self._skipped = self._skipped, self.rows.skipped
        return self._skipped - before
