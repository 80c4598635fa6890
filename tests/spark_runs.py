"""Runs random networks on Spark, from Parquet files cut at random, and reads their results back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from cql.catalog import Catalog, External, QueryDef, RelationDef, StreamDef
from cql.intervals import TimeDomain
from planner import operators as op
from runtime.columns.arrow_types import arrow_type
from runtime.local.run import LocalRun
from runtime.spark.run import SparkRun
from tests.definition.evaluator import Element, Result
from tests.engine_runs import from_column, to_column
from tests.random_data import SECOND

Table = StreamDef | RelationDef

DAY = 86_400


def with_files(
    catalog: Catalog,
    data: Mapping[str, Sequence[Element]],
    folder: Path,
    rng: Random,
    sizes: Sequence[int] = (1, 3, 8, 100),
    together: Sequence[int] = (1, 3),
) -> Catalog:
    """Return a catalog whose tables are read from files with some data, each file of one of the sizes.

    A micro-batch has one of the numbers of files that are read `together`.
    """
    made = catalog.model_copy(deep=True)
    for kind in (made.streams, made.relations):
        for key, table in list(kind.items()):
            if table.name in data:
                path = folder / table.name
                _write(table, data[table.name], path, rng, sizes)
                form = "parquet" if _has_names(table) else "csv"
                options = {"path": str(path), "maxFilesPerTrigger": str(rng.choice(together))}
                source = External(format=form, options=options)
                kind[key] = table.model_copy(update={"source": source})  # type: ignore[assignment]
    return made


def out_of_order(
    catalog: Catalog, data: Mapping[str, Sequence[Element]], rng: Random
) -> tuple[Catalog, dict[str, list[Element]], dict[str, list[Element]]]:
    """Return a catalog whose streams have delays, the elements in an order in which they arrive, and those on time."""
    made = catalog.model_copy(deep=True)
    arriving = {name: list(elements) for name, elements in data.items()}
    for key, stream in list(made.streams.items()):
        elements = arriving.get(stream.name, [])
        for _ in range(rng.choice((0, 1, 3)) if elements else 0):
            elements.insert(rng.randrange(len(elements)), elements.pop(rng.randrange(len(elements))))
        delay = rng.choice((0, 0, 1, 3)) * (1 if stream.time is TimeDomain.INTEGER else SECOND // 2)
        made.streams[key] = stream.model_copy(update={"delay": delay})
    delays = {stream.name: stream.delay for stream in made.streams.values()}
    on_time = {name: _on_time(elements, delays.get(name, 0)) for name, elements in arriving.items()}
    return made, arriving, on_time


def _on_time(elements: Sequence[Element], delay: int) -> list[Element]:
    """Return the elements that are not earlier than the latest before them by more than a delay."""
    kept: list[Element] = []
    for element in elements:
        if not kept or element[0] >= max(instant for instant, _, _ in kept) - delay:
            kept.append(element)
    return kept


NAMES = ("a", "b[1]", "b{x}*", "c d", "e%20+?", "f\\g", "é")
"""What names of files have in them; Spark takes some of these for patterns."""


def _write(table: Table, elements: Sequence[Element], folder: Path, rng: Random, sizes: Sequence[int]) -> None:
    """Write elements in the order in which they arrive into files whose times say nothing, old ones among them."""
    folder.mkdir(parents=True)
    parts, first = [], 0
    while first < len(elements):
        parts.append(elements[first : first + rng.choice(sizes)])
        first += len(parts[-1])
    for number, part in enumerate(parts or [[]]):
        file = folder / f"{number:04}{rng.choice(NAMES)}"
        if _has_names(table):
            parquet.write_table(_table(table, part), file)
        else:
            file.write_text("".join(_line(table, element) for element in part))
        seconds = 1_000_000_000 + rng.choice((0, 0, 1, 100 * DAY))
        os.utime(file, (seconds, seconds))


def _has_names(table: Table) -> bool:
    """Tell whether the timestamp of a table, if it has one, has a name; otherwise it is the first column of a text."""
    return table.time is None or table.timestamp is not None


def _line(table: Table, element: Element) -> str:
    """Return an element of integers as a line of text."""
    instant, row, sign = element
    mark = ["+" if sign > 0 else "-"] if isinstance(table, RelationDef) else []
    return ",".join([str(instant), *mark, *("" if value is None else str(value) for value in row)]) + "\n"


def _table(table: Table, part: Sequence[Element]) -> pa.Table:
    columns = {
        column.name: to_column(
            [row[at] for _, row, _ in part], op.OutputColumn(name="", type=column.type, nullable=True)
        )
        for at, column in enumerate(table.columns)
    }
    if isinstance(table, RelationDef) and table.time is not None:
        assert table.timestamp is not None and table.sign is not None
        instants = pa.array([instant for instant, _, _ in part], pa.int64())
        columns[table.timestamp.name] = instants.cast(arrow_type(table.timestamp.type))
        signs = pa.array([sign for _, _, sign in part], pa.int64())
        is_text = pa.types.is_string(arrow_type(table.sign.type))
        columns[table.sign.name] = pc.if_else(pc.greater(signs, 0), "+", "-") if is_text else signs
    return pa.table(columns)


def run_on_spark(
    spark: SparkSession,
    catalog: Catalog,
    queries: Sequence[QueryDef],
    checkpoint: Path | None = None,
    frames: Mapping[str, DataFrame] | None = None,
) -> dict[str, Result]:
    """Return what queries yield on Spark, netted per instant; `frames` are read as far as they go now."""
    with SparkRun(spark, catalog, _kept(queries), checkpoint=checkpoint, frames=frames) as run:
        run.start()
        run.process_available()
        run.close_instants()
        results = run.results
    return {name: Result(_netted(kept.batches)) for name, kept in results.items()}


def run_locally(catalog: Catalog, queries: Sequence[QueryDef]) -> dict[str, Result]:
    """Return what queries yield on the local engine, netted per instant."""
    with LocalRun(catalog, _kept(queries), live=True) as run:
        run.drain()
    return {name: Result(_netted(kept.batches)) for name, kept in run.results.items()}


def _kept(queries: Sequence[QueryDef]) -> list[QueryDef]:
    """Return queries whose results are kept in memory."""
    return [query.model_copy(update={"sink": External(format="memory", options={})}) for query in queries]


def _netted(batches: Sequence[Any]) -> dict[int, Counter[Any]]:
    bags: dict[int, Counter[Any]] = {}
    for batch in batches:
        rows = list(zip(*(from_column(column) for column in batch.columns), strict=True)) or [()] * len(batch)
        for instant, row, weight in zip(batch.start.tolist(), rows, batch.weights.tolist(), strict=True):
            bags.setdefault(instant, Counter())[row] += weight
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in bags.items()}
    return {instant: bag for instant, bag in netted.items() if bag}
