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
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, cast

from cql import ast
from cql.binder.inference import column_type
from cql.bound import Rel
from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.parsing import parse_query
from cql.session import Listing, Outcome, Session
from cql.source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from runtime.batch import ChangeBatch
    from runtime.formats import Rows
    from runtime.local import LocalRun
    from runtime.spark.progress import Progress
    from runtime.spark.run import SparkRun

    Run: TypeAlias = LocalRun | SparkRun


Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Change:
    """A row that enters (+) or leaves (-) a result at an instant: an integer, or a datetime in UTC."""

    ts: int | datetime.datetime | None
    op: Literal["+", "-"]
    row: dict[str, Any]


class Engine:
    """Registered queries, and what runs them. As a context, the engine stops at the end.

    On Spark, with `checkpoint`, state and progress are kept in a folder, and an engine with the same queries goes on
    from there; with `adopt`, one with other queries does, as far as they are the same. Queries that are registered or
    dropped while the engine runs on Spark take part, or leave, at once: the others miss nothing and repeat nothing.
    In this process they take part from the next `start` on.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        local: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        adopt: bool = False,
    ) -> None:
        if local and (spark is not None or checkpoint is not None):
            raise fail(
                Code.BAD_DEFINITION,
                f"an engine that is local has no {'Spark session' if spark is not None else 'checkpoint'}",
                hint="leave out local=True to run on Spark",
            )
        self._spark = spark
        self._is_local = local
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._adopt = adopt
        self._session = Session()
        self._data: dict[str, tuple[StreamDef | RelationDef, Rows]] = {}
        self._frames: dict[str, tuple[StreamDef | RelationDef, DataFrame]] = {}
        self._callbacks: dict[str, Callable[..., None]] = {}
        self._run: Run | None = None
        self._is_running = False
        self.function = self.catalog.function
        self.aggregate = self.catalog.aggregate

    @property
    def catalog(self) -> Catalog:
        """Everything that is defined."""
        return self._session.catalog

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
                from runtime.local import statistics_listing

                return statistics_listing(self._run.statistics() if self._run else ())
            case ast.Try():
                from runtime.trial import try_query

                assert isinstance(outcome.request, Catalog), "TRY asks to run a catalog"
                return try_query(outcome.request, self._all_data()).text()
            case ast.Explain(form=form):
                from planner.explain.statement import explain_statement

                assert outcome.request is not None and not isinstance(outcome.request, Catalog)
                return explain_statement(form, outcome.request, self.catalog)
        return outcome.listing

    def register(self, name: str, query: str, *, into: Callable[..., None] | None = None) -> Query:
        """Register a query and return it; what it yields is kept for its `changes` and `snapshot`.

        With `into`, it goes to a function instead, which is called with the changes of each micro-batch and the id of
        that: on Spark with a DataFrame, as `foreachBatch` does, and at least once, under the same id; in this process
        with an Arrow table.
        """
        before = list(self.catalog.queries.values())
        try:
            statement = ast.RegisterQuery(ast.Name(name), parse_query(query))
            self._session.run_statement(statement)
        except CqlError as error:
            raise error.within(Source(f"<{name}>", query)) from None
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
                self._forget_callbacks()
                raise
            self._guarded(lambda: network.change(to))
        self._forget_callbacks()

    def _forget_callbacks(self) -> None:
        """Forget the functions of queries that are not registered any more."""
        names = {query.name for query in self.catalog.queries.values()}
        self._callbacks = {name: function for name, function in self._callbacks.items() if name in names}

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
        from runtime.memory import as_table, rows_of

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
        rows = rows_of(_table(trial.catalog, name), found)
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
        self._run = run = self._local_run() if self._is_local else self._spark_run()
        self._is_running = True
        self._guarded(run.begin)
        if not run.waits_for_rows:
            self.stop()

    def _local_run(self) -> LocalRun:
        from runtime.local import LocalRun

        queries = list(self.catalog.queries.values())
        return LocalRun(self.catalog, queries, data=self._all_data(), live=True, callbacks=self._callbacks)

    def _spark_run(self) -> SparkRun:
        from runtime.spark.run import SparkRun
        from runtime.spark.session import local_session

        self._spark = self._spark or local_session()
        return SparkRun(
            self._spark,
            self.catalog,
            list(self.catalog.queries.values()),
            frames=self._given(self._frames),
            data=self._all_data(),
            callbacks=self._callbacks,
            live=True,
            checkpoint=self._checkpoint,
            adopt=self._adopt,
        )

    def _all_data(self) -> dict[str, list[Rows]]:
        return {key: [rows] for key, rows in self._given(self._data).items()}

    def _given(self, given: dict[str, tuple[StreamDef | RelationDef, Given]]) -> dict[str, Given]:
        """Return what was given for tables that are still the ones that it was given for."""
        return {key: value for key, (table, value) in given.items() if self.catalog.find(key) is table}

    def push(self, name: str, rows: Any) -> None:
        """Take rows of a stream or changing relation that has no source: tuples, dictionaries, a table, a data frame.

        The engine is started if it has not been.
        """
        from runtime.memory import rows_of

        run = self._waiting_run()
        taken = rows_of(_table(self.catalog, name), rows)
        self._guarded(lambda: run.push(name, taken))

    def heartbeat(self, name: str, instant: int | str | datetime.datetime) -> None:
        """Say that nothing before an instant comes from a stream or changing relation any more."""
        from runtime.memory import instant_of

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

        With a checkpoint, instants that are open stay open: an engine that goes on from there closes them.
        """
        if self._is_running and self._run:
            if self._checkpoint is None:
                self._guarded(self._run.close_instants)
            self._is_running = False
            self._run.finish()

    def progress(self) -> dict[str, Progress]:
        """Return how far a network on Spark is, by the clock of its queries."""
        network = self._network
        return {} if network is None else network.progress()

    @property
    def _network(self) -> SparkRun | None:
        """What runs on Spark, if something does."""
        return cast("SparkRun", self._run) if self._is_running and not self._is_local else None

    def stats(self) -> list[dict[str, Any]]:
        """Return what sources, operators, queues, synopses and stores have done and hold."""
        return _figures(self._run, None)

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
        except BaseException:
            self._is_running = False
            self._run.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        elif self._is_running and self._run:
            self._is_running = False
            self._run.abort()


