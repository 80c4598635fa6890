"""What all operators of the engine have in common.

An operator is handed one batch of one input at a time and answers with what follows from it, under the smallest
heartbeat of its inputs: one batch, or several of limited size where that is much more than was put in. It never looks
at the clock, at other operators, or at how batches were cut: what it puts out, netted per instant, is a function of
what was put in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import pyarrow as pa

from planner import operators as op
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, BLOCK_ROWS, FOREVER, ChangeBatch, Columns, Ints, empty_batch, in_blocks
from runtime.expressions import compile_projection
from runtime.state.chunks import ChunkSets, Delta
from runtime.state.future_changes import Agenda
from runtime.state.store import Stub
from shedding.join_deciders import Cutoff, Selections
from shedding.schedule import Schedule


class Clock(Protocol):
    """What operators may know of the sources below them, up to their own heartbeat."""

    def first_instant(self, source: str) -> int | None:
        """Return the first instant of a source; None if it has had no element yet."""

    def instants(self, source: str, since: int, until: int) -> Ints:
        """Return the different instants of a source's elements in a stretch of time, sorted."""

    @property
    def earliest(self) -> int:
        """The first instant that any source has had so far."""

    def beginning(self, sources: Iterable[str]) -> int | None:
        """Return the first instant of some sources; None if it is not known yet."""


@dataclass(slots=True)
class Context:
    """What operators are given to work with.

    `types` are the columns that each operator of the plan puts out, `stubs` the synopses on stores, by id;
    `final_ends` names the operators that never take back a row before the end that it came with, `netted` those whose
    rows never both enter and leave at one instant. `schedules` say which units of time are lost, by their ids,
    `choices` what joins with too little time compare, `budgets` how many bytes those with too little memory may use.
    `on_bad_row` says what becomes of removals of rows that are not there. `block_rows` is how many rows are put out at
    a time, unless that many share an instant of a stream.
    """

    clock: Clock
    functions: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, tuple[pa.DataType, ...]] = field(default_factory=dict)
    stubs: Mapping[str, Stub] = field(default_factory=dict)
    final_ends: frozenset[str] = frozenset()
    netted: frozenset[str] = frozenset()
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    choices: Mapping[str, Selections | Cutoff] = field(default_factory=dict)
    budgets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    on_bad_row: Literal["fail", "skip"] = "fail"
    block_rows: int = BLOCK_ROWS


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a step of an operator's work has done: a predicate of a filter, or a probe of a join.

    `what` says more than its name. Of joins it is known how many candidates were compared.
    """

    name: str
    kind: str
    what: str
    rows_in: int
    rows_out: int
    seconds: float
    candidates: int | None = None

    def with_others(self, other: StepFigures, sign: int = 1) -> StepFigures:
        """Return the sum of two figures of one step, or their difference."""
        candidates = None if self.candidates is None else self.candidates + sign * (other.candidates or 0)
        rows_in, rows_out = self.rows_in + sign * other.rows_in, self.rows_out + sign * other.rows_out
        seconds = self.seconds + sign * other.seconds
        return replace(self, rows_in=rows_in, rows_out=rows_out, seconds=seconds, candidates=candidates)


class Operator:
    """An operator at work."""

    def __init__(self, node: op.Operator, context: Context) -> None:
        self.node = node
        self.context = context
        self.types = tuple(arrow_type(column.type) for column in node.columns)
        self.input_types = [context.types[edge.operator] for edge in node.inputs]
        self.heartbeats = [BEGINNING] * len(node.inputs)
        self.since = BEGINNING
        """The instant before which all inputs were complete before the batch that is processed."""
        self.told_until = FOREVER
        """How far it has told others that it is complete, if it has told less than its inputs allow."""

    @property
    def until(self) -> int:
        """The instant before which all inputs are complete."""
        return min(self.heartbeats)

    def process(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        """Take in a batch of an input and yield what follows from it; no other batch is taken in before the end."""
        for part in self._steps(port, batch):
            self.since, self.told_until = min(self.until, self.told_until), FOREVER
            self.heartbeats[port] = part.until
            yield from self.pieces(port, part)

    def pieces(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        """Yield what follows from a batch; its heartbeat is already noted."""
        made = self.apply(port, batch)
        if self.node.is_stream:
            yield made
        else:
            yield from in_blocks(made, self.since, self.context.block_rows)

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        """Compute what follows from a batch, if that is not much more than there is anyway."""
        raise NotImplementedError

    @property
    def agendas(self) -> Sequence[Agenda]:
        """What is to happen at instants that inputs, all of them relations, have not come to."""
        return ()

    def _steps(self, port: int, batch: ChangeBatch) -> Iterator[ChangeBatch]:
        """Yield a batch; if much is to happen before its heartbeat, its rows and then several heartbeats up to that."""
        before, types = self.heartbeats[port], self.input_types[port]
        until = min([batch.until, *self.heartbeats[:port], *self.heartbeats[port + 1 :]])
        cut = self._cut(until)
        if before < cut < until and len(batch):
            yield batch.with_until(before)
            batch = empty_batch(types, batch.until)
            cut = self._cut(until)
        while before < cut < until:
            yield empty_batch(types, cut)
            before, cut = cut, self._cut(until)
        yield batch

    def _cut(self, until: int) -> int:
        """Return an instant, up to a given one, before which there is no more to happen than is done in one go."""
        return min((each.cut(until, self.context.block_rows) for each in self.agendas), default=until)

    def figures(self) -> Sequence[StepFigures]:
        """Return what the steps of its work have done so far, if it has several."""
        return ()

    def settle(self) -> None:
        """Do what is to be done once for each micro-batch, when everything that came with it has been processed."""

    @property
    def nbytes(self) -> int:
        """How many bytes of state are its own, not in stores that others may share."""
        return 0

    def delta(self) -> dict[str, Delta]:
        """Return what is new and what is gone in its own state since the last call."""
        return {}

    def load(self, chunks: ChunkSets) -> None:
        """Take over its own state as it was written before."""


Evaluate = Callable[[Columns, int], Columns]


def evaluate_all(expressions: Sequence[Any], functions: Mapping[str, Any]) -> Evaluate:
    """Return a function that computes some expressions of rows."""
    compiled = compile_projection(expressions, functions)
    return lambda columns, length: tuple(compiled(columns, length))
