"""Idle streams: those without rows for some time, while others go on, are told not to hold up the others.

What is idle is decided by the clock on the wall, on the driver, and takes effect as a control message: so it is part
of the log, and the same in every repetition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from runtime.controllers.decision_log import Decision

IDLENESS = "idleness"
"""How the log of decisions names it."""


class IdleWatch:
    """Watches when tables had rows last.

    `tell` is called with tables that have just become idle, and for how many seconds they had none.
    """

    def __init__(
        self,
        tables: Iterable[str],
        timeout: float,
        tell: Callable[[dict[str, float]], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._tell = tell
        self._now = now
        self._counts: dict[str, int] = dict.fromkeys(tables, 0)
        self._last: dict[str, float] = dict.fromkeys(self._counts, now())
        self._idle: set[str] = set()
        self._stopped = threading.Event()

    def note(self, counts: Mapping[str, int]) -> None:
        """Take in how many rows of each table have been read so far."""
        for table, count in counts.items():
            if count > self._counts.get(table, 0):
                self._counts[table] = count
                self._last[table] = self._now()
                self._idle.discard(table)

    def look(self) -> None:
        """Tell of tables that have become idle: nothing for the time of the timeout, and others had rows since."""
        now = self._now()
        newest = max(self._last.values())
        idle = {
            table: now - last
            for table, last in sorted(self._last.items())
            if now - last > self._timeout and newest > last and table not in self._idle
        }
        if idle:
            self._idle.update(idle)
            self._tell(idle)

    def start(self) -> None:
        """Look again and again, in a thread of its own."""
        threading.Thread(target=self._run, name="cql idle watch", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._timeout / 4):
            self.look()


def idle_decision(batch: int, table: str, seconds: float) -> Decision:
    """Return the decision that a table which has had no rows for some seconds holds up nobody."""
    why = "no rows while others had some"
    return Decision(batch, IDLENESS, table, {"idle": True}, {"seconds without rows": seconds}, why)
