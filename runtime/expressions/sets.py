"""Texts as sets of words: how many two have in common, and the inner product of their weights.

Made for the pairs of a join, in which a few texts meet in very many pairs: each different text is split once, words
become numbers, and pairs are compared by numbers. There are three ways to do so, and the cheapest is taken: by bits, if
few words occur on both sides; for all pairs of different texts, if those are hardly more than the pairs asked for; else
the words of one text of each pair are looked up in the other. All three have the same results, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DOUBLE, STRING, DataType
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints, Mask
from runtime.columns.row_codes import Codes, changes, expand_ranges
from runtime.exact_sums.digits import Doubles
from runtime.exact_sums.lanes import double_sums
from runtime.expressions.casts import cast
from runtime.expressions.values import Datum, Kernel, column, is_constant
from runtime.expressions.words import split_words

_BITS = 64
_FEW_WORDS = 4 * _BITS
"""How many words may occur on both sides for bits to be the cheapest way."""

_MOST_COMBINATIONS = 2**23
"""How many pairs of different texts are computed at most, in 8 bytes each."""

_MOST_CELLS = 2**25
"""How many texts times words a table of which text has which word may take, in one byte each."""

_BLOCK = 2**17
"""How many words are compared at a time, so that what is computed stays in the processor's cache."""

_WEIGHTED = r"(?s)\A(?P<word>.*):(?P<weight>[^:]*)\z"
_WEIGHT = cast(STRING, DOUBLE)

Numbers = npt.NDArray[np.int64 | np.float64]


def overlap(target: DataType, a: Datum, b: Datum) -> pa.Array:
    """Return how many different words two texts have in common."""
    (left, at_left), (right, at_right) = _different(a, b)
    sides = _sides(_plain_words(left), _plain_words(right))
    counted = _common_bits if sides[0].vocabulary <= _FEW_WORDS else _totals
    return column(counted(*sides, at_left, at_right), arrow_type(target), a, b)


def inner_product(target: DataType, a: Datum, b: Datum) -> pa.Array:
    """Return the sums of the products of the weights of common words; NULL if a text has a weight that is no number."""
    (left, at_left), (right, at_right) = _different(a, b)
    mine, others = _weighted_words(left), _weighted_words(right)
    sums = _totals(*_sides(mine, others), at_left, at_right)
    return column(sums, arrow_type(target), a, b, absent=mine.bad[at_left] | others.bad[at_right])


KERNELS: dict[str, Kernel] = {"overlap": overlap, "inner_product": inner_product}


# Different texts


def _different(a: Datum, b: Datum) -> tuple[tuple[pa.Array, Ints], tuple[pa.Array, Ints]]:
    """Return, of both operands, the different texts, and for each row which of them it has."""
    length = max(1 if is_constant(each) else len(each) for each in (a, b))
    left, right = (_constant(each, length) if is_constant(each) else _encoded(each) for each in (a, b))
    return left, right


def _constant(text: pa.Scalar, length: int) -> tuple[pa.Array, Ints]:
    return pa.repeat(text, 1), np.zeros(length, np.int64)


