"""console: results on standard output, as tables or as JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.connectors.connector import Connector, SinkSettings
from runtime.connectors.format_options import FormatOptions

if TYPE_CHECKING:
    from runtime.connectors.batch_sinks import Sink
    from runtime.connectors.results import Result, Writer


class ConsoleOptions(FormatOptions):
    """There are none: `--output` says how results are printed."""

    format = "console"


class ConsoleConnector(Connector):
    """Standard output."""

    name = "console"
    writes = "standard output, as a table or as JSON lines"
    options = ConsoleOptions

    def sink(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Sink:
        """Return what prints each batch when it comes."""
        from runtime.connectors.batch_sinks import WriterSink
        from runtime.connectors.sinks import screen_writer

        return WriterSink(screen_writer(result, settings))

    def writer(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Writer:
        """Return what prints."""
        from runtime.connectors.sinks import screen_writer

        return screen_writer(result, settings)
