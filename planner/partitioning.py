"""How elements are spread over buckets, and which keys operators want them spread by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cql import bound
from cql.bound import ColumnRef, Expr, Rel
from planner.logical import KeyedJoin, StreamJoin


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How an operator's output is spread over buckets.

    `free`: not sent anywhere yet, straight from a source. `hash`: by `keys`, each given as the set of
    expressions over the output that are equal to it (none, if it is not visible in the output any more).
    `single`: all in one bucket.
    """

    mode: str
    keys: tuple[frozenset[Expr], ...] = ()


FREE = Partitioning("free")
SINGLE = Partitioning("single")

Demand = tuple[Expr, ...] | None
"""The expressions that the reader would like to be partitioned by: none of them if it runs in one bucket;
None if it does not mind."""

ONE_BUCKET: Demand = ()


def runs_in_one_bucket(rel: Rel) -> bool:
    """Tell whether a plan ends in a part that cannot be split over buckets."""
    match rel:
        case bound.StreamScan() | bound.RelationScan():
            return False
        case bound.Window(spec=bound.RowsSpec()) | bound.TopN():
            return True
        case bound.Window(spec=bound.PartitionRowsSpec()) if counts_in_source_order(rel):
            return True
        case bound.Aggregate(keys=()):
            return True
        case KeyedJoin(left_keys=()) | StreamJoin(left_keys=()):
            return True
    return any(runs_in_one_bucket(below) for below in bound.direct_inputs(rel))


def in_source_order(stream: Rel) -> bool:
    """Tell whether the elements of an instant come in the order of a source."""
    while isinstance(stream, bound.Filter | bound.Project):
        stream = stream.input
    if isinstance(stream, bound.RelToStream):
        relation = stream.input
        while isinstance(relation, bound.Filter | bound.Project):
            relation = relation.input
        return isinstance(relation, bound.Window) and in_source_order(relation.input)
    return isinstance(stream, bound.StreamScan)


def counts_in_source_order(window: bound.Window) -> bool:
    """Tell whether a window counts elements of a derived stream that has the order of its source."""
    stream = window.input
    while isinstance(stream, bound.Filter | bound.Project):
        stream = stream.input
    return not isinstance(stream, bound.StreamScan) and in_source_order(window.input)


def split_demand(node: KeyedJoin, demand: Demand) -> tuple[set[Expr], set[Expr]]:
    """Return what the reader demands, as expressions over the left and over the right input."""
    width = len(node.left.schema)
    refs = [k for k in demand or () if isinstance(k, ColumnRef)]
    left: set[Expr] = {k for k in refs if k.index < width}
    return left, {replace(k, index=k.index - width) for k in refs if k.index >= width}


def keys_wanted(keys: tuple[tuple[Expr, ...], tuple[Expr, ...]], demand: tuple[set[Expr], set[Expr]]) -> list[int]:
    """Return which keys to partition by: those that the reader demands too, or all of them."""
    pairs = list(zip(*keys, strict=True))
    asked = [at for at, (a, b) in enumerate(pairs) if a in demand[0] or b in demand[1]]
    return asked or list(range(len(pairs)))


def key_order(partitioning: Partitioning, keys: tuple[Expr, ...]) -> list[int] | None:
    """Return which keys, in order, an input is already partitioned by; None if by others or not at all."""
    if partitioning.mode != "hash":
        return None
    order = []
    for position in partitioning.keys:
        at = next((i for i, key in enumerate(keys) if key in position), None)
        if at is None:
            return None
        order.append(at)
    return order or None
