"""What the sources of a Spark query have for a micro-batch that is about to run: bytes of files, steps of offsets."""

from __future__ import annotations

import json
from typing import Any

from py4j.protocol import Py4JError

_UNKNOWN_SIZE = 2**62
"""Spark's size of what it does not know the size of is larger."""


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
