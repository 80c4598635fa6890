"""Rows as values: 64-bit codes, equality, order, and the numbering of distinct rows.

Rows are the same if their columns are: NULL is the same as NULL, NaN as NaN, -0.0 as 0.0. Codes of a single column of
at most 64 bits without NULLs are a bijection of its values; all others are hashes, and whoever uses them compares the
rows themselves wherever two codes meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import Columns, Ints, Mask, take

Codes = npt.NDArray[np.uint64]
Integer = TypeVar("Integer", np.int64, np.uint64)

_NULL_CODE = np.uint64(0x9E3779B97F4A7C15)
_EMPTY_CODE = np.uint64(0xD1B54A32D192ED03)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_SIGN = np.int64(-(2**63))


class RowCodes(NamedTuple):
    """Codes of rows; with `exact`, rows with equal codes are equal."""

    codes: Codes
    exact: bool


def fixed_values(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the values of a column of fixed width as numpy sees them; what stands for NULL is undefined.

    TIMESTAMP and INTERVAL are their microseconds, BOOLEAN is 0 or 1; without a copy where there is a buffer to look at.
    """
    if pa.types.is_boolean(column.type):
        return np.asarray(column.cast(pa.int8()).fill_null(0))
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.view(pa.int64())
    data = column.buffers()[1]
    dtype = column.type.to_pandas_dtype()
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype, len(column), column.offset * np.dtype(dtype).itemsize)


def valid_rows(columns: Sequence[pa.Array]) -> Mask | None:
    """Return where no column is NULL; None if that is everywhere."""
    mask: Mask | None = None
    for column in columns:
        if column.null_count:
            valid = np.asarray(column.is_valid())
            mask = valid if mask is None else mask & valid
    return mask


def row_codes(columns: Sequence[pa.Array], length: int) -> RowCodes:
    """Return a code for each row."""
    if not columns:
        return RowCodes(np.full(length, _EMPTY_CODE), True)
    if len(columns) == 1:
        column = columns[0]
        return RowCodes(_column_codes(column), column.null_count == 0 and _is_narrow(column.type))
    codes = _column_codes(columns[0])
    with np.errstate(over="ignore"):
        for column in columns[1:]:
            codes = _mixed(codes * _FACTOR_1 + _column_codes(column))
    return RowCodes(codes, False)


def row_hashes(columns: Sequence[pa.Array]) -> Codes:
    """Return a hash of the values of each row, which is the same wherever and whenever it is computed."""
    first, *others = map(_column_hashes, columns)
    with np.errstate(over="ignore"):
        for hashes in others:
            first = _mixed(first * _FACTOR_1 + hashes)
    return first


def _is_narrow(data_type: pa.DataType) -> bool:
    return not (pa.types.is_string(data_type) or pa.types.is_decimal(data_type) or pa.types.is_null(data_type))


