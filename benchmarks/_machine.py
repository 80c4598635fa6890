"""What the machine does beside a benchmark: time of its processors that other machines on the same host were given.

Linux counts it (`steal` in /proc/stat). It has nothing to do with what is measured, so that a run during which much of
it was stolen can be repeated whatever came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

MOST_STOLEN = 0.08
"""Runs with a larger share of stolen time are repeated."""

ATTEMPTS = 3

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


def undisturbed(run: Callable[Arguments, Outcome], *args: Arguments.args, **named: Arguments.kwargs) -> Outcome:
    """Return the outcome of a run that had nearly all the time it wanted: of a few attempts, the least disturbed."""
    found: list[tuple[float, Outcome]] = []
    while len(found) < ATTEMPTS:
        stolen, busy = _stolen_and_busy()
        outcome = run(*args, **named)
        now_stolen, now_busy = _stolen_and_busy()
        share = (now_stolen - stolen) / max(now_stolen - stolen + now_busy - busy, 1)
        found.append((share, outcome))
        if share <= MOST_STOLEN:
            break
        print(f"  {share:.0%} of the time of this run went to other machines", flush=True)
    return min(found, key=lambda each: each[0])[1]


def _stolen_and_busy() -> tuple[int, int]:
    """Return how long processors worked for others, and for this machine; nothing where nobody counts."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0, 0
    user, nice, system, _, _, irq, soft, steal = (int(each) for each in path.read_text().split("\n", 1)[0].split()[1:9])
    return steal, user + nice + system + irq + soft
