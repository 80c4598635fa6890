"""Texts as words: what stands between white space, which is that of ASCII (blank, tab, line feed, vertical tab, form
feed, carriage return).

Whatever looks at words (set functions, indexes over words) gets them from here, so that all agree on what a word is.
Nothing here knows what words are compared for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.batch import Ints


class Words(NamedTuple):
    """The words of texts, as they come: those of text i are from `first[i]` up to `first[i + 1]`."""

    first: Ints
    words: pa.StringArray


def split_words(texts: pa.StringArray) -> Words:
    """Return the words of each text; NULL has none.

    >>> first, words = split_words(pa.array([" to be  or", None, "not to be"]))
    >>> first.tolist(), words.to_pylist()
    ([0, 3, 3, 6], ['to', 'be', 'or', 'not', 'to', 'be'])
    """
    parts = pc.ascii_split_whitespace(texts.fill_null("") if texts.null_count else texts)
    words = parts.flatten()
    offsets = parts.offsets.to_numpy()
    real = pc.not_equal(words, "").to_numpy(zero_copy_only=False)
    before = np.append(0, np.cumsum(real))
    return Words(before[offsets - offsets[0]], words.filter(pa.array(real)))
