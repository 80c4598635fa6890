"""Marks: sets of codes as bits, so that what rows have in common is counted 64 codes at a time.

The different codes that new rows have are numbered; a row has the bit of each of its codes. What a row has in common
with a stretch of stored rows is then a matter of a few operations on columns of 64-bit words, whatever the codes stand
for. Two codes never share a bit, so that nothing in common is overlooked; stored rows may have bits in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.batch import Ints
from runtime.rows import Codes

MOST_WORDS = 64
"""How many words of 64 bits a row may take: with more, there are cheaper ways of comparing."""

_MOST_CODES = 255
"""How many codes a new row may have: what it has in common with others is counted in bytes."""

_BITS = 64
_ROWS = 16
_STRETCH = 1 << 13
"""How many new rows are compared with how many stored ones at a time: what is computed stays in the cache."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The bits of new rows and of stored ones, word by word."""

    new: Codes
    stored: Codes

    @property
    def words(self) -> int:
        """How many words a row takes."""
        return len(self.new)

    def with_common(
        self, rows: Ints, first: Ints, last: Ints, among: Ints | None, least: int
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield which of the given new rows have so many codes in common with which stored rows.

        Each looks at those from a first to before a last one, by their places `among` some of them or among all.
        """
        stored = self.stored if among is None else self.stored[:, among]
        order = np.argsort(first, kind="stable")
        for at in range(0, len(order), _ROWS):
            block = order[at : at + _ROWS]
            mine = self.new[:, rows[block], None]
            begin, end = int(first[block[0]]), int(last[block].max())
            for low in range(begin, end, _STRETCH):
                others = stored[:, None, low : min(low + _STRETCH, end)]
                row, place = np.divmod(np.flatnonzero(_common(mine, others) >= least), others.shape[2])
                row, place = block[row], place + low
                inside = (place >= first[row]) & (place < last[row])
                yield row[inside], place[inside] if among is None else among[place[inside]]


def _common(mine: Codes, others: Codes) -> npt.NDArray[np.uint8]:
    """Return how many bits rows have in common."""
    count: npt.NDArray[np.uint8] = np.bitwise_count(mine[0] & others[0])
    for own, other in zip(mine[1:], others[1:], strict=True):
        count += np.bitwise_count(own & other)
    return count


def made_marks(
    codes: Codes, rows: Ints, length: int, stored: Callable[[Codes], tuple[Ints, Ints]], stored_length: int
) -> Marks | None:
    """Return the marks of new rows that have some codes, and of stored ones; None if that is not possible.

    `stored` tells of which of some different codes there are which stored rows. With too many codes marks are too long;
    and a row that has a code twice, which stands for two things then, could have more in common than one bit says.
    """
    different, number = np.unique(codes, return_inverse=True)
    words = -(-len(different) // _BITS)
    if not 0 < words <= MOST_WORDS or np.bincount(rows).max() > _MOST_CODES:
        return None
    if len(np.unique(rows * len(different) + number)) < len(codes):
        return None
    found, places = stored(different)
    return Marks(_bits(number, rows, words, length), _bits(found, places, words, stored_length))


def _bits(number: Ints, rows: Ints, words: int, length: int) -> Codes:
    """Return which numbers rows have, word by word."""
    bits = np.zeros(words * length, np.uint64)
    np.bitwise_or.at(bits, number // _BITS * length + rows, np.uint64(1) << (number % _BITS).astype(np.uint64))
    return bits.reshape(words, length)
