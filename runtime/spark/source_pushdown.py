"""What stands straight above a table that Spark reads, as Spark's own columns: filters, projections, and no more
columns than these need.

A row that no filter lets through still tells the time, so it is not left out: it comes without values. Tables that
the engine's readers read in the task itself are not handed through Spark's rows at all, and have no use for this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cql.errors import Code, fail
from cql.settings import OnBadRow
from planner import operators as op
from runtime.columns.batch import ChangeBatch, Ints, Mask, take
from runtime.network.layout import NetworkLayout
from runtime.spark.columns import lowered, lowered_predicate
from runtime.spark.sources import BAD, INSTANT, PLACE, SIGN, place_runs


@dataclass(frozen=True)
class Read:
    """Rows of a table in one place: the instants of all of them, and what the operators above it make of them."""

    place: str
    instants: Ints
    made: dict[str, ChangeBatch]
    skipped: int


@dataclass(frozen=True)
class PrefixReader:
    """Takes apart the columns of `prefixed`; it is sent to the tasks."""

    table: str
    on_bad_row: OnBadRow
    has_signs: bool
    widths: dict[str, int]
    """How many columns each of the operators has."""

    def reads(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Read]:
        """Yield the rows of some batches, those of each place apart."""
        for batch in batches:
            for run in place_runs(batch):
                yield self._read(run)

    def _read(self, run: pa.RecordBatch) -> Read:
        good = np.asarray(run.column(BAD).is_null())
        if not good.all() and self.on_bad_row == "fail":
            raise fail(
                Code.BAD_DATA,
                f"the source of '{self.table}' has a bad row: {run.column(BAD).drop_null()[0]}",
                hint="correct it, or leave bad rows out: SET on_bad_row = skip",
            )
        instants = np.asarray(run.column(INSTANT).filter(pa.array(good)))
        signs = np.asarray(run.column(SIGN).filter(pa.array(good)), np.int64) if self.has_signs else None
        made = {name: self._made(run, number, good, signs) for number, name in enumerate(self.widths)}
        return Read(str(run.column(PLACE)[0]), instants, made, int(len(good) - good.sum()))

    def _made(self, run: pa.RecordBatch, number: int, good: Mask, signs: Ints | None) -> ChangeBatch:
        """Return what one operator puts out."""
        name = list(self.widths)[number]
        kept = np.flatnonzero(good & np.asarray(run.column(f"k{number}")))
        columns = [run.column(f"p{number}_{at}") for at in range(self.widths[name])]
        start = np.asarray(run.column(INSTANT).take(pa.array(kept)))
        weight = None if signs is None else signs[np.cumsum(good)[kept] - 1]
        return ChangeBatch(take(columns, kept), start, None, weight, 0)


def prefixed(
    layout: NetworkLayout, feed: str, native: DataFrame, on_bad_row: OnBadRow
) -> tuple[DataFrame, PrefixReader] | None:
    """Return a table's rows as the operators above it see them; None if only the engine can compute one of these.

    `native` has the rows in Spark's columns, as `SourceFrame.native` does.
    """
    sources = {each.id: each for each in layout.plan.sources if each.feed == feed}
    producers = list(dict.fromkeys(edge.producer for edge in layout.edges if edge.source in sources))
    columns: list[Column] = []
    widths: dict[str, int] = {}
    for number, producer in enumerate(producers):
        steps = steps_of(layout.plan.below(layout.plan.by_id[producer]))
        if steps is None:
            return None
        condition, values = steps
        keep = f.coalesce(condition, f.lit(False))
        columns.append(keep.alias(f"k{number}"))
        columns += [f.when(keep, value).alias(f"p{number}_{at}") for at, value in enumerate(values)]
        widths[producer] = len(values)
    has_signs = SIGN in native.columns
    always = [f.col(name) for name in (INSTANT, PLACE, BAD, *((SIGN,) if has_signs else ()))]
    table = next(iter(sources.values())).table
    return native.select(*always, *columns), PrefixReader(table, on_bad_row, has_signs, widths)


def steps_of(operators: Iterable[op.Operator]) -> tuple[Column, list[Column]] | None:
    """Return the condition and the columns of a chain of operators, source first; None if Spark has none.

    A column is that of a row for which the condition holds. A `window-drop` among them is left to those who know what
    is lost: it goes by instants alone.
    """
    source, *chain = operators
    columns: list[Column] = [f.col(f"c{at}") for at in range(len(source.columns))]
    condition = f.lit(True)
    for operator in chain:
        match operator:
            case op.Select():
                holds = lowered_predicate(operator.predicates, columns)
                if holds is None:
                    return None
                condition = condition & holds
            case op.Project():
                made = [lowered(item, columns) for item in operator.items]
                columns = [column for column in made if column is not None]
                if len(columns) < len(made):
                    return None
            case op.Output():
                continue
            case op.SourceDrop() if operator.goes_by_instants:
                continue
            case _:
                return None
    return condition, columns
