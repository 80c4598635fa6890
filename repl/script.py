"""Carries out what statements ask for: answers are printed, TRY and START run queries to their ends.

`cql run` and the shell without a terminal use it as it is; the shell on a terminal runs queries in the background
instead (`repl/live.py`).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cql import ast
from cql.catalog import Catalog, QueryDef
from cql.session import Listing, Outcome
from cql.source import Span
from repl.display import Display, complain

if TYPE_CHECKING:
    from planner.plan import Plan
    from runtime.controllers.decision_log import Decision
    from runtime.engine.statistics import Figures
    from runtime.local.host_run import LocalHostRun
    from runtime.local.run import LocalRun
    from runtime.reports.losses import Loss
    from runtime.spark.run import SparkRun

EngineName = Literal["spark", "local"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How queries are to be run, as the command line says it."""

    engine: EngineName = "spark"
    output: Literal["table", "jsonl"] = "table"
    checkpoint: str | None = None
    adopt: bool = False
    is_whole_process: bool = False
    """Whether nothing but this command runs in the process, so that it may choose what libraries load."""


@dataclass(frozen=True, slots=True)
class Follow:
    """What becomes of the common plan when a query is registered or dropped, and what there is to say of it."""

    plan: Plan
    plan_before: Plan
    notes: tuple[str, ...] = ()


class Script:
    """Statements that are being carried out. START runs the queries that have not been started, to their ends."""

    def __init__(self, options: RunOptions, display: Display) -> None:
        self.options = options
        self.places: dict[tuple[str, str], Span] = {}
        """Where tables and queries are defined, in the text that errors are shown in."""
        self._display = display
        self._started: list[QueryDef] = []
        self._starts = 0
        self._figures: list[Figures] = []
        self._losses: list[Loss] = []
        self._decisions: list[Decision] = []

    def note_place(self, outcome: Outcome) -> None:
        """Remember where a definition says what a table is read from, or a query written to."""
        statement, definition = outcome.statement, outcome.definition
        if definition is not None:
            ends = getattr(statement, "source", None) or getattr(statement, "sink", None) or statement
            kind = "query" if isinstance(definition, QueryDef) else "table"
            self.places[kind, definition.name.casefold()] = ends.span

    def carry_out(self, outcome: Outcome, catalog: Catalog) -> None:
        """Print what SHOW, DESCRIBE, EXPLAIN and TRY answer, and run what START asks for."""
        match outcome.statement:
            case ast.Try():
                assert isinstance(outcome.request, Catalog)
                self._try(outcome.request)
            case ast.Start():
                assert isinstance(outcome.request, Catalog)
                self.start(outcome.request)
            case ast.Stop():
                self.stop()
            case ast.Explain(form=form):
                from planner.explain.statement import explain_statement
                from shedding.insert_drops import plan_of

                assert outcome.request is not None and not isinstance(outcome.request, Catalog)
                self._display.text(explain_statement(form, outcome.request, lambda: plan_of(catalog)))
            case ast.Show(what="STATS"):
                self._display.listing(self._statistics())
            case ast.Show(what="SHEDDING"):
                from runtime.reports.losses import losses_listing

                self._display.listing(losses_listing(list(catalog.queries.values()), self.shedding()))
            case ast.Show(what="DECISIONS"):
                from runtime.controllers.decision_log import decisions_listing

                self._display.listing(decisions_listing(self.decisions()))
        if outcome.listing is not None:
            self._display.listing(outcome.listing)

    def _try(self, catalog: Catalog) -> None:
        self._prepare_local()
        from runtime.local.preview import try_query

        self._display.gap()
        try_query(catalog).print(self._display.out)

    def _statistics(self) -> Listing:
        from runtime.local.run import statistics_listing

        return statistics_listing(self.figures())

    def figures(self) -> Sequence[Figures]:
        """Return what is known of the runs so far."""
        return self._figures

    def shedding(self) -> Sequence[Loss]:
        """Return what queries that shed have lost."""
        return self._losses

    def decisions(self) -> Sequence[Decision]:
        """Return what was decided last while queries ran."""
        return self._decisions

    # Changing

    def follow(self, catalog: Catalog, before: Catalog) -> Follow:
        """Return the plans of the queries as they are and as they were; what runs follows the change."""
        from repl.plan_summary import planned

        return Follow(planned(catalog), planned(before))

    def use_engine(self, engine: EngineName) -> None:
        """Choose where the next START runs queries."""
        self.options = replace(self.options, engine=engine)

    # Running

    def start(self, catalog: Catalog) -> None:
        """Run the queries of a catalog that have not been run, to the end of their sources."""
        queries = [query for query in catalog.queries.values() if not any(query is each for each in self._started)]
        if not queries:
            return
        self._started += queries
        self._display.gap()
        run = self._spark_run(catalog, queries) if self.options.engine == "spark" else self._local_run(catalog, queries)
        for line in run.notes:
            complain(line)
        with run:
            run.run_to_the_end()
        prints = any(query.sink is None or query.sink.format == "console" for query in queries)
        self._display.has_printed_results = prints and self.options.output == "table"
        self._figures += run.statistics()
        self._losses += run.shedding()
        self._decisions += run.decisions()
        for line in run.losses():
            complain(line)

    def stop(self) -> None:
        """Do nothing: what is started has been run to its end."""

    def watch(self, query: str | None) -> None:
        """Say that nothing runs: what is started has been run to its end."""
        self._display.line("nothing runs; START runs all queries to their ends and prints their results")

    def waiting(self, catalog: Catalog) -> list[str]:
        """Return the queries that have not been started."""
        started = [query.name for query in self._started]
        return [query.name for query in catalog.queries.values() if query.name not in started]

    def _prepare_local(self) -> None:
        if self.options.is_whole_process:
            hide_pandas()

    def _local_run(self, catalog: Catalog, queries: Sequence[QueryDef]) -> LocalRun | LocalHostRun:
        self._prepare_local()
        checkpoint = self._checkpoint()
        if checkpoint is not None or catalog.settings.files == "follow":
            from runtime.local.host_run import LocalHostRun

            signal.signal(signal.SIGTERM, signal.default_int_handler)
            return LocalHostRun(
                catalog,
                queries,
                checkpoint,
                output=self.options.output,
                adopt=self.options.adopt,
                places=self.places,
                warn=complain,
            )
        from runtime.local.run import LocalRun

        return LocalRun(catalog, queries, output=self.options.output, places=self.places)

    def _spark_run(self, catalog: Catalog, queries: Sequence[QueryDef]) -> SparkRun:
        from runtime.spark.run import SparkRun
        from runtime.spark.session import local_session

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return SparkRun(
            local_session(),
            catalog,
            queries,
            output=self.options.output,
            checkpoint=self._checkpoint(),
            adopt=self.options.adopt,
            places=self.places,
            warn=complain,
        )

    def _checkpoint(self) -> Path | None:
        """Return the folder for the queries of the next START: they are a network of their own."""
        self._starts += 1
        root = self.options.checkpoint
        return None if root is None else Path(root) if self._starts == 1 else Path(root) / f"start-{self._starts}"


def hide_pandas() -> None:
    """Let PyArrow find that there is no pandas, which it would load, slowly, to make an array of a list."""
    if "pandas" not in sys.modules:
        import pyarrow

        sys.meta_path.insert(0, _NoPandas())
        pyarrow.array([])
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
