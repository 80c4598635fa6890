"""json: an object on each line; columns go by name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from runtime.connectors.file_connector import FileConnector, FileFormatReader
from runtime.connectors.file_options import SPARK_FILES, SPARK_TEXTS, Encoding, FolderOptions
from runtime.connectors.format_options import OptionNote

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.connectors.intake import RowLayout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result

_HEAD = 1 << 20
"""How many bytes are read to find out the columns."""


class JsonOptions(FolderOptions):
    """How texts are written."""

    format = "json"
    encoding: Annotated[Encoding, OptionNote("nothing else is read", also=("charset",))] = "UTF-8"


class JsonConnector(FileConnector[JsonOptions]):
    """Files with an object on each line."""

    name = "json"
    reads = "files with an object on each line"
    writes = "a folder of json files"
    options = JsonOptions
    finds_columns_by_name = True
    spark_options = (
        SPARK_FILES
        | SPARK_TEXTS
        | frozenset(
            [
                "primitivesAsString",
                "prefersDecimal",
                "allowComments",
                "allowUnquotedFieldNames",
                "allowSingleQuotes",
                "allowNumericLeadingZeros",
                "allowBackslashEscapingAnyCharacter",
                "allowUnquotedControlChars",
                "dropFieldIfAllNull",
                "allowNonNumericNumbers",
            ]
        )
    )

    def reader(self, layout: RowLayout, options: JsonOptions) -> FileFormatReader:
        """Return what reads files of JSON."""
        from runtime.connectors.json_files import JsonReader

        return JsonReader(layout)

    def file_writer(self, result: Result, options: JsonOptions, path: Path) -> FileWriter:
        """Return what writes a file of JSON."""
        from runtime.connectors.line_formats import JsonFormat
        from runtime.connectors.result_files import LinesWriter

        return LinesWriter(JsonFormat(result), path)

    def schema(self, path: Path, options: JsonOptions) -> pa.Schema | None:
        """Return the columns of the objects at the beginning of a file."""
        from pyarrow import json

        with path.open("rb") as file:
            head = file.read(_HEAD)
        if len(head) == _HEAD:
            head = head[: head.rfind(b"\n") + 1]
        return json.read_json(io.BytesIO(head)).schema
