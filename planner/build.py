"""Turns a logical plan into operators: chooses how each input is partitioned and routed.

Every operator may run once per bucket of a hash partitioning if elements that it has to bring together
agree on the partitioning keys: the keys of a join, the groups of an aggregate, the partitions of a
window. What has no such keys runs in one bucket and says why. Elements are sent on to other buckets
only where an operator's needs do not fit what its input already has. What a query is turned into
depends on that query alone, so that the ids of its operators never change with others around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cql import bound
from cql.ast import RelToStreamKind, SetKind
from cql.bound import ColumnRef, Expr, Rel
from cql.bound.text import aggregate_text, expression_text
from cql.intervals import TimeDomain
from planner import operators as op
from planner.expressions import columns, shifted
from planner.logical import GroupTopN, JoinType, KeyedJoin, MultiJoin, StreamJoin
from planner.partitioning import (
    FREE,
    ONE_BUCKET,
    SINGLE,
    Demand,
    Partitioning,
    counts_in_source_order,
    in_source_order,
    key_order,
    keys_wanted,
    runs_in_one_bucket,
    split_demand,
)

NOT_SPREAD = "the network that it was added to has too few stages to spread it"
NO_KEYS = "a join without an equality has no keys to split by"
OVER_ALL = "an aggregate without GROUP BY is over all rows"
"""Why an operator is in one bucket."""


@dataclass(frozen=True, slots=True)
class Built:
    operator: op.Operator
    partitioning: Partitioning


@dataclass(slots=True)
class PlanBuilder:
    """Builds the operators of one query, inputs before readers.

    With a `salt` nothing is shared. Queries of different `epoch`s share nothing with each other. Without `spread`
    all operators with state run in one bucket, at the first level.
    """

    salt: str = ""
    epoch: int = 0
    spread: bool = True
    operators: dict[str, op.Operator] = field(default_factory=dict)
    _count: int = 0
    _keeps_order: bool = False
    _timed: tuple[bound.StreamScan | bound.RelationScan, ...] = ()

    def output(self, query: str, plan: Rel, slides: tuple[int, ...] = ()) -> op.Operator:
        """Build a query's plan and return its output operator; `slides` are those of the query as it was written."""
        self._timed = tuple(scan for scan in bound.scans(plan) if scan.domain is not None)
        built = self.build(plan, None)
        made = self._add(
            op.Output,
            [self._local(built)],
            [c.model_copy(update={"name": f.name}) for c, f in zip(built.operator.columns, plan.schema, strict=True)],
            plan.is_stream,
            query=query,
            slides=slides,
        )
        return made

    def build(self, node: Rel, demand: Demand) -> Built:
        """Return the operator that computes a node, and how its output is partitioned."""
        match node:
            case bound.RelationScan(domain=TimeDomain() as time):
                return self._ledger(node, time, demand)
            case bound.StreamScan() | bound.RelationScan():
                return self._source(node)
            case bound.Filter():
                return self._select(node, demand)
            case bound.Sample():
                return self._sample(node, demand)
            case bound.Project():
                return self._project(node, demand)
            case bound.Window():
                return self._window(node, demand)
            case KeyedJoin():
                return self._keyed_join(node, demand)
            case MultiJoin():
                return self._multi_join(node, demand)
            case StreamJoin():
                return self._stream_join(node, demand)
            case bound.Aggregate():
                return self._aggregate(node, demand)
            case bound.Distinct():
                return self._keyed(op.DuplicateEliminate, [node.input], node, demand)
            case bound.SetOperation():
                kind: dict[SetKind, type[op.Operator]]
                kind = {SetKind.UNION: op.Union, SetKind.EXCEPT: op.Except, SetKind.INTERSECT: op.Intersect}
                return self._keyed(kind[node.kind], [node.left, node.right], node, demand)
            case bound.TopN():
                return self._top_n(node, (), demand)
            case GroupTopN():
                return self._top_n(node, node.partition, demand)
            case bound.RelToStream():
                return self._rel_to_stream(node, demand)
        raise AssertionError(f"no operator for {type(node).__name__}")

    # Operators without state of their own

    def _source(self, node: bound.StreamScan | bound.RelationScan) -> Built:
        made = self._add(
            op.Source,
            [],
            _columns(node),
            node.is_stream,
            table=node.name,
            is_relation=isinstance(node, bound.RelationScan),
            time=node.domain,
            begins=self._begins() if node.domain is None else (),
            epoch=self.epoch,
        )
        return Built(made, FREE)

    def _ledger(self, node: bound.RelationScan, time: TimeDomain, demand: Demand) -> Built:
        """Build the log of a relation, with equal rows in one bucket: any expressions of rows can be the keys."""
        below = self._source(node)
        keys = columns(node) if demand is None else demand
        routed, partitioning = self._to_keys(below, keys) if keys else (self._to_single(below), SINGLE)
        reason = None if keys else "its reader runs in one bucket"
        made = self._add(op.Ledger, [routed], below.operator.columns, False, reason=reason, table=node.name, time=time)
        return Built(made, partitioning)

    def _begins(self) -> tuple[str, ...]:
        """Return the sources whose first element is the first instant of the query."""
        return tuple(dict.fromkeys(self._source(scan).operator.id for scan in self._timed))

    def _select(self, node: bound.Filter, demand: Demand) -> Built:
        below = self.build(node.input, demand)
        made = self._add(
            op.Select,
            [self._local(below)],
            below.operator.columns,
            node.is_stream,
            predicates=tuple(bound.conjuncts(node.predicate)),
        )
        return Built(made, below.partitioning)

    def _sample(self, node: bound.Sample, demand: Demand) -> Built:
        below = self.build(node.input, demand)
        made = self._add(op.Sample, [self._local(below)], below.operator.columns, False, percent=node.percent)
        return Built(made, below.partitioning)

    def _project(self, node: bound.Project, demand: Demand) -> Built:
        wanted = demand
        if demand:
            wanted = tuple(node.items[k.index] for k in demand if isinstance(k, ColumnRef)) or None
        below = self.build(node.input, wanted)
        if node.items == columns(node.input):
            return below
        names = [c.name for c in below.operator.columns]
        described = [
            op.OutputColumn(name=expression_text(item, names), type=item.type, nullable=item.nullable)
            for item in node.items
        ]
        made = self._add(op.Project, [self._local(below)], described, node.is_stream, items=node.items)
        outputs = columns(node)
        keys = tuple(
            frozenset(outputs[at] for at, item in enumerate(node.items) if item in position)
            for position in below.partitioning.keys
        )
        return Built(made, replace(below.partitioning, keys=keys))

    # Windows

    def _window(self, node: bound.Window, demand: Demand) -> Built:
        everything: tuple[Expr, ...] = columns(node)
        match node.spec:
            case bound.UnboundedSpec():
                return self.build(node.input, demand)
            case bound.RowsSpec() | bound.PartitionRowsSpec() if counts_in_source_order(node):
                return self._window_in_order(node)
            case bound.RowsSpec():
                below = self.build(node.input, ONE_BUCKET)
                reason = f"[{node.spec}] counts the elements of the whole stream"
                return self._made_window(node, self._to_single(below), SINGLE, reason)
            case bound.PartitionRowsSpec():
                keys = tuple(everything[at] for at in node.spec.columns)
                keys = tuple(k for k in keys if demand and k in demand) or keys
            case _:
                keys = demand or everything
        below = self.build(node.input, keys)
        if isinstance(node.spec, bound.RangeSpec) and not self._keeps_order:
            if below.partitioning.mode != "free":
                return self._made_window(node, self._local(below), below.partitioning)
            if demand == ONE_BUCKET:
                return self._made_window(node, self._to_single(below), SINGLE, "its reader runs in one bucket")
        routed, partitioning = self._to_keys(below, keys)
        return self._made_window(node, routed, partitioning)

    def _window_in_order(self, node: bound.Window) -> Built:
        """Build a window that counts elements of a derived stream in the order of its source.

        Buckets know nothing of each other's elements, so all of it runs in one.
        """
        outer, self._keeps_order = self._keeps_order, True
        below = self.build(node.input, ONE_BUCKET)
        self._keeps_order = outer
        reason = "elements of one instant are counted in the order of their source"
        return self._made_window(node, self._to_single(below), SINGLE, reason)

    def _made_window(
        self, node: bound.Window, routed: op.InputEdge, partitioning: Partitioning, reason: str | None = None
    ) -> Built:
        made = self._add(
            op.SeqWindow,
            [routed],
            self.operators[routed.operator].columns,
            False,
            reason=reason,
            window=node.spec,
            time=node.time,
            order="source" if in_source_order(node.input) else "value",
        )
        return Built(made, partitioning)

    # Joins

    def _keyed_join(self, node: KeyedJoin, demand: Demand) -> Built:
        keys = (node.left_keys, node.right_keys)
        wanted = keys_wanted(keys, split_demand(node, demand))
        lower = self._joined_inputs((node.left, node.right), keys, wanted)
        kind = op.join_type(node.kind)
        more: dict[str, Any] = {} if kind is not op.BinaryJoin else {"join": node.kind.value}
        width = len(node.left.schema)

        def visible(at: int) -> frozenset[Expr]:
            left = [node.left_keys[at]] if node.kind not in (JoinType.RIGHT, JoinType.FULL) else []
            right = [shifted(node.right_keys[at], width)] if node.kind in (JoinType.INNER, JoinType.RIGHT) else []
            return frozenset((*left, *right))

        return self._joined(
            kind,
            lower,
            keys,
            wanted,
            _renamed(_side_by_side(lower), node) if kind is op.BinaryJoin else list(lower[0].operator.columns),
            visible,
            left_keys=node.left_keys,
            right_keys=node.right_keys,
            residual=node.residual,
            **more,
        )

    def _multi_join(self, node: MultiJoin, demand: Demand) -> Built:
        wanted = list(range(len(node.keys[0])))
        lower = self._joined_inputs(node.relations, node.keys, wanted)
        starts = [sum(len(rel.schema) for rel in node.relations[:at]) for at in range(len(node.relations))]

        def visible(at: int) -> frozenset[Expr]:
            return frozenset(shifted(keys[at], start) for keys, start in zip(node.keys, starts, strict=True))

        described = _renamed(_side_by_side(lower), node)
        return self._joined(
            op.MJoin, lower, node.keys, wanted, described, visible, keys=node.keys, residual=node.residual
        )

    def _stream_join(self, node: StreamJoin, demand: Demand) -> Built:
        keys = (node.left_keys, node.right_keys)
        wanted = list(range(len(node.left_keys)))
        lower = self._joined_inputs((node.stream, node.relation), keys, wanted)
        width = len(node.stream.schema)
        return self._joined(
            op.StreamJoin,
            lower,
            keys,
            wanted,
            _side_by_side(lower),
            lambda at: frozenset({node.left_keys[at], shifted(node.right_keys[at], width)}),
            is_stream=True,
            left_keys=node.left_keys,
            right_keys=node.right_keys,
            residual=node.residual,
        )

    def _joined(
        self,
        kind: type[op.Operator],
        lower: Sequence[Built],
        keys_of: Sequence[tuple[Expr, ...]],
        wanted: Sequence[int],
        described: list[op.OutputColumn],
        visible: Callable[[int], frozenset[Expr]],
        *,
        is_stream: bool = False,
        **more: Any,
    ) -> Built:
        """Add an operator whose inputs meet by their keys; `visible` is what has the values of a key in its output."""
        routed, order, reason = self._aligned(lower, keys_of, wanted)
        made = self._add(kind, routed, described, is_stream, reason=reason, **more)
        if order is None:
            return Built(made, SINGLE)
        return Built(made, Partitioning("hash", tuple(visible(at) for at in order)))

    def _joined_inputs(
        self, relations: Sequence[Rel], keys: Sequence[tuple[Expr, ...]], wanted: Sequence[int]
    ) -> list[Built]:
        """Build inputs that have to meet: by their keys, or in one bucket if one of them must be there."""
        together = not keys[0] or any(runs_in_one_bucket(rel) for rel in relations)
        return [
            self.build(rel, ONE_BUCKET if together else tuple(own[at] for at in wanted))
            for rel, own in zip(relations, keys, strict=True)
        ]

    def _aligned(
        self, lower: Sequence[Built], keys: Sequence[tuple[Expr, ...]], wanted: Sequence[int]
    ) -> tuple[list[op.InputEdge], list[int] | None, str | None]:
        """Route inputs so that equal keys meet; return the order of keys used, None for one bucket."""
        if not self.spread:
            return [self._to_single(b) for b in lower], None, NOT_SPREAD
        reasons = [built.operator.reason for built in lower if built.partitioning.mode == "single"]
        if not keys[0] or reasons:
            reason = reasons[0] if keys[0] else NO_KEYS
            return self._levelled(lower, [self._to_single(b) for b in lower], None), None, reason
        orders = (key_order(built.partitioning, own) for built, own in zip(lower, keys, strict=True))
        order = next(filter(None, orders), list(wanted))
        chosen = [tuple(own[at] for at in order) for own in keys]
        routed = [
            self._local(built) if key_order(built.partitioning, own) == order else self._sent(built, "hash", used)
            for built, own, used in zip(lower, keys, chosen, strict=True)
        ]
        return self._levelled(lower, routed, chosen), order, None

    def _levelled(
        self, lower: Sequence[Built], routed: Sequence[op.InputEdge], keys: Sequence[tuple[Expr, ...]] | None
    ) -> list[op.InputEdge]:
        """Return inputs that all arrive at one level: what is ready at an earlier one is sent on."""
        level = max(_arrival_level(edge, built.operator) for edge, built in zip(routed, lower, strict=True))
        return [
            edge
            if _arrival_level(edge, built.operator) == level
            else self._sent(built, "single" if keys is None else "hash", () if keys is None else keys[at])
            for at, (edge, built) in enumerate(zip(routed, lower, strict=True))
        ]

    # Operators with keys

    def _aggregate(self, node: bound.Aggregate, demand: Demand) -> Built:
        described = _columns_of_groups(node)
        more: dict[str, Any] = {
            "keys": node.keys,
            "calls": node.calls,
            "empty_row": bound.EmptyRow.NEVER if node.keys else node.empty_row,
            "seen": () if node.keys else _sources(self, node),
            "begins": self._begins() if not node.keys and node.empty_row is bound.EmptyRow.ALWAYS else (),
        }
        if not node.keys:
            below = self.build(node.input, ONE_BUCKET)
            made = self._add(op.Aggregate, [self._to_single(below)], described, False, reason=OVER_ALL, **more)
            return Built(made, SINGLE)
        groups = columns(node)[: len(node.keys)]
        chosen = [at for at, group in enumerate(groups) if demand and group in demand] or list(range(len(groups)))
        keys = tuple(node.keys[at] for at in chosen)
        below = self.build(node.input, keys)
        routed, partitioning = self._to_keys(below, node.keys, keys)
        made = self._add(op.Aggregate, [routed], described, False, **more)
        visible = tuple(
            frozenset(groups[at] for at, key in enumerate(node.keys) if key in position)
            for position in partitioning.keys
        )
        return Built(made, replace(partitioning, keys=visible))

    def _keyed(self, kind: type[op.Operator], relations: Sequence[Rel], node: Rel, demand: Demand) -> Built:
        """Operators that bring equal rows together: any of the columns can be the keys."""
        everything = columns(node)
        chosen = [at for at, c in enumerate(everything) if demand and c in demand] or list(range(len(everything)))
        keys = [tuple(columns(rel)[at] for at in range(len(everything))) for rel in relations]
        lower = self._joined_inputs(relations, keys, chosen)
        if len(lower) == 1:
            routed, partitioning = self._to_keys(lower[0], keys[0], tuple(keys[0][at] for at in chosen))
            made = self._add(kind, [routed], lower[0].operator.columns, False)
            return Built(made, partitioning)
        described = list(lower[0].operator.columns)
        return self._joined(kind, lower, keys, chosen, described, lambda at: frozenset({everything[at]}))

    def _top_n(self, node: bound.TopN | GroupTopN, partition: tuple[int, ...], demand: Demand) -> Built:
        inner = columns(node.input)
        keys = tuple(inner[at] for at in partition)
        keys = tuple(k for k in keys if demand and k in demand) or keys
        below = self.build(node.input, keys)
        number = getattr(node, "number", None)
        described = list(below.operator.columns)
        if number:
            described.append(op.OutputColumn(name=number, type=node.schema[-1].type, nullable=False))
        more: dict[str, Any] = {
            "partition": partition,
            "keys": tuple(op.SortBy.of(key) for key in node.keys),
            "limit": node.limit,
            "numbered": bool(number),
        }
        if not partition:
            reason = "the first rows of all can only be told in one place"
            made = self._add(op.TopN, [self._to_single(below)], described, False, reason=reason, **more)
            return Built(made, SINGLE)
        routed, partitioning = self._to_keys(below, tuple(inner[at] for at in partition), keys)
        return Built(self._add(op.TopN, [routed], described, False, **more), partitioning)

    def _rel_to_stream(self, node: bound.RelToStream, demand: Demand) -> Built:
        everything = columns(node)
        below = self.build(node.input, demand or everything)
        if node.kind is RelToStreamKind.RSTREAM:
            routed, partitioning = self._local(below), below.partitioning
            if partitioning.mode == "free":
                routed, partitioning = self._to_keys(below, everything)
            made = self._add(
                op.RStream,
                [routed],
                below.operator.columns,
                True,
                every_tick=node.every_tick,
                clock=_clock(self, node.input),
            )
            return Built(made, partitioning)
        routed, partitioning = self._to_keys(below, everything)
        kind = op.IStream if node.kind is RelToStreamKind.ISTREAM else op.DStream
        return Built(self._add(kind, [routed], below.operator.columns, True), partitioning)

    # Routing

    def _local(self, built: Built) -> op.InputEdge:
        return op.InputEdge(operator=built.operator.id)

    def _sent(self, built: Built, route: str, keys: tuple[Expr, ...] = ()) -> op.InputEdge:
        return op.InputEdge(operator=built.operator.id, route=route, keys=keys)  # type: ignore[arg-type]

    def _to_single(self, built: Built) -> op.InputEdge:
        return self._local(built) if built.partitioning.mode == "single" else self._sent(built, "single")

    def _to_keys(
        self, built: Built, allowed: tuple[Expr, ...], preferred: tuple[Expr, ...] | None = None
    ) -> tuple[op.InputEdge, Partitioning]:
        """Route an input so that rows that agree on all `allowed` expressions meet."""
        if self._keeps_order or not self.spread or built.partitioning.mode == "single":
            return self._to_single(built), SINGLE
        fits = all(any(key in allowed for key in position) for position in built.partitioning.keys)
        if built.partitioning.mode == "hash" and fits:
            return self._local(built), built.partitioning
        keys = preferred or allowed
        return self._sent(built, "hash", keys), Partitioning("hash", tuple(frozenset({key}) for key in keys))

    def _add(
        self,
        kind: type[op.Operator],
        inputs: Sequence[op.InputEdge],
        described: Sequence[op.OutputColumn],
        is_stream: bool,
        reason: str | None = None,
        **more: Any,
    ) -> op.Operator:
        placement, level = self._placed(inputs)
        if placement == "single" and reason is None:
            reason = next((self.operators[i.operator].reason for i in inputs if i.route == "local"), None)
            reason = reason if self.spread else reason or NOT_SPREAD
        self._count += 1
        made = op.identified(
            kind(
                inputs=tuple(inputs),
                columns=tuple(described),
                is_stream=is_stream,
                placement=placement,
                level=level,
                reason=reason if placement == "single" else None,
                **more,
            ),
            f"{self.salt}:{self._count}:" if self.salt else "",
        )
        return self.operators.setdefault(made.id, made)

    def _placed(self, inputs: Sequence[op.InputEdge]) -> tuple[op.Placement, int]:
        """Return where an operator with these inputs runs, and at what level."""
        below = [(edge, self.operators[edge.operator]) for edge in inputs]
        if all(edge.route == "local" and operator.placement == "source" for edge, operator in below):
            return "source", 0
        edge, operator = below[0]
        level = max(_arrival_level(each, producer) for each, producer in below)
        return operator.placement if edge.route == "local" else edge.route, level


