"""Aggregation: one row for each group, kept up to date over time.

Sums and counts are lanes of the group (`runtime/exact_sums/lanes.py`), maintained together; DISTINCT arguments go
through counts of their own first; extremes and aggregates of users look at the values themselves. At every cell, a
group and an instant at which it may change, the new row is compared with the one before it, and only differences go
out: a row from the instant on at which it becomes true until the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cql.bound import AggregateCall, EmptyRow
from cql.bound.text import aggregate_text, expression_text
from planner import operators as op
from runtime.aggregates.calls import CallRows, CompiledCall
from runtime.aggregates.extremes import EXTREMES, ExtremeCall, extreme_call
from runtime.aggregates.user import UserGroups, user_call
from runtime.columns.batch import (
    BEGINNING,
    FOREVER,
    ChangeBatch,
    Columns,
    Ints,
    Mask,
    concat_columns,
    empty_batch,
    take,
)
from runtime.columns.row_codes import changes, equal_rows, valid_rows
from runtime.exact_sums.lanes import LINEAR, LinearCall, linear_call
from runtime.operators.base import Context, Operator, evaluate_all
from runtime.operators.counted import FIRST, CountedRows, once
from runtime.operators.registry import implements
from runtime.operators.state_words import Decode, InputColumns, StatePiece, codes, counted_piece, words_of
from runtime.state.cells import Cells
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.future_changes import Agenda
from runtime.state.group_sums import Lanes, Sums, TimedGroups

ROWS = "rows"
_COUNTING = ("count", "approx_count_distinct")


class _Sum(CompiledCall):
    """An aggregate that is a function of sums."""

    def __init__(self, at: int, call: AggregateCall, functions: Mapping[str, Any]) -> None:
        super().__init__(call, functions)
        self._linear: LinearCall = linear_call(call)
        self._prefix = f"{at}."

    def lanes(self, part: CallRows) -> Lanes:
        """Return what rows add to the sums of their groups."""
        return self.named(self._linear.lanes(part.arguments, len(part.slots)))

    def named(self, lanes: Lanes) -> Lanes:
        """Return lanes under the names that they have among those of all calls."""
        return {self._prefix + key: lane for key, lane in lanes.items()}

    def result(self, sums: Sums) -> pa.Array:
        """Return the value after each cell."""
        own = {key.removeprefix(self._prefix): lane for key, lane in sums.after.items() if key.startswith(self._prefix)}
        return self._linear.result(own, len(sums.first))


class _DistinctSum(_Sum):
    """A sum over the different values of a group: what counts is whether a value is there."""

    def __init__(
        self, at: int, call: AggregateCall, functions: Mapping[str, Any], types: Sequence[pa.DataType]
    ) -> None:
        super().__init__(at, replace(call, function="count") if call.function in _COUNTING else call, functions)
        self.values = CountedRows([pa.int64(), *types], once)

    def changes(self, part: CallRows, until: int) -> CallRows:
        """Return the values that come to groups and leave them."""
        valid = valid_rows(part.arguments)
        part = part if valid is None else part.chosen(np.flatnonzero(valid))
        self.values.put(FIRST, (pa.array(part.slots), *part.arguments), part.start, part.end, part.weight)
        made = self.values.advance(until)
        slots, *arguments = made.columns
        return CallRows(np.asarray(slots), tuple(arguments), made.start, made.end, made.weight)


class _Looking(CompiledCall):
    """An aggregate that looks at the values of a group: an extreme, or one that a user wrote."""

    def __init__(self, call: AggregateCall, functions: Mapping[str, Any], final_ends: bool) -> None:
        super().__init__(call, functions)
        self.values: ExtremeCall | UserGroups = (
            user_call(call, functions[call.function]) if call.user_defined else extreme_call(call, final_ends)
        )

    def result(self, part: CallRows, cells: Cells) -> pa.Array:
        """Take in rows and return the value after each cell."""
        count = len(part.slots)
        end = np.full(count, FOREVER) if part.end is None else part.end
        weight = np.ones(count, np.int64) if part.weight is None else part.weight
        return self.values.apply(part.slots, part.arguments, part.start, end, weight, cells)


def _piece(node: op.Aggregate, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of an aggregate is: the groups, or what one of its calls keeps of them."""
    calls = [aggregate_text(call, inputs.names[0]) for call in node.calls]

    def lane_name(lane: str) -> str:
        number, _, of_call = lane.partition(".")
        return f"{calls[int(number)]} {of_call}" if of_call else lane

    if piece == "groups":
        return StatePiece("groups", tuple(op.output_names(node)), len(node.keys), lane_name)
    if piece == "agenda":
        return StatePiece(words_of(piece), (), 0, lane_name, "groups")
    number, _, rest = piece.partition("/")
    what = f"values of {calls[int(number)]}"
    return _values_piece(node, node.calls[int(number)], what, inputs.names[0], piece, bool(rest))


