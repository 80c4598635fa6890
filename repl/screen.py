"""The live screen: what runs, redrawn in place; plain lines where a terminal cannot do that.

`picture` says what is seen, for any size; `watch` shows it until the run has ended or somebody wants to type. It reads
samples and latest results, and never touches the run.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from planner.explain.headlines import headline
from planner.plan import Plan
from repl.background import Background
from repl.consoles import SafeConsole
from repl.figures import count, duration, size, sparkline
from repl.summary import query_lines, shed_text, status_line
from repl.terminal_display import TerminalDisplay
from runtime.engine.statistics import Figures

MOST_OPERATORS = 8
"""How many operators are listed, those that take the most time."""

FEWEST_LINES = 4
"""How many lines a query needs to be worth more than a list of operators."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REDRAWN = 0.25
_LINES = 1.0
FOOTER = "q or Ctrl-C: back to typing; the queries run on. Tab: the next query alone"


def watch(run: Background, plan: Plan | None, query: str | None, display: TerminalDisplay) -> None:
    """Show what runs until it has ended or somebody wants to type."""
    if display.console.is_dumb_terminal or not display.console.is_terminal:
        _print_lines(run, display)
        return
    seen = _ShownQuery(run, query)
    application: Application[None] = Application(
        layout=Layout(
            Window(FormattedTextControl(lambda: _drawn(application, run, plan, seen.chosen), show_cursor=False))
        ),
        key_bindings=_keys(seen),
        full_screen=True,
        refresh_interval=_REDRAWN,
    )

    async def leave_at_the_end() -> None:
        while run.is_running:
            await asyncio.sleep(_REDRAWN / 2)
        if application.is_running:
            application.exit()

    def begin() -> None:
        application.create_background_task(leave_at_the_end())

    application.run(pre_run=begin)


def _print_lines(run: Background, display: TerminalDisplay) -> None:
    """Print a line a second until the run has ended or Ctrl-C."""
    try:
        while not run.wait(_LINES):
            display.line(status_line(run) or "")
    except KeyboardInterrupt:
        pass


@dataclass(slots=True)
class _ShownQuery:
    """Which query is shown alone; None if all are."""

    run: Background
    chosen: str | None

    def turn(self) -> None:
        """Go on to the next query, and after the last to all of them."""
        names = [None, *self.run.queries]
        at = names.index(self.chosen) if self.chosen in names else 0
        self.chosen = names[(at + 1) % len(names)]


def _keys(seen: _ShownQuery) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("q")
    @keys.add("Q")
    @keys.add("c-c")
    @keys.add("c-d")
    @keys.add("escape", eager=True)
    def leave(event: KeyPressEvent) -> None:
        event.app.exit()

    @keys.add("tab")
    def turn(event: KeyPressEvent) -> None:
        seen.turn()

    return keys


def _drawn(application: Application[None], run: Background, plan: Plan | None, query: str | None) -> ANSI:
    rows, columns = application.output.get_size()
    return ANSI("\n".join(picture(run, plan, query, columns, rows)))


# What is seen


