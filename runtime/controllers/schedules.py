"""The schedules of a network, where they are decided: verdicts that somebody has gone by never change.

Tasks go by what they are told with each micro-batch, and draw further verdicts from there, all of them the same. So a
decision is about units of which nothing has been read: those after the newest instant, and after all windows that
hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner import operators as op
from planner.plan import Plan
from shedding.insert_drops import schedules_of
from shedding.schedule import Schedule


class DecidedSchedules:
    """The schedules of a plan, and how far sources have been read."""

    def __init__(self, plan: Plan) -> None:
        self.all = schedules_of(plan)
        self.newest: int | None = None
        """The newest instant that anybody has read."""
        self._closed: int | None = None
        self._reach: dict[str, int] = {}
        """How far ahead of a row's instant verdicts are asked for, by schedule."""
        for operator in plan.operators:
            if isinstance(operator, op.SourceDrop):
                name = operator.units.schedule
                self._reach[name] = max(self._reach.get(name, 0), operator.reach)

    def decide(self, name: str, fraction: float, given_up_until: int | None = None) -> None:
        """Lose a share of the units of a schedule, from the first one on that nothing has been read of.

        All of them that need rows up to some instant are lost if these are given up.
        """
        schedule = self.all[name]
        if self.newest is None:
            return
        first = self._first_open(name, self.newest)
        if given_up_until is not None and (unit := self._first_open(name, given_up_until)) > first:
            schedule.decide(1.0, first)
            schedule.decide(fraction, unit)
        elif fraction != schedule.wanted:
            schedule.decide(fraction, first)

    def keeps_begun(self, name: str) -> bool:
        """Tell whether any unit is kept of which something has been read, but not all."""
        if self.newest is None:
            return False
        schedule = self.all[name]
        first, last = -(-(self.newest + 1) // schedule.length), self._first_open(name, self.newest) - 1
        return first <= last and bool(schedule.kept(np.arange(first, last + 1)).any())

    def read_until(self, newest: int, closed: int | None) -> None:
        """Learn how far sources have been read, and which instants are complete."""
        self.newest, self._closed = newest, closed
        for name, schedule in self.all.items():
            schedule.decide_until(self._first_open(name, newest), -(-newest // schedule.length))
            if closed is not None:
                schedule.forget_before(closed // schedule.length)

    def _first_open(self, name: str, newest: int) -> int:
        schedule = self.all[name]
        return schedule.first_open(newest, self._reach.get(name, schedule.length))

    def for_tasks(self) -> dict[str, Any]:
        """Return the schedules without what no task will ask about."""
        found = self.to_values()["schedules"]
        for name, values in found.items():
            if self._closed is not None:
                needed = self._closed // self.all[name].length - 1
                values["lost"] = [run for run in values["lost"] if run[1] >= needed]
        return dict(found)

    def to_values(self) -> dict[str, Any]:
        """Return everything that is needed to go on."""
        return {"schedules": {name: each.values() for name, each in self.all.items()}, "newest": self.newest}

    def take_over(self, values: Mapping[str, Any]) -> None:
        """Go on from what was written; schedules that are not there any more are left."""
        self.newest = values["newest"]
        for name in self.all.keys() & values["schedules"].keys():
            self.all[name] = Schedule.of(values["schedules"][name])
