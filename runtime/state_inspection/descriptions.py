"""What the state of a network means, from its plan: words for what is kept, the queries that use it, names of values.

Ids are those of chunks without their numbers (`runtime/engine/checkpoint.py`, `runtime/network/worker_state.py`). What
a plan does not know, because it was dropped from the network or because there is no plan, has a kind and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner import operators as op
from planner.explain.headlines import headline
from planner.plan import Plan
from planner.state import Synopsis
from runtime.network.layout import NetworkLayout, types_of
from runtime.operators import piece_of_state
from runtime.operators.state_words import Decode, InputColumns


@dataclass(frozen=True, slots=True)
class Meaning:
    """What some state is.

    `values` are the names of its values, of which the first `keys` tell groups apart; `lane_name` gives the names of
    lanes, None for those that say nothing; `decode` makes values of codes. Where rows have the slot of a group,
    `groups` is the id of what has these groups.
    """

    kind: str
    what: str = ""
    queries: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    keys: int = 0
    lane_name: Callable[[str], str | None] = str
    groups: str | None = None
    decode: Decode | None = None


def meaning_of(layout: NetworkLayout | None, holding: str) -> Meaning:
    """Return what is known of some state."""
    kind = _kind(holding)
    if layout is None:
        return Meaning(kind)
    rest = holding.partition("/")[2]
    found = {"operator": _operator, "waiting": _waiting, "held": _held}.get(kind, _store)(layout, rest)
    return found or Meaning(kind, "not in the plan")


def _kind(holding: str) -> str:
    first, _, rest = holding.partition("/")
    if first != "store":
        return first
    kind = rest.partition("/")[0]
    return kind if kind in ("log", "relation") else "private"


def synopsis_meaning(plan: Plan, synopsis: Synopsis) -> Meaning:
    """Return what a synopsis is: an operator's view of rows that are kept elsewhere."""
    operator = plan.by_id[synopsis.operator]
    what = f"{headline(operator, plan.by_id)}: {synopsis.holds}; leave {synopsis.expiry}"
    names = op.output_names(plan.by_id[operator.inputs[synopsis.input].operator])
    return Meaning("synopsis", what, _users(plan, [operator.id]), tuple(names))


def _users(plan: Plan, operators: Iterable[str]) -> tuple[str, ...]:
    """Return the queries that some operators serve, in the order of the plan."""
    serving = {query for operator in operators for query in plan.users[operator]}
    return tuple(query for query in plan.queries if query in serving)


# Stores, rows that wait, rows on hold


def _store(layout: NetworkLayout, rest: str) -> Meaning | None:
    plan = layout.plan
    store = next((each for each in plan.stores if each.id == f"store/{rest}"), None)
    if store is None:
        return None
    producer = plan.by_id[store.rows_of.partition("/")[0]]
    readers = [synopsis.operator for synopsis in plan.synopses if synopsis.id in store.stubs]
    what = f"rows of {headline(producer, plan.by_id)}"
    return Meaning(store.kind, what, _users(plan, readers), tuple(op.output_names(producer)))


def _waiting(layout: NetworkLayout, edge: str) -> Meaning | None:
    plan = layout.plan
    producer = plan.by_id.get(edge.partition("/")[0])
    readers = [each.id for each in plan.operators if any(layout.input_key(each, port) == edge for port in each.inputs)]
    if producer is None or not readers:
        return None
    what = f"rows of {headline(producer, plan.by_id)} at instants that are not complete"
    return Meaning("waiting", what, _users(plan, readers), tuple(op.output_names(producer)))


def _held(layout: NetworkLayout, rest: str) -> Meaning | None:
    plan = layout.plan
    kind, _, owner = rest.partition("/")
    if kind == "result":
        if owner not in plan.queries:
            return None
        names = ("instant", "weight", *op.output_names(plan.output(owner)))
        return Meaning("held", f"results of {owner} that are not delivered yet", (owner,), names)
    if owner not in plan.by_id:
        return None
    source, queries = plan.by_id[owner], _users(plan, [owner])
    if kind == "instants":
        return Meaning("held", f"instants of {headline(source, plan.by_id)} for Rstream", queries, ("instant",))
    return Meaning("held", f"rows of {headline(source, plan.by_id)}", queries, tuple(op.output_names(source)))


# Operators


def _operator(layout: NetworkLayout, rest: str) -> Meaning | None:
    plan = layout.plan
    name, _, piece = rest.partition("/")
    operator = plan.by_id.get(name)
    if operator is None:
        return None
    inputs = InputColumns(
        [op.output_names(plan.by_id[edge.operator]) for edge in operator.inputs],
        [types_of(plan, edge.operator) for edge in operator.inputs],
    )
    found = piece_of_state(operator, inputs, piece)
    return Meaning(
        "operator",
        f"{headline(operator, plan.by_id)}: {found.what}",
        _users(plan, [name]),
        found.values,
        found.keys,
        found.lane_name,
        f"operator/{name}/{found.groups}" if found.groups else None,
        found.decode,
    )
