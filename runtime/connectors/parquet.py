"""parquet: columns with types of their own, which go by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from runtime.connectors.file_connector import FileConnector, FileFormatReader
from runtime.connectors.file_options import SPARK_FILES, FolderOptions
from runtime.connectors.format_options import OptionNote, word

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.connectors.intake import RowLayout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result


class ParquetOptions(FolderOptions):
    """How files are written."""

    format = "parquet"
    compression: Annotated[
        str,
        BeforeValidator(word("none", "snappy", "gzip", "zstd", "lz4")),
        OptionNote("none, snappy, gzip, zstd or lz4", uses=("write",)),
    ] = "snappy"


class ParquetConnector(FileConnector[ParquetOptions]):
    """Parquet files."""

    name = "parquet"
    reads = "Parquet files"
    writes = "a folder of Parquet files"
    options = ParquetOptions
    finds_columns_by_name = True
    is_written_by_tasks = True
    spark_options = SPARK_FILES | {"mergeSchema", "datetimeRebaseMode", "int96RebaseMode"}

    def reader(self, layout: RowLayout, options: ParquetOptions) -> FileFormatReader:
        """Return what reads Parquet files."""
        from runtime.connectors.parquet_files import ParquetReader

        return ParquetReader(layout)

    def file_writer(self, result: Result, options: ParquetOptions, path: Path) -> FileWriter:
        """Return what writes a Parquet file."""
        from runtime.connectors.result_files import ParquetWriter

        return ParquetWriter(result, options.compression, path)

    def schema(self, path: Path, options: ParquetOptions) -> pa.Schema | None:
        """Return the columns that a file says it has."""
        from pyarrow import parquet

        return parquet.read_schema(path)
