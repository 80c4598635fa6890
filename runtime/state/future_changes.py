"""The agenda: what is known to happen at instants that have not come yet.

Operators that are not linear follow time: they take what starts and ends before the heartbeat and put the rest on
their agenda. It keeps runs sorted by instant, in the order in which they were put there, and takes prefixes of
them. What is put and due at once never becomes a run. Integers are kept as narrow as they are: most of them are counts,
slots and digits of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from runtime.columns.batch import Columns, Ints, concat_columns, take
from runtime.columns.row_codes import is_sorted, order_by
from runtime.state.chunks import Delta

MOST_RUNS = 32

NEVER = 1 << 62
LONG = 1 << 20
"""How many rows that are put are kept before somebody asks for what is due, and how long runs become by merging."""

Combine = Callable[[Ints, Columns], tuple[Ints, Columns]]
"""Makes one row, where that can be, of several of one instant; rows are sorted by instant."""

_WIDE = pa.int64()
_NARROW = (pa.int8(), pa.int16(), pa.int32())


@dataclass(slots=True)
class _ChangeRun:
    """Rows sorted by instant, of which the first `done` have been taken; columns may be narrower than `types`."""

    name: int
    instants: Ints
    columns: Columns
    types: tuple[pa.DataType, ...]
    done: int = 0

    def __len__(self) -> int:
        return len(self.instants) - self.done

    @property
    def nbytes(self) -> int:
        return int(self.instants.nbytes + sum(column.nbytes for column in self.columns))

    def rows(self, last: int | None = None) -> Columns:
        """Return what has not been taken yet, up to a row, in its own types."""
        count = (len(self.instants) if last is None else last) - self.done
        return tuple(
            column.slice(self.done, count).cast(each) for column, each in zip(self.columns, self.types, strict=True)
        )

    def shrink(self) -> None:
        """Give back the memory of what was taken, when that is most of it."""
        if 4 * self.done > 3 * len(self.instants):
            left: Ints = np.arange(self.done, len(self.instants))
            self.instants, self.columns, self.done = self.instants[left], take(self.columns, left), 0


class Agenda:
    """Rows of columns by instant.

    If very many are put before any is due, those that `combine` makes one of are kept as one, `again` and again if few
    of them became one at first.
    """

    def __init__(self, combine: Combine | None = None, again: bool = False) -> None:
        self._combine = combine
        self._again = again
        self._most = 2 * LONG
        """From how many rows on all of them are combined."""
        self._runs: list[_ChangeRun] = []
        self._inbox: list[tuple[Ints, Columns]] = []
        self._next_name = self._written = 0
        self._dropped: set[str] = set()
        self.taken_until = -(2**63)

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs) + sum(len(new) for new, _ in self._inbox)

    @property
    def nbytes(self) -> int:
        coming: int = sum(new.nbytes + sum(column.nbytes for column in columns) for new, columns in self._inbox)
        return sum(run.nbytes for run in self._runs) + coming

    def put(self, instants: Ints, columns: Sequence[pa.Array]) -> None:
        """Add rows, in any order of time."""
        if len(instants):
            self._inbox.append((instants, tuple(columns)))
            if self._combine is not None and sum(len(new) for new, _ in self._inbox) > LONG:
                self.settle()

    def settle(self) -> None:
        """Keep what was put; none of it is due."""
        inbox, self._inbox = self._inbox, []
        for instants, columns in inbox:
            self._keep(instants, columns, self.taken_until)

    def cut(self, until: int, most: int) -> int:
        """Return an instant, the latest up to a given one, before which no more than so many rows are to be taken.

        If that many are at one instant, it is the one after that.
        """
        if len(self) <= most:
            return until
        if self._inbox:
            self.settle()

        def due(instant: int) -> int:
            return sum(int(np.searchsorted(run.instants, instant)) - run.done for run in self._runs)

        if due(until) <= most:
            return until
        low = min(int(run.instants[run.done]) for run in self._runs) + 1
        high = until
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if due(middle) <= most else (low, middle - 1)
        return low

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
                parts.append(run.rows(last))
                run.done = last
                run.shrink()
        self._drop([run for run in self._runs if not len(run)])
        inbox, self._inbox = self._inbox, []
        for new, columns in inbox:
            in_order = is_sorted(new)
            due = np.arange(np.searchsorted(new, until)) if in_order else np.flatnonzero(new < until)
            if len(due) == len(new):
                instants.append(new)
                parts.append(columns)
                continue
            if len(due):
                instants.append(new[due])
                parts.append(tuple(c.slice(0, len(due)) for c in columns) if in_order else take(columns, due))
            self._keep(new, columns, until)
        if not instants:
            return None
        return np.concatenate(instants), concat_columns(parts)

    def _keep(self, instants: Ints, columns: Columns, until: int) -> None:
        """Add a run of the rows that are not before an instant."""
        later = np.flatnonzero(instants >= until)
        in_order = is_sorted(instants)
        if not in_order:
            later = later[order_by(instants[later])]
        if len(later) < len(instants) or not in_order:
            instants, columns = instants[later], take(columns, later)
        self._add(instants, columns)
        if self._combine is not None and sum(map(len, self._runs)) > self._most:
            self._combine_all(self._combine)
        elif len(self._runs) > MOST_RUNS:
            self._merge()

    def rows(self) -> tuple[Ints, Columns] | None:
        """Return all rows that are still to come, run by run; there is nothing that was put and not kept yet."""
        assert not self._inbox, "what was put has not been looked at"
        return _together(self._runs) if self._runs else None

    def fill(self, types: Sequence[pa.DataType]) -> None:
        """Give rows that have fewer columns than these the rest of them, of zeros."""
        self._inbox = [
            (instants, (*columns, *(_zeros(len(instants), each) for each in types[len(columns) :])))
            for instants, columns in self._inbox
        ]
        for run in self._runs:
            missing = types[len(run.columns) :]
            run.columns = (*run.columns, *(narrowed(_zeros(len(run.instants), each)) for each in missing))
            run.types = (*run.types, *missing)

    # Keeping

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        put = {str(run.name): _chunk(run) for run in self._runs if run.name >= self._written}
        made = Delta(put, frozenset(self._dropped))
        self._written = self._next_name
        self._dropped = set()
        return made

    def load(self, chunks: Mapping[str, pa.RecordBatch], taken_until: int) -> None:
        """Take over chunks that were written before, up to an instant before which all was taken."""
        assert not self._runs, "chunks are loaded into an empty agenda"
        self.taken_until = taken_until
        for name in sorted(chunks, key=int):
            instants = np.asarray(chunks[name].column(0))
            names, columns = chunks[name].schema.names[1:], tuple(chunks[name].columns[1:])
            types = tuple(_WIDE if n.startswith("n") else c.type for n, c in zip(names, columns, strict=True))
            self._runs.append(
                _ChangeRun(int(name), instants, columns, types, int(np.searchsorted(instants, taken_until)))
            )
        self._next_name = self._written = max(map(int, chunks), default=-1) + 1
        self._drop([run for run in self._runs if not len(run)])

    def _add(self, instants: Ints, columns: Columns) -> None:
        types = tuple(column.type for column in columns)
        self._runs.append(_ChangeRun(self._next_name, instants, tuple(narrowed(column) for column in columns), types))
        self._next_name += 1

    def _drop(self, runs: Sequence[_ChangeRun]) -> None:
        for run in runs:
            self._runs.remove(run)
            if run.name < self._written:
                self._dropped.add(str(run.name))

    def _merge(self) -> None:
        """Make one run of the younger half of them, which are the short ones if the older ones were merged."""
        kept, merged = self._runs[: MOST_RUNS // 2], self._runs[MOST_RUNS // 2 :]
        if sum(len(run) for run in kept) < len(self) // 2:
            merged = list(self._runs)
        last_long = max((at for at, run in enumerate(merged) if len(run) > LONG), default=-1)
        merged = merged[last_long + 1 :]
        if len(merged) > 1:
            instants, columns = _together(merged)
            self._drop(merged)
            order = order_by(instants)
            self._add(instants[order], take(columns, order))

    def _combine_all(self, combine: Combine) -> None:
        """Make one run of all; if few of them become one, that is tried again only where it costs little."""
        before = sum(map(len, self._runs))
        instants, columns = _together(self._runs)
        self._drop(list(self._runs))
        order = order_by(instants)
        instants, columns = combine(instants[order], take(columns, order))
        if len(instants):
            self._add(instants, columns)
        self._most = 2 * len(instants) + LONG if self._again or 4 * len(instants) < 3 * before else NEVER


def _together(runs: Sequence[_ChangeRun]) -> tuple[Ints, Columns]:
    return np.concatenate([run.instants[run.done :] for run in runs]), concat_columns([run.rows() for run in runs])


def _chunk(run: _ChangeRun) -> pa.RecordBatch:
    """Return the rows of a run that are to come; names of columns that were made narrower begin with n."""
    pairs = zip(run.columns, run.types, strict=True)
    names = [f"{'c' if column.type == each else 'n'}{at}" for at, (column, each) in enumerate(pairs)]
    columns = (column.slice(run.done) for column in run.columns)
    return pa.record_batch([pa.array(run.instants[run.done :]), *columns], names=["instant", *names])


def _zeros(count: int, data_type: pa.DataType) -> pa.Array:
    return pa.array(np.zeros(count, np.int64)).cast(data_type)


def narrowed(column: pa.Array) -> pa.Array:
    """Return integers in the narrowest type that holds them; anything else as it is."""
    if column.type != _WIDE or column.null_count or not len(column):
        return column
    values = np.asarray(column)
    largest = max(int(values.max()), ~int(values.min()))
    for each in _NARROW:
        if largest < 1 << (each.bit_width - 1):
            return pa.array(values.astype(each.to_pandas_dtype()))
    return column
