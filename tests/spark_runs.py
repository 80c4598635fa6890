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
from planner import operators as op
from runtime.spark.run import SparkRun
from runtime.types import arrow_type
from tests.definition.evaluator import Element, Result
from tests.engine_runs import from_column, to_column

Table = StreamDef | RelationDef


def with_files(
    catalog: Catalog,
    data: Mapping[str, Sequence[Element]],
    folder: Path,
    rng: Random,
    sizes: Sequence[int] = (1, 3, 8, 100),
) -> Catalog:
    """Return a catalog whose tables are read from files with some data, each file a micro-batch of one of the sizes."""
    made = catalog.model_copy(deep=True)
    for kind in (made.streams, made.relations):
        for key, table in list(kind.items()):
            if table.name in data:
                path = folder / table.name
                _write(table, data[table.name], path, rng, sizes)
                form = "parquet" if _has_names(table) else "csv"
                source = External(format=form, options={"path": str(path), "maxFilesPerTrigger": "1"})
                kind[key] = table.model_copy(update={"source": source})  # type: ignore[assignment]
    return made


def _write(table: Table, elements: Sequence[Element], folder: Path, rng: Random, sizes: Sequence[int]) -> None:
    """Write elements in the order of time, an instant never in two files."""
    folder.mkdir(parents=True)
    ordered = sorted(elements, key=lambda element: element[0])
    parts, first = [], 0
    while first < len(ordered):
        last = min(first + rng.choice(sizes), len(ordered))
        while last < len(ordered) and ordered[last][0] == ordered[last - 1][0]:
            last += 1
        parts.append(ordered[first:last])
        first = last
    for number, part in enumerate(parts or [[]]):
        file = folder / f"{number:04}"
        if _has_names(table):
            parquet.write_table(_table(table, part), file)
        else:
            file.write_text("".join(_line(table, element) for element in part))
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


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
        column.name: to_column([row[at] for _, row, _ in part], op.Column(name="", type=column.type, nullable=True))
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
    kept = [query.model_copy(update={"sink": External(format="memory", options={})}) for query in queries]
    with SparkRun(spark, catalog, kept, checkpoint=checkpoint, frames=frames) as run:
        run.start()
        run.process_available()
        run.close_instants()
        batches = run.results
    return {name: Result(_netted(writer.batches)) for name, writer in batches.items()}


def _netted(batches: Sequence[Any]) -> dict[int, Counter[Any]]:
    bags: dict[int, Counter[Any]] = {}
    for batch in batches:
        rows = list(zip(*(from_column(column) for column in batch.columns), strict=True)) or [()] * len(batch)
        for instant, row, weight in zip(batch.start.tolist(), rows, batch.weights.tolist(), strict=True):
            bags.setdefault(instant, Counter())[row] += weight
    netted = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in bags.items()}
    return {instant: bag for instant, bag in netted.items() if bag}
