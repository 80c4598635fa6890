"""What a test on Spark may leave behind, to the cost of the tests after it: queries, threads, temporary checkpoints."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection
from pathlib import Path

PREFIX = "cql-"
"""How the names of our temporary folders begin."""

GRACE = 5.0
"""For how many seconds threads may be ending."""


def is_spark_running() -> bool:
    """Tell whether this process has started Spark."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def leftovers(before: Collection[threading.Thread], temporary: Path) -> list[str]:
    """Return a line for each thing that is left, where `temporary` was empty; queries are stopped."""
    folders = [path.name for path in sorted(temporary.glob(f"{PREFIX}*")) if path.is_dir()]
    return [
        *(f"the streaming query {name} is still active" for name in _stopped_queries()),
        *(f"the thread {name} is still running" for name in _threads(before)),
        *(f"the temporary folder {name} is still there" for name in folders),
    ]


def _stopped_queries() -> list[str]:
    """Stop the streaming queries of all sessions, and return their names."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        return []
    # A session lists its own queries only; what sessions share lists those of all.
    running = list(session._jsparkSession.sharedState().activeStreamingQueries().values())
    for query in running:
        query.stop()
    return sorted(query.name() or query.id().toString() for query in running)


def _threads(before: Collection[threading.Thread]) -> list[str]:
    """Return the names of threads that are new and keep the process from ending."""
    new = [each for each in threading.enumerate() if each not in before and not each.daemon]
    deadline = time.monotonic() + GRACE
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in new if thread.is_alive()]
