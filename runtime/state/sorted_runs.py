"""Sorted runs: the rows that groups hold, kept so that the first ones of a group are at hand.

A row is a group, a key and a lifetime with a weight; how often a key is there at an instant is the sum of the weights
of its rows. Arrivals are appended as runs sorted by group, key and end, and neighbouring runs of similar size are
merged, so that a row is moved a logarithmic number of times. Nothing is searched for when a row is taken back: the
row that does so is another row with the same key, and the two cancel when they meet, in a merge or at the front.

The law behind `front`: keys that are there during the whole of a stretch of time are enough to know the first rows
of a group at each of its instants as soon as there are `limit` of them, whatever comes behind them. So a group is
read from its front only as far as something changed there. What is found to have cancelled is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from runtime.columns.batch import BEGINNING, FOREVER, Ints, Mask
from runtime.columns.row_codes import changes, expand_ranges
from runtime.columns.sort_codes import (
    Code,
    comparable,
    concat_codes,
    distinct_from_previous,
    lower_bound,
    order_of,
    packed,
    same_rows,
    take_code,
)
from runtime.state.chunks import Chunks, Delta
from runtime.state.future_changes import Agenda

_FIRST_LOOK = 3
_LOOK_GROWTH = 4
_FEWEST_PASSED = 4096
_FEWEST_IN_A_STEP = 8192
_SAMPLE = 16


class CodedRows(NamedTuple):
    """Rows of codes, those of the group first, with lifetimes and weights."""

    codes: tuple[Code, ...]
    start: Ints
    end: Ints
    weight: Ints

    def take(self, positions: Ints) -> CodedRows:
        """Return some of the rows."""
        codes = tuple(take_code(code, positions) for code in self.codes)
        return CodedRows(codes, self.start[positions], self.end[positions], self.weight[positions])


class FrontRows(NamedTuple):
    """The rows that decide what is first in some groups, which are numbered.

    `rank` numbers the keys of a group in their order, `codes` are those of the keys. A row with `kept` was there
    before all instants that are looked at, and its start means nothing.
    """

    group: Ints
    rank: Ints
    codes: tuple[Code, ...]
    kept: Mask
    start: Ints
    end: Ints
    weight: Ints


@dataclass(slots=True, eq=False)
class SortedRun:
    """Rows sorted by group, key and, the latest first, end; and where in it the groups are.

    `live` are the weights without those of rows that cancel each other, also in other runs; rows of a group before
    its `head` have none, or have expired. `begins` is where rows differ in more than start and weight from the one
    before; None if all do.
    """

    rows: CodedRows
    live: Ints
    group_start: Ints
    groups: tuple[Code, ...]
    begins: Mask | None = None
    chunk: int | None = None
    head: Ints = field(init=False)
    stop: Ints = field(init=False)
    last_end: int = field(init=False)
    _by_end: Ints | None = field(init=False, default=None)
    _ended: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.head = self.group_start.copy()
        self.stop = np.append(self.group_start[1:], len(self))
        self.last_end = int(self.rows.end.max(initial=BEGINNING))

    def __len__(self) -> int:
        return len(self.live)

    @property
    def group(self) -> Ints:
        """The place of each row's group."""
        return np.repeat(np.arange(len(self.group_start)), self.stop - self.group_start)

    def find(self, groups: Sequence[Code]) -> Ints:
        """Return the places of groups, -1 for those that it has no rows of."""
        if not len(self.group_start):
            return np.full(len(groups[0]), -1)
        place = np.minimum(lower_bound(self.groups, groups), len(self.group_start) - 1)
        return np.where(same_rows([take_code(code, place) for code in self.groups], groups), place, -1)

    def take_ending(self, until: int) -> tuple[Code, ...]:
        """Return the groups of rows that end before a heartbeat and have not been asked for, in any order."""
        if self._by_end is None:
            self._by_end = np.argsort(self.rows.end, kind="stable")
        first = self._ended
        self._ended = int(np.searchsorted(self.rows.end, until, sorter=self._by_end))
        ending = self._by_end[first : self._ended]
        places = np.unique(np.searchsorted(self.group_start, ending, side="right") - 1)
        return tuple(take_code(code, places) for code in self.groups)


