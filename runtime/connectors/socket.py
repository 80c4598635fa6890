"""socket: lines of text from a port of another program, which cannot be read again.

A row is a line in `value`; with `includeTimestamp` the instant at which it came is in `timestamp`, in milliseconds as
on Spark. What the other program sends waits in the buffers of the connection until it is asked for, and what was not
committed when a run ends is lost.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from cql import types as t
from cql.catalog import ColumnModel
from cql.errors import Code, CqlError, fail
from cql.settings import OnBadRow
from runtime.connectors.connector import Arrival, Connector, Position, ReadSettings, RowReader, RowSource, Table
from runtime.connectors.format_options import FormatOptions, OptionNote, Truth

if TYPE_CHECKING:
    from runtime.connectors.named_columns import NamedColumns

_VALUE = ColumnModel(name="value", type=t.STRING)
_TIMESTAMP = ColumnModel(name="timestamp", type=t.TIMESTAMP)

_BYTES = 1 << 20
"""How much is taken from the connection at a time."""

_PATIENCE = 10.0
"""How many seconds the other program has to accept the connection."""


def _port(text: Any) -> int:
    if not (str(text).isascii() and str(text).isdigit() and 0 < int(text) < 1 << 16):
        raise ValueError("it takes the number of a port, 1 to 65535")
    return int(text)


class SocketOptions(FormatOptions):
    """Where the lines come from."""

    format = "socket"
    host: Annotated[str, OptionNote("the machine to connect to")]
    port: Annotated[int, BeforeValidator(_port), OptionNote("the port to connect to")]
    include_timestamp: Annotated[
        Truth, OptionNote("`true`: a column `timestamp` says when each line came", name="includeTimestamp")
    ] = False


class SocketConnector(Connector):
    """Lines from a port."""

    name = "socket"
    reads = "lines of text from a port: `value STRING`"
    options = SocketOptions

    def source(self, table: Table, settings: ReadSettings) -> RowSource:
        """Return the lines of a connection; it is made when reading begins."""
        return SocketSource(table, settings)


class SocketSource(RowSource):
    """The lines of a connection. A position counts them, for people: no line can be read twice."""

    is_bounded = False
    is_replayable = False

    def __init__(self, table: Table, settings: ReadSettings) -> None:
        from runtime.connectors.named_columns import NamedColumns

        assert table.source is not None, "the table has a source"
        self._options = SocketOptions.of(table.source.options)
        columns = (_VALUE, _TIMESTAMP) if self._options.include_timestamp else (_VALUE,)
        self._columns = NamedColumns(table, "socket", columns)
        self._on_bad_row = settings.on_bad_row

    def start(self) -> Position:
        """Return the position before the first line of a connection."""
        return {"lines": 0}

    def read(self, position: Position, given_out: Position | None = None) -> RowReader:
        """Connect, and return the lines that come from now on; raises if nobody listens."""
        return _SocketReader(_connected(self._options), self._columns, self._on_bad_row, position)


def _connected(options: SocketOptions) -> socket.socket:
    try:
        connection = socket.create_connection((options.host, options.port), timeout=_PATIENCE)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise fail(
            Code.NO_FILE,
            f"nothing can be read from {options.host}:{options.port}: {reason}",
            hint="check its host and port, and that it is running",
        ) from None
    connection.setblocking(False)
    return connection


class _SocketReader(RowReader):
    def __init__(
        self, connection: socket.socket, columns: NamedColumns, on_bad_row: OnBadRow, position: Position
    ) -> None:
        from runtime.connectors.intake import Intake

        self._connection: socket.socket | None = connection
        self._columns = columns
        self._intake = Intake(columns.layout, on_bad_row, position.get("newest"))
        self._count: int = position["lines"]
        self._rest = b""
        """The beginning of a line whose end has not come."""

    @property
    def has_ended(self) -> bool:
        """Whether the other program has closed the connection, and all it has sent was read."""
        return self._connection is None

    def poll(self) -> Arrival | None:
        """Return the lines that are complete."""
        lines = self._lines()
        if not lines:
            return None
        before = self._intake.skipped
        rows = self._intake.take(self._columns.chunk(_batch(lines), self._count + 1))
        self._count += len(lines)
        position = {"lines": self._count, "newest": self._intake.newest}
        return Arrival(rows, position, self._intake.skipped - before)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lines(self) -> list[bytes]:
        """Return the lines that have come; the last one of all need not have an end."""
        if self._connection is None:
            return []
        received = _received(self._connection)
        if received is None:
            return []
        if not received:
            self.close()
            rest, self._rest = self._rest, b""
            return rest.splitlines()
        complete, end, rest = (self._rest + received).rpartition(b"\n")
        self._rest = rest
        return (complete + end).splitlines()


def _received(connection: socket.socket) -> bytes | None:
    """Return what has come, nothing if the connection has ended, or None if nothing waits to be read."""
    try:
        return connection.recv(_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        raise _lost(error) from None


def _lost(error: OSError) -> CqlError:
    return fail(
        Code.NO_FILE,
        f"the connection of a socket source is lost: {(error.strerror or str(error)).lower()}",
        hint="check the program that it comes from; lines that were not read are gone",
    )


def _batch(lines: list[bytes]) -> Any:
    """Return lines as columns, with the time."""
    import numpy as np
    import pyarrow as pa

    texts = [line.decode("utf-8", "replace") for line in lines]
    now = np.full(len(lines), time.time_ns() // 1_000_000 * 1000, np.int64)
    columns = [pa.array(texts, pa.string()), pa.array(now).view(pa.timestamp("us"))]
    return pa.record_batch(columns, names=[_VALUE.name, _TIMESTAMP.name])
