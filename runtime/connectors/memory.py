"""memory: results that stay in the process that runs the query, for programs that look at them."""

from __future__ import annotations

from runtime.connectors.connector import Connector
from runtime.connectors.format_options import FormatOptions


class MemoryOptions(FormatOptions):
    """There are none."""

    format = "memory"


class Memory(Connector):
    """What programs look at (`keeping.py`)."""

    name = "memory"
    writes = "nothing; from Python the results can be looked at"
    options = MemoryOptions
