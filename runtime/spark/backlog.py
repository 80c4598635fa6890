"""How many rows a micro-batch is going to read, from what its sources say about it before it runs.

Files have a length in bytes, everything else an offset where the micro-batch begins and one where it ends. How many
rows a byte or a step of an offset is, is learned from the micro-batches before. Sources that say nothing count for
nothing: then nobody knows before rows have been read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from py4j.protocol import Py4JError

_UNKNOWN_SIZE = 2**62
"""Spark's size of what it does not know the size of is larger."""


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


def amounts(execution: Any) -> list[float]:
    """Return what each source has for a micro-batch that Spark is about to run, in the order of the plan."""
    leaves = execution.logical().collectLeaves().iterator()
    found = []
    while leaves.hasNext():
        found.append(_amount(leaves.next()))
    return found


def _amount(leaf: Any) -> float:
    size = float(leaf.stats().sizeInBytes())
    if size < _UNKNOWN_SIZE:
        return size
    try:
        begin, end = leaf.startOffset(), leaf.endOffset()
        return max(_position(json.loads(end.get().json())) - _position(json.loads(begin.get().json())), 0.0)
    except (Py4JError, ValueError):
        return 0.0


def _position(offset: object) -> float:
    """Return a number that grows with an offset: the sum of those in it, but for times.

    >>> _position({"topic": {"0": 40, "1": 2}}), _position({"offset": 7, "timestamp": 1_000}), _position(3)
    (42.0, 7.0, 3.0)
    """
    match offset:
        case dict():
            return sum(_position(value) for key, value in offset.items() if "time" not in str(key).casefold())
        case list():
            return sum(map(_position, offset))
        case bool() | None | str():
            return 0.0
    return float(offset)  # type: ignore[arg-type]
