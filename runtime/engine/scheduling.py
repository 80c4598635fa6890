"""Scheduling: which operator runs next (thesis section 2.3.2). Policies change memory and latency, never results.

An arrival is a batch at a source; what is computed from it carries its number. FIFO takes the oldest arrival through
all operators before the next one. Greedy runs the operator that frees most memory per second. Chain looks at whole
stretches of a path: the segments of the lower envelope of its progress chart, the steepest first and, inside a
segment, the oldest arrival first. Every policy picks something whenever anything waits, so finite input drains.

Sizes are bytes: a projection to fewer columns frees memory too. Slopes follow the measurements, and are computed
anew only now and then, because a decision must cost little.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from cql.errors import Code, fail, nearest, one_of
from planner.chains import lower_envelope
from planner.costs import Estimate
from planner.plan import Plan

Path = tuple[str, ...]
"""The operators that elements pass, by id: a source first, an output last."""

RARELY = 1_000
"""After how many decisions slopes are computed anew; early on, when estimates still move, more often."""


class Ready(NamedTuple):
    """Something that can run: an input of an operator, and what waits there."""

    operator: str
    port: int
    arrival: int
    elements: int
    nbytes: int


class Measured(Protocol):
    """What is known of operators while they run."""

    def estimate(self, operator: str) -> Estimate:
        """Return the seconds that one input element takes, and how many come out for it."""

    def width(self, operator: str) -> float:
        """Return the bytes of an element that an operator puts out."""


class Scheduler(ABC):
    """Decides who runs next. The executor asks before every step."""

    @abstractmethod
    def next(self, ready: Sequence[Ready]) -> int:
        """Return the position of the one to run; there is at least one."""


class Fifo(Scheduler):
    """The oldest arrival first; of several operators that hold a part of it the one furthest along its path."""

    def __init__(self, operators: Sequence[str]) -> None:
        self._steps = {operator: at for at, operator in enumerate(operators)}

    def next(self, ready: Sequence[Ready]) -> int:
        best, oldest, furthest = 0, ready[0].arrival, self._steps[ready[0].operator]
        for at, (operator, _, arrival, _, _) in enumerate(ready):
            if arrival <= oldest:
                step = self._steps[operator]
                if arrival < oldest or step > furthest:
                    best, oldest, furthest = at, arrival, step
        return best


class RoundRobin(Scheduler):
    """The one that has not run for the longest time, as in STREAM 0.6."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, int], int] = {}
        self._turn = 0

    def next(self, ready: Sequence[Ready]) -> int:
        turns = [self._turns.get(each[:2], -1) for each in ready]
        best = turns.index(min(turns))
        self._turns[ready[best][:2]] = self._turn
        self._turn += 1
        return best


class Steepest(Scheduler):
    """The operator with the steepest slope first; equal slopes are FIFO.

    An operator on several paths has its steepest slope of all; one on none comes last.
    """

    def __init__(self, operators: Sequence[str], paths: Sequence[Path], measured: Measured) -> None:
        self._fifo = Fifo(operators)
        self._operators = operators
        self._paths = paths
        self._measured = measured
        self._decisions = 0
        self._refresh_at = 0
        self.slopes: dict[str, float] = {}

    @abstractmethod
    def slopes_of(self, costs: Sequence[float], shrinking: Sequence[float]) -> Iterator[float]:
        """Yield the slope of each step of a path, from its seconds per byte and the bytes left of each byte."""

    def next(self, ready: Sequence[Ready]) -> int:
        if self._decisions == self._refresh_at:
            self.refresh()
            self._refresh_at += min(self._decisions + 1, RARELY)
        self._decisions += 1
        slopes = [self.slopes[each.operator] for each in ready]
        steepest = max(slopes)
        if slopes.count(steepest) == 1:
            return slopes.index(steepest)
        tied = [at for at, slope in enumerate(slopes) if slope == steepest]
        return tied[self._fifo.next([ready[at] for at in tied])]

    def refresh(self) -> None:
        """Compute the slopes anew from what has been measured."""
        estimates = {operator: self._measured.estimate(operator) for operator in self._operators}
        widths = {operator: max(self._measured.width(operator), 1.0) for operator in self._operators}
        slopes = dict.fromkeys(self._operators, float("-inf"))
        for path in self._paths:
            steps = list(pairwise(path))
            costs = [estimates[reader].cost / widths[producer] for producer, reader in steps]
            shrinking = [
                estimates[reader].selectivity * widths[reader] / widths[producer] for producer, reader in steps
            ]
            for (_, operator), slope in zip(steps, self.slopes_of(costs, shrinking), strict=True):
                slopes[operator] = max(slopes[operator], slope)
        self.slopes = slopes


class Greedy(Steepest):
    """The operator that by itself frees most memory per second; a good one behind a poor one may wait long."""

    def slopes_of(self, costs: Sequence[float], shrinking: Sequence[float]) -> Iterator[float]:
        for cost, left in zip(costs, shrinking, strict=True):
            yield lower_envelope([cost], [left])[0].slope


class SteepestChain(Steepest):
    """The chain that frees most memory per second; close to what is possible at all."""

    def slopes_of(self, costs: Sequence[float], shrinking: Sequence[float]) -> Iterator[float]:
        for segment in lower_envelope(costs, shrinking):
            yield from [segment.slope] * (segment.last - segment.first)


POLICIES = ("fifo", "round-robin", "greedy", "chain")


def scheduler(policy: str, plan: Plan, measured: Measured) -> Scheduler:
    """Return a scheduler for a plan."""
    operators = [operator.id for operator in plan.operators]
    match policy:
        case "fifo":
            return Fifo(operators)
        case "round-robin":
            return RoundRobin()
        case "greedy":
            return Greedy(operators, paths_of(plan), measured)
        case "chain":
            return SteepestChain(operators, paths_of(plan), measured)
    raise fail(
        Code.UNKNOWN_OPTION,
        f"there is no scheduling policy '{policy}'",
        hint=f"policies are {one_of(POLICIES)}",
        candidates=nearest(policy, POLICIES, most=1),
    )


def paths_of(plan: Plan) -> list[Path]:
    """Return the paths of a plan, each once."""
    paths = ((path.source, *(each for chain in path.chains for each in chain.operators)) for path in plan.paths)
    return list(dict.fromkeys(paths))
