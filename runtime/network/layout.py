"""The layout of a plan over places: which operators run in which fragment, and what is sent between them.

The fragments of one level are fed by sources or by fragments of earlier levels. Operators of the fragment `source`
run where rows are read, before anything is sent; they have no state. A query that needs nothing else is delivered
in one bucket, so that its results come in the order of time like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from cql.settings import OnBadRow
from planner import operators as op
from planner.json_codec import ExprField
from planner.plan import Plan
from planner.state import edge_key
from runtime.columns.batch import Columns, Ints
from runtime.columns.row_codes import row_codes
from runtime.operators.base import evaluate_all
from runtime.user_errors import UserFunctionFailed

ONE_BUCKET = "single-0"


def fragment_of(operator: op.Operator) -> str:
    """Return the fragment that an operator runs in."""
    if isinstance(operator, op.Output) and operator.placement == "source":
        return ONE_BUCKET
    return operator.fragment


def level_of(fragment: str) -> int:
    """Return at which stage a fragment runs."""
    return int(fragment.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Edge:
    """A sequence of rows that is sent to a fragment: from an operator, to the buckets of some keys, or to one."""

    key: str
    producer: str
    to: str
    keys: tuple[ExprField, ...]
    source: str | None
    """The source that it comes from without an operator with state in between."""


@dataclass(frozen=True)
class NetworkLayout:
    """A plan with the number of buckets of its partitioned fragments."""

    plan: Plan
    buckets: int = 2
    delays: Mapping[str, int] = field(default_factory=dict)
    """How late elements of a source may come, in ticks, by the id of the source."""
    closes_windows: bool = False
    """Whether time passes at the end until windows that have begun have ended."""
    on_bad_row: OnBadRow = "fail"
    """What becomes of removals of rows that are not there."""

    @cached_property
    def fragments(self) -> tuple[str, ...]:
        """All fragments with operators to run, by level."""
        found = {fragment_of(each) for each in self.plan.operators} - {"source"}
        return tuple(sorted(found, key=lambda name: (level_of(name), name)))

    @cached_property
    def levels(self) -> int:
        """How many stages there are."""
        return 1 + max((level_of(each) for each in self.fragments), default=0)

    def bucket_count(self, fragment: str) -> int:
        """Return how many buckets a fragment has."""
        return self.buckets if fragment.startswith("hash") else 1

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """All fragments with their buckets."""
        return tuple((each, bucket) for each in self.fragments for bucket in range(self.bucket_count(each)))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All that is sent from one fragment to another, or from a source to a fragment."""
        found: dict[tuple[str, str], Edge] = {}
        for reader in self.plan.operators:
            fragment = fragment_of(reader)
            for each in reader.inputs:
                producer = self.plan.by_id[each.operator]
                if fragment == "source" or (fragment_of(producer) == fragment and each.route == "local"):
                    continue
                key = self.input_key(reader, each)
                source = self._source_below(producer)
                found.setdefault((key, fragment), Edge(key, producer.id, fragment, tuple(each.keys), source))
        return tuple(found.values())

    def input_key(self, reader: op.Operator, edge: op.InputEdge) -> str:
        """Return the name of what arrives over an input: the producer, if it runs in the same place."""
        producer = self.plan.by_id[edge.operator]
        if edge.route == "local" and fragment_of(producer) == fragment_of(reader):
            return edge.operator
        return edge_key(edge) if edge.route != "local" else f"{edge.operator}/single"

    def _source_below(self, operator: op.Operator) -> str | None:
        if operator.placement != "source":
            return None
        while operator.inputs:
            operator = self.plan.by_id[operator.inputs[0].operator]
        return operator.id

    def into(self, fragment: str) -> tuple[Edge, ...]:
        """Return what is sent to a fragment."""
        return tuple(edge for edge in self.edges if edge.to == fragment)

    def out_of(self, fragment: str) -> tuple[Edge, ...]:
        """Return what a fragment sends to others."""
        return tuple(
            edge
            for edge in self.edges
            if edge.source is None and fragment_of(self.plan.by_id[edge.producer]) == fragment
        )


class Router:
    """Splits the rows of an edge over the buckets of its fragment."""

    def __init__(self, layout: NetworkLayout, edge: Edge, functions: Mapping[str, object]) -> None:
        self._count = layout.bucket_count(edge.to) if edge.keys else 1
        self._keys_of = evaluate_all(edge.keys, functions)
        self._names = tuple(column.name for column in layout.plan.by_id[edge.producer].columns)

    def buckets(self, columns: Columns, length: int) -> Sequence[tuple[int, Ints | None]]:
        """Return the buckets that rows go to, with the positions of the rows; None stands for all."""
        if self._count == 1:
            return ((0, None),) if length else ()
        try:
            codes = row_codes(self._keys_of(columns, length), length).codes
        except UserFunctionFailed as failure:
            failure.columns = self._names
            raise
        bucket = (codes % np.uint64(self._count)).astype(np.int64)
        found = [(at, np.flatnonzero(bucket == at)) for at in range(self._count)]
        return [(at, positions) for at, positions in found if len(positions)]


def types_of(plan: Plan, operator: str) -> tuple[pa.DataType, ...]:
    """Return the Arrow types of what an operator puts out."""
    from runtime.columns.arrow_types import arrow_type

    return tuple(arrow_type(column.type) for column in plan.by_id[operator].columns)
