"""How a running network is doing, from one place: what its tasks count.

Tasks send what has happened since their last micro-batch; here it is added up. A micro-batch that is repeated after a
crash is counted once, because a new driver begins at nothing.
"""

from __future__ import annotations

import datetime
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.plan import Plan
from runtime.batch import BEGINNING
from runtime.statistics import Figures, Statistics

MOST_BATCHES = 240
"""Of how many micro-batches the course is remembered."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-batch did."""

    id: int
    rows_in: int
    rows_out: int
    seconds: float


@dataclass(frozen=True)
class Progress:
    """How far a network is. Rates are those of the last micro-batches; instants are ticks of its clock."""

    batch: int = -1
    rows_in: dict[str, int] = field(default_factory=dict)
    """By table, since the network was started."""
    rows_out: dict[str, int] = field(default_factory=dict)
    """By query."""
    late: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    newest: int | None = None
    """The latest instant that was read."""
    closed: int | None = None
    """The instant up to which results are complete."""
    batch_seconds: float = 0.0
    rows_per_second: float = 0.0
    state_bytes: int = 0
    course: tuple[Batch, ...] = ()

    def lag_seconds(self, ticks_per_second: int, now: datetime.datetime) -> float | None:
        """Return by how much results are behind the clock on the wall, if instants are those of it."""
        if self.closed is None:
            return None
        return now.timestamp() - self.closed / ticks_per_second


class Counters:
    """The sums of what the tasks of a network have counted."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._late: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
        """Of each source, the late rows that each bucket of a fragment has seen."""
        self._work: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        self._held: dict[str, dict[str, list[int]]] = defaultdict(dict)
        self._out: dict[str, int] = defaultdict(int)
        self._course: deque[Batch] = deque(maxlen=MOST_BATCHES)
        self._plan: Plan | None = None
        self._newest: int | None = None
        self._closed: dict[str, int] = {}
        self.told = ""
        """The last control message that has taken effect."""

    def begin(self, plan: Plan) -> None:
        """Go on with a plan; what is no longer part of it is forgotten."""
        self._plan = plan

    def count(
        self, batch_id: int, counted: Sequence[Mapping[str, Any]], rows_out: Mapping[str, int], seconds: float
    ) -> None:
        """Add up what the places of a network have counted in a micro-batch, and what was delivered."""
        taken: dict[str, int] = {}
        for values in counted:
            taken |= values["taken"]
            for what in ("read", "skipped"):
                for source, count in values[what].items():
                    self._counts[what][source] = max(self._counts[what][source], count)
            fragment, _, bucket = values["place"].rpartition("/")
            for source, count in values["late"].items():
                self._late[source][fragment, bucket] = count
            for operator, figures in values["work"].items():
                self._work[operator] = [a + b for a, b in zip(self._work[operator], figures, strict=True)]
            for name, figures in values["held"].items():
                self._held[name][values["place"]] = figures
            if values["newest"] is not None:
                self._newest = max(self._newest or values["newest"], values["newest"])
            if values["closed"] > BEGINNING:
                self._closed[values["place"]] = values["closed"]
        for query, count in rows_out.items():
            self._out[query] += count
        self.told = max([self.told, *(values["told"] for values in counted)])
        self._course.append(Batch(batch_id, sum(taken.values()), sum(rows_out.values()), seconds))

    def rows_in(self) -> dict[str, int]:
        """Return how many rows of each table have been read."""
        return self._by_table()["read"]

    def progress(self) -> Progress:
        """Return how far the network is."""
        assert self._plan is not None, "the network has not been started"
        tables = self._by_table()
        recent = list(self._course)[-5:]
        seconds = sum(batch.seconds for batch in recent)
        return Progress(
            batch=self._course[-1].id if self._course else -1,
            rows_in=tables["read"],
            rows_out=dict(self._out),
            late=tables["late"],
            skipped=tables["skipped"],
            newest=self._newest,
            closed=min(self._closed.values(), default=None),
            batch_seconds=recent[-1].seconds if recent else 0.0,
            rows_per_second=sum(batch.rows_in for batch in recent) / seconds if seconds else 0.0,
            state_bytes=sum(each.bytes_now or 0 for each in self.figures() if each.kind in ("store", "operator")),
            course=tuple(self._course),
        )

    def _by_table(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {what: {} for what in ("read", "late", "skipped")}
        for figures in self.figures():
            if figures.kind == "source":
                for what, count in (
                    ("read", figures.elements_in),
                    ("late", figures.late),
                    ("skipped", figures.skipped),
                ):
                    found[what][figures.what] = max(found[what].get(figures.what, 0), count or 0)
        return found

    def figures(self) -> list[Figures]:
        """Return what is known of sources, operators, synopses and stores of the network as it is."""
        assert self._plan is not None, "the network has not been started"
        return [self._filled(each) for each in Statistics(self._plan).snapshot().figures]

    def _late_rows(self, source: str) -> int:
        """Return how many rows of a source were late: the buckets of a fragment have them between them."""
        by_fragment: dict[str, int] = defaultdict(int)
        for (fragment, _), count in self._late[source].items():
            by_fragment[fragment] += count
        return max(by_fragment.values(), default=0)

    def _filled(self, figures: Figures) -> Figures:
        name = figures.name
        held = [sum(column) for column in zip(*self._held[name].values(), strict=True)] if name in self._held else None
        match figures.kind:
            case "source":
                return replace(
                    figures,
                    elements_in=self._counts["read"][name],
                    late=self._late_rows(name),
                    skipped=self._counts["skipped"][name],
                )
            case "operator":
                batches, taken, made, seconds = self._work[name]
                return replace(
                    figures,
                    batches=int(batches),
                    elements_in=int(taken),
                    elements_out=int(made),
                    selectivity=made / taken if taken else None,
                    seconds=seconds,
                    bytes_now=held[1] if held else figures.bytes_now,
                )
        return replace(figures, elements_now=held[0], bytes_now=held[1]) if held else figures
