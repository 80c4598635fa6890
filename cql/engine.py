"""The engine for Python: define streams and queries, give them data, look at their results.

`Engine()` runs queries on Spark, in a session of its own or in the one that it is given; `Engine(local=True)` runs them
in this process. Rows come from the sources of tables, are given as tables and data frames, or are pushed one by one;
results are there as soon as their instants are closed.

>>> with Engine(local=True) as engine:
...     _ = engine.execute("CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at")
...     best = engine.register("best", "SELECT MAX(price) AS price FROM bid [Range 3 Seconds]")
...     engine.push("bid", [(7, 10, 1), (8, 30, 2), (8, 20, 4)])
...     best.snapshot().to_pylist()
[{'price': 30}]
>>> print(*best.changes(), sep="\\n")
Change(ts=1, op='+', row={'price': 10})
Change(ts=2, op='+', row={'price': 30})
Change(ts=2, op='-', row={'price': 10})

An instant is closed when something later has come: the bid at 4 counts when the engine stops, at the end of the block.
"""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from cql import ast, html
from cql.binder.inference import column_type
from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef, ViewDef
from cql.errors import Code, CqlError, fail
from cql.options import query_option
from cql.parsing import parse_query
from cql.query import MOST_KEPT, Change, Query, figures
from cql.session import Listing, Outcome, Session
from cql.source import SourceText

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from cql.query import Run
    from runtime.connectors import SourceRows
    from runtime.local.run import LocalRun
    from runtime.reports.losses import Loss
    from runtime.reports.progress import Batch, Progress
    from runtime.spark.result_frames import Handing
    from runtime.spark.run import SparkRun
    from runtime.spark.session import Lease

_LOG = logging.getLogger("cql")
"""Where it is told which rows are left out; without anybody who handles it, that is standard error."""

__all__ = ["Change", "Engine", "Query"]

Given = TypeVar("Given")


