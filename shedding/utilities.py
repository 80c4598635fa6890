"""Types of rows by what their pairs may be worth: as many as can be learned about one by one.

The worth of a pair is a number of the user's. What of it is known of a row alone, before its partner is, makes its
type: numbers of the same size, within a factor of two, are of one type.
"""

from __future__ import annotations

import numpy as np

from shedding.fitting import Floats
from shedding.schedule import Ints

TYPES = 32
"""How many types there are."""

_LOWEST = -12
"""Numbers below two to the power of this are of the first type, with zero, and what is not a number."""


def types_of(columns: list[Floats], length: int) -> Ints:
    """Return the types of rows, given the numbers that are known of them.

    >>> types_of([np.array([0.0, 1.0, 1.9, 2.0, 1e9, np.nan])], 6).tolist()
    [0, 13, 13, 14, 31, 0]
    >>> types_of([], 2).tolist()
    [0, 0]
    """
    found = np.zeros(length, np.int64)
    for at, numbers in enumerate(columns):
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.floor(np.log2(np.abs(numbers))) - _LOWEST + 1
        own = np.where(np.isfinite(numbers) & (size > 0), np.clip(size, 0, TYPES - 1), 0).astype(np.int64)
        found = (found + (7 if at else 1) * own) % TYPES
    return found
