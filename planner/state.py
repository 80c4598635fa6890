"""State: which synopses operators need, which stores stand behind them, and what can share one.

A synopsis belongs to one operator and is a stub on a store, which owns the tuples. Windows over one
producer have the same insert sequence whatever their lengths, so all of them are stubs on one log; so
are the operators that read such a window's relation as it is. Other relations have a store that all
their readers share. Counts and accumulators are private. Sharing never crosses partitionings, because
an operator's input says how it is routed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from cql import bound
from cql.intervals import duration_text
from cql.sizes import size_text
from planner import operators as op
from planner.json_codec import ExprField
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


class Facts(NamedTuple):
    """What is known of the relation that an operator puts out (of a stream: of all its elements together)."""

    growth: Growth
    only_inserts: bool


def facts_of(operator: op.Operator, below: Sequence[Facts]) -> Facts:
    """Return what is known of an operator's output, from what is known of its inputs."""
    growths = [facts.growth for facts in below]
    inserts = all(facts.only_inserts for facts in below)
    match operator:
        case op.Source():
            return Facts("relation" if operator.is_relation else "stream", operator.time is None or operator.is_stream)
        case op.SeqWindow(window=bound.RowsSpec()):
            return Facts("constant", False)
        case op.SeqWindow(window=bound.PartitionRowsSpec(ticks=None)):
            return Facts("keys", False)
        case op.SeqWindow():
            return Facts("window", False)
        case op.Aggregate(keys=()) | op.TopN(partition=()):
            return Facts("constant", False)
        case op.Aggregate() | op.TopN():
            return Facts(by_keys(growths[0]), False)
        case op.DuplicateEliminate():
            return Facts(by_keys(growths[0]), inserts)
        case op.SemiJoin():
            return Facts(growths[0], inserts)
        case op.AntiJoin() | op.Except() | op.Hold():
            return Facts(growths[0], False)
        case op.IStream() | op.DStream() | op.RStream() | op.StreamJoin():
            return Facts("stream", True)
        case op.BinaryJoin():
            return Facts(wildest(growths), inserts and operator.join == "inner")
    return Facts(wildest(growths), inserts)


