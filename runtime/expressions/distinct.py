"""Rare functions: computed in Python once for each distinct combination of arguments.

Relies on expressions being functions: equal arguments have equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cql.types import DataType
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import Ints
from runtime.expressions.plain import fit
from runtime.expressions.values import Datum, Kernel, Value, canonical, integers, is_constant


def per_distinct(function: Callable[..., Value], target: DataType, *arguments: Datum) -> pa.Array:
    """Return what a function has for each row; it sees None for NULL and returns values of the target type."""
    if not arguments:
        return pa.array([function()], arrow_type(target))
    columns = [argument for argument in arguments if not is_constant(argument)]
    distinct, codes = _encoded(columns)
    given = iter(distinct)
    rows = zip(
        *(_repeated(argument, len(distinct[0])) if is_constant(argument) else next(given) for argument in arguments),
        strict=True,
    )
    return pa.array([function(*row) for row in rows], arrow_type(target)).take(codes)


def rare(function: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function in Python that is NULL if an argument is, and whose result is to be fitted."""

    def kernel(target: DataType, *arguments: Datum) -> pa.Array:
        def value(*given: Value) -> Value:
            return None if None in given else fit(function(*given), target)

        return per_distinct(value, target, *arguments)

    return kernel


def _repeated(scalar: pa.Scalar, count: int) -> list[Value]:
    return _in_python(pa.repeat(scalar, 1)) * count


def _in_python(array: pa.Array) -> list[Value]:
    found: list[Value] = (canonical(array) if pa.types.is_floating(array.type) else integers(array)).to_pylist()
    return found


def _encoded(columns: list[pa.Array]) -> tuple[list[list[Value]], pa.Array]:
    """Return the distinct rows of some columns, column by column, and which of them each row is."""
    encoded = [column.dictionary_encode("encode") for column in columns]
    if len(encoded) == 1:
        return [_in_python(encoded[0].dictionary)], encoded[0].indices
    codes: Ints = np.zeros(len(columns[0]), np.int64)
    firsts: Ints = codes
    for each in encoded:
        pairs = codes * len(each.dictionary) + each.indices.to_numpy()
        _, firsts, codes = np.unique(pairs, return_index=True, return_inverse=True)
    return [_in_python(column.take(pa.array(firsts))) for column in columns], pa.array(codes)
