"""Spark sessions: one made for small local runs, or the user's own, left as it is.

A local session is quiet: everything that Spark, its JVM and the Python workers write goes to a log without a name,
which is gone with the last of them; if Spark does not start, the error says what stands there. Most of the time that a
JVM needs to start goes into loading Spark's classes, so the first run leaves an archive of the loaded classes behind
(Java's class-data sharing), and the runs after it start from that.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from cql.errors import Code, CqlError, fail
from runtime.spark.broadcast import SAFE_PATH

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_STILL_WRITTEN = 30.0
"""For how many seconds after its last change an archive may still be being written."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of a process that spark-submit has started."""


def local_session(
    settings: Mapping[str, str] = NO_SETTINGS, *, cores: int | None = None, archive: Path | None = None
) -> SparkSession:
    """Return the session of this process if there is one, checked, and otherwise a new one for local runs.

    A process that spark-submit has started gets the session that its options say. `settings` go before ours.
    `archive` is the folder of class archives; none are used if it is `os.devnull`.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    present = SparkSession.getActiveSession()
    if present is not None:
        check_session(present)
        return present
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._active_spark_context is None and _SUBMITTED not in os.environ:
        java = check_java()
        conf = _configuration({**local_settings(cores or len(os.sched_getaffinity(0))), **settings})
        _use_archive(conf, archive or _cache(), java)
        _start(conf)
    session = SparkSession.builder.getOrCreate()
    check_session(session)
    return session


class Lease:
    """The session of this process for one who needs it for a while.

    If there is none, one is started, and stopped again when all who have it have given it back.
    """

    _lock = Lock()
    _holders = 0
    _is_ours = False

    def __init__(self) -> None:
        from pyspark import SparkContext

        with Lease._lock:
            was_there = SparkContext._active_spark_context is not None
            self.session = local_session()
            Lease._is_ours = Lease._is_ours if was_there else True
            Lease._holders += 1

    def give_back(self) -> None:
        """Let the session go; called once."""
        with Lease._lock:
            Lease._holders -= 1
            if Lease._is_ours and not Lease._holders:
                Lease._is_ours = False
                self.session.stop()


MOST_ATTEMPTS = 4
"""How often a task is tried, as on clusters: a Python process that dies costs time, and no answer."""


def local_settings(cores: int) -> dict[str, str]:
    """Return the settings that suit small runs on one machine."""
    return {
        "spark.master": f"local[{cores},{MOST_ATTEMPTS}]",
        "spark.app.name": "cql",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "cql-spark-warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": "runtime.spark.daemon",
        "spark.python.authenticate.socketTimeout": "120s",
    }


def check_session(session: SparkSession) -> None:
    """Raise if the runtime cannot work in a session."""
    import pyspark

    if session.version != pyspark.__version__:
        message = f"the session runs Spark {session.version}, and PySpark {pyspark.__version__} is installed"
        raise fail(Code.VERSIONS, message, hint="install the PySpark of the cluster's version")


NETWORK_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
)
"""What networks rely on: how state is kept, how instants are read, and that sources are known by name."""


def network_session(session: SparkSession) -> SparkSession:
    """Return a session for networks beside the user's, which is left as it is; they share everything but settings."""
    check_session(session)
    own = session.newSession()
    for key, value in NETWORK_SETTINGS.items():
        own.conf.set(key, value)
    return own


def buckets_of(session: SparkSession) -> int:
    """Return how many buckets a new network is spread over: Spark's shuffle partitions, or one for each core.

    Spark's default of 200 is meant for large batch jobs and says nothing about the machines at hand.
    """
    chosen = int(session.conf.get("spark.sql.shuffle.partitions") or 200)
    return session.sparkContext.defaultParallelism if chosen == 200 else chosen


# Java


def check_java() -> Path:
    """Return the program that runs Java; raises if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    hint = f"install a Java runtime (Debian: apt install openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one"
    if program is None:
        where = f"in JAVA_HOME, which is '{home}'" if home else "on the PATH"
        message = f"Spark needs Java {OLDEST_JAVA} or newer, and there is none {where}"
        raise fail(Code.MISSING, message, hint=hint)
    text = java_version(Path(program))
    major = _major(text)
    if major is None or major < OLDEST_JAVA:
        message = f"Spark needs Java {OLDEST_JAVA} or newer, and '{program}' is {text or 'something else'}"
        raise fail(Code.VERSIONS, message, hint=hint)
    return Path(program)


def java_version(program: Path) -> str:
    """Return the version of a Java: from the file beside it that says so, or by asking it."""
    with suppress(OSError):
        found = re.search(r'^JAVA_VERSION="([^"]*)"', (program.resolve().parents[1] / "release").read_text(), re.M)
        if found:
            return found[1]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
        found = re.search(r'version "([^"]*)"', answer.stderr)
        return found[1] if found else ""
    return ""


def _major(version: str) -> int | None:
    """Return the number that counts; up to Java 8 that was the second."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else None


# Starting


def _configuration(settings: Mapping[str, str]) -> SparkConf:
    from pyspark import SparkConf

    return SparkConf().setAll(list(settings.items()))


def _start(conf: SparkConf) -> None:
    """Start a JVM with a Spark context in it, their output going to a log."""
    from pyspark.errors import PySparkException

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    # RocksDB allocates in many threads; with an arena for each, what is freed stays scattered, and memory grows.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    with tempfile.TemporaryFile(prefix="cql-spark-") as log:
        try:
            _start_context(conf, log)
        except Exception as error:
            if isinstance(error, PySparkException) or type(error).__module__.startswith("py4j"):
                raise _not_started(log, str(error)) from error
            raise


def _start_context(conf: SparkConf, log: IO[bytes]) -> None:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    with _safe_path():
        gateway = SparkContext._gateway or launch_gateway(conf, {"stdout": log, "stderr": log})
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let every Python that is started from a process that is made here import nothing from where it is started."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _not_started(log: IO[bytes], error: str) -> CqlError:
    """Return the error that Spark did not start, with the line of the log or of the error that says why."""
    log.seek(0)
    lines = [*log.read().decode(errors="replace").splitlines(), *error.splitlines()]
    telling = [line.strip() for line in lines if re.search(r"Exception: |^Error: |^Error occurred", line)]
    reason = telling[-1].removeprefix(": ") if telling else next(iter(error.splitlines()), "")
    hint = "another program may have the port; the settings may ask for more memory than there is"
    return fail(Code.NOT_STARTED, f"Spark did not start: {reason}", hint=hint)


# The archive of classes


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cql-on-spark"


def _use_archive(conf: SparkConf, folder: Path, java: Path) -> None:
    """Let the JVM start from an archive of classes, or leave one when it ends."""
    import pyspark

    if str(folder) == os.devnull:
        return
    path = folder / f"spark-{pyspark.__version__}-java-{java_version(java)}.jsa"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        _adopt(path)
    if path.exists():
        option = f"-XX:SharedArchiveFile={path}"
    elif os.access(folder, os.W_OK):
        option = f"-XX:ArchiveClassesAtExit={path}.{os.getpid()}"
    else:
        return
    given = conf.get(_JAVA_OPTIONS, "") or ""
    conf.set(_JAVA_OPTIONS, f"{given} {option} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr".strip())


def _adopt(path: Path) -> None:
    """Put an archive in its place that a run before has left; Java itself checks that it is whole and fits."""
    for made in path.parent.glob(f"{path.name}.*"):
        if made.stat().st_mtime < time.time() - _STILL_WRITTEN:
            made.replace(path)
