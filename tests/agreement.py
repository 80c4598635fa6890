"""Whether two results, or two plans on some data, say the same: netted per instant, DOUBLEs up to their last digits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from cql.bound import Rel
from planner.rewriting import AppliedRule
from planner.text import plan_text
from tests.definition import Result, Row, Value, evaluate
from tests.definition.plans import meaning
from tests.random_data import Data, minimise, report

DIGITS = 9
"""How many digits of a DOUBLE count: sums may be taken in another order."""


def disagreement(expected: Result, actual: Result) -> str | None:
    """Return where two results differ, a line for each row of each instant; None if they agree."""
    if expected.changes == actual.changes:
        return None
    lines = []
    for instant in sorted(expected.changes.keys() | actual.changes.keys()):
        wanted, found = _rounded(expected.changes.get(instant)), _rounded(actual.changes.get(instant))
        for row in sorted(wanted.keys() | found.keys(), key=repr):
            if wanted[row] != found[row]:
                lines.append(f"at {instant}: {row} expected {wanted[row]:+d} times, found {found[row]:+d}")
    return "\n".join(lines) or None


def _rounded(bag: Counter[Row] | None) -> Counter[Row]:
    rounded: Counter[Row] = Counter()
    for row, count in (bag or {}).items():
        rounded[tuple(_value(value) for value in row)] += count
    return rounded


def _value(value: Value) -> Value:
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") + 0.0 if math.isfinite(value) else str(value)


def plans_disagree(before: Rel, after: Rel, data: Data) -> str | None:
    """Return where the answers of two plans differ, or how the second one fails; None if they agree."""
    expected = evaluate(meaning(before), data)
    try:
        actual = evaluate(meaning(after), data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return disagreement(expected, actual)


def plans_report(query: str, before: Rel, after: Rel, data: Data, steps: Sequence[AppliedRule] = ()) -> str:
    """Return what there is to know about two plans that disagree, on as little data as possible.

    With the steps in between, it is about the first step that is wrong.
    """
    smallest = minimise(data, lambda fewer: plans_disagree(before, after, fewer) is not None)
    rule = "?"
    wrong = next((step for step in steps if plans_disagree(before, step.after, smallest) is not None), None)
    if wrong is not None:
        rule, before, after = wrong.rule, wrong.before, wrong.after
        smallest = minimise(smallest, lambda fewer: plans_disagree(before, after, fewer) is not None)
    return report(
        query,
        smallest,
        rule=rule,
        before=plan_text(before),
        after=plan_text(after),
        difference=plans_disagree(before, after, smallest) or "",
    )