def _arrival_level(edge: op.InputEdge, operator: op.Operator) -> int:
    """Return the level at which an operator's output arrives over an edge."""
    sent_on = edge.route != "local" and operator.placement != "source"
    return operator.level + (1 if sent_on else 0)


def _columns(node: Rel) -> list[op.OutputColumn]:
    return [op.OutputColumn(name=f.name, type=f.type, nullable=f.nullable) for f in node.schema]


def _side_by_side(inputs: Sequence[Built]) -> list[op.OutputColumn]:
    return [column for built in inputs for column in built.operator.columns]


def _columns_of_groups(node: bound.Aggregate) -> list[op.OutputColumn]:
    """Return the columns of an aggregate: its keys, then its calls."""
    names = [f.name for f in node.input.schema]
    keys = [op.OutputColumn(name=expression_text(k, names), type=k.type, nullable=k.nullable) for k in node.keys]
    calls = [op.OutputColumn(name=aggregate_text(c, names), type=c.type, nullable=c.nullable) for c in node.calls]
    return keys + calls


def _renamed(given: Sequence[op.OutputColumn], node: Rel) -> list[op.OutputColumn]:
    """Return columns under their own names with the nullability that a join gives them."""
    return [
        column if column.nullable == f.nullable else column.model_copy(update={"nullable": f.nullable})
        for column, f in zip(given, node.schema, strict=True)
    ]


def _sources(builder: PlanBuilder, node: Rel) -> tuple[str, ...]:
    return tuple(dict.fromkeys(builder._source(scan).operator.id for scan in bound.scans(node)))


def _clock(builder: PlanBuilder, node: Rel) -> tuple[op.Tick, ...]:
    """Return what makes an Rstream over a relation speak."""
    if isinstance(node, bound.StreamScan | bound.RelationScan):
        if node.domain is None:
            return ()
        return (op.Tick(source=builder._source(node).operator.id),)
    if isinstance(node, bound.Window) and isinstance(node.spec, bound.RangeSpec) and node.spec.slide:
        return tuple(op.Tick(source=source, slide=node.spec.slide) for source in _sources(builder, node.input))
    ticks = [tick for below in bound.direct_inputs(node) for tick in _clock(builder, below)]
    return tuple(dict.fromkeys(ticks))
