"""`cql state`: what a checkpoint holds, as tables or JSON lines on standard output.

It decides what is shown and how; `runtime/spark/inspection.py` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from cql.intervals import TimeDomain
from cql.visible import visible
from repl.display import complain
from runtime.connectors.line_formats import json_objects
from runtime.connectors.tables import table_text
from runtime.spark.inspection import overview, part, saved_states
from runtime.spark.session import local_session
from runtime.state_inspection.listing import Line, SourceLine, readable_instants


def show_state(checkpoint: Path, batch: int | None, output: str) -> None:
    """List all that a checkpoint holds, and how far the sources are."""
    for at, saved in enumerate(saved_states(checkpoint, batch)):
        contents = overview(local_session(), saved)
        lines, sources = contents.lines(), _sources(contents.sources(), contents.time)
        if output == "jsonl":
            about: dict[str, str | int] = {"clock": saved.clock, "batch": saved.batch}
            for line in lines:
                print(visible(json.dumps({**about, **asdict(line)}, ensure_ascii=False)))
            print(json_objects(sources, about), end="")
        else:
            print("\n" if at else "", f"{saved.clock} clock, after micro-batch {saved.batch}\n\n", sep="", end="")
            print(table_text(_listing(lines), null=""))
            print(table_text(sources, null=""), end="")


def show_part(checkpoint: Path, name: str, batch: int | None, limit: int, output: str) -> None:
    """Print the rows of a part of the state; a limit of 0 stands for none."""
    states = saved_states(checkpoint, batch)
    for at, (found, rows) in enumerate(part(local_session(), states, name).items()):
        shown = rows.slice(0, limit) if limit else rows
        count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
        if output == "jsonl":
            print(json_objects(shown, {"store": found}), end="")
        else:
            print("\n" if at else "", f"{found} ({count})\n", table_text(shown) if len(shown) else "", sep="", end="")
        if len(shown) < len(rows):
            complain(f"{found}: {len(shown)} of {count} are shown; --limit 0 shows all")


def _listing(lines: Sequence[Line]) -> pa.Table:
    """Return the parts of the state as a table; synopses are indented below what they are views of."""
    columns = {name: [getattr(line, name) for line in lines] for name in ("kind", "rows", "bytes", "chunks", "buckets")}
    numbers = {name: pa.array(values, pa.int64()) for name, values in columns.items() if name != "kind"}
    texts = {
        "id": [f"  {line.id}" if line.kind == "synopsis" else line.id for line in lines],
        "kind": columns["kind"],
        "queries": [", ".join(line.queries) for line in lines],
        "what": [line.what for line in lines],
    }
    made = {name: pa.array(values, pa.string()) for name, values in texts.items()} | numbers
    return pa.table({name: made[name] for name in ("id", "kind", *numbers, "queries", "what")})


def _sources(lines: Sequence[SourceLine], time: TimeDomain | None) -> pa.Table:
    """Return how far sources are as a table."""
    return pa.table(
        {
            "source": pa.array([line.id for line in lines], pa.string()),
            "table": pa.array([line.table for line in lines], pa.string()),
            "first": readable_instants([line.first for line in lines], time),
            "last": readable_instants([line.last for line in lines], time),
            "until": readable_instants([line.until for line in lines], time),
            "read": pa.array([line.read for line in lines], pa.int64()),
            "skipped": pa.array([line.skipped for line in lines], pa.int64()),
            "late": pa.array([line.late for line in lines], pa.int64()),
            "status": pa.array([line.status for line in lines], pa.string()),
        }
    )
