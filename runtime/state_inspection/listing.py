"""What the state of a network holds, for people: a list of its parts, and the rows of each under names of columns.

The state is that of buckets, as their workers saved it (`runtime/network/worker_state.py`); where it was kept is not
known here. Stores and what operators keep are shown as they are kept; a synopsis is a view of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cql.intervals import TimeDomain
from planner import operators as op
from planner.plan import Plan
from planner.state import Synopsis
from runtime.columns.batch import BEGINNING, FOREVER, Ints
from runtime.network.layout import NetworkLayout
from runtime.state_inspection.decoding import LANE, OURS, Bucket, together
from runtime.state_inspection.descriptions import Meaning, meaning_of, synopsis_meaning
from runtime.state_inspection.synopsis_views import view, views

Named = tuple[str, pa.Array]

_TIMES = ("instant", "start", "end")
_ORDER = ("store", "operator", "waiting", "held")


@dataclass(frozen=True, slots=True)
class Line:
    """A part of the state: what it is, who uses it, and how much it is. A synopsis has no chunks of its own."""

    id: str
    kind: str
    rows: int
    bytes: int | None
    chunks: int | None
    buckets: int
    queries: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    """How far a source is: its first and last instant so far, the one before which it is complete, what was read.

    An instant that is not known yet is None, and so is how many rows came too late if there is no plan.
    """

    id: str
    table: str
    first: int | None
    last: int | None
    until: int | None
    read: int
    skipped: int
    late: int | None
    status: str


@dataclass(slots=True)
class _StateRows:
    """Some rows in parts: columns of ours, values and lanes, with names; `slots` are those of groups."""

    count: int
    ours: list[Named]
    values: list[Named]
    lanes: list[Named]
    slots: Ints


class StateListing:
    """The state of a network on one clock; without a plan, ids are all that is known of it."""

    def __init__(self, plan: Plan | None, partitions: int, time: TimeDomain | None, buckets: Sequence[Bucket]) -> None:
        self.time = time
        self._layout = None if plan is None else NetworkLayout(plan, partitions)
        self._synopses = {} if plan is None else {each.id: each for each in plan.synopses}
        self._views = {} if plan is None else views(plan)
        self._buckets = sorted(buckets, key=lambda bucket: bucket.place)

    # What there is

    def lines(self) -> list[Line]:
        """Return all parts of the state, in the order of their ids."""
        return [
            self._view_line(self._synopses[name]) if name in self._views else self._line(name) for name in self.ids()
        ]

    def ids(self) -> list[str]:
        """Return the ids of all parts, each with those of the synopses that are views of it."""
        kept = {holding for bucket in self._buckets for holding in (*bucket.holdings, *bucket.position["stores"])}
        in_order = sorted(kept, key=lambda each: (_ORDER.index(each.partition("/")[0]), each))
        by_holding = {each: [name for name, of in self._views.items() if of == each] for each in in_order}
        return [name for holding, names in by_holding.items() for name in (holding, *names)]

    def _line(self, holding: str) -> Line:
        meaning = meaning_of(self._layout, holding)
        there = [bucket for bucket in self._buckets if holding in bucket.holdings]
        found = [bucket.holdings[holding] for bucket in there]
        return Line(
            holding,
            meaning.kind,
            sum(len(bucket.table(holding)) for bucket in there),
            sum(each.nbytes for each in found),
            sum(len(each.chunks) for each in found),
            len(there),
            meaning.queries,
            meaning.what,
        )

    def _view_line(self, synopsis: Synopsis) -> Line:
        assert self._layout is not None, "synopses are those of a plan"
        meaning = synopsis_meaning(self._layout.plan, synopsis)
        seen = [found for bucket in self._buckets if (found := view(self._layout, bucket, synopsis)) is not None]
        count = sum(len(each.places) for each in seen)
        return Line(synopsis.id, meaning.kind, count, None, None, len(seen), meaning.queries, meaning.what)

    def sources(self) -> list[SourceLine]:
        """Return how far each source is."""
        known = sorted({source for bucket in self._buckets for source in bucket.position["clock"]})
        return [self._source_line(source) for source in known]

    def _source_line(self, source: str) -> SourceLine:
        times = [known for bucket in self._buckets if (known := bucket.position["clock"].get(source)) is not None]
        workers = [bucket.position["worker"] for bucket in self._buckets]
        node = None if self._layout is None else self._layout.plan.by_id.get(source)
        until, first, last, ended, _, idle, _ = zip(*times, strict=True)
        return SourceLine(
            source,
            node.table if isinstance(node, op.Source) else "",
            min((each for each in first if each is not None), default=None),
            max((each for each in last if each is not None), default=None),
            max(until) if max(until) > BEGINNING else None,
            max(worker["read"].get(source, 0) for worker in workers),
            max(worker["skipped"].get(source, 0) for worker in workers),
            self._late(source, workers),
            "ended" if any(ended) else "idle" if any(idle) else "open",
        )

    def _late(self, source: str, workers: Sequence[Mapping[str, Any]]) -> int | None:
        """Return how many rows of a source came too late: where it was read, and on the edge where most did."""
        if self._layout is None:
            return None
        edges = {edge.key for edge in self._layout.edges if edge.source == source}
        read_late = max((worker["read_late"].get(source, 0) for worker in workers), default=0)
        return read_late + max((sum(worker["late"].get(edge, 0) for worker in workers) for edge in edges), default=0)

    # Rows

    def rows(self, part: str) -> pa.Table:
        """Return the rows of a part of the state: bucket, lifetimes and weights, values, lanes."""
        of = self._views.get(part, part)
        made = [
            (bucket, self._view_rows(bucket, part) if part in self._views else self._rows(bucket, part))
            for bucket in self._buckets
            if of in bucket.holdings
        ]
        return together([_table(bucket.place, rows, self.time) for bucket, rows in made if rows is not None])

    def _view_rows(self, bucket: Bucket, name: str) -> _StateRows | None:
        assert self._layout is not None, "synopses are those of a plan"
        seen = view(self._layout, bucket, self._synopses[name])
        if seen is None:
            return None
        kept, places = self._rows(bucket, self._views[name]), pa.array(seen.places)
        ours = [("start", pa.array(seen.start)), ("end", pa.array(seen.end))]
        ours += [(own, column.take(places)) for own, column in kept.ours if own == "weight"]
        return _StateRows(
            len(places), ours, [(value, column.take(places)) for value, column in kept.values], [], seen.places[:0]
        )

    def _rows(self, bucket: Bucket, holding: str) -> _StateRows:
        """Return what a bucket holds, with the keys of groups in the place of their slots."""
        meaning, table = meaning_of(self._layout, holding), bucket.table(holding)
        made = _split(table, meaning, shows_slots=self._layout is None)
        if meaning.groups is None or meaning.groups not in bucket.holdings or not made.values:
            return _named(made, meaning)
        groups, of_groups = self._rows(bucket, meaning.groups), meaning_of(self._layout, meaning.groups)
        _, slots = made.values.pop(0)
        if not meaning.values:
            lanes = (name for name in bucket.table(meaning.groups).schema.names if name.startswith(LANE))
            changes = zip(lanes, (column for _, column in made.values), strict=False)
            made.lanes, made.values = _lanes(changes, of_groups), []
        made = _named(made, meaning)
        made.values[:0] = _keys(groups, of_groups.keys, np.asarray(slots))
        return made


def _split(table: pa.Table, meaning: Meaning, shows_slots: bool) -> _StateRows:
    """Return the columns of a table in parts, values decoded. A slot that rows refer to is their first value."""
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    lanes = [(name, column) for name, column in columns.items() if name.startswith(LANE)]
    values = [(name, column) for name, column in columns.items() if name not in OURS and not name.startswith(LANE)]
    if not shows_slots and "slot" in columns and "start" in columns:
        values.insert(0, ("slot", columns["slot"]))
    if meaning.decode is not None and values:
        first = 1 if meaning.groups else 0
        decoded = meaning.decode([column for _, column in values[first:]])
        values[first:] = [(f"c{at}", column) for at, column in enumerate(decoded)]
    ours = [(name, columns[name]) for name in OURS if name in columns and (name != "slot" or shows_slots)]
    slots = np.asarray(columns["slot"]) if "slot" in columns else np.empty(0, np.int64)
    return _StateRows(len(table), ours, values, _lanes(lanes, meaning), slots)


def _lanes(lanes: Iterable[Named], meaning: Meaning) -> list[Named]:
    named = ((meaning.lane_name(name.removeprefix(LANE)), column) for name, column in lanes)
    return [(name, column) for name, column in named if name is not None]


def _named(rows: _StateRows, meaning: Meaning) -> _StateRows:
    """Return rows with the names of their values; where there is one more than that, the first is a weight."""
    if meaning.values and len(rows.values) == len(meaning.values) + 1:
        rows.ours.append(("weight", rows.values.pop(0)[1]))
    if len(rows.values) == len(meaning.values):
        rows.values = [(name, column) for name, (_, column) in zip(meaning.values, rows.values, strict=True)]
    return rows


def _keys(groups: _StateRows, count: int, slots: Ints) -> list[Named]:
    """Return the keys of the groups with some slots; NULLs for slots of no group."""
    at = np.searchsorted(groups.slots, slots)
    is_there = np.append(groups.slots, -1)[at] == slots
    places = pa.array(at, mask=~is_there)
    return [(name, column.take(places)) for name, column in groups.values[:count]]


def _table(place: str, rows: _StateRows, time: TimeDomain | None) -> pa.Table:
    """Return rows as a table in which every column has a name of its own; a name of ours gives way to a value's."""
    values = [name.casefold() for name, _ in rows.values]
    ours = [
        ("bucket", pa.repeat(place, rows.count)),
        *((name, _readable(name, each, time)) for name, each in rows.ours),
    ]
    names: list[str] = []
    for name, _ in ours:
        names.append(_free(name, "_{}", [*values, *names]))
    for name, _ in (*rows.values, *rows.lanes):
        names.append(_free(name, "{}_", names))
    return pa.table([column for _, column in (*ours, *rows.values, *rows.lanes)], names=names)


def _free(name: str, other: str, taken: Sequence[str]) -> str:
    lower = {each.casefold() for each in taken}
    while name.casefold() in lower:
        name = other.format(name)
    return name


def _readable(name: str, column: pa.Array, time: TimeDomain | None) -> pa.Array:
    """Return instants as values of their clock, NULL for those before and after all; any other column as it is."""
    if name not in _TIMES:
        return column
    return readable_instants([None if at in (BEGINNING, FOREVER) else at for at in column.to_pylist()], time)


def readable_instants(instants: Sequence[int | None], time: TimeDomain | None) -> pa.Array:
    """Return instants as values of their clock."""
    known = pa.array(instants, pa.int64())
    return known.view(pa.timestamp("us")) if time is TimeDomain.TIMESTAMP else known
