"""Order: codes whose order is the order of values, and sorting, comparing and finding rows of codes.

The values of a column become one or two columns of codes. Codes are 64-bit integers, and strings stay strings. In the
codes NaN is one number and the largest, there is one zero, NULLs come where they are wanted, and a descending order is
the ascending order of other codes; only strings have to be told that they are to be compared backwards. Nothing is
lost: values can be had back from their codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import BEGINNING, FOREVER, Ints, Mask
from runtime.columns.row_codes import changes, fixed_values, ranks

Code: TypeAlias = Any
"""A column of codes: `Ints`, or an array of strings without NULLs (PyArrow has no types to say so)."""

_Words = npt.NDArray[np.uint64]
_SORTED_BITS = 63
_LONGEST_IN_A_WORD = 18
_FEW_TIMES = 16


@dataclass(frozen=True, slots=True)
class Coder:
    """How the values of a type become codes. Without `nullable` there must be no NULLs."""

    type: pa.DataType
    descending: bool = False
    nulls_first: bool = True
    nullable: bool = True

    @property
    def width(self) -> int:
        """How many columns of codes there are."""
        return 1 + self._has_flag + self._has_two_words

    @property
    def backwards(self) -> tuple[bool, ...]:
        """Which columns of codes are in descending order: strings can be."""
        return (False,) * (self.width - 1) + (self.descending and self._is_text,)

    @property
    def _is_text(self) -> bool:
        return bool(pa.types.is_string(self.type))

    @property
    def _has_flag(self) -> bool:
        """Whether a column says what is NULL, for types that use all codes."""
        return self.nullable and (
            self._is_text or pa.types.is_int64(self.type) or bool(pa.types.is_duration(self.type))
        )

    @property
    def _has_two_words(self) -> bool:
        return bool(pa.types.is_decimal(self.type)) and self.type.precision > _LONGEST_IN_A_WORD

    @property
    def _null_code(self) -> int:
        return BEGINNING if self.nulls_first else FOREVER

    def encode(self, values: pa.Array) -> list[Code]:
        """Return the codes of values."""
        if pa.types.is_null(self.type):
            return [np.zeros(len(values), np.int64)]
        missing = np.asarray(values.is_null()) if values.null_count else None
        if self._is_text:
            codes: list[Code] = [values.fill_null("") if values.null_count else values]
        else:
            codes = [~word if self.descending else word for word in self._words(values)]
            if missing is not None:
                null_codes = [0 if self._has_flag else self._null_code, 0]
                codes = [np.where(missing, null, code) for null, code in zip(null_codes, codes, strict=False)]
        if self._has_flag:
            flag = np.zeros(len(values), np.bool_) if missing is None else missing
            codes = [(flag != self.nulls_first).astype(np.int64), *codes]
        return codes

    def _words(self, values: pa.Array) -> list[Ints]:
        if pa.types.is_decimal(self.type):
            low, high = _halves(values)
            return [high, low ^ BEGINNING] if self._has_two_words else [low]
        numbers = fixed_values(values)
        if pa.types.is_floating(self.type):
            doubles = numbers.astype(np.float64, copy=False)
            bits = np.where(np.isnan(doubles), np.nan, doubles + 0.0).view(np.int64)
            return [np.where(bits < 0, bits ^ FOREVER, bits)]
        return [numbers.astype(np.int64, copy=False)]

    def decode(self, codes: Sequence[Code]) -> pa.Array:
        """Return the values of codes."""
        if pa.types.is_null(self.type):
            return pa.nulls(len(codes[0]))
        flag, words = (codes[0], codes[1:]) if self._has_flag else (None, codes)
        valid = self._valid(flag, words[0])
        if self._is_text:
            return words[0] if valid is None else pc.if_else(pa.array(valid), words[0], pa.scalar(None, pa.string()))
        return self._values([~word if self.descending else word for word in words], valid)

    def _valid(self, flag: Code | None, word: Code) -> Mask | None:
        """Return which codes do not stand for NULL; None if none does."""
        if not self.nullable:
            return None
        valid: Mask = word != self._null_code if flag is None else (flag == 1) == self.nulls_first
        return None if valid.all() else valid

    def _values(self, words: list[Ints], valid: Mask | None) -> pa.Array:
        if pa.types.is_decimal(self.type):
            high, low = (words[0], words[1] ^ BEGINNING) if self._has_two_words else (words[0] >> 63, words[0])
            return self._from_buffer(np.stack([low, high], axis=1), valid)
        word = words[0]
        if pa.types.is_floating(self.type):
            return self._from_buffer(np.where(word < 0, word ^ FOREVER, word), valid)
        if valid is None:
            return pa.array(word).cast(self.type)
        return pa.array(np.where(valid, word, 0), mask=~valid).cast(self.type)

    def _from_buffer(self, words: Ints, valid: Mask | None) -> pa.Array:
        bitmap = None if valid is None else pa.array(valid).buffers()[1]
        return pa.Array.from_buffers(self.type, len(words), [bitmap, pa.py_buffer(np.ascontiguousarray(words))])


def _halves(decimals: pa.Array) -> tuple[Ints, Ints]:
    """Return the lower and the upper 64 bits of decimals."""
    if not len(decimals):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    halves = np.frombuffer(decimals.buffers()[1], np.int64, 2 * len(decimals), 16 * decimals.offset)
    return np.ascontiguousarray(halves[0::2]), np.ascontiguousarray(halves[1::2])


def take_code(code: Code, positions: Ints) -> Code:
    """Return the codes at some positions."""
    return code[positions] if isinstance(code, np.ndarray) else code.take(pa.array(positions))


def concat_codes(parts: Sequence[Sequence[Code]]) -> tuple[Code, ...]:
    """Return the rows of several tables of codes, one after the other."""
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(
        np.concatenate(arrays) if isinstance(arrays[0], np.ndarray) else pa.concat_arrays(arrays)
        for arrays in zip(*parts, strict=True)
    )


def comparable(codes: Sequence[Code], backwards: Sequence[bool]) -> list[Ints]:
    """Return integers in the order of the codes of these rows; those of other calls mean nothing to them."""
    numbers = [code if isinstance(code, np.ndarray) else ranks(code) for code in codes]
    return [~number if reverse else number for number, reverse in zip(numbers, backwards, strict=True)]


def order_of(columns: Sequence[Ints]) -> Ints:
    """Return the positions of rows in ascending order, ties as they come.

    As many leading bits as fit into a word are sorted at once, and rows that they do not tell apart again by the rest:
    for most data that is one sort of integers, and fast for rows that are sorted in a few runs.
    """
    key, rest = packed(columns)
    order = np.argsort(key, kind="stable")
    if not rest or not len(order):
        return order
    ordered = key[order]
    begins = changes(ordered)
    ties = ~begins
    ties[:-1] |= ~begins[1:]
    tied = np.flatnonzero(ties)
    if len(tied):
        rows = order[tied]
        number: Ints = np.cumsum(begins[tied], dtype=np.int64)
        order[tied] = rows[order_of([number, *(column[rows] for column in rest)])]
    return order


def packed(columns: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Return integers in the order of rows, as far as 63 bits tell them apart, and columns with what did not fit."""
    free = _SORTED_BITS
    key = np.zeros(len(columns[0]), np.uint64)
    for at, column in enumerate(columns):
        above = _offsets(column)
        bits = int(above.max(initial=0)).bit_length()
        if bits > free == 0:
            return key.view(np.int64), list(columns[at:])
        if bits > free:
            left = np.uint64(bits - free)
            key = (key << np.uint64(free)) | (above >> left)
            remainder = above & ((np.uint64(1) << left) - np.uint64(1))
            return key.view(np.int64), [remainder.view(np.int64), *columns[at + 1 :]]
        key = (key << np.uint64(bits)) | above
        free -= bits
    return key.view(np.int64), []


