"""Looks at the state of a network in its checkpoint, through Spark's state data source; nothing is run or written.

A checkpoint has a folder for each clock, and in it `spark`, which is Spark's own. All reading is of one micro-batch
that is committed, so a network that runs meanwhile does no harm. What the state means is told by the plan of the
network, if the folder has one; how chunks become rows is no concern of this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cql.errors import Code, CqlError, fail, nearest
from cql.intervals import TimeDomain
from planner import operators as op
from planner.plan import Plan
from runtime.fragments.contents import Contents
from runtime.fragments.decoding import Bucket, Chunk, owner_of, without_values
from runtime.fragments.packing import bytes_batch
from runtime.fragments.views import views
from runtime.spark.labels import label

CLOCKS = ("integer", "timestamp", "timeless")
"""The folders of a checkpoint."""

_NETWORK = "network.json"
_MOST_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """The state of a network on one clock after a micro-batch."""

    clock: str
    number: int
    contents: Contents


def network_of(folder: Path) -> Plan | None:
    """Return the plan of the network whose folder this is; None if it is not written there."""
    path = folder / _NETWORK
    if not path.exists():
        return None
    with _readable(folder):
        plan = json.loads(path.read_text(encoding="utf-8"))["plan"]
        return Plan.from_json(plan if isinstance(plan, str) else json.dumps(plan))


def clock_folders(checkpoint: Path) -> list[Path]:
    """Return the folders of a checkpoint that have state; raises if there are none."""
    if not checkpoint.exists():
        raise fail(Code.NO_FILE, f"there is no folder '{checkpoint}'", hint="name the checkpoint of a network")
    own = [checkpoint] if (checkpoint / "spark").is_dir() or checkpoint.resolve().name in CLOCKS else []
    folders = own or [checkpoint / name for name in CLOCKS if (checkpoint / name).is_dir()]
    if not folders:
        hint = f"a checkpoint has a folder {CLOCKS[0]}, {CLOCKS[1]} or {CLOCKS[2]}, and in it the folder spark"
        raise fail(Code.BAD_FILE, f"'{checkpoint}' is not the checkpoint of a network", hint=hint)
    found = [folder for folder in folders if _committed(folder)]
    if not found:
        message = f"the checkpoint '{checkpoint}' has no state yet: no micro-batch is complete"
        raise fail(Code.BAD_FILE, message, hint="look again when the network has processed something")
    return found


def overview(spark: SparkSession, checkpoint: Path, batch: int | None = None) -> list[Batch]:
    """Return all that a checkpoint holds, without values: enough to list it, and to count rows."""
    return [_Reader(spark, folder, batch).read() for folder in clock_folders(checkpoint)]


def part(spark: SparkSession, checkpoint: Path, name: str, batch: int | None = None) -> dict[str, pa.Table]:
    """Return the rows of a part of the state by its id, or of all parts of an operator's state by the operator's."""
    known: list[str] = []
    for folder in clock_folders(checkpoint):
        reader = _Reader(spark, folder, batch)
        found = reader.part(name)
        if found:
            return found
        known += reader.names()
    candidates = nearest(name, known, _MOST_SUGGESTED)
    raise fail(
        Code.BAD_OPTION_VALUE,
        f"the checkpoint holds nothing under the id '{name}'",
        hint="without --store, all ids are listed",
        candidates=candidates,
    )


def _committed(folder: Path) -> list[int]:
    """Return the micro-batches of which Spark still has the state."""
    commits = folder / "spark" / "commits"
    return sorted(int(each.name) for each in commits.iterdir() if each.name.isdigit()) if commits.is_dir() else []


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn what goes wrong with damaged files into an error for the user."""
    try:
        yield
    except CqlError:
        raise
    except (PySparkException, Py4JError, pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        message = f"the state in '{folder}' cannot be read: {reason}"
        raise fail(Code.BAD_FILE, message, hint="the checkpoint is damaged, or was made by another version") from error


class _Reader:
    """Reads the folder of one clock."""

    def __init__(self, spark: SparkSession, folder: Path, batch: int | None) -> None:
        self._spark = spark
        self._folder = folder
        self._batch = _chosen(folder, batch)
        self._plan = network_of(folder)
        with _readable(folder):
            metadata = self._source("state-metadata").collect()
            self._operators = sorted({row.operatorId for row in metadata})
            self._partitions = max((row.numPartitions for row in metadata), default=1)

    def read(self) -> Batch:
        """Return what there is, without values."""
        return Batch(_clock(self._folder), self._batch, self._contents("", without_values))

    def part(self, name: str) -> dict[str, pa.Table]:
        """Return the rows of a part, or of the parts of an operator; nothing if there are none of this name."""
        of = {} if self._plan is None else views(self._plan)
        owner = of.get(name, name)
        # What an operator keeps is read as a whole, because its pieces refer to each other.
        prefix = "/".join(owner.split("/")[:2]) if owner.startswith("operator/") else owner
        contents = self._contents(f"{prefix}/" if not prefix.startswith("held/") else prefix, _as_it_is)
        ids = [line.id for line in contents.lines() if line.id == name or line.id.startswith(f"{name}/")]
        chosen = [name] if name in ids else ids
        with _readable(self._folder):
            return {each: contents.rows(each) for each in chosen}

    def names(self) -> list[str]:
        """Return the ids of all parts of the state."""
        with _readable(self._folder):
            found = [row.name for chunks in self._chunks() for row in chunks.select("name").distinct().collect()]
        return sorted({owner_of(name)[0] for name in found} | set({} if self._plan is None else views(self._plan)))

    def _contents(self, prefix: str, kept: Any) -> Contents:
        with _readable(self._folder):
            positions = {
                row.label: json.loads(row.json) for frame in self._variables("position") for row in frame.collect()
            }
            chunks: dict[int, dict[str, Chunk]] = {label: {} for label in positions}
            for frame in self._chunks():
                for row in frame.where(f.startswith("name", f.lit(prefix))).toLocalIterator():
                    chunks[row.label][row.name] = Chunk(kept(row.name, bytes_batch(row.chunk)), len(row.chunk))
            places = self._places()
            buckets = [
                Bucket(*places.get(label, (f"label-{label}", 0)), chunks[label], position)
                for label, position in positions.items()
            ]
            return Contents(self._plan, self._partitions, self._time, buckets)

    def _places(self) -> Mapping[int, tuple[str, int]]:
        """Return which bucket of which fragment each label stands for: there is a stateful operator for each level."""
        names = [f"{kind}-{level}" for level in range(len(self._operators)) for kind in ("hash", "single")]
        pairs = [(name, bucket) for name in names for bucket in range(self._partitions)]
        return {label(*pair, self._partitions): pair for pair in pairs}

    @property
    def _time(self) -> TimeDomain | None:
        sources = [] if self._plan is None else [each for each in self._plan.operators if isinstance(each, op.Source)]
        by_name = {"integer": TimeDomain.INTEGER, "timestamp": TimeDomain.TIMESTAMP}
        return next((each.time for each in sources if each.time), by_name.get(_clock(self._folder)))

    # Spark

    def _chunks(self) -> Iterator[DataFrame]:
        columns = ("key.label", "user_map_key.name", "user_map_value.chunk")
        return (self._variable(operator, "chunks").select(*columns) for operator in self._operators)

    def _variables(self, name: str) -> Iterator[DataFrame]:
        return (self._variable(operator, name).select("key.label", "value.json") for operator in self._operators)

    def _variable(self, operator: int, name: str) -> DataFrame:
        return self._source("statestore", operatorId=operator, batchId=self._batch, stateVarName=name)

    def _source(self, form: str, **options: Any) -> DataFrame:
        return self._spark.read.format(form).options(**options).load(str(self._folder.resolve() / "spark"))


def _as_it_is(name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _clock(folder: Path) -> str:
    return folder.resolve().name


def _chosen(folder: Path, batch: int | None) -> int:
    """Return the micro-batch that is looked at: the last one, or the one that is asked for."""
    known = _committed(folder)
    if batch is None or batch in known:
        return known[-1] if batch is None else batch
    message = f"there is no state of micro-batch {batch} in '{folder}'"
    raise fail(Code.BAD_OPTION_VALUE, message, hint=f"there is that of {known[0]} to {known[-1]}")
