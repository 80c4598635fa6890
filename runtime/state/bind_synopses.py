"""Which store each synopsis of a plan is a stub on, and how long rows live as it sees them.

Readers of a relation that a window makes as it is read the log of the window's stream, with the window's own rule; for
a window that counts rows it has to be the very log that the window counts in. All other relations have a store with
explicit lifetimes. Synopses that hold no rows of an input (counts, accumulators,
the rings of partitioned windows) belong to their operators and are not made here.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cql import bound
from planner import operators as op
from planner.plan import Plan
from planner.state import Synopsis
from runtime.state.store import LifetimeRule, RangeEnds, RowsEnds, Store, StoredEnds, Stub


def make_stubs(plan: Plan, types: Mapping[str, tuple[pa.DataType, ...]]) -> tuple[dict[str, Store], dict[str, Stub]]:
    """Return the stores of a plan and the stubs on them, by the ids of stores and synopses."""
    stores: dict[str, Store] = {}
    stubs: dict[str, Stub] = {}
    store_of = {synopsis.id: synopsis.store for synopsis in plan.synopses}
    for synopsis in plan.synopses:
        operator = plan.by_id[synopsis.operator]
        if not _holds_rows(operator, synopsis):
            continue
        producer = plan.by_id[operator.inputs[synopsis.input].operator]
        window = operator if isinstance(operator, op.SeqWindow) else producer
        rule = _rule(window)
        if isinstance(rule, RowsEnds) and synopsis.store != store_of[f"{window.id}/window"]:
            rule = StoredEnds()
        is_log = not isinstance(rule, StoredEnds)
        if synopsis.store not in stores:
            stores[synopsis.store] = Store(types[window.inputs[0].operator if is_log else producer.id], is_log)
        stubs[synopsis.id] = stores[synopsis.store].stub(rule)
    return stores, stubs


def _holds_rows(operator: op.Operator, synopsis: Synopsis) -> bool:
    match operator:
        case op.SeqWindow():
            return isinstance(operator.window, bound.RowsSpec)
        case op.BinaryJoin() | op.MJoin() | op.StreamJoin() | op.RStream():
            return True
        case op.SemiJoin() | op.AntiJoin():
            return synopsis.role == "left" or operator.residual is not None
    return False


def _rule(producer: op.Operator) -> LifetimeRule:
    if isinstance(producer, op.SeqWindow):
        match producer.window:
            case bound.RowsSpec(rows=rows):
                return RowsEnds(rows)
            case bound.RangeSpec(slide=None):
                return RangeEnds(producer.window)
    return StoredEnds()


def final_ends(plan: Plan) -> frozenset[str]:
    """Return the operators that never take back a row: what they know of its end is the end."""
    final: set[str] = set()
    for operator in plan.operators:
        match operator:
            case op.Source():
                keeps = operator.is_stream or operator.time is None
            case op.SeqWindow():
                keeps = isinstance(operator.window, bound.RangeSpec)
            case op.Select() | op.Project() | op.Union() | op.MJoin() | op.BinaryJoin(join="inner") | op.EvictingJoin():
                keeps = all(edge.operator in final for edge in operator.inputs)
            case _:
                keeps = operator.is_stream
        if keeps:
            final.add(operator.id)
    return frozenset(final)


def netted(plan: Plan) -> frozenset[str]:
    """Return the operators whose rows never both enter and leave at one instant.

    Those that put out a row several times are not among them: when it is there once more, so many leave and one more
    enter.
    """
    found: set[str] = set()
    for operator in plan.operators:
        match operator:
            case op.Ledger() | op.Aggregate() | op.DuplicateEliminate():
                found.add(operator.id)
            case op.Select() | op.Hold() if operator.inputs[0].operator in found:
                found.add(operator.id)
    return frozenset(found)
