"""From the path of a table to its files: a file, a folder or a glob, relative to the working directory.

Folders and globs stand for files whose names do not start with `_` or `.`, as in Spark. Files come in the order of
their names, so that the order of a source does not depend on the file system.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cql.errors import Code, CqlError, fail

_RELATIVE = "paths are relative to the working directory, "
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: str) -> bool:
    """Return whether a path is the URL of something that is not a file of this machine.

    >>> is_remote("hdfs://name/bids"), is_remote("file:/bids"), is_remote("bids:1.csv")
    (True, False, False)
    """
    return _REMOTE.match(path) is not None


def files_of(path: str) -> list[Path]:
    """Return the files that a path stands for, sorted; raises if there are none."""
    exact = Path(path)
    found = [exact] if path and exact.exists() else [p for p in map(Path, sorted(glob.glob(path))) if _counts(p)]
    files = [file for place in found for file in _files_in(place)]
    if files:
        return files
    if path and exact.is_dir():
        raise fail(
            Code.NO_FILE, f"there are no files in the folder '{path}'", hint="files named _.. or .. do not count"
        )
    what = f"no file matches '{path}'" if glob.has_magic(path) else f"there is no file '{path}'"
    raise fail(Code.NO_FILE, what, hint=f"{_RELATIVE}{os.getcwd()}")


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        return sorted(p for p in path.iterdir() if p.is_file() and _counts(p))
    except OSError as error:
        raise unreadable(path, error) from None


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
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise unreadable(path, error) from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise damaged(path, f"cannot be read: {reason}", "it may be damaged or cut off; write it again") from None