def _values_piece(
    node: op.Aggregate, call: AggregateCall, what: str, names: Sequence[str], piece: str, is_part: bool
) -> StatePiece:
    """Return what the values are that a call remembers."""
    arguments = [expression_text(each, names) for each in call.arguments]
    if call.function in EXTREMES or call.user_defined:
        decode = None if call.user_defined else _arguments_of(call)
        return StatePiece(f"{what} to come" if is_part else what, tuple(arguments), 0, str, "groups", decode)
    counted = counted_piece(piece, arguments)
    keys = len(node.keys) + len(arguments)
    return replace(counted, what=f"{what}, {counted.what}", keys=keys, groups=counted.groups or "groups")


def _arguments_of(call: AggregateCall) -> Decode:
    return lambda columns: extreme_call(call).arguments(codes(columns))


@implements(op.Aggregate, state=_piece)
class Aggregate(Operator):
    """Groups and their rows."""

    node: op.Aggregate

    def __init__(self, node: op.Aggregate, context: Context) -> None:
        super().__init__(node, context)
        self._keys = evaluate_all(node.keys, context.functions)
        width = len(node.keys)
        self._groups = TimedGroups(self.types[:width], self.types[width:])
        self._groups.table.add_lanes([ROWS])
        self._calls = [self._made(at, call) for at, call in enumerate(node.calls)]
        self._row_promised = self._row_shown = False

    def _made(self, at: int, call: AggregateCall) -> _Sum | _Looking:
        functions = self.context.functions
        if call.user_defined or call.function not in (*LINEAR, *_COUNTING):
            return _Looking(call, functions, self.node.inputs[0].operator in self.context.final_ends)
        if call.distinct or call.function == "approx_count_distinct":
            empty = empty_batch(self.input_types[0], 0)
            types = [each.type for each in evaluate_all(call.arguments, functions)(empty.columns, 0)]
            return _DistinctSum(at, call, functions, types)
        return _Sum(at, call, functions)

    @property
    def until(self) -> int:
        """The instant before which it is complete: a row that is always there comes with the first instant of all."""
        return super().until if self.has_begun else BEGINNING

    @property
    def has_begun(self) -> bool:
        """Tell whether it is known since when its row is there, if it always is."""
        return not self.is_always_there or self._empty_row_since() is not None

    @property
    def is_always_there(self) -> bool:
        return self.node.empty_row is EmptyRow.ALWAYS

    @property
    def nbytes(self) -> int:
        values = (call.values.nbytes for call in self._calls if isinstance(call, _DistinctSum | _Looking))
        return self._groups.nbytes + sum(values)

    @property
    def agendas(self) -> Sequence[Agenda]:
        values = [call.values.agenda for call in self._calls if isinstance(call, _DistinctSum)]
        return [self._groups.agenda, *values]

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        slots = self._groups.table.slots(self._keys(batch.columns, len(batch)), len(batch))
        parts = [call.part(slots, batch) for call in self._calls]
        self._put(slots, batch, parts)
        self._promise_row()
        sums = self._groups.advance(self.until)
        results = tuple(
            call.result(sums) if isinstance(call, _Sum) else call.result(part, sums.cells)
            for call, part in zip(self._calls, parts, strict=True)
        )
        if not len(sums.first):
            return empty_batch(self.types, self.until)
        return self._changes(sums, results)

    def _put(self, slots: Ints, batch: ChangeBatch, parts: Sequence[CallRows]) -> None:
        """Note what the rows of a batch add to the sums of their groups, and when."""
        together: Lanes = {ROWS: np.ones(len(batch), np.int64)}
        for call, part in zip(self._calls, parts, strict=True):
            if isinstance(call, _DistinctSum):
                part = call.changes(part, self.until)
            elif not isinstance(call, _Sum):
                continue
            elif len(part.slots) == len(batch):
                together |= call.lanes(part)
                continue
            self._groups.put(part.slots, call.lanes(part), part.start, part.end, part.weight)
        self._groups.put(slots, together, batch.start, batch.end, batch.weight)

    def take_combined(
        self, keys: Columns, rows: Ints, calls: Sequence[Mapping[str, pa.Array]], start: Ints, end: Ints
    ) -> None:
        """Take in rows that were combined on their way (`runtime/aggregates/partial_sums.py`).

        Each stands for so many `rows` with the same keys, start and end, and has what they come to for each call. They
        start at the heartbeat or later.
        """
        slots = self._groups.table.slots(keys, len(rows))
        together: Lanes = {ROWS: rows}
        nothing = np.empty(0, np.int64)
        for call, found in zip(self._calls, calls, strict=True):
            if isinstance(call, _Sum):
                together |= call.named({name: np.asarray(lane).astype(np.int64) for name, lane in found.items()})
            else:
                part = CallRows(slots, tuple(found[str(at)] for at in range(len(found))), start, end, None)
                call.result(part, Cells(nothing, nothing, self.until))
        self._groups.put(slots, together, start, end, None)

    def settle(self) -> None:
        self._groups.settle()

    def _promise_row(self) -> None:
        """See to the row of an ungrouped aggregate that is there without any rows to aggregate."""
        if self._row_promised or self.node.empty_row is EmptyRow.NEVER:
            return
        since = self._empty_row_since()
        if since is not None and since < self.until:
            slot = self._groups.table.slots((), 1)[0]
            self._groups.touch(int(slot), since)
            self._row_promised = True

    def _empty_row_since(self) -> int | None:
        clock = self.context.clock
        if self.is_always_there:
            return clock.beginning(self.node.begins)
        seen = [clock.first_instant(source) for source in self.node.seen]
        return min((instant for instant in seen if instant is not None), default=None)

    def _changes(self, sums: Sums, results: Columns) -> ChangeBatch:
        """Return what changes in the relation of groups, and remember its rows as they are in the end."""
        table, first = self._groups.table, np.flatnonzero(sums.first)
        exists = sums.after[ROWS] > 0
        if self._row_promised:
            exists |= sums.cells.instant >= (self._empty_row_since() or 0)
        old_rows = table.remembered(sums.touched)
        shown_before = np.empty(len(exists), np.bool_)
        shown_before[1:] = exists[:-1]
        shown_before[first] = self._row_shown | (table.lane(ROWS, sums.touched) > 0)
        changed = np.flatnonzero((exists != shown_before) | (exists & ~_like_before(results, sums, old_rows)))

        slot, instant = sums.cells.slot[changed], sums.cells.instant[changed]
        first_change = changes(slot)
        end = np.full(len(changed), FOREVER)
        end[:-1] = np.where(first_change[1:], FOREVER, instant[1:])
        gone = np.flatnonzero(first_change & shown_before[changed])
        come = np.flatnonzero(exists[changed])
        old = np.searchsorted(sums.touched, slot[gone])
        keys = table.keys(np.concatenate([slot[gone], slot[come]]))
        values = concat_columns([take(old_rows, old), take(results, changed[come])])

        self._row_shown = self._row_promised
        self._groups.remember(sums, take(results, sums.last))
        self._forget_groups()
        return ChangeBatch(
            (*keys, *values),
            np.concatenate([instant[gone], instant[come]]),
            np.concatenate([np.full(len(gone), FOREVER), end[come]]),
            np.concatenate([np.full(len(gone), -1), np.ones(len(come), np.int64)]),
            self.until,
        )

    def _forget_groups(self) -> None:
        unused = self._groups.sweep_unused((ROWS,)) if self.node.keys else np.empty(0, np.int64)
        for call in self._calls:
            if isinstance(call, _Looking) and isinstance(call.values, UserGroups):
                call.values.forget(unused)

    def delta(self) -> dict[str, Delta]:
        made = dict(self._groups.delta())
        for at, call in enumerate(self._calls):
            if isinstance(call, _DistinctSum):
                made |= {f"{at}/{name}": delta for name, delta in call.values.delta().items()}
            elif isinstance(call, _Looking):
                made[f"{at}"] = call.values.delta()
        return made

    def load(self, chunks: ChunkSets) -> None:
        self._groups.load(chunks, self.until)
        for at, call in enumerate(self._calls):
            if isinstance(call, _DistinctSum):
                own = {name.removeprefix(f"{at}/"): each for name, each in chunks.items() if name.startswith(f"{at}/")}
                call.values.load(own, self.until)
            elif isinstance(call, _Looking):
                call.values.load(chunks.get(f"{at}", {}))
        since = None if self.node.empty_row is EmptyRow.NEVER else self._empty_row_since()
        self._row_promised = self._row_shown = since is not None and since < self.until


def _like_before(results: Columns, sums: Sums, old_rows: Columns) -> Mask:
    """Return which cells have the row of the cell before them, or of before the batch."""
    count, first = len(sums.first), np.flatnonzero(sums.first)
    like = np.ones(count, np.bool_)
    shifted = [(column.slice(1), column.slice(0, count - 1)) for column in results]
    like[1:] = equal_rows([a for a, _ in shifted], [b for _, b in shifted], count - 1)
    like[first] = equal_rows(take(results, first), old_rows, len(first))
    return like
