"""What the formats of files have in common: a path, an end, positions in a log of files, results in folders.

A format is made of readers and writers of single files. Which files there are and in which order they are read is in
`sources.py`, and how files of results appear in `sinks.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from cql.catalog import ColumnModel
from cql.source import Span
from runtime.connectors.connector import Connector, ReadSettings, RowSource, SinkSettings, Table
from runtime.connectors.file_options import FileOptions
from runtime.connectors.format_options import FormatOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.connectors.batch_sinks import Sink
    from runtime.connectors.intake import FileChunk, RowLayout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result, Writer


OptionsT = TypeVar("OptionsT", bound=FileOptions)


class FileFormatReader(Protocol):
    """Reads single files."""

    def read(self, path: Path) -> Iterator[FileChunk]:
        """Yield the parts of a file in their order."""
        ...


class FileConnector(Connector, Generic[OptionsT]):
    """A format of files."""

    is_bounded = True
    is_in_files = True
    can_be_read_again = True
    options: type[OptionsT]
    finds_columns_by_name: ClassVar[bool] = False
    inference_hint: ClassVar[str | None] = None
    """What to try if no columns can be read from a file."""

    @abstractmethod
    def reader(self, layout: RowLayout, options: OptionsT) -> FileFormatReader:
        """Return what reads files that are laid out like this; raises if it cannot."""

    @abstractmethod
    def file_writer(self, result: Result, options: OptionsT, path: Path) -> FileWriter:
        """Return what writes a file of results."""

    def schema(self, path: Path, options: OptionsT) -> pa.Schema | None:
        """Return the columns of a file, as far as Arrow can tell from its beginning; None: files do not say."""
        return None

    def columns(self, given: Mapping[str, str], place: Span) -> list[ColumnModel]:
        """Return the columns of the first file of a source."""
        from runtime.connectors.inference import file_columns

        return file_columns(self, given, place)

    def source(self, table: Table, settings: ReadSettings) -> RowSource:
        """Open the files of a table."""
        from runtime.connectors.logged_files import LoggedFiles

        return LoggedFiles(table, settings)

    def sink(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Sink:
        """Return a folder with a file for each batch."""
        from runtime.connectors.batch_sinks import FolderSink

        assert isinstance(options, FileOptions), "files have a path"
        return FolderSink(result, options, settings.owner)

    def writer(self, result: Result, options: FormatOptions, settings: SinkSettings) -> Writer:
        """Return what writes a folder with one file."""
        from runtime.connectors.sinks import folder_writer

        assert isinstance(options, FileOptions), "files have a path"
        return folder_writer(result, options)
