"""rate: Spark's generator of rows, so many each second from when a run begins.

The rows are a function of the start, which is kept in the position: the instant of a row depends on its value and on
the start. So what comes after a position is the same whenever it is read. As on Spark, the speed grows from second to
second during the ramp, the rows of a second are spread evenly over it, and `value` counts them.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from cql import types as t
from cql.catalog import ColumnModel
from cql.settings import OnBadRow
from cql.source import Span
from runtime.connectors.connector import Arrival, Connector, Position, ReadSettings, RowReader, RowSource, Table
from runtime.connectors.format_options import Count, FormatOptions, OptionNote

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.connectors.named_columns import NamedColumns

COLUMNS = (ColumnModel(name="timestamp", type=t.TIMESTAMP), ColumnModel(name="value", type=t.BIGINT))

_MOST_ROWS = 1 << 16
"""How many rows come at a time, if there are more."""

_LAST_SECOND = 1 << 40
_DURATION = re.compile(r"(\d+) *([a-z]*)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def _seconds(text: Any) -> int:
    found = _DURATION.fullmatch(str(text).strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise ValueError("it takes whole seconds, such as '5s', or another unit: us, ms, m, h or d")
    return int(int(found[1]) * _SECONDS[found[2]])


class RateOptions(FormatOptions):
    """How many rows there are."""

    format = "rate"
    rows_per_second: Annotated[Count, OptionNote("how many rows each second has", name="rowsPerSecond")] = 1
    ramp_up_time: Annotated[
        int, BeforeValidator(_seconds), OptionNote("how long the speed grows at the beginning", name="rampUpTime")
    ] = 0
    num_partitions: Annotated[
        Count | None, OptionNote("how many tasks make rows on Spark, if not one for each core", name="numPartitions")
    ] = None

    def rows_before(self, second: int) -> int:
        """Return how many rows there are before a second.

        >>> options = RateOptions.of({"rowsPerSecond": "10", "rampUpTime": "4s"})
        >>> [options.rows_before(second) for second in range(7)]
        [0, 2, 6, 12, 20, 30, 40]
        """
        ramp = min(second, self.ramp_up_time)
        growth = self.rows_per_second // (self.ramp_up_time + 1)
        return growth * ramp * (ramp + 1) // 2 + self.rows_per_second * (second - ramp)

    def second_of(self, value: int) -> int:
        """Return the second that a row is in."""
        return bisect_right(range(_LAST_SECOND), value, key=self.rows_before) - 1


class RateConnector(Connector):
    """Spark's generator."""

    name = "rate"
    reads = "a generator of rows: `timestamp TIMESTAMP, value BIGINT`"
    options = RateOptions

    def columns(self, given: Mapping[str, str], place: Span) -> list[ColumnModel]:
        """Return the columns that all sources of this format have."""
        return list(COLUMNS)

    def source(self, table: Table, settings: ReadSettings) -> RowSource:
        """Return the rows of a generator."""
        return RateSource(table, settings)


class RateSource(RowSource):
    """The rows of a generator. A position is when it began, in milliseconds, and the value that is next."""

    is_bounded = False

    def __init__(self, table: Table, settings: ReadSettings) -> None:
        from runtime.connectors.named_columns import NamedColumns

        assert table.source is not None, "the table has a source"
        self._options = RateOptions.of(table.source.options)
        self._on_bad_row = settings.on_bad_row
        self._columns = NamedColumns(table, "rate", COLUMNS)

    def start(self) -> Position:
        """Return the beginning of a generator that begins just now."""
        return {"start": time.time_ns() // 1_000_000, "value": 0}

    def read(self, position: Position, given_out: Position | None = None) -> RowReader:
        """Return the rows from a value on."""
        return _RateReader(self._options, self._columns, self._on_bad_row, position)


class _RateReader(RowReader):
    has_ended = False

    def __init__(self, options: RateOptions, columns: NamedColumns, on_bad_row: OnBadRow, position: Position) -> None:
        from runtime.connectors.intake import Intake

        self._options = options
        self._columns = columns
        self._intake = Intake(columns.layout, on_bad_row, position.get("newest"))
        self._start: int = position["start"]
        self._next: int = position["value"]

    def poll(self) -> Arrival | None:
        """Return the rows whose instants have come."""
        batch = self._batch(time.time_ns() // 1_000_000)
        if not len(batch):
            return None
        before = self._intake.skipped
        rows = self._intake.take(self._columns.chunk(batch, self._next + 1))
        self._next += len(batch)
        position = {"start": self._start, "value": self._next, "newest": self._intake.newest}
        return Arrival(rows, position, self._intake.skipped - before)

    def _batch(self, now: int) -> pa.RecordBatch:
        """Return the next rows with instants up to now, at most so many that they fit into a batch."""
        import numpy as np
        import pyarrow as pa

        first = self._options.second_of(self._next)
        ends = np.array(self._ends(first, (now - self._start) // 1000), np.int64)
        values = np.arange(self._next, min(int(ends[-1]), self._next + _MOST_ROWS))
        second = np.searchsorted(ends, values, side="right") - 1
        within = (values - ends[second]) * (1000.0 / np.diff(ends, append=ends[-1:] + 1)[second])
        instants = self._start + 1000 * (first + second) + np.floor(within + 0.5).astype(np.int64)
        come = int(np.searchsorted(instants, now, side="right"))
        columns = [pa.array(instants[:come] * 1000).view(pa.timestamp("us")), pa.array(values[:come])]
        return pa.record_batch(columns, names=[column.name for column in COLUMNS])

    def _ends(self, first: int, last: int) -> list[int]:
        """Return how many rows there are before each of some seconds and after the last, as far as they fit."""
        ends = [self._options.rows_before(first)]
        for second in range(first, last + 1):
            ends.append(self._options.rows_before(second + 1))
            if ends[-1] >= self._next + _MOST_ROWS:
                break
        return ends
