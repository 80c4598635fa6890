"""Answers on a terminal: coloured, fitted to its width, with a sign of life while something takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cql.errors import CqlError, Diagnostic, render, said
from cql.session import Listing
from cql.source import NO_SPAN, SourceText
from cql.visible import visible
from repl.consoles import SafeConsole
from repl.display import Display, indented, listed
from repl.help import Help

SHORT = 20
"""How long the texts of a column may be to stay in one line where there is not room for all."""


class TerminalDisplay(Display):
    """Prints answers and errors to a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.console = SafeConsole(highlight=False, soft_wrap=False)

    def show(self, what: RenderableType) -> None:
        """Print anything that rich can render."""
        self.console.print(what)

    def line(self, text: str) -> None:
        """Print one line that says what was done."""
        self.console.print(Text(text))

    def detail(self, text: str, *, warns: bool = False) -> None:
        """Print a line that says more of what was done."""
        self.console.print(Text(text, "yellow" if warns else "dim"))

    def text(self, text: str) -> None:
        """Print a text as it is; lines that are too long go on below."""
        self.console.print(Text(text.rstrip("\n")), soft_wrap=True)

    def listing(self, listing: Listing) -> None:
        """Print a table of texts; one with too many columns for the screen goes on over its edge."""
        listing = Listing(tuple(map(visible, listing.columns)), tuple(tuple(map(visible, row)) for row in listing.rows))
        widths = [max(map(len, column)) for column in zip(listing.columns, *listing.rows, strict=True)]
        if sum(min(width, SHORT) + 1 for width in widths) > self.console.width:
            self.console.print(Text(listed(listing).rstrip()), soft_wrap=True)
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
        for at, name in enumerate(listing.columns):
            longest = max((len(row[at]) for row in listing.rows), default=0)
            table.add_column(Text(name), overflow="fold", no_wrap=longest <= SHORT)
        for row in listing.rows:
            table.add_row(*map(Text, row))
        self.console.print(table)
        if not listing.rows:
            self.console.print(Text("(none)", "dim"))

    def help(self, entry: Help) -> None:
        """Print what a statement is for, its syntax and an example."""
        self.console.print(Text.assemble((entry.name, "bold cyan"), f"  {entry.summary}"))
        self.console.print(Text(indented(entry.syntax)), soft_wrap=True)
        self.console.print(Text("example", "dim"))
        self.console.print(Text(indented(entry.example), "green"), soft_wrap=True)

    def problem(self, error: CqlError) -> None:
        """Print what is wrong, where, and what to do about it."""
        source = error.source or SourceText("", "")
        sys.stdout.flush()
        for diagnostic in error.diagnostics:
            self.console.print(problem_text(diagnostic, source), soft_wrap=True)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that something is being done for as long as it takes."""
        if self.console.is_dumb_terminal:
            self.line(f"{what} ..")
            yield
            return
        with self.console.status(Text(what), spinner="dots"):
            yield


def problem_text(diagnostic: Diagnostic, source: SourceText) -> Text:
    """Return an error with its parts coloured; one without a place begins with its code."""
    if diagnostic.span == NO_SPAN and not source.text:
        lines = [f"{diagnostic.code.text}: {said(diagnostic.message)}"]
        lines += [f"  hint: {said(advice)}" for advice in [diagnostic.advice()] if advice]
    else:
        lines = render(diagnostic, source).split("\n")
    found = Text()
    for at, line in enumerate(lines):
        style = "bold red" if at == 0 else "red" if set(line.strip()) == {"^"} else ""
        found.append(line, "cyan" if line.startswith("  hint: ") else style)
        found.append("\n" if at < len(lines) - 1 else "")
    return found
