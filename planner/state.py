"""State: which synopses operators need, which stores stand behind them, and what can share one.

A synopsis belongs to one operator and is a stub on a store, which owns the tuples. Windows over one
producer have the same insert sequence whatever their lengths, so all of them are stubs on one log; so
are the operators that read such a window's relation as it is. Other relations have a store that all
their readers share. Counts and accumulators are private. Sharing never crosses partitionings, because
an operator's input says how it is routed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from cql import bound
from planner import operators as op
from planner.codec import ExprField
from planner.text import expression_text, sort_text, window_text

Growth = Literal["constant", "relation", "window", "keys", "stream"]
"""What the size of some state depends on, from the tamest to the wildest: a number in the query, a given
relation, the elements of a stretch of time, how many different keys there are, the length of a stream."""

_WILDNESS: tuple[Growth, ...] = ("constant", "relation", "window", "keys", "stream")


def wildest(growths: Sequence[Growth]) -> Growth:
    """Return the growth that dominates."""
    return max(growths, key=_WILDNESS.index, default="constant")


class Synopsis(BaseModel):
    """State of one operator: what it holds, how it is looked up, when tuples leave, where they are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str
    operator: str
    role: str
    holds: str
    index: tuple[ExprField, ...] = ()
    expiry: str
    growth: Growth
    store: str