def by_keys(growth: Growth) -> Growth:
    """Return what the number of different rows depends on, given what the number of rows depends on."""
    return "keys" if growth == "stream" else growth


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
        match operator:
            case op.Ledger():
                growth = below[0].growth
                self._private(operator, 0, "rows", "how often each row is there", "with the last of a row", growth)
            case op.SeqWindow():
                self._window(operator)
            case op.BinaryJoin():
                self._relation(operator, 0, "left", operator.left_keys)
                self._relation(operator, 1, "right", operator.right_keys)
            case op.EvictingJoin():
                held = f"rows of both inputs, as many as {size_text(operator.memory)} hold"
                self._private(operator, 0, "rows", held, "early, if others are more likely to match", "constant")
            case op.SemiJoin() | op.AntiJoin():
                self._relation(operator, 0, "left", operator.left_keys)
                if operator.residual is None:
                    held = "how many rows have each key"
                    growth = by_keys(below[1].growth)
                    self._private(operator, 1, "right", held, "with the last row of a key", growth, operator.right_keys)
                else:
                    self._relation(operator, 1, "right", operator.right_keys)
            case op.MJoin():
                for at, keys in enumerate(operator.keys):
                    self._relation(operator, at, f"input{at + 1}", keys)
            case op.StreamJoin():
                self._relation(operator, 1, "relation", operator.right_keys)
            case op.Aggregate():
                self._aggregate(operator, below[0])
            case op.DuplicateEliminate():
                growth = by_keys(below[0].growth)
                self._private(operator, 0, "counts", "how often each row occurs", "with the last of a row", growth)
            case op.Except() | op.Intersect():
                kept = "left minus right" if isinstance(operator, op.Except) else "left and right"
                growth = wildest([facts.growth for facts in below])
                self._private(operator, 0, "counts", f"{kept} occurrences of each row", "at zero", growth)
            case op.TopN():
                names = op.output_names(self.operators[operator.inputs[0].operator])
                order = [bound.SortKey(k.column, k.descending, k.nulls_first) for k in operator.keys]
                held = f"rows ({', '.join(names)}) in the order of {sort_text(order, names)}"
                self._relation(operator, 0, "input", holds=held)
            case op.IStream() | op.DStream():
                held = "changes of the current instant"
                self._private(operator, 0, "instant", held, "with the instant", "constant")
            case op.RStream():
                self._relation(operator, 0, "relation")
            case op.Hold():
                held = "changes at instants of lost units"
                self._private(operator, 0, "lost", held, "with the next kept unit", "window")

    def _window(self, operator: op.SeqWindow) -> None:
        names = op.output_names(self.operators[operator.inputs[0].operator])
        holds = f"rows ({', '.join(names)}) of [{window_text(operator.window, names, operator.time)}]"
        kind: StoreKind = "private" if isinstance(operator.window, bound.PartitionRowsSpec) else "log"
        rows_of = operator.id if kind == "private" else log_key(operator)
        growth = self.facts[operator.id].growth
        self._stub(operator, 0, "window", holds, (), expiry_of(operator), growth, kind, rows_of)

    def _aggregate(self, operator: op.Aggregate, below: Facts) -> None:
        growth = self.facts[operator.id].growth
        held, leave = "a row and accumulators for each group", "with the last row of a group"
        self._private(operator, 0, "groups", held, leave, growth, operator.keys)
        if not below.only_inserts and any(needs_rows(call) for call in operator.calls):
            self._relation(operator, 0, "input", operator.keys)
        elif any(keeps_values(call) for call in operator.calls):
            held, leave = "how often each value occurs in each group", "with the last of a value"
            self._private(operator, 0, "values", held, leave, by_keys(below.growth), operator.keys)

    def _relation(
        self,
        operator: op.Operator,
        at: int,
        role: str,
        index: tuple[bound.Expr, ...] = (),
        holds: str | None = None,
    ) -> None:
        """Add a synopsis of the rows of an input."""
        producer = self.operators[operator.inputs[at].operator]
        names = ", ".join(op.output_names(producer))
        kind, rows_of = self._store_of(operator.inputs[at])
        growth = self.facts[producer.id].growth
        self._stub(operator, at, role, holds or f"rows ({names})", index, expiry_of(producer), growth, kind, rows_of)

    def _private(
        self,
        operator: op.Operator,
        at: int,
        role: str,
        holds: str,
        expiry: str,
        growth: Growth,
        index: tuple[bound.Expr, ...] = (),
    ) -> None:
        self._stub(operator, at, role, holds, index, expiry, growth, "private", operator.id)

    def _stub(
        self,
        operator: op.Operator,
        at: int,
        role: str,
        holds: str,
        index: tuple[bound.Expr, ...],
        expiry: str,
        growth: Growth,
        kind: StoreKind,
        rows_of: str,
    ) -> None:
        own = kind == "private" or not self.share
        store = f"store/{operator.id}/{role}" if own else f"store/{kind}/{rows_of}"
        synopsis = Synopsis(
            id=f"{operator.id}/{role}",
            operator=operator.id,
            role=role,
            input=at,
            holds=holds,
            index=index,
            expiry=expiry,
            growth=growth,
            store=store,
        )
        self.stubs.append(Stub(synopsis, Store(id=store, kind="private" if own else kind, rows_of=rows_of)))

    def _store_of(self, edge: op.InputEdge) -> tuple[StoreKind, str]:
        """Return the kind of store behind the relation that arrives over an edge, and whose rows it keeps."""
        producer = self.operators[edge.operator]
        if edge.route == "local" and isinstance(producer, op.SeqWindow) and follows_log(producer):
            return "log", log_key(producer)
        return "relation", edge_key(edge)


def follows_log(window: op.SeqWindow) -> bool:
    """Tell whether the tuples of a window are those of its stream, each from its own instant on."""
    match window.window:
        case bound.RowsSpec() | bound.RangeSpec(slide=None):
            return True
    return False


def log_key(window: op.SeqWindow) -> str:
    """Return what identifies the sequence of elements that a window is over, in the order in which it counts them."""
    key = edge_key(window.inputs[0])
    by_value = isinstance(window.window, bound.RowsSpec) and window.order == "value"
    return f"{key}/by value" if by_value else key


def needs_rows(call: bound.AggregateCall) -> bool:
    """Tell whether an aggregate has to look at the rows of a group again when one of them leaves."""
    return call.function in ("min", "max", "arg_min", "arg_max") or call.user_defined


def keeps_values(call: bound.AggregateCall) -> bool:
    """Tell whether an aggregate has to remember which values it has seen."""
    return call.distinct or call.function == "approx_count_distinct"


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


def expiry_of(operator: op.Operator) -> str:
    """Return when rows leave the relation that an operator puts out."""
    if isinstance(operator, op.SeqWindow):
        match operator.window:
            case bound.RowsSpec():
                return f"{operator.window.rows} rows later"
            case bound.PartitionRowsSpec(rows=rows, ticks=ticks):
                by_time = f" or after {duration_text(ticks, operator.time)}" if ticks else ""
                return f"{rows} rows of the same key later{by_time}"
            case bound.RangeSpec(ticks=ticks, slide=slide):
                at = f", at multiples of {duration_text(slide, operator.time)}" if slide else ""
                return f"after {duration_text(ticks, operator.time)}{at}"
    if isinstance(operator, op.Source) and not operator.is_relation:
        return "never"
    return "when the input retracts them"
