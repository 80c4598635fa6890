"""Columns of integers that follow a window: they grow at the end and are cut at the beginning."""

from __future__ import annotations

import numpy as np

from runtime.columns.batch import Ints


class GrowingInts:
    """Integers by position: grows at the end, and is cut at the beginning."""

    def __init__(self, base: int = 0) -> None:
        self._buffer = np.empty(0, np.int64)
        self._first = self._last = 0
        self.base = base

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    @property
    def values(self) -> Ints:
        return self._buffer[self._first : self._last]

    def append(self, values: Ints) -> None:
        """Add values at the end."""
        if self._last + len(values) > len(self._buffer):
            kept = self.values
            needed = len(kept) + len(values)
            # With an eighth more than is needed, everything is moved once for each ninth that comes.
            moved = np.empty(needed + needed // 8, np.int64)
            moved[: len(kept)] = kept
            self._buffer, self._first, self._last = moved, 0, len(kept)
        self._buffer[self._last : self._last + len(values)] = values
        self._last += len(values)

    def at(self, positions: Ints) -> Ints:
        """Return the values at some positions."""
        return self.values[positions - self.base]

    def cut(self, base: int) -> None:
        """Forget what is before a position."""
        self._first += base - self.base
        self.base = base
