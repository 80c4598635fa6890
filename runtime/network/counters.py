"""How a running network is doing, from one place: what its tasks count.

Tasks send what has happened since their last micro-batch; here it is added up. A micro-batch that is repeated after a
crash is counted once, because a new driver begins at nothing. Hosts may count on a thread of their own, and anybody may
ask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock

from cql.intervals import TimeDomain
from planner.plan import Plan
from runtime.columns.batch import BEGINNING
from runtime.engine.statistics import Figures, Statistics, add_step
from runtime.network.reports import Report
from runtime.operators.base import StepFigures
from runtime.reports.losses import PairCounts, added_up
from runtime.reports.progress import BatchHistory, Progress


class Counters:
    """The sums of what the tasks of a part of a run have counted; `watch` is told what was left out so far."""

    def __init__(self, part: str, watch: Callable[[Mapping[str, tuple[int, int]]], None] | None = None) -> None:
        self._watch = watch
        self._lock = RLock()
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._late: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        """Of each source, the late rows that each bucket of a fragment has seen."""
        self._ignored: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        """Of each source, the removals of rows that were not there, as each bucket of a fragment has found them."""
        self._work: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        self._steps: dict[tuple[str, str], StepFigures] = {}
        self._read_steps: dict[tuple[str, str], StepFigures] = {}
        """What filters have done where tables are read: every bucket knows all of it."""
        self._shed: dict[str, list[int]] = {}
        """How many rows each drop operator has taken and passed."""
        self._pairs: dict[str, dict[str, list[int]]] = defaultdict(dict)
        """What joins that give up rows have found, by place."""
        self._held: dict[str, dict[str, list[int]]] = defaultdict(dict)
        self._out: dict[str, int] = defaultdict(int)
        self._course = BatchHistory(part)
        self._plan: Plan | None = None
        self._clock: TimeDomain | None = None
        self._table_of: dict[str, str] = {}
        self._keeping: list[str] = []
        """The parts of the network that hold state of their own."""
        self._batch = -1
        self._newest: int | None = None
        self._closed: dict[str, int] = {}
        self._until: dict[str, int] = {}
        """Of each query, the instant before which its results are complete."""
        self.unended: dict[str, Mapping[str, int]] = {}
        """Of queries that have come to their ends, the rows of each table in windows that did not end."""
        self.first: int | None = None
        """The first instant that was read."""
        self.told = ""
        """The last control message that has taken effect."""

    def begin(self, plan: Plan) -> None:
        """Go on with a plan; what is no longer part of it is forgotten."""
        with self._lock:
            self._plan = plan
            self._until = {query: until for query, until in self._until.items() if query in plan.queries}
            self._closed = {}
            self.unended = {}
            self._table_of = {source.feed: source.table for source in plan.sources}
            self._clock = next((source.time for source in plan.sources if source.time is not None), None)
            self._keeping = [*(each.id for each in plan.operators), *(each.id for each in plan.stores)]

    def count(self, batch_id: int, reports: Sequence[Report], rows_out: Mapping[str, int], seconds: float) -> None:
        """Add up what the places of a network report of a micro-batch, and what was delivered."""
        with self._lock:
            taken: dict[str, int] = {}
            for report in reports:
                taken |= report.taken
                self._add(report)
            for query in {query for report in reports for query in report.until}:
                until = min(report.until[query] for report in reports if query in report.until)
                self._until[query] = max(self._until.get(query, BEGINNING), until)
            for query, count in rows_out.items():
                self._out[query] += count
            self.told = max([self.told, *(report.told for report in reports)])
            self._batch = batch_id
            tables: dict[str, int] = {}
            for feed, count in taken.items():
                table = self._table_of.get(feed, feed)
                tables[table] = max(tables.get(table, 0), count)
            found = self._by_table()
            lost = sum(found["late"].values()), sum(found["skipped"].values())
            held = sum(self._held_now(name)[1] for name in self._keeping)
            self._course.note(
                batch_id, seconds, tables, rows_out, lost, held, self._newest, self._closed_before(), self._clock
            )
        if self._watch is not None:
            self._watch({table: (late, found["skipped"][table]) for table, late in found["late"].items()})

    def _add(self, report: Report) -> None:
        """Add what one place reports."""
        for what, counts in (("read", report.read), ("skipped", report.skipped), ("read_late", report.read_late)):
            for source, count in counts.items():
                self._counts[what][source] = max(self._counts[what][source], count)
        for operator, passed in report.shed.items():
            self._shed[operator] = max(self._shed.get(operator, passed), passed)
        for operator, pairs in report.pairs.items():
            self._pairs[operator][report.place] = pairs
        at = report.fragment, report.bucket
        for source, count in report.late.items():
            self._late[source][at] = count
        for source, count in report.ignored.items():
            self._ignored[source][at] = count
        for operator, done in report.work.items():
            self._work[operator] = [a + b for a, b in zip(self._work[operator], done, strict=True)]
        for operator, read in report.read_work.items():
            self._work[operator] = max(self._work[operator], read)
        for operator, *figures in report.steps:
            add_step(self._steps, operator, StepFigures(*figures))
        for operator, *figures in report.read_steps:
            step = StepFigures(*figures)
            known = self._read_steps.get((operator, step.name), step)
            self._read_steps[operator, step.name] = max(known, step, key=lambda each: each.rows_in)
        for name, held in report.held.items():
            self._held[name][report.place] = held
        self.unended |= report.unended
        if report.first is not None:
            self.first = min(report.first if self.first is None else self.first, report.first)
        if report.newest is not None:
            self._newest = max(self._newest or report.newest, report.newest)
        if report.closed > BEGINNING:
            self._closed[report.place] = report.closed

    def _closed_before(self) -> int | None:
        return min(self._closed.values(), default=None)

    def _held_now(self, name: str) -> tuple[int, int]:
        """Return the elements and bytes of a part of the network, in all places together."""
        places = self._held[name].values() if name in self._held else ()
        return sum(elements for elements, _ in places), sum(nbytes for _, nbytes in places)

    def shed(self) -> dict[str, list[int]]:
        """Return how many rows each drop operator has taken and passed."""
        with self._lock:
            return dict(self._shed)

    def pairs(self) -> dict[str, PairCounts]:
        """Return what joins that give up rows have found."""
        with self._lock:
            return {name: added_up(places.values()) for name, places in self._pairs.items()}

    def rows_in(self) -> dict[str, int]:
        """Return how many rows of each table have been read."""
        with self._lock:
            return self._by_table()["read"]

    def progress(self) -> Progress:
        """Return how far the network is."""
        with self._lock:
            tables = self._by_table()
            return Progress(
                time=self._clock,
                batch=self._batch,
                rows_in=tables["read"],
                rows_out=dict(self._out),
                late=tables["late"],
                skipped=tables["skipped"],
                newest=self._newest,
                closed=self._closed_before(),
                instants={query: until - 1 for query, until in self._until.items() if until > BEGINNING},
                figures=tuple(self.figures()),
                course=self._course.batches,
            )

    def _by_table(self) -> dict[str, dict[str, int]]:
        """Return how many rows of each table were read, late and skipped; several sources may stand for one table."""
        found: dict[str, dict[str, int]] = {what: {} for what in ("read", "late", "skipped")}
        for source in self._plan.sources if self._plan is not None else ():
            for what, count in (
                ("read", self._counts["read"][source.id]),
                ("late", self._late_rows(source.id)),
                ("skipped", self._skipped_rows(source.id)),
            ):
                found[what][source.table] = max(found[what].get(source.table, 0), count)
        return found

    def figures(self) -> list[Figures]:
        """Return what is known of sources, operators, synopses and stores of the network as it is."""
        with self._lock:
            if self._plan is None:
                return []
            statistics = Statistics(self._plan)
            statistics.steps = self._steps | self._read_steps
            return [self._filled(each) for each in statistics.snapshot().figures]

    def _late_rows(self, source: str) -> int:
        """Return how many rows of a source were late: where it was read, and in the buckets of a fragment together."""
        return self._counts["read_late"][source] + _of_fragment(self._late[source])

    def _skipped_rows(self, source: str) -> int:
        """Return how many rows of a source were bad: where it was read, and in the buckets of a fragment together."""
        return self._counts["skipped"][source] + _of_fragment(self._ignored[source])

    def _filled(self, figures: Figures) -> Figures:
        name = figures.name
        held = self._held_now(name) if name in self._held else None
        match figures.kind:
            case "source":
                return replace(
                    figures,
                    elements_in=self._counts["read"][name],
                    late=self._late_rows(name),
                    skipped=self._skipped_rows(name),
                )
            case "operator":
                batches, taken, made, seconds = self._work[name]
                taken, made = self._shed.get(name, (taken, made))
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


def _of_fragment(counts: Mapping[tuple[str, int], int]) -> int:
    """Return how many there are in all buckets of the fragment that has most."""
    by_fragment: dict[str, int] = defaultdict(int)
    for (fragment, _), count in counts.items():
        by_fragment[fragment] += count
    return max(by_fragment.values(), default=0)
