"""Joins of windows of rows with too little time: rows that find few others do not probe.

They are still found by others. How many others a row will find is known from the windows as they were after the
micro-batch before. The later row of a pair is the one that probes. Everything that is found is in the exact answer for
just as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.columns.batch import ChangeBatch, Columns, Ints, Mask
from runtime.columns.row_codes import Codes, row_codes
from runtime.joins.matcher import Matcher
from runtime.joins.probe import Candidates, JoinInput, Matches, Probe, Tactic
from runtime.state.chunks import Chunks, ChunkSets, Delta
from shedding.join_deciders import MOST_MATCHES, Cutoff
from shedding.schedule import coins

MOST_ASKED, MOST_ASKED_PAIRS = 64, 8192
"""How many rows of a batch that do not probe tell what they miss, and about how many others these find, at most."""


class Dual(Tactic):
    """Leaves out pairs of rows with equal keys whose later row does not probe.

    `windows` is how many rows the windows have, `exact` the matcher that tells what is missed. A cut-off is that in
    force when a batch comes.
    """

    def __init__(
        self,
        exact: Matcher,
        schedule: str,
        cutoff: Callable[[], Cutoff],
        windows: tuple[int, int],
        seed: int,
    ) -> None:
        super().__init__(exact.inputs)
        self._exact = exact
        self.schedule = schedule
        self._cutoff = cutoff
        self._window_rows = windows
        self._seed = seed
        self._silent = [np.empty(0, np.int64), np.empty(0, np.int64)]
        """The positions of rows that do not probe, in order, by input."""
        self._windows: list[_KeyCounts] = []
        self._kept_silent = [Chunks(), Chunks()]
        self._reset()

    def _reset(self) -> None:
        self._histogram = np.zeros(MOST_MATCHES + 1, np.int64)
        self._costs = [0.0, 0.0, 0.0, 0.0]
        self._found = self._expected = self._left_out = self._skips = 0
        self._missed = 0.0
        """How many pairs were missed, as rows tell that probed although they need not have."""

    def settle(self, heartbeats: Sequence[int]) -> None:
        self._windows = []

    def begin(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        positions, arrived, is_new = self._places(port, batch)
        silent, matches = self._decide(port, batch, positions, is_new)
        self._new = int(is_new.sum())
        self._is_silent = np.isin(positions, self._silent[port])
        store = self.inputs[1 - port].stub.store
        # Of two rows of one instant, that of the second input is the later one.
        later = np.searchsorted(store.start.values, arrived, side="right" if port else "left")
        self._later: Ints = later + store.base
        """By row of the batch, where the rows that come later begin in the log of the other input."""
        self._missed += self._missed_by(port, batch, silent, matches)
        return batch

    def candidates(self, probe: Probe) -> Iterator[Candidates]:
        codes, part, stub, index = probe.codes, probe.part, probe.input.stub, probe.input.index
        assert codes is not None
        later, is_silent = self._later[part.owner], self._is_silent[part.owner]
        probing, silent = np.flatnonzero(~is_silent), np.flatnonzero(is_silent)
        owner, positions = stub.find(index, codes[probing], part.start[probing], part.end[probing])
        high = np.full(len(silent), stub.seen)
        found_by, found_at = stub.store.find(index, codes[silent], later[silent], high)
        inside = np.flatnonzero((found_at >= later[silent][found_by]) & (found_at < stub.seen))
        owner = np.concatenate((probing[owner], silent[found_by[inside]]))
        positions = np.concatenate((positions, found_at[inside]))
        kept = (positions < later[owner]) | ~np.isin(positions, self._silent[1 - probe.port])
        yield owner[kept], positions[kept], len(part.owner)

    def note(self, found: Matches) -> None:
        self._found += len(found.owner) if found.weight is None else int((found.weight > 0).sum())

    def note_costs(self, probing: float, keeping: float) -> None:
        costs = (self._new, probing, self._new, keeping)
        self._costs = [a + b for a, b in zip(self._costs, costs, strict=True)]
        for at, each in enumerate(self.inputs):
            silent = self._silent[at]
            self._silent[at] = silent[silent >= each.stub.store.base]

    def _places(self, port: int, batch: ChangeBatch) -> tuple[Ints, Ints, Mask]:
        """Return where the rows of a batch are in the log, when they came, and whether they are new.

        Those that are taken back are the next ones in the log of which no end was known.
        """
        stub = self.inputs[port].stub
        is_new = np.ones(len(batch), np.bool_) if batch.weight is None else batch.weight > 0
        positions = np.empty(len(batch), np.int64)
        positions[is_new] = stub.seen + np.arange(int(is_new.sum()))
        positions[~is_new] = stub.told + np.arange(int((~is_new).sum()))
        arrived = batch.start.copy()
        arrived[~is_new] = stub.store.start.at(positions[~is_new])
        return positions, arrived, is_new

    def _missed_by(self, port: int, batch: ChangeBatch, rows: Ints, matches: Ints) -> float:
        """Return how many pairs rows miss that do not probe: a few of them tell, the likelier the more they would find.

        What is found beyond equal keys is not expected, but counted.
        """
        expected = matches + 1
        reached = np.cumsum(expected)
        if not len(rows):
            return 0.0
        count = int(min(MOST_ASKED, max(MOST_ASKED_PAIRS * len(rows) // reached[-1], 1), len(rows)))
        chosen = np.searchsorted(reached, (np.arange(count) + 0.5) * reached[-1] / count)
        asked, times = np.unique(chosen, return_counts=True)
        mask = np.zeros(len(batch), np.bool_)
        mask[rows[asked]] = True
        later, found = self._later[rows[asked]], np.zeros(len(asked))
        for part in self._exact.matches(port, batch.filter(mask)):
            assert part.positions is not None
            found += np.bincount(part.owner[part.positions < later[part.owner]], minlength=len(asked))
        return float((found / expected[asked] * times).sum() / count * reached[-1])

    def _decide(self, port: int, batch: ChangeBatch, positions: Ints, is_new: Mask) -> tuple[Ints, Ints]:
        """Note which new rows do not probe, by how many others they would find; return these, and how many that is."""
        cutoff = self._cutoff()
        if not self._windows:
            pairs = zip(self.inputs, self._window_rows, strict=True)
            self._windows = [_KeyCounts(each, rows) for each, rows in pairs]
        new = batch.filter(is_new)
        matches = self._windows[1 - port].of(_codes(self.inputs[port], new.columns, len(new)))
        tied = coins(self._seed, positions[is_new]) < cutoff.tied
        skips = (matches < cutoff.matches) | ((matches == cutoff.matches) & tied)
        self._silent[port] = np.concatenate((self._silent[port], positions[is_new][skips]))
        self._histogram += np.bincount(np.minimum(matches, MOST_MATCHES), minlength=MOST_MATCHES + 1)
        self._expected += int(matches[~skips].sum())
        self._left_out += int(matches[skips].sum())
        self._skips += int(skips.sum())
        return np.flatnonzero(is_new)[skips], matches[skips]

    def take_counts(self) -> dict[str, Any]:
        """Return what was counted since the last time."""
        last = int(np.flatnonzero(self._histogram).max(initial=-1)) + 1
        done = int(self._histogram.sum()) - self._skips + self._expected
        counted = {
            "histogram": self._histogram[:last].tolist(),
            "costs": self._costs,
            "found": self._found,
            "missed": self._missed,
            "work": [done + self._skips + self._left_out, done],
        }
        self._reset()
        return counted

    # Keeping

    def delta(self) -> dict[str, Delta]:
        deltas = {}
        for name, kept, silent in zip(("left", "right"), self._kept_silent, self._silent, strict=True):
            kept.clear()
            kept.append(pa.record_batch([pa.array(silent)], names=["position"]))
            deltas[f"skipped {name}"] = kept.delta()
        return deltas

    def load(self, chunks: ChunkSets) -> None:
        for at, (name, kept) in enumerate(zip(("left", "right"), self._kept_silent, strict=True)):
            kept.load(chunks.get(f"skipped {name}", {}))
            for table in kept:
                self._silent[at] = table.column(0).to_numpy()


class _KeyCounts:
    """How many rows of a window have each key, by the keys' codes."""

    def __init__(self, probed: JoinInput, rows: int) -> None:
        stub = probed.stub
        positions = np.arange(max(stub.seen - rows, stub.store.base), stub.seen)
        codes = _codes(probed, stub.store.rows(positions), len(positions))
        self._codes, self._counts = np.unique(codes, return_counts=True)

    def of(self, codes: Codes) -> Ints:
        """Return how many rows have some codes."""
        if not len(self._codes):
            return np.zeros(len(codes), np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._counts[at], 0)


def _codes(probed: JoinInput, columns: Columns, length: int) -> Codes:
    assert probed.keys_of is not None
    return row_codes(probed.keys_of(columns, length), length).codes
