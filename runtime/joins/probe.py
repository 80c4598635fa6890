"""What probes are made of: the inputs of a join, partial matches, and the tactics that choose candidates and orders.

A new row of one input probes the others one after the other. Before each step it is a partial match: the row with one
row of each input that was probed so far. A tactic names the candidates of a probe; which of them match is decided by
the matcher (`runtime/joins/matcher.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from runtime.columns.batch import FOREVER, ChangeBatch, Columns, Ints
from runtime.columns.row_codes import Codes
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.store import KeysOf, Stub, by_keys

Candidates = tuple[Ints, Ints, int]
"""Which partial matches, the positions of rows that may match them, and of how many of the former, the first ones,
there are no more then."""


@dataclass(slots=True)
class JoinInput:
    """An input of a join: its rows so far, and how their keys are computed; without keys everything matches."""

    stub: Stub
    keys_of: KeysOf | None
    index: str

    def __post_init__(self) -> None:
        if self.keys_of is not None:
            self.stub.store.index(self.index, by_keys(self.keys_of))


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of a batch (`owner`) with the rows of other inputs that they match, and common lifetimes.

    Columns are by input. In a partial match they are those of the inputs that were probed, in that order.
    """

    owner: Ints
    columns: tuple[Columns, ...]
    start: Ints
    end: Ints
    weight: Ints | None
    positions: Ints | None = None
    """Where the rows of the input that was probed last are in their store."""
    bound: int = FOREVER
    """Before which instant no other matches start that are found after these."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Partial matches of the rows of a batch, the input that they probe next, and the codes of their keys, if any."""

    port: int
    batch: ChangeBatch
    input: JoinInput
    part: Matches
    codes: Codes | None


class Tactic:
    """How an inner join finds its matches: which stored rows are compared with those that probe.

    The driver (`runtime/operators/joins.py`) calls `begin`, `candidates`, `note`, `keep` and `note_costs` for each
    batch that has rows, in this order, and `settle` at the end of a micro-batch. What a tactic remembers beyond that it
    names in `delta`.
    """

    def __init__(self, inputs: Sequence[JoinInput]) -> None:
        self.inputs = inputs

    def begin(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        """Prepare for the rows of a batch, which are not stored yet, and return those that can match anything."""
        return batch

    def candidates(self, probe: Probe) -> Iterator[Candidates]:
        """Yield pairs of partial matches and rows of one more input that may match."""
        raise NotImplementedError

    def note(self, found: Matches) -> None:
        """Take note of matches of the batch."""

    def keep(self, port: int, batch: ChangeBatch, heartbeats: Sequence[int]) -> None:
        """Store new rows for those to come, and forget those that none of these can match."""
        self.inputs[port].stub.take_in(batch)
        for at, each in enumerate(self.inputs):
            # Whatever comes on another input starts at its heartbeat or later.
            each.stub.forget_before(min(h for other, h in enumerate(heartbeats) if other != at))

    def note_costs(self, probing: float, keeping: float) -> None:
        """Take note of how many seconds it took to probe with the batch and to store it, which is done now."""

    def settle(self, heartbeats: Sequence[int]) -> None:
        """Do what is to be done once for each micro-batch."""

    @property
    def nbytes(self) -> int:
        """How many bytes of state are its own, not in stores that others may share."""
        return 0

    def delta(self) -> dict[str, Delta]:
        """Return what is new and what is gone in its own state since the last call."""
        return {}

    def load(self, chunks: ChunkSets) -> None:
        """Take over its own state as it was written before."""


class ProbingOrder(Protocol):
    """In which order the rows of an input probe the others."""

    def order(self, port: int) -> Sequence[int]:
        """Return all inputs but one, in the order in which the rows of that one probe them."""


class FromOrder:
    """The order in which the query names the inputs."""

    def __init__(self, inputs: int) -> None:
        self._inputs = range(inputs)

    def order(self, port: int) -> Sequence[int]:
        return [other for other in self._inputs if other != port]


class ProbeStep(NamedTuple):
    """A step of the probes of one input's rows: which it is, and the input that is probed."""

    port: int
    step: int
    input: int


@dataclass(slots=True)
class ProbeFigures:
    """How many partial matches came to a step, the candidates and pairs that were found for them, and in what time.

    Pairs have equal keys and lifetimes in common; without keys, they satisfy the condition.
    """

    probes: int = 0
    candidates: int = 0
    pairs: int = 0
    seconds: float = 0.0

    def note(self, candidates: int, pairs: int, seconds: float) -> None:
        """Count what was found."""
        self.candidates += candidates
        self.pairs += pairs
        self.seconds += seconds
