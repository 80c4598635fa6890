"""Changes that cancel: rows that both enter and leave at one instant, which nobody sees."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from runtime.columns.batch import Columns, Ints, Mask, take
from runtime.columns.row_codes import distinct_rows, remaining, row_codes


def netted_changes(instants: Ints, weights: Ints, columns: Columns) -> tuple[Ints, Ints, Columns]:
    """Return changes, sorted by instant, without those that cancel.

    Of equal rows that enter, the last ones remain, of those that leave, the first.
    """
    at = _perhaps_cancelling(instants, weights, columns)
    if not len(at):
        return instants, weights, columns
    number, first = distinct_rows((pa.array(instants[at]), *take(columns, at)), len(at))
    total = np.zeros(len(first), np.int64)
    np.add.at(total, number, weights[at])
    left = weights.copy()
    left[at] = remaining(number, weights[at], total)
    kept = np.flatnonzero(left)
    return instants[kept], left[kept], take(columns, kept)


def _perhaps_cancelling(instants: Ints, weights: Ints, columns: Columns) -> Ints:
    """Return the changes whose rows perhaps both enter and leave at an instant.

    Rows that enter and rows that leave mark the places of their codes in a table; where only one of them has left a
    mark, nothing cancels.
    """
    at = np.flatnonzero(_mixed_instants(instants, weights))
    if not len(at):
        return at
    codes = row_codes((pa.array(instants[at]), *take(columns, at)), len(at)).codes
    bits = (16 * len(at)).bit_length()
    place = (codes >> np.uint64(64 - bits)).astype(np.int64)
    enters = weights[at] > 0
    entering, leaving = np.zeros(1 << bits, np.bool_), np.zeros(1 << bits, np.bool_)
    entering[place[enters]] = True
    leaving[place[~enters]] = True
    return at[entering[place] & leaving[place]]


def _mixed_instants(instants: Ints, weights: Ints) -> Mask:
    """Return which changes are at instants at which rows both enter and leave."""
    enters = weights > 0
    if enters.all() or not enters.any():
        return np.zeros(len(weights), np.bool_)
    starts = np.flatnonzero(np.append(True, instants[1:] != instants[:-1]))
    sizes = np.diff(np.append(starts, len(instants)))
    entering = np.add.reduceat(enters.astype(np.int64), starts)
    return np.repeat((entering > 0) & (entering < sizes), sizes)
