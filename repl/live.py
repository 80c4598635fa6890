"""Carries out statements on a terminal: START runs queries in the background, and they can be watched and changed.

One run is there at a time. When it ends, by itself or by STOP, what it did is told; if it failed, why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cql.catalog import Catalog, QueryDef
from cql.errors import Code, CqlError, fail
from repl.background import Background, LocalBackground, SparkBackground
from repl.script import EngineName, Follow, RunOptions, Script
from repl.summary import summary
from repl.terminal_display import TerminalDisplay

if TYPE_CHECKING:
    from planner.plan import Plan
    from runtime.controllers.decision_log import Decision
    from runtime.engine.statistics import Figures
    from runtime.network.run import NextNetwork
    from runtime.reports.losses import Loss
    from runtime.spark.run import SparkRun

KEPT = 10_000
"""How many rows of changes a run keeps of each query until they are looked at."""

AT_ONCE = 0.4
"""A run that ends within so many seconds is not watched: what it did is told."""


class Live(Script):
    """Statements that are being carried out on a terminal."""

    def __init__(self, options: RunOptions, display: TerminalDisplay) -> None:
        super().__init__(options, display)
        self._terminal = display
        self.report_bug: Callable[[BaseException], None] = _raise
        self.run: Background | None = None
        self.plan: Plan | None = None
        self._is_told = True
        self._warnings: list[str] = []
        """What has been left out while queries run, and has not been told."""
        self._lock = threading.Lock()
        self._is_prompting = False

    def warm_up(self) -> None:
        """Load what the first plan and the first TRY need, while something is being typed."""
        self._prepare_local()
        import runtime.local.preview  # noqa: F401

    @property
    def is_running(self) -> bool:
        """Whether queries run."""
        return self.run is not None and self.run.is_running

    def figures(self) -> Sequence[Figures]:
        """Return what is known of the run that is on, or was last."""
        if self.run is None:
            return ()
        return self.run.current_figures()

    def shedding(self) -> Sequence[Loss]:
        """Return what queries that shed have lost, in the run that is on, or was last."""
        return () if self.run is None else self.run.course.last.shedding

    def decisions(self) -> Sequence[Decision]:
        """Return what was decided last, in the run that is on, or was last."""
        return () if self.run is None else self.run.course.last.decisions

    # Running

    def start(self, catalog: Catalog) -> None:
        """Run all queries in the background, and watch them."""
        if self.is_running:
            raise fail(Code.BAD_DEFINITION, "queries are running", hint="STOP ends them; \\watch shows them")
        from repl.plan_summary import planned

        self.plan = planned(catalog)
        _check_sources(self.plan, catalog)
        queries = [_shown_here(query) for query in catalog.queries.values()]
        self._is_told = False
        self.run = self._background(catalog, queries)
        self.run.start()
        if not self.run.wait(AT_ONCE):
            self.watch(None)
        self.tell_end()

    def _background(self, catalog: Catalog, queries: Sequence[QueryDef]) -> Background:
        if self.options.engine == "local":
            self._prepare_local()
            from runtime.local.run import LocalRun

            return LocalBackground(queries, self._ended, lambda: LocalRun(catalog, queries, live=True, keep=KEPT))

        def make() -> SparkRun:
            from runtime.spark.run import SparkRun
            from runtime.spark.session import local_session

            session = local_session()
            checkpoint = self.options.checkpoint
            return SparkRun(
                session,
                catalog,
                queries,
                live=True,
                keep=KEPT,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                adopt=self.options.adopt or self._starts > 1,
                warn=self._warned,
            )

        self._starts += 1
        return SparkBackground(queries, self._ended, make, stays_open=self.options.checkpoint is not None)

    def stop(self) -> None:
        """End the run, and tell what it did."""
        if self.run is None or not self.run.is_running:
            self.tell_end()
            self._display.line("nothing runs")
            return
        with self._terminal.working("stopping"):
            self.run.stop()
            while not self.run.wait(0.1):
                pass
        self.tell_end()

    def watch(self, query: str | None) -> None:
        """Show what runs until it has ended or somebody wants to type."""
        if self.run is None:
            self._display.line("nothing runs; START runs the registered queries")
            return
        if self.run.is_running:
            from repl.screen import watch

            watch(self.run, self.plan, query, self._terminal)
            if self.run.is_running:
                self._display.line("the queries run on; \\watch shows them, STOP ends them")
        elif self._is_told:
            self._terminal.show(summary(self.run, query))
        self.tell_end()

    # Ending

    def _ended(self) -> None:
        """Called by the thread of the run when it has ended."""
        with self._lock:
            if self._is_prompting:
                self._tell()

    def _warned(self, line: str) -> None:
        """Called by threads of the run with what has been left out."""
        with self._lock:
            self._warnings.append(line)
            if self._is_prompting:
                self._tell()

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Let news appear above what is being typed, for as long as it is."""
        with self._lock:
            self._tell()
            self._is_prompting = True
        try:
            yield
        finally:
            with self._lock:
                self._is_prompting = False

    def tell_end(self) -> None:
        """Tell that the run has ended, if it has and nobody knows."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        warnings, self._warnings = self._warnings, []
        for line in warnings:
            self._display.detail(line, warns=True)
        if self._is_told or self.run is None or self.run.is_running:
            return
        self._is_told = True
        error = self.run.error
        if error is None:
            self._terminal.show(summary(self.run, None))
        elif isinstance(error, CqlError):
            self._display.line("the run failed; what is defined is still there")
            self._display.problem(error)
        else:
            self.report_bug(error)

    # Changing

    def follow(self, catalog: Catalog, before: Catalog) -> Follow:
        """Return the plans of the queries as they are and as they were; what runs on Spark follows the change."""
        follow = super().follow(catalog, before)
        run = self.run
        if run is None or not run.is_running:
            return follow
        joins = len(catalog.queries) > len(before.queries)
        later = ("  it takes part from the next START on" if joins else "  it runs on until the next START",)
        if not isinstance(run, SparkBackground):
            return Follow(follow.plan, follow.plan_before, later)
        queries = [_shown_here(query) for query in catalog.queries.values()]
        _check_sources(follow.plan, catalog)

        def change(network: SparkRun) -> NextNetwork:
            to = network.next_network(catalog, queries)
            network.change(to)
            return to

        with self._terminal.working("changing what runs"):
            to = run.changed(change)
        if to is None:
            return Follow(follow.plan, follow.plan_before, later)
        run.now_running(queries)
        self.plan = follow.plan
        notes = [f"  {note}" for note in to.notes]
        if not joins:
            return Follow(follow.plan, follow.plan_before, (*notes, "  it is over; the others run on"))
        plans = [change.record.plan for change, _ in to.parts.values() if change.added or change.changed]
        notes.append("  it runs from now on: streams begin empty for it")
        return Follow(next(iter(plans), follow.plan), follow.plan_before, tuple(notes))

    def use_engine(self, engine: EngineName) -> None:
        """Choose where the next START runs queries."""
        super().use_engine(engine)
        if self.is_running:
            self._display.line("what runs goes on where it is")


def _raise(error: BaseException) -> None:
    raise error


def _shown_here(query: QueryDef) -> QueryDef:
    """Return a query whose results would go to standard output as one whose results are shown on the screen."""
    if query.sink is None or query.sink.format != "console":
        return query
    shown = query.model_copy(update={"sink": None})
    shown.attach(query.tree)
    return shown


def _check_sources(plan: Plan, catalog: Catalog) -> None:
    """Raise if nothing says where the rows of a table come from: in a shell nobody could push them."""
    for source in plan.sources:
        table = catalog.table(source.table)
        if getattr(table, "source", None) is None:
            raise fail(
                Code.BAD_DEFINITION,
                f"nothing says where the rows of '{table.name}' come from",
                hint="define it with FROM csv OPTIONS (path '..'), or FROM rate, which makes rows",
            )
