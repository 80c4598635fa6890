"""The stateful operator on Spark: runs the buckets of one stage of a network, a micro-batch at a time.

Spark groups the pieces of a micro-batch by fragment and bucket and keeps, for each of these groups, the chunks of
the worker's state and its position. The worker itself is used where it is, if what Spark kept says that nobody else
has gone on since; otherwise it is made anew from the chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from runtime.failures import UserFunctionFailed, explained
from runtime.fragments.layout import level_of
from runtime.fragments.packing import RESULTS, Piece, bytes_batch
from runtime.fragments.state import load_worker
from runtime.fragments.worker import Worker
from runtime.spark.homes import Done, Name, home
from runtime.spark.sources import carrying
from runtime.spark.task import Task


class FragmentProcessor(StatefulProcessor):
    """One stage: runs the fragments of its level and passes on what is for later ones."""

    def __init__(self, task: Task, stage: int) -> None:
        self._task = task
        self._stage = stage

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark before anything else."""
        self._chunks = handle.getMapState("chunks", "name string", "chunk binary")
        self._position = handle.getValueState("position", "json string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called by Spark with all pieces of a micro-batch that have one label: those for one bucket."""
        frames = list(rows)
        fragment, bucket = str(frames[0]["fragment"].iloc[0]), int(frames[0]["bucket"].iloc[0])
        if fragment == RESULTS or level_of(fragment) > self._stage:
            yield from frames
            return
        pieces = [Piece(*each) for frame in frames for each in frame[list(Piece._fields)].itertuples(index=False)]
        done = self._processed((self._task.network, fragment, bucket), pieces)
        self._save(done)
        made = pd.DataFrame(done.sent, columns=list(Piece._fields))
        made.insert(0, "label", [self._task.labels[piece.fragment, piece.bucket] for piece in done.sent])
        yield made

    def close(self) -> None:
        """Called by Spark when it is done with this processor."""

    def _processed(self, name: Name, pieces: list[Piece]) -> Done:
        kept = self._position.get()
        position = None if kept is None else json.loads(kept[0])
        done = None if position is None else home().run_anywhere(name, position, pieces)
        if done is not None:
            return done
        worker = self._made(name, position)
        with carrying():
            try:
                return home().run(name, worker, pieces)
            except UserFunctionFailed as failure:
                raise explained(failure, self._task.callers, worker.executor.plan, self._task.places) from None

    def _made(self, name: Name, position: dict[str, Any] | None) -> Worker:
        """Return the worker of a bucket as it was after the last micro-batch, made from what Spark keeps."""
        _, fragment, bucket = name
        task = self._task
        worker = Worker(task.layout, fragment, bucket, task.functions, task.static)
        if position is not None:
            chunks = {key[0]: bytes_batch(value[0]) for key, value in self._chunks.iterator()}
            for unused in load_worker(worker, chunks, position):
                self._chunks.removeKey((unused,))
        return worker

    def _save(self, done: Done) -> None:
        """Write what has changed."""
        for name in done.drop:
            if self._chunks.containsKey((name,)):
                self._chunks.removeKey((name,))
        for name, chunk in done.put.items():
            self._chunks.updateValue((name,), (chunk,))
        self._position.update((json.dumps(done.position),))
