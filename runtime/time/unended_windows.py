"""How many rows of a source are in no window that has ended: those after the last end of a window that slides.

`[Range T Slide L]` ends at multiples of L, so a row at t is first seen at the smallest multiple at or after t. What has
come after the last multiple is counted as it is read, so that a run can say at its end what is in none of its results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from runtime.columns.batch import FOREVER, Ints


def end_of_windows(last: int, slides: Iterable[int]) -> int:
    """Return the first instant at which windows of all slides that were begun up to an instant have ended.

    >>> end_of_windows(23, [5, 10]), end_of_windows(23, []), end_of_windows(-7, [5])
    (30, 23, -5)
    """
    return min(max([last, *(-(-last // slide) * slide for slide in slides)]), FOREVER - 1)


class Unended:
    """The rows of one source after the last multiple of each of some slides.

    >>> rows = Unended([10])
    >>> rows.note(rows.counted(np.array([3, 8, 12, 14])))
    >>> rows.after(10, 14), rows.after(10, 20)
    (2, 0)
    """

    def __init__(self, slides: Iterable[int] = ()) -> None:
        self._rows = dict.fromkeys(slides, (-FOREVER, 0))
        """By slide, its last multiple that is not after any row, and how many rows are later."""

    @property
    def slides(self) -> list[int]:
        return list(self._rows)

    def counted(self, instants: Ints) -> list[list[int]]:
        """Return what some rows add: for each slide its last multiple among them, and how many are later."""
        if not len(instants):
            return []
        newest = int(instants.max())
        return [
            [slide, newest // slide * slide, int(np.count_nonzero(instants > newest // slide * slide))]
            for slide in self._rows
        ]

    def note(self, counted: Iterable[Sequence[int]]) -> None:
        """Take in what was counted of more rows."""
        for slide, multiple, count in counted:
            known, rows = self._rows.get(slide, (FOREVER, 0))
            if multiple >= known:
                self._rows[slide] = multiple, count + (rows if multiple == known else 0)

    def after(self, slide: int, last: int) -> int:
        """Return how many rows come after the last multiple of a slide up to an instant."""
        multiple, rows = self._rows.get(slide, (FOREVER, 0))
        return rows if last // slide * slide == multiple else 0

    @property
    def position(self) -> list[list[int]]:
        """What is known, for `note` of another one."""
        return [[slide, multiple, rows] for slide, (multiple, rows) in self._rows.items()]


def unended_text(query: str, rows: Mapping[str, int]) -> list[str]:
    """Return a line that says how many rows of each table a query has in windows that did not end; none without."""
    found = [
        f"{count:,} {'row' if count == 1 else 'rows'} of {table}" for table, count in sorted(rows.items()) if count
    ]
    if not found:
        return []
    return [f"{query}: in windows that did not end: {', '.join(found)}; SET end = close ends them"]
