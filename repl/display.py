"""Where a session answers: plain text for programs, coloured and fitted to its width on a terminal.

Answers go to standard output; where that holds JSON lines, or is not theirs, to standard error. Errors always go to
standard error, unless a person reads both on one terminal. Nothing here knows what statements mean.
"""

from __future__ import annotations

import sys
import textwrap
import traceback
from typing import TextIO

from cql.errors import CqlError
from cql.secrets import without_secrets
from cql.session import Listing
from cql.visible import visible, visible_lines
from repl.help import Help


def complain(text: str) -> None:
    """Print to standard error, after all that has been printed to standard output."""
    sys.stdout.flush()
    print(visible_lines(without_secrets(text)), file=sys.stderr, flush=True)


def complain_of_bug(error: BaseException, *, debug: bool) -> None:
    """Tell an error that is not the user's, in one line, or with all that is known of it."""
    if debug:
        complain("".join(traceback.format_exception(error)).rstrip())
    else:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        complain(f"internal error: {what}; this is a bug in cql, run again with --debug to see where")


class Display:
    """Prints answers as plain text. A blank line separates them from tables of results above."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        self._to_stderr = to_stderr
        self.has_printed_results = False

    @property
    def out(self) -> TextIO:
        """Where answers go."""
        return sys.stderr if self._to_stderr else sys.stdout

    def gap(self) -> None:
        """Leave a line free below results."""
        if self.has_printed_results:
            self.out.write("\n")
        self.has_printed_results = False

    def text(self, text: str) -> None:
        """Print a text that ends with its line, and a free line."""
        self.gap()
        print(visible_lines(text), file=self.out)

    def line(self, text: str) -> None:
        """Print one line that says what was done."""
        self.gap()
        print(visible_lines(text), file=self.out)

    def detail(self, text: str, *, warns: bool = False) -> None:
        """Print a line that says more of what was done, perhaps something to worry about."""
        print(visible_lines(text), file=self.out)

    def help(self, entry: Help) -> None:
        """Print what a statement is for, its syntax and an example."""
        self.gap()
        print(f"{entry.name}: {entry.summary}\n", file=self.out)
        print(indented(entry.syntax), file=self.out)
        print(f"\nexample:\n{indented(entry.example)}\n", file=self.out)

    def listing(self, listing: Listing) -> None:
        """Print a table of texts."""
        self.text(listed(listing))

    def problem(self, error: CqlError) -> None:
        """Print what is wrong, where, and what to do about it."""
        complain(error.render())


def indented(text: str) -> str:
    """Return a text with its lines moved to the right."""
    return textwrap.indent(text, "  ")


def listed(listing: Listing) -> str:
    """Return a listing as aligned lines."""
    rows = [tuple(map(visible, row)) for row in (listing.columns, *listing.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(listing.columns))]
    cells = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in cells)
