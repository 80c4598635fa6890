"""Warnings of a run that goes on: rows that are left out are told when it happens, not only at its end.

What is left out of a table is told at once, and again when more has been left out, but each time only after twice as
long as before: a source that always has late rows is told of a few times a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Lock

Warn = Callable[[str], None]
"""Takes a line of text."""

_SHORTEST, _LONGEST = 60.0, 3 * 3600.0
"""How many seconds pass between the first two warnings about a table, and between later ones at the most."""


class LossWatch:
    """Warns of rows that come too late or cannot be read; `counts` are both, by table, since the start."""

    def __init__(self, warn: Warn, clock: Callable[[], float] = time.monotonic) -> None:
        self._warn = warn
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[int, float, float]] = {}
        """By table and reason, the count that was told, when more will be, and how long after that."""
        self._lock = Lock()

    def note(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Warn of what is new and has to be told now."""
        with self._lock:
            lines = list(self._news(counts))
        for line in lines:
            self._warn(line)

    def _news(self, counts: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        now = self._clock()
        for table, (late, skipped) in counts.items():
            for reason, count in (("late", late), ("skipped", skipped)):
                told, due, wait = self._told.get((table, reason), (0, now, _SHORTEST))
                if count > told and now >= due:
                    self._told[table, reason] = count, now + wait, min(2 * wait, _LONGEST)
                    yield _warning(table, reason, count)


def _warning(table: str, reason: str, count: int) -> str:
    rows = f"{count:,} {'row' if count == 1 else 'rows'}"
    if reason == "late":
        return f"{table}: left out so far: {rows} came too late; a longer DELAY of {table} lets rows come later"
    return f"{table}: left out so far: {rows} {'was' if count == 1 else 'were'} bad"
