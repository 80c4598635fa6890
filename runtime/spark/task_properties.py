"""What the driver tells the tasks of a micro-batch, by a local property of Spark: the directives of the network.

They are the same for all tasks, and for tasks that are repeated.
"""

from __future__ import annotations

import json
from functools import lru_cache

from pyspark import SparkContext, TaskContext

from runtime.network.directives import Directives

_DIRECTIVES = "cql.directives"


def tell(context: SparkContext, directives: Directives) -> None:
    """Let the tasks of the micro-batch that this thread is about to run know what is directed."""
    context.setLocalProperty(_DIRECTIVES, json.dumps(directives.to_values()))


def directives_now() -> Directives:
    """Return the directives of the micro-batch that this task belongs to."""
    context = TaskContext.get()
    text = context.getLocalProperty(_DIRECTIVES) if context is not None else None
    return Directives() if text is None else _read(text)


@lru_cache(maxsize=1)
def _read(text: str) -> Directives:
    return Directives.of_values(json.loads(text))
