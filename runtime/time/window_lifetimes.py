"""How long a tuple stays in a window: its lifetime, from the instants of the stream.

A time window knows a tuple's end when it arrives. `[Range T]` holds it during [t, t + T). With a slide L both ends
move up to the next multiple of L: at a multiple e the window holds the instants in (e - T, e].
"""

from __future__ import annotations

import numpy as np

from cql.bound import RangeSpec
from runtime.columns.batch import BEGINNING, FOREVER, Ints


def range_lifetime(window: RangeSpec, instants: Ints) -> tuple[Ints, Ints]:
    """Return the starts and ends of tuples with some instants."""
    end = later(instants, window.ticks)
    if window.slide is None:
        return instants, end
    return next_multiple(instants, window.slide), next_multiple(end, window.slide)


def later(instants: Ints, ticks: int | Ints) -> Ints:
    """Return instants so many ticks later, FOREVER where that is beyond all instants."""
    beyond = instants > FOREVER - ticks
    if not beyond.any():
        return instants + ticks
    return np.where(beyond, FOREVER, instants + np.where(beyond, 0, ticks))


def earlier(instants: Ints, ticks: int) -> Ints:
    """Return instants so many ticks earlier, the BEGINNING where that is before all instants."""
    return np.maximum(instants, BEGINNING + ticks) - ticks


def next_multiple(instants: Ints, step: int) -> Ints:
    """Return the smallest multiples of a step that are not before some instants."""
    behind = instants % step
    return later(instants, np.where(behind == 0, 0, step - behind))
