"""Small networks run in buckets without Spark, and what their state holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from cql.catalog import Catalog
from cql.intervals import TimeDomain
from planner.network import compile_definition
from planner.plan import Plan, combine
from runtime.network.messages import bytes_batch
from runtime.state_inspection.decoding import Bucket, StateChunk, without_values
from runtime.state_inspection.listing import StateListing
from tests.definition.evaluator import Element
from tests.fragment_runs import Cluster, run_fragments

Row = tuple[Any, ...]

STREAMS = """
CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at;
CREATE STREAM ask (auction INT, price INT, at INT) TIMESTAMP BY at;
"""
BIDS = [(7, 10, 1), (8, 20, 2), (7, 30, 4), (9, 5, 5), (8, 40, 8), (7, 50, 9)]
ASKS = [(7, 11, 1), (8, 21, 3), (9, 31, 6), (7, 41, 9)]


def elements(rows: Sequence[Row]) -> list[Element]:
    """Return rows as elements; their last column is the instant."""
    return [(row[-1], row, 1) for row in rows]


def plan_of(catalog: Catalog) -> Plan:
    """Return the plan of all queries of a catalog."""
    return combine([compile_definition(query) for query in catalog.queries.values()])


def contents_of(
    cluster: Cluster, plan: Plan | None, whole: bool = True, time: TimeDomain | None = None
) -> StateListing:
    """Return what a cluster has saved, with values or without."""
    buckets = []
    for place, (chunks, position) in cluster.states().items():
        batches = {name: bytes_batch(blob) for name, blob in chunks.items()}
        kept = batches if whole else {name: without_values(name, rows) for name, rows in batches.items()}
        named = {name: StateChunk(rows, len(chunks[name])) for name, rows in kept.items()}
        buckets.append(Bucket(*place, named, position))
    return StateListing(plan, cluster.layout.buckets, time, buckets)


def final_contents(
    catalog: Catalog,
    data: Mapping[str, Sequence[Element]],
    *,
    buckets: int = 2,
    seed: int = 0,
    with_plan: bool = True,
    time: TimeDomain | None = None,
) -> StateListing:
    """Return what the state of a catalog's queries holds when their inputs have ended."""
    plan = plan_of(catalog)
    functions = {each.name: each.code for each in (*catalog.functions.values(), *catalog.aggregates.values())}
    last: list[Cluster] = []
    watch: Callable[[Cluster], None] = last.append
    run_fragments(plan, data, Random(seed), buckets, functions, watch)
    return contents_of(last[-1], plan if with_plan else None, time=time)


def rows_of(contents: StateListing, pattern: str) -> tuple[list[str], list[Row]]:
    """Return the columns and sorted rows of the one part whose id fits a pattern, without buckets."""
    found = [each for each in contents.ids() if re.fullmatch(pattern, each)]
    assert len(found) == 1, f"{pattern} fits {found} of {contents.ids()}"
    table = contents.rows(found[0]).drop_columns(["bucket"])
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return table.schema.names, sorted(rows, key=repr)
