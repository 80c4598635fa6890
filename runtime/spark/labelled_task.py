"""What tasks of Spark need to know of a network beside what all hosts tell; `broadcast.py` takes it there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from pyspark import cloudpickle

from runtime.network.messages import RESULTS
from runtime.network.record import NetworkRecord
from runtime.network.task import Task
from runtime.spark.bucket_labels import label


@dataclass(frozen=True)
class LabelledTask(Task):
    """A network as tasks of Spark see it."""

    network: str = field(kw_only=True)
    """A name that is another one for whatever is different for tasks."""
    labels: Mapping[tuple[str, int], int] = field(kw_only=True)
    """What Spark groups the pieces of each bucket by."""

    @classmethod
    def of(cls, task: Task, record: NetworkRecord, folder: Path) -> Self:
        """Return the task of the network of a checkpoint."""
        layout = task.layout
        settings = f"{task.policy}{layout.closes_windows}{layout.on_bad_row}"
        content = f"{folder.absolute()}{record.model_dump_json()}{settings}"
        name = hashlib.sha256(content.encode() + cloudpickle.dumps(task.functions)).hexdigest()[:16]
        labels = {place: label(*place, record.buckets) for place in (*layout.places, (RESULTS, 0))}
        known = {each.name: getattr(task, each.name) for each in fields(Task) if each.init and each.name != "_made"}
        return cls(**known, network=name, labels=labels)