def _mixed(values: Codes) -> Codes:
    """Return 64-bit integers spread evenly: a bijection."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * _FACTOR_1
        values = (values ^ (values >> np.uint64(27))) * _FACTOR_2
        return values ^ (values >> np.uint64(31))


def _column_codes(column: pa.Array) -> Codes:
    if pa.types.is_null(column.type):
        return np.full(len(column), _NULL_CODE)
    if pa.types.is_string(column.type):
        codes = _string_codes(column)
    elif pa.types.is_decimal(column.type):
        halves = _decimal_halves(column)
        with np.errstate(over="ignore"):
            codes = _mixed(_mixed(halves[:, 0]) + halves[:, 1])
    elif pa.types.is_floating(column.type):
        codes = _mixed(_double_bits(column).view(np.uint64))
    else:
        codes = _mixed(fixed_values(column).astype(np.int64, copy=False).view(np.uint64))
    if column.null_count:
        codes = np.where(np.asarray(column.is_valid()), codes, _NULL_CODE)
    return codes


def _double_bits(column: pa.Array) -> Ints:
    values: npt.NDArray[np.float64] = fixed_values(column).astype(np.float64, copy=False)
    return np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)


def _decimal_halves(column: pa.Array) -> Codes:
    data = column.buffers()[1]
    return np.frombuffer(data, np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)


def _string_codes(column: pa.Array) -> Codes:
    """Return hashes of strings: eight bytes of all of them at a time."""
    count = len(column)
    offsets = np.frombuffer(column.buffers()[1], np.int32, count + 1, 4 * column.offset).astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    codes = _mixed(lengths.view(np.uint64))
    if column.buffers()[2] is None or not lengths.any():
        return codes
    text = np.frombuffer(column.buffers()[2], np.uint8)
    padded = np.concatenate([text[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), "<u8", padded.data, strides=(1,))
    starts = starts - offsets[0]
    longer = np.arange(count)
    for at in range(0, int(lengths.max()), 8):
        longer = longer[lengths[longer] > at]
        missing = np.maximum(at + 8 - lengths[longer], 0).astype(np.uint64) * np.uint64(8)
        word = (words[starts[longer] + at] << missing) >> missing
        with np.errstate(over="ignore"):
            codes[longer] = _mixed(codes[longer] * _FACTOR_2 + word)
    return codes


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], length: int) -> Mask:
    """Return where two tables of the same length have the same row."""
    same = np.ones(length, np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= _equal_values(a, b)
    return same


def _equal_values(a: pa.Array, b: pa.Array) -> Mask:
    if pa.types.is_null(a.type):
        return np.ones(len(a), np.bool_)
    equal: Mask
    if pa.types.is_floating(a.type):
        equal = _double_bits(a) == _double_bits(b)
    elif pa.types.is_string(a.type) or pa.types.is_decimal(a.type):
        equal = np.asarray(pc.equal(a, b).fill_null(False))
    else:
        equal = fixed_values(a) == fixed_values(b)
    if a.null_count or b.null_count:
        valid_a, valid_b = np.asarray(a.is_valid()), np.asarray(b.is_valid())
        equal = np.where(valid_a & valid_b, equal, ~(valid_a | valid_b))
    return equal


class DistinctRows(NamedTuple):
    """The distinct rows of a table: for each row the number of its distinct row, for each of those a row."""

    number: Ints
    first: Ints


def distinct_rows(columns: Sequence[pa.Array], length: int) -> DistinctRows:
    """Number the distinct rows of a table."""
    dense = _dense_numbers(columns)
    if dense is not None:
        return dense
    codes, exact = row_codes(columns, length)
    found = _numbered(codes)
    while not exact:
        representative = found.first[found.number]
        others = np.flatnonzero(representative != np.arange(length))
        same = equal_rows(take(columns, others), take(columns, representative[others]), len(others))
        clashing = others[~same]
        if not len(clashing):
            break
        codes[clashing] = next_codes(codes[clashing])
        found = _numbered(codes)
    return found


def next_codes(codes: Codes) -> Codes:
    """Return other codes for rows whose codes are taken by different rows."""
    with np.errstate(over="ignore"):
        return _mixed(codes + np.uint64(1))


def _dense_numbers(columns: Sequence[pa.Array]) -> DistinctRows | None:
    """Number the values of one column of integers that lie close together."""
    if len(columns) != 1 or not pa.types.is_integer(columns[0].type) or columns[0].null_count or not len(columns[0]):
        return None
    values = fixed_values(columns[0])
    low, high = int(values.min()), int(values.max())
    if high - low > 2 * len(values):
        return None
    offset = values.astype(np.int64) - low
    first = np.full(high - low + 1, -1)
    first[offset[::-1]] = np.arange(len(offset) - 1, -1, -1)
    present = first >= 0
    return DistinctRows((np.cumsum(present) - 1)[offset], first[present])


def _numbered(codes: Codes) -> DistinctRows:
    encoded = pa.array(codes).dictionary_encode()
    number = np.asarray(encoded.indices).astype(np.int64)
    first = np.empty(len(encoded.dictionary), np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return DistinctRows(number, first)


def changes(ordered: npt.NDArray[np.generic]) -> Mask:
    """Return where a sorted array has a value that the position before has not; the first one always."""
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


def distinct_sorted(values: npt.NDArray[Integer]) -> npt.NDArray[Integer]:
    """Return the different ones of some integers, sorted: NumPy's `unique` hashes them first, which takes longer."""
    ordered = np.sort(values)
    return ordered[changes(ordered)]