class Query:
    """A registered query of an engine, and what it has yielded since the engine was started."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self._engine = engine

    def __repr__(self) -> str:
        return f"Query({self.name!r})"

    def changes(self) -> Iterator[Change]:
        """Yield all changes so far, in the order of time."""
        table = self.to_arrow()
        names = table.column_names[2:]
        for batch in table.to_batches():
            columns = [column.to_pylist() for column in batch.columns]
            for instant, sign, *row in zip(*columns, strict=True):
                yield Change(instant, sign, dict(zip(names, row, strict=True)))

    def to_arrow(self) -> pa.Table:
        """Return all changes so far as a table: instant, + or -, and the columns of the row."""
        from runtime.memory import changes_table

        schema = self._tree.schema
        return changes_table(self._batches(), [c.name for c in schema], [c.type for c in schema], self._tree.time)

    def snapshot(self) -> pa.Table:
        """Return what the relation holds after the last closed instant; of a stream, all its elements so far."""
        from runtime.memory import contents_table

        schema = self._tree.schema
        return contents_table(self._batches(), [c.name for c in schema], [c.type for c in schema])

    def stats(self) -> list[dict[str, Any]]:
        """Return what the parts of the network that serve this query have done and hold."""
        return _figures(self._engine._run, self.name)

    @property
    def _tree(self) -> Rel:
        return self._engine.catalog.query(self.name).tree

    def _batches(self) -> list[ChangeBatch]:
        run = self._engine._run
        if run is None or not run.has(self.name):
            raise fail(Code.BAD_DEFINITION, f"the query '{self.name}' has not been started", hint="engine.start()")
        if self.name not in run.results:
            sink = self._engine.catalog.query(self.name).sink
            where = sink.format if sink else "standard output"
            raise fail(
                Code.BAD_DEFINITION, f"the results of '{self.name}' go to {where}", hint="register it without INTO"
            )
        return run.results[self.name].batches


def _figures(run: Run | None, query: str | None) -> list[dict[str, Any]]:
    figures = run.statistics(query) if run else ()
    return [{key: value for key, value in asdict(each).items() if value is not None} for each in figures]


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
