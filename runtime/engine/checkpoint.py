"""Checkpoints: the state of an executor as named chunks and a position, to be kept anywhere else.

State is kept as `runtime/state/chunks.py` says: what is written at a save is what has changed since the last one, never
the window. The law: an executor that is restored and goes on gives the results of one that was never stopped. A
position is small, a few numbers for each operator and store, and is written whole. Chunks are named by what they belong
to:

| name | rows |
|---|---|
| `operator/<id>/<piece>/<chunk>` | what an operator keeps for itself |
| `store/../<chunk>` | rows of a store |
| `held/<kind>/<id>` | what waits for a first instant: static relations, results, instants |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from runtime.engine.executor import Executor
from runtime.state.chunks import Delta


@dataclass(frozen=True, slots=True)
class CheckpointDelta:
    """What to write: chunks that are new, names that are gone (some may never have been there), the position."""

    put: dict[str, pa.RecordBatch]
    drop: frozenset[str]
    meta: dict[str, Any]


def save_delta(executor: Executor) -> CheckpointDelta:
    """Return what has changed since the last save, of an executor that has processed everything that it was given."""
    put: dict[str, pa.RecordBatch] = {}
    drop: set[str] = set()
    for owner, delta in _deltas(executor):
        put |= {f"{owner}/{name}": chunk for name, chunk in delta.put.items()}
        drop |= {f"{owner}/{name}" for name in delta.drop}
    for name, rows in executor.rows_on_hold().items():
        if rows is None:
            drop.add(f"held/{name}")
        else:
            put[f"held/{name}"] = rows
    return CheckpointDelta(put, frozenset(drop), executor.position())


def restore(executor: Executor, chunks: Mapping[str, pa.RecordBatch], meta: Mapping[str, Any]) -> None:
    """Bring a fresh executor to where another one was when it was saved.

    Their plans may differ: what was saved for parts that are gone is left out, parts that are new begin empty.
    """
    executor.resume(meta)
    owned: dict[str, dict[str, pa.RecordBatch]] = {}
    for full_name, chunk in chunks.items():
        if full_name.startswith("held/"):
            executor.hold(full_name.removeprefix("held/"), chunk)
        else:
            owner, _, name = full_name.rpartition("/")
            owned.setdefault(owner, {})[name] = chunk
    for name in executor.stores.keys() & meta["stores"].keys():
        executor.stores[name].load(owned.get(name, {}), meta["stores"][name])
    for name in executor.stubs.keys() & meta["stubs"].keys():
        stub = executor.stubs[name]
        stub.seen, stub.told, stub.needed = meta["stubs"][name]
    for name in executor.operators.keys() & meta["ports"].keys():
        prefix = f"operator/{name}/"
        own = {owner.removeprefix(prefix): chunks for owner, chunks in owned.items() if owner.startswith(prefix)}
        executor.operators[name].load(own)


def is_owned(executor: Executor, chunk: str) -> bool:
    """Tell whether a chunk belongs to something that an executor has."""
    if chunk.startswith("held/"):
        return chunk.removeprefix("held/") in executor.rows_on_hold()
    owner = chunk.rpartition("/")[0]
    return owner in executor.stores or (owner.startswith("operator/") and owner.split("/")[1] in executor.operators)


def _deltas(executor: Executor) -> Iterator[tuple[str, Delta]]:
    """Yield what has changed, with the name of what it belongs to."""
    for name, store in executor.stores.items():
        yield name, store.delta()
    for name, operator in executor.operators.items():
        for piece, delta in operator.delta().items():
            yield f"operator/{name}/{piece}", delta
