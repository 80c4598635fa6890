"""Patterns of LIKE and regular expressions, matched by RE2 in Arrow in time proportional to the text.

Where patterns come from a column, rows are grouped by their patterns, and each group is matched at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DataType
from runtime.columns.arrow_types import arrow_type
from runtime.expressions import plain
from runtime.expressions.plain import Wild
from runtime.expressions.values import Datum, Kernel, Value, is_constant, spread, value_of

Matcher = Callable[[pa.Array], pa.Array]


def like(target: DataType, text: Datum, pattern: Datum, escape: Datum | None = None) -> pa.Array:
    """Return whether texts match patterns of LIKE."""
    sign = "\\" if escape is None else value_of(escape)
    return _matched(target, text, pattern, lambda each: _like_matcher(each, sign))


def regexp_like(target: DataType, text: Datum, pattern: Datum) -> pa.Array:
    """Return whether regular expressions match somewhere in texts."""
    return _matched(target, text, pattern, lambda each: _each_once(partial(pc.match_substring_regex, pattern=each)))


def regexp_extract(target: DataType, text: Datum, pattern: Datum, group: Datum | None = None) -> pa.Array:
    """Return a group of the first match of a regular expression."""
    number = pa.scalar(1) if group is None else group
    return _matched(target, text, number, lambda each: _each_once(_extractor(value_of(pattern), each)))


def _matched(target: DataType, text: Datum, pattern: Datum, matcher: Callable[[Value], Matcher]) -> pa.Array:
    """Return what the matcher of each pattern makes of the texts in the rows that have it."""
    if is_constant(pattern):
        return matcher(pattern.as_py())(text)
    encoded = pattern.dictionary_encode("encode")
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    texts = spread(text, len(pattern)).take(pa.array(order))
    ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary))).tolist()
    found = [
        pa.nulls(end - start, arrow_type(target)) if each is None else matcher(each)(texts.slice(start, end - start))
        for each, start, end in zip(encoded.dictionary.to_pylist(), [0, *ends], ends, strict=False)
    ]
    return pa.concat_arrays(found).take(pa.array(np.argsort(order)))


def _each_once(matcher: Matcher) -> Matcher:
    """Return a matcher that looks at each different text once."""

    def once(texts: pa.Array) -> pa.Array:
        encoded = texts.dictionary_encode()
        return matcher(encoded.dictionary).take(encoded.indices)

    return once


# LIKE

_LONG = 1000
"""How long a pattern is of which every place of a text would be tried against every place, in RE2's way."""


@lru_cache(1000)
def _like_matcher(pattern: str, escape: str) -> Matcher:
    """Return what tells whether texts match a pattern, as simple a search as will do."""
    match plain.like_parts(pattern, escape):
        case []:
            return lambda text: pc.equal(text, "")
        case [str(all_of_it)]:
            return lambda text: pc.equal(text, all_of_it)
        case [Wild.ANY]:
            return lambda text: pc.starts_with(text, "")
        case [str(start), Wild.ANY]:
            return lambda text: pc.starts_with(text, start)
        case [Wild.ANY, str(end)]:
            return lambda text: pc.ends_with(text, end)
        case [Wild.ANY, str(middle), Wild.ANY]:
            return lambda text: pc.match_substring(text, middle)
        case parts:
            regex = rf"(?s)\A{''.join(map(plain.in_regex, parts))}\z"
    if len(pattern) > _LONG:
        return _each_once(lambda texts: pa.array([plain.like(each, pattern, escape) for each in texts.to_pylist()]))
    return lambda text: pc.match_substring_regex(text, regex)


# Groups

_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\."
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"
    r"|(?P<group>\((?!\?)|\(\?P?<(?![=!])[^>]*>)|.",
    re.DOTALL,
)
"""A part of a regular expression; the beginnings of groups that are numbered are told from all else."""

_WANTED = "wanted"


@lru_cache(1000)
def _extractor(pattern: str, group: int) -> Matcher:
    """Return what finds a group of the first match; it is '' where there is no match or no such group in it."""
    named, count = _with_one_group(pattern, group)
    if not 0 <= group <= count:
        return lambda texts: pc.if_else(texts.is_valid(), "", texts)

    def extract(texts: pa.Array) -> pa.Array:
        found = pc.struct_field(pc.extract_regex(texts, named), _WANTED)
        return pc.if_else(texts.is_valid(), found.fill_null(""), texts)

    return extract


def _with_one_group(pattern: str, wanted: int) -> tuple[str, int]:
    """Return a regular expression in which only one group is kept, by name, and how many there were.

    >>> _with_one_group(r"(a)(?:b)([(])\\(", 2)
    ('(?:a)(?:b)(?P<wanted>[(])\\\\(', 2)
    """
    count = 0
    tokens = []
    for token in _TOKEN.finditer(pattern):
        if token["group"]:
            count += 1
            tokens.append(f"(?P<{_WANTED}>" if count == wanted else "(?:")
        else:
            tokens.append(token[0])
    kept = "".join(tokens)
    return (f"(?P<{_WANTED}>{kept})" if wanted == 0 else kept), count


KERNELS: dict[str, Kernel] = {"like": like, "regexp_like": regexp_like, "regexp_extract": regexp_extract}
