"""Joins by common words in process: sets compared as bits, found through an index, or evaluated pair by pair.

Two streams of sets of five words, of vocabularies of different sizes, are joined over windows of `WINDOW` rows where
they have `COMMON` words in common. Every way is forced in its turn, by what the others are said to cost; `chosen` is
what the engine does by itself. All of them have to find the same pairs. Times are of one core, the medians of three
runs.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from cql.catalog import Catalog
from planner.plan import Plan, combine, compile_query
from runtime.columns.batch import ChangeBatch
from runtime.engine.executor import Executor
from runtime.joins import candidates as looking

WINDOW = 10_000
BATCH = 1_000
BATCHES = 12
COMMON = 4
RUNS = 3
COSTS = {
    "chosen": {},
    "marks": {"ENTRY_COST": 10**9, "WORD_COST": 0},
    "index": {"ENTRY_COST": 0, "WORD_COST": 10**9, "PAIR_COST": 10**9},
    "pairs": {"ENTRY_COST": 10**9, "WORD_COST": 10**9, "PAIR_COST": 1},
}


def planned() -> Plan:
    """Return the plan of the join; a row comes with each tick."""
    catalog = Catalog()
    for name in ("a", "b"):
        catalog.execute(f"CREATE STREAM {name} (words STRING, v INT, t INT) TIMESTAMP BY t")
    window = f"[Range {WINDOW} Seconds]"
    query = f"SELECT a.v, b.v AS w FROM a {window}, b {window} WHERE OVERLAP(a.words, b.words) >= {COMMON}"
    catalog.execute(f"REGISTER QUERY q AS {query}")
    return combine([compile_query("q", catalog.queries["q"].tree)])


def batches(words: int) -> list[list[ChangeBatch]]:
    """Return the batches of both streams: words are as popular as Zipf's law has it."""
    rng = np.random.default_rng(3)
    weights = 1 / np.arange(1, words + 1)
    found = []
    for number in range(BATCHES + WINDOW // BATCH):
        instants = np.arange(number * BATCH, (number + 1) * BATCH)
        pair = []
        for _ in range(2):
            sets = rng.choice(words, (BATCH, 5), p=weights / weights.sum())
            texts = pa.array([" ".join(f"w{word}" for word in each) for each in sets])
            columns = (texts, pa.array(instants, pa.int32()), pa.array(instants, pa.int32()))
            pair.append(ChangeBatch(columns, instants, None, None, int(instants[-1]) + 1))
        found.append(pair)
    return found


def seconds(plan: Plan, data: list[list[ChangeBatch]], way: str) -> tuple[float, int]:
    """Return how long the batches take with full windows, and how many pairs were found."""
    executor, began = Executor(plan), 0.0
    with ExitStack() as stack:
        for name, cost in COSTS[way].items():
            stack.enter_context(patch.object(looking, name, cost))
        pairs = 0
        for number, pair in enumerate(data):
            if number == WINDOW // BATCH:
                began = time.process_time()
            for source, batch in zip(plan.sources, pair, strict=True):
                executor.push(source.id, batch)
            executor.run()
            pairs += len(executor.take("q"))
        return time.process_time() - began, pairs


def main() -> None:
    """Run the benchmark and print its table."""
    plan = planned()
    compared = 2 * BATCHES * BATCH * WINDOW
    print(f"windows of {WINDOW:,} rows, {COMMON} of 5 words in common; nanoseconds for each pair of rows in them\n")
    print(f"{'words':>8}{'pairs found':>14}" + "".join(f"{way:>10}" for way in COSTS))
    for words in (100, 1_000, 10_000):
        data = batches(words)
        runs = {way: [seconds(plan, data, way) for _ in range(RUNS)] for way in COSTS}
        found = {pairs for each in runs.values() for _, pairs in each}
        assert len(found) == 1, f"the ways differ: {found}"
        costs = "".join(f"{1e9 * median(took for took, _ in each) / compared:>10.2f}" for each in runs.values())
        print(f"{words:>8,}{found.pop():>14,}{costs}", flush=True)
