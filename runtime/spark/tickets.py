"""The files of a source on Spark: a ticket for each, in a folder of the checkpoint, which Spark's file source reads.

Spark's file source orders files by when they were last written, passes over old ones and those that are gone, and takes
some names for patterns. So it never sees the files of users. Its tickets are numbered by the log of the source
(`runtime/connectors/file_log.py`), their times follow their numbers, and each names one file, which a task then reads.
A ticket is as long as its file, as a number only and not on the disk, so that Spark shares out work, and limits
micro-batches, by the sizes of the files. What has become of them is in Spark's own log.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from runtime.connectors.file_log import FileLog, SourceFile
from runtime.connectors.result_files import writing

FILE_LIST = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark's source of whole files says of each; only the path is read."""

_EPOCH = 1_000_000_000
"""The time of the first ticket, in seconds; each has its number more."""


class Tickets:
    """The tickets of one source; `name` is the source's in the checkpoint of its Spark query."""

    def __init__(self, folder: Path, log: FileLog, name: str) -> None:
        self._folder = folder
        self._log = log
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[SourceFile] = deque()
        """Files that are known and have no tickets yet."""
        self._allowed: float | None = None
        self._issued = 0
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def open(self, spark_checkpoint: Path) -> list[str]:
        """Bring the tickets to what the logs say, and return what is to be said of the files."""
        known = handed_out(spark_checkpoint, self._name)
        settled = _first_after(known, committed(spark_checkpoint, self._name))
        with self._lock:
            said = self._log.open(settled, _first_after(known, None))
            for path in self._folder.iterdir():
                path.unlink()
            for file in self._log.unsettled:
                self._issue(file)
        return said

    def look(self, only_complete: bool = False) -> None:
        """Issue tickets for new files, as far as they are allowed; with `only_complete`, not for those that somebody
        seems to be writing."""
        with self._lock:
            self._waiting.extend(self._log.discover(only_complete))
            self._issue_waiting()

    def allow(self, times: float | None) -> None:
        """Let the next micro-batch have some times as many bytes as since the last call; None: all there are.

        It can have at least one file, and the file with which there are too many.
        """
        with self._lock:
            self._allowed = None if times is None else max(times * self._issued, 1)
            self._issued = 0
            self._issue_waiting()

    def _issue_waiting(self) -> None:
        while self._waiting and (self._allowed is None or self._issued < self._allowed):
            self._issued += max(self._waiting[0].size, 1)
            self._issue(self._waiting.popleft())

    def look_back(self) -> None:
        """Raise if a file that is done with has changed."""
        with self._lock:
            self._log.check_settled()

    def settle(self, number: int) -> None:
        """Remove the tickets before a number: their files are done with."""
        with self._lock:
            for done in self._log.settle(number):
                self._path(done).unlink(missing_ok=True)

    def reject(self, spark_checkpoint: Path) -> None:
        """Note that the files that Spark has handed out and not committed have ended the run, undelivered."""
        numbers = handed_out(spark_checkpoint, self._name)
        with self._lock:
            self._log.reject([file.number for file in self._log.unsettled if file.number in numbers])

    def frame(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the paths of tickets as Spark reads them; `options` say how many files a micro-batch may have."""
        opened = spark.readStream.name(self._name).format("binaryFile").schema(FILE_LIST)
        opened = opened.option("maxFileAge", "36500d").options(**options)
        return opened.load(f"file:{escaped(str(self._folder.absolute()))}").select("path")

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012}"

    def _issue(self, file: SourceFile) -> None:
        path = self._path(file.number)
        hidden = path.with_name(f".{path.name}")
        with writing(path):
            text = file.to_json().encode() + b"\n"
            hidden.write_bytes(text)
            os.truncate(hidden, max(file.size, len(text)))
            os.utime(hidden, (_EPOCH + file.number,) * 2)
            hidden.replace(path)


def handed_out(checkpoint: Path, source: str) -> dict[int, int]:
    """Return the tickets that the log of a source has, each with the number of the entry that it is in."""
    found = {}
    for path in (checkpoint / "sources" / source).glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[int(entry["path"].rpartition("/")[2])] = int(entry["batchId"])
    return found


def committed(checkpoint: Path, source: str) -> int:
    """Return the last entry in the log of a source that a committed micro-batch has read; -1 if there is none."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    try:
        lines = (checkpoint / "offsets" / str(max(batches, default=-1))).read_text().splitlines()
    except FileNotFoundError:
        return -1
    offsets = [line.removeprefix(f"{source}:") for line in lines if line.startswith(f"{source}:")]
    return int(json.loads(offsets[0])["logOffset"]) if offsets and offsets[0] != "-" else -1


def _first_after(known: Mapping[int, int], entry: int | None) -> int:
    """Return the number after those of all tickets up to an entry of the log; None: of all."""
    numbers = [number for number, found in known.items() if entry is None or found <= entry]
    return max(numbers, default=-1) + 1


def read_ticket(name: str) -> SourceFile:
    """Return the file that a ticket is for, given the ticket's path as Spark has it."""
    with open(re.sub("^file:/+", "/", name), "rb") as file:
        return SourceFile.from_json(file.readline())


_SPECIAL_IN_GLOBS = re.compile(r"([\\{}\[\]*?])")


def escaped(path: str) -> str:
    """Return a path in which Spark finds no pattern.

    >>> print(escaped("/in/[1].csv"))
    /in/\\[1\\].csv
    """
    return _SPECIAL_IN_GLOBS.sub(r"\\\1", path)