def ranks(column: pa.Array) -> Ints:
    """Return integers in the order of a column's values: NULL is the smallest, NaN the largest number."""
    length = len(column)
    if pa.types.is_null(column.type):
        return np.zeros(length, np.int64)
    if pa.types.is_string(column.type) or pa.types.is_decimal(column.type):
        encoded = column.dictionary_encode()
        order = np.asarray(pc.sort_indices(encoded.dictionary))
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = -1
        at: Ints = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1))
        return rank[at]
    if pa.types.is_floating(column.type):
        bits = _double_bits(column)
        # Doubles compare like their bits, negative ones the other way round; NaN has the largest bits.
        values = np.where(bits < 0, _SIGN - bits - 1, bits)
    else:
        values = fixed_values(column).astype(np.int64, copy=False)
    if not column.null_count:
        return values
    valid = np.asarray(column.is_valid())
    _, number = np.unique(values, return_inverse=True)
    return np.where(valid, number, -1)


def row_order(columns: Sequence[pa.Array], leading: Sequence[npt.NDArray[np.generic]], length: int) -> Ints:
    """Return the positions of rows in ascending order: by the leading keys first, then by the columns."""
    keys = [*leading, *(ranks(column) for column in columns)]
    if not keys:
        return np.arange(length)
    return np.lexsort(keys[::-1])


def repeated(columns: Columns, times: Ints) -> Columns:
    """Return every row so many times."""
    return take(columns, np.repeat(np.arange(len(times)), times))


def remaining(number: Ints, weights: Ints, total: Ints) -> Ints:
    """Return what is left of each change so that those of one row add up to their total.

    Of equal rows that enter, the last ones remain, of those that leave, the first: what leaves came first.
    """
    left = np.zeros(len(weights), np.int64)
    for sign, order in ((1, np.arange(len(weights))[::-1]), (-1, np.arange(len(weights)))):
        mine = order[(np.sign(weights[order]) == sign) & (np.sign(total[number[order]]) == sign)]
        by_row = mine[np.argsort(number[mine], kind="stable")]
        size = np.abs(weights[by_row])
        before = np.cumsum(size) - size
        rows = number[by_row]
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1])) if len(rows) else np.empty(0, np.int64)
        before -= np.repeat(before[first], np.diff(np.append(first, len(rows))))
        left[by_row] = sign * np.clip(np.abs(total[rows]) - before, 0, size)
    return left


def expand_ranges(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return, for ranges of integers, all their members, and which range each is from.

    >>> [each.tolist() for each in expand_ranges(np.array([5, 9]), np.array([2, 1]))]
    [[0, 0, 1], [5, 6, 9]]
    """
    owner = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return owner, np.arange(len(owner)) - np.repeat(before - first, count)


def order_by(*keys: Ints) -> Ints:
    """Return the positions of rows in the order of integer keys, the first one leading, ties as they come.

    If all keys and the position fit into 64 bits together, one plain sort of such integers does it, which is several
    times faster than sorting positions by comparing what they stand for.
    """
    count = len(keys[0])
    width = max(count - 1, 0).bit_length()
    packed = np.zeros(count, np.int64)
    for key in keys:
        low, high = (int(key.min()), int(key.max())) if count else (0, 0)
        bits = (high - low).bit_length()
        width += bits
        if width > 63:
            return np.lexsort(keys[::-1])
        packed = (packed << bits) | (key - low)
    shift = max(count - 1, 0).bit_length()
    packed = (packed << shift) | np.arange(count)
    packed.sort()
    return packed & ((1 << shift) - 1)


def is_sorted(values: Ints) -> bool:
    """Tell whether integers do not descend."""
    return bool((values[1:] >= values[:-1]).all())


_column_hashes = _column_codes
"""Codes of columns as hashes: equal values have equal ones in every process."""
