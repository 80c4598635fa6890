"""What queries lost: how much of their time was kept, which units were not, and how many rows never came in.

Made from a plan, its schedules and the counters of its operators, of either engine. A consumer can tell from it whether
an answer is missing because there was none or because its unit was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from cql.catalog import QueryDef
from cql.errors import Code, CqlError, fail
from cql.service import ServiceLevel, service_level
from cql.session import Listing
from planner import operators as op
from planner.plan import Plan
from shedding.insert_drops import choices_of_query, units_of_query
from shedding.join_deciders import Choices
from shedding.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instants from a first to a last one, all of them of kept units or all of lost ones."""

    first: int
    last: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """What a query that sheds has lost so far.

    `units` were begun, of which `lost_units` were lost, never more than `longest_gap` in a row; `stretches` has the
    last of them, in ticks. `fraction` is what is being lost now, `wanted` what was last asked for; if its gap does not
    allow that much, it is not `is_feasible`. `rows_dropped` counts rows that were read and never processed.
    """

    query: str
    level: ServiceLevel
    schedule: str
    fraction: float
    wanted: float
    is_feasible: bool
    units: int
    lost_units: int
    longest_gap: int
    rows_dropped: int
    stretches: tuple[Stretch, ...]
    why: str = ""
    """Why something is being lost: load, suspended (its gap cannot be kept), by hand, memory; nothing if nothing is."""
    recall: float | None = None
    """Of a join that gives up rows or comparisons, which share of its pairs it has found, as far as one can tell."""


class PairCounts(NamedTuple):
    """The pairs that a join which gives up rows could have found, as far as one can tell, those that it has found, and
    how many rows it has given up."""

    expected: int
    found: int
    rows_given_up: int


def added_up(counts: Iterable[Sequence[int]]) -> PairCounts:
    """Return what several buckets have found."""
    return PairCounts(*(sum(each) for each in zip(*counts, strict=True)))


def losses_of(
    plan: Plan,
    queries: Iterable[QueryDef],
    schedules: Mapping[str, Schedule],
    choices: Choices,
    passing: Callable[[str], tuple[int, int]],
    spans: Mapping[str, tuple[int, int]],
    pairs: Mapping[str, PairCounts],
    why: Callable[[str], str],
) -> list[Loss]:
    """Return what the queries of a plan that shed have lost.

    `passing` counts the rows that a drop operator has taken and passed; `spans` are the first instant of each query and
    the last one that is complete; `pairs` is what joins that give up rows have found. `why` says of a schedule that
    loses units what makes it so.
    """
    found: list[Loss] = []
    for query in queries:
        units = units_of_query(plan, query.name)
        below = list(plan.below(plan.output(query.name)))
        drops = [passing(each.id) for each in below if isinstance(each, op.SourceDrop)]
        joined = next((pairs[each.id] for each in below if each.id in pairs), None)
        chosen = choices_of_query(plan, query.name)
        if joined is not None:
            found.append(_given_up(query, joined))
        if chosen:
            found.append(_left_out(query, chosen, choices, drops, why))
        if units is None or chosen:
            continue
        found.append(_lost_units(query, below, schedules[units.schedule], units, spans.get(query.name), drops, why))
    return found


def _lost_units(
    query: QueryDef,
    below: Sequence[op.Operator],
    schedule: Schedule,
    units: op.Units,
    span: tuple[int, int] | None,
    drops: Sequence[tuple[int, int]],
    why: Callable[[str], str],
) -> Loss:
    """Return what a query has lost that loses units of time."""
    top = next((operator for operator in below if isinstance(operator, op.KeptUnits)), None)
    stretches = _stretches(schedule, top, span) if top and span is not None else ()
    lost = [_units(stretch, units.length) for stretch in stretches if not stretch.is_kept]
    return Loss(
        query=query.name,
        level=service_level(query.options, query.settings),
        schedule=units.schedule,
        fraction=schedule.fraction,
        wanted=schedule.wanted,
        is_feasible=top is None or schedule.is_feasible,
        units=sum(_units(stretch, units.length) for stretch in stretches),
        lost_units=sum(lost),
        longest_gap=max(lost, default=0),
        rows_dropped=sum(taken - passed for taken, passed in drops),
        stretches=stretches,
        why=why(units.schedule) if schedule.wanted > 0 else "",
    )


def _given_up(query: QueryDef, pairs: PairCounts) -> Loss:
    level = service_level(query.options, query.settings)
    recall = pairs.found / pairs.expected if pairs.expected else 1.0
    why = "memory" if pairs.rows_given_up else ""
    return Loss(query.name, level, "", 0.0, 0.0, True, 0, 0, 0, pairs.rows_given_up, (), why, recall)


