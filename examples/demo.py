"""The demonstration that `make demo` runs: continuous queries on local Spark through a burst of load.

The story is the one of the STREAM thesis: somebody watches a customer's link and the backbone behind it. Six queries
run as one network that shares operators and windows. Packets appear as files, by the clock on the wall; then one host
floods both links, and stops. On a terminal the screen is redrawn in place; in a pipe, lines are printed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

import cql
from examples.traffic import Phase, Traffic
from planner.network import Network, compile_definition
from planner.plan import combine
from repl.figures import count, duration, size, sparkline
from runtime.reports.losses import Loss

LINK = "(id BIGINT, source INT, target INT, bytes INT, at TIMESTAMP)"

QUERIES = """\
-- When too much comes, lose whole windows, not answers' correctness; and say so.
SET shedding = window; SET max_gap = 5; SET max_latency = '5 seconds';

-- How much is on the backbone, every two seconds?
REGISTER QUERY load AS
  SELECT Rstream(COUNT(*) AS packets, SUM(bytes) / 2 AS bytes_per_second)
  FROM backbone [Range 2 Seconds Slide 2 Seconds];

-- Who sends most of it?
REGISTER QUERY talkers AS
  SELECT Rstream(source, COUNT(*) AS packets) FROM backbone [Range 2 Seconds Slide 2 Seconds]
  GROUP BY source HAVING COUNT(*) > 1000;

-- Who sends hardly anything? (the same window and the same counts, kept once)
REGISTER QUERY quiet AS
  SELECT Rstream(source, COUNT(*) AS packets) FROM backbone [Range 2 Seconds Slide 2 Seconds]
  GROUP BY source HAVING COUNT(*) < 15;

-- Whose packets are large? (the same window)
REGISTER QUERY sizes AS
  SELECT Rstream(source, AVG(bytes) AS bytes) FROM backbone [Range 2 Seconds Slide 2 Seconds]
  GROUP BY source HAVING AVG(bytes) > 830;

-- How many packets on the backbone came over the customer's link?
REGISTER QUERY from_customer AS
  SELECT Rstream(COUNT(*) AS packets)
  FROM customer [Range 2 Seconds Slide 2 Seconds] AS c, backbone [Range 2 Seconds Slide 2 Seconds] AS b
  WHERE c.id = b.id;

SET shedding = none;

-- Whose last 100 packets were large? (a window of rows: Spark has none)
REGISTER QUERY heavy AS
  SELECT Istream(source, SUM(bytes) AS bytes) FROM backbone [Partition By source Rows 100]
  GROUP BY source HAVING SUM(bytes) > 92000;
