"""Property: both engines give the answers of the definition, whatever the files, their order and the micro-batches.

A micro-batch costs time however small it is, so several random networks, each with tables of its own, run as one.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from cql import Catalog
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.random_queries import CATALOG, catalog, first_seed, random_data, report, tables_of
from tests.test_plan_random import network

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.spark_runs import out_of_order, run_locally, run_on_spark, with_files

pytestmark = pytest.mark.spark

NETWORKS = int(os.environ.get("CQL_FUZZ", "30"))
"""How many random networks are tried."""

PARTS = 5
TOGETHER = 6
"""How many of them run as one."""

TABLES = re.compile(rf"\b({'|'.join(table.name for table in catalog().tables())})\b", re.IGNORECASE)


def of_seed(text: str, seed: int) -> str:
    """Return a text in which tables and views have the names that they have for a seed."""
    return TABLES.sub(rf"\1_{seed}", text)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_spark_gives_the_answers_of_the_definition(part: int, own_session: SparkSession, tmp_path: Path) -> None:
    seeds = range(first_seed() + part, first_seed() + NETWORKS, PARTS)
    for at in range(0, len(seeds), TOGETHER):
        check_networks(seeds[at : at + TOGETHER], own_session, tmp_path / str(at))


def check_networks(seeds: Sequence[int], spark: SparkSession, folder: Path) -> None:
    rng = random.Random(seeds[0])
    networks = {seed: network(seed) for seed in seeds}
    given, known = {}, Catalog()
    for seed, (texts, _) in networks.items():
        known.execute(of_seed(CATALOG, seed))
        names = sorted({name for text in texts.values() for name in tables_of(text)})
        own = random_data(rng, catalog(), names)
        given |= {of_seed(name, seed): elements for name, elements in own.items()}
        for name, text in texts.items():
            known.execute(f"REGISTER QUERY {name}_{seed} AS {of_seed(text, seed)}")
    known, arriving, on_time = out_of_order(known, given, rng)
    known = with_files(known, arriving, folder, rng, sizes=(4, 7, 100))
    count = rng.choice((1, 2, 3))
    spark.conf.set("spark.sql.shuffle.partitions", str(count))
    queries = list(known.queries.values())
    found = {"local": run_locally(known, queries), "Spark": run_on_spark(spark, known, queries)}
    for seed, (texts, trees) in networks.items():
        data = {name.removesuffix(f"_{seed}"): own for name, own in on_time.items() if name.endswith(f"_{seed}")}
        for name, tree in trees.items():
            exact = evaluate(tree, data)
            for engine, results in found.items():
                difference = disagreement(exact, results[f"{name}_{seed}"])
                what = {"engine": engine, "seed": str(seed), "with": str(list(seeds)), "buckets": str(count)}
                assert difference is None, report(texts[name], data, **what, at=difference)
