"""Budgets of buckets: how the memory of a join that gives up rows is divided among the buckets of its state.

Follows section 4.3 of the sheet `papers/join-shedding.md`. Each bucket says what its windows would take, by what a byte
of that is worth to the policy; how often keys come is enough to know that. All of them together give the worth from
which on there is memory for rows, and each bucket gets what its own rows above that take. So a key that comes all the
time has room in whichever bucket it is, and what any bucket gives up is worth no more than what others hold.

The driver of a cluster divides, from one micro-batch to the next, and writes it down before anybody goes by it. This
module knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner import operators as op
from planner.plan import Plan
from shedding.eviction import ROW_OVERHEAD, ArrivalRates, Floats, Policy
from shedding.schedule import Ints

STEPS = 4
"""Into how many steps of worth a factor of two is cut: of rows of one step, every bucket holds the same share."""

WORTHLESS = -1000
"""The step of what can expect nothing."""

AGES = 8
"""At how many ages it is asked what a row is worth, if that depends on its age."""

Demand = Sequence[tuple[int, float]]
"""Steps of worth, and the bytes that windows would take of what is worth so much."""


def demand_by_worth(policy: Policy, sides: Sequence[ArrivalRates]) -> list[tuple[int, float]]:
    """Return what the windows of some sides would take in all, by what it is worth to a policy.

    >>> side = ArrivalRates(np.array([1, 2]), np.array([3.0, 1.0, 0.5]), np.array([0.5, 1.0, 0.0]), window=10)
    >>> demand_by_worth(Policy.PROB, [side])
    [(0, 10.0), (-4, 30.0), (-1000, 5.0)]
    >>> demand_by_worth(Policy.RAND, [side])
    [(0, 45.0)]
    """
    found: dict[int, float] = {}
    for side in sides:
        left = (np.arange(AGES) + 0.5) / AGES * side.window if policy is Policy.LIFE else np.ones(1)
        rates = np.ones(len(side.arrivals)) if policy is Policy.RAND else side.partners / side.size
        steps = _steps(np.outer(rates, left).ravel())
        taken = np.repeat(side.arrivals * side.window * side.size / len(left), len(left))
        for step in np.unique(steps[taken > 0]).tolist():
            found[step] = found.get(step, 0.0) + float(taken[steps == step].sum())
    return sorted(found.items(), reverse=True)


def _steps(worth: Floats) -> Ints:
    steps = np.full(len(worth), WORTHLESS, np.int64)
    steps[worth > 0] = np.maximum(np.floor(STEPS * np.log2(worth[worth > 0])), WORTHLESS + 1)
    return steps


def in_proportion(budget: int, demands: Floats, least: int = 1) -> Ints:
    """Divide a budget among buckets in proportion to what each of them would hold, at least so much for each.

    >>> in_proportion(10, np.array([6.0, 1.0, 0.0, 1.0])).tolist()
    [5, 2, 1, 2]
    """
    count = len(demands)
    assert budget >= least * count, f"{budget} is less than {least} for each of {count} buckets"
    total = float(demands.sum())
    wanted = (budget - least * count) * (demands / total if total else np.full(count, 1 / count))
    whole = np.floor(wanted).astype(np.int64)
    short = budget - least * count - int(whole.sum())
    whole[np.argsort(whole - wanted, kind="stable")[:short]] += 1
    return whole + least


def divided_by_worth(budget: int, demands: Sequence[Demand], least: int = 1) -> Ints:
    """Divide a budget among buckets so that what is worth most is held, wherever it is; at least so much for each.

    What is more than all of them would take is divided evenly.

    >>> divided_by_worth(40, [[(3, 30.0), (1, 20.0)], [(2, 5.0), (1, 60.0)]], least=0).tolist()
    [31, 9]
    >>> divided_by_worth(40, [[(3, 10.0)], [(2, 6.0)]], least=0).tolist()
    [22, 18]
    """
    steps = sorted({step for demand in demands for step, _ in demand}, reverse=True)
    taken = np.zeros((len(demands), len(steps)))
    for bucket, demand in enumerate(demands):
        for step, size in demand:
            taken[bucket, steps.index(step)] = size
    of_steps = taken.sum(axis=0)
    left = budget - (np.cumsum(of_steps) - of_steps)
    held = taken @ np.clip(left / np.maximum(of_steps, 1e-9), 0.0, 1.0)
    return in_proportion(budget, held + max(budget - float(held.sum()), 0.0) / len(demands), least)


def least_memory(join: op.EvictingJoin) -> int:
    """Return the bytes that a row of each input of a join takes, at least."""
    return 2 * ROW_OVERHEAD + 8 * len(join.columns)


def evenly(plan: Plan, buckets: int) -> dict[str, list[int]]:
    """Return what each of some buckets has of the memory of joins, for each pool of inputs, if all have the same."""
    joins = [each for each in plan.operators if isinstance(each, op.EvictingJoin)]
    return {join.id: [join.memory // len(join.pools) // buckets for _ in join.pools] for join in joins}


class Budgets:
    """The parts that buckets have of the memory of joins that are in several of them."""

    def __init__(self, plan: Plan, buckets: int) -> None:
        self._buckets = buckets
        self._joins = {
            each.id: each
            for each in plan.operators
            if isinstance(each, op.EvictingJoin) and each.placement == "hash" and buckets > 1
        }
        self.parts = {name: [each] * buckets for name, each in evenly(plan, buckets).items() if name in self._joins}
        """By join, bucket and pool."""

    def learn(self, demands: Mapping[str, Mapping[int, Sequence[Demand]]]) -> None:
        """Divide memory by what the buckets of joins would hold; as before, if not all of them have said that."""
        for name in self._joins.keys() & demands.keys():
            of_join, join = demands[name], self._joins[name]
            if len(of_join) == self._buckets:
                budget, least = (each // len(join.pools) for each in (join.memory, least_memory(join)))
                of_pools = [
                    divided_by_worth(budget, [of_join[bucket][pool] for bucket in range(self._buckets)], least).tolist()
                    for pool in range(len(join.pools))
                ]
                self.parts[name] = [list(each) for each in zip(*of_pools, strict=True)]

    def for_tasks(self) -> dict[str, Any]:
        """Return what joins go by, as JSON has it."""
        return {name: {"budgets": parts} for name, parts in self.parts.items()}

    def take_over(self, values: Mapping[str, Any]) -> None:
        """Go on from what was written; joins that are not there any more are left."""
        for name in self.parts.keys() & values.keys():
            self.parts[name] = values[name]["budgets"]
