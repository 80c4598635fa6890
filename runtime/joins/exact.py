"""The exact tactic: all candidates that can match, by equal keys, by a prefilter, or by lifetimes alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from runtime.columns.batch import BLOCK_ROWS
from runtime.joins.candidates import MOST_CANDIDATES, Lookup, ProbeRanges, candidate_pairs
from runtime.joins.prefilter import Prefilter
from runtime.joins.probe import Candidates, JoinInput, Matches, Probe, Tactic
from runtime.state.store import Stub


class Exact(Tactic):
    """Compares a row with all that is there at the same time and has its key.

    Without keys there are two inputs; if there is a `prefilter`, it says what can match. Candidates come in pieces of
    about `block_rows`; without keys more if there is a condition, which most of them do not satisfy.
    """

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        prefilter: Prefilter | None = None,
        is_conditional: bool = False,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        super().__init__(inputs)
        self._prefilter = prefilter
        self._is_conditional = is_conditional
        self._block_rows = block_rows
        if prefilter is not None:
            for each, name, entries_of in zip(inputs, prefilter.names, prefilter.stored, strict=True):
                each.stub.store.index(name, entries_of)

    def candidates(self, probe: Probe) -> Iterator[Candidates]:
        part, probed = probe.part, probe.input
        if probe.codes is not None:
            return probed.stub.find_some(probed.index, probe.codes, part.start, part.end, self._block_rows)
        return self.compared(probe, _alive_together(part, probed.stub), in_order=True)

    def compared(self, probe: Probe, probed: Iterable[ProbeRanges], in_order: bool) -> Iterator[Candidates]:
        """Yield the candidates within ranges, without keys; `in_order` if these come in the order of the rows."""
        lookup = self._lookup(probe)
        most = max(self._block_rows, MOST_CANDIDATES) if self._is_conditional else self._block_rows
        for owner, positions in candidate_pairs(probed, lookup, most):
            is_in_order = in_order and lookup is None and len(owner)
            yield owner, positions, int(owner[-1]) if is_in_order else 0

    def _lookup(self, probe: Probe) -> Lookup | None:
        prefilter, port = self._prefilter, probe.port
        if prefilter is None:
            return None
        sought = partial(prefilter.sought[port], probe.batch.columns, len(probe.batch))
        store = probe.input.stub.store
        return Lookup(store, prefilter.names[1 - port], sought, len(probe.batch), prefilter.least)


def _alive_together(part: Matches, stub: Stub) -> Iterator[ProbeRanges]:
    """Yield what is alive at some time in common with partial matches.

    Where it is not known which stretch of a store that is, a few rows at a time are compared with all that is alive
    while they are.
    """
    low, high = stub.rule.bounds(stub.store, stub.told, part.start, part.end)
    if low is not None and high is not None:
        first, last = np.maximum(low, stub.store.base), np.minimum(high, stub.seen)
        yield ProbeRanges(np.arange(len(part.owner)), first, last)
        return
    positions = np.arange(stub.store.base, stub.seen)
    start, end = stub.lifetimes(positions)
    step = max(MOST_CANDIDATES // max(len(positions), 1), 1)
    for begin in range(0, len(part.owner), step):
        rows = np.arange(begin, min(begin + step, len(part.owner)))
        among = positions[(end > part.start[rows].min()) & (start < part.end[rows].max())]
        yield ProbeRanges(rows, np.full(len(rows), stub.store.base), np.full(len(rows), stub.seen), among)
