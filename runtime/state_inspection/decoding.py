"""Chunks of state as tables: what each form of state keeps, told from the names of chunks and of their columns.

Whoever keeps state writes chunks in a form of its own; these are the forms, and which of their rows still count:

| form | columns of a chunk | what counts |
|---|---|---|
| rows of a store | `start`, perhaps `end` and `weight`, values | all rows |
| groups, or rows with counts | `slot`, values, `lane ..` | the last row of each slot |
| an agenda | `instant`, values | rows that were not taken yet |
| sorted runs | values, and last the end and the weight | rows that have not ended |
| rows of a user's aggregate | `slot`, `start`, `end`, `weight`, values | rows that have not ended |
| what is on hold | perhaps the instant and the weight, values | all rows |

Nothing here knows of plans: values have numbers for names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import BEGINNING

LANE = "lane "
OURS = ("slot", "instant", "start", "end", "weight")
"""The columns that are neither values nor lanes."""

_RUN, _RUN_AGENDA, _CLOCK = "run", "agenda", "clock"
_HELD = {"result": ["instant", "weight"], "instants": ["instant"], "static": []}
"""What is on hold, with the names of its first columns."""


@dataclass(frozen=True, slots=True)
class StateChunk:
    """Rows that are kept under one name, and how many bytes they take there."""

    rows: pa.RecordBatch
    nbytes: int


@dataclass(slots=True)
class Holding:
    """What one bucket keeps under one id: chunks by number. `since` is the heartbeat that sorted runs have come to."""

    chunks: dict[int, pa.RecordBatch] = field(default_factory=dict)
    nbytes: int = 0
    since: int = BEGINNING

    def table(self, until: int) -> pa.Table:
        """Return what counts of it, when all that was to happen before an instant has happened."""
        parts = [pa.Table.from_batches([self.chunks[number]]) for number in sorted(self.chunks)]
        return _what_counts(together(parts), max(until, self.since))


class Bucket:
    """The state of one bucket: chunks by name, and the position that was saved with them."""

    def __init__(
        self, fragment: str, bucket: int, chunks: Mapping[str, StateChunk], position: Mapping[str, Any]
    ) -> None:
        self.fragment = fragment
        self.place = f"{fragment}/{bucket}"
        self.position = position
        self.holdings = _holdings(chunks)

    def table(self, holding: str) -> pa.Table:
        """Return what counts of some state, under the names that columns have in chunks."""
        return self.holdings[holding].table(self.until(holding))

    def until(self, holding: str) -> int:
        """Return the instant before which all that was to happen to some state has happened."""
        kind, _, rest = holding.partition("/")
        operator, _, piece = rest.partition("/")
        until: int = BEGINNING
        if kind == "waiting":
            until = self.position["worker"]["taken"].get(rest, BEGINNING)
        elif kind == "operator" and piece.startswith("keys/"):
            until = self.position["ports"][operator][1]
        elif kind == "operator":
            until = self.position["heartbeats"].get(operator, BEGINNING)
        return until


def _holdings(chunks: Mapping[str, StateChunk]) -> dict[str, Holding]:
    found: dict[str, Holding] = {}
    for name, chunk in chunks.items():
        owner, part, number = owner_of(name)
        holding = found.setdefault(owner, Holding())
        holding.nbytes += chunk.nbytes
        if part != _CLOCK:
            holding.chunks[number] = _named(part, chunk.rows)
            continue
        since = chunk.rows.column(0)[0].as_py()
        for run in (owner, f"{owner}/{_RUN_AGENDA}"):
            found.setdefault(run, Holding()).since = since
    return {owner: holding for owner, holding in found.items() if holding.nbytes}


def owner_of(name: str) -> tuple[str, str, int]:
    """Return what a chunk belongs to, which part of it if its form has several, and the number of the chunk.

    >>> owner_of("store/log/source-1/by($0)/12")
    ('store/log/source-1/by($0)', '', 12)
    >>> owner_of("operator/top-n-1/rows/agenda-3")
    ('operator/top-n-1/rows/agenda', 'agenda', 3)
    >>> owner_of("held/instants/source-1")
    ('held/instants/source-1', 'instants', 0)
    """
    if name.startswith("held/"):
        return name, name.split("/")[1], 0
    owner, _, last = name.rpartition("/")
    part, _, number = last.rpartition("-")
    return f"{owner}/{part}" if part == _RUN_AGENDA else owner, part, int(number)


def without_values(name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a chunk with what is needed to count its rows, and no more.

    Which rows a partitioned window holds depends on their keys, so these stay.
    """
    owner, part, _ = owner_of(name)
    if part in _HELD or part == _CLOCK or (owner.startswith("operator/seq-window-") and owner.endswith("/rows")):
        return rows
    names = [each for each in rows.schema.names if each in OURS]
    kept = [rows.column(each) for each in names]
    if part:
        names, kept = [*names, "c0", "c1"], [*kept, *rows.columns[-2:]]
    return pa.record_batch(kept, names=names)


def _named(part: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a chunk with the names of its form, and with integers as wide as they were before they were kept."""
    names, columns = list(rows.schema.names), list(rows.columns)
    for at, name in enumerate(names):
        if name[0] == "n" and name[1:].isdigit():
            names[at], columns[at] = f"c{name[1:]}", columns[at].cast(pa.int64())
    if part in (_RUN, _RUN_AGENDA):
        names[-2:] = ["end", "weight"]
    first = _HELD.get(part, [])
    names[: len(first)] = first
    return pa.record_batch(columns, names=names)


def together(parts: Sequence[pa.Table]) -> pa.Table:
    """Return tables as one; numbers that some of them do not have yet are 0."""
    filled = [part for part in parts if part.num_columns]
    if not filled:
        return pa.table({})
    table = pa.concat_tables(filled, promote_options="default")
    for at, name in enumerate(table.schema.names):
        is_missing = any(name not in part.schema.names for part in filled)
        if is_missing and pa.types.is_int64(table.schema.field(at).type):
            table = table.set_column(at, name, pc.fill_null(table.column(at), 0))
    return table.combine_chunks()


def _what_counts(table: pa.Table, until: int) -> pa.Table:
    names = table.schema.names
    if "instant" in names:
        table = table.filter(pc.greater_equal(table.column("instant"), until))
        return table.take(pc.sort_indices(table.column("instant")))
    if "slot" in names and "start" not in names:
        slots = table.column("slot").to_numpy()
        _, last = np.unique(slots[::-1], return_index=True)
        return table.take(pa.array(len(slots) - 1 - last))
    if "end" in names and ("slot" in names or "start" not in names):
        return table.filter(pc.greater(table.column("end"), until))
    return table
