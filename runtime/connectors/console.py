"""console: results on standard output, as tables or as JSON lines."""

from __future__ import annotations

from runtime.connectors.connector import Connector
from runtime.connectors.format_options import FormatOptions


class ConsoleOptions(FormatOptions):
    """There are none: `--output` says how results are printed."""

    format = "console"


class Console(Connector):
    """Standard output."""

    name = "console"
    writes = "standard output, as a table or as JSON lines"
    options = ConsoleOptions
