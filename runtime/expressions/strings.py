"""Strings: Arrow's kernels where the other arguments are constants and they mean the same, else Python.

Arrow compares UTF-8 bytes, which is the order of code points. Capitals beyond ASCII are Python's (`ß`, `SS`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from cql.types import DataType
from runtime.expressions import plain
from runtime.expressions.distinct import rare
from runtime.expressions.values import Datum, Kernel, is_constant

_SUBSTR = rare(plain.substr)
_REPLACE = rare(plain.replace)


def _by_case(ascii_only: Callable[[pa.Array], pa.Array], function: Callable[[str], str]) -> Kernel:
    of_any_text = rare(function)

    def kernel(target: DataType, text: pa.Array) -> pa.Array:
        return ascii_only(text) if _is_ascii(text) else of_any_text(target, text)

    return kernel


def _is_ascii(text: pa.Array) -> bool:
    return pc.all(pc.string_is_ascii(text)).as_py() is not False


def length(target: DataType, text: pa.Array) -> pa.Array:
    """Return the number of characters."""
    return pc.utf8_length(text)


def substr(target: DataType, text: Datum, position: Datum, count: Datum | None = None) -> pa.Array:
    """Return parts of texts."""
    others = [position] if count is None else [position, count]
    if is_constant(text) or not all(map(is_constant, others)):
        return _SUBSTR(target, text, *others)
    start = position.as_py()
    start -= start > 0
    stop = None if count is None else start + max(count.as_py(), 0)
    if start < 0 and stop is not None and stop >= 0:
        stop = None
    return pc.utf8_slice_codeunits(text, start, stop)


def trim(target: DataType, text: pa.Array) -> pa.Array:
    """Return texts without blanks at both ends."""
    return pc.ascii_trim(text, " ")


def replace(target: DataType, text: Datum, old: Datum, new: Datum) -> pa.Array:
    """Return texts with every occurrence of another one replaced."""
    if is_constant(text) or not (is_constant(old) and is_constant(new)):
        return _REPLACE(target, text, old, new)
    return pc.replace_substring(text, old.as_py(), new.as_py()) if old.as_py() else text


def concat(target: DataType, *texts: Datum) -> pa.Array:
    """Return texts one after the other."""
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


KERNELS: dict[str, Kernel] = {
    "upper": _by_case(pc.ascii_upper, str.upper),
    "lower": _by_case(pc.ascii_lower, str.lower),
    "length": length,
    "substr": substr,
    "trim": trim,
    "replace": replace,
    "concat": concat,
    "split_part": rare(plain.split_part),
}
