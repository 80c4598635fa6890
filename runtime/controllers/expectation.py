"""How many rows a micro-batch is going to read, from what its sources say about it before it runs.

Files have a length in bytes, everything else an offset where the micro-batch begins and one where it ends. How many
rows a byte or a step of an offset is, is learned from the micro-batches before. Sources that say nothing count for
nothing: then nobody knows before rows have been read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Expectation:
    """Learns what amounts of sources mean in rows.

    >>> expectation = Expectation()
    >>> expectation.rows([1_000.0]) is None
    True
    >>> expectation.learn(50)
    >>> expectation.rows([4_000.0])
    200.0
    """

    def __init__(self) -> None:
        self._rows_each = np.zeros(0)
        self._scale = np.ones(0)
        self._amounts = np.zeros(0)
        self._has_learned = False

    def rows(self, amounts: Sequence[float]) -> float | None:
        """Return how many rows a micro-batch with some amounts will have; None if that is not known yet."""
        if len(amounts) != len(self._rows_each):
            self._rows_each, self._scale = np.zeros(len(amounts)), np.ones(len(amounts))
            self._has_learned = False
        self._amounts = np.array(amounts, float)
        grown = np.maximum(self._scale, self._amounts)
        self._rows_each, self._scale = self._rows_each * grown / self._scale, grown
        if not self._has_learned or not self._amounts.any():
            return None
        return max(float(self._rows_each @ (self._amounts / self._scale)), 0.0)

    def learn(self, rows: int) -> None:
        """Learn how many rows the last micro-batch had: the nearest weights that would have told that."""
        shares = self._amounts / self._scale
        if rows and shares.any():
            self._rows_each += shares * (rows - self._rows_each @ shares) / (shares @ shares)
            self._has_learned = True
