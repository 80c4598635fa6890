"""What the buckets of joins that shed have counted in a micro-batch, put together for whoever decides.

Workers tell it with everything else that they count, as `runtime/network/worker.py` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shedding.budgets import Demand


def counted_by_joins(counted: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return what the buckets of joins that choose have counted, by the schedules of these."""
    found: dict[str, list[Any]] = {}
    for values in counted:
        for name, counts in values["joins"].items():
            found.setdefault(name, []).append(counts)
    return found


def demands_of_joins(counted: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, list[Demand]]]:
    """Return how much memory the buckets of joins that give up rows would use, by join, bucket and pool."""
    found: dict[str, dict[int, list[Demand]]] = {}
    for values in counted:
        bucket = int(values["place"].rpartition("/")[2])
        for name, demands in values["demands"].items():
            found.setdefault(name, {})[bucket] = demands
    return found
