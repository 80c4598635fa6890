"""The state of a worker as named chunks and a position: that of its executor, and what waits for its instants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from runtime.engine.checkpoint import CheckpointDelta, is_owned, restore, save_delta
from runtime.engine.statistics import add_step, listed
from runtime.network.worker import Worker
from runtime.operators.base import StepFigures

_WAITING = "waiting/"


def save_worker(worker: Worker) -> CheckpointDelta:
    """Return what has changed since the last save, of a worker that has done with a micro-batch."""
    executor = save_delta(worker.executor)
    put, drop = dict(executor.put), set(executor.drop)
    for edge, agenda in worker.waiting.items():
        delta = agenda.delta()
        put |= {f"{_WAITING}{edge}/{name}": chunk for name, chunk in delta.put.items()}
        drop |= {f"{_WAITING}{edge}/{name}" for name in delta.drop}
    position = {
        "heartbeats": worker.heartbeats,
        "upstream": worker.upstream,
        "entered": worker.entered,
        "read": dict(worker.read),
        "skipped": dict(worker.skipped),
        "late": dict(worker.late),
        "read_late": dict(worker.read_late),
        "shed": dict(worker.shed),
        "read_work": dict(worker.read_work),
        "read_steps": listed(worker.read_steps),
        "taken": {edge: agenda.taken_until for edge, agenda in worker.waiting.items()},
    }
    return CheckpointDelta(put, frozenset(drop), {**executor.meta, "worker": position})


def load_worker(worker: Worker, chunks: Mapping[str, pa.RecordBatch], meta: Mapping[str, Any]) -> list[str]:
    """Bring a fresh worker to where another one was when it was saved, and return the chunks that nobody needs.

    The network may have changed in between: parts that are new begin empty, and what parts that are gone had is left.
    """
    own = {name: chunk for name, chunk in chunks.items() if not name.startswith(_WAITING)}
    restore(worker.executor, own, meta)
    position = meta["worker"]
    worker.heartbeats |= {edge: at for edge, at in position["heartbeats"].items() if edge in worker.heartbeats}
    worker.upstream |= {edge: known for edge, known in position["upstream"].items() if edge in worker.upstream}
    worker.entered = dict(position["entered"])
    for known in ("read", "skipped", "late", "read_late"):
        counted = getattr(worker, known)
        counted |= position[known]
    worker.shed |= position["shed"]
    worker.read_work |= position["read_work"]
    for operator, *figures in position["read_steps"]:
        add_step(worker.read_steps, operator, StepFigures(*figures))
    for edge, agenda in worker.waiting.items():
        prefix = f"{_WAITING}{edge}/"
        kept = {name.removeprefix(prefix): chunk for name, chunk in chunks.items() if name.startswith(prefix)}
        agenda.load(kept, position["taken"].get(edge, agenda.taken_until))
    return [name for name in chunks if not _is_needed(worker, name)]


def _is_needed(worker: Worker, chunk: str) -> bool:
    if chunk.startswith(_WAITING):
        return chunk.removeprefix(_WAITING).rpartition("/")[0] in worker.waiting
    return is_owned(worker.executor, chunk)
