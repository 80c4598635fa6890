"""Statistics: what operators, queues, synopses, stores and sources have done and hold.

Counting is a few additions per batch, so it is always on. Two kinds of figures are kept of an operator: totals, for
people, and an estimate in which old batches count less and less, for the scheduler. The estimate starts as if the
guesses of `planner/costs.py` had been measured on a few elements.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from cql.types import DataType, Kind
from planner import operators as op
from planner.costs import Estimate
from planner.plan import Plan
from runtime.columns.arrow_types import arrow_type
from runtime.engine.queues import Queue
from runtime.operators.base import StepFigures

SECONDS_PER_UNIT = 2e-8
"""What one unit of the planner's costs is taken to be before anything is measured."""

GUESSED_ELEMENTS = 100
"""On how many elements the guesses count as measured."""

KEPT = 0.9
"""How much of the weight of earlier batches is left after one more."""

_STEP_OF = ": "
"""Between the name of an operator and that of a step of its work."""

LIFETIME_BYTES = 16
STRING_BYTES = 20
"""What instants and a string are taken to need in a row before anything is measured."""


class OperatorWork:
    """What one operator has done."""

    __slots__ = ("_elements", "_produced", "_seconds", "batches", "elements_in", "elements_out", "seconds")

    def __init__(self, guess: Estimate) -> None:
        self.batches = 0
        self.elements_in = 0
        self.elements_out = 0
        self.seconds = 0.0
        self._elements = float(GUESSED_ELEMENTS)
        self._produced = guess.selectivity * GUESSED_ELEMENTS
        self._seconds = guess.cost * SECONDS_PER_UNIT * GUESSED_ELEMENTS

    def record(self, elements_in: int, elements_out: int, seconds: float) -> None:
        """Count one batch that was processed."""
        self.batches += 1
        self.elements_in += elements_in
        self.elements_out += elements_out
        self.seconds += seconds
        kept = KEPT if elements_in else 1.0
        if elements_in or elements_out:  # the heartbeats of an idle operator say nothing of what elements cost
            self._elements = kept * self._elements + elements_in
            self._produced = kept * self._produced + elements_out
            self._seconds = kept * self._seconds + seconds

    @property
    def estimate(self) -> Estimate:
        """Seconds per input element and output elements for each, of late."""
        return Estimate(self._seconds / self._elements, self._produced / self._elements)


@dataclass(slots=True)
class Size:
    """How much state there is, now and at most; None as long as nobody has looked."""

    elements: int | None = None
    nbytes: int | None = None
    peak_elements: int | None = None
    peak_bytes: int | None = None

    def record(self, elements: int, nbytes: int) -> None:
        """Note what it holds now."""
        self.elements = elements
        self.nbytes = nbytes
        self.peak_elements = max(self.peak_elements or 0, elements)
        self.peak_bytes = max(self.peak_bytes or 0, nbytes)


@dataclass(slots=True)
class SourceCounts:
    """What arrived at a source: elements that were taken, came too late, or were bad."""

    taken: int = 0
    late: int = 0
    skipped: int = 0

    def record(self, taken: int, late: int = 0, skipped: int = 0) -> None:
        """Count elements that arrived."""
        self.taken += taken
        self.late += late
        self.skipped += skipped


@dataclass(frozen=True, slots=True)
class Figures:
    """The statistics of one part of a network at one moment; None where a figure has no meaning.

    `kind` is source, operator, predicate, probe, queue, synopsis or store; `what` says more: the table, the kind of
    operator or store, the text of the predicate, how candidates are found, whether a stream or a relation is
    queued, the role of the synopsis.
    """

    name: str
    kind: str
    what: str
    batches: int | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    selectivity: float | None = None
    seconds: float | None = None
    elements_now: int | None = None
    elements_peak: int | None = None
    bytes_now: int | None = None
    bytes_peak: int | None = None
    late: int | None = None
    skipped: int | None = None
    candidates: int | None = None


