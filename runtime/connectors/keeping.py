"""Results that stay in this process: the last changes of a query, and of a relation everything that is there.

Changes beyond a number are let go, oldest first. Those of a relation are added to its contents before that, several at
a time, so that each costs the same on average however much there is. One thread writes while others read, wait for
more, or have everything passed on to a function. Nothing here knows who writes and who reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from cql.query import MOST_KEPT
from runtime.columns.batch import ChangeBatch, concat
from runtime.columns.net_changes import netted_changes
from runtime.connectors.results import Writer

_FEWEST_FOLDED = 1 << 16
"""How many rows are added to the contents at once, at least."""

Tap = Callable[[int, Sequence[ChangeBatch]], None]
"""What is done with the number of a micro-batch and its changes."""


class KeptResults(Writer):
    """The changes of a query. Positions count rows from the beginning; a row may stand for several equal changes."""

    def __init__(self, is_stream: bool, most_rows: int = MOST_KEPT) -> None:
        self._is_stream = is_stream
        self._most = most_rows
        self._news = threading.Condition(threading.RLock())
        self._batches: deque[tuple[int, ChangeBatch]] = deque()
        self._taps: list[Tap] = []
        self._written = 0
        self._first = 0
        """The position of the first batch that is still here; some of its rows may be beyond what is kept."""
        self._end = 0
        self._changes = 0
        self._contents: ChangeBatch | None = None
        self._folded = 0
        """The position, of a batch, before which everything is in the contents."""
        self.is_complete = False

    # Writing

    def write(self, batch: ChangeBatch) -> None:
        """Keep the changes of the next micro-batch."""
        self.put(self._written, [batch])

    def put(self, number: int, batches: Iterable[ChangeBatch]) -> None:
        """Keep the changes of a micro-batch under its number."""
        with self._news:
            self._written = number + 1
            if self._taps:
                batches = [batch for batch in batches if len(batch)]
                for tap in self._taps if batches else ():
                    tap(number, batches)
            for batch in batches:
                self._add(number, batch)

    def _add(self, number: int, batch: ChangeBatch) -> None:
        if len(batch):
            self._batches.append((number, batch))
            self._end += len(batch)
            self._changes += _count(batch)
            self._let_go()
            self._news.notify_all()

    def _write(self, batch: ChangeBatch) -> None:
        raise AssertionError("changes are kept as they are")

    def close(self) -> None:
        """Nothing more comes."""
        with self._news:
            self.is_complete = True
            self._news.notify_all()

    def abort(self) -> None:
        """Nothing more comes, and what there is does not count."""
        with self._news:
            self._batches.clear()
            self._contents = None
            self._first = self._folded = self._end
            self._changes = 0
            self.close()

    def _let_go(self) -> None:
        """Give up batches that are beyond what is kept, and in the contents if these are to know of them."""
        kept_from = self.kept_from
        if not self._is_stream and kept_from - self._folded > max(_FEWEST_FOLDED, self._size):
            self._fold(kept_from)
        until = kept_from if self._is_stream else min(kept_from, self._folded)
        while self._batches and self._first + len(self._batches[0][1]) <= until:
            self._first += len(self._batches.popleft()[1])

    @property
    def _size(self) -> int:
        return 0 if self._contents is None else len(self._contents)

    def _fold(self, until: int) -> None:
        """Add the batches that end before a position to the contents."""
        parts = [] if self._contents is None else [self._contents]
        position = self._first
        for _, batch in self._batches:
            position += len(batch)
            if self._folded < position <= until:
                parts.append(batch)
                self._folded = position
        if parts:
            together = concat(parts)
            nowhen = np.zeros(len(together), np.int64)
            _, weight, columns = netted_changes(nowhen, together.weights, together.columns)
            self._contents = ChangeBatch(columns, nowhen[: len(weight)], None, weight, together.until)

    # Reading

    @property
    def kept_from(self) -> int:
        """The position of the first row that is kept."""
        return max(self._end - self._most, 0)

    @property
    def forgotten(self) -> int:
        """How many changes have been let go."""
        with self._news:
            return self._changes - sum(map(_count, self.batches))

    @property
    def batches(self) -> list[ChangeBatch]:
        """The changes that are kept, in the order of time."""
        with self._news:
            return [batch for _, batch in self._since(self.kept_from)]

    def since(self, position: int) -> tuple[list[ChangeBatch], int]:
        """Return the changes from a position on, which is still kept, and the position after them."""
        with self._news:
            return [batch for _, batch in self._since(position)], self._end

    def _since(self, position: int) -> Iterator[tuple[int, ChangeBatch]]:
        first = self._first
        for number, batch in self._batches:
            end = first + len(batch)
            if end > position:
                yield number, batch.slice(max(position - first, 0), len(batch))
            first = end

    def wait(self, position: int, seconds: float) -> bool:
        """Wait for changes at or after a position, or for the end of all; tell whether there is one of the two."""
        with self._news:
            return self._news.wait_for(lambda: self._end > position or self.is_complete, seconds)

    def contents(self) -> list[ChangeBatch]:
        """Return what is there after all changes, each row once or more often; of a stream, the elements kept."""
        if self._is_stream:
            return self.batches
        with self._news:
            self._fold(self._end)
            self._let_go()
            return [] if self._contents is None else [self._contents]

    def pass_on(self, tap: Tap) -> bool:
        """Pass on all changes, those that are here first; tell whether that can be done: whether all are here."""
        with self._news:
            if self.kept_from:
                return False
            for number, own in groupby(self._batches, key=itemgetter(0)):
                tap(number, [batch for _, batch in own])
            self._taps.append(tap)
            return True


def _count(batch: ChangeBatch) -> int:
    return len(batch) if batch.weight is None else int(np.abs(batch.weight).sum())
