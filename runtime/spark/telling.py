"""What the driver tells the tasks of a micro-batch, by local properties of Spark: what is lost in it, and how far edges
are complete before it.

They are the same for all tasks, and for tasks that are repeated. What is lost is in the log as well, for micro-batches
that are repeated after a restart; how far edges are complete only saves work, and nobody knows it then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext, TaskContext

_SCHEDULES = "cql.schedules"
_COMPLETE = "cql.complete"


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


def _told(name: str) -> dict[str, Any] | None:
    context = TaskContext.get()
    text = context.getLocalProperty(name) if context is not None else None
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
