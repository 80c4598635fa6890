"""The files of a source in the order in which they are read, and the log that remembers them in a checkpoint.

A source of files gives its rows in the order of this log: files that are found together come in the order of their
names, and files that are found later come after them, whatever their names and times say. Every file is noted before
anybody reads it, with its size and a fingerprint of its contents, and a file that is gone or is not what was noted is
an error: a micro-batch that is repeated reads the same rows, or says that it cannot.

A file that ended a run, because a row of it was bad, may be corrected before the next run: nothing of it has been
delivered. `FileLog.reject` notes which files these are. A file that has not been handed to anybody when a run starts
may be anything by then. This module knows nothing of Spark.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cql.errors import Code, CqlError, fail
from runtime.connectors.paths import unreadable
from runtime.connectors.result_files import sync, writing

_WHOLE = 8 << 20
"""Files up to this size are fingerprinted as a whole."""
_SAMPLE, _SAMPLES = 64 << 10, 64
"""Of larger ones, so many bytes in so many places, the first and the last among them."""

_NONE = -1
"""The size of a file that is gone."""

_JUST_NOW = 1_000_000_000
"""How many nanoseconds ago a file was written that somebody may still be writing."""

_LOG = "log.jsonl"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was noted; `number` is its place in the order of the source."""

    number: int
    path: str
    size: int
    modified: int
    """When it was last written, in nanoseconds."""
    fingerprint: str = ""
    """Empty if only size and time are to be compared."""
    is_withdrawn: bool = False
    """There is nothing to be read: it was gone before it was handed to anybody, or emptied after it had ended a run."""
    found_at: int | None = field(default=None, compare=False)
    """What the clock on the wall showed when it was noted, in microseconds; None of what is no plain file."""

    @classmethod
    def of(cls, number: int, path: str, root: str = "", with_fingerprint: bool = True) -> SourceFile:
        """Return a file as it is now; `root` is the folder that its path is relative to."""
        absolute = os.path.join(root, path)
        try:
            found = os.stat(absolute)
            mark = fingerprint(absolute, found.st_size) if with_fingerprint and _is_plain(found) else ""
            now = time.time_ns() // 1000 if _is_plain(found) else None
        except OSError as error:
            raise unreadable(Path(path), error) from None
        return cls(number, path, found.st_size, found.st_mtime_ns, mark, found_at=now)

    @classmethod
    def from_json(cls, text: str | bytes) -> SourceFile:
        """Return a file as `to_json` has written it."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return what is noted, in one line."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def check(self, root: str = "") -> None:
        """Raise if the file is gone, or is not what was noted."""
        path = os.path.join(root, self.path)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise gone(self.path) from None
        except OSError as error:
            raise unreadable(Path(self.path), error) from None
        if not _is_plain(found) or (found.st_size, found.st_mtime_ns) == (self.size, self.modified):
            return
        if found.st_size != self.size or not self.fingerprint or fingerprint(path, self.size) != self.fingerprint:
            raise changed(self, found.st_size)


def gone(path: str) -> CqlError:
    """Return the error that a file that is to be read is not there any more."""
    return fail(
        Code.CHANGED_SOURCE,
        f"'{path}' is gone, and its rows have not been delivered",
        hint="put it back as it was, and run again; a run that is to go on without it needs a new checkpoint",
    )


def changed(file: SourceFile, size: int) -> CqlError:
    """Return the error that a file is not what it was."""
    what = f"it has {size} bytes, and had {file.size}" if size != file.size else "it has other contents"
    return fail(
        Code.CHANGED_SOURCE,
        f"'{file.path}' is not what it was when it was found: {what}",
        hint="put back what was there, and new rows into files with new names; write a file under a name that begins "
        "with a dot, and rename it when it is complete",
    )


def fingerprint(path: str, size: int) -> str:
    """Return a short text that differs for different contents: of all bytes, or of samples of a large file."""
    digest = hashlib.blake2b(str(size).encode(), digest_size=12)
    with open(path, "rb", buffering=0) as file:
        if size <= _WHOLE:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for at in range(_SAMPLES):
                file.seek((size - _SAMPLE) * at // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _is_plain(found: os.stat_result) -> bool:
    """Tell whether what stands under a name is a file that can be read again; a pipe cannot."""
    return (found.st_mode & 0o170000) == 0o100000


class FileLog:
    """What is known of the files of one source, kept in a folder; without one it is gone with the process.

    `find` returns the paths of the files that there are now, in order; they are relative to `root`.
    """

    def __init__(self, folder: Path | None, find: Callable[[], Sequence[str]], root: str = "") -> None:
        self._path = None if folder is None else folder / _LOG
        self._find = find
        self._root = root
        self._rejected: set[int] = set()
        self._files: dict[int, SourceFile] = {}
        self._numbers: dict[str, int] = {}
        self._growing: dict[str, tuple[int, int]] = {}
        """The size and time of a file that somebody seemed to be writing at the last look."""
        self._settled = 0
        if self._path is not None:
            self._load(self._path)

    def open(self, settled: int, handed_out: int) -> list[str]:
        """Begin a run, and return what is to be said of files that are not what they were.

        What came of the files before `settled` has been delivered and committed; those from there to `handed_out` are
        read again. Raises if one of these is gone, or if one has changed that may not.
        """
        self._settled = settled
        said = []
        for file in list(self._files.values()):
            if file.number in self._rejected and file.number >= settled:
                said += self._corrected(file)
            elif file.number < handed_out:
                self.check(file)
            elif not file.is_withdrawn and (now := self._now(file)) != file:
                self._note([now])
        return said

    @property
    def unsettled(self) -> list[SourceFile]:
        """The files that are not done with, in order."""
        return self.since(self._settled)

    def since(self, number: int) -> list[SourceFile]:
        """Return the files from a number on, in order."""
        return [self._files[each] for each in range(number, len(self._files))]

    def discover(self, only_complete: bool = False) -> list[SourceFile]:
        """Note the files that are new, and return them in order; one that is gone again was none.

        With `only_complete`, a file that was written just now has to be the same twice, and those after it wait for it.
        """
        new = [path for path in self._find() if path not in self._numbers]
        if only_complete:
            new = self._complete(new)
        files: list[SourceFile] = []
        for path in new:
            try:
                number = len(self._files) + len(files)
                files.append(SourceFile.of(number, path, self._root, with_fingerprint=self._path is not None))
            except CqlError:
                if os.path.lexists(os.path.join(self._root, path)):
                    raise
        self._note(files)
        return files

    def _complete(self, paths: Sequence[str]) -> list[str]:
        """The paths before the first of a file that was written just now and is not what it was at the last look."""
        before, self._growing = self._growing, {}
        for at, path in enumerate(paths):
            try:
                found = os.stat(os.path.join(self._root, path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise unreadable(Path(path), error) from None
            now = found.st_size, found.st_mtime_ns
            if time.time_ns() - found.st_mtime_ns < _JUST_NOW and before.get(path) != now:
                self._growing[path] = now
                return list(paths[:at])
        return list(paths)

    def check_settled(self) -> None:
        """Raise if a file that is done with has changed; it may be gone."""
        for number in range(self._settled):
            self.check(self._files[number])

    def check(self, file: SourceFile) -> None:
        """Raise if a file has changed, or is gone and not done with."""
        if not file.is_withdrawn and (file.number >= self._settled or self._exists(file)):
            file.check(self._root)

    def settle(self, number: int) -> list[int]:
        """Take the files before a number for done with, and return which of them were not before."""
        before, self._settled = self._settled, max(self._settled, number)
        return list(range(before, self._settled))

    def reject(self, numbers: Sequence[int]) -> None:
        """Note that some files have ended the run before anything of them was delivered."""
        self._append([{"rejected": list(numbers)}])
        self._rejected |= set(numbers)

    def _corrected(self, file: SourceFile) -> list[str]:
        """Note what has become of a file that ended a run."""
        if not self._exists(file):
            raise gone(file.path)
        now = self._now(file)
        if now == file:
            return []
        self._note([now])
        what = "empty: it is left out" if now.is_withdrawn else "not what it was: it is read as it is now"
        return [f"{file.path}, which ended a run, is {what}"]

    def _now(self, file: SourceFile) -> SourceFile:
        """Return a file as it is now; withdrawn if it is gone or empty."""
        if not self._exists(file):
            return replace(file, size=_NONE, is_withdrawn=True)
        now = SourceFile.of(file.number, file.path, self._root)
        return replace(now, is_withdrawn=not now.size)

    def _exists(self, file: SourceFile) -> bool:
        return os.path.exists(os.path.join(self._root, file.path))

    # The file

    def _note(self, files: Sequence[SourceFile]) -> None:
        """Write files into the log before anybody reads them."""
        if files:
            lines = [json.loads(file.to_json()) for file in files]
            self._append(lines)
            for line in lines:
                self._take(line)

    def _append(self, lines: Iterable[dict[str, Any]]) -> None:
        if self._path is None:
            return
        with writing(self._path), self._path.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def _load(self, path: Path) -> None:
        """Read the log; a last line that a crash has cut off was never acted upon."""
        if not path.exists():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                sync(path.parent)
            return
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):
            with writing(path):
                os.truncate(path, len(whole.encode()))
        try:
            for line in whole.splitlines():
                self._take(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise fail(
                Code.BAD_FILE,
                f"'{path}' does not say which files have been read: {error}",
                hint="the checkpoint is damaged or of another version; start from a new one",
            ) from None

    def _take(self, line: dict[str, Any]) -> None:
        """Take in a line of the log."""
        if "rejected" in line:
            self._rejected |= set(line["rejected"])
            return
        file = SourceFile(**line)
        self._files[file.number] = file
        self._rejected.discard(file.number)
        if file.size == _NONE:
            self._numbers.pop(file.path, None)
        else:
            self._numbers[file.path] = file.number