class Store(BaseModel):
    """Owner of tuples or counts. `log` serves windows and their readers, `relation` readers of a relation,
    `private` one synopsis. `rows_of` names the operator whose output rows it keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: Literal["log", "relation", "private"]
    rows_of: str
    stubs: tuple[str, ...]


def relation_growth(operator: op.Operator, growth_below: Sequence[Growth]) -> Growth:
    """Return what the size of the relation that an operator puts out depends on.

    For an operator that puts out a stream it is what an unbounded window over it would depend on.
    """
    match operator:
        case op.Source():
            return "relation" if operator.is_relation else "stream"
        case op.SeqWindow():
            match operator.window:
                case bound.RowsSpec():
                    return "constant"
                case bound.PartitionRowsSpec(ticks=None):
                    return "keys"
            return "window"
        case op.Aggregate():
            if not operator.keys:
                return "constant"
            return "keys" if growth_below[0] == "stream" else growth_below[0]
        case op.DuplicateEliminate():
            return "keys" if growth_below[0] == "stream" else growth_below[0]
        case op.TopN():
            if not operator.partition:
                return "constant"
            return "keys" if growth_below[0] == "stream" else growth_below[0]
        case op.SemiJoin() | op.AntiJoin() | op.Except():
            return growth_below[0]
        case op.IStream() | op.DStream() | op.RStream() | op.StreamJoin():
            return "stream"
    return wildest(growth_below)


def synopses_of(
    operator: op.Operator, operators: Mapping[str, op.Operator], growth: Mapping[str, Growth], share: bool
) -> list[Synopsis]:
    """Return the synopses that an operator needs."""
    lower = [operators[edge.operator] for edge in operator.inputs]
    made: list[Synopsis] = []

    def private(role: str, holds: str, expiry: str, size: Growth, index: tuple[bound.Expr, ...] = ()) -> None:
        made.append(
            Synopsis(
                id=f"{operator.id}/{role}",
                operator=operator.id,
                role=role,
                holds=holds,
                index=index,
                expiry=expiry,
                growth=size,
                store=f"store/{operator.id}/{role}",
            )
        )

    def relation(at: int, role: str, index: tuple[bound.Expr, ...] = (), holds: str | None = None) -> None:
        kind, producer = store_of(operator, at, operators)
        store = f"store/{kind}/{producer}" if share else f"store/{operator.id}/{role}"
        names = ", ".join(op.output_names(lower[at]))
        made.append(
            Synopsis(
                id=f"{operator.id}/{role}",
                operator=operator.id,
                role=role,
                holds=holds or f"rows ({names})",
                index=index,
                expiry=_expiry(lower[at]),
                growth=growth[lower[at].id],
                store=store,
            )
        )

    match operator:
        case op.SeqWindow():
            names = op.output_names(lower[0])
            shared = not isinstance(operator.window, bound.PartitionRowsSpec) and share
            edge = _edge_key(operator.inputs[0])
            store = f"store/log/{edge}" if shared else f"store/{operator.id}/window"
            made.append(
                Synopsis(
                    id=f"{operator.id}/window",
                    operator=operator.id,
                    role="window",
                    holds=f"rows ({', '.join(names)}) of [{window_text(operator.window, names)}]",
                    expiry=_expiry(operator),
                    growth=growth[operator.id],
                    store=store,
                )
            )
        case op.BinaryJoin():
            relation(0, "left", operator.left_keys)
            relation(1, "right", operator.right_keys)
        case op.SemiJoin() | op.AntiJoin():
            relation(0, "left", operator.left_keys)
            if operator.residual is None:
                private(
                    "right",
                    "how many rows have each key",
                    "with the last row of a key",
                    "keys" if growth[lower[1].id] == "stream" else growth[lower[1].id],
                    operator.right_keys,
                )
            else:
                relation(1, "right", operator.right_keys)
        case op.MJoin():
            for at, keys in enumerate(operator.keys):
                relation(at, f"input{at + 1}", keys)
        case op.StreamJoin():
            relation(1, "relation", operator.right_keys)
        case op.Aggregate():
            size: Growth = growth[operator.id]
            private(
                "groups",
                "a row and accumulators for each group",
                "with the last row of a group",
                size,
                operator.keys,
            )
            if growth[lower[0].id] != "stream" and any(needs_rows(call) for call in operator.calls):
                relation(0, "input", operator.keys)
            elif any(keeps_values(call) for call in operator.calls):
                private(
                    "values",
                    "how often each value occurs in each group",
                    "with the last of a value",
                    "keys" if growth[lower[0].id] == "stream" else growth[lower[0].id],
                    operator.keys,
                )
        case op.DuplicateEliminate():
            private(
                "counts",
                "how often each row occurs",
                "with the last of a row",
                "keys" if growth[lower[0].id] == "stream" else growth[lower[0].id],
            )
        case op.Except():
            private(
                "counts",
                "left minus right occurrences of each row",
                "at zero",
                wildest([growth[b.id] for b in lower]),
            )
        case op.Intersect():
            private(
                "counts",
                "left and right occurrences of each row",
                "at zero",
                wildest([growth[b.id] for b in lower]),
            )
        case op.TopN():
            names = op.output_names(lower[0])
            order = sort_text(
                [bound.SortKey(k.column, k.descending, k.nulls_first) for k in operator.keys], names
            )
            relation(0, "input", holds=f"rows ({', '.join(names)}) in the order of {order}")
        case op.IStream() | op.DStream():
            private("instant", "changes of the current instant", "with the instant", "constant")
        case op.RStream():
            relation(0, "relation")
    return made


def needs_rows(call: bound.AggregateCall) -> bool:
    """Tell whether an aggregate has to look at the rows of a group again when one of them leaves."""
    return call.function in ("min", "max", "arg_min", "arg_max") or call.user_defined


def keeps_values(call: bound.AggregateCall) -> bool:
    """Tell whether an aggregate has to remember which values it has seen."""
    return call.distinct or call.function == "approx_count_distinct"


def store_of(operator: op.Operator, at: int, operators: Mapping[str, op.Operator]) -> tuple[str, str]:
    """Return the kind of store and the producer behind the relation that an operator reads."""
    edge = operator.inputs[at]
    producer = operators[edge.operator]
    if edge.route == "local" and isinstance(producer, op.SeqWindow):
        if isinstance(producer.window, bound.PartitionRowsSpec):
            return "relation", producer.id
        return "log", _edge_key(producer.inputs[0])
    return "relation", _edge_key(edge)


def _edge_key(edge: op.Input) -> str:
    """Return what identifies a sequence of elements as it arrives over an edge."""
    if edge.route == "local":
        return edge.operator
    if edge.route == "single":
        return f"{edge.operator}/single"
    keys = ",".join(_key_text(key) for key in edge.keys)
    return f"{edge.operator}/by({keys})"


def _key_text(key: bound.Expr) -> str:
    return expression_text(key) if not isinstance(key, bound.ColumnRef) else f"${key.index}"


def _expiry(operator: op.Operator) -> str:
    """Return when rows leave the relation that an operator puts out."""
    if isinstance(operator, op.SeqWindow):
        match operator.window:
            case bound.RowsSpec():
                return f"{operator.window.rows} rows later"
            case bound.PartitionRowsSpec():
                by_time = f" or after {operator.window.ticks} ticks" if operator.window.ticks else ""
                return f"{operator.window.rows} rows of the same key later{by_time}"
            case bound.RangeSpec():
                slide = f", at multiples of {operator.window.slide}" if operator.window.slide else ""
                return f"after {operator.window.ticks} ticks{slide}"
    if isinstance(operator, op.Source) and not operator.is_relation:
        return "never"
    return "when the input retracts them"
