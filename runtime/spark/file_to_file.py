"""Results that tasks write themselves: files are read, their rows filtered and computed, and written, in one go.

Rows of such a query never leave the process that reads them; what goes to the driver is which files were written. They
are under hidden names, where the driver finds those of tasks that ended well, and puts them in their places.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from cql.source import NO_SPAN
from planner.plan import Plan
from runtime.columns.batch import ChangeBatch
from runtime.connectors import SourceRows
from runtime.connectors.batch_sinks import hidden_folder
from runtime.connectors.file_options import FileOptions
from runtime.connectors.result_files import FileWriter, result_file, sync
from runtime.connectors.results import Result
from runtime.network.lateness import PlaceSpan
from runtime.operators.registry import Step, make_step
from runtime.spark.broadcast import Sent
from runtime.spark.sources import FileReader, carrying, on_time
from runtime.spark.task_properties import directives_now
from runtime.user_errors import Places, UserFunctionFailed, explained, placed

WRITTEN = pa.schema(
    [
        ("file", pa.string()),
        ("rows", pa.int64()),
        ("read", pa.int64()),
        ("skipped", pa.int64()),
        ("late", pa.int64()),
        ("spans", pa.string()),
    ]
)
"""What a task says of itself: the file that it has written, if there were results, and what it kept of each place."""

_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class Writing:
    """A query without state as its tasks see it."""

    plan: Plan
    reader: FileReader
    result: Result
    options: FileOptions
    functions: Mapping[str, Any]
    callers: Mapping[str, Sequence[str]]
    """The queries that call each function of the user."""
    places: Places
    feed: str
    delay: int
    """How much earlier than the latest row before it a row of the stream may be."""
    _steps: list[tuple[str, Step]] = field(default_factory=list, repr=False)

    @property
    def steps(self) -> list[tuple[str, Step]]:
        """The operators above the source, ready to work, and their ids."""
        if not self._steps:
            chain = (each for each in self.plan.operators if each.is_row_by_row)
            self._steps.extend((each.id, make_step(each, self.functions)) for each in chain)
        return self._steps

    def made(self, rows: SourceRows) -> ChangeBatch:
        """Return the results of some rows."""
        batch = ChangeBatch(rows.columns, rows.instants, None, None, 0)
        for operator, step in self.steps:
            try:
                batch = step.passed(batch)
            except UserFunctionFailed as failure:
                failure.operator = operator
                raise explained(failure, self.callers, self.plan, self.places) from None
        return batch


def write_results(sent: Sent[Writing]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes the results of the files that it is given the names of."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, context = sent.get(), TaskContext.get()
        assert context is not None, "this runs in tasks"
        folder = hidden_folder(Path(work.options.path).absolute(), int(context.getLocalProperty(_BATCH) or 0))
        path = folder / f"{context.partitionId():08}.{work.options.format}"
        with carrying(), placed(work.places.get(("table", work.reader.source.table.name.casefold()), NO_SPAN)):
            yield _written(work, batches, path)

    return write


def _written(work: Writing, batches: Iterable[pa.RecordBatch], path: Path) -> pa.RecordBatch:
    """Write the results of some files to another, if there are any, and return what is to be said of that."""
    writer: FileWriter | None = None
    made = read = skipped = late = 0
    spans: list[PlaceSpan] = []
    judge = directives_now().judge(work.feed, work.delay)
    try:
        for part in work.reader.parts(batches):
            rows, behind = on_time(part, judge)
            results = work.made(rows)
            if writer is None and len(results):
                writer = result_file(work.result, work.options, path)
            if writer is not None:
                writer.write(results)
            made, read, skipped, late = (
                made + len(results),
                read + len(part.rows),
                skipped + part.skipped,
                late + behind,
            )
            spans.append(PlaceSpan.of(part.place, rows.instants))
        if writer is not None:
            writer.close()
            sync(path)
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    file = str(path) if writer is not None else None
    said = (file, made, read, skipped, late, json.dumps(spans))
    return pa.record_batch([[value] for value in said], schema=WRITTEN)
