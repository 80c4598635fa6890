"""What operators that lose something do, in words: units and sizes, what a lost share saves, and whom it affects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cql.intervals import TimeDomain, duration_text
from planner import operators as op

if TYPE_CHECKING:
    from planner.plan import Plan


def details(plan: Plan, operator: op.Operator) -> Iterator[str]:
    """Yield lines about an operator that loses something by a schedule; none about any other."""
    time = next((s.time for s in plan.below(operator) if isinstance(s, op.Source) and s.time is not None), None)
    match operator:
        case op.WindowDrop():
            yield from _sizes(operator, time)
            yield f"affects {', '.join(plan.users[operator.id])}; other queries read the source itself"
        case op.RandomDrop():
            yield f"rows are chosen by a hash of their instants and values, with seed {operator.units.seed}"
            yield f"affects {', '.join(plan.users[operator.id])}; other queries read the source itself"
        case op.SelectiveJoin():
            yield "rows look at the ages of the other window that match most, and a few at all of them, to learn which"
        case op.DualJoin():
            yield "rows that find fewest others do not look for them; they are found all the same"
        case op.KeepWindows() | op.Hold():
            units = operator.units
            every = f"; answers change every {duration_text(operator.grain, time)}" if operator.grain > 1 else ""
            yield f"units of {duration_text(units.length, time)}, at most {units.batch} lost in a row{every}"


def _sizes(drop: op.WindowDrop, time: TimeDomain | None) -> Iterator[str]:
    units, formula = drop.units, duration_text(drop.formula, time)
    rule = "by the paper's rule as well" if drop.formula == drop.size else f"by the paper's rule {formula}"
    yield (
        f"kept: the last {duration_text(drop.size, time)} of each kept unit ({rule}); "
        f"units of {duration_text(units.length, time)}, at most {units.batch} lost in a row"
    )
    freed = max(0, (units.batch + 1) * units.length - drop.size)
    if freed:
        yield f"saves {50 * freed / (units.batch * units.length):.0f} % of the rows when half of the units are lost"
    else:
        fewest = drop.size // units.length
        yield f"saves no rows: windows overlap too much, that would take a gap of {fewest} units"
