"""Queues: the batches between an operator and its readers, each of which has its own place (thesis section 2.2.2).

A queue may hand out what it holds in other pieces than it was given, because results do not depend on where batches
begin and end. It relies on one law: a piece may announce the smallest start of what is left behind it, and no more.
Rows of one instant of a stream stay together, so that every element is before the heartbeat of its piece.

Heartbeats are never held as batches of their own: one that brings no rows moves that of the batch before it.
What the slowest reader has taken is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from runtime.columns.batch import BEGINNING, ChangeBatch, Ints, concat, empty_batch


class Waiting(NamedTuple):
    """What waits for one reader: the arrival that the oldest of it comes from, how many rows, how many bytes."""

    arrival: int
    elements: int
    nbytes: int


class Queue:
    """Batches of one producer. Readers are named `operator:port`, as in the plan."""

    def __init__(self, id: str, readers: Sequence[str], is_stream: bool) -> None:
        self.id = id
        self.is_stream = is_stream
        self.until = BEGINNING
        self.total_elements = 0
        self.total_bytes = 0
        self.total_batches = 0
        self.peak_elements = 0
        self.peak_bytes = 0
        assert readers, f"nobody reads {id}"
        self._places = {reader: _ReaderPosition() for reader in readers}
        self._types: list[pa.DataType] = []
        self._held: dict[int, _Held] = {}
        self._first = 0
        self._next = 0

    @property
    def held_elements(self) -> int:
        """How many rows it holds: those that its slowest reader has still to take."""
        return max(place.elements for place in self._places.values())

    @property
    def held_bytes(self) -> int:
        """How many bytes these rows take."""
        return max(place.nbytes for place in self._places.values())

    def waiting(self, reader: str) -> Waiting | None:
        """Return what waits for a reader; a heartbeat alone is something without rows."""
        place = self._places[reader]
        held = self._held.get(place.number)
        if place.heard is not None:
            return Waiting(place.heard, place.elements, place.nbytes)
        return None if held is None else Waiting(held.arrival, place.elements, place.nbytes)

    def elements(self, reader: str) -> int:
        """Return how many rows wait for a reader."""
        return self._places[reader].elements

    def put(self, batch: ChangeBatch, arrival: int) -> None:
        """Add a batch; `arrival` numbers the arrival at a source that it comes from."""
        assert batch.until >= self.until, f"the heartbeat of {self.id} goes back from {self.until} to {batch.until}"
        if len(batch):
            self._add(_Held(batch, arrival, batch.nbytes))
        elif batch.until > self.until:
            self._hear(batch, arrival)
        self.until = batch.until

    def pop(self, reader: str, most_rows: int) -> ChangeBatch:
        """Take what waits for a reader: several small batches as one, or a part of a large one.

        There are more than `most_rows` only if that many elements of a stream share an instant.
        """
        assert most_rows > 0, "a piece has at least one row"
        place = self._places[reader]
        pieces: list[ChangeBatch] = []
        room = most_rows
        while (held := self._held.get(place.number)) is not None:
            if pieces and len(held.batch) - place.row > room:
                break
            pieces.append(self._piece(place, held, room))
            room -= len(pieces[-1])
        if not pieces:
            assert place.heard is not None, f"nothing in {self.id} waits for {reader}"
            pieces.append(empty_batch(self._types, self.until))
        place.heard = None
        self._free()
        return concat(pieces)

    def _add(self, held: _Held) -> None:
        self._held[self._next] = held
        self._next += 1
        for place in self._places.values():
            place.elements += len(held.batch)
            place.nbytes += held.nbytes
        self.total_elements += len(held.batch)
        self.total_bytes += held.nbytes
        self.total_batches += 1
        self.peak_elements = max(self.peak_elements, self.held_elements)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _hear(self, batch: ChangeBatch, arrival: int) -> None:
        """Pass on a heartbeat: with the last batch to those who have not taken it yet, alone to the others."""
        last = self._held.get(self._next - 1)
        if last is not None:
            last.batch = last.batch.with_until(batch.until)
        self._types = [column.type for column in batch.columns]
        for place in self._places.values():
            if place.number == self._next and place.heard is None:
                place.heard = arrival

    def _piece(self, place: _ReaderPosition, held: _Held, room: int) -> ChangeBatch:
        """Take rows of one batch for a reader, whose place moves on."""
        batch, first = held.batch, place.row
        last = len(batch) if len(batch) - first <= room else self._cut(batch.start, first, first + room)
        nbytes = held.bytes_before(last) - held.bytes_before(first)
        place.elements -= last - first
        place.nbytes -= nbytes
        if last == len(batch):
            place.number, place.row = place.number + 1, 0
            return batch.slice(first, last)
        place.row = last
        behind = int(batch.start[last]) if self.is_stream else held.smallest_start_from(last)
        return batch.slice(first, last).with_until(min(behind, batch.until))

    def _cut(self, start: Ints, first: int, last: int) -> int:
        """Return where to end a piece that should end at `last`: in a stream, between two instants."""
        if not self.is_stream:
            return last
        before = int(np.searchsorted(start, start[last], "left"))
        return before if before > first else int(np.searchsorted(start, start[last], "right"))

    def _free(self) -> None:
        slowest = min(place.number for place in self._places.values())
        while self._first < slowest:
            del self._held[self._first]
            self._first += 1


@dataclass(slots=True)
class _ReaderPosition:
    """How far a reader is, what waits for it, and the arrival of a heartbeat that no batch brings it."""

    number: int = 0
    row: int = 0
    elements: int = 0
    nbytes: int = 0
    heard: int | None = None


@dataclass(slots=True)
class _Held:
    batch: ChangeBatch
    arrival: int
    nbytes: int
    _smallest: Ints | None = None

    def bytes_before(self, row: int) -> int:
        """Return the bytes of the rows before one, all being taken to be of one size."""
        return self.nbytes * row // len(self.batch)

    def smallest_start_from(self, row: int) -> int:
        """Return the smallest start of a row and all that follow it."""
        if self._smallest is None:
            self._smallest = np.minimum.accumulate(self.batch.start[::-1])[::-1]
        return int(self._smallest[row])
