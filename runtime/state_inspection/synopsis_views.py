"""Synopses as views of state that is kept: which rows an operator has seen and still needs, and when they live.

Most are stubs on stores (`runtime/state/bind_synopses.py`); a partitioned window has rows of its own, of which it holds
the last ones of each key. All other synopses (counts, accumulators) are what their operators keep, and no views.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cql import bound
from planner.plan import Plan
from planner.state import Synopsis
from runtime.columns.batch import Ints
from runtime.columns.row_codes import changes, distinct_rows, order_by
from runtime.network.fragment_plan import fragment_plan
from runtime.network.layout import NetworkLayout, types_of
from runtime.state.bind_synopses import make_stubs
from runtime.state.store import Stub
from runtime.state_inspection.decoding import Bucket


class View(NamedTuple):
    """Which of the rows that are kept belong to a synopsis, with their lifetimes."""

    places: Ints
    start: Ints
    end: Ints


def views(plan: Plan) -> dict[str, str]:
    """Return the synopses of a plan that are views, each with the id of what it is a view of."""
    found = {synopsis: f"operator/{operator}/rows" for synopsis, operator in _partitioned(plan)}
    stubs = _stubs(plan)
    return found | {each.id: each.store for each in plan.synopses if each.id in stubs}


def view(layout: NetworkLayout, bucket: Bucket, synopsis: Synopsis) -> View | None:
    """Return what a synopsis sees of the rows of a bucket; None if it is not there."""
    operator = layout.plan.by_id[synopsis.operator]
    if isinstance(operator.window_spec, bound.PartitionRowsSpec):
        return _last_of_keys(bucket, f"operator/{operator.id}/rows", operator.window_spec)
    saved = bucket.position["stubs"].get(synopsis.id)
    if saved is None or bucket.fragment not in layout.fragments:
        return None
    stub = _stubs(fragment_plan(layout, bucket.fragment)).get(synopsis.id)
    if stub is None:
        return None
    kept = bucket.holdings[synopsis.store].chunks if synopsis.store in bucket.holdings else {}
    stub.store.load({str(at): chunk for at, chunk in kept.items()}, bucket.position["stores"][synopsis.store])
    stub.seen, stub.told, stub.needed = saved
    positions = np.arange(stub.store.base, stub.seen)
    start, end = stub.lifetimes(positions)
    needed = np.flatnonzero(end > stub.needed)
    return View(positions[needed] - stub.store.base, start[needed], end[needed])


def _partitioned(plan: Plan) -> list[tuple[str, str]]:
    return [
        (f"{each.id}/window", each.id)
        for each in plan.operators
        if isinstance(each.window_spec, bound.PartitionRowsSpec)
    ]


def _stubs(plan: Plan) -> dict[str, Stub]:
    return make_stubs(plan, {each.id: types_of(plan, each.id) for each in plan.operators})[1]


def _last_of_keys(bucket: Bucket, holding: str, window: bound.PartitionRowsSpec) -> View | None:
    """Return the last rows of each key that have not expired."""
    if holding not in bucket.holdings:
        return None
    table = bucket.table(holding)
    keys: list[pa.Array] = [table.column(f"c{at}").combine_chunks() for at in window.columns]
    number, _ = distinct_rows(keys, len(table))
    order = order_by(number)
    last = np.append(np.flatnonzero(changes(number[order]))[1:], len(order)) - 1
    from_end = np.repeat(last, np.diff(np.append(-1, last))) - np.arange(len(order))
    kept = np.sort(order[from_end < window.rows])
    start, end = (table.column(name).to_numpy() for name in ("start", "end"))
    there = kept[end[kept] > bucket.until(holding)]
    return View(there, start[there], end[there])
