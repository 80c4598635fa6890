"""Matching: pairs of rows of several inputs with equal keys, or of two without keys, for as long as both are there.

The law: a join is linear in each input, so a new row contributes its pairs with everything that the other inputs
have brought so far, weights multiplied, during the time that the lifetimes have in common. Each pair is found once,
when the later of its rows comes.

A new row probes the other inputs one after the other, in an order that makes no difference to what is found. A tactic
names the candidates of each probe (`runtime/joins/probe.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import pyarrow as pa

from runtime.columns.batch import (
    FOREVER,
    ChangeBatch,
    Columns,
    Ints,
    Mask,
    concat_columns,
    empty_batch,
    in_blocks,
    take,
)
from runtime.columns.row_codes import Codes, equal_rows, row_codes, valid_rows
from runtime.joins.candidates import Pairs
from runtime.joins.probe import (
    FromOrder,
    JoinInput,
    Matches,
    Probe,
    ProbeFigures,
    ProbeStep,
    ProbingOrder,
    Tactic,
)

Holds = Callable[[Columns, int], Mask]

_UNUSED = pa.nulls(0)
"""Stands for a column that the condition does not name."""


@dataclass(frozen=True, slots=True)
class Residual:
    """What rows of all inputs side by side have to satisfy, and which columns that is about."""

    holds: Holds
    columns: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The rows of a batch that probe the other inputs, in an order, and their keys with the codes of these, if any."""

    port: int
    batch: ChangeBatch
    order: Sequence[int]
    keys: Columns
    codes: Codes | None


class Matcher:
    """Finds the matches of new rows of one input with the rows of all others, as a tactic and an order say."""

    def __init__(self, inputs: Sequence[JoinInput], residual: Residual | None, tactic: Tactic) -> None:
        self.inputs = inputs
        self.residual = residual
        self.tactic = tactic
        self.probing_order: ProbingOrder = FromOrder(len(inputs))
        self.figures: dict[ProbeStep, ProbeFigures] = defaultdict(ProbeFigures)
        """What each step of each input's probes has done so far."""

    def matches(self, port: int, batch: ChangeBatch) -> Iterator[Matches]:
        """Yield what new rows of an input match, in pieces of limited size.

        Meanwhile others may work on the same stores: nothing is forgotten there until all is found.
        """
        if not len(batch):
            return
        rows, keys, codes = self._keyed(port, batch)
        weight = None if batch.weight is None else batch.weight[rows]
        part = Matches(rows, (), batch.start[rows], batch.ends[rows], weight)
        pipeline = _Pipeline(port, batch, self.probing_order.order(port), keys, codes)
        with ExitStack() as stack:
            for each in self.inputs:
                stack.enter_context(each.stub.store.held())
            yield from self._extended(pipeline, part, np.arange(len(rows)))

    def _keyed(self, port: int, batch: ChangeBatch) -> tuple[Ints, Columns, Codes | None]:
        """Return the rows of a batch that have keys, with these and their codes; all if the join has no keys."""
        rows, keys_of = np.arange(len(batch)), self.inputs[port].keys_of
        if keys_of is None:
            return rows, (), None
        keys = keys_of(batch.columns, len(batch))
        valid = valid_rows(keys)
        if valid is not None:
            rows = np.flatnonzero(valid)
            keys = take(keys, rows)
        return rows, keys, row_codes(keys, len(rows)).codes

    def _extended(self, pipeline: _Pipeline, part: Matches, at_key: Ints) -> Iterator[Matches]:
        """Yield partial matches extended by rows of the inputs that they lack; `at_key` is where their keys are."""
        step, steps = len(part.columns), len(pipeline.order)
        if step == steps:
            whole = self._whole(pipeline, part)
            if len(whole.owner):
                yield whole
            return
        starts, before = _SmallestFrom(part.start), 0
        for more, chosen, done in self._probed(pipeline, part, at_key):
            if step == 0:
                more = replace(more, bound=starts.at(done if steps == 1 else before))
                before = done
            yield from self._extended(pipeline, more, at_key[chosen])

    def _probed(self, pipeline: _Pipeline, part: Matches, at_key: Ints) -> Iterator[tuple[Matches, Ints, int]]:
        """Yield partial matches extended by one more input, which of the given each extends, and how many are done."""
        step = ProbeStep(pipeline.port, len(part.columns), pipeline.order[len(part.columns)])
        probed, figures = self.inputs[step.input], self.figures[step]
        has_keys = pipeline.codes is not None
        keys = take(pipeline.keys, at_key) if has_keys else None
        codes = None if pipeline.codes is None else pipeline.codes[at_key]
        figures.probes += len(part.owner)
        started = perf_counter()
        for owner, positions, done in self.tactic.candidates(Probe(pipeline.port, pipeline.batch, probed, part, codes)):
            candidates = len(owner)
            if not has_keys:
                owner, positions = self._satisfying(pipeline, part, owner, positions)
            more, chosen = _joined(part, probed, owner, positions, keys)
            figures.note(candidates, len(more.owner), perf_counter() - started)
            yield more, chosen, done
            started = perf_counter()
        figures.note(0, 0, perf_counter() - started)

    def _whole(self, pipeline: _Pipeline, part: Matches) -> Matches:
        """Return matches with columns by input, without those that do not satisfy the residual."""
        columns = dict(zip(pipeline.order, part.columns, strict=True))
        columns[pipeline.port] = take(pipeline.batch.columns, part.owner)
        whole = replace(part, columns=tuple(columns[at] for at in range(len(self.inputs))))
        is_tested = pipeline.codes is None
        if self.residual is None or is_tested or not len(part.owner):
            return whole
        return _chosen(whole, np.flatnonzero(self.residual.holds(sum(whole.columns, ()), len(part.owner))))

    def _satisfying(self, pipeline: _Pipeline, part: Matches, owner: Ints, positions: Ints) -> Pairs:
        """Return those of many candidates that match, without reading columns that do not matter for that."""
        stub, port = self.inputs[1 - pipeline.port].stub, pipeline.port
        start, end = stub.lifetimes(positions)
        alive = np.flatnonzero((start < part.end[owner]) & (end > part.start[owner]))
        if len(alive) < len(owner):
            owner, positions = owner[alive], positions[alive]
        if self.residual is None or not len(owner):
            return owner, positions
        own, store = pa.array(part.owner[owner]), stub.store
        widths = [len(pipeline.batch.columns), len(store.types)]
        columns: list[pa.Array] = []
        for at in (0, 1):
            for column in range(widths[0 if at == port else 1]):
                if len(columns) not in self.residual.columns:
                    columns.append(_UNUSED)
                elif at == port:
                    columns.append(pipeline.batch.columns[column].take(own))
                else:
                    columns.append(store.column(column, positions))
        holds = np.flatnonzero(self.residual.holds(tuple(columns), len(owner)))
        return owner[holds], positions[holds]


