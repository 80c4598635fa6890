"""Rows that are too far ahead: one of them would make all rows after it late, for ever.

A row with a TIMESTAMP is ahead of the clock on the wall, as it was when the row was found; a row of integer time is
ahead of the latest good row before it in its stream, and the first row of a stream never is. A row that is too far
ahead is a bad row, so nothing after it is measured by it.
"""

from __future__ import annotations

import numpy as np

from runtime.columns.batch import BEGINNING, FOREVER, Ints, Mask

_BLOCK = 256
"""How many rows are looked at after a row that is too far ahead; more, as long as there is none."""


def ahead_of_clock(instants: Ints, now: int, most: int) -> Mask:
    """Return which instants are later than a clock shows by more than is allowed."""
    return instants > min(now + most, FOREVER)


def ahead_of_stream(instants: Ints, newest: int, most: int) -> Mask:
    """Return which instants are later than the latest good one before them by more than is allowed.

    `newest` is the latest before all of them, BEGINNING if there is none.

    >>> ahead_of_stream(np.array([5, 9, 100, 15, 101, 102, 14, 25]), BEGINNING, 10).tolist()
    [False, False, True, False, True, True, False, False]
    """
    found = np.zeros(len(instants), np.bool_)
    at, block = 0, len(instants)
    while at < len(instants):
        part = instants[at : at + block]
        before = np.maximum.accumulate(np.concatenate(([newest], part)))[:-1]
        bound = np.where(before == BEGINNING, FOREVER, np.minimum(before, FOREVER - most) + most)
        wrong = part > bound
        if not wrong.any():
            newest = max(newest, int(part.max()))
            at, block = at + len(part), 2 * block
            continue
        first = int(wrong.argmax())
        newest = int(before[first])
        good = part[first:] <= bound[first]
        count = int(good.argmax()) if good.any() else len(good)
        found[at + first : at + first + count] = True
        at, block = at + first + count, _BLOCK
    return found
