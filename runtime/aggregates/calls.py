"""One aggregate of a query as rows see it: the values of its arguments, and which rows take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cql.bound import AggregateCall
from runtime.columns.batch import ChangeBatch, Columns, Ints, take
from runtime.expressions import compile_predicate, compile_projection


@dataclass(slots=True)
class CallRows:
    """Rows of groups: what one call sees of a batch."""

    slots: Ints
    arguments: Columns
    start: Ints
    end: Ints | None
    weight: Ints | None

    def chosen(self, at: Ints) -> CallRows:
        return CallRows(
            self.slots[at],
            take(self.arguments, at),
            self.start[at],
            None if self.end is None else self.end[at],
            None if self.weight is None else self.weight[at],
        )


class CompiledCall:
    """One aggregate of the operator: its arguments and the rows that take part."""

    def __init__(self, call: AggregateCall, functions: Mapping[str, Any]) -> None:
        self.call = call
        self._arguments = compile_projection(call.arguments, functions)
        self._filter = None if call.filter is None else compile_predicate([call.filter], functions)

    def part(self, slots: Ints, batch: ChangeBatch) -> CallRows:
        """Return the rows of a batch that take part, with the values of the arguments."""
        part = CallRows(slots, tuple(self._arguments(batch.columns, len(batch))), batch.start, batch.end, batch.weight)
        if self._filter is None or not len(batch):
            return part
        kept = np.flatnonzero(self._filter(batch.columns, len(batch)))
        return part if len(kept) == len(batch) else part.chosen(kept)
