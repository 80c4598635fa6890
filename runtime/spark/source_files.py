"""The files of all sources of one Spark query, through its life: found, handed out, read, and done with.

A micro-batch reads files in the order of their numbers, and none is passed over. Once it is committed, they are done
with. If it fails for what is in them, and nothing of it was delivered, they may be corrected before the next run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cql.errors import Code
from cql.source import NO_SPAN, Span
from runtime.spark.sources import translate
from runtime.spark.tickets import Tickets
from runtime.user_errors import placed

_CORRECTABLE = (Code.BAD_DATA, Code.BAD_FILE, Code.NO_FILE, Code.FUNCTION_FAILED, Code.CHANGED_SOURCE)
"""What a user may do away with by correcting a file."""

_POLLING, _CHECKING = 0.1, 10.0
"""How often somebody looks for new files, and whether known ones have changed, in seconds: less often if that takes
more than a part in twenty of the time."""


class SourceFiles:
    """The files of a Spark query, by feed; `checkpoint` is that of the query.

    `places` says where in a script the table of each feed is defined, for errors.
    """

    def __init__(self, tickets: Mapping[str, Tickets], places: Mapping[str, Span], checkpoint: Path) -> None:
        self._tickets = dict(tickets)
        self._places = dict(places)
        self._checkpoint = checkpoint
        self._next: dict[str, int] = {}
        """The number of the file of each feed that comes next after micro-batch `_read_in`, as far as it is known."""
        self._read_in = -1
        self._watch: _Watch | None = None
        self.notes: list[str] = []
        """What is to be said of files that are not what they were."""

    def open(self) -> None:
        """Begin a run with all files that there are now; raises if one that is to be read again is not what it was."""
        self.notes = []

        def begin(tickets: Tickets) -> None:
            self.notes += tickets.open(self._checkpoint)
            tickets.look()

        self._for_each(begin)

    def look(self) -> None:
        """Let Spark know of all files that there are now."""
        self._for_each(Tickets.look)

    def __bool__(self) -> bool:
        return bool(self._tickets)

    def allow(self, times: float | None) -> None:
        """Let the next micro-batch have some times as much as the last one, of each source; None: all there is."""
        self._for_each(lambda tickets: tickets.allow(times))

    def _for_each(self, do: Callable[[Tickets], None]) -> None:
        """Do something with the tickets of each feed; an error gets the place of its table."""
        for feed, tickets in self._tickets.items():
            with placed(self._places.get(feed, NO_SPAN)):
                do(tickets)

    def follow(self) -> None:
        """Look for files, and whether those that were read have changed, until `close`."""
        if self._tickets:
            self._watch = _Watch(self._look_around)

    def _look_around(self, looks_back: bool) -> None:
        """Look for new files that are complete, and whether those that are done with have changed."""

        def look(tickets: Tickets) -> None:
            tickets.look(only_complete=True)
            if looks_back:
                tickets.look_back()

        self._for_each(look)

    def close(self) -> None:
        """Look no more."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def check(self) -> None:
        """Raise what has gone wrong with the files while they were followed."""
        if self._watch is not None:
            self._watch.check()

    def read(self, batch_id: int, places: Iterable[tuple[str, str]]) -> None:
        """Take in which places of which feeds a micro-batch has read, and make sure that no file was passed over."""
        numbers: dict[str, set[int]] = {}
        for feed, place in places:
            if feed in self._tickets:
                numbers.setdefault(feed, set()).add(int(place))
        for feed, found in numbers.items():
            first, last = self._next.get(feed, min(found)), max(found)
            assert found == set(range(first, last + 1)), f"files {first} to {last} of {feed} come one after the other"
            self._next[feed] = last + 1
        self._read_in = batch_id

    def settle(self) -> None:
        """Take the files of the micro-batches so far for done with, if the last of them is committed."""
        if (self._checkpoint / "commits" / str(self._read_in)).exists():
            for feed, number in self._next.items():
                self._tickets[feed].settle(number)

    def reject(self, error: Exception) -> None:
        """Let the files that are handed out be corrected, if the run ends for what is in them.

        Only for a micro-batch of which nothing has been delivered.
        """
        known = translate(error)
        if known is not None and known.diagnostics[0].code in _CORRECTABLE:
            for tickets in self._tickets.values():
                tickets.reject(self._checkpoint)


class _Watch:
    """Looks around on a thread of its own, now and then back as well."""

    def __init__(self, look: Callable[[bool], None]) -> None:
        self._look = look
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="cql files", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what has gone wrong, if something has."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        pause, checked = _POLLING, time.monotonic()
        while not self._stopped.wait(pause):
            started = time.monotonic()
            looks_back = started > checked + _CHECKING
            try:
                self._look(looks_back)
            except Exception as error:
                self._error = error
                return
            checked = started if looks_back else checked
            pause = max(_POLLING, 20 * (time.monotonic() - started))
