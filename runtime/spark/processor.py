"""The stateful operator on Spark: what Spark calls with the pieces of a micro-batch, and where it keeps state.

Spark also asks a processor for its state in a process of its own whenever a query starts, so this module imports
nothing that takes time; the work is in `runtime/spark/buckets.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from runtime.spark.broadcast import Sent

if TYPE_CHECKING:
    from runtime.spark.labelled_task import LabelledTask


class FragmentProcessor(StatefulProcessor):
    """One stage: runs the fragments of its level and passes on what is for later ones."""

    def __init__(self, task: Sent[LabelledTask], stage: int) -> None:
        self._task = task
        self._stage = stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._chunks = handle.getMapState("chunks", "name string", "chunk binary")
        self._position = handle.getValueState("position", "json string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Called by Spark with all pieces of a micro-batch that have one label: those for one bucket."""
        from runtime.spark.buckets import BucketState, processed

        return processed(self._task.get(), self._stage, BucketState(self._chunks, self._position), rows)

    def close(self) -> None:
        """Called by Spark when it is done with this processor."""