class _Look(NamedTuple):
    """A stretch of a run at the front of each of some groups, and which of these are cut short by it."""

    run: SortedRun
    place: Ints
    first: Ints
    is_cut: Mask
    owner: Ints
    position: Ints


class _ScannedRows(NamedTuple):
    """Rows that were looked at, sorted by owner, key and end, `order` being where they were before and `codes` are.

    `key` numbers the keys, and each begins where `begins` says. Of keys from an owner's `horizon` on there may be
    more rows that were not looked at.
    """

    order: Ints
    owner: Ints
    begins: Mask
    key: Ints
    codes: tuple[Code, ...]
    kept: Mask
    start: Ints
    end: Ints
    weight: Ints
    horizon: Ints


class SortedRuns:
    """The rows of groups. The first `width` columns of codes make a group, the others a key.

    With `prunes`, rows with a known end are never taken back and only the first key of a group matters: then a row is
    given up as soon as a row of a key that is not larger stays at least as long.
    """

    def __init__(self, width: int, backwards: Sequence[bool], limit: int, prunes: bool = False) -> None:
        self.since = BEGINNING
        self._width = width
        self._backwards = tuple(backwards)
        self._limit = limit
        self._prunes = prunes
        self._runs: list[SortedRun] = []
        self._agenda = Agenda()
        self._chunks = Chunks()
        self._clock = Chunks()
        self._passed = 0

    def __len__(self) -> int:
        """How many rows are kept, those that wait for their start not counted."""
        return sum(map(len, self._runs))

    @property
    def nbytes(self) -> int:
        marks = sum(run.live.nbytes + run.head.nbytes + run.stop.nbytes for run in self._runs)
        return self._chunks.nbytes + self._agenda.nbytes + marks

    # A step in time: arrivals, what is first, and what stays

    def steps(self, rows: CodedRows, until: int) -> Iterator[tuple[CodedRows, int]]:
        """Yield the rows that arrive and a heartbeat, for one or several steps to the given heartbeat.

        In a step that is longer than most rows live nothing lasts, and all rows decide what is first. Steps in which
        about half of the rows that are there stay are much cheaper.
        """
        cuts = self._cuts(rows, until)
        if not len(cuts):
            yield rows, until
            return
        step = np.where(rows.start < until, np.searchsorted(cuts, rows.start, side="right"), len(cuts))
        for at, cut in enumerate([*cuts.tolist(), until]):
            yield rows.take(np.flatnonzero(step == at)), cut

    def _cuts(self, rows: CodedRows, until: int) -> Ints:
        """Return the heartbeats between the steps, sorted."""
        sample = np.arange(0, len(rows.start), _SAMPLE)
        start, end = rows.start[sample], rows.end[sample]
        present = start < until
        start, end = np.sort(start[present]), np.sort(end[present])
        count = len(start) * _SAMPLE
        if count < 2 * _FEWEST_IN_A_STEP:
            return start[:0]
        middle_end = int(end[len(end) // 2])
        if middle_end < FOREVER:
            life = middle_end - int(start[len(start) // 2])
            lasting = count * life // max(int(start[-1]) - int(start[0]), 1)
        else:
            lasting = len(self)
        steps = count // max(_FEWEST_IN_A_STEP, lasting // 2)
        cuts = np.unique(start[np.arange(1, steps) * len(start) // max(steps, 1)])
        return cuts[cuts > max(self.since, int(start[0]))]

    def arrive(self, rows: CodedRows, until: int) -> SortedRun:
        """Return, sorted, the rows that start before a heartbeat; the others wait for theirs."""
        coming = rows.start >= until
        if coming.any():
            later = rows.take(np.flatnonzero(coming))
            self._agenda.put(later.start, [*map(_array, later.codes), pa.array(later.end), pa.array(later.weight)])
            rows = rows.take(np.flatnonzero(~coming))
        due = self._agenda.take(until)
        if due is not None:
            start, (*codes, end, weight) = due
            rows = _concat([rows, CodedRows(_codes(codes), start, np.asarray(end), np.asarray(weight))])
        return self._sorted(rows, rows.weight)

    def touched(self, arrivals: SortedRun, until: int) -> tuple[Code, ...]:
        """Return the groups of which rows start or end before a heartbeat, sorted."""
        codes = concat_codes([arrivals.groups, *(run.take_ending(until) for run in self._runs)])
        numbers = comparable(codes, self._backwards[: self._width])
        order = order_of(numbers)
        firsts = order[distinct_from_previous([number[order] for number in numbers])]
        return tuple(take_code(code, firsts) for code in codes)

    def front(self, groups: Sequence[Code], arrivals: SortedRun, until: int) -> FrontRows:
        """Return the rows that decide what is first in some groups from the last heartbeat to the next."""
        runs = [*self._runs, arrivals]
        places = [run.find(groups) for run in runs]
        unknown = np.arange(len(groups[0]))
        most = self._limit + _FIRST_LOOK
        parts: list[FrontRows] = []
        while len(unknown) or not parts:
            looks = [_look(run, place[unknown], most) for run, place in zip(runs, places, strict=True)]
            seen = self._see(looks, len(unknown), arrivals)
            self._forget(looks, seen)
            part, known = self._decide(seen, len(unknown), until)
            parts.append(part._replace(group=unknown[part.group]))
            unknown = unknown[~known]
            most *= _LOOK_GROWTH
        return _concat_fronts(parts)

    def keep(self, arrivals: SortedRun, until: int) -> None:
        """Keep what is still there just before a heartbeat, which from now on is the last one."""
        if until > self.since:
            self.since = until
            self._clock.clear()
            self._clock.append(pa.record_batch([pa.array([until])], names=["since"]))
        for run in [run for run in self._runs if run.last_end < until]:
            self._give_up(run)
        self._append(self._staying(arrivals))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._merge(self._runs[-2:])
        if self._runs and self._passed > len(self) + _FEWEST_PASSED:
            self._merge(list(self._runs))
            self._passed = 0

    def _see(self, looks: list[_Look], count: int, arrivals: SortedRun) -> _ScannedRows:
        """Return the rows that were looked at, sorted."""
        owner = np.concatenate([look.owner for look in looks])
        codes = concat_codes(
            [[take_code(c, look.position) for c in look.run.rows.codes[self._width :]] for look in looks]
        )
        end = np.concatenate([look.run.rows.end[look.position] for look in looks])
        numbers = comparable(codes, self._backwards[self._width :])
        order = order_of([owner, *numbers, ~end])
        owner, end = owner[order], end[order]
        begins = distinct_from_previous([owner, *(number[order] for number in numbers)])
        key: Ints = np.cumsum(begins, dtype=np.int64) - 1
        horizon = np.full(count, np.count_nonzero(begins))
        cut = np.concatenate([_is_last(look) for look in looks])[order]
        np.minimum.at(horizon, owner[cut], key[cut])
        weight = np.concatenate([look.run.live[look.position] for look in looks])[order]
        kept = np.repeat([look.run is not arrivals for look in looks], [len(look.owner) for look in looks])[order]
        return _ScannedRows(
            order,
            owner,
            begins,
            key,
            codes,
            kept,
            np.concatenate([look.run.rows.start[look.position] for look in looks])[order],
            end,
            np.where(kept & (end < self.since), 0, weight),
            horizon,
        )

    def _forget(self, looks: list[_Look], seen: _ScannedRows) -> None:
        """Note which of the rows seen have cancelled each other or expired, and where the groups begin now."""
        is_whole = seen.key < seen.horizon[seen.owner]
        gone = np.empty(len(seen.owner), np.bool_)
        gone[seen.order] = seen.kept & ((seen.weight == 0) | (is_whole & _cancels(seen)))
        at = 0
        for look in looks:
            look.run.live[look.position[gone[at : at + len(look.owner)]]] = 0
            at += len(look.owner)
            is_live = look.run.live[look.position] != 0
            head = look.first + np.bincount(look.owner, minlength=len(look.first))
            np.minimum.at(head, look.owner[is_live], look.position[is_live])
            there = look.place >= 0
            look.run.head[look.place[there]] = head[there]
            self._passed += len(is_live) - int(np.count_nonzero(is_live))

    def _decide(self, seen: _ScannedRows, count: int, until: int) -> tuple[FrontRows, Mask]:
        """Return the deciding rows of those groups of which enough was seen, and which groups these are."""
        key_owner = seen.owner[seen.begins]
        first_key = np.searchsorted(key_owner, np.arange(count))
        last_key = np.searchsorted(key_owner, np.arange(count), side="right") - 1
        reached = np.append(0, np.cumsum(_lasting(seen, until)))
        bound = np.searchsorted(reached[1:], reached[first_key] + self._limit)
        is_enough = bound <= last_key
        known = is_enough | (seen.horizon == len(key_owner))
        bound = np.where(is_enough, bound, last_key)
        deciding = np.flatnonzero(known[seen.owner] & (seen.key <= bound[seen.owner]) & (seen.weight != 0))
        group = seen.owner[deciding]
        part = FrontRows(
            group,
            seen.key[deciding] - first_key[group],
            tuple(take_code(code, seen.order[deciding]) for code in seen.codes),
            seen.kept[deciding],
            seen.start[deciding],
            seen.end[deciding],
            seen.weight[deciding],
        )
        return part, known

    # Runs

    def _sorted(self, rows: CodedRows, live: Ints) -> SortedRun:
        numbers = comparable(rows.codes, self._backwards)
        order = order_of([*numbers, ~rows.end])
        numbers = [number[order] for number in numbers]
        rows = rows.take(order)
        run = self._run(rows, live[order], distinct_from_previous(numbers[: self._width]))
        run.begins = distinct_from_previous([*numbers, rows.end])
        return run

    def _run(self, rows: CodedRows, live: Ints, group_begins: Mask) -> SortedRun:
        group_start = np.flatnonzero(group_begins)
        return SortedRun(
            rows, live, group_start, tuple(take_code(code, group_start) for code in rows.codes[: self._width])
        )

    def _staying(self, run: SortedRun) -> SortedRun:
        """Return the rows of a run that are still there, rows that differ in start and weight only made one."""
        assert run.begins is not None, "of rows that are kept all are different"
        staying = np.flatnonzero(run.rows.end >= self.since)
        firsts = np.flatnonzero(changes(np.cumsum(run.begins)[staying]))
        weight, live = run.rows.weight[staying], run.live[staying]
        if len(firsts) < len(staying):
            weight, live = np.add.reduceat(weight, firsts), np.add.reduceat(live, firsts)
        group, end = run.group[staying[firsts]], run.rows.end[staying[firsts]]
        wanted = (weight != 0) | (live != 0)
        if self._prunes:
            wanted &= ~_is_dominated(group, end, weight)
        chosen = np.flatnonzero(wanted)
        rows = run.rows.take(staying[firsts[chosen]])
        rows = rows._replace(start=rows.end, weight=weight[chosen])
        return self._run(rows, live[chosen], changes(group[chosen]))

    def _append(self, run: SortedRun) -> None:
        if not len(run):
            return
        codes = [*map(_array, run.rows.codes), pa.array(run.rows.end), pa.array(run.rows.weight)]
        run.chunk = self._chunks.append(pa.record_batch(codes, names=[f"c{at}" for at in range(len(codes))]))
        self._runs.append(run)

    def _give_up(self, run: SortedRun) -> None:
        self._runs.remove(run)
        if run.chunk is not None:
            self._chunks.drop(run.chunk)

    def _merge(self, runs: list[SortedRun]) -> None:
        """Make one run of the last ones."""
        together = self._sorted(_concat([run.rows for run in runs]), np.concatenate([run.live for run in runs]))
        for run in runs:
            self._give_up(run)
        self._append(self._staying(together))

    # Persistence

    def delta(self) -> Delta:
        """Return what is new and what is gone since the last call."""
        put: dict[str, pa.RecordBatch] = {}
        drop: set[str] = set()
        for prefix, part in (("run", self._chunks), ("agenda", self._agenda), ("clock", self._clock)):
            made = part.delta()
            put |= {f"{prefix}-{name}": chunk for name, chunk in made.put.items()}
            drop |= {f"{prefix}-{name}" for name in made.drop}
        return Delta(put, frozenset(drop))

    def load(self, chunks: Mapping[str, pa.RecordBatch]) -> None:
        """Take over chunks that were written before; there must be nothing yet."""
        parts: dict[str, dict[str, pa.RecordBatch]] = {"run": {}, "agenda": {}, "clock": {}}
        for full_name, chunk in chunks.items():
            prefix, number = full_name.split("-")
            parts[prefix][number] = chunk
        self._clock.load(parts["clock"])
        for chunk in self._clock:
            self.since = chunk.column(0)[0].as_py()
        self._agenda.load(parts["agenda"], self.since)
        self._chunks.load(parts["run"])
        for name, chunk in self._chunks.items():
            *codes, end, weight = _codes(chunk.columns)
            numbers = comparable(codes[: self._width], self._backwards[: self._width])
            rows = CodedRows(tuple(codes), end, end, weight)
            run = self._run(rows, weight.copy(), distinct_from_previous(numbers))
            run.chunk = name
            self._runs.append(run)


def _look(run: SortedRun, place: Ints, most: int) -> _Look:
    """Return up to so many rows of each group, which are given by their places."""
    there = place >= 0
    if not len(run):
        nothing = np.zeros(len(place), np.int64)
        return _Look(run, place, nothing, there, nothing[:0], nothing[:0])
    first = np.where(there, run.head[place], 0)
    left = np.where(there, run.stop[place] - first, 0)
    count = np.minimum(left, most)
    return _Look(run, place, first, left > most, *expand_ranges(first, count))


def _is_last(look: _Look) -> Mask:
    """Return which of the rows looked at have others behind them that were not looked at."""
    return np.logical_and(look.is_cut[look.owner], changes(look.owner[::-1])[::-1])


def _cancels(seen: _ScannedRows) -> Mask:
    """Return for each row whether the weights of the kept rows with its key and end sum up to nothing."""
    starts = np.flatnonzero(seen.begins | changes(seen.end))
    if not len(starts):
        return seen.begins
    is_nothing = np.add.reduceat(np.where(seen.kept, seen.weight, 0), starts) == 0
    return np.repeat(is_nothing, np.diff(np.append(starts, len(seen.end))))


def _lasting(seen: _ScannedRows, until: int) -> Ints:
    """Return how often each key is there at least, at any instant up to a heartbeat; nothing if not all was seen."""
    if not len(seen.key):
        return seen.key
    stays = seen.kept & (seen.end >= until) & (seen.weight > 0)
    sure = np.where(stays, seen.weight, np.minimum(seen.weight, 0))
    is_whole = seen.key < seen.horizon[seen.owner]
    return np.maximum(np.add.reduceat(np.where(is_whole, sure, 0), np.flatnonzero(seen.begins)), 0)


def _is_dominated(group: Ints, end: Ints, weight: Ints) -> Mask:
    """Return which rows, sorted, have a known end and a row before them in the group whose known end is not earlier."""
    known = (end < FOREVER) & (weight > 0)
    if not known.any():
        return known
    place, rest = packed([group, np.where(known, end, end[known].min())])
    if rest:
        _, number = np.unique(end, return_inverse=True)
        place = group * len(end) + number
    longest = np.maximum.accumulate(np.where(known, place, -1))
    return known & (np.append(-1, longest[:-1]) >= place)


def _concat(parts: Sequence[CodedRows]) -> CodedRows:
    codes = concat_codes([part.codes for part in parts])
    start, end, weight = (np.concatenate(arrays) for arrays in zip(*(part[1:] for part in parts), strict=True))
    return CodedRows(codes, start, end, weight)


def _concat_fronts(parts: Sequence[FrontRows]) -> FrontRows:
    if len(parts) == 1:
        return parts[0]
    codes = concat_codes([part.codes for part in parts])
    group, rank, kept, start, end, weight = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("group", "rank", "kept", "start", "end", "weight")
    )
    return FrontRows(group, rank, codes, kept, start, end, weight)


def _array(code: Code) -> pa.Array:
    return pa.array(code) if isinstance(code, np.ndarray) else code


def _codes(columns: Sequence[pa.Array]) -> tuple[Code, ...]:
    return tuple(column if pa.types.is_string(column.type) else np.asarray(column) for column in columns)
