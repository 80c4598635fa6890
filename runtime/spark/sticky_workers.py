"""Homes: the processes that have the workers of buckets ready, in memory.

Spark hands a bucket to whichever Python process of a machine is free, a different one every time. Making its worker
anew from its state would take time in proportion to the window. So what Spark keeps of a bucket names the process that
had it last, and a task that runs elsewhere on the machine hands the pieces over to it, through a socket, and gets back
what it made. If that process is gone, has gone on without us, or fails, the worker is made anew from the state: homes
only ever save time.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import pyarrow as pa

from runtime.network.messages import ROWS, Piece, batch_bytes
from runtime.network.worker import Worker
from runtime.network.worker_state import save_worker
from runtime.user_errors import MemoryExceeded, UserFunctionFailed

MOST_KEPT = 64

LONG = 1 << 16
"""From how many bytes on what is sent is not copied into a message."""

Name = tuple[str, str, int]
"""A bucket: network, fragment and number."""


@dataclass(frozen=True)
class WorkerResult:
    """What a worker made of the pieces of a micro-batch: pieces for others, and how its state has changed."""

    sent: list[Piece]
    put: dict[str, bytes]
    drop: list[str]
    position: dict[str, Any]


class Home:
    """The workers that this process keeps, each with the mark of what was saved of it last."""

    def __init__(self) -> None:
        self._kept: dict[Name, tuple[str, Worker]] = {}
        self._lock = threading.Lock()
        self._key = uuid.uuid4().hex
        self._address: str | None = None

    def run(self, name: Name, worker: Worker, pieces: Sequence[Piece]) -> WorkerResult:
        """Let a worker process a micro-batch, and keep it for the next."""
        sent = worker.process(pieces)
        delta = save_worker(worker)
        mark = uuid.uuid4().hex
        with self._lock:
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = (mark, worker)
        position = {**delta.meta, "mark": mark, "home": self._open(), "key": self._key}
        put = {chunk: batch_bytes(rows) for chunk, rows in delta.put.items()}
        return WorkerResult(sent, put, sorted(delta.drop - delta.put.keys()), position)

    def run_kept(self, name: Name, mark: str, pieces: Sequence[Piece]) -> WorkerResult | None:
        """Let a worker that is kept here process a micro-batch; None if it is not, or not as it was saved."""
        with self._lock:
            found = self._kept.pop(name, None)
        return None if found is None or found[0] != mark else self.run(name, found[1], pieces)

    def run_anywhere(self, name: Name, position: dict[str, Any], pieces: Sequence[Piece]) -> WorkerResult | None:
        """Let a bucket process a micro-batch where its worker is; None if there is no such place."""
        mark, address, key = position["mark"], position["home"], position["key"]
        if key == self._key or address is None:
            with suppress(UserFunctionFailed, MemoryExceeded):
                return self.run_kept(name, mark, pieces)
            return None
        with suppress(OSError, EOFError), Client(address, "AF_UNIX", authkey=key.encode()) as connection:
            _send_pieces(connection, name, mark, pieces)
            found: WorkerResult | None = connection.recv()
            return found
        return None

    def _open(self) -> str | None:
        """Return the address at which this process takes pieces; None where there are no sockets without files."""
        if self._address is None and sys.platform == "linux":
            self._address = f"\0cql-{self._key[:16]}"
            listener = Listener(self._address, "AF_UNIX", backlog=16, authkey=self._key.encode())
            threading.Thread(target=self._listen, args=(listener,), name="cql home", daemon=True).start()
        return self._address

    def _listen(self, listener: Listener) -> None:
        while True:
            with suppress(OSError, EOFError):
                connection = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="cql guest", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """Answer a neighbour; it makes the worker itself, and finds out what is wrong, if that fails."""
        with connection, suppress(OSError, EOFError):
            name, mark, pieces = _received_pieces(connection)
            try:
                done = self.run_kept(name, mark, pieces)
            except Exception:
                done = None
            connection.send(done)


def _send_pieces(connection: Connection, name: Name, mark: str, pieces: Sequence[Piece]) -> None:
    """Send pieces, those with many rows as they are: they are most of what there is to send."""
    lengths = {at: len(each.blob) for at, each in enumerate(pieces) if each.kind == ROWS and len(each.blob) >= LONG}
    connection.send(
        (name, mark, [p._replace(blob=b"") if at in lengths else p for at, p in enumerate(pieces)], lengths)
    )
    with socket.socket(fileno=os.dup(connection.fileno())) as plain:
        for at in lengths:
            plain.sendall(pieces[at].blob)


def _received_pieces(connection: Connection) -> tuple[Name, str, list[Piece]]:
    """Receive what `_send_pieces` sends."""
    name, mark, pieces, lengths = connection.recv()
    with socket.socket(fileno=os.dup(connection.fileno())) as plain:
        for at, length in lengths.items():
            pieces[at] = pieces[at]._replace(blob=_received_bytes(plain, length))
    return name, mark, pieces


def _received_bytes(plain: socket.socket, length: int) -> memoryview:
    found, done = memoryview(pa.allocate_buffer(length)), 0
    while done < length:
        count = plain.recv_into(found[done:], length - done, socket.MSG_WAITALL)
        if not count:
            raise EOFError
        done += count
    return found


_homes: dict[int, Home] = {}


def home() -> Home:
    """Return the home of this process; one that was loaded before a fork is not ours."""
    if os.getpid() not in _homes:
        _homes.clear()
        _homes[os.getpid()] = Home()
    return _homes[os.getpid()]
