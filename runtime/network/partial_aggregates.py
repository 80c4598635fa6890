"""Rows of time windows that aggregates read are combined where they are read, before they are sent anywhere.

Time is cut into panes such that all rows of one pane are in the same windows: rows of a group in one pane then count as
one element at the end of the pane (`runtime/aggregates/partial_sums.py`). What is sent is a row for each group and
pane, instead of all of them.

A row that is late does not count, and whether it is depends on how far its edge was complete before the micro-batch.
Who reads is told that, or sends rows as they are; those before it, which may be late, are always sent as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cql.bound import AggregateCall, Expr, RangeSpec, UserCall, walk
from planner import operators as op
from runtime.aggregates.partial_sums import CombinedCall, combined_as, is_combinable
from runtime.columns.batch import ChangeBatch, Columns, Ints, take
from runtime.columns.row_codes import distinct_rows
from runtime.network.layout import Edge, NetworkLayout, Router, fragment_of
from runtime.network.messages import pack_changes, pack_values, unpack_changes, unpack_values
from runtime.operators.base import evaluate_all
from runtime.state.future_changes import narrowed
from runtime.time.window_lifetimes import next_multiple

FEWEST_ROWS = 4
"""How many rows there have to be for each group and pane, on average, for combining them to pay."""


class Reader(NamedTuple):
    """An aggregate, and the window through which it reads."""

    window: RangeSpec
    aggregate: op.Aggregate


@dataclass(frozen=True)
class Combination:
    """Aggregates by the same keys of what comes over one edge."""

    keys: tuple[Expr, ...]
    readers: tuple[Reader, ...]

    @cached_property
    def pane(self) -> int:
        """How many ticks a pane is long: windows begin and end between panes only."""
        return gcd(*(ticks for window, _ in self.readers for ticks in (window.ticks, window.slide or 1)))

    @cached_property
    def calls(self) -> tuple[AggregateCall, ...]:
        """What is to be combined, for all aggregates together."""
        return tuple(dict.fromkeys(combined_as(call) for _, aggregate in self.readers for call in aggregate.calls))

    def calls_of(self, aggregate: op.Aggregate) -> list[int]:
        """Return which of the calls those of one aggregate are."""
        return [self.calls.index(combined_as(call)) for call in aggregate.calls]


def combinations(layout: NetworkLayout, edge: Edge) -> tuple[Combination, ...]:
    """Return how what comes over an edge is combined; nothing if somebody has to see the rows themselves."""
    found = list(_readers(layout, edge))
    if edge.source is None or not found or None in found:
        return ()
    by_keys: dict[tuple[Expr, ...], list[Reader]] = {}
    for reader in found:
        assert reader is not None
        by_keys.setdefault(tuple(reader.aggregate.keys), []).append(reader)
    return tuple(Combination(keys, tuple(readers)) for keys, readers in by_keys.items())


def _readers(layout: NetworkLayout, edge: Edge) -> Iterator[Reader | None]:
    """Yield the aggregates that read an edge, each through a window of time; None stands for anybody else."""
    for window in _reading(layout, edge.to, edge.key):
        spec = window.window_spec
        for reader in _reading(layout, edge.to, window.id):
            is_one = isinstance(spec, RangeSpec) and isinstance(reader, op.Aggregate) and _is_combinable(reader)
            yield Reader(spec, reader) if is_one else None  # type: ignore[arg-type]
        if not isinstance(spec, RangeSpec) or any(edge.operator == window.id for edge in _sent_on(layout, edge.to)):
            yield None


def _reading(layout: NetworkLayout, fragment: str, key: str) -> Iterator[op.Operator]:
    for each in layout.plan.operators:
        if fragment_of(each) == fragment and any(layout.input_key(each, edge) == key for edge in each.inputs):
            yield each


def _sent_on(layout: NetworkLayout, fragment: str) -> Iterator[op.InputEdge]:
    """Yield the inputs of operators in other fragments."""
    return (edge for each in layout.plan.operators if fragment_of(each) != fragment for edge in each.inputs)


def _is_combinable(aggregate: op.Aggregate) -> bool:
    by_users = any(isinstance(part, UserCall) for key in aggregate.keys for part in walk(key))
    return not by_users and all(is_combinable(call) for call in aggregate.calls)


class Combiner:
    """Combines what is read for one combination."""

    def __init__(self, combination: Combination, functions: Mapping[str, Any]) -> None:
        self._combination = combination
        self._keys_of = evaluate_all(combination.keys, functions)
        self._calls = [CombinedCall(call, functions) for call in combination.calls]

    def combined(self, batch: ChangeBatch, router: Router) -> list[tuple[int, int, bytes]] | None:
        """Return rows for buckets, how many they are and packed; None if there are too few rows for it to pay."""
        count, pane = len(batch), self._combination.pane
        ends = next_multiple(batch.start, pane)
        number = (ends - int(ends.min())) // pane
        panes = int(number.max()) + 1
        if FEWEST_ROWS * panes > count:
            return None
        keys = self._keys_of(batch.columns, count)
        group, first = distinct_rows(keys, count)
        groups = len(first)
        if FEWEST_ROWS * panes * groups > count:
            return None
        cell = number * groups + group
        rows = np.bincount(cell, minlength=panes * groups)
        found = [call.of(batch, cell, len(rows)) for call in self._calls]
        present = np.flatnonzero(rows)
        which, instants = present % groups, int(ends.min()) + present // groups * pane
        return [
            (bucket, len(at), self._packed(take(keys, first[which[at]]), instants[at], rows, found, present[at]))
            for bucket, at in _by_bucket(router, take(batch.columns, first), groups, which)
        ]

    def _packed(
        self, keys: Columns, instants: Ints, rows: Ints, found: Sequence[Mapping[str, pa.Array]], cells: Ints
    ) -> bytes:
        named = {f"{number}/{name}": values for number, each in enumerate(found) for name, values in each.items()}
        columns = take((narrowed(pa.array(rows)), *named.values()), cells)
        about = pack_values({"calls": list(named)})
        batch = ChangeBatch((*columns, *keys), instants, None, None, 0)
        return about + b"\n" + pack_changes(batch)


def _by_bucket(router: Router, firsts: Columns, groups: int, which: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield buckets with the cells, given by their groups, that go to them."""
    for bucket, positions in router.buckets(firsts, groups):
        if positions is None:
            yield bucket, np.arange(len(which))
        else:
            is_there = np.zeros(groups, np.bool_)
            is_there[positions] = True
            yield bucket, np.flatnonzero(is_there[which])


class CombinedRows(NamedTuple):
    """Rows that were combined: instants, groups, how many rows each stands for, and what they come to by call."""

    instants: Ints
    keys: Columns
    rows: Ints
    calls: list[dict[str, pa.Array]]


def unpack_combined(blob: bytes, combination: Combination) -> CombinedRows:
    """Return the rows that were packed."""
    about, _, packed = blob.partition(b"\n")
    names = unpack_values(about)["calls"]
    batch = unpack_changes(packed, 0)
    calls: list[dict[str, pa.Array]] = [{} for _ in combination.calls]
    rows, *columns = batch.columns
    for name, column in zip(names, columns, strict=False):
        number, _, own = name.partition("/")
        calls[int(number)][own] = column
    return CombinedRows(batch.start, tuple(columns[len(names) :]), np.asarray(rows).astype(np.int64), calls)


def combiners(layout: NetworkLayout, edges: Iterable[Edge], functions: Mapping[str, Any]) -> dict[Edge, list[Combiner]]:
    """Return what combines rows, for those of some edges for which that is possible."""
    found = {edge: [Combiner(each, functions) for each in combinations(layout, edge)] for edge in edges}
    return {edge: own for edge, own in found.items() if own}
