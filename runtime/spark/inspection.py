"""Looks at the state of a network in its checkpoint, through Spark's state data source; nothing is run or written.

A checkpoint has a folder for each clock, and in it `spark`, which is Spark's own. All reading is of one micro-batch
that is committed, so a network that runs meanwhile does no harm. What the state means is told by the plan of the
network, if the folder has one; how chunks become rows is no concern of this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cql.errors import Code, CqlError, fail, nearest, one_of
from cql.intervals import TimeDomain
from planner.plan import Plan
from runtime.network.messages import bytes_batch
from runtime.network.record import NetworkRecord
from runtime.spark.bucket_labels import label
from runtime.spark.clusters import checkpoint_folder
from runtime.spark.session import network_session
from runtime.state_inspection.decoding import Bucket, StateChunk, owner_of, without_values
from runtime.state_inspection.listing import StateListing
from runtime.state_inspection.synopsis_views import views

CLOCKS = ("integer", "timestamp", "timeless")
"""The folders of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a network on one clock after a micro-batch: where it is, and the plan if that is known."""

    folder: Path
    batch: int
    plan: Plan | None

    @property
    def clock(self) -> str:
        return self.folder.name

    @property
    def time(self) -> TimeDomain | None:
        """The clock, as the sources of the plan or the name of the folder tell it."""
        sources = () if self.plan is None else self.plan.sources
        by_name = {"integer": TimeDomain.INTEGER, "timestamp": TimeDomain.TIMESTAMP}
        return next((each.time for each in sources if each.time), by_name.get(self.clock))


def saved_states(checkpoint: Path, batch: int | None = None) -> list[Saved]:
    """Return what a checkpoint has for each of its clocks, after the last micro-batch or after a given one."""
    checkpoint = checkpoint_folder(checkpoint)
    with _readable(checkpoint):
        folders = _folders(checkpoint)
        committed = {folder: found for folder in folders if (found := _committed(folder))}
    if not committed:
        message = f"the checkpoint '{checkpoint}' has no state yet: no micro-batch is complete"
        raise fail(Code.BAD_FILE, message, hint="look again when the network has processed something")
    return [Saved(folder, _chosen(folder, found, batch), _plan(folder)) for folder, found in committed.items()]


def overview(spark: SparkSession, saved: Saved) -> StateListing:
    """Return what there is without values: enough to list it, and to count rows."""
    return _Reader(spark, saved).contents("", without_values)


def part(spark: SparkSession, states: Sequence[Saved], name: str) -> dict[str, pa.Table]:
    """Return the rows of a part of the state by its id, or those of all parts whose ids begin with it."""
    known: list[str] = []
    for saved in states:
        reader = _Reader(spark, saved)
        found = reader.part(name)
        if found:
            return found
        known += reader.ids()
    raise fail(
        Code.BAD_OPTION_VALUE,
        f"the checkpoint holds nothing under the id '{name}'",
        hint="without --store, all ids are listed",
        candidates=nearest(name, known),
    )


def _folders(checkpoint: Path) -> list[Path]:
    """Return the folders of a checkpoint, one for each clock."""
    if not checkpoint.is_dir():
        what = "is not a folder" if checkpoint.exists() else "is not there"
        raise fail(Code.NO_FILE, f"the checkpoint '{checkpoint}' {what}", hint="name the folder of a network's state")
    if (checkpoint / "spark").is_dir() or checkpoint.name in CLOCKS:
        return [checkpoint]
    folders = [checkpoint / name for name in CLOCKS if (checkpoint / name).is_dir()]
    if not folders:
        hint = f"a checkpoint has a folder {one_of(CLOCKS)}, and in it a folder spark"
        raise fail(Code.BAD_FILE, f"'{checkpoint}' is not the checkpoint of a network", hint=hint)
    return folders


def _plan(folder: Path) -> Plan | None:
    record = NetworkRecord.load(folder)
    return None if record is None else record.plan


def _committed(folder: Path) -> list[int]:
    """Return the micro-batches that are complete and of which Spark has not deleted the state."""
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
    """Reads the state of one clock."""

    def __init__(self, spark: SparkSession, saved: Saved) -> None:
        self._spark = network_session(spark)
        self._saved = saved
        with _readable(saved.folder):
            metadata = self._source("state-metadata").collect()
            self._operators = sorted({row.operatorId for row in metadata})
            self._partitions = max((row.numPartitions for row in metadata), default=1)

    def part(self, name: str) -> dict[str, pa.Table]:
        """Return the rows of the parts of a name, by id; nothing if there is none."""
        owner = self._views.get(name, name)
        # What an operator keeps is read as a whole, because its pieces refer to each other.
        prefix = "/".join(owner.split("/")[:2]) if owner.startswith("operator/") else owner
        contents = self.contents(prefix, lambda _, rows: rows)
        with _readable(self._saved.folder):
            ids = contents.ids()
            chosen = [name] if name in ids else [each for each in ids if each.startswith(f"{name}/")]
            return {each: contents.rows(each) for each in chosen}

    def ids(self) -> list[str]:
        """Return the ids of all parts."""
        with _readable(self._saved.folder):
            names = [row.name for frame in self._chunks() for row in frame.select("name").collect()]
        return sorted({owner_of(name)[0] for name in names} | self._views.keys())

    def contents(self, prefix: str, kept: Callable[[str, pa.RecordBatch], pa.RecordBatch]) -> StateListing:
        """Return the state whose names begin in some way, and of each chunk what is to be kept."""
        with _readable(self._saved.folder):
            positions = {row.label: json.loads(row.json) for frame in self._positions() for row in frame.collect()}
            chunks: dict[int, dict[str, StateChunk]] = {label: {} for label in positions}
            for frame in self._chunks():
                for row in frame.where(f.startswith("name", f.lit(prefix))).toLocalIterator():
                    chunks[row.label][row.name] = StateChunk(kept(row.name, bytes_batch(row.chunk)), len(row.chunk))
            places = self._places()
            buckets = [
                Bucket(*places.get(label, (f"label-{label}", 0)), chunks[label], position)
                for label, position in positions.items()
            ]
            return StateListing(self._saved.plan, self._partitions, self._saved.time, buckets)

    @cached_property
    def _views(self) -> dict[str, str]:
        return {} if self._saved.plan is None else views(self._saved.plan)

    def _places(self) -> Mapping[int, tuple[str, int]]:
        """Return which bucket of which fragment each label stands for: there is a stateful operator for each level."""
        names = [f"{kind}-{level}" for level in range(len(self._operators)) for kind in ("hash", "single")]
        pairs = [(name, bucket) for name in names for bucket in range(self._partitions)]
        return {label(*pair, self._partitions): pair for pair in pairs}

    # Spark

    def _chunks(self) -> Iterator[DataFrame]:
        columns = ("key.label", "user_map_key.name", "user_map_value.chunk")
        return (self._variable(operator, "chunks").select(*columns) for operator in self._operators)

    def _positions(self) -> Iterator[DataFrame]:
        return (self._variable(operator, "position").select("key.label", "value.json") for operator in self._operators)

    def _variable(self, operator: int, name: str) -> DataFrame:
        return self._source("statestore", operatorId=operator, batchId=self._saved.batch, stateVarName=name)

    def _source(self, form: str, **options: Any) -> DataFrame:
        return self._spark.read.format(form).options(**options).load(f"file:{self._saved.folder / 'spark'}")


def _chosen(folder: Path, committed: Sequence[int], batch: int | None) -> int:
    """Return the micro-batch that is looked at: the last one, or the one that is asked for."""
    if batch is None:
        return committed[-1]
    if batch not in committed:
        message = f"there is no state of micro-batch {batch} in '{folder}'"
        raise fail(Code.BAD_OPTION_VALUE, message, hint=f"there is that of {committed[0]} to {committed[-1]}")
    return batch
