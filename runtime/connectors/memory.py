"""memory: results that stay in the process that runs the query, for programs that look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.connectors.connector import Connector, SinkSettings
from runtime.connectors.format_options import FormatOptions

if TYPE_CHECKING:
    from runtime.connectors.batch_sinks import Sink
    from runtime.connectors.results import Result, Writer


class MemoryOptions(FormatOptions):
    """There are none."""

    format = "memory"


class MemoryConnector(Connector):
    """What programs look at (`keeping.py`)."""

    name = "memory"
    writes = "nothing; from Python the results can be looked at"
    options = MemoryOptions

    def sink(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Sink:
        """Return what keeps changes by batch."""
        from runtime.connectors.batch_sinks import MemorySink
        from runtime.connectors.keeping import KeptResults

        return MemorySink(KeptResults(result.is_stream, settings.keep))

    def writer(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Writer:
        """Return what keeps changes."""
        from runtime.connectors.keeping import KeptResults

        return KeptResults(result.is_stream, settings.keep)