def _encoded(texts: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the different texts of a column, and which each row has; in runs, as joins make them, it is asked once."""
    differs = pc.not_equal(texts[1:], texts[:-1])
    if differs.null_count:
        differs = differs.fill_null(True)
    if 4 * differs.true_count > len(texts):
        encoded = texts.dictionary_encode("encode")
        return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    starts = np.append(0, np.flatnonzero(differs) + 1)
    encoded = texts.take(pa.array(starts)).dictionary_encode("encode")
    at = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, np.repeat(at, np.diff(starts, append=len(texts)))


# Words with weights


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Words of texts, each with the number of its text; and the texts that have no meaning. No weights: all weigh 1."""

    text: Ints
    word: pa.StringArray
    weight: Doubles | None
    bad: Mask


def _plain_words(texts: pa.Array) -> _Weighted:
    first, words = split_words(texts)
    return _Weighted(np.repeat(np.arange(len(texts)), np.diff(first)), words, None, np.zeros(len(texts), np.bool_))


def _weighted_words(texts: pa.Array) -> _Weighted:
    """Return the words of texts as they are written: `word:weight`, or a word that weighs 1."""
    plain = _plain_words(texts)
    different = plain.word.dictionary_encode()
    parts = pc.extract_regex(different.dictionary, _WEIGHTED)
    weighted = parts.is_valid()
    word = pc.if_else(weighted, pc.struct_field(parts, "word"), different.dictionary)
    weight = pc.if_else(weighted, _WEIGHT(DOUBLE, pc.struct_field(parts, "weight")), 1.0).take(different.indices)
    bad = plain.bad
    bad[plain.text[weight.is_null().to_numpy(zero_copy_only=False)]] = True
    return _Weighted(plain.text, word.take(different.indices), weight.fill_null(0.0).to_numpy(), bad)


# Words as numbers


@dataclass(frozen=True, slots=True)
class _Side:
    """Different texts and the words they have that the other side has too, each once, in ascending order of `key`.

    The words of text i are from `first[i]` up to `first[i + 1]`; `word` numbers them, and `key` numbers words of texts:
    it is the number of the text times the size of the vocabulary, plus that of the word.
    """

    vocabulary: int
    first: Ints
    word: Ints
    key: Ints
    weight: Doubles | None

    @property
    def texts(self) -> int:
        return len(self.first) - 1

    @property
    def sizes(self) -> Ints:
        return np.diff(self.first)


def _sides(left: _Weighted, right: _Weighted) -> tuple[_Side, _Side]:
    """Return both sides with the same numbers for the same words."""
    encoded = pa.concat_arrays([left.word, right.word]).dictionary_encode()
    number = encoded.indices.to_numpy()
    numbers = np.split(number, [len(left.word)])
    shared = np.logical_and(*(np.bincount(each, minlength=len(encoded.dictionary)) > 0 for each in numbers))
    renumbered = np.cumsum(shared) - 1
    mine, others = (
        _side(words, shared[each], renumbered[each], int(shared.sum()))
        for words, each in zip((left, right), numbers, strict=True)
    )
    return mine, others


def _side(words: _Weighted, shared: Mask, number: Ints, vocabulary: int) -> _Side:
    given = (words.text * vocabulary + number)[shared]
    if words.weight is None:
        given.sort()
        key, weight = given[changes(given)], None
    else:
        order = np.argsort(given, kind="stable")
        new = changes(given[order])
        key = given[order][new]
        weight = double_sums(words.weight[shared][order], np.cumsum(new) - 1, len(key))
    first = np.searchsorted(key, np.arange(len(words.bad) + 1) * vocabulary)
    return _Side(vocabulary, first, key % max(vocabulary, 1), key, weight)


# Comparing by bits


def _common_bits(left: _Side, right: _Side, at_left: Ints, at_right: Ints) -> Ints:
    """Return how many words the texts of each pair have in common."""
    sets = list(zip(_bit_sets(left), _bit_sets(right), strict=True))
    counts = np.zeros(len(at_left), np.int64)
    for start in range(0, len(counts), _BLOCK):
        block = slice(start, start + _BLOCK)
        for mine, others in sets:
            counts[block] += np.bitwise_count(mine[at_left[block]] & others[at_right[block]])
    return counts


def _bit_sets(side: _Side) -> Codes:
    """Return, for each 64 words, which of them each text has."""
    sets = np.zeros((-(-side.vocabulary // _BITS), side.texts), np.uint64)
    text = np.repeat(np.arange(side.texts), side.sizes)
    np.bitwise_or.at(sets, (side.word // _BITS, text), np.uint64(1) << (side.word % _BITS).astype(np.uint64))
    return sets


# Comparing word by word


def _totals(left: _Side, right: _Side, at_left: Ints, at_right: Ints) -> Numbers:
    """Return for each pair the number of common words, or the sum of the products of their weights."""
    looked_up = [int(side.sizes[at].sum()) for side, at in ((left, at_left), (right, at_right))]
    if looked_up[1] < looked_up[0]:
        left, right, at_left, at_right = right, left, at_right, at_left
    combinations = left.texts * right.texts
    matches = int((np.bincount(left.word, minlength=left.vocabulary)[right.word]).sum())
    if combinations <= _MOST_COMBINATIONS and combinations + matches <= min(looked_up):
        return _of_all(left, right).take(at_right * left.texts + at_left)
    return _of_pairs(left, right, at_left, at_right)


def _of_all(left: _Side, right: _Side) -> Numbers:
    """Return the totals of all pairs of different texts, those of each text of the right side together."""
    by_word = np.argsort(left.word, kind="stable")
    text = np.repeat(np.arange(left.texts), left.sizes)[by_word]
    having = np.bincount(left.word, minlength=left.vocabulary)
    first = np.cumsum(having) - having
    matches = np.append(0, np.cumsum(having[right.word]))[right.first]
    found = []
    for block in _blocks(np.diff(matches) + left.texts):
        entries = slice(right.first[block.start], right.first[block.stop])
        words = right.word[entries]
        owner, at = expand_ranges(first[words], having[words])
        key = right.key[entries][owner]
        pair = (key // left.vocabulary - block.start) * left.texts + text[at]
        found.append(_summed(left, right, by_word[at], key, pair, (block.stop - block.start) * left.texts))
    return np.concatenate(found)


def _of_pairs(left: _Side, right: _Side, at_left: Ints, at_right: Ints) -> Numbers:
    """Return the totals of pairs; the words of the left texts are looked up in the right ones."""
    sizes = left.sizes[at_left]
    is_word = _lookup(right)
    found = []
    for block in _blocks(sizes + 1):
        pair, at = expand_ranges(left.first[at_left[block]], sizes[block])
        key = at_right[block][pair] * right.vocabulary + left.word[at]
        hit = np.flatnonzero(is_word(key))
        found.append(_summed(left, right, at[hit], key[hit], pair[hit], block.stop - block.start))
    return np.concatenate(found)


def _summed(left: _Side, right: _Side, at: Ints, key: Ints, pair: Ints, pairs: int) -> Numbers:
    """Return the total of each pair, given common words: where they are on the left, and their keys on the right."""
    if left.weight is None or right.weight is None:
        return np.bincount(pair, minlength=pairs)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        products = left.weight[at] * right.weight[np.searchsorted(right.key, key)]
    return double_sums(products, pair, pairs)


def _lookup(side: _Side) -> Callable[[Ints], Mask]:
    """Return what tells which keys a side has."""
    cells = side.texts * side.vocabulary
    if cells <= _MOST_CELLS:
        present = np.zeros(cells, np.bool_)
        present[side.key] = True
        return lambda key: present[key]
    keys = np.append(side.key, cells)
    return lambda key: keys[np.searchsorted(keys, key)] == key


def _blocks(sizes: Ints) -> Iterator[slice]:
    """Yield slices of about equal total size, each of at least one."""
    total = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = total[start] - sizes[start]
        stop = max(start + 1, int(np.searchsorted(total, before + _BLOCK, "right")))
        yield slice(start, stop)
        start = stop
