"""Aggregates of users: classes whose instances are the states of groups.

The law: the result is a function of the bag of a group's rows. A class with `remove` follows the changes of the bag:
those of one instant are netted, then what came is added and what went is removed, each in ascending order, so that
nothing is removed that was not added before. Without `remove` the result is made of all rows, in ascending order,
whenever it is asked for after a change. A group that loses all its rows starts anew.

What is kept is a log of rows with their lifetimes, compacted when most of them are gone; states are rebuilt from it.
"""

from __future__ import annotations

import datetime
import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cql.bound import AggregateCall
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, FOREVER, Ints
from runtime.expressions.plain import fit, from_datetime
from runtime.state.cells import Cells
from runtime.state.chunks import Chunks, Delta
from runtime.user_errors import UserFunctionFailed

Row = tuple[Any, ...]
"""Arguments as the user's code sees them, in normal form: there is one NaN, and no -0.0."""

_FEWEST = 1024


class _Change(NamedTuple):
    """A row whose number in a group changes; `number` makes changes of one instant comparable."""

    instant: int
    number: int
    slot: int
    row: Row
    weight: int


@dataclass(slots=True)
class _Group:
    """How often each row is there, the state that was made of them, and the result unless it is outdated."""

    bag: Counter[Row] = field(default_factory=Counter)
    state: Any = None
    value: Any = None
    outdated: bool = True