def _offsets(column: Ints) -> _Words:
    """Return how much integers are above the least of them."""
    least = column.min(initial=FOREVER)
    with np.errstate(over="ignore"):
        return column.view(np.uint64) - np.int64(least).view(np.uint64)


def distinct_from_previous(columns: Sequence[Ints]) -> Mask:
    """Return where a row of sorted columns differs from the one before it; the first one does."""
    differs = changes(columns[0])
    for column in columns[1:]:
        differs |= changes(column)
    return differs


def lower_bound(rows: Sequence[Code], sought: Sequence[Code]) -> Ints:
    """Return for each sought row the position of the first of the sorted rows that is not before it."""
    if all(isinstance(row, np.ndarray) for row in rows):
        if len(rows) == 1:
            return np.searchsorted(rows[0], np.asarray(sought[0]))
        if len(rows[0]) <= _FEW_TIMES * len(sought[0]):
            key, rest = packed([np.concatenate(both) for both in zip(rows, sought, strict=True)])
            if not rest:
                return np.searchsorted(key[: len(rows[0])], key[len(rows[0]) :])
    low = np.zeros(len(sought[0]), np.int64)
    high = np.full(len(sought[0]), len(rows[0]))
    for _ in range(len(rows[0]).bit_length()):
        middle = (low + high) // 2
        inside = low < high
        smaller = inside & _precedes([take_code(row, np.where(inside, middle, 0)) for row in rows], sought)
        low, high = np.where(smaller, middle + 1, low), np.where(smaller, high, middle)
    return low


def _precedes(left: Sequence[Code], right: Sequence[Code]) -> Mask:
    less, equal = np.zeros(len(left[0]), np.bool_), np.ones(len(left[0]), np.bool_)
    for a, b in zip(left, right, strict=True):
        if isinstance(a, np.ndarray):
            column_less, column_equal = a < b, a == b
        else:
            column_less, column_equal = np.asarray(pc.less(a, b)), np.asarray(pc.equal(a, b))
        less |= equal & column_less
        equal &= column_equal
    return less


def same_rows(left: Sequence[Code], right: Sequence[Code]) -> Mask:
    """Return where the rows of two tables of the same length are equal."""
    same = np.ones(len(left[0]), np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= a == b if isinstance(a, np.ndarray) else np.asarray(pc.equal(a, b))
    return same