COLUMNS = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The statistics of a network at one moment: sources, operators, queues, synopses, stores."""

    figures: tuple[Figures, ...]

    def rows(self) -> list[tuple[Any, ...]]:
        """Return a row for each part, with the columns `COLUMNS`."""
        return [astuple(each) for each in self.figures]

    def to_json(self) -> str:
        """Return a JSON array with an object for each part, without figures that have no meaning."""
        return json.dumps([{key: v for key, v in asdict(each).items() if v is not None} for each in self.figures])

    def of(self, name: str) -> Figures:
        """Return the figures of one part."""
        return next(each for each in self.figures if each.name == name)


Steps = Mapping[tuple[str, str], StepFigures]
"""What predicates and probes have done, by operator and name."""


def add_step(steps: dict[tuple[str, str], StepFigures], operator: str, step: StepFigures) -> None:
    """Add what a step has done to what it did before."""
    before = steps.get((operator, step.name))
    steps[operator, step.name] = step if before is None else step.with_others(before)


def listed(steps: Steps) -> list[list[Any]]:
    """Return steps as JSON has them."""
    return [[operator, *astuple(step)] for (operator, _), step in steps.items()]


def of_parts(figures: Iterable[Figures], ids: Collection[str]) -> list[Figures]:
    """Return the figures of parts with some ids, and of the steps of such operators."""
    return [each for each in figures if each.name.partition(_STEP_OF)[0] in ids]


class Statistics:
    """The statistics of a network while it runs; counters are reached by id, without a search.

    `state` is what operators keep for themselves, `steps` what the steps of their work have done, as far as anybody
    has told; `synopses` and `stores` are those of the plan.
    """

    def __init__(self, plan: Plan, queues: Iterable[Queue] = ()) -> None:
        self._plan = plan
        self._queues = {queue.id: queue for queue in queues}
        self.sources = {each.id: SourceCounts() for each in plan.sources}
        self.operators = {each.id: OperatorWork(each.estimate()) for each in plan.operators if each.inputs}
        self.state = {operator: Size() for operator in self.operators}
        self.steps: Steps = {}
        self.synopses = {synopsis.id: Size() for synopsis in plan.synopses}
        self.stores = {store.id: Size() for store in plan.stores}

    def estimate(self, operator: str) -> Estimate:
        """Return what an operator costs and passes on of late, for the scheduler."""
        work = self.operators.get(operator)
        if work is None:
            return self._plan.by_id[operator].estimate()
        if isinstance(self._plan.by_id[operator], op.Output):
            return Estimate(work.estimate.cost, 0.0)  # what it puts out has left the system
        return work.estimate

    def width(self, operator: str) -> float:
        """Return the bytes of an element that an operator puts out: measured in its queue, or guessed."""
        queue = self._queues.get(f"queue/{operator}")
        if queue is not None and queue.total_elements:
            return queue.total_bytes / queue.total_elements
        return LIFETIME_BYTES + sum(type_width(column.type) for column in self._plan.by_id[operator].columns)

    @property
    def queued_bytes(self) -> int:
        """How many bytes wait in all queues together."""
        return sum(queue.held_bytes for queue in self._queues.values())

    def snapshot(self) -> Snapshot:
        """Return all figures as they are now."""
        return Snapshot(
            (
                *self._of_sources(),
                *self._of_operators(),
                *self._of_steps(),
                *self._of_queues(),
                *self._of_synopses_and_stores(),
            )
        )

    def _of_sources(self) -> Iterator[Figures]:
        for each in self._plan.sources:
            intake = self.sources[each.id]
            yield Figures(
                each.id, "source", each.table, elements_in=intake.taken, late=intake.late, skipped=intake.skipped
            )

    def _of_operators(self) -> Iterator[Figures]:
        kinds = {each.id: each.kind for each in self._plan.operators}
        for name, work in self.operators.items():
            yield Figures(
                name,
                "operator",
                kinds[name],
                batches=work.batches,
                elements_in=work.elements_in,
                elements_out=work.elements_out,
                selectivity=work.elements_out / work.elements_in if work.elements_in else None,
                seconds=work.seconds,
                bytes_now=self.state[name].nbytes,
                bytes_peak=self.state[name].peak_bytes,
            )

    def _of_steps(self) -> Iterator[Figures]:
        for (operator, _), step in self.steps.items():
            if operator in self.operators:
                yield _of_step(operator, step)

    def _of_queues(self) -> Iterator[Figures]:
        for name, queue in self._queues.items():
            yield Figures(
                name,
                "queue",
                "stream" if queue.is_stream else "relation",
                batches=queue.total_batches,
                elements_in=queue.total_elements,
                elements_out=queue.total_elements - queue.held_elements,
                elements_now=queue.held_elements,
                elements_peak=queue.peak_elements,
                bytes_now=queue.held_bytes,
                bytes_peak=queue.peak_bytes,
            )

    def _of_synopses_and_stores(self) -> Iterator[Figures]:
        for synopsis in self._plan.synopses:
            yield _held(synopsis.id, "synopsis", synopsis.role, self.synopses[synopsis.id])
        for store in self._plan.stores:
            yield _held(store.id, "store", store.kind, self.stores[store.id])


def _of_step(operator: str, step: StepFigures) -> Figures:
    return Figures(
        f"{operator}{_STEP_OF}{step.name}",
        step.kind,
        step.what,
        elements_in=step.rows_in,
        elements_out=step.rows_out,
        selectivity=step.rows_out / step.rows_in if step.rows_in else None,
        seconds=step.seconds,
        candidates=step.candidates,
    )


def _held(name: str, kind: str, what: str, size: Size) -> Figures:
    return Figures(
        name,
        kind,
        what,
        elements_now=size.elements,
        elements_peak=size.peak_elements,
        bytes_now=size.nbytes,
        bytes_peak=size.peak_bytes,
    )


def type_width(data_type: DataType) -> float:
    """Return the bytes that a value of a type is taken to need.

    >>> type_width(DataType(Kind.INT))
    4.0
    """
    if data_type.kind is Kind.STRING:
        return STRING_BYTES
    return 0.0 if data_type.kind is Kind.NULL else float(arrow_type(data_type).bit_width / 8)
