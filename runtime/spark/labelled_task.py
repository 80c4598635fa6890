"""What tasks of Spark need to know of a network beside what all hosts tell; `runtime/spark/broadcast.py` takes it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from runtime.network.messages import RESULTS
from runtime.network.task import Task
from runtime.spark.bucket_labels import label


@dataclass(frozen=True)
class LabelledTask(Task):
    """A network as tasks of Spark see it."""

    labels: Mapping[tuple[str, int], int] = field(kw_only=True)
    """What Spark groups the pieces of each bucket by."""

    @classmethod
    def of(cls, task: Task, buckets: int) -> Self:
        """Return a task with the labels of its places, those of results included."""
        labels = {place: label(*place, buckets) for place in (*task.layout.places, (RESULTS, 0))}
        return cls(**{each.name: getattr(task, each.name) for each in fields(Task) if each.init}, labels=labels)
