"""A registered query from Python: its changes as they come, what it holds now, and both as frames of Spark.

Results are read from what a run keeps in memory. Nothing here starts, feeds or stops a run: `cql/engine.py` does.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cql import html
from cql.bound import Rel
from cql.errors import Code, fail
from cql.intervals import TimeDomain

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

    from cql.engine import Engine
    from runtime.columns.batch import ChangeBatch
    from runtime.connectors.keeping import KeptResults
    from runtime.local.run import LocalRun
    from runtime.reports.losses import Loss
    from runtime.spark.run import SparkRun

    Run: TypeAlias = LocalRun | SparkRun

MOST_KEPT = 1_000_000
"""How many rows of changes are kept of each query, unless it is said otherwise."""

_GLANCE = 0.2
"""For how many seconds one who follows changes waits before it looks whether the run has failed."""

_MOST_SHOWN = 20
"""How many rows a notebook shows of what a query holds."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row that enters (+) or leaves (-) a result at an instant: an integer, or a datetime in UTC."""

    ts: int | datetime.datetime | None
    op: Literal["+", "-"]
    row: dict[str, Any]


class Query:
    """A registered query of an engine, and what it has yielded since the engine was started."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self._engine = engine

    def __repr__(self) -> str:
        return f"Query({self.name!r})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: what the query is, and the first rows of what it holds."""
        query = self._engine.catalog.query(self.name)
        kind = "stream" if query.tree.is_stream else "relation"
        run = self._engine._run
        if run is None or self.name not in run.results:
            return html.heading(self.name, f"{kind}, {'no results here' if run else 'not started'}: {query.text}")
        rows, instant = self.snapshot(), self.instant
        state = "no instant is closed yet" if instant is None else f"as of {instant}"
        note = f"{rows.num_rows:,} rows" + (f", the first {_MOST_SHOWN} of them" if rows.num_rows > _MOST_SHOWN else "")
        shown = [list(row.values()) for row in rows.slice(0, _MOST_SHOWN).to_pylist()]
        return html.heading(self.name, f"{kind}, {state}") + html.table(rows.column_names, shown, note)

    # Changes

    def changes(self, *, follow: bool = False) -> Iterator[Change]:
        """Yield the changes so far, in the order of time; with `follow`, also those to come, until the engine stops.

        Of a long run, those at the beginning may be gone: `forgotten` says how many. One who follows waits for
        instants to be closed by rows that come from elsewhere: from sources, or pushed by another thread. It gets the
        error if the run fails, and E508 if it is so slow that changes are gone before it has seen them.

        >>> from cql import Engine
        >>> engine = Engine(local=True)
        >>> engine.stream("bid", [{"price": 3, "at": 1}, {"price": 4, "at": 2}], timestamp="at")
        >>> dear = engine.register("dear", "SELECT Istream(price) FROM bid WHERE price > 3")
        >>> engine.start()
        >>> for change in dear.changes(follow=True):
        ...     print(change.ts, change.op, change.row)
        2 + {'price': 4}
        """
        run, kept = self._kept()
        return self._follow(run, kept, self._tree) if follow else _listed(kept.batches, self._tree)

    def _follow(self, run: Run, kept: KeptResults, tree: Rel) -> Iterator[Change]:
        position = kept.kept_from
        while True:
            is_last = kept.is_complete
            if kept.kept_from > position:
                raise fail(
                    Code.FORGOTTEN,
                    f"{kept.kept_from - position} changes of '{self.name}' are gone before they were read",
                    hint="read faster, keep more (cql.Engine(keep=..)), or let a function take them (into=)",
                )
            batches, position = kept.since(position)
            yield from _listed(batches, tree)
            if is_last and not batches:
                break
            if not kept.wait(position, _GLANCE):
                run.check()
        if run.failure is not None:
            raise run.failure

    def to_arrow(self) -> pa.Table:
        """Return the changes so far as a table: instant, + or -, and the columns of the row."""
        return _table(self._kept()[1].batches, self._tree)

    @property
    def forgotten(self) -> int:
        """How many changes at the beginning are not among `changes()` any more: the last million rows are kept.

        What a relation holds is known all the same, and of a stream `snapshot()` are the elements that are kept.
        """
        return self._kept()[1].forgotten

    # Contents

    def snapshot(self) -> pa.Table:
        """Return what the relation holds after the last closed instant; of a stream, its elements, as far as kept.

        It is a table of Arrow; `snapshot().to_pandas()` is a data frame.

        >>> from cql import Engine
        >>> engine = Engine(local=True)
        >>> bids = [{"auction": 7, "price": 3, "at": 1}, {"auction": 8, "price": 4, "at": 2}]
        >>> engine.stream("bid", bids, timestamp="at")
        >>> best = engine.register("best", "SELECT auction, MAX(price) AS price FROM bid GROUP BY auction")
        >>> engine.start()
        >>> print(best.snapshot().to_pandas())
           auction  price
        0        7      3
        1        8      4
        >>> best.instant
        2
        """
        from runtime.connectors.python_data import contents_table

        schema = self._tree.schema
        return contents_table(self._kept()[1].contents(), [c.name for c in schema], [c.type for c in schema])

    @property
    def instant(self) -> int | datetime.datetime | None:
        """The last instant that is closed: results are complete up to it. None as long as there is none."""
        run = self._run()
        known = (progress.instants.get(self.name) for progress in run.progress().values())
        ticks = next((each for each in known if each is not None), None)
        if ticks is None or self._tree.time is not TimeDomain.TIMESTAMP:
            return ticks
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=ticks)

    # Frames

    def dataframe(self) -> DataFrame:
        """Return a streaming DataFrame of the query's changes, to go on with in Spark: `ts`, `op`, and the row.

        It has all changes of the run, whether it is asked for before or after the start, each once. They are handed
        over as files: with a checkpoint, these are part of it, and what reads them with a checkpoint of its own goes
        on after a restart without losing or repeating any; otherwise they are there as long as the engine is.
        """
        return self._engine._dataframe(self.name)

    def snapshot_dataframe(self) -> DataFrame:
        """Return what `snapshot()` returns as a DataFrame of Spark."""
        from runtime.spark.result_frames import contents_frame

        return contents_frame(self._engine._session_for(f"a DataFrame of '{self.name}'"), self.snapshot())

    # Figures

    def stats(self) -> list[dict[str, Any]]:
        """Return what the parts of the network that serve this query have done and hold."""
        return figures(self._engine._run, self.name)

    def shedding(self) -> Loss | None:
        """Return what this query has lost so far; None if it sheds nothing, or has not run.

        Its `stretches` tell kept from lost instants, so that a window that is missing is not taken for an empty one.
        """
        return next((loss for loss in self._engine._losses() if loss.query == self.name), None)

    def plot(self) -> Figure:
        """Return a figure of what the query has yielded over time, and of the work of its part of the run."""
        from runtime.reports.plots import plot

        return plot(self._engine.history(), self.name)

    # Reading

    @property
    def _tree(self) -> Rel:
        return self._engine.catalog.query(self.name).tree

    def _run(self) -> Run:
        run = self._engine._run
        if run is None or not run.has(self.name):
            raise fail(Code.BAD_DEFINITION, f"the query '{self.name}' has not been started", hint="engine.start()")
        return run

    def _kept(self) -> tuple[Run, KeptResults]:
        run = self._run()
        if self.name not in run.results:
            raise self._engine._sent_elsewhere(self.name)
        return run, run.results[self.name]


def _listed(batches: Iterable[ChangeBatch], tree: Rel) -> Iterator[Change]:
    for batch in batches:
        table = _table([batch], tree)
        names = table.column_names[2:]
        columns = [column.to_pylist() for column in table.columns]
        for instant, sign, *row in zip(*columns, strict=True):
            yield Change(instant, sign, dict(zip(names, row, strict=True)))


def _table(batches: Sequence[ChangeBatch], tree: Rel) -> pa.Table:
    from runtime.connectors.python_data import changes_table

    return changes_table(batches, [c.name for c in tree.schema], [c.type for c in tree.schema], tree.time)


def figures(run: Run | None, query: str | None) -> list[dict[str, Any]]:
    """Return the statistics of a run, or of the parts of it that serve a query, without what has no meaning."""
    found = run.statistics(query) if run else ()
    return [{key: value for key, value in asdict(each).items() if value is not None} for each in found]
