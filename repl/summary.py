"""What a run has done, when it has ended or in between: totals, and the latest results of each query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cql.secrets import shown_options
from repl.background import Background, Latest, Shown
from repl.figures import count, duration

if TYPE_CHECKING:
    from runtime.reports.losses import Loss

MOST_SHOWN = 20
"""How many of the latest changes of a query are shown."""

MARKS = {"+": "green", "-": "red"}


def summary(run: Background, query: str | None) -> RenderableType:
    """Return what a run has done, and the last results of all its queries or one."""
    parts: list[RenderableType] = []
    for name in run.queries if query is None else [query]:
        parts += [*query_lines(run, name, MOST_SHOWN), Text()]
    left_out = [Text(line, "yellow") for line in (*run.notes, *run.losses)]
    return Group(*parts, Text(total_line(run), "bold"), *left_out)


def query_lines(run: Background, name: str, most: int) -> list[RenderableType]:
    """Return the heading of a query and its latest changes."""
    latest, query = run.latest.get(name), run.queries.get(name)
    if query is None:
        return [Text(f"{name} does not take part; START runs it")]
    changes = run.course.last.rows_out.get(name, 0)
    if latest is None:
        assert query.sink is not None, "results without a sink are kept"
        where = shown_options(query.sink.format, query.sink.options).get("path", "")
        return [Text.assemble((name, "bold cyan"), f"  {changes:,} changes into {query.sink.format} {where}".rstrip())]
    shown = list(latest.changes)[-most:] if most > 0 else []
    total = max(changes, latest.count)
    what = "no results" if not total else f"{total:,} changes" if total > len(shown) else ""
    if total > len(shown) > 0:
        what += f", the last {len(shown)}"
    heading = Text.assemble((name, "bold cyan"), f"  {what}".rstrip())
    return [heading, changes_table(latest, shown)] if shown else [heading]


def changes_table(latest: Latest, shown: Sequence[Shown]) -> Table:
    """Return changes as a table: instant, mark, values."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("ts", justify="right", no_wrap=True)
    table.add_column("", width=1)
    for name, to_the_right in zip(latest.names, latest.to_the_right, strict=True):
        table.add_column(Text(name), justify="right" if to_the_right else "left", no_wrap=True, overflow="ellipsis")
    for change in shown:
        style = MARKS.get(change.mark, "")
        table.add_row(Text(change.instant), Text(change.mark, style), *map(Text, change.values))
    return table


def total_line(run: Background) -> str:
    """Return what a run has read and yielded, in a line."""
    sample = run.course.last
    state = "failed" if run.error else run.doing
    return f"{state} after {duration(run.seconds)}: {sample.total_in:,} rows in, {sample.total_out:,} changes out"


def status_line(run: Background | None) -> str | None:
    """Return how a run is doing in a line, or None if nothing runs."""
    if run is None or not run.is_running:
        return None
    sample = run.course.last
    parts = [f"{run.doing} {duration(run.seconds)}"]
    if sample.rows_in:
        parts.append(f"{count(sample.total_in)} rows in, {count(run.course.rate_in())}/s")
        parts.append(f"{count(sample.total_out)} changes out, {count(run.course.rate_out())}/s")
    if sample.lag is not None:
        parts.append(f"lag {duration(sample.lag)}")
    if sample.left_out:
        parts.append(f"{count(sample.left_out)} rows left out")
    parts += [shed_text(loss) for loss in sample.shedding if loss.wanted]
    return " | ".join(parts)


def shed_text(loss: Loss) -> str:
    """Return what a query is losing, in words."""
    if loss.wanted >= 1:
        return f"{loss.query} is suspended"
    return f"{loss.query} sheds {loss.wanted:.0%}, {loss.lost_units} of {loss.units} units lost"
