"""Property: Spark gives the answers of the definition, whatever the micro-batches and buckets.

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

from tests.spark_runs import run_on_spark, with_files

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
    data, known = {}, Catalog()
    for seed, (texts, _) in networks.items():
        known.execute(of_seed(CATALOG, seed))
        names = sorted({name for text in texts.values() for name in tables_of(text)})
        data[seed] = random_data(rng, catalog(), names)
        for name, text in texts.items():
            known.execute(f"REGISTER QUERY {name}_{seed} AS {of_seed(text, seed)}")
    renamed = {of_seed(name, seed): elements for seed, own in data.items() for name, elements in own.items()}
    known = with_files(known, renamed, folder, rng, sizes=(4, 7, 100))
    count = rng.choice((1, 2, 3))
    spark.conf.set("spark.sql.shuffle.partitions", str(count))
    found = run_on_spark(spark, known, list(known.queries.values()))
    for seed, (texts, trees) in networks.items():
        for name, tree in trees.items():
            difference = disagreement(evaluate(tree, data[seed]), found[f"{name}_{seed}"])
            what = {"seed": str(seed), "with": str(list(seeds)), "buckets": str(count), "at": difference}
            assert difference is None, report(texts[name], data[seed], **what)
