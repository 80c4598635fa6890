"""Which store each synopsis of a plan is a stub on, and how long rows live as it sees them.

Readers of a relation that a window makes as it is read the log of the window's stream, with the window's own rule; for
a window that counts rows it has to be the very log that the window counts in. All other relations have a store with
explicit lifetimes. Synopses that hold no rows of an input (counts, accumulators,
the rings of partitioned windows) belong to their operators and are not made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from cql import bound
from planner import operators as op
from planner.plan import Plan
from runtime.state.store import LifetimeRule, RangeEnds, RowsEnds, Store, StoredEnds, Stub


def make_stubs(plan: Plan, types: Mapping[str, tuple[pa.DataType, ...]]) -> tuple[dict[str, Store], dict[str, Stub]]:
    """Return the stores of a plan and the stubs on them, by the ids of stores and synopses."""
    stores: dict[str, Store] = {}
    stubs: dict[str, Stub] = {}
    store_of = {synopsis.id: synopsis.store for synopsis in plan.synopses}
    for synopsis in plan.synopses:
        operator = plan.by_id[synopsis.operator]
        if synopsis.role not in operator.views:
            continue
        producer = plan.by_id[operator.inputs[synopsis.input].operator]
        window = producer if operator.window_spec is None else operator
        rule = _rule(window)
        if isinstance(rule, RowsEnds) and synopsis.store != store_of[f"{window.id}/window"]:
            rule = StoredEnds()
        is_log = not isinstance(rule, StoredEnds)
        if synopsis.store not in stores:
            stores[synopsis.store] = Store(types[window.inputs[0].operator if is_log else producer.id], is_log)
        stubs[synopsis.id] = stores[synopsis.store].stub(rule)
    return stores, stubs


def _rule(producer: op.Operator) -> LifetimeRule:
    match producer.window_spec:
        case bound.RowsSpec(rows=rows):
            return RowsEnds(rows)
        case bound.RangeSpec(slide=None) as spec:
            return RangeEnds(spec)
    return StoredEnds()


def final_ends(plan: Plan) -> frozenset[str]:
    """Return the operators that never take back a row: what they know of its end is the end."""
    return _closure(plan, lambda operator, below: operator.ends_are_final(below))


def netted(plan: Plan) -> frozenset[str]:
    """Return the operators whose rows never both enter and leave at one instant.

    Those that put out a row several times are not among them: when it is there once more, so many leave and one more
    enter.
    """
    return _closure(plan, lambda operator, below: operator.is_netted(below))


def _closure(plan: Plan, holds: Callable[[op.Operator, Sequence[bool]], bool]) -> frozenset[str]:
    """Return the operators that have a property, which may depend on whether their inputs have it."""
    found: set[str] = set()
    for operator in plan.operators:
        if holds(operator, [edge.operator in found for edge in operator.inputs]):
            found.add(operator.id)
    return frozenset(found)
