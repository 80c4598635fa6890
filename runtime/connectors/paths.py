"""From the path of a table to its files: a file, a folder or a glob, relative to the working directory.

Folders and globs stand for files whose names do not start with `_` or `.`, as in Spark. Files come in the order of
their names, so that the order of a source does not depend on the file system.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cql.errors import Code, CqlError, fail

_RELATIVE = "paths are relative to the working directory, "
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: str) -> bool:
    """Return whether a path is the URL of something that is not a file of this machine.

    >>> is_remote("hdfs://name/bids"), is_remote("file:/bids"), is_remote("bids:1.csv")
    (True, False, False)
    """
    return _REMOTE.match(path) is not None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a table are: a path, below which folders they may be, and a pattern of their names."""

    path: str
    pattern: str = "*"
    is_deep: bool = False

    def files(self) -> list[Path]:
        """Return the files that there are now, in the order of their names."""
        exact = Path(self.path)
        if os.path.exists(self.path):
            found = [exact]
        else:
            found = [path for path in map(Path, sorted(glob.glob(self.path))) if _counts(path)]
        return [file for each in found for file in self._files_in(each)]

    def check(self, is_followed: bool = False) -> None:
        """Raise if there are no files; of a folder or pattern that is followed, they may come later."""
        if not (is_followed and (os.path.isdir(self.path) or glob.has_magic(self.path))) and not self.files():
            raise self._nothing()

    def _files_in(self, path: Path) -> list[Path]:
        if not path.is_dir():
            return [path]
        try:
            return sorted(self._below(path))
        except OSError as error:
            raise unreadable(path, error) from None

    def _below(self, folder: Path) -> Iterator[Path]:
        for path in filter(_counts, folder.iterdir()):
            if path.is_file() and fnmatch.fnmatchcase(path.name, self.pattern):
                yield path
            elif self.is_deep and path.is_dir():
                yield from self._below(path)

    def _nothing(self) -> CqlError:
        if self.path and Path(self.path).is_dir():
            return fail(
                Code.NO_FILE,
                f"there are no files in the folder '{self.path}'",
                hint="files named _.. or .. do not count",
            )
        what = f"no file matches '{self.path}'" if glob.has_magic(self.path) else f"there is no file '{self.path}'"
        return fail(Code.NO_FILE, what, hint=f"{_RELATIVE}{os.getcwd()}")


def _counts(path: Path) -> bool:
    return not path.name.startswith(("_", "."))


def unreadable(path: Path, error: OSError) -> CqlError:
    """Return the error that a file or folder cannot be read."""
    return fail(
        Code.NO_FILE, f"'{path}' cannot be read: {error.strerror or error}", hint="check the path and its permissions"
    )


def damaged(path: Path, what: str, hint: str) -> CqlError:
    """Return the error that a file is not what its format says."""
    return fail(Code.BAD_FILE, f"'{path}' {what}", hint=hint)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into errors for people."""
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise unreadable(path, error) from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise damaged(path, f"cannot be read: {reason}", "it may be damaged or cut off; write it again") from None
