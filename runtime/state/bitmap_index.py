"""Marks: sets of codes as bits, so that what rows have in common is counted 64 codes at a time.

The different codes of stored rows are numbered; a row has the bit of each of its codes. What a row has in common with a
stretch of stored rows is then a matter of a few operations on columns of 64-bit words, whatever the codes stand for.
Two codes never share a bit, so that nothing in common is overlooked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.columns.batch import Ints, Mask
from runtime.columns.int_buffer import GrowingInts
from runtime.columns.row_codes import Codes, distinct_sorted

MOST_WORDS = 16
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

    new: Sequence[Codes]
    stored: Sequence[Codes]

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
        stored = self.stored if among is None else [word[among] for word in self.stored]
        order = np.argsort(first, kind="stable")
        for at in range(0, len(order), _ROWS):
            block = order[at : at + _ROWS]
            mine = [word[rows[block], None] for word in self.new]
            begin, end = int(first[block[0]]), int(last[block].max())
            for low in range(begin, end, _STRETCH):
                high = min(low + _STRETCH, end)
                common = _common(mine, [word[None, low:high] for word in stored])
                row, place = np.divmod(np.flatnonzero(common >= least), high - low)
                row, place = block[row], place + low
                inside = (place >= first[row]) & (place < last[row])
                yield row[inside], place[inside] if among is None else among[place[inside]]


def _common(mine: Sequence[Codes], others: Sequence[Codes]) -> npt.NDArray[np.uint8]:
    """Return how many bits rows have in common."""
    count: npt.NDArray[np.uint8] = np.bitwise_count(mine[0] & others[0])
    for own, other in zip(mine[1:], others[1:], strict=True):
        count += np.bitwise_count(own & other)
    return count


class StoredMarks:
    """The bits of stored rows, by position, and which code has which bit."""

    def __init__(self, base: int) -> None:
        self._codes = np.empty(0, np.uint64)
        """The codes that have a bit, sorted."""
        self._numbers = np.empty(0, np.int64)
        self._words = [GrowingInts(base)]

    def __len__(self) -> int:
        return len(self._words[0].values)

    @property
    def nbytes(self) -> int:
        return sum(word.nbytes for word in self._words) + self._codes.nbytes + self._numbers.nbytes

    def add(self, codes: Codes, rows: Ints, count: int, half: bool = False) -> bool:
        """Add so many rows, some of which have codes; tell whether there were bits enough, with `half` half of them."""
        new = distinct_sorted(codes[~self._places(codes)[1]])
        total = len(self._codes) + len(new)
        if total > MOST_WORDS * _BITS // (2 if half else 1):
            return False
        merged = np.concatenate([self._codes, new])
        numbers = np.concatenate([self._numbers, np.arange(len(self._codes), total)])
        order = np.argsort(merged)
        self._codes, self._numbers = merged[order], numbers[order]
        while len(self._words) * _BITS < total:
            self._words.append(GrowingInts(self._words[0].base))
            self._words[-1].append(np.zeros(len(self), np.int64))
        number = self._numbers[self._places(codes)[0]]
        for word, bits in zip(self._words, _bits(number, rows, len(self._words), count), strict=True):
            word.append(bits.view(np.int64))
        return True

    def cut(self, base: int) -> None:
        """Forget the rows before a position, which may be beyond all of them."""
        if base >= self._words[0].base + len(self):
            self._words = [GrowingInts(base) for _ in self._words]
        for word in self._words:
            word.cut(base)

    def beside(self, codes: Codes, rows: Ints, length: int) -> Marks | None:
        """Return them with those of new rows that have some codes.

        None if that is not possible: a row that has a code twice, which stands for two things then, could have more in
        common than one bit says.
        """
        if not len(codes) or np.bincount(rows).max() > _MOST_CODES:
            return None
        places, is_known = self._places(codes)
        number, rows = self._numbers[places[is_known]], rows[is_known]
        if len(distinct_sorted(rows * (MOST_WORDS * _BITS) + number)) < len(rows):
            return None
        stored = [word.values.view(np.uint64) for word in self._words]
        return Marks(_bits(number, rows, len(stored), length), stored)

    def _places(self, codes: Codes) -> tuple[Ints, Mask]:
        """Return where codes are among those that have a bit, and whether they are."""
        places = np.searchsorted(self._codes, codes)
        places[places == len(self._codes)] = 0
        return places, self._codes[places] == codes if len(self._codes) else np.zeros(len(codes), np.bool_)


def _bits(number: Ints, rows: Ints, words: int, length: int) -> list[Codes]:
    """Return which numbers rows have, word by word."""
    bits = np.zeros(words * length, np.uint64)
    np.bitwise_or.at(bits, number // _BITS * length + rows, np.uint64(1) << (number % _BITS).astype(np.uint64))
    return list(bits.reshape(words, length))
