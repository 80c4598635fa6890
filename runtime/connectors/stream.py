"""stream: the files of STREAM. A first line with the types of the columns, then rows that begin with their instant.

What is written is the output of STREAM, a line `[instant]:+:value, value` for each change, in one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.connectors.connector import SinkSettings
from runtime.connectors.file_connector import FileConnector, FileFormatReader
from runtime.connectors.file_options import FileOptions
from runtime.connectors.format_options import FormatOptions

if TYPE_CHECKING:
    from runtime.connectors.batch_sinks import Sink
    from runtime.connectors.intake import RowLayout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result, Writer


class StreamOptions(FileOptions):
    """Nothing but where the file is."""

    format = "stream"


class StreamConnector(FileConnector[StreamOptions]):
    """STREAM's own files."""

    name = "stream"
    reads = "a file in STREAM's own format"
    writes = "a file, a line `[instant]:+:value, value` for each change, doubles with six digits"
    options = StreamOptions

    def reader(self, layout: RowLayout, options: StreamOptions) -> FileFormatReader:
        """Return what reads data files of STREAM."""
        from runtime.connectors.text_files import StreamReader

        return StreamReader(layout)

    def file_writer(self, result: Result, options: StreamOptions, path: Path) -> FileWriter:
        """Return what writes a file as STREAM did."""
        from runtime.connectors.line_formats import StreamFormat
        from runtime.connectors.result_files import LinesWriter

        return LinesWriter(StreamFormat(result), path)

    def sink(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Sink:
        """Return one file that grows."""
        from runtime.connectors.batch_sinks import GrowingFile

        assert isinstance(options, StreamOptions), "files of STREAM have a path"
        return GrowingFile(result, options, settings.owner)

    def writer(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Writer:
        """Return what writes one file."""
        from runtime.connectors.sinks import file_writer

        assert isinstance(options, StreamOptions), "files of STREAM have a path"
        return file_writer(result, options)
