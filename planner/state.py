"""State: which stores stand behind the synopses that operators need, and what can share one.

A synopsis belongs to one operator and is a stub on a store, which owns the tuples. Windows over one
producer have the same insert sequence whatever their lengths, so all of them are stubs on one log; so
are the operators that read such a window's relation as it is. Other relations have a store that all
their readers share. Counts and accumulators are private. Sharing never crosses partitionings, because
an operator's input says how it is routed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from cql import bound
from cql.bound.text import expression_text
from planner import operators as op
from planner.json_codec import ExprField
from planner.operators.state_needs import Facts, Growth, InputRows, OwnState, SynopsisNeed, WindowLog


class Synopsis(BaseModel):
    """State of one operator: what it holds, how it is looked up, when tuples leave, where they are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str
    operator: str
    role: str
    input: int
    holds: str
    index: tuple[ExprField, ...] = ()
    expiry: str
    growth: Growth
    store: str


StoreKind = Literal["log", "relation", "private"]


class Store(BaseModel):
    """Owner of tuples or counts. `log` serves windows and their readers, `relation` readers of a relation,
    `private` one synopsis. `rows_of` names the operator whose output rows it keeps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kind: StoreKind
    rows_of: str
    stubs: tuple[str, ...] = ()


class Stub(NamedTuple):
    """A synopsis and the store behind it."""

    synopsis: Synopsis
    store: Store


@dataclass(slots=True)
class StateBuilder:
    """Finds the synopses of one query's operators; without `share` every synopsis has a store of its own."""

    operators: Mapping[str, op.Operator]
    facts: Mapping[str, Facts]
    share: bool
    stubs: list[Stub] = field(default_factory=list)

    def add(self, operator: op.Operator) -> None:
        """Add the synopses that an operator needs."""
        below = [self.facts[edge.operator] for edge in operator.inputs]
        names = [op.output_names(self.operators[edge.operator]) for edge in operator.inputs]
        self.stubs += [self._stub(operator, need) for need in operator.synopses(below, names)]

    def _stub(self, operator: op.Operator, need: SynopsisNeed) -> Stub:
        kind, rows_of = self._store_of(operator, need)
        own = kind == "private" or not self.share
        store = f"store/{operator.id}/{need.role}" if own else f"store/{kind}/{rows_of}"
        synopsis = self._synopsis(operator, need, store)
        return Stub(synopsis, Store(id=store, kind="private" if own else kind, rows_of=rows_of))

    def _store_of(self, operator: op.Operator, need: SynopsisNeed) -> tuple[StoreKind, str]:
        """Return the kind of store behind a synopsis, and whose rows it keeps."""
        match need:
            case OwnState():
                return "private", operator.id
            case WindowLog():
                return "log", log_key(operator)
            case InputRows():
                edge = operator.inputs[need.input]
                producer = self.operators[edge.operator]
                is_log = edge.route == "local" and follows_log(producer)
                return ("log", log_key(producer)) if is_log else ("relation", edge_key(edge))

    def _synopsis(self, operator: op.Operator, need: SynopsisNeed, store: str) -> Synopsis:
        holds, index, expiry, growth = self._description(operator, need)
        return Synopsis(
            id=f"{operator.id}/{need.role}",
            operator=operator.id,
            role=need.role,
            input=need.input,
            holds=holds,
            index=index,
            expiry=expiry,
            growth=growth,
            store=store,
        )

    def _description(
        self, operator: op.Operator, need: SynopsisNeed
    ) -> tuple[str, tuple[bound.Expr, ...], str, Growth]:
        """Return what a synopsis holds, by what it is looked up, when rows leave, how it grows."""
        match need:
            case OwnState():
                return need.holds, need.keys, need.expiry, need.growth
            case WindowLog():
                return need.holds, (), operator.expiry, self.facts[operator.id].growth
            case InputRows():
                producer = self.operators[operator.inputs[need.input].operator]
                holds = need.holds or f"rows ({', '.join(op.output_names(producer))})"
                return holds, need.keys, producer.expiry, self.facts[producer.id].growth


def follows_log(operator: op.Operator) -> bool:
    """Tell whether the tuples of a relation are those of a stream in a window, each from its own instant on."""
    match operator.window_spec:
        case bound.RowsSpec() | bound.RangeSpec(slide=None):
            return True
    return False


def log_key(window: op.Operator) -> str:
    """Return what identifies the sequence of elements that a window is over, in the order in which it counts them."""
    key = edge_key(window.inputs[0])
    return f"{key}/{window.counts_in}" if window.counts_in else key


def edge_key(edge: op.InputEdge) -> str:
    """Return what identifies a sequence of elements as it arrives over an edge."""
    if edge.route == "local":
        return edge.operator
    if edge.route == "single":
        return f"{edge.operator}/single"
    keys = ",".join(_key_text(key) for key in edge.keys)
    return f"{edge.operator}/by({keys})"


def _key_text(key: bound.Expr) -> str:
    return expression_text(key) if not isinstance(key, bound.ColumnRef) else f"${key.index}"
