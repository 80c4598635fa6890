"""What the driver tells the tasks of a micro-batch, by local properties of Spark: what is lost in it, how far edges are
complete before it, and what is known of the order of its sources.

They are the same for all tasks, and for tasks that are repeated. What is lost is in the log as well, for micro-batches
that are repeated after a restart. The others only save work, and nobody knows them then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext, TaskContext

from runtime.network.lateness import Lateness

_SCHEDULES = "cql.schedules"
_COMPLETE = "cql.complete"
_ORDER = "cql.order"


def tell_schedules(context: SparkContext, schedules: Mapping[str, Any]) -> None:
    """Let the tasks of the micro-batch that this thread is about to run know what is lost."""
    context.setLocalProperty(_SCHEDULES, json.dumps(schedules))


def schedules_now() -> dict[str, Any] | None:
    """Return the schedules of the micro-batch that this task belongs to; None if nothing is ever shed."""
    return _told(_SCHEDULES)


def tell_complete(context: SparkContext, heartbeats: Mapping[str, int]) -> None:
    """Let the tasks of the micro-batch that this thread is about to run know how far edges are complete before it."""
    context.setLocalProperty(_COMPLETE, json.dumps(heartbeats))


def complete_now() -> dict[str, int]:
    """Return how far edges are complete before the micro-batch that this task belongs to, as far as that is known."""
    return _told(_COMPLETE) or {}


def tell_order(context: SparkContext, order: Mapping[str, Any]) -> None:
    """Let the tasks of the micro-batch that this thread is about to run know the `newest` instant of each feed before
    it, and `before` single places of it."""
    context.setLocalProperty(_ORDER, json.dumps(order))


def lateness_now(feed: str, delay: int) -> Lateness:
    """Return the judge of the rows of a feed that this task reads."""
    told = (_told(_ORDER) or {}).get(feed, {})
    return Lateness(delay, told.get("newest"), told.get("before"))


def _told(name: str) -> dict[str, Any] | None:
    context = TaskContext.get()
    text = context.getLocalProperty(name) if context is not None else None
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
