"""What is written: the changes of a query; and what all writers have in common.

Changes arrive in the order of time: rows that start at their instant and weigh +n or -n, which are written n times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from cql.intervals import TimeDomain
from cql.types import DataType
from runtime.columns.batch import BLOCK_ROWS, ChangeBatch
from runtime.state.code_index import pieces


class ResultColumn(Protocol):
    """A column of a result: those of bound queries and of plans will do."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> DataType: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What is written: the changes of a query, their columns and clock."""

    query: str
    columns: tuple[ResultColumn, ...]
    is_stream: bool
    time: TimeDomain | None

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


class Writer(ABC):
    """Takes the changes of one query; a context that closes it, or gives it up if something goes wrong inside."""

    def write(self, batch: ChangeBatch) -> None:
        """Write changes; they come in the order of time."""
        for part in repeated_in_blocks(batch):
            self._write(part)

    @abstractmethod
    def _write(self, batch: ChangeBatch) -> None:
        """Write changes that weigh 1 or -1."""

    @abstractmethod
    def close(self) -> None:
        """Complete the result."""

    @abstractmethod
    def abort(self) -> None:
        """Give the result up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def repeated_in_blocks(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """Yield changes that weigh +1 or -1 each, as many of each as it weighed, a limited number at a time."""
    if batch.weight is None or (np.abs(batch.weight) == 1).all():
        if len(batch):
            yield batch
        return
    times = np.abs(batch.weight)
    for begin, end in pieces(times, BLOCK_ROWS):
        if end - begin > 1 or times[begin] <= BLOCK_ROWS:
            yield repeated(batch.slice(begin, end))
            continue
        one = batch.slice(begin, end)
        for left in range(int(times[begin]), 0, -BLOCK_ROWS):
            yield repeated(replace(one, weight=np.sign(one.weights) * min(left, BLOCK_ROWS)))


def repeated(batch: ChangeBatch) -> ChangeBatch:
    """Return changes that weigh +1 or -1 each, as many of each as it weighed."""
    times = np.abs(batch.weights)
    if (times == 1).all():
        return batch
    spread = batch.take(np.repeat(np.arange(len(batch)), times))
    return replace(spread, weight=np.sign(spread.weights))
