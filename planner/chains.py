"""Chains: which operators to run together so that queues stay small (thesis section 2.3.2).

The progress chart of a path of operators has a point for each of them: the time an element has taken
so far, and the size that is left of it. The segments of the chart's lower envelope are the chains;
the steeper a segment, the more memory a unit of time frees, and the earlier it should run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Segment(NamedTuple):
    """Steps `first` up to, not including, `last` of a path, and the size they free per unit of time."""

    first: int
    last: int
    slope: float


def lower_envelope(costs: Sequence[float], selectivities: Sequence[float]) -> list[Segment]:
    """Return the segments of a path's lower envelope.

    `costs[i]` is the time that step i takes for one of *its* input elements, `selectivities[i]` how many
    elements come out for each that goes in. Ties go to the longer segment.

    >>> [(s.first, s.last, round(s.slope, 3)) for s in lower_envelope([1, 5], [0.2, 0])]
    [(0, 1, 0.8), (1, 2, 0.2)]
    """
    times, sizes = [0.0], [1.0]
    for cost, selectivity in zip(costs, selectivities, strict=True):
        times.append(times[-1] + cost * sizes[-1])
        sizes.append(sizes[-1] * selectivity)
    segments: list[Segment] = []
    at = 0
    while at < len(costs):
        best, steepest = at + 1, float("-inf")
        for end in range(at + 1, len(times)):
            taken = times[end] - times[at]
            freed = sizes[at] - sizes[end]
            slope = freed / taken if taken > 0 else (float("inf") if freed >= 0 else float("-inf"))
            if slope >= steepest - 1e-12:
                best, steepest = end, max(slope, steepest)
        segments.append(Segment(at, best, steepest))
        at = best
    return segments