def picture(run: Background, plan: Plan | None, query: str | None, width: int, height: int) -> list[str]:
    """Return what is seen in a window of some size: so many lines, none of them longer than it is wide."""
    head = drawn(packed(_state(run), width), width)
    foot = drawn([Text(FOOTER, "dim")], width)
    operators = drawn(_operators(run, plan, query, width, min(MOST_OPERATORS, height // 3)), width)
    room = height - len(head) - len(foot) - len(operators)
    if room < 2 + FEWEST_LINES * len(run.queries):
        operators, room = [], height - len(head) - len(foot)
    body = drawn(_queries(run, query, room), width)[: max(0, room)]
    blank = [""] * (room - len(body))
    return [*head, *body, *blank, *operators, *foot][:height]


def drawn(parts: Iterable[RenderableType], width: int) -> list[str]:
    """Return the lines of some parts, with the marks of their colours."""
    out = io.StringIO()
    console = SafeConsole(file=out, width=width, force_terminal=True, color_system="standard")
    for part in parts:
        console.print(part, no_wrap=True, overflow="ellipsis", crop=True)
    return out.getvalue().splitlines()


def _state(run: Background) -> Iterator[Text]:
    """Yield the figures of the whole run."""
    sample, course = run.course.last, run.course
    busy = run.is_running and run.doing != "running"
    frame = _FRAMES[int(time.monotonic() * 8) % len(_FRAMES)] if busy else "●"
    yield Text(f"{frame} {run.doing} {duration(run.seconds)}", "bold green" if run.is_running else "bold")
    if not sample.rows_in:
        return
    yield _figure("in", f"{count(sample.total_in)} rows {count(course.rate_in())}/s {sparkline(course.rates_in())}")
    yield _figure("out", f"{count(sample.total_out)} changes {count(course.rate_out())}/s")
    if sample.lag is not None:
        yield _figure("lag", duration(sample.lag))
    if sample.batch_seconds is not None:
        yield _figure("batch", duration(sample.batch_seconds))
    yield _figure("state", f"{size(sample.state_bytes)} {sparkline(course.state_sizes())}")
    for name, counted in (("late", sample.late), ("skipped", sample.skipped)):
        if any(counted.values()):
            tables = ", ".join(f"{table} {count(rows)}" for table, rows in counted.items() if rows)
            yield Text.assemble((f"{name} ", "yellow"), tables)
    for loss in sample.shedding:
        if loss.wanted or loss.lost_units:
            yield Text(shed_text(loss), "bold yellow" if loss.wanted else "yellow")


def _figure(name: str, text: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), text)


def packed(parts: Iterable[Text], width: int) -> Iterator[Text]:
    """Yield lines of parts, as many in each as fit.

    >>> [str(line) for line in packed([Text("abc"), Text("def"), Text("g")], 8)]
    ['abc  def', 'g']
    """
    line = Text()
    for part in parts:
        if line.cell_len and line.cell_len + 2 + part.cell_len > width:
            yield line
            line = Text()
        line = Text.assemble(line, "  " if line.cell_len else "", part)
    if line.cell_len:
        yield line


def _queries(run: Background, chosen: str | None, room: int) -> Iterator[RenderableType]:
    """Yield the latest results of all queries, or the chosen one, in some lines."""
    names = [name for name in run.queries if chosen in (None, name)]
    fitting = max(1, room // FEWEST_LINES)
    shown = names if len(names) <= fitting else names[: max(1, fitting - 1)]
    if len(shown) < len(names):
        room -= 1
    lists = [name for name in shown if name in run.latest]
    each = (room - 2 * len(shown)) // max(1, len(lists))
    for name in shown:
        yield Text()
        heading, *table = query_lines(run, name, each - 1)
        assert isinstance(heading, Text)
        rate = f"  {count(run.course.rate_out(name))}/s {sparkline(run.course.rates_out(name))}"
        yield Text.assemble(heading, (rate, "dim"))
        yield from table
    if len(shown) < len(names):
        yield Text(f"and {len(names) - len(shown)} more; \\watch NAME shows one", "dim")


def _operators(run: Background, plan: Plan | None, query: str | None, width: int, most: int) -> list[RenderableType]:
    """Return a table of the operators that take the most time."""
    slowest = _slowest_first(run.course.last.operators, plan, query)
    if most < 2 or not slowest:
        return []
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), width=width)
    table.add_column("operator", ratio=1, no_wrap=True, overflow="ellipsis")
    shown = 5 if width >= 70 else 2
    for name in ("in", "out", "passes", "time", "state")[:shown]:
        table.add_column(name, justify="right", no_wrap=True)
    for operator in slowest[: most - 1]:
        node = None if plan is None else plan.by_id.get(operator.name)
        what = operator.what if plan is None or node is None else headline(node, plan.by_id)
        table.add_row(Text(what), *_cells(operator)[:shown])
    return [Text(), table]


def _slowest_first(operators: Iterable[Figures], plan: Plan | None, query: str | None) -> list[Figures]:
    """Return the operators of a query, or of all, those first that have taken the most time."""
    found = [operator for operator in operators if operator.what != "output"]
    if plan is not None and query is not None:
        own = {node.id for node in plan.below(plan.output(query))} if query in plan.queries else set()
        found = [operator for operator in found if operator.name in own]
    return sorted(found, key=lambda operator: operator.seconds or 0.0, reverse=True)


def _cells(operator: Figures) -> tuple[str, ...]:
    return (
        count(operator.elements_in or 0),
        count(operator.elements_out or 0),
        "" if operator.selectivity is None else f"{operator.selectivity:.2g}",
        duration(operator.seconds or 0.0),
        "" if operator.bytes_now is None else size(operator.bytes_now),
    )
