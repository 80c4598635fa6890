"""Codes of rows for joins without equal keys: rows that satisfy the condition have some of them in common.

Texts have the codes of their words. Values that are to be close have the code of a cell of a grid: a row is in one, and
probes all cells that its matches can be in. Codes only narrow down the candidates; they never decide. So nothing may be
lost: not for rounding, and not by values beyond the grid, which share its outermost cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner.conditions import Band, Condition
from runtime.columns.batch import Columns, Ints
from runtime.columns.row_codes import Codes, distinct_sorted, expand_ranges, fixed_values, row_codes, valid_rows
from runtime.expressions.words import split_words
from runtime.state.store import Entries, EntriesOf, KeysOf

Floats = npt.NDArray[np.float64]

_CELLS = 4
"""How many cells a band is wide: with more, fewer candidates are in vain, but more cells are probed."""

_LARGEST = 2.0**1000
_OUTERMOST = 2.0**50
_ROUNDING = 2.0**-50
"""What may be lost by rounding, of all that is added up: conversions to DOUBLE and three sums of them lose less. As no
cell is farther out than its inverse, that is about one cell at most."""

_NO_NUMBER = int(_OUTERMOST) + 1


@dataclass(frozen=True, slots=True)
class Prefilter:
    """The codes under which rows of the two inputs of a join are stored, and those that they probe with, by input.

    Rows that satisfy the condition share at least so many.
    """

    names: tuple[str, str]
    stored: tuple[EntriesOf, EntriesOf]
    sought: tuple[EntriesOf, EntriesOf]
    least: int


def prefilter(condition: Condition, values_of: Sequence[KeysOf]) -> Prefilter:
    """Return the codes for a condition, given what computes the values that it compares."""
    if not isinstance(condition, Band):
        left, right = (_words(each) for each in values_of)
        names = f"words of {condition.left!r}", f"words of {condition.right!r}"
        return Prefilter(names, (left, right), (left, right), condition.least)
    near = condition.low, condition.high
    slack = condition.scale + abs(condition.low) + abs(condition.high)
    width = _cell_width(condition, slack)
    return Prefilter(
        (f"cells of {width!r} of {condition.left!r}", f"cells of {width!r} of {condition.right!r}"),
        (_cells(values_of[0], width), _cells(values_of[1], width)),
        (_near(values_of[0], width, (-near[1], -near[0]), slack), _near(values_of[1], width, near, slack)),
        1,
    )


# Words


def _words(texts_of: KeysOf) -> EntriesOf:
    """Return what gives texts the codes of their different words; words that clash have the same code, twice."""

    def entries(columns: Columns, length: int) -> Entries:
        first, words = split_words(texts_of(columns, length)[0])
        encoded = words.dictionary_encode()
        owner = np.repeat(np.arange(length), np.diff(first))
        count = max(len(encoded.dictionary), 1)
        rows, number = np.divmod(distinct_sorted(owner * count + encoded.indices.to_numpy()), count)
        return Entries(row_codes([encoded.dictionary], len(encoded.dictionary)).codes[number], rows)

    return entries


# Cells


def _cell_width(band: Band, slack: float) -> float:
    """Return how wide cells are: never so narrow that what is lost by rounding goes over several."""
    width = max((band.high - band.low) / _CELLS, 4 * _ROUNDING * slack)
    return width if width > 0 else 1.0


def _cells(values_of: KeysOf, width: float) -> EntriesOf:
    """Return what gives values the code of the cell that they are in."""

    def entries(columns: Columns, length: int) -> Entries:
        values, rows = _numbers(values_of(columns, length)[0])
        return Entries(_codes(_cell(values, values, width)), rows)

    return entries


def _near(values_of: KeysOf, width: float, near: tuple[float, float], slack: float) -> EntriesOf:
    """Return what gives values the codes of the cells in which others can be that are larger by some amounts."""

    def entries(columns: Columns, length: int) -> Entries:
        values, rows = _numbers(values_of(columns, length)[0])
        at = np.clip(values, -2 * _LARGEST, 2 * _LARGEST)
        more = _ROUNDING * (np.abs(at) + slack)
        first = _cell(values, at + near[0] - more, width)
        last = _cell(values, at + near[1] + more, width)
        owner, cells = expand_ranges(first, last - first + 1)
        return Entries(_codes(cells), rows[owner])

    return entries


def _numbers(column: pa.Array) -> tuple[Floats, Ints]:
    """Return the values of a column that are not NULL, and whose they are; times are numbers of microseconds."""
    valid = valid_rows([column])
    rows = np.arange(len(column)) if valid is None else np.flatnonzero(valid)
    if pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.float64())
    return fixed_values(column).astype(np.float64)[rows], rows


def _cell(values: Floats, at: Floats, width: float) -> Ints:
    """Return in which cells some points are; what has a value that is no number has a cell of its own."""
    with np.errstate(over="ignore", invalid="ignore"):
        cells = np.floor(np.clip(np.clip(at, -_LARGEST, _LARGEST) / width, -_OUTERMOST, _OUTERMOST))
    return np.where(np.isnan(values), _NO_NUMBER, np.where(np.isnan(values), 0.0, cells).astype(np.int64))


def _codes(cells: Ints) -> Codes:
    return row_codes([pa.array(cells)], len(cells)).codes
