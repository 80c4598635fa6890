"""The agenda: what is known to happen at instants that have not come yet.

Operators that are not linear follow time: they take what starts and ends before the heartbeat and put the rest on
their agenda. It keeps runs sorted by instant, in the order in which they were put there, and takes prefixes of
them. What is put and due at once never becomes a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from runtime.batch import Columns, Ints, concat_columns, take
from runtime.chunks import Chunks, Delta
from runtime.rows import is_sorted, order_by

MOST_RUNS = 32


@dataclass(slots=True)
class _Run:
    chunk: int
    instants: Ints
    columns: Columns
    done: int = 0


class Agenda:
    """Rows of columns by instant."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._inbox: list[tuple[Ints, Columns]] = []
        self._chunks = Chunks()
        self.taken_until = -(2**63)

    def __len__(self) -> int:
        return sum(len(run.instants) - run.done for run in self._runs) + sum(len(new) for new, _ in self._inbox)

    @property
    def nbytes(self) -> int:
        return self._chunks.nbytes

    def put(self, instants: Ints, columns: Sequence[pa.Array]) -> None:
        """Add rows, in any order of time."""
        if len(instants):
            self._inbox.append((instants, tuple(columns)))

    def take(self, until: int) -> tuple[Ints, Columns] | None:
        """Take all rows before an instant; None if there are none.

        Those of one instant come in the order in which they were put, but instants are not in order.
        """
        self.taken_until = max(until, self.taken_until)
        instants, parts = [], []
        for run in self._runs:
            last = int(np.searchsorted(run.instants, until))
            if last > run.done:
                instants.append(run.instants[run.done : last])
                parts.append(tuple(column.slice(run.done, last - run.done) for column in run.columns))
                run.done = last
        for run in [run for run in self._runs if run.done == len(run.instants)]:
            self._chunks.drop(run.chunk)
            self._runs.remove(run)
        inbox, self._inbox = self._inbox, []
        for new, columns in inbox:
            due = np.flatnonzero(new < until)
            if len(due) == len(new):
                instants.append(new)
                parts.append(columns)
                continue
            if len(due):
                instants.append(new[due])
                parts.append(take(columns, due))
            self._keep(new, columns, until)
        if not instants:
            return None
        return np.concatenate(instants), concat_columns(parts)

    def _keep(self, instants: Ints, columns: Columns, until: int) -> None:
        """Add a run of the rows that are not before an instant."""
        later = np.flatnonzero(instants >= until)
        if not is_sorted(instants):
            later = later[order_by(instants[later])]
        if len(later) < len(instants) or not is_sorted(instants):
            instants, columns = instants[later], take(columns, later)
        self._add(instants, columns)
        if len(self._runs) > MOST_RUNS:
            self._merge()

    def rows(self) -> tuple[Ints, Columns] | None:
        """Return all rows that are still to come, run by run; there is nothing that was put and not kept yet."""
        assert not self._inbox, "what was put has not been looked at"
        if not self._runs:
            return None
        return (
            np.concatenate([run.instants[run.done :] for run in self._runs]),
            concat_columns([tuple(column.slice(run.done) for column in run.columns) for run in self._runs]),
        )

    def fill(self, types: Sequence[pa.DataType]) -> None:
        """Give rows that have fewer columns than these the rest of them, of zeros."""
        self._inbox = [
            (instants, (*columns, *(_zeros(len(instants), each) for each in types[len(columns) :])))
            for instants, columns in self._inbox
        ]
        for run in self._runs:
            missing = types[len(run.columns) :]
            run.columns = (*run.columns, *(_zeros(len(run.instants), each) for each in missing))

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        return self._chunks.delta()

    def load(self, chunks: Mapping[str, pa.RecordBatch], taken_until: int) -> None:
        """Take over chunks that were written before, up to an instant before which all was taken."""
        self._chunks.load(chunks)
        self.taken_until = taken_until
        for name, chunk in self._chunks.items():
            instants = np.asarray(chunk.column(0))
            run = _Run(name, instants, tuple(chunk.columns[1:]), int(np.searchsorted(instants, taken_until)))
            if run.done == len(instants):
                self._chunks.drop(name)
            else:
                self._runs.append(run)

    def _add(self, instants: Ints, columns: Columns) -> None:
        names = ["instant", *(f"c{at}" for at in range(len(columns)))]
        name = self._chunks.append(pa.record_batch([pa.array(instants), *columns], names=names))
        self._runs.append(_Run(name, instants, columns))

    def _merge(self) -> None:
        """Make one run of the younger half of them, which are the short ones if the older ones were merged."""
        kept, merged = self._runs[: MOST_RUNS // 2], self._runs[MOST_RUNS // 2 :]
        if sum(len(run.instants) - run.done for run in kept) < len(self) // 2:
            kept, merged = [], self._runs
        instants = np.concatenate([run.instants[run.done :] for run in merged])
        columns = concat_columns([tuple(column.slice(run.done) for column in run.columns) for run in merged])
        for run in merged:
            self._chunks.drop(run.chunk)
        self._runs = list(kept)
        order = order_by(instants)
        self._add(instants[order], take(columns, order))


def _zeros(count: int, data_type: pa.DataType) -> pa.Array:
    return pa.array(np.zeros(count, np.int64)).cast(data_type)
