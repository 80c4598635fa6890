"""Chunks: how state is kept. Immutable record batches under names that are never used again.

Whoever owns state appends chunks and drops them as a whole; `delta` tells what is new and what is gone since it
was last asked, which is all that has to be written to keep the state somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

ChunkSets = Mapping[str, Mapping[str, pa.RecordBatch]]
"""Chunks by name, by the name of the piece of state that they belong to."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new, by name, and what is gone."""

    put: dict[str, pa.RecordBatch] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()


class Chunks:
    """Record batches in the order in which they came, named by numbers that grow."""

    def __init__(self) -> None:
        self._live: dict[int, pa.RecordBatch] = {}
        self._next = 0
        self._written = 0
        self._dropped: set[str] = set()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, name: int) -> pa.RecordBatch:
        return self._live[name]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._live.values())

    def items(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the chunks with their names, oldest first."""
        return iter(list(self._live.items()))

    def append(self, chunk: pa.RecordBatch) -> int:
        """Keep a chunk and return its name."""
        name = self._next
        self._next += 1
        self._live[name] = chunk
        self.nbytes += chunk.nbytes
        return name

    def drop(self, name: int) -> None:
        """Forget a chunk."""
        self.nbytes -= self._live.pop(name).nbytes
        if name < self._written:
            self._dropped.add(str(name))

    def clear(self) -> None:
        """Forget all chunks."""
        for name, _ in self.items():
            self.drop(name)

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        put = {str(name): chunk for name, chunk in self._live.items() if name >= self._written}
        made = Delta(put, frozenset(self._dropped))
        self._written = self._next
        self._dropped = set()
        return made

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over chunks that were written before; there must be none yet."""
        assert not self._live and self._next == 0, "chunks are loaded into an empty state"
        for name in sorted(chunks, key=int):
            self._live[int(name)] = chunks[name]
            self.nbytes += chunks[name].nbytes
        self._next = self._written = max(map(int, chunks), default=-1) + 1