def _left_out(
    query: QueryDef,
    joins: Sequence[str],
    choices: Choices,
    drops: Sequence[tuple[int, int]],
    why: Callable[[str], str],
) -> Loss:
    """Return what a query has lost whose joins look at a part, perhaps of what is left of streams that lose rows.

    In a window of the last rows, a row that is not lost finds as many others as without losses. What was lost of
    windows of time is in the recall of their joins.
    """
    level, deciders = service_level(query.options, query.settings), [choices.deciders[name] for name in joins]
    recalls = [recall for each in deciders if (recall := each.recall()) is not None]
    of_rows = any(choices.joins[name].counts_rows for name in joins)
    kept = min((passed / taken for taken, passed in drops if taken and of_rows), default=1.0)
    fraction = max(each.fraction for each in deciders)
    cause = next((why(name) for name, each in zip(joins, deciders, strict=True) if each.fraction > 0), "")
    rows = sum(taken - passed for taken, passed in drops)
    recall = kept * prod(recalls)
    return Loss(query.name, level, joins[0], fraction, fraction, True, 0, 0, 0, rows, (), cause, recall)


def _stretches(schedule: Schedule, top: op.KeptUnits, span: tuple[int, int]) -> tuple[Stretch, ...]:
    """Return the kept and lost stretches of all units that have begun."""
    length, grain = schedule.length, top.grain
    first, last = (-(-(instant // grain * grain) // length) for instant in span)
    return tuple(
        Stretch((run.first - 1) * length + grain, (run.last - 1) * length + grain - 1, is_kept)
        for run, is_kept in schedule.runs(first, last + 1)
    )


def _units(stretch: Stretch, length: int) -> int:
    return (stretch.last - stretch.first + 1) // length


def cannot_shed(query: str) -> CqlError:
    """Return the error that a query that is to lose something did not ask for that, or loses rows of its own accord."""
    hint = "WITH (shedding = 'auto') asks for it; joins that are short of memory lose what does not fit, no more"
    return fail(Code.CANNOT_SHED, f"the query '{query}' does not shed anything by hand", hint=hint)


def losses_listing(queries: Sequence[QueryDef], losses: Sequence[Loss]) -> Listing:
    """Return what SHOW SHEDDING shows: a line for each query that asks for shedding, figures if it has run."""
    asked_for = ("query", "policy", "max gap", "weight", "max latency")
    happened = ("units", "lost", "longest gap", "rows dropped", "fraction", "wanted", "schedule", "recall", "why")
    by_query = {loss.query: loss for loss in losses}
    rows = []
    for query in queries:
        level = service_level(query.options, query.settings)
        if level.policy == "none":
            continue
        latency = "off" if level.max_latency is None else f"{level.max_latency:g} s"
        loss = by_query.get(query.name)
        policy = f"auto: {_policy_of(loss)}" if level.policy == "auto" and loss is not None else level.policy
        asked = (query.name, policy, str(level.max_gap), f"{level.weight:g}", latency)
        rows.append((*asked, *(_figures(loss) if loss else ("",) * len(happened))))
    return Listing((*asked_for, *happened), tuple(rows))


def _policy_of(loss: Loss) -> str:
    """Return the policy by which a query sheds that left the choice to us."""
    if not loss.schedule:
        return "prob"
    known = {"selective": "selective", "dual": "dual", "rows": "random"}
    return known.get(loss.schedule.split()[0], "window")


def _figures(loss: Loss) -> tuple[str, ...]:
    if loss.recall is not None:
        shares = (f"{loss.fraction:.3g}", f"{loss.wanted:.3g}") if loss.schedule else ("", "")
        return ("", "", "", str(loss.rows_dropped), *shares, loss.schedule, f"{loss.recall:.1%}", loss.why)
    wanted = f"{loss.wanted:.3g}" + ("" if loss.is_feasible else " (more than the gap allows)")
    counted = (loss.units, loss.lost_units, loss.longest_gap, loss.rows_dropped)
    return (*map(str, counted), f"{loss.fraction:.3g}", wanted, loss.schedule, "", loss.why)


def losses_text(table: str, late: int, skipped: int) -> list[str]:
    """Return a line that says how many rows of a table were left out, and why; none if there were none."""
    reasons = [f"{late} {'row' if late == 1 else 'rows'} came too late"] if late else []
    reasons += [f"{skipped} {'row was' if skipped == 1 else 'rows were'} bad"] if skipped else []
    return [f"{table}: left out: {', '.join(reasons)}"] if reasons else []