class Engine:
    """Registered queries, and what runs them. As a context, the engine stops at the end.

    On Spark, with `checkpoint`, state and progress are kept in a folder, and an engine with the same queries goes on
    from there; with `adopt`, one with other queries does, as far as they are the same. Queries that are registered or
    dropped while the engine runs on Spark take part, or leave, at once: the others miss nothing and repeat nothing.
    In this process they take part from the next `start` on.

    Of each query whose results go nowhere else, the last `keep` rows of changes are kept in memory, and what it holds.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        local: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        adopt: bool = False,
        keep: int = MOST_KEPT,
    ) -> None:
        if local and (spark is not None or checkpoint is not None):
            raise fail(
                Code.BAD_DEFINITION,
                f"an engine that is local has no {'Spark session' if spark is not None else 'checkpoint'}",
                hint="leave out local=True to run on Spark",
            )
        if keep < 1:
            raise fail(Code.BAD_DEFINITION, f"an engine cannot keep {keep} changes", hint="keep=1 is the least")
        self._spark = spark
        self._is_local = local
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._adopt = adopt
        self._keep = keep
        self._session = Session()
        self._data: dict[str, tuple[StreamDef | RelationDef, SourceRows]] = {}
        self._frames: dict[str, tuple[StreamDef | RelationDef, DataFrame]] = {}
        self._callbacks: dict[str, Callable[..., None]] = {}
        self._handings: dict[str, Handing] = {}
        self._pushed_until: dict[str, int] = {}
        """The latest instant that was pushed into each table since the start."""
        self._temporary: Path | None = None
        self._lease: Lease | None = None
        self.notes: list[str] = []
        """What there was to say of the last change of what runs on Spark: state given up, one bucket for all."""
        self._run: Run | None = None
        self._is_running = False
        self.function = self.catalog.function
        self.aggregate = self.catalog.aggregate

    @property
    def catalog(self) -> Catalog:
        """Everything that is defined."""
        return self._session.catalog

    def __repr__(self) -> str:
        where = "in this process" if self._is_local else "on Spark"
        state = "running" if self._is_running else "stopped" if self._run else "not started"
        return f"Engine({len(self.catalog.queries)} queries, {where}, {state})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the tables, the queries, and how far they are."""
        progress = self.progress().values()
        kinds = {StreamDef: "stream", RelationDef: "relation", ViewDef: "view"}
        tables = [
            (table.name, kinds[type(table)], _first(each.rows_in.get(table.name) for each in progress))
            for table in self.catalog.tables()
        ]
        queries = [
            (query.name, query.text, _first(each.rows_out.get(query.name) for each in progress))
            for query in self.catalog.queries.values()
        ]
        shown = html.heading("Engine", repr(self).removeprefix("Engine(").removesuffix(")"))
        if tables:
            shown += html.table(("table", "kind", "rows read"), tables)
        if queries:
            shown += html.table(("query", "text", "results"), queries)
        return shown

    # Defining

    def execute(self, text: str) -> list[Listing | str]:
        """Run the statements of a text, and return what SHOW, DESCRIBE, EXPLAIN and TRY answer.

        >>> engine = Engine(local=True)
        >>> engine.execute("CREATE STREAM s (k INT, t INT) TIMESTAMP BY t; DESCRIBE s")[0].columns
        ('column', 'type', 'null', 'note')
        """
        before = list(self.catalog.queries.values())
        answers = [self._carry_out(outcome) for outcome in self._session.run(text)]
        self._follow(before)
        return [answer for answer in answers if answer is not None]

    def _carry_out(self, outcome: Outcome) -> Listing | str | None:
        match outcome.statement:
            case ast.Start():
                self.start()
            case ast.Stop():
                self.stop()
            case ast.Show(what="STATS"):
                from runtime.local.run import statistics_listing

                return statistics_listing(self._run.statistics() if self._run else ())
            case ast.Try():
                from runtime.local.preview import try_query

                assert isinstance(outcome.request, Catalog), "TRY asks to run a catalog"
                return try_query(outcome.request, self._all_data()).text()
            case ast.Show(what="SHEDDING"):
                from runtime.reports.losses import losses_listing

                return losses_listing(list(self.catalog.queries.values()), self._losses())
            case ast.Show(what="DECISIONS"):
                from runtime.controllers.decision_log import decisions_listing

                return decisions_listing(self._run.decisions() if self._run else ())
            case ast.Explain(form=form):
                from planner.explain.statement import explain_statement
                from shedding.insert_drops import plan_of

                assert outcome.request is not None and not isinstance(outcome.request, Catalog)
                return explain_statement(form, outcome.request, lambda: plan_of(self.catalog))
        return outcome.listing

    def register(
        self, name: str, query: str, *, into: Callable[..., None] | None = None, **options: str | float
    ) -> Query:
        """Register a query and return it; what it yields is kept for its `changes` and `snapshot`.

        `options` are those of REGISTER QUERY .. WITH: `shedding="window"`, `max_gap=10`, `max_latency="5 seconds"`,
        `utility="a.price"`.

        With `into`, it goes to a function instead, which is called with the changes of each micro-batch and the id of
        that: on Spark with a DataFrame, as `foreachBatch` does, and at least once, under the same id; in this process
        with an Arrow table.
        """
        before = list(self.catalog.queries.values())
        try:
            given = tuple(query_option(key, str(value)) for key, value in options.items())
            statement = ast.RegisterQuery(ast.Name(name), parse_query(query), given)
            self._session.run_statement(statement)
        except CqlError as error:
            raise error.within(SourceText(f"<{name}>", query)) from None
        if into is not None:
            self._callbacks[self.catalog.query(name).name] = into
        self._follow(before)
        return Query(self, name)

    def drop(self, name: str) -> None:
        """Drop a query."""
        before = list(self.catalog.queries.values())
        self._session.run_statement(ast.Drop(ast.ObjectKind.QUERY, ast.Name(self.catalog.query(name).name)))
        self._follow(before)

    def _follow(self, before: list[QueryDef]) -> None:
        """Let a network that runs on Spark follow a change of the registered queries.

        If it cannot, they are what they were before.
        """
        now = list(self.catalog.queries.values())
        network = self._network
        if network is not None and before != now:
            frames, data, callbacks = self._given(self._frames), self._all_data(), self._callbacks
            try:
                to = network.next_network(self.catalog, now, frames=frames, data=data, callbacks=callbacks)
            except CqlError:
                self.catalog.queries = {query.name.casefold(): query for query in before}
                self._forget_dropped()
                raise
            self.notes = list(to.notes)
            self._guarded(lambda: network.change(to))
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        """Forget the functions and frames of queries that are not registered any more."""
        queries = {query.name: query for query in self.catalog.queries.values()}
        self._callbacks = {name: function for name, function in self._callbacks.items() if name in queries}
        self._handings = {name: each for name, each in self._handings.items() if each.query is queries.get(name)}

    def query(self, name: str) -> Query:
        """Return a registered query."""
        return Query(self, self.catalog.query(name).name)

    def stream(self, name: str, data: Any, *, timestamp: str, delay: str | int | None = None) -> None:
        """Define a stream by its data: an Arrow table, a data frame, or record batches or dictionaries.

        On Spark it can be a streaming DataFrame, which is read for as long as the engine runs. `timestamp` names the
        column of its instants, integers or timestamps; `delay` says how late rows may come: a length of time such as
        '5 seconds', or a number of seconds.

        >>> engine = Engine(local=True)
        >>> engine.stream("bid", [{"price": 3, "at": 1}, {"price": 4, "at": 2}], timestamp="at", delay=1)
        >>> dear = engine.register("dear", "SELECT Istream(price) FROM bid WHERE price > 3")
        >>> engine.start()
        >>> [change.row for change in dear.changes()]
        [{'price': 4}]
        """
        clause = f" TIMESTAMP BY {_quoted(timestamp)}"
        if delay is not None:
            length = f"{delay} seconds" if isinstance(delay, int) else delay
            clause += f" DELAY {_text(length)}"
        self._define("STREAM", name, data, clause)

    def relation(self, name: str, data: Any, *, timestamp: str | None = None, sign: str | None = None) -> None:
        """Define a relation by its data: what it holds, or, with `timestamp` and `sign`, how it changes."""
        if (timestamp is None) is not (sign is None):
            raise fail(
                Code.BAD_DEFINITION, "a relation that changes has a timestamp and a sign; one of them is missing"
            )
        clause = f" TIMESTAMP BY {_quoted(timestamp)} SIGN BY {_quoted(sign)}" if timestamp and sign else ""
        self._define("RELATION", name, data, clause)

    def _define(self, kind: str, name: str, data: Any, clause: str) -> None:
        from runtime.connectors.python_data import as_table, rows_of

        if getattr(data, "isStreaming", False):
            self._define_frame(kind, name, data, clause)
            return
        found = as_table(data.toArrow() if hasattr(data, "sparkSession") else data)
        columns = ", ".join(f"{_quoted(each.name)} {column_type(each.type, each.name)}" for each in found.schema)
        if not columns:
            raise fail(Code.CANNOT_INFER, f"the data for '{name}' has no columns", hint="define it by execute()")
        trial = Session(self.catalog.copy_for_trial())
        statement = f"CREATE {kind} {_quoted(name)} ({columns}){clause}"
        trial.run(statement, f"<{name}>")
        rows = rows_of(trial.catalog.as_read(name), found)
        self._session.run(statement, f"<{name}>")
        self._data[name.casefold()] = _table(self.catalog, name), rows

    def _define_frame(self, kind: str, name: str, frame: DataFrame, clause: str) -> None:
        """Define a table whose rows come from a streaming DataFrame."""
        if self._is_local:
            raise fail(
                Code.BAD_DEFINITION,
                f"the data for '{name}' is a stream of Spark, and this engine is local",
                hint="cql.Engine(spark) reads it",
            )
        from runtime.spark.frames import column_types

        columns = ", ".join(f"{_quoted(column)} {type_}" for column, type_ in column_types(name, frame))
        self._session.run(f"CREATE {kind} {_quoted(name)} ({columns}){clause}", f"<{name}>")
        self._frames[name.casefold()] = _table(self.catalog, name), frame

    # Running

    def start(self) -> None:
        """Start all registered queries, and read all sources and data to their ends.

        Streams and changing relations that have neither wait for `push`, and streams of Spark that have no end go on;
        if there are none of both, the engine stops.
        """
        if self._is_running:
            raise fail(Code.BAD_DEFINITION, "the engine is running", hint="stop() it first")
        if self._run is not None and self._checkpoint is None:
            self._handings = {}
        self._pushed_until = {}
        self._run = run = self._local_run() if self._is_local else self._spark_run()
        self._is_running = True
        self.notes = list(run.notes)
        self._guarded(lambda: self._begin(run))
        if not run.waits_for_rows:
            self.stop()

    def _begin(self, run: Run) -> None:
        for name, handing in self._handings.items():
            handing.connect(run.results[name])
        run.begin()

    def _local_run(self) -> LocalRun:
        from runtime.local.run import LocalRun

        queries = list(self.catalog.queries.values())
        return LocalRun(
            self.catalog,
            queries,
            data=self._all_data(),
            live=True,
            callbacks=self._callbacks,
            keep=self._keep,
            warn=_LOG.warning,
        )

    def _spark_run(self) -> SparkRun:
        from runtime.spark.run import SparkRun

        return SparkRun(
            self._session_of_spark(),
            self.catalog,
            list(self.catalog.queries.values()),
            frames=self._given(self._frames),
            data=self._all_data(),
            callbacks=self._callbacks,
            live=True,
            keep=self._keep,
            checkpoint=self._checkpoint,
            adopt=self._adopt,
            warn=_LOG.warning,
        )

    def _all_data(self) -> dict[str, list[SourceRows]]:
        return {key: [rows] for key, rows in self._given(self._data).items()}

    def _given(self, given: dict[str, tuple[StreamDef | RelationDef, Given]]) -> dict[str, Given]:
        """Return what was given for tables that are still the ones that it was given for."""
        return {key: value for key, (table, value) in given.items() if self.catalog.find(key) is table}

    def push(self, name: str, rows: Any) -> None:
        """Take rows of a stream or changing relation that has no source: tuples, dictionaries, a table, a data frame.

        The engine is started if it has not been.
        """
        from runtime.columns.batch import BEGINNING
        from runtime.connectors.python_data import rows_of

        run = self._waiting_run()
        table, key = self.catalog.as_read(_table(self.catalog, name).name), name.casefold()
        taken = rows_of(table, rows, self._pushed_until.get(key))
        if len(taken):
            self._pushed_until[key] = max(int(taken.instants.max()), self._pushed_until.get(key, BEGINNING))
        self._guarded(lambda: run.push(name, taken))

    def heartbeat(self, name: str, instant: int | str | datetime.datetime) -> None:
        """Say that nothing before an instant comes from a stream or changing relation any more."""
        from runtime.connectors.python_data import instant_of

        run = self._waiting_run()
        table = _table(self.catalog, name)
        if table.time is None:
            raise fail(Code.BAD_DEFINITION, f"'{table.name}' never changes")
        at = instant_of(instant, table.time)
        self._guarded(lambda: run.heartbeat(name, at))

    def process_available(self) -> None:
        """Wait until everything that the sources have now is processed; instants that are open stay open."""
        if self._is_running and self._run:
            self._guarded(self._run.process_available)

    def shed(self, name: str, fraction: float) -> None:
        """Let a query lose a share of its windows, or of its rows, from now on; the others are not affected.

        What counts is the next unit of time of which nothing has been read. With a fraction of 0 nothing is lost any
        more; with 1, everything, whatever the gap that the query allows. Queries that lose the same units of time lose
        them together.
        """
        if not 0 <= fraction <= 1:
            raise fail(Code.BAD_OPTION_VALUE, f"the share to lose is between 0 and 1, not {fraction}")
        query = self.catalog.query(name).name
        self._waiting_run().shed(query, fraction)

    def _losses(self) -> list[Loss]:
        return self._run.shedding() if self._run else []

    def refresh(self, name: str) -> None:
        """Read a static relation again, while the engine runs on Spark: queries see what has changed from now on."""
        table, network = _table(self.catalog, name), self._network
        if table.time is not None:
            raise fail(Code.BAD_DEFINITION, f"'{table.name}' is not static: its changes come by themselves")
        if network is None:
            raise fail(Code.BAD_DEFINITION, "nothing runs on Spark", hint="start() reads all tables")
        self._guarded(lambda: network.refresh(name))

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the network has ended, or for some time; tell whether it runs on. Raises if it has failed."""
        network = self._network
        return network is not None and bool(self._guarded(lambda: network.wait(seconds)))

    def stop(self) -> None:
        """End all sources: the last instants are closed, and results are complete. Does nothing if nothing runs.

        Which rows were left out is told to the logger `cql`, which prints it to standard error if nobody handles it.

        With a checkpoint, instants that are open stay open: an engine that goes on from there closes them.
        """
        if self._is_running and self._run:
            if self._checkpoint is None:
                self._guarded(self._run.close_instants)
            self._is_running = False
            self._run.finish()
            for line in self._run.losses():
                _LOG.warning(line)

    def progress(self) -> dict[str, Progress]:
        """Return how far the queries are, by their clock: integer, timestamp or timeless; what runs now or ran last.

        >>> engine = Engine(local=True)
        >>> engine.stream("bid", [{"price": 3, "at": 1}, {"price": 4, "at": 2}], timestamp="at")
        >>> _ = engine.register("best", "SELECT MAX(price) AS price FROM bid")
        >>> engine.start()
        >>> progress = engine.progress()["integer"]
        >>> progress.rows_in, progress.rows_out, progress.instants
        ({'bid': 2}, {'best': 3}, {'best': 2})
        >>> [(operator.what, operator.elements_in) for operator in progress.operators]
        [('aggregate', 2), ('output', 3)]
        """
        return self._run.progress() if self._run else {}

    def history(self) -> list[Batch]:
        """Return what the last micro-batches did, oldest first: up to 1,000 of the queries on each clock.

        Each has a `part` (the clock), an `id`, when it was done (`at`) and how long it took (`seconds`); `rows_in`,
        `rows_out`, `late` and `skipped`, and the first two by name in `tables` and `queries`; and `state_bytes`, `lag`
        and `behind_now` as they were after it. `pandas.DataFrame(engine.history())` is a table of that.
        """
        from runtime.reports.progress import in_order

        return in_order([progress.course for progress in self.progress().values()])

    @property
    def _network(self) -> SparkRun | None:
        """What runs on Spark, if something does."""
        return cast("SparkRun", self._run) if self._is_running and not self._is_local else None

    def stats(self) -> list[dict[str, Any]]:
        """Return what sources, operators, queues, synopses and stores have done and hold."""
        return figures(self._run, None)

    def plot(self) -> Figure:
        """Return a figure of the run over time: rows, times, lag, state, late rows, and results of each query."""
        from runtime.reports.plots import plot

        return plot(self.history())

    # Frames

    def _session_of_spark(self) -> SparkSession:
        """Return the session that was given, or that of the process, on a lease that ends with the block."""
        if self._spark is not None:
            return self._spark
        if self._lease is None:
            from runtime.spark.session import Lease

            self._lease = Lease()
        return self._lease.session

    def _session_for(self, what: str) -> SparkSession:
        if self._is_local:
            hint = "cql.Engine() runs on Spark; snapshot() and to_arrow() work everywhere"
            raise fail(Code.BAD_DEFINITION, f"{what} needs Spark, and this engine is local", hint=hint)
        return self._session_of_spark()

    def _dataframe(self, name: str) -> DataFrame:
        """Return the changes of a query as a streaming frame."""
        spark = self._session_for(f"a DataFrame of '{name}'")
        query = self.catalog.query(name)
        if name in self._callbacks or (query.sink is not None and query.sink.format != "memory"):
            raise self._sent_elsewhere(name)
        if name not in self._handings:
            from runtime.spark.result_frames import Handing

            handing = Handing(query, self._folder_of_frames())
            if self._run is not None and name in self._run.results:
                handing.connect(self._run.results[name])
            self._handings[name] = handing
        return self._handings[name].frame(spark)

    def _folder_of_frames(self) -> Path:
        """Return where changes are handed over: in the checkpoint, or in a folder that goes with the engine."""
        if self._checkpoint is not None:
            return self._checkpoint / "frames"
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="cql-frames-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=self._temporary))

    def _sent_elsewhere(self, name: str) -> CqlError:
        sink = self.catalog.query(name).sink
        where = "a function" if name in self._callbacks else sink.format if sink else "standard output"
        message = f"the results of '{name}' go to {where}"
        hint = "register it without into=" if name in self._callbacks else "register it without INTO"
        return fail(Code.BAD_DEFINITION, message, hint=hint)

    def _waiting_run(self) -> Run:
        if self._run is None:
            self.start()
        if not self._is_running or self._run is None:
            raise fail(Code.BAD_DEFINITION, "the engine has stopped", hint="start() begins anew")
        return self._run

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Do some work and return its result; the run is given up if that fails."""
        assert self._run is not None, "there is a run"
        try:
            return work()
        except BaseException as error:
            self._is_running = False
            self._run.failure = error if isinstance(error, Exception) else None
            self._run.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stop()
            elif self._is_running and self._run:
                self._is_running = False
                self._run.abort()
        finally:
            if self._lease is not None:
                self._lease.give_back()
                self._lease = None


def _first(values: Iterable[int | None]) -> int | str:
    """Return the first number that is known."""
    return next((value for value in values if value is not None), "")


def _table(catalog: Catalog, name: str) -> StreamDef | RelationDef:
    table = catalog.table(name)
    if not isinstance(table, StreamDef | RelationDef):
        raise fail(Code.BAD_DEFINITION, f"'{table.name}' is a view; rows go to streams and relations")
    return table


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
