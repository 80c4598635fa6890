"""Functions of the user: called once per distinct combination of arguments, None standing for NULL; or, vectorized,
with whole columns.

They see TIMESTAMPs as naive datetimes in UTC. They are deterministic, as the language asks of them; what they return
has to be a value of their type, or a number that is then fitted into it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from cql.bound import UserCall
from cql.functions.user import Vectorized
from cql.types import DataType, Kind
from runtime.columns.arrow_types import arrow_type
from runtime.expressions.distinct import per_distinct
from runtime.expressions.plain import fit, from_datetime, to_datetime
from runtime.expressions.values import Datum, Kernel, Value, canonical, is_constant, spread
from runtime.user_errors import UserFunctionFailed

Functions = Mapping[str, Callable[..., Any]]
"""The code of user functions by their names in the catalog."""

NO_FUNCTIONS: Functions = MappingProxyType({})


def user_function(call: UserCall, code: Callable[..., Any] | Vectorized) -> Kernel:
    """Return the kernel that calls a user function."""
    if isinstance(code, Vectorized):
        return _on_columns(call, code.code)
    are_times = [argument.type.kind is Kind.TIMESTAMP for argument in call.arguments]

    def value(*given: Any) -> Value:
        arguments = [
            to_datetime(each) if is_time and each is not None else each
            for each, is_time in zip(given, are_times, strict=True)
        ]
        try:
            return _accepted(code(*arguments), call.type)
        except Exception as cause:
            raise UserFunctionFailed(call.function, arguments, cause) from cause

    def kernel(target: DataType, *arguments: Datum) -> Datum:
        return per_distinct(value, target, *arguments)

    return kernel


def _on_columns(call: UserCall, code: Callable[..., Any]) -> Kernel:
    """Return the kernel that calls a function with columns."""

    def kernel(target: DataType, *arguments: Datum) -> Datum:
        length = next((len(each) for each in arguments if not is_constant(each)), 1)
        columns = [_given(spread(each, length)) for each in arguments]
        try:
            return _accepted_column(code(*columns), target, length)
        except Exception as cause:
            first = [column[0].as_py() for column in columns] if length else []
            raise UserFunctionFailed(call.function, first, cause) from cause

    return kernel


def _given(array: pa.Array) -> pa.Array:
    """Return a column as functions see it."""
    return canonical(array) if pa.types.is_floating(array.type) else array


def _accepted_column(returned: Any, data_type: DataType, length: int) -> pa.Array:
    """Return what a function returned as a column of its type; raises if it is none."""
    found = returned.combine_chunks() if isinstance(returned, pa.ChunkedArray) else returned
    if not isinstance(found, pa.Array):
        found = pa.array(found)
    if len(found) != length:
        raise TypeError(f"it returned {len(found)} values for {length} rows")
    return found.cast(arrow_type(data_type))


def _accepted(returned: Any, data_type: DataType) -> Value:
    """Return what a user function returned as a value of its type; raises TypeError if it is none."""
    found = returned.item() if isinstance(returned, np.generic) else returned
    if found is None:
        return None
    if data_type.kind is Kind.TIMESTAMP and isinstance(found, datetime.datetime):
        return fit(from_datetime(found), data_type)
    if not isinstance(found, _CLASSES[data_type.kind]):
        raise TypeError(f"it returned {returned!r}, which is no {data_type}")
    if isinstance(found, str):
        found.encode()
    if isinstance(found, bool) and data_type.kind is not Kind.BOOLEAN:
        return fit(int(found), data_type)
    return fit(found, data_type)


_CLASSES: dict[Kind, type | tuple[type, ...]] = {
    Kind.BOOLEAN: bool,
    Kind.STRING: str,
    **dict.fromkeys(
        (Kind.BYTE, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE, Kind.TIMESTAMP, Kind.INTERVAL),
        (int, float, Decimal),
    ),
}
