"""Whether two results are the same: netted per instant, DOUBLEs up to their last digits."""

from __future__ import annotations

import math
from collections import Counter

from tests.definition import Result, Row, Value

DIGITS = 9
"""How many digits of a DOUBLE count: sums may be taken in another order."""


def disagreement(expected: Result, actual: Result) -> str | None:
    """Return the instants at which two results differ, as text with a line for each row; None if they agree."""
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