"""

CALM, BURST = 3_000, 240_000
"""Packets a second on each link."""

MOST_SHOWN = 3
"""How many of the latest rows of a query are shown."""


def phases(scale: float) -> list[Phase]:
    """Return how the traffic goes."""
    return [
        Phase("calm", 12 * scale, CALM),
        Phase("burst", 10 * scale, BURST),
        Phase("calm again", 14 * scale, CALM),
    ]


@dataclass
class Watched:
    """What was seen of the run so far."""

    began: float
    peak_lag: float = 0.0
    peak_rate: float = 0.0
    recovered: float | None = None
    """How many seconds after the burst answers were as fresh as before it."""
    burst_ended: float | None = None


class Demo:
    """The engine, the traffic, and what is shown of them."""

    def __init__(self, folder: Path, console: Console, scale: float) -> None:
        self._console = console
        self._folder = folder
        self._traffic = Traffic(folder, phases(scale))
        self._seen = Watched(time.monotonic())
        self._calm_lag = 0.0
        self._engine = cql.Engine()

    def run(self) -> None:
        """Tell the story."""
        self._introduce()
        self._start()
        self._traffic.start()
        if self._console.is_terminal:
            self._redraw()
        else:
            self._print_lines()
        self._console.print("The traffic has ended; the last instants are closed.")
        self._engine.stop()
        self._sum_up()

    # Beginning

    def _introduce(self) -> None:
        self._console.rule("[bold]CQL on Spark[/]: two links, six queries, one network")
        self._console.print(
            "A customer's network is connected to a backbone. Packets on both links are streams; these continuous "
            "queries watch them:\n"
        )
        self._console.print(Syntax(QUERIES, "sql", background_color="default"))
        self._engine.execute("SET files = follow")
        for link in ("customer", "backbone"):
            self._engine.execute(
                f"CREATE STREAM {link} {LINK} TIMESTAMP BY at DELAY 1 SECOND "
                f"FROM parquet OPTIONS (path '{self._folder / link}')"
            )
        self._engine.execute(QUERIES)
        self._console.print(sharing(self._engine.catalog))

    def _start(self) -> None:
        began = time.monotonic()
        self._traffic.greet(CALM)
        with self._console.status("Starting Spark and the network ..."):
            self._engine.start()
            self._engine.process_available()
        self._console.print(f"Spark runs the network after {duration(time.monotonic() - began)}.\n")

    # Watching

    def _redraw(self) -> None:
        with Live(self._picture(), console=self._console, refresh_per_second=4, transient=True) as live:
            while not self._traffic.has_ended:
                time.sleep(0.25)
                self._look()
                live.update(self._picture())

    def _print_lines(self) -> None:
        told, next_line = None, time.monotonic()
        while not self._traffic.has_ended:
            time.sleep(0.2)
            self._look()
            if self._traffic.phase is not told:
                told = self._traffic.phase
                self._console.print(f"== {self._comment().plain}", soft_wrap=True)
            if time.monotonic() > next_line:
                next_line = time.monotonic() + 2
                figures = ", ".join(f"{name} {text}" for name, text, _ in self._figures())
                self._console.print(f"{duration(time.monotonic() - self._seen.began):>8}  {figures}", soft_wrap=True)

    def _look(self) -> None:
        """Note what the summary is to tell."""
        self._engine.wait(0)
        lag, seen, phase = self._lag(), self._seen, self._traffic.phase
        if phase is None or lag is None:
            return
        seen.peak_lag = max(seen.peak_lag, lag)
        seen.peak_rate = max(seen.peak_rate, self._rate())
        match phase.name:
            case "calm":
                self._calm_lag = max(self._calm_lag, lag)
            case "calm again":
                seen.burst_ended = seen.burst_ended or time.monotonic()
                if seen.recovered is None and lag <= self._calm_lag:
                    seen.recovered = time.monotonic() - seen.burst_ended

    def _lag(self) -> float | None:
        """Return by how much answers are behind the clock on the wall, as soon as there are some for the traffic."""
        (progress,) = self._engine.progress().values()
        has_begun = progress.closed is not None and progress.closed / 1e6 > self._traffic.began
        return progress.behind_now if has_begun else None

    def _rate(self) -> float:
        """Return how many rows a second were read in the last seconds."""
        recent = [batch for batch in self._engine.history() if batch.at > time.time() - 5]
        return sum(batch.rows_in for batch in recent) / 5

    def _figures(self) -> Iterator[tuple[str, str, str]]:
        """Yield names, values and courses of what is measured."""
        history = self._engine.history()
        state = sum(each.state_bytes for each in self._engine.progress().values())
        phase = self._traffic.phase
        yield "offered", f"{count(2 * phase.rate) if phase else 0}/s", ""
        yield (
            "read",
            f"{count(self._rate())}/s",
            sparkline([batch.rows_in / max(batch.seconds, 0.1) for batch in history], 30),
        )
        lag = self._lag()
        yield (
            "answers behind",
            "-" if lag is None else duration(lag),
            sparkline([b.behind_now or 0 for b in history], 30),
        )
        if history:
            yield "micro-batch", duration(history[-1].seconds), sparkline([batch.seconds for batch in history], 30)
        yield "state", size(state), sparkline([float(batch.state_bytes) for batch in history], 30)
        yield "late rows", str(sum(batch.late for batch in history)), ""
        shed = {loss.wanted: loss for name in self._engine.catalog.queries if (loss := self._loss(name)) is not None}
        if shed:
            most = shed[max(shed)]
            yield (
                "shedding",
                f"{most.wanted:.0%} of windows",
                f"{most.rows_dropped:,} rows never processed" * (most.lost_units > 0),
            )

    def _loss(self, name: str) -> Loss | None:
        return self._engine.query(name).shedding()

    def _comment(self) -> Text:
        match self._traffic.phase.name if self._traffic.phase else "":
            case "burst":
                return Text(f"BURST: host 7 floods both links, {BURST // CALM} times the traffic.", "bold red")
            case "calm again":
                return Text("The burst is over; shedding lets go.", "bold green")
        return Text("Calm: every packet counts at the instant that it carries.", "bold green")

    def _picture(self) -> RenderableType:
        figures = Table.grid(padding=(0, 2))
        for name, text, course in self._figures():
            figures.add_row(Text(name, "dim"), Text(text, "bold"), Text(course, "cyan"))
        queries = Table.grid(padding=(0, 2))
        for name in self._engine.catalog.queries:
            queries.add_row(Text(name, "bold cyan"), latest(self._engine.query(name)))
        clock = duration(time.monotonic() - self._seen.began)
        return Group(
            self._comment(),
            Panel(figures, title=f"load, {clock}", border_style="blue", title_align="left"),
            Panel(queries, title="latest results", border_style="blue", title_align="left"),
        )

    # Ending

    def _sum_up(self) -> None:
        engine, seen = self._engine, self._seen
        read = sum(sum(each.tables.values()) for each in engine.history())
        self._console.rule("[bold]What happened")
        table = Table.grid(padding=(0, 2))
        table.add_row("packets offered", f"{self._traffic.offered:,}")
        table.add_row("packets read", f"{read:,}")
        for name in self._engine.catalog.queries:
            results, loss = f"{len(engine.query(name).to_arrow()):,}", self._loss(name)
            lost = "" if loss is None else f"{loss.lost_units} of {loss.units} windows lost"
            table.add_row(f"results of {name}", results, lost)
        table.add_row("answers behind, at most", duration(seen.peak_lag))
        recovered = "not before the end" if seen.recovered is None else duration(seen.recovered)
        table.add_row("caught up after the burst in", recovered)
        self._console.print(table)
        self._console.print(
            "\nEvery answer that was delivered is exact; heavy did not ask for shedding, and lost nothing. Go on with "
            ".venv/bin/cql repl, the README and examples/."
        )


def latest(query: cql.engine.Query) -> Text:
    """Return the last rows that a query has yielded, newest first, on a line."""
    results = query.to_arrow().drop_columns(["ts", "op"])
    rows = results.slice(max(len(results) - MOST_SHOWN, 0)).to_pylist()
    texts = ("  ".join(f"{name} {_shown(value)}" for name, value in row.items()) for row in reversed(rows))
    return Text("  |  ".join(texts) or "-", no_wrap=True, overflow="ellipsis")


def _shown(value: float | None) -> str:
    return "NULL" if value is None else count(value)


def sharing(catalog: cql.Catalog) -> str:
    """Return what the queries of a catalog share, in words."""
    shared = Network.of_catalog(catalog).plan
    apart = [combine([compile_definition(query)]) for query in catalog.queries.values()]
    operators, stores = sum(len(plan.operators) for plan in apart), sum(len(plan.stores) for plan in apart)
    return (
        f"Compiled to one network: {len(shared.operators)} operators instead of {operators}, {len(shared.stores)} "
        f"stores instead of {stores}; each link is read once."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Continuous queries on local Spark through a burst of load.")
    parser.add_argument("--scale", type=float, default=1.0, help="how long the story takes, 1 for about a minute")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="cql-demo-"))
    try:
        Demo(folder, Console(), options.scale).run()
    except cql.CqlError as error:
        print(error.render(), file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
