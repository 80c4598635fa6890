"""Joins with too little memory: rows whose partners are least likely to come are evicted.

Which pairs are found depends on what is held; each pair that is found is there exactly as long as both of its rows are.
Evictions depend on what is part of the state: how often keys come on either input, learned from what has been seen. So
every bucket decides for itself, and a micro-batch that is repeated evicts the same rows.

Rows are evicted at the end of a micro-batch, if the budget is used up, down to `FULLEST` of it, so that what is held is
not gone through every time. Until then a micro-batch has the memory that it needs. In which order its rows came makes
no difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import BEGINNING, ChangeBatch, Columns, Ints, Mask, concat_columns, take
from runtime.columns.row_codes import expand_ranges, row_codes, valid_rows
from runtime.joins.exact import Exact
from runtime.joins.matcher import Residual
from runtime.joins.probe import Candidates, JoinInput, Matches, Probe, Tactic
from runtime.state.chunks import Chunks, ChunkSets, Delta
from runtime.state.store import KeysOf, Store, StoredEnds
from shedding.budgets import Demand, demand_by_worth
from shedding.eviction import ROW_OVERHEAD, ArrivalRates, Frequencies, Policy, priorities, within_budget

FULLEST = 0.85
"""How much of its budget a join uses after it has evicted rows."""

MOST_MISSED = 2048
"""Of how many evicted rows of an input it is counted which pairs they miss, at most."""

TRACKED = 1024
"""Of how many keys of an input it is known how often they come, at most."""


MOST_TESTED = 4096
"""Of how many of these pairs at once it is tested whether they satisfy what a join asks beside equal keys, at most."""

Satisfying = Callable[[Ints, Columns], Mask]
"""Tells which pairs satisfy what a join asks beside equal keys: rows that come, by their numbers, with missed ones."""


class _Evicted:
    """A sample of the rows that were evicted, by their keys' codes and ends, to count the pairs that they miss.

    Rows that can expect more partners are more likely to be in it, and count for fewer others: what is counted is right
    on average, whatever was expected, and the better that was the less it varies. Columns are there if pairs have to
    satisfy more than equal keys.
    """

    def __init__(self, types: Sequence[pa.DataType] = ()) -> None:
        self.codes, self.ends = np.empty(0, np.int64), np.empty(0, np.int64)
        self.columns: Columns = tuple(pa.array([], each) for each in types)
        self.weights, self.likely = np.empty(0), np.empty(0)
        """How many rows each stands for, and how likely it is to be picked if there are too many."""

    def add(self, codes: Ints, ends: Ints, expected: npt.NDArray[np.float64], columns: Columns) -> None:
        """Remember rows, each with how many partners it could expect, in an order that is always the same."""
        if not len(codes):
            return
        self.columns = concat_columns([self.columns, columns])
        self.codes, self.ends = np.concatenate((self.codes, codes)), np.concatenate((self.ends, ends))
        self.weights = np.concatenate((self.weights, np.ones(len(codes))))
        self.likely = np.concatenate((self.likely, expected + max(float(expected.mean()), 1e-9)))
        if len(self.codes) > MOST_MISSED:
            reached = np.cumsum(self.likely * self.weights)
            step = reached[-1] / (MOST_MISSED // 2)
            self._keep(np.searchsorted(reached, (np.arange(MOST_MISSED // 2) + 0.5) * step))
            self.weights = step / self.likely

    def misses(self, codes: Ints, starts: Ints, satisfying: Satisfying | None) -> float:
        """Return how many pairs rows that come would have made with those that were evicted.

        Whether they satisfy more than equal keys is tested of as many as there is time for, evenly chosen.
        """
        order = np.argsort(self.codes, kind="stable")
        known = self.codes[order]
        first = np.searchsorted(known, codes)
        owner, at = expand_ranges(first, np.searchsorted(known, codes, side="right") - first)
        alive = np.flatnonzero(self.ends[order[at]] > starts[owner])
        owner, found = owner[alive], order[at[alive]]
        weights = self.weights[found]
        total = float(weights.sum())
        if satisfying is None or not total:
            return total
        reached = np.cumsum(weights)
        count = min(len(found), MOST_TESTED)
        chosen = np.searchsorted(reached, (np.arange(count) + 0.5) * reached[-1] / count)
        chosen = np.minimum(chosen, len(found) - 1) if count < len(found) else np.arange(count)
        holds = satisfying(owner[chosen], take(self.columns, found[chosen]))
        return total * float(holds.mean() if count < len(found) else weights[holds].sum() / total)

    def forget_before(self, instant: int) -> None:
        """Forget rows that have ended."""
        self._keep(np.flatnonzero(self.ends > instant))

    def _keep(self, at: Ints) -> None:
        self.codes, self.ends, self.columns = self.codes[at], self.ends[at], take(self.columns, at)
        self.weights, self.likely = self.weights[at], self.likely[at]

    def to_table(self) -> pa.RecordBatch:
        """Return it as state."""
        columns = {"code": self.codes, "end": self.ends, "weight": self.weights, "likely": self.likely}
        arrays = {name: pa.array(each) for name, each in columns.items()}
        return pa.record_batch(arrays | {f"c{at}": each for at, each in enumerate(self.columns)})

    def from_table(self, table: pa.RecordBatch) -> None:
        """Take over state."""
        self.codes, self.ends, self.weights, self.likely = (column.to_numpy() for column in table.columns[:4])
        self.columns = tuple(table.columns[4:])


class _Window:
    """The rows that are held of one input, their keys' codes, and how often keys come on it."""

    def __init__(self, types: Sequence[pa.DataType], keys_of: KeysOf, ticks: int, is_tested: bool) -> None:
        self.keys_of = keys_of
        self.store = Store(types, is_log=False)
        self.input = JoinInput(self.store.stub(StoredEnds()), keys_of, "keys")
        self.codes = np.empty(0, np.int64)
        self.ids = np.empty(0, np.int64)
        """Rows with all that they are, as numbers that are the same for ever."""
        self.sizes = np.empty(0, np.int64)
        """The bytes that each row takes: a function of the row, however it came here."""
        self.ticks = ticks
        """For how many ticks a row can be there."""
        self.frequencies = Frequencies(TRACKED, half_life=float(ticks))
        self.missed, self.kept_missed = _Evicted(types if is_tested else ()), Chunks()
        self.new = 0
        """How many rows have come that nothing was learned from yet."""
        self.latest: int | None = None
        """The latest instant at which a row came."""

    @property
    def nbytes(self) -> int:
        return self.store.nbytes + self.codes.nbytes + self.ids.nbytes + self.sizes.nbytes

    @property
    def row_size(self) -> float:
        """The bytes that a row takes on average."""
        return float(self.sizes.mean()) if len(self.sizes) else float(ROW_OVERHEAD)

    def keyed(self, batch: ChangeBatch) -> tuple[ChangeBatch, Ints]:
        """Return the rows that can match at all, and the codes of their keys."""
        keys = self.keys_of(batch.columns, len(batch))
        valid = valid_rows(keys)
        if valid is not None:
            batch, keys = batch.filter(valid), take(keys, np.flatnonzero(valid))
        return batch, row_codes(keys, len(batch)).codes.view(np.int64)

    def take_in(self, batch: ChangeBatch, codes: Ints) -> None:
        """Hold rows."""
        self.input.stub.take_in(batch)
        self.codes = np.concatenate((self.codes, codes))
        self.ids = np.concatenate((self.ids, _ids(batch.start, batch.columns)))
        self.sizes = np.concatenate((self.sizes, row_sizes(batch.columns, len(batch))))
        self.new += len(batch)

    def learn(self) -> None:
        """Learn from the rows of a micro-batch."""
        if self.new:
            start = self.store.start.values[-self.new :]
            latest = int(start.max())
            before = int(start.min()) - 1 if self.latest is None else self.latest
            self.frequencies.observe(self.codes[-self.new :], float(max(latest - before, 0)))
            self.latest = max(latest, before)
            self.new = 0

    def keep(self, kept: Ints) -> None:
        """Hold some of the rows only."""
        positions = kept + self.store.base
        columns = self.store.rows(positions)
        numbers = [each.at(positions) for each in (self.store.start, self.store.end, self.store.weight)]
        self.store.replace(columns, *numbers)
        self.codes, self.ids, self.sizes = self.codes[kept], self.ids[kept], self.sizes[kept]

    def load(self, chunks: ChunkSets, name: str) -> None:
        rows = chunks.get(name, {})
        self.store.load(rows, sum(len(chunk) for chunk in rows.values()))
        self.input.stub.seen = self.store.length
        self.kept_missed.load(chunks.get(f"{name} missed", {}))
        for table in self.kept_missed:
            self.missed.from_table(table)
        held = self.store.rows_since(self.store.base)
        keys = self.keys_of(held, len(self.store))
        self.sizes = row_sizes(held, len(self.store))
        self.ids = _ids(self.store.start.values, held)
        self.codes = row_codes(keys, len(self.store)).codes.view(np.int64)


