"""What notebooks show: tables as plain HTML, everything in them escaped. No scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:2px 10px;text-align:{align};white-space:pre-wrap;vertical-align:top"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table; numbers stand right, and NULL is grey.

    >>> "<b>" in table(["k"], [["<b>"]]), "&lt;b&gt;" in table(["k"], [["<b>"]])
    (False, True)
    """
    head = "".join(f'<th style="{_CELL.format(align="left")}">{escape(str(name))}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    below = f'<div style="color:#777;font-size:90%">{escape(note)}</div>' if note else ""
    return f'<table style="border-collapse:collapse"><tr>{head}</tr>{body}</table>{below}'


def _cell(value: object) -> str:
    if value is None:
        return f'<td style="{_CELL.format(align="left")};color:#aaa">NULL</td>'
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td style="{_CELL.format(align="right" if is_number else "left")}">{escape(str(value))}</td>'


def heading(name: str, what: str) -> str:
    """Return a line with a name and what is to be said of it."""
    return f'<div><b>{escape(name)}</b> <span style="color:#777">{escape(what)}</span></div>'
