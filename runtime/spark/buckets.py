"""A bucket in a task: its pieces, its state in Spark's store, and its worker.

Spark groups the pieces of a micro-batch by fragment and bucket and keeps, for each of these groups, the chunks of
the worker's state and its position. The worker itself is used where it is, if what Spark kept says that nobody else
has gone on since; otherwise it is made anew from the chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runtime.network.layout import level_of
from runtime.network.messages import CONTROL, RESULTS, Piece, bytes_batch, pack_values
from runtime.network.worker import Worker
from runtime.network.worker_state import load_worker
from runtime.spark.labelled_task import LabelledTask
from runtime.spark.sources import carrying
from runtime.spark.sticky_workers import Name, WorkerResult, home
from runtime.spark.task_properties import directives_now
from runtime.user_errors import MemoryExceeded, RemovalFailed, UserFunctionFailed, explained, too_much_memory


@dataclass(frozen=True)
class BucketState:
    """What Spark keeps of a bucket: chunks of bytes by name, and a position as JSON."""

    chunks: Any
    kept_position: Any

    def position(self) -> dict[str, Any] | None:
        """Return the position after the last micro-batch, None before the first."""
        kept = self.kept_position.get()
        found: dict[str, Any] | None = None if kept is None else json.loads(kept[0])
        return found

    def fill(self, worker: Worker, position: dict[str, Any]) -> None:
        """Bring a fresh worker to where the one before was; what no part of the network needs any more is removed."""
        chunks = {key[0]: bytes_batch(value[0]) for key, value in self.chunks.iterator()}
        for unused in load_worker(worker, chunks, position):
            self.chunks.removeKey((unused,))

    def save(self, done: WorkerResult) -> None:
        """Write what has changed."""
        for name in done.drop:
            self.chunks.removeKey((name,))
        for name, chunk in done.put.items():
            self.chunks.updateValue((name,), (chunk,))
        self.kept_position.update((json.dumps(done.position),))


def processed(
    task: LabelledTask, stage: int, state: BucketState, rows: Iterator[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """Yield what a bucket makes of its pieces, at its stage; before that they are passed on."""
    frames = list(rows)
    fragment, bucket = str(frames[0]["fragment"].iloc[0]), int(frames[0]["bucket"].iloc[0])
    if fragment == RESULTS or level_of(fragment) > stage:
        yield from frames
        return
    pieces = [Piece(*each) for frame in frames for each in frame[list(Piece._fields)].itertuples(index=False)]
    schedules = directives_now().schedules
    if schedules:
        pieces.append(Piece(fragment, bucket, CONTROL, "", "", 0, pack_values({"schedules": schedules})))
    done = _done(task, (task.network, fragment, bucket), state, pieces)
    state.save(done)
    made = pd.DataFrame(done.sent, columns=list(Piece._fields))
    made.insert(0, "label", [task.labels[piece.fragment, piece.bucket] for piece in done.sent])
    yield made


def _done(task: LabelledTask, name: Name, state: BucketState, pieces: list[Piece]) -> WorkerResult:
    position = state.position()
    done = None if position is None else home().run_anywhere(name, position, pieces)
    if done is not None:
        return done
    _, fragment, bucket = name
    worker = Worker(
        task.layout,
        fragment,
        bucket,
        task.functions,
        task.static,
        policy=task.policy,
        max_bytes=task.max_bytes,
        overflow=task.overflow,
    )
    if position is not None:
        state.fill(worker, position)
    with carrying():
        try:
            return home().run(name, worker, pieces)
        except UserFunctionFailed as failure:
            raise explained(failure, task.callers, worker.executor.plan, task.places) from None
        except RemovalFailed as failure:
            raise failure.placed(task.places) from None
        except MemoryExceeded as failure:
            raise too_much_memory(failure, worker.executor.plan, task.places) from None
