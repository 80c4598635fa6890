"""Which rows of an ordered source come too late: earlier than the latest row before them by more than the delay.

That follows from the order in which a source gives its rows alone, never from how they are cut into micro-batches.
Tasks read places of a source side by side, though, and one that reads a place knows what came before it only as far as
it is told. So it judges by that and by what it reads itself; `overtaken` finds out whether a row was kept that is late,
and what has to be told for reading the places again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from cql.intervals import TimeDomain
from runtime.columns.batch import BEGINNING, Ints, Mask
from runtime.connectors.intake import RowLayout


class PlaceSpan(NamedTuple):
    """The first and last instants that were kept of a part of a place; None if none was."""

    place: str
    first: int | None
    last: int | None

    @classmethod
    def of(cls, place: str, instants: Ints) -> PlaceSpan:
        """The span of some instants."""
        return cls(place, int(instants.min()), int(instants.max())) if len(instants) else cls(place, None, None)


class Lateness:
    """Judges the rows of one source in the order of its places.

    `newest` is the latest instant before everything that is read, and `before` that before single places, as far as
    they are known.

    >>> judge = Lateness(2)
    >>> judge.on_time("000", np.array([5, 10, 7, 8, 11, 9])).tolist()
    [True, True, False, True, True, True]
    >>> judge.on_time("001", np.array([1, 20])).tolist()
    [False, True]
    """

    def __init__(self, delay: int, newest: int | None = None, before: Mapping[str, int] | None = None) -> None:
        self._delay = delay
        self._newest = BEGINNING if newest is None else newest
        self._before = before or {}

    @property
    def newest(self) -> int | None:
        """The latest instant so far."""
        return None if self._newest == BEGINNING else self._newest

    @property
    def bound(self) -> int:
        """The instant before which the next rows are late."""
        return int(bounds(np.array([self._newest]), self._delay)[0])

    def on_time(self, place: str, instants: Ints) -> Mask:
        """Return which of the next rows are not late."""
        self._newest = max(self._newest, self._before.get(place, BEGINNING))
        if not len(instants):
            return np.ones(0, np.bool_)
        newest = np.maximum.accumulate(np.concatenate(([self._newest], instants)))
        self._newest = int(newest[-1])
        return instants >= bounds(newest[:-1], self._delay)


def bounds(newest: Ints, delay: int) -> Ints:
    """Return the instants before which rows are late, given the latest instants before them."""
    return np.where(newest < BEGINNING + delay, BEGINNING, newest - delay)


def overtaken(spans: Iterable[PlaceSpan], delay: int, newest: int | None) -> dict[str, int]:
    """Return the latest instant before each place, if a row was kept that is late; nothing if none was.

    Spans are given in the order of the source; `newest` is the latest instant before all of them.

    >>> spans = [PlaceSpan("000", 5, 20), PlaceSpan("001", 19, 30), PlaceSpan("001", 29, 31)]
    >>> overtaken(spans, 2, None)
    {}
    >>> overtaken(spans, 0, None)
    {'001': 20}
    """
    before: dict[str, int | None] = {}
    is_any = False
    for span in spans:
        before.setdefault(span.place, newest)
        if span.first is None or span.last is None:
            continue
        is_any = is_any or (newest is not None and span.first < newest - delay)
        newest = span.last if newest is None else max(newest, span.last)
    return {place: latest for place, latest in before.items() if latest is not None} if is_any else {}


def goes_by_order(layout: RowLayout) -> bool:
    """Tell whether it depends on the rows before it whether a row of a table is good."""
    return layout.ahead is not None and layout.time is TimeDomain.INTEGER
