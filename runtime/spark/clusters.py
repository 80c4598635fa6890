"""Clusters: what the machines of a driver and its executors have to share, made sure of before a run.

The driver keeps what it has delivered and its messages to the tasks in the checkpoint; executors read these messages
and keep their state there. So the checkpoint is a folder of a file system that all of them have mounted at the same
path. This module knows nothing of plans and queries.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

import runtime
from cql.errors import Code, fail, one_of
from runtime.connectors.paths import is_remote
from runtime.connectors.result_files import writing
from runtime.spark.streaming import translated
from runtime.spark.workers import NEEDED, is_one_process, own_workers, python_of

_PATH = "PYTHONPATH"


def checkpoint_folder(given: Path) -> Path:
    """Return the folder of a checkpoint, from wherever it is looked at.

    >>> checkpoint_folder(Path("file:/shared/auction"))
    PosixPath('/shared/auction')
    """
    text = str(given)
    if is_remote(text):
        raise fail(
            Code.NOT_AVAILABLE,
            f"the checkpoint cannot be the URL '{text}'",
            hint="give it a folder of a file system that all machines have mounted at the same path",
        )
    return Path(os.path.abspath(text.removeprefix("file:")))


def prepare(spark: SparkSession, checkpoint: Path) -> None:
    """Make a session ready for a run with a checkpoint; raises if it cannot be."""
    share_package(spark)
    python_of(spark.sparkContext)
    check_shared(spark, checkpoint)


def share_package(spark: SparkSession) -> None:
    """Let every Python process of Spark find this package if it is in a zip file.

    Executors get such a file by --py-files. The process that Spark starts beside the driver to learn about the state
    of an operator does not, and only has the path that is given to all.
    """
    archive = Path(runtime.__file__).parents[1]
    environment = spark.sparkContext.environment
    paths = [path for path in environment.get(_PATH, "").split(os.pathsep) if path]
    if archive.is_file() and str(archive) not in paths:
        environment[_PATH] = os.pathsep.join([*paths, str(archive)])


def check_shared(spark: SparkSession, folder: Path) -> None:
    """Raise if an executor does not find the folder of a checkpoint, or may not write there."""
    context = spark.sparkContext
    if is_one_process(context):
        return
    marker = folder / f".shared-{uuid.uuid4().hex}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    tasks = context.defaultParallelism
    try:
        with translated(), own_workers(context):
            problems = context.parallelize(range(tasks), tasks).map(_look_for(str(marker), NEEDED)).collect()
    finally:
        with suppress(OSError):
            marker.unlink()
    for missing, problem in problems:
        if missing:
            raise fail(
                Code.MISSING,
                f"the Python processes of Spark have no module {one_of(missing)}",
                hint="ship it with the job: spark-submit --py-files for this package, --archives for those it needs",
            )
        if problem is not None:
            raise fail(
                Code.CANNOT_WRITE,
                f"the checkpoint '{folder}' is not shared by all machines: {problem}",
                hint="put it on a file system that the driver and all executors have mounted at the same path",
            )


def _look_for(marker: str, modules: Sequence[str]) -> Callable[[int], tuple[list[str], str | None]]:
    """Return what a task does: say which modules it lacks, and what keeps it from writing beside a file."""

    # Sent as code, because whether executors have this package is not known yet.
    def look(number: int) -> tuple[list[str], str | None]:
        missing = [name for name in modules if find_spec(name) is None]
        try:
            os.stat(marker)
            beside = f"{marker}-{number}-{os.getpid()}"
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT))
            os.unlink(beside)
        except OSError as error:
            return missing, f"{socket.gethostname()}: {error.strerror}"
        return missing, None

    return look