@dataclass(frozen=True, slots=True)
class Eviction:
    """By which policy rows are evicted, from inputs in pools, each of which has a budget of bytes at any time."""

    policy: Policy
    seed: int
    pools: Sequence[Sequence[int]]
    budgets: Callable[[], Sequence[int]]


class MemoryLimited(Tactic):
    """An exact join of two inputs by equal keys, whose rows come with their ends, within a number of bytes."""

    def __init__(
        self,
        types: Sequence[Sequence[pa.DataType]],
        keys_of: Sequence[KeysOf],
        windows: tuple[int, int],
        residual: Residual | None,
        eviction: Eviction,
        block_rows: int,
    ) -> None:
        each_input = zip(types, keys_of, windows, strict=True)
        self._windows = [_Window(*each, residual is not None) for each in each_input]
        super().__init__([each.input for each in self._windows])
        self._exact = Exact(self.inputs, block_rows=block_rows)
        self._residual = residual
        self._eviction = eviction
        self._found = 0
        self._lost = 0.0
        """How many pairs were missed, as far as one can tell."""
        self._evictions = 0
        self._learned = Chunks()

    @property
    def nbytes(self) -> int:
        return sum(self.held_bytes)

    @property
    def held_bytes(self) -> list[int]:
        """The bytes that the rows of each input take, with what is known of them."""
        return [each.nbytes for each in self._windows]

    @property
    def demands(self) -> list[Demand]:
        """The bytes that all rows of its windows would take, for each pool, by steps of what they are worth."""
        sides = [self._side(at, each.row_size) for at, each in enumerate(self._windows)]
        policy, pools = self._eviction.policy, self._eviction.pools
        return [demand_by_worth(policy, [sides[at] for at in pool]) for pool in pools]

    def _side(self, at: int, size: float = 1.0) -> ArrivalRates:
        own, partner = self._windows[at], self._windows[1 - at]
        return ArrivalRates.of(own.frequencies, partner.frequencies, float(own.ticks), size)

    @property
    def shed(self) -> list[int]:
        """How many pairs there would have been, as far as one can tell, how many were found, and evicted rows."""
        return [self._found + round(self._lost), self._found, self._evictions]

    def begin(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        batch, self._codes = self._windows[port].keyed(batch)
        return batch

    def candidates(self, probe: Probe) -> Iterator[Candidates]:
        return self._exact.candidates(probe)

    def note(self, found: Matches) -> None:
        self._found += len(found.owner)

    def keep(self, port: int, batch: ChangeBatch, heartbeats: Sequence[int]) -> None:
        """Store new rows; those that have ended are forgotten when the budget is used up."""
        if len(batch):
            self._windows[port].take_in(batch, self._codes)
            missed = self._windows[1 - port].missed
            self._lost += missed.misses(self._codes, batch.start, self._satisfying(port, batch))

    def _satisfying(self, port: int, batch: ChangeBatch) -> Satisfying | None:
        """Return what tells which rows of a batch satisfy more than equal keys with rows of the other input."""
        residual = self._residual
        if residual is None:
            return None

        def satisfying(rows: Ints, others: Columns) -> Mask:
            own = take(batch.columns, rows)
            return residual.holds((*own, *others) if port == 0 else (*others, *own), len(rows))

        return satisfying

    def settle(self, heartbeats: Sequence[int]) -> None:
        """Learn from a micro-batch; then forget rows that have ended, and evict others, if the budget is used up."""
        for at, each in enumerate(self._windows):
            each.learn()
            each.missed.forget_before(heartbeats[1 - at])
        if min(heartbeats) == BEGINNING:
            return
        for pool, budget in zip(self._eviction.pools, self._eviction.budgets(), strict=True):
            if self._taken(pool) > budget:
                self._forget_ended(pool, heartbeats)
            if self._taken(pool) > budget:
                self._evict(pool, budget * FULLEST, heartbeats)

    def _taken(self, pool: Sequence[int]) -> int:
        """Return the bytes that all rows of some inputs take."""
        return sum(int(self._windows[at].sizes.sum()) for at in pool)

    def _forget_ended(self, pool: Sequence[int], heartbeats: Sequence[int]) -> None:
        """Forget the rows of some inputs that have ended."""
        for at in pool:
            each = self._windows[at]
            alive = np.flatnonzero(each.store.end.values > heartbeats[1 - at])
            if len(alive) < len(each.store):
                each.keep(alive)

    def _evict(self, pool: Sequence[int], limit: float, heartbeats: Sequence[int]) -> None:
        """Evict rows of some inputs so that those that stay take no more than some bytes."""
        inputs, rule = [self._windows[at] for at in pool], self._eviction
        worths, ages, sides = [], [], []
        for at, own in zip(pool, inputs, strict=True):
            side = self._side(at)
            age = own.ticks - (own.store.end.values - heartbeats[1 - at])
            worth = priorities(rule.policy, side, own.codes, age, own.ids, rule.seed)
            worths.append(worth / own.sizes)
            ages.append(age)
            sides.append(side)
        order = np.argsort(np.concatenate([each.ids for each in inputs]), kind="stable")
        sizes = np.concatenate([each.sizes for each in inputs])
        stays = np.zeros(len(order), np.bool_)
        stays[order] = within_budget(np.concatenate(worths)[order], np.concatenate(ages)[order], sizes[order], limit)
        parts = np.split(stays, np.cumsum([len(each.ids) for each in inputs])[:-1])
        for own, side, age, kept in zip(inputs, sides, ages, parts, strict=True):
            gone = np.flatnonzero(~kept)
            gone = gone[np.argsort(own.ids[gone], kind="stable")]
            expected = side.expected(own.codes[gone], age[gone])
            columns = own.store.rows(gone + own.store.base) if own.missed.columns else ()
            own.missed.add(own.codes[gone], own.store.end.values[gone], expected, columns)
            self._evictions += len(gone)
            own.keep(np.flatnonzero(kept))

    # Keeping

    def delta(self) -> dict[str, Delta]:
        values = {
            "found": self._found,
            "lost": self._lost,
            "given up": self._evictions,
            "latest": [each.latest for each in self._windows],
            "frequencies": [each.frequencies.values() for each in self._windows],
        }
        self._learned.clear()
        self._learned.append(pa.record_batch([pa.array([json.dumps(values)])], names=["learned"]))
        deltas = {"learned": self._learned.delta()}
        for name, each in zip(("left", "right"), self._windows, strict=True):
            each.kept_missed.clear()
            each.kept_missed.append(each.missed.to_table())
            deltas |= {name: each.store.delta(), f"{name} missed": each.kept_missed.delta()}
        return deltas

    def load(self, chunks: ChunkSets) -> None:
        for each, name in zip(self._windows, ("left", "right"), strict=True):
            each.load(chunks, name)
        self._learned.load(chunks.get("learned", {}))
        for chunk in self._learned:
            values = json.loads(chunk.column(0)[0].as_py())
            self._found, self._lost, self._evictions = values["found"], values["lost"], values["given up"]
            for each, latest, known in zip(self._windows, values["latest"], values["frequencies"], strict=True):
                each.latest, each.frequencies = latest, Frequencies.of(known)


def _ids(start: Ints, columns: Columns) -> Ints:
    return row_codes((pa.array(start), *columns), len(start)).codes.view(np.int64)


def row_sizes(columns: Columns, length: int) -> Ints:
    """Return the bytes that rows take in memory."""
    sizes = np.full(length, ROW_OVERHEAD, np.int64)
    for column in columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += 5 + np.asarray(pc.fill_null(pc.binary_length(column), 0))
        else:
            sizes += 1 + (column.type.bit_width + 7) // 8
    return sizes