class UserGroups:
    """One aggregate of a user over groups, which have slots."""

    def __init__(
        self,
        code: type,
        argument_types: Sequence[DataType],
        result_type: DataType,
        name: str | None = None,
        distinct: bool = False,
    ) -> None:
        self._code = code
        self._types = [arrow_type(each) for each in argument_types]
        self._result_type = result_type
        self._name = name or code.__name__
        self._distinct = distinct
        self._removes = callable(getattr(code, "remove", None))
        self._groups: dict[int, _Group] = {}
        self._coming: list[_Change] = []
        self._numbered = 0
        self._log = Chunks()
        self._logged = self._compacted = 0

    @property
    def nbytes(self) -> int:
        return self._log.nbytes

    def apply(
        self, slots: Ints, arguments: Sequence[pa.Array], start: Ints, end: Ints, weight: Ints, cells: Cells
    ) -> pa.Array:
        """Take in rows and return the result right after each cell, NULL where the group has no row."""
        rows = pa.record_batch([*map(pa.array, (slots, start, end, weight)), *arguments], names=self._names())
        if len(rows):
            self._append(rows)
            self._expect(rows)
        due = self._due(cells.until)
        values = []
        for slot, instant in zip(cells.slot.tolist(), cells.instant.tolist(), strict=True):
            self._advance(slot, due.get(slot), instant)
            values.append(self._result(slot))
        for slot, changes in due.items():
            self._advance(slot, changes, cells.until)
        if self._logged > 2 * self._compacted + _FEWEST:
            self._compact()
        return pa.array(values, arrow_type(self._result_type))

    def forget(self, slots: Ints) -> None:
        """Give up groups that have no rows."""
        for slot in slots.tolist():
            self._groups.pop(slot, None)

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        return self._log.delta()

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over chunks that were written before: all that they tell happens again before the next cells."""
        self._log.load(chunks)
        for rows in self._log:
            self._logged += len(rows)
            self._expect(rows)
        self._compacted = self._logged

    # Changes in the order of time

    def _expect(self, rows: pa.RecordBatch) -> None:
        """Note when rows come and go."""
        slots, start, end, weight, *arguments = rows.columns
        given = list(zip(*map(_python_values, arguments), strict=True)) if arguments else [()] * len(rows)
        for slot, row, comes, goes, count in zip(
            slots.to_pylist(), given, start.to_pylist(), end.to_pylist(), weight.to_pylist(), strict=True
        ):
            self._push(comes, slot, row, count)
            if goes != FOREVER:
                self._push(goes, slot, row, -count)

    def _push(self, instant: int, slot: int, row: Row, weight: int) -> None:
        self._numbered += 1
        heapq.heappush(self._coming, _Change(instant, self._numbered, slot, row, weight))

    def _due(self, until: int) -> dict[int, deque[_Change]]:
        """Take the changes before an instant, by slot, in the order of time."""
        due: dict[int, deque[_Change]] = {}
        while self._coming and self._coming[0].instant < until:
            change = heapq.heappop(self._coming)
            due.setdefault(change.slot, deque()).append(change)
        return due

    def _advance(self, slot: int, changes: deque[_Change] | None, instant: int) -> None:
        """Make the changes of a group up to an instant."""
        while changes and changes[0].instant <= instant:
            now = changes[0].instant
            net: Counter[Row] = Counter()
            while changes and changes[0].instant == now:
                change = changes.popleft()
                net[change.row] += change.weight
            self._change(self._groups.setdefault(slot, _Group()), net)

    def _change(self, group: _Group, net: Counter[Row]) -> None:
        steps: list[tuple[Row, int]] = []
        for row in sorted((row for row, by in net.items() if by), key=_order):
            before = group.bag[row]
            after = group.bag[row] = before + net[row]
            assert after >= 0, f"{self._name}: the row {row} is removed but was not there"
            if not after:
                del group.bag[row]
            steps.append((row, self._times(after) - self._times(before)))
        if steps:
            group.outdated = True
            if self._removes:
                self._follow(group, steps)

    def _times(self, count: int) -> int:
        """Return how often a row is added that is there so many times."""
        return min(count, 1) if self._distinct else count

    # What the user's code does

    def _follow(self, group: _Group, steps: Sequence[tuple[Row, int]]) -> None:
        """Bring the state of a group up to date."""
        if not group.bag:
            group.state = None
            return
        if group.state is None:
            group.state = self._called("__init__", self._code)
        self._add_all(group.state, steps)
        for row, by in steps:
            for _ in range(-by):
                self._called("remove", group.state.remove, *row)

    def _add_all(self, state: Any, counts: Iterable[tuple[Row, int]]) -> None:
        for row, count in counts:
            for _ in range(count):
                self._called("add", state.add, *row)

    def _result(self, slot: int) -> Any:
        """Return the result of a group as it is now."""
        group = self._groups.get(slot)
        if group is None or not group.bag:
            return None
        if group.outdated:
            state = group.state if self._removes else self._made_of(group.bag)
            group.value = self._called("result", lambda: self._accepted(state.result()))
            group.outdated = False
        return group.value

    def _made_of(self, bag: Counter[Row]) -> Any:
        state = self._called("__init__", self._code)
        self._add_all(state, ((row, self._times(bag[row])) for row in sorted(bag, key=_order)))
        return state

    def _called(self, method: str, code: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return code(*arguments)
        except Exception as cause:
            raise UserFunctionFailed(f"{self._name}.{method}", arguments, cause) from cause

    def _accepted(self, returned: Any) -> Any:
        """Return a result as a value of its type; raises if it is none."""
        found = returned.item() if isinstance(returned, np.generic) else returned
        if isinstance(found, datetime.datetime):
            found = from_datetime(found)
        elif isinstance(found, bool) and self._result_type.kind is not Kind.BOOLEAN:
            found = int(found)
        fitted = fit(found, self._result_type)
        checked = pa.scalar(fitted, arrow_type(self._result_type)).as_py()
        return _normal(checked) if isinstance(checked, float) else checked

    # The log

    def _names(self) -> list[str]:
        return ["slot", "start", "end", "weight", *(f"a{at}" for at in range(len(self._types)))]

    def _append(self, rows: pa.RecordBatch) -> None:
        self._log.append(rows)
        self._logged += len(rows)

    def _compact(self) -> None:
        """Write the log anew: what is there now, and what is still to come."""
        rows = list(self._remaining())
        self._log.clear()
        self._logged = 0
        if rows:
            slots, start, weight, given = zip(*rows, strict=True)
            end = np.full(len(rows), FOREVER)
            columns = [
                pa.array(values, each) for values, each in zip(zip(*given, strict=True), self._types, strict=True)
            ]
            numbers = [pa.array(each, pa.int64()) for each in (slots, start, end, weight)]
            self._append(pa.record_batch([*numbers, *columns], names=self._names()))
        self._compacted = self._logged

    def _remaining(self) -> Iterator[tuple[int, int, int, Row]]:
        for slot, group in self._groups.items():
            for row, count in group.bag.items():
                yield slot, BEGINNING, count, row
        for change in sorted(self._coming):
            yield change.slot, change.instant, change.weight, change.row


def user_call(call: AggregateCall, code: type) -> UserGroups:
    """Return what computes an aggregate of a user; FILTER and the arguments are not its concern."""
    types = [argument.type for argument in call.arguments]
    return UserGroups(code, types, call.type, call.function, call.distinct)


def _python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as user code sees them: TIMESTAMPs are naive datetimes, INTERVALs integers."""
    if pa.types.is_duration(column.type):
        column = column.view(pa.int64())
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if x is None else _normal(x) for x in values]
    return values


def _normal(x: float) -> float:
    return math.nan if math.isnan(x) else x + 0.0


def _order(row: Row) -> list[tuple[int, Any]]:
    """Return what rows sort by: NULL first, NaN last."""
    return [(0, 0) if x is None else (2, 0) if x is math.nan else (1, x) for x in row]
