"""The engine for Python: define streams and queries, give them data, look at their results.

`Engine(local=True)` runs queries in this process. Rows come from the sources of tables, are given as tables and data
frames, or are pushed one by one; results are there as soon as their instants are closed.

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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from cql import ast
from cql.binder.inference import column_type
from cql.bound import Rel
from cql.catalog import Catalog, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.parsing import parse_query
from cql.session import Listing, Outcome, Session
from cql.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.batch import ChangeBatch
    from runtime.formats import Rows
    from runtime.local import LocalRun


@dataclass(frozen=True, slots=True)
class Change:
    """A row that enters (+) or leaves (-) a result at an instant: an integer, or a datetime in UTC."""

    ts: int | datetime.datetime | None
    op: Literal["+", "-"]
    row: dict[str, Any]


class Engine:
    """Registered queries, and what runs them.

    Statements and functions may be given at any time; a query takes part from the next `start` on. As a context, the
    engine stops at the end.
    """

    def __init__(self, spark: object = None, *, local: bool = False) -> None:
        if not local or spark is not None:
            raise fail(
                Code.NOT_AVAILABLE,
                "queries cannot be run on Spark yet",
                hint="cql.Engine(local=True) runs them in this process",
            )
        self._session = Session()
        self._data: dict[str, tuple[StreamDef | RelationDef, Rows]] = {}
        self._run: LocalRun | None = None
        self._is_running = False
        self.function = self.catalog.function
        self.aggregate = self.catalog.aggregate

    @property
    def catalog(self) -> Catalog:
        """Everything that is defined."""
        return self._session.catalog

    # Defining

    def execute(self, text: str) -> list[Listing | str]:
        """Run the statements of a text, and return what SHOW, DESCRIBE and EXPLAIN among them answer.

        >>> engine = Engine(local=True)
        >>> engine.execute("CREATE STREAM s (k INT, t INT) TIMESTAMP BY t; DESCRIBE s")[0].columns
        ('column', 'type', 'null', 'note')
        """
        answers = (self._carry_out(outcome) for outcome in self._session.run(text))
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
            case ast.Explain(form=form):
                from planner.explain.statement import explain_statement

                assert outcome.request is not None and not isinstance(outcome.request, Catalog)
                return explain_statement(form, outcome.request, self.catalog)
        return outcome.listing

    def register(self, name: str, query: str) -> Query:
        """Register a query and return it; what it yields is kept for its `changes` and `snapshot`."""
        try:
            statement = ast.RegisterQuery(ast.Name(name), parse_query(query))
            self._session.run_statement(statement)
        except CqlError as error:
            raise error.within(Source(f"<{name}>", query)) from None
        return Query(self, name)

    def query(self, name: str) -> Query:
        """Return a registered query."""
        return Query(self, self.catalog.query(name).name)

    def stream(self, name: str, data: Any, *, timestamp: str, delay: str | int | None = None) -> None:
        """Define a stream by its data: an Arrow table, a data frame, or record batches or dictionaries.

        `timestamp` names the column of its instants, integers or timestamps; `delay` says how late rows may come:
        a length of time such as '5 seconds', or a number of seconds.

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

        found = as_table(data)
        columns = ", ".join(f"{_quoted(each.name)} {column_type(each.type, each.name)}" for each in found.schema)
        if not columns:
            raise fail(Code.CANNOT_INFER, f"the data for '{name}' has no columns", hint="define it by execute()")
        trial = Session(self.catalog.copy_for_trial())
        statement = f"CREATE {kind} {_quoted(name)} ({columns}){clause}"
        trial.run(statement, f"<{name}>")
        rows = rows_of(_table(trial.catalog, name), found)
        self._session.run(statement, f"<{name}>")
        self._data[name.casefold()] = _table(self.catalog, name), rows

    # Running

    def start(self) -> None:
        """Start all registered queries, and read all sources and data to their ends.

        Streams and changing relations that have neither wait for `push`; if there are none, the engine stops.
        """
        from runtime.local import LocalRun

        if self._is_running:
            raise fail(Code.BAD_DEFINITION, "the engine is running", hint="stop() it first")
        data = {key: [rows] for key, (table, rows) in self._data.items() if self.catalog.find(key) is table}
        self._run = LocalRun(self.catalog, list(self.catalog.queries.values()), data=data, live=True)
        self._is_running = True
        self._guarded(self._run.drain)
        if not self._run.waits_for_rows:
            self.stop()

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

    def stop(self) -> None:
        """End all sources: the last instants are closed, and results are complete. Does nothing if nothing runs."""
        if self._is_running and self._run:
            self._is_running = False
            self._run.finish()

    def stats(self) -> list[dict[str, Any]]:
        """Return what sources, operators, queues, synopses and stores have done and hold."""
        return _figures(self._run, None)

    def _waiting_run(self) -> LocalRun:
        if self._run is None:
            self.start()
        if not self._is_running or self._run is None:
            raise fail(Code.BAD_DEFINITION, "the engine has stopped", hint="start() begins anew")
        return self._run

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do some work; the run is given up if that fails."""
        assert self._run is not None, "there is a run"
        try:
            work()
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


def _figures(run: LocalRun | None, query: str | None) -> list[dict[str, Any]]:
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
