"""Property: Spark gives the answers of the definition, whatever the micro-batches and buckets."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.agreement import disagreement
from tests.definition import evaluate
from tests.random_queries import catalog, first_seed, random_data, report, tables_of
from tests.test_plan_random import network

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.spark_runs import run_on_spark, with_files

pytestmark = pytest.mark.spark

NETWORKS = int(os.environ.get("CQL_FUZZ", "10"))
"""How many random networks are tried."""


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(10))
def test_spark_gives_the_answers_of_the_definition(part: int, spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(first_seed() + part, first_seed() + max(NETWORKS, 10), 10):
        texts, trees = network(seed)
        rng = random.Random(seed)
        names = sorted({name for text in texts.values() for name in tables_of(text)})
        data = random_data(rng, catalog(), names)
        known = with_files(catalog(), data, tmp_path / str(seed), rng)
        known.execute(";".join(f"REGISTER QUERY {name} AS {text}" for name, text in texts.items()))
        found = run_on_spark(spark, known, list(known.queries.values()))
        for name, tree in trees.items():
            difference = disagreement(evaluate(tree, data), found[name])
            assert difference is None, report(texts[name], data, seed=str(seed), at=difference)
