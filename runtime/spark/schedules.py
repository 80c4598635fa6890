"""What is lost in a micro-batch, on its way from the driver to the tasks: a local property of Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext, TaskContext

_PROPERTY = "cql.schedules"


def tell_tasks(context: SparkContext, schedules: Mapping[str, Any]) -> None:
    """Let the tasks of the micro-batch that this thread is about to run know the schedules."""
    context.setLocalProperty(_PROPERTY, json.dumps(schedules))


def schedules_now() -> dict[str, Any] | None:
    """Return the schedules of the micro-batch that this task belongs to; None if nothing is ever shed."""
    context = TaskContext.get()
    text = context.getLocalProperty(_PROPERTY) if context is not None else None
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
