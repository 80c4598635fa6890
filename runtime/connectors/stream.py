"""stream: the files of STREAM. A first line with the types of the columns, then rows that begin with their instant.

What is written is the output of STREAM, a line `[instant]:+:value, value` for each change, in one file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.connectors.file_connector import FileConnector, FileReader
from runtime.connectors.file_options import FileOptions

if TYPE_CHECKING:
    from runtime.connectors.intake import Layout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result


class StreamOptions(FileOptions):
    """Nothing but where the file is."""

    format = "stream"


class Stream(FileConnector[StreamOptions]):
    """STREAM's own files."""

    name = "stream"
    reads = "a file in STREAM's own format"
    writes = "a file, a line `[instant]:+:value, value` for each change, doubles with six digits"
    options = StreamOptions

    def reader(self, layout: Layout, options: StreamOptions) -> FileReader:
        """Return what reads data files of STREAM."""
        from runtime.connectors.text_files import StreamReader

        return StreamReader(layout)

    def writer(self, result: Result, options: StreamOptions, path: Path) -> FileWriter:
        """Return what writes a file as STREAM did."""
        from runtime.connectors.line_formats import StreamFormat
        from runtime.connectors.result_files import LinesWriter

        return LinesWriter(StreamFormat(result), path)
