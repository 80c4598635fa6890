"""What `tests/test_spark_cluster.py` submits to executors of their own: runs networks, kills an executor, and reports.

    spark-submit .. cluster_program.py ROOT EXAMPLE FOLDER

The package comes with the job. Only the driver has the tests, from the project's ROOT. EXAMPLE is a program that is run
in the same session. What was found goes to `report.json` in FOLDER.
"""

from __future__ import annotations

import io
import json
import os
import random
import runpy
import signal
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import runtime
from cql.errors import CqlError
from runtime.spark.run import SparkRun
from runtime.spark.session import local_session

SEEDS = (9, 16)
"""Of random networks, the one with operators on two keys in a row, the other with joins and aggregates."""

KILLED_AFTER = 3
"""After how many micro-batches an executor is killed."""

AUCTIONS = """
    CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at;
    CREATE STREAM ask (auction INT, price INT, at INT) TIMESTAMP BY at;
    REGISTER QUERY met AS SELECT B.auction, B.price, A.price AS asked
      FROM bid [Range 20 Seconds] AS B, ask [Rows 12] AS A WHERE B.auction = A.auction;
    REGISTER QUERY totals AS SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bid [Range 30 Seconds]
      GROUP BY auction;
    REGISTER QUERY dear AS SELECT Istream(auction, price) FROM bid [Partition By auction Rows 2] WHERE price > 40;
"""


def main(root: str, example: str, folder: str) -> None:
    """Do everything, and write the report."""
    sys.path.append(root)
    spark = local_session()
    report: dict[str, Any] = {
        "master": spark.sparkContext.master,
        "example": printed(example),
        "package": {"driver": runtime.__file__, "executors": packages(spark)},
        "not shared": refusal(spark),
    }
    report["random"] = {seed: disagreements(spark, seed, Path(folder, str(seed))) for seed in SEEDS}
    report["killed"] = with_a_kill(spark, Path(folder, "killed"))
    Path(folder, "report.json").write_text(json.dumps(report))
    spark.stop()


def packages(spark: SparkSession) -> list[str]:
    """Return where tasks have imported the package from, seen from the folders that they work in."""

    def found(_: int) -> str:
        import runtime

        return os.path.relpath(runtime.__file__)

    return spark.sparkContext.parallelize(range(4), 4).map(found).collect()


def printed(example: str) -> str:
    """Return what a program prints."""
    with redirect_stdout(io.StringIO()) as out:
        runpy.run_path(example)
    return out.getvalue()


def refusal(spark: SparkSession) -> str:
    """Return the error for a checkpoint that is another folder for every process."""
    from cql import Catalog

    try:
        SparkRun(spark, Catalog(), [], checkpoint=Path("/proc/self/cwd/checkpoint"))
    except CqlError as error:
        return str(error)
    return ""


def disagreements(spark: SparkSession, seed: int, folder: Path) -> dict[str, str | None]:
    """Return how the answers to the queries of a random network differ from the definition, by query."""
    from tests.agreement import disagreement
    from tests.definition import evaluate
    from tests.random_queries import catalog, random_data, tables_of
    from tests.spark_runs import run_on_spark, with_files
    from tests.test_plan_random import network

    texts, trees = network(seed)
    rng = random.Random(seed)
    data = random_data(rng, catalog(), sorted({name for text in texts.values() for name in tables_of(text)}))
    known = with_files(catalog(), data, folder, rng)
    known.execute(";".join(f"REGISTER QUERY {name} AS {text}" for name, text in texts.items()))
    found = run_on_spark(spark, known, list(known.queries.values()))
    return {name: disagreement(evaluate(tree, data), found[name]) for name, tree in trees.items()}


def with_a_kill(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Run a network during which an executor is killed; return how the answers differ, and how it went on."""
    from cql import Catalog
    from tests.agreement import disagreement
    from tests.definition import evaluate
    from tests.spark_runs import run_on_spark, with_files

    rng = random.Random(1)
    data = {
        name: [(at, (rng.randrange(4), rng.randrange(100), at), 1) for at in range(32) for _ in range(rng.randrange(3))]
        for name in ("bid", "ask")
    }
    catalog = Catalog()
    catalog.execute(AUCTIONS)
    known = with_files(catalog, data, folder / "data", rng, sizes=(5,), together=(1,))
    commits = folder / "checkpoint" / "integer" / "spark" / "commits"
    killer = Killer(str(spark.sparkContext.applicationId), commits)
    killer.start()
    found = run_on_spark(spark, known, list(known.queries.values()), folder / "checkpoint")
    killer.join()
    return {
        "differences": {
            name: disagreement(evaluate(query.tree, data), found[name]) for name, query in known.queries.items()
        },
        "killed": killer.killed,
        "before": killer.before,
        "after": len(committed(commits)) - killer.before,
    }


class Killer(threading.Thread):
    """Kills an executor of an application after some micro-batches of a query."""

    def __init__(self, application: str, commits: Path) -> None:
        super().__init__(daemon=True)
        self._application = application
        self._commits = commits
        self.killed = 0
        self.before = 0

    def run(self) -> None:
        """Wait for the moment; give up after some minutes."""
        deadline = time.monotonic() + 300
        while len(committed(self._commits)) < KILLED_AFTER and time.monotonic() < deadline:
            time.sleep(0.05)
        self.before = len(committed(self._commits))
        for process in executors(self._application)[:1]:
            os.kill(process, signal.SIGKILL)
            self.killed += 1


def committed(commits: Path) -> list[str]:
    """Return the micro-batches that are complete."""
    return [path.name for path in commits.glob("[0-9]*")]


def executors(application: str) -> list[int]:
    """Return the processes of the executors of an application."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if application.encode() in words and any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            found.append(int(path.parent.name))
    return sorted(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
