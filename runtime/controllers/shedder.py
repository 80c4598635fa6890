"""Shedding: decides before each micro-batch what is lost, and writes it down before the tasks are told.

A decision is in the log of the checkpoint before the micro-batch that it is for, and is read from there when that one
is repeated: the same units are lost again. A decision is about units of which nothing has been read: verdicts that
somebody has gone by never change.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from cql.catalog import QueryDef
from cql.intervals import TimeDomain, Unit
from cql.service import service_level
from planner import operators as op
from planner.plan import Plan
from runtime.controllers.decision_log import Decision, DecisionLog
from runtime.controllers.expectation import Expectation
from runtime.controllers.schedules import DecidedSchedules
from runtime.engine.statistics import Figures
from runtime.reports.losses import Loss, PairCounts, losses_of
from runtime.reports.progress import Progress
from shedding.budgets import Budgets, Demand
from shedding.control import Bound, Controller, Load, Observed, Share
from shedding.insert_drops import choices_of_query, units_of_query
from shedding.join_deciders import Choices, Skipping
from shedding.join_forecast import FrontDrop, Looks
from shedding.schedule import most_lost

SHEDDING = "shedding"
"""How the log of decisions names it."""

LONGEST_LAG = 3600.0
"""Streams that are further behind the clock on the wall are not of now: what waits is not known from their instants."""

REMEMBERED_PAUSES = 10
"""Of how many pauses between micro-batches the shortest counts as what the host needs."""

REMEMBERED_OFFSETS = 100
"""Of how many micro-batches it is known by how much their rows came late by the clock."""

SHORTEST_IDLENESS = 3.0
"""In so many seconds between two micro-batches there may have been something to do all the time."""

LAST_RESORT = 1e6
"""By how much heavier answers weigh where rows are lost only when nothing else is left to lose."""

LEAST_LOOKS = 1e-7
"""How many seconds a unit of the work of joins that choose takes at least: as long as there is little to do, it cannot
be told from nothing."""

NO_DEMANDS: Mapping[str, Mapping[int, Sequence[Demand]]] = {}

UNBOUNDED_LATENCY = 10.0
"""The delay of answers, in seconds, that is aimed at where nobody has said one."""


class Shedder:
    """The schedules of a network, and what is decided about them."""

    def __init__(
        self,
        log: DecisionLog,
        plan: Plan,
        queries: Sequence[QueryDef],
        *,
        delay: float = 0.0,
        buckets: int = 1,
        processors: int = 1,
        figures: Sequence[Figures] = (),
    ) -> None:
        """`delay` is by how many seconds rows may come late, so that answers wait for them; `processors` is how many
        tasks can run at once, `figures` what operators have done before."""
        self._log = log
        self._plan = plan
        self._queries = list(queries)
        self._schedules = DecidedSchedules(plan)
        self._choices = Choices(plan)
        self._budgets = Budgets(plan, buckets)
        self._joins = list(self._choices.joins.values())
        self._controller = Controller(least_kept=LEAST_LOOKS if self._joins else 1e-9, parallel=processors)
        self._asked: dict[str, float] = {}
        """Fractions that somebody asked for by hand."""
        self._delay = delay
        self._second = next((_ticks_of_a_second(source) for source in plan.sources if source.time is not None), 1)
        self._rate = 0.0
        """How many rows come in a second, of late."""
        self._expectation = Expectation()
        self._expected: float | None = None
        """How many rows the sources have for the next micro-batch, if they say that."""
        self._between: deque[float] = deque(maxlen=REMEMBERED_PAUSES)
        """Seconds from the end of a micro-batch to the begin of the next."""
        self._begun = self._ended = time.monotonic()
        """When the last micro-batch began and ended; before the first one, when the job started."""
        self._span = 0.0
        """In how many seconds the rows of the last micro-batch had come, as far as anybody knows."""
        self._is_limited = False
        """Whether the last micro-batch left behind what it was not to have."""
        self._offsets: deque[float] = deque(maxlen=REMEMBERED_OFFSETS)
        """By how many seconds the newest rows were behind the clock when they were read."""
        self._density = 0.0
        """How many rows there are to a tick, of late."""
        self._busy = _busy(figures)
        """How many seconds operators have worked up to now."""
        self._last: Progress | None = None
        drops = [o for o in plan.operators if isinstance(o, op.SourceDrop)]
        self._fronts = {
            join.schedule: FrontDrop(drop.id, drop.units.schedule, max(join.windows))
            for drop in drops
            if not drop.goes_by_instants
            for join in self._joins
            if not join.counts_rows and drop in plan.below(join)
        }
        """Where rows of windows of time are lost before joins look for any, by the schedules of the joins."""
        others = _of_others(plan, self._queries)
        self._alone = {join: front for join, front in self._fronts.items() if front.schedule not in others}
        """Those that are there for joins alone."""
        alone = {front.schedule for front in self._alone.values()}
        self._drops = [drop for drop in drops if drop.units.schedule not in alone]
        self._above = {**_above(plan, self._drops), **_above(plan, self._joins)}
        self._is_ahead = bool(self._drops)
        """Whether decisions are about windows that later micro-batches look into, not only about this one's looks."""
        self._looks = Looks(self._joins)
        self._rows_before: dict[str, tuple[int, int]] = {}
        self._subjects = _subjects(plan, self._queries)
        """The queries that schedules are for."""
        self._figures: dict[str, float] = {}
        """What was decided from last."""
        if (known := log.last_state(SHEDDING)) is not None:
            self._take_over(known)
        self._divided = dict(self._budgets.parts)
        """How memory was divided when that was decided last."""

    # What the network calls

    def begin(self, batch_id: int, amounts: Sequence[float]) -> dict[str, Any]:
        """Decide about a micro-batch, or find what was decided before, and return what its tasks are to be told.

        `amounts` is what each of its sources has for it, in whatever unit.
        """
        if not self._schedules.all and not self._joins and not self._budgets.parts:
            return {}
        self._expected = self._expectation.rows(amounts)
        if self._last is not None:
            self._between.append(time.monotonic() - self._ended)
        known = self._log.state(SHEDDING, batch_id)
        if known is not None:
            self._take_over(known)
        else:
            before = self._fractions()
            self._decide()
            self._log.write(SHEDDING, batch_id, self._decisions(batch_id, before), self._values())
        self._divided = dict(self._budgets.parts)
        self._span = self._waited()
        self._begun = time.monotonic()
        return {**self._schedules.for_tasks(), **self._choices.for_tasks(), **self._budgets.for_tasks()}

    def done(
        self,
        progress: Progress,
        dropped: Mapping[str, Sequence[int]],
        counted: Mapping[str, Sequence[Mapping[str, Any]]],
        demands: Mapping[str, Mapping[int, Sequence[Demand]]] = NO_DEMANDS,
        first: int | None = None,
    ) -> None:
        """Learn from a micro-batch that is done.

        `counted` is what buckets of joins that choose have counted in it, `demands` how much memory those of joins that
        give up rows would use; `first` is the first instant that was ever read.
        """
        batch = progress.course[-1] if progress.course else None
        passed = self._passed(dropped)
        for front in self._fronts.values() if batch is not None and batch.rows_in else ():
            front.note(passed.get(front.drop, 1.0), progress.newest or 0)
        self._choices.learn(counted, {join: front.kept_pairs for join, front in self._fronts.items()})
        passed = {drop: share for drop, share in passed.items() if drop in self._above}
        known = self._schedules.newest if self._schedules.newest is not None or first is None else first - 1
        if progress.newest is not None:
            self._schedules.read_until(progress.newest, progress.closed)
        if batch is not None and batch.rows_in:
            work = []
            for name, each in counted.items():
                (total, looked), unit = self._looks.note(name, each, batch.rows_in, progress.newest or 0)
                passed |= self._looked(self._choices.joins[name].id, total, looked)
                work.append(unit)
            parts = self._parts()
            lost = sum(parts[drop] * (1 - share) for drop, share in passed.items())
            kept = batch.rows_in * (sum(work) / len(work) if work else 1.0) * max(1 - lost, 0.0)
            before = [1 - front.kept[0] for front in self._fronts.values()]
            lost_before = round(batch.rows_in * sum(before) / max(len(before), 1))
            busy = _busy(progress.figures)
            observed = Observed(batch.rows_in, round(kept), batch.seconds, lost_before, max(busy - self._busy, 0.0))
            self._busy = busy
            self._controller.observe(observed)
            self._expectation.learn(batch.rows_in)
            self._follow_rate(progress, batch.rows_in, batch.seconds, known)
        self._budgets.learn(demands)
        self._last = progress
        self._ended = time.monotonic()

    def most_times(self) -> float | None:
        """Return how many times as much as the last micro-batch the next one is to have at most; None: no matter."""
        most = self._controller.most_rows(self._bound())
        self._is_limited = most is not None
        read = 0 if self._last is None or not self._last.course else self._last.course[-1].rows_in
        return None if most is None else most / max(read, 1)

    # What users ask

    def shed(self, query: str, fraction: float) -> bool:
        """Lose a share of what a query can lose, whatever the load; none: as the load wants it.

        Tells whether it can lose anything.
        """
        units = units_of_query(self._plan, query)
        names = choices_of_query(self._plan, query) or ([] if units is None else [units.schedule])
        for name in names:
            self._asked.pop(name, None)
            if fraction > 0:
                self._asked[name] = fraction
        return bool(names)

    def losses(
        self,
        progress: Progress,
        dropped: Mapping[str, Sequence[int]],
        firsts: int | None,
        pairs: Mapping[str, PairCounts],
    ) -> list[Loss]:
        """Return what the queries have lost."""
        spans = {
            query: (firsts, min(last, progress.newest if progress.newest is not None else last))
            for query, last in progress.instants.items()
            if firsts is not None
        }
        spans = {query: span for query, span in spans.items() if span[1] >= span[0]}

        def passing(operator: str) -> tuple[int, int]:
            taken, passed = dropped.get(operator, (0, 0))
            return taken, passed

        return losses_of(
            self._plan, self._queries, self._schedules.all, self._choices, passing, spans, pairs, self._why
        )

    def _why(self, schedule: str) -> str:
        if schedule in self._asked:
            return "by hand"
        return "suspended" if schedule in self._controller.suspended else "load"

    # Deciding

    def _decide(self) -> None:
        waiting, bound = self._waiting(), self._bound()
        ticks = waiting / self._rate * self._second if self._rate else 0.0
        waited = self._waited()
        rate = self._rate or (waiting / waited if waited else 0.0)
        has_begun = any(self._schedules.keeps_begun(drop.units.schedule) for drop in self._drops)
        self._figures = {"waiting": waiting, "rate": rate, "waited": waited}
        load = Load(waiting, rate, self._looks.work(waiting, ticks), self._is_ahead, waited, has_begun)
        shares = self._shares(load.work)
        given_up = self._controller.given_up(load, shares, bound) if self._gives_up else 0.0
        load = load.without(given_up)
        found = self._controller.fractions(load, shares, bound.batch)
        for join, front in self._alone.items():
            if join not in self._asked:
                found[front.schedule], found[join] = front.split(found[join], shares[join].most - 1)
        until = self._instant_of(given_up, waiting) if given_up else None
        for name in self._schedules.all:
            asked = self._asked.get(name)
            fraction = found.get(name, 0.0) if asked is None else asked
            self._schedules.decide(name, fraction, until if asked is None and name in shares else None)
        for join in self._choices.joins:
            before = self._fronts.get(join)
            kept = 1.0 if before is None else 1 - self._schedules.all[before.schedule].wanted
            younger = self._looks.younger(kept * waiting, ticks, {} if before is None else before.passed)
            self._choices.decide(join, self._asked.get(join, found.get(join, 0.0)), younger)

    def _waiting(self) -> float:
        """Return how many rows wait to be read, as far as can be known.

        Sources know what they hand out now; by the clock, there may be more behind that. Not if they were told to hand
        out a part: then what they have is all that there will be.
        """
        progress = self._last
        if progress is None or not progress.course:
            return self._expected or 0.0
        behind = self._behind(progress)
        if behind is not None and not self._is_limited and not self._was_idle:
            return max(self._expected or 0.0, self._rate * behind)
        return float(progress.course[-1].rows_in) if self._expected is None else self._expected

    @property
    def _was_idle(self) -> bool:
        """Whether there was nothing to do for most of the time since the last micro-batch began."""
        return time.monotonic() - self._ended > max(self._ended - self._begun, SHORTEST_IDLENESS)

    def _waited(self) -> float:
        """Return for how many seconds the first of the rows that wait have waited."""
        if self._was_idle:
            return 0.0
        behind = None if self._last is None else self._behind(self._last)
        return time.monotonic() - self._begun if behind is None else behind

    def _instant_of(self, share: float, waiting: float) -> int | None:
        """Return the instant before which a share of the rows that wait are, the first ones; None if nobody knows."""
        newest, progress = self._schedules.newest, self._last
        if newest is None or progress is None:
            return None
        behind = self._behind(progress)
        if behind is not None:
            return newest + round(share * behind * self._second)
        return newest + round(share * waiting / self._density) if self._density else None

    def _behind(self, progress: Progress) -> float | None:
        """Return for how many seconds rows have been coming that are not read yet; None if that is not known.

        Rows may come late by the clock, all of them.
        """
        newest = self._schedules.newest
        if progress.time is not TimeDomain.TIMESTAMP or newest is None:
            return None
        seconds = time.time() - newest / 1e6
        return max(seconds - min(self._offsets, default=0.0), 0.0) if 0 <= seconds < LONGEST_LAG else None

    def _follow_rate(self, progress: Progress, rows: int, seconds: float, before: int | None) -> None:
        """Learn how many rows come in a second: by their own time if that is the one on the wall."""
        newest = progress.newest
        span = 0 if before is None or newest is None else newest - before
        self._density = rows / span if span > 0 else 0.0
        if progress.time is TimeDomain.TIMESTAMP and newest is not None and not self._is_limited:
            behind = time.time() - (time.monotonic() - self._begun) - newest / 1e6
            self._offsets.extend([behind] if 0 <= behind < LONGEST_LAG else [])
        if self._density and self._behind(progress) is not None:
            self._rate = self._density * self._second
        else:
            self._rate = rows / max(seconds, self._span, 0.1)

    def _bound(self) -> Bound:
        """Return the bound that answers are to keep; what the host needs is no less than the shortest pause of late."""
        latency = min((each or UNBOUNDED_LATENCY for each in self._latencies), default=UNBOUNDED_LATENCY)
        return Bound(latency, self._delay, min(self._between, default=0.0))

    @property
    def _latencies(self) -> list[float | None]:
        levels = [service_level(query.options, query.settings) for query in self._queries]
        return [level.max_latency for level in levels if level.policy != "none"]

    @property
    def _gives_up(self) -> bool:
        """Whether what waits for too long is given up as a whole: not if nobody has said what is too late.

        Joins that choose leave out looks of whatever waits.
        """
        return not self._joins and all(each is not None for each in self._latencies)

    def _shares(self, work: float) -> dict[str, Share]:
        parts, found = self._parts(), dict[str, Share]()
        for drop in self._drops:
            units = drop.units
            served = [query for query in self._queries if units_of_query(self._plan, query.name) == units]
            weight = sum(service_level(query.options, query.settings).weight for query in served)
            most = 1.0
            if drop.goes_by_instants:
                most = most_lost(units.batch)
            elif self._dual_above(drop):
                weight *= LAST_RESORT
            before = found[units.schedule].part if units.schedule in found else 0.0
            unit = self._seconds_at_once(drop) if drop.goes_by_instants else 0.0
            found[units.schedule] = Share(before + parts[drop.id], drop.saved, most, weight, unit)
        for join in self._joins:
            served = [query for query in self._queries if join.schedule in choices_of_query(self._plan, query.name)]
            weight = sum(service_level(query.options, query.settings).weight for query in served)
            decider = self._choices.deciders[join.schedule]
            drops = [drop for drop in self._drops if join in self._dual_above(drop)]
            most = decider.best_fraction if drops and isinstance(decider, Skipping) else 1.0
            if join.schedule in self._alone:
                most += self._passing(parts[join.id] * work)
            found[join.schedule] = Share(parts[join.id], 1.0, most, weight)
        return found

    def _seconds_at_once(self, drop: op.SourceDrop) -> float:
        """Return of how many seconds all rows are passed if any units are kept."""
        granule = self._schedules.all[drop.units.schedule].granule
        return ((granule - 1) * drop.units.length + drop.reach) / self._second

    def _passing(self, looking: float) -> float:
        """Return what it takes to let rows come to a join, beside looking at all that they could look at."""
        costs = self._controller.costs
        return max(costs.read - costs.lost, 0.0) / max(looking * costs.kept, 1e-12)

    def _dual_above(self, drop: op.Operator) -> list[op.PartialJoin]:
        """Return the joins that leave out comparisons before a drop operator leaves out rows."""
        return [join for join in self._joins if join.counts_rows and join.id in self._above[drop.id]]

    def _parts(self) -> dict[str, float]:
        """Return which part of the work on a row each drop operator stands in front of.

        That is the time of the operators above it, for each row that it passed; an operator above several counts for
        a part with each. So it is with joins that leave out looks, and drop operators below these count for all of it,
        too. As long as no times are known, all are taken to be equal.
        """
        figures = () if self._last is None else self._last.figures
        seconds = {each.name: each.seconds or 0.0 for each in figures if each.kind == "operator"}
        times: dict[str, float] = {}
        for drop, above in self._above.items():
            taken, passed = self._rows_before.get(drop, (0, 0))
            own = sum(seconds.get(operator, 0.0) * share for operator, share in above.items())
            times[drop] = own * taken / passed if passed else 0.0
        shed = {operator for above in self._above.values() for operator in above}
        rest = sum(each for operator, each in seconds.items() if operator not in shed)
        total = rest + max(sum(times[each.id] for each in group) for group in (self._drops, self._joins))
        return {drop: time / total if total > 0 else 1 / len(times) for drop, time in times.items()}

    def _passed(self, dropped: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Return which share of their rows drop operators have passed since the last time."""
        found = {}
        for operator, (now_taken, now_passed) in dropped.items():
            taken, passed = self._rows_before.get(operator, (0, 0))
            self._rows_before[operator] = (now_taken, now_passed)
            found[operator] = (now_passed - passed) / (now_taken - taken) if now_taken > taken else 1.0
        return found

    def _looked(self, join: str, total: int, done: int) -> dict[str, float]:
        """Add to the work of a join; return the share of it that it has done."""
        before = self._rows_before.get(join, (0, 0))
        self._rows_before[join] = before[0] + total, before[1] + done
        return {join: done / total if total else 1.0}

    # The log

    def _fractions(self) -> dict[str, float]:
        """Return which share of its work each schedule is to lose."""
        shares = {name: schedule.wanted for name, schedule in self._schedules.all.items()}
        return shares | {name: decider.fraction for name, decider in self._choices.deciders.items()}

    def _decisions(self, batch_id: int, before: Mapping[str, float]) -> list[Decision]:
        """Return what has been decided anew for a micro-batch, given which shares were lost before."""
        shares = [
            Decision(
                batch_id,
                SHEDDING,
                self._subjects.get(name, name),
                {"schedule": name, "fraction": fraction},
                {**self._figures, "fraction before": before[name]},
                self._why(name) if fraction else "within the bound",
            )
            for name, fraction in self._fractions().items()
            if fraction != before[name]
        ]
        budgets = [
            Decision(batch_id, SHEDDING, join, {"budgets": parts}, {}, "memory by worth")
            for join, parts in self._budgets.parts.items()
            if parts != self._divided[join]
        ]
        return shares + budgets

    def _values(self) -> dict[str, Any]:
        """Return everything that is needed to go on."""
        return {
            **self._schedules.to_values(),
            "choices": self._choices.to_values(),
            "budgets": self._budgets.for_tasks(),
            "asked": self._asked,
            "costs": self._controller.values(),
        }

    def _take_over(self, values: Mapping[str, Any]) -> None:
        self._schedules.take_over(values)
        self._choices.take_over(values["choices"])
        self._budgets.take_over(values.get("budgets", {}))
        self._controller.take_over(values.get("costs", {}))
        known = self._schedules.all.keys() | self._choices.joins.keys()
        self._asked = {name: fraction for name, fraction in values["asked"].items() if name in known}


def _subjects(plan: Plan, queries: Sequence[QueryDef]) -> dict[str, str]:
    """Return the names of the queries that each schedule is for."""
    names: dict[str, list[str]] = {}
    for query in queries:
        units = units_of_query(plan, query.name)
        for schedule in [*([] if units is None else [units.schedule]), *choices_of_query(plan, query.name)]:
            names.setdefault(schedule, []).append(query.name)
    return {schedule: ", ".join(own) for schedule, own in names.items()}


def _busy(figures: Sequence[Figures]) -> float:
    """Return how many seconds operators have worked."""
    return sum(each.seconds or 0.0 for each in figures if each.kind == "operator")


def _of_others(plan: Plan, queries: Sequence[QueryDef]) -> set[str]:
    """Return the schedules of queries without joins that choose."""
    found = (units_of_query(plan, query.name) for query in queries if not choices_of_query(plan, query.name))
    return {units.schedule for units in found if units is not None}


def _ticks_of_a_second(source: op.Source) -> int:
    assert source.time is not None
    return Unit.SECOND.value // source.time.microseconds_per_tick


def _above(plan: Plan, drops: Sequence[op.Operator]) -> dict[str, dict[str, float]]:
    """Return for each drop operator those above it, each with its share: 1, or less if it is above several."""
    found: dict[str, set[str]] = {drop.id: {drop.id} for drop in drops}
    for operator in plan.operators:
        for above in found.values():
            if any(each.operator in above for each in operator.inputs):
                above.add(operator.id)
    times = Counter(operator for above in found.values() for operator in above)
    return {drop: {operator: 1 / times[operator] for operator in above} for drop, above in found.items()}