def _joined(
    part: Matches, probed: JoinInput, owner: Ints, positions: Ints, keys: Columns | None
) -> tuple[Matches, Ints]:
    """Return partial matches extended by candidates of one more input, and which of the given each extends.

    With keys, candidates with other ones are left out.
    """
    other_start, other_end = probed.stub.lifetimes(positions)
    start, end = np.maximum(part.start[owner], other_start), np.minimum(part.end[owner], other_end)
    alive = np.flatnonzero(start < end)
    owner, positions, start, end = owner[alive], positions[alive], start[alive], end[alive]
    rows = probed.stub.store.rows(positions)
    weight = probed.stub.weights(positions)
    if keys is not None and probed.keys_of is not None:
        found_keys = probed.keys_of(rows, len(owner))
        same = np.flatnonzero(equal_rows(take(keys, owner), found_keys, len(owner)))
        if len(same) < len(owner):
            owner, start, end, rows = owner[same], start[same], end[same], take(rows, same)
            positions = positions[same]
            weight = None if weight is None else weight[same]
    if part.weight is not None:
        weight = part.weight[owner] if weight is None else weight * part.weight[owner]
    before = tuple(take(columns, owner) for columns in part.columns)
    return Matches(part.owner[owner], (*before, rows), start, end, weight, positions, part.bound), owner


def _chosen(part: Matches, at: Ints) -> Matches:
    if len(at) == len(part.owner):
        return part
    return Matches(
        part.owner[at],
        tuple(take(columns, at) for columns in part.columns),
        part.start[at],
        part.end[at],
        None if part.weight is None else part.weight[at],
        None if part.positions is None else part.positions[at],
        part.bound,
    )


class _SmallestFrom:
    """The smallest of some instants from one of them on."""

    def __init__(self, instants: Ints) -> None:
        self._instants = instants
        self._smallest: Ints | None = None

    def at(self, place: int) -> int:
        """Return the smallest instant from a place on; FOREVER behind the last."""
        if place >= len(self._instants):
            return FOREVER
        if self._smallest is None:
            self._smallest = np.minimum.accumulate(self._instants[::-1])[::-1]
        return int(self._smallest[place])


def pairs_in_blocks(
    found: Iterable[Matches], types: Sequence[pa.DataType], since: int, until: int, block_rows: int
) -> Iterator[ChangeBatch]:
    """Yield matches as rows of all inputs side by side, as many at a time as there may be.

    Heartbeats go from that before them to that after them, as far as is known.
    """
    parts: list[Matches] = []
    for part in found:
        if parts and sum(len(each.owner) for each in parts) + len(part.owner) > block_rows:
            bound = max(since, min(parts[-1].bound, until))
            yield from in_blocks(pairs_batch(parts, bound), since, block_rows)
            since, parts = bound, []
        parts.append(part)
    yield from in_blocks(pairs_batch(parts, until) if parts else empty_batch(types, until), since, block_rows)


def pairs_batch(parts: Sequence[Matches], until: int) -> ChangeBatch:
    """Return matches as rows of all inputs side by side."""
    return ChangeBatch(
        concat_columns([sum(part.columns, ()) for part in parts]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.end for part in parts]),
        None if parts[0].weight is None else np.concatenate([part.weight for part in parts]),
        until,
    )
