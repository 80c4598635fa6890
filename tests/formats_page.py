"""Writes `docs/formats.md`: every format with its options, as the registry of connectors has them."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.connectors.connector import Connector
from runtime.connectors.format_options import OptionField, Use
from runtime.connectors.registry import CONNECTORS
from runtime.connectors.spark import KNOWN

_HEAD = """\
# Formats

What can follow `FROM` and `INTO`, and the options of each, as in `FROM csv OPTIONS (path 'bids.csv', header 'true')`.
Names of formats and options are not case-sensitive. [Running queries](running.md) says how values are read and written.

This page is written by `make golden` from `runtime/connectors/`.
"""

_MIDDLE = """\
An option that a format of this table does not have is an error. With an option that only Spark has, Spark reads the
files, and the local engine refuses them, unless it only says how Spark looks for files or finds out types.

Any other name is a format of Spark, or a data source that is registered with it. Options are passed on to Spark, which
knows these formats, among others:
"""


def formats_page() -> str:
    """Return the page."""
    parts = [_HEAD, _table(("format", "as a source", "as a sink"), map(_overview, CONNECTORS)), _MIDDLE]
    parts.append(_table(("format", "as a source"), ((f"`{name}`", what) for name, what in KNOWN.items())))
    parts += map(_section, CONNECTORS)
    return "\n".join(parts)


def _overview(connector: Connector) -> tuple[str, ...]:
    ends = "" if connector.is_bounded or not connector.reads else "; without an end"
    return f"`{connector.name}`", connector.reads + ends, connector.writes


def _section(connector: Connector) -> str:
    text = f"## {connector.name}\n\n"
    options = list(connector.options.described())
    if not options:
        return f"{text}It has no options.\n"
    text += _table(("option", "of", "default", "meaning"), map(_option, options))
    if connector.spark_options:
        names = ", ".join(f"`{name}`" for name in sorted(connector.spark_options, key=str.casefold))
        text += f"\nOn Spark, sources also have {names}.\n"
    return text


def _option(field: OptionField) -> tuple[str, ...]:
    names = " or ".join(f"`{name}`" for name in field.names)
    secret = "; it is hidden wherever options are shown" if field.option.is_secret else ""
    return names, _users(field.option.uses), _default(field), field.option.meaning + secret


def _users(uses: tuple[Use, ...]) -> str:
    return " and ".join({"read": "sources", "write": "sinks"}[use] for use in uses)


def _default(field: OptionField) -> str:
    if field.is_required:
        return "needed"
    if field.default in ("", None):
        return ""
    text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return f"`{text}`"


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]] | map[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
