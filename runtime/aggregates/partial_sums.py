"""Combining: many rows of a group as one, where nobody can tell them apart by time.

The law: sums do not depend on how their terms are put together, and the first of firsts is the first of all. So rows of
one group that begin and end together can be added up wherever they are, before the aggregate has seen any of them. A
cell is such a set of rows. Aggregates over the same values of the same rows share what is combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cql.bound import AggregateCall, UserCall, walk
from runtime.aggregates.calls import CompiledCall
from runtime.aggregates.extremes import EXTREMES, extreme_call
from runtime.columns.batch import ChangeBatch, Ints
from runtime.exact_sums.lanes import LINEAR, linear_call
from runtime.state.future_changes import narrowed
from runtime.state.group_sums import binned

Combined = dict[str, pa.Array]
"""What the cells of a call come to: sums by lane, as narrow as they are, or the arguments of first rows by number."""


def is_combinable(call: AggregateCall) -> bool:
    """Tell whether the rows of an aggregate can be combined; what users wrote runs where it always does."""
    if call.user_defined or call.distinct or call.function not in (*LINEAR, *EXTREMES):
        return False
    expressions = (*call.arguments, *(() if call.filter is None else (call.filter,)))
    return not any(isinstance(part, UserCall) for each in expressions for part in walk(each))


def combined_as(call: AggregateCall) -> AggregateCall:
    """Return the call that stands for all that need the same of their rows: SUM and AVG do, for one."""
    function = {"avg": "sum", "stddev": "variance"}.get(call.function, call.function)
    return replace(call, function=function, type=call.arguments[0].type if call.arguments else call.type, nullable=True)


class CombinedCall:
    """One aggregate, as far as rows of cells are concerned."""

    def __init__(self, call: AggregateCall, functions: Mapping[str, Any]) -> None:
        self._call = CompiledCall(call, functions)
        self._is_extreme = call.function in EXTREMES

    def of(self, batch: ChangeBatch, cell: Ints, count: int) -> Combined:
        """Return what the rows of a batch, of cells up to a count, come to in each cell."""
        part = self._call.part(cell, batch)
        if self._is_extreme:
            cells, arguments = extreme_call(self._call.call).firsts(part.slots, part.arguments)
            at = np.full(count, -1)
            at[cells] = np.arange(len(cells))
            places = pa.array(at, mask=at < 0)
            return {str(number): values.take(places) for number, values in enumerate(arguments)}
        lanes = linear_call(self._call.call).lanes(part.arguments, len(part.slots))
        return {name: narrowed(pa.array(binned(part.slots, lane, count))) for name, lane in lanes.items()}
