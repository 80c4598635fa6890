"""What the state of a network means, from its plan: words for what is kept, the queries that use it, names of values.

Ids are those of chunks without their numbers (`runtime/engine/checkpoint.py`, `runtime/network/worker_state.py`). What
a plan does not know, because it was dropped from the network or because there is no plan, has a kind and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cql.bound import AggregateCall
from planner import operators as op
from planner.explain.headlines import headline
from planner.plan import Plan
from planner.state import Synopsis
from planner.text import aggregate_text, expression_text
from runtime.aggregates.extremes import EXTREMES, extreme_call
from runtime.network.layout import NetworkLayout, types_of
from runtime.operators.top_n_state import Firsts

Decode = Callable[[Sequence[pa.Array]], Sequence[pa.Array]]

_PARTS = {
    "agenda": "changes to come",
    "groups": "counts",
    "keys": "keys",
    "rows": "rows",
    "key rows": "keys that are there",
    "waiting": "elements that wait for the relation",
}
_EVICTING = {
    "left": "left rows",
    "right": "right rows",
    "left missed": "left rows given up",
    "right missed": "right rows given up",
    "learned": "how often keys come",
}
_MISSED = ["code", "end", "weight", "likely"]
_MATCHES = {"first": "rows", "second": "matches"}


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
    found = _piece(plan, operator, piece)
    what = f"{headline(operator, plan.by_id)}: {found.what}"
    groups = f"operator/{name}/{found.groups}" if found.groups else None
    return replace(found, what=what, queries=_users(plan, [name]), groups=groups)


def _piece(plan: Plan, operator: op.Operator, piece: str) -> Meaning:
    """Return what a piece of an operator's state is; its groups are in another piece."""
    inputs = [op.output_names(plan.by_id[edge.operator]) for edge in operator.inputs]
    own = tuple(op.output_names(operator))
    match operator:
        case op.Aggregate():
            return _aggregate(operator, inputs[0], piece)
        case op.SeqWindow():
            columns = getattr(operator.window, "columns", ())
            values = tuple(own[at] for at in columns) if piece == "keys" else own
            return Meaning("operator", _PARTS[piece], values=values)
        case op.SemiJoin() | op.AntiJoin():
            if piece.startswith("rows"):
                return _counted(piece, inputs[0], _MATCHES)
            return _counted(piece, [expression_text(key, inputs[1]) for key in operator.right_keys])
        case op.BinaryJoin():
            return _counted(piece, inputs[int(piece.removeprefix("unmatched")[0])], _MATCHES)
        case op.EvictingJoin():
            held = {"left": inputs[0], "right": inputs[1], "learned": ["learned"]}.get(piece, _MISSED)
            return Meaning("operator", _EVICTING[piece], values=tuple(held))
        case op.Except() | op.Intersect():
            return _counted(piece, own, {"first": "left", "second": "right"})
        case op.DuplicateEliminate():
            return _counted(piece, own)
        case op.TopN():
            return Meaning("operator", _part(piece), values=tuple(inputs[0]), decode=_firsts(plan, operator))
        case op.StreamJoin():
            return Meaning("operator", _part(piece), values=tuple(inputs[0]))
    return Meaning("operator", _part(piece), values=own)


def _part(piece: str) -> str:
    """Return in words which part of an operator's state a piece is.

    >>> _part("unmatched0/agenda")
    'changes to come'
    """
    return _PARTS.get(piece.rpartition("/")[2], piece)


def _counted(piece: str, names: Sequence[str], lanes: Mapping[str, str] | None = None) -> Meaning:
    """Return what rows with counts over time are, or the changes to come of their counts."""
    owner, slash, last = piece.rpartition("/")
    groups = f"{owner}{slash}groups" if last == "agenda" else None
    lane_name = (lanes or {"first": "count"}).get
    values = () if groups else tuple(names)
    return Meaning("operator", _part(piece), (), values, len(names), lane_name, groups)


def _aggregate(operator: op.Aggregate, names: Sequence[str], piece: str) -> Meaning:
    calls = [aggregate_text(call, names) for call in operator.calls]

    def lane_name(lane: str) -> str:
        number, _, of_call = lane.partition(".")
        return f"{calls[int(number)]} {of_call}" if of_call else lane

    if piece == "groups":
        values = tuple(op.output_names(operator))
        return Meaning("operator", "groups", (), values, len(operator.keys), lane_name)
    if piece == "agenda":
        return Meaning("operator", _part(piece), (), (), 0, lane_name, "groups")
    number, _, part = piece.partition("/")
    call = operator.calls[int(number)]
    arguments = [expression_text(each, names) for each in call.arguments]
    what = f"values of {calls[int(number)]}"
    if call.function in EXTREMES or call.user_defined:
        decode = None if call.user_defined else _extremes(call)
        return Meaning("operator", f"{what} to come" if part else what, (), tuple(arguments), 0, str, "groups", decode)
    counted = _counted(piece, arguments)
    keys = len(operator.keys) + len(arguments)
    groups = counted.groups or "groups"
    return replace(counted, what=f"{what}, {counted.what}", keys=keys, groups=groups)


# From codes to values


def _firsts(plan: Plan, operator: op.TopN) -> Decode:
    types = types_of(plan, operator.inputs[0].operator)
    firsts = Firsts(operator.partition, operator.keys, operator.limit, operator.numbered, types)
    return lambda columns: firsts.columns(_codes(columns))


def _extremes(call: AggregateCall) -> Decode:
    return lambda columns: extreme_call(call).arguments(_codes(columns))


def _codes(columns: Sequence[pa.Array]) -> list[pa.Array]:
    return [column if pa.types.is_string(column.type) else np.asarray(column) for column in columns]
