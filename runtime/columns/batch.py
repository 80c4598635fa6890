"""Change batches: what flows between operators.

A batch is columnar. Row i is in the relation from instant `start[i]` up to, not including, `end[i]`, as often as
`weight[i]` says; a relation at t is the sum of the weights of its rows with start <= t < end. So a tuple whose end
is known when it arrives (all of a time window) is one row, a tuple that leaves later is a second row with a
negative weight, and joins, filters, projections and unions work on whole lifetimes: they are linear in the weights.
An element of a stream is a row that starts at its instant; its end means nothing.

`until` is the heartbeat: nothing that starts before it comes any more. In a stream all rows of a batch start before
its heartbeat, in ascending order, those of one instant in the stream's order. In a relation they may start later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Columns = tuple[pa.Array, ...]

BLOCK_ROWS = 1 << 18
"""How many rows an operator puts out at a time, as far as it can choose."""

BEGINNING = -(2**63)
FOREVER = 2**63 - 1
"""Before and after all instants: a row that ends FOREVER has no known end."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Rows with their lifetimes. `end` None: no end is known of any row; `weight` None: all weigh 1."""

    columns: Columns
    start: Ints
    end: Ints | None
    weight: Ints | None
    until: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def nbytes(self) -> int:
        """How many bytes its rows take, without what the arrays behind slices hold beyond them."""
        own = self.start.nbytes + sum(array.nbytes for array in (self.end, self.weight) if array is not None)
        return int(own + sum(column.nbytes for column in self.columns))

    @property
    def ends(self) -> Ints:
        return np.full(len(self), FOREVER, np.int64) if self.end is None else self.end

    @property
    def weights(self) -> Ints:
        return np.ones(len(self), np.int64) if self.weight is None else self.weight

    def take(self, indices: Ints) -> ChangeBatch:
        """Return some of its rows, in the given order."""
        return replace(
            self,
            columns=take(self.columns, indices),
            start=self.start[indices],
            end=None if self.end is None else self.end[indices],
            weight=None if self.weight is None else self.weight[indices],
        )

    def filter(self, mask: Mask) -> ChangeBatch:
        """Return the rows for which the mask is true."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def slice(self, first: int, last: int) -> ChangeBatch:
        """Return the rows from one position up to another, without copying."""
        if first == 0 and last >= len(self):
            return self
        return replace(
            self,
            columns=tuple(column.slice(first, last - first) for column in self.columns),
            start=self.start[first:last],
            end=None if self.end is None else self.end[first:last],
            weight=None if self.weight is None else self.weight[first:last],
        )

    def with_columns(self, columns: Sequence[pa.Array]) -> ChangeBatch:
        """Return the same lifetimes with other columns."""
        return replace(self, columns=tuple(columns))

    def with_until(self, until: int) -> ChangeBatch:
        """Return the same rows with another heartbeat."""
        return self if until == self.until else replace(self, until=until)

    def check(self, is_stream: bool, since: int) -> None:
        """Raise if the batch breaks a rule; `since` is the heartbeat before it."""
        n = len(self)
        assert self.until >= since, f"the heartbeat goes back from {since} to {self.until}"
        assert all(len(column) == n for column in self.columns), "columns differ in length"
        assert all(isinstance(column, pa.Array) for column in self.columns), "a column is not an array"
        assert self.end is None or len(self.end) == n, "ends differ in number from the rows"
        assert self.weight is None or len(self.weight) == n, "weights differ in number from the rows"
        if n == 0:
            return
        assert self.start.dtype == np.int64, "instants are 64-bit integers"
        assert int(self.start.min()) >= since, f"a row starts at {self.start.min()}, before the heartbeat {since}"
        if is_stream:
            assert int(self.start[-1]) < self.until, "an element is not before the heartbeat"
            assert bool((self.start[1:] >= self.start[:-1]).all()), "elements are not in the order of time"
            assert self.weight is None or bool((self.weight > 0).all()), "an element has no positive weight"
        else:
            assert self.end is None or bool((self.end >= self.start).all()), "a row ends before it starts"


def empty_batch(types: Sequence[pa.DataType], until: int) -> ChangeBatch:
    """Return a batch without rows: a heartbeat."""
    return ChangeBatch(tuple(pa.nulls(0, each) for each in types), np.empty(0, np.int64), None, None, until)


def take(columns: Sequence[pa.Array], indices: Ints) -> Columns:
    """Return some rows of some columns."""
    wanted = pa.array(indices)
    return tuple(column.take(wanted) for column in columns)


def concat_columns(parts: Sequence[Sequence[pa.Array]]) -> Columns:
    """Return the rows of several sets of columns, one after the other."""
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True))


def in_blocks(batch: ChangeBatch, since: int, block_rows: int) -> Iterator[ChangeBatch]:
    """Yield the rows of a batch of a relation, so many at a time; all but the last under the heartbeat before."""
    first = 0
    while len(batch) - first > block_rows:
        yield batch.slice(first, first + block_rows).with_until(since)
        first += block_rows
    yield batch.slice(first, len(batch))


def concat(batches: Sequence[ChangeBatch]) -> ChangeBatch:
    """Return the rows of several batches of one queue, one after the other, under the last heartbeat."""
    if len(batches) == 1:
        return batches[0]
    return ChangeBatch(
        concat_columns([batch.columns for batch in batches]),
        np.concatenate([batch.start for batch in batches]),
        None if all(b.end is None for b in batches) else np.concatenate([b.ends for b in batches]),
        None if all(b.weight is None for b in batches) else np.concatenate([b.weights for b in batches]),
        batches[-1].until,
    )
