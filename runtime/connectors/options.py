"""What the engine's own readers and writers take of a format and its options, and why they refuse the rest.

An option that only says how Spark should read (how many files at a time) changes nothing here and is let through.
Every other option that would be ignored is refused.
"""

from __future__ import annotations

from typing import Any

from cql.catalog import External
from cql.errors import Code, CqlError, fail, nearest, one_of
from runtime.connectors.connector import Connector
from runtime.connectors.file_connector import FileConnector
from runtime.connectors.file_options import PASSED_OVER, FileOptions, is_utf8
from runtime.connectors.format_options import FormatOptions, Use
from runtime.connectors.paths import is_remote
from runtime.connectors.registry import connector, read_by_engine, sinks, sources

_PASSED_OVER = {name.casefold() for name in PASSED_OVER | {"checkpointLocation"}}


def file_format(external: External) -> tuple[FileConnector[Any], FileOptions]:
    """Return the format and the options of a source that the engine reads to its end; raises if it does not."""
    found = connector(external.format)
    if not isinstance(found, FileConnector):
        raise _not_read(external, read_by_engine())
    _check_names(found, external, "read")
    return found, found.options.of(external.options)


def readable(external: External) -> Connector:
    """Return the connector of a source, also of one without an end; raises if none but Spark reads it."""
    found = connector(external.format)
    if not found.reads:
        raise _not_read(external, [each.name for each in sources()])
    _check_names(found, external, "read")
    return found


def _not_read(external: External, read: list[str]) -> CqlError:
    message = f"the local engine does not read the format {external.format}"
    hint = f"it reads {one_of(sorted(read))}; Spark may read others: --engine spark"
    return fail(Code.NOT_AVAILABLE, message, hint=hint)


def sink_format(external: External) -> tuple[Connector, FormatOptions]:
    """Return the format and the options of a sink; raises if nobody writes it."""
    found = connector(external.format)
    if not found.writes:
        message = f"this version does not write the format {external.format}, on Spark or in this process"
        hint = f"it writes {one_of(sorted(each.name for each in sinks()))}; in Python, a function can take results"
        raise fail(Code.NOT_AVAILABLE, message, hint=hint)
    _check_names(found, external, "write")
    return found, found.options.of(external.options)


def is_read_by_engine(external: External) -> bool:
    """Tell whether the engine's readers know a format, its options and the file system."""
    found = connector(external.format)
    if not isinstance(found, FileConnector):
        return False
    if not found.spark_options:
        return True
    options = {key.casefold(): text for key, text in external.options.items()}
    known = {name.casefold() for each in found.options.described("read") for name in each.names} | _PASSED_OVER
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    return options.keys() <= known and is_utf8(encoding) and not is_remote(options.get("path", ""))


def _check_names(found: Connector, external: External, use: Use) -> None:
    """Raise for an option that the engine would have to pass over though it changes rows."""
    ours = [name for each in found.options.described(use) for name in each.names]
    for key in external.options:
        if key.casefold() not in _PASSED_OVER | {name.casefold() for name in ours}:
            raise _unknown(found, key, ours, use)


def _unknown(found: Connector, key: str, ours: list[str], use: Use) -> CqlError:
    listed = f"its options are {', '.join(sorted(ours))}" if ours else "it has none"
    if use == "read" and key.casefold() in map(str.casefold, found.spark_options):
        message = f"the local engine does not have the option '{key}' of {found.name}"
        return fail(Code.NOT_AVAILABLE, message, hint=f"{listed}; Spark has it: --engine spark")
    guesses = nearest(key, ours)
    message = f"the format {found.name} has no option '{key}'"
    return fail(Code.UNKNOWN_OPTION, message, hint=None if guesses else listed, candidates=guesses)
