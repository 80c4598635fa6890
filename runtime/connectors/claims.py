"""Whose results are in a place: a folder, or a file, that one query of one checkpoint writes to.

A hidden file in the folder, or beside the file, names the owner, and a run that writes there holds a lock on it. So two
runs never write to one place at the same time, and a checkpoint never goes on in results that are not its own.

| who comes | finds | what happens |
|---|---|---|
| anybody | a run that writes there | is refused |
| a run from its beginning | results of an earlier run | they are replaced, and the place is its own |
| a run that goes on | its own results | it goes on |
| a run that goes on | results of another, or none | is refused |
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cql.errors import Code, CqlError, fail
from runtime.connectors.result_files import writing

NAME = ".cql-owner"


@dataclass(frozen=True)
class Owner:
    """A query of a checkpoint; `id` tells a checkpoint from one that was at the same path before."""

    query: str
    checkpoint: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"query '{self.query}' of " + (f"'{self.checkpoint}'" if self.checkpoint else "a run without checkpoint")


class Held(Exception):
    """A lock that somebody else has, with what they have written there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def lock(path: Path) -> int:
    """Return an open file that others cannot lock as long as this process lives; raises `Held` if they have.

    A link is not followed: what it leads to is not ours.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(handle, 1 << 16).decode(errors="replace")
        os.close(handle)
        raise Held(text) from None
    return handle


def this_process() -> str:
    """Return who holds a lock of this process, in words."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Claim:
    """The right of an owner to write to a place, for as long as it is open."""

    def __init__(self, place: Path, owner: Owner, *, is_folder: bool) -> None:
        self._place = place
        self._owner = owner
        self._path = _owner_file(place, is_folder)
        self._handle: int | None = None

    def open(self, *, goes_on: bool) -> None:
        """Keep others out; raises if somebody is there, or if one who `goes_on` does not find what was left."""
        if goes_on and not self._path.exists():
            raise self._gone()
        with writing(self._place):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._handle = lock(self._path)
            except Held as held:
                raise in_use(self._place, held.text.splitlines()[-1:]) from None
        found = self._read()
        if goes_on and (found is None or not self._is_own(found)):
            self.close()
            raise self._taken(found)
        self._write(self._owner if goes_on else found)

    def take(self) -> None:
        """Make the place one's own, whosever it was."""
        self._write(self._owner)

    def check(self) -> None:
        """Raise if the place is not the one any more that was opened."""
        assert self._handle is not None, "the claim is open"
        try:
            is_there = os.path.samestat(os.stat(self._path), os.fstat(self._handle))
        except OSError:
            is_there = False
        if not is_there:
            raise self._gone()

    def close(self) -> None:
        """Let others in; the place stays the owner's."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _is_own(self, found: Owner) -> bool:
        """Tell whether an owner is this one; its checkpoint may have been moved, and is another if it was copied."""
        if (found.query, found.id) != (self._owner.query, self._owner.id):
            return False
        return found.checkpoint == self._owner.checkpoint or not Path(found.checkpoint).exists()

    def _read(self) -> Owner | None:
        assert self._handle is not None, "the claim is open"
        return _parsed(os.pread(self._handle, 1 << 16, 0).decode(errors="replace"))

    def _write(self, owner: Owner | None) -> None:
        """Write whose the place is, and then who is there now."""
        assert self._handle is not None, "the claim is open"
        text = f"{json.dumps(None if owner is None else asdict(owner))}\n{this_process()}\n".encode()
        with writing(self._path):
            os.pwrite(self._handle, text, 0)
            os.ftruncate(self._handle, len(text))
            os.fsync(self._handle)

    def _gone(self) -> CqlError:
        return fail(
            Code.OTHER_OWNER,
            f"'{self._place}', which has the results of '{self._owner.query}', has been removed or replaced",
            hint="put it back as it was, or start from a new checkpoint",
        )

    def _taken(self, found: Owner | None) -> CqlError:
        return fail(
            Code.OTHER_OWNER,
            f"'{self._place}' has the results of {found or 'something else'} by now",
            hint="give each checkpoint a path of its own; a run from a new checkpoint writes all results anew",
        )


def release(place: Path, *, is_folder: bool) -> None:
    """Let a place be nobody's, because somebody without a checkpoint writes it as a whole; raises if it is in use."""
    path = _owner_file(place, is_folder)
    check_free(place, is_folder=is_folder)
    with suppress(FileNotFoundError):
        path.unlink()


def check_free(place: Path, *, is_folder: bool) -> None:
    """Raise if a run writes to a place."""
    path = _owner_file(place, is_folder)
    if not path.exists():
        return
    with writing(place):
        try:
            os.close(lock(path))
        except Held as held:
            raise in_use(place, held.text.splitlines()[-1:]) from None


def in_use(place: Path, holder: list[str]) -> CqlError:
    """Return the error that a run writes to a place."""
    who = holder[0] if holder else "another run"
    return fail(
        Code.OTHER_OWNER,
        f"'{place}' is in use by {who}, which writes its results there",
        hint="stop that run first, or give each a path of its own",
    )


def _owner_file(place: Path, is_folder: bool) -> Path:
    return place / NAME if is_folder else place.with_name(f".{place.name}{NAME}")


def _parsed(text: str) -> Owner | None:
    """Return the owner that a text names; None if it names none."""
    try:
        return Owner(**json.loads(text.partition("\n")[0]))
    except (ValueError, TypeError):
        return None
