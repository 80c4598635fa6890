"""Why Spark does not read a source, in words for who has defined it."""

from __future__ import annotations

import re

from cql.errors import Code, CqlError, fail


def cannot_read(table: str, format_name: str, error: BaseException) -> CqlError:
    """Return the error that Spark does not open a source.

    >>> print(cannot_read("t", "jdbc", RuntimeError("Data source jdbc does not support streamed reading")))
    Spark does not read jdbc as a stream, which 't' is to be
    """
    text = str(error)
    if re.search(
        r"not support streamed reading|UNSUPPORTED_STREAMING_SOURCE|MICRO_BATCH_STREAMING_IS_NOT_SUPPORTED", text
    ):
        return fail(
            Code.CANNOT_READ,
            f"Spark does not read {format_name} as a stream, which '{table}' is to be",
            hint="a static relation is read as a whole: CREATE RELATION without TIMESTAMP BY",
        )
    if re.search(r"No suitable driver|ClassNotFoundException|NoClassDefFoundError", text):
        return fail(
            Code.MISSING,
            f"Spark lacks what reads {format_name} for '{table}': {_reason(text)}",
            hint="start Spark with the package that has it: spark.jars.packages",
        )
    return fail(
        Code.CANNOT_READ,
        f"Spark cannot read '{table}' from {format_name}: {_reason(text)}",
        hint=f"correct the options of {format_name}",
    )


def _reason(text: str) -> str:
    """Return what Java says, without the names of its classes.

    >>> _reason("An error occurred while calling o1.load.\\n: java.sql.SQLException: No suitable driver\\n\\tat x")
    'No suitable driver'
    """
    said = re.search(r"^: (.*)", text, re.M)
    line = said[1] if said else next(iter(text.splitlines()), "")
    return re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", line).strip() or "it says nothing"
