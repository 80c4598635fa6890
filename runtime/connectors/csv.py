"""csv: a row on each line, its fields between separators; columns go by position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from runtime.connectors.file_connector import FileConnector, FileFormatReader
from runtime.connectors.file_options import SPARK_FILES, SPARK_TEXTS, Encoding, FolderOptions
from runtime.connectors.format_options import BOTH, Character, OptionNote, Truth

if TYPE_CHECKING:
    import pyarrow as pa

    from runtime.connectors.intake import RowLayout
    from runtime.connectors.result_files import FileWriter
    from runtime.connectors.results import Result


class CsvOptions(FolderOptions):
    """How lines are made of fields."""

    format = "csv"
    header: Annotated[
        Truth, OptionNote("`true`: the first line of every file holds names and is passed over", uses=BOTH)
    ] = False
    sep: Annotated[
        Character,
        OptionNote("what stands between fields, one character; a tab is `\\t`", also=("delimiter",), uses=BOTH),
    ] = ","
    quote: Annotated[Character, OptionNote("what stands around fields that hold separators")] = '"'
    escape: Annotated[Character, OptionNote("what stands before a quote that belongs to a field")] = "\\"
    null_value: Annotated[str, OptionNote("the text that stands for NULL", name="nullValue", uses=BOTH)] = ""
    encoding: Annotated[Encoding, OptionNote("nothing else is read", also=("charset",))] = "UTF-8"


class CsvConnector(FileConnector[CsvOptions]):
    """Text files with separators."""

    name = "csv"
    reads = "text files; `header 'true'` if they have a first line of names, `sep`"
    writes = "a folder of csv files"
    options = CsvOptions
    spark_options = (
        SPARK_FILES
        | SPARK_TEXTS
        | frozenset(
            [
                "comment",
                "inferSchema",
                "preferDate",
                "enforceSchema",
                "ignoreLeadingWhiteSpace",
                "ignoreTrailingWhiteSpace",
                "nanValue",
                "positiveInf",
                "negativeInf",
                "maxColumns",
                "maxCharsPerColumn",
                "charToEscapeQuoteEscaping",
                "emptyValue",
                "unescapedQuoteHandling",
            ]
        )
    )
    inference_hint: ClassVar[str] = "if something else than a comma separates its columns, say so: sep ';'"

    def reader(self, layout: RowLayout, options: CsvOptions) -> FileFormatReader:
        """Return what reads files of csv."""
        from runtime.connectors.text_files import CsvReader

        return CsvReader(layout, options)

    def file_writer(self, result: Result, options: CsvOptions, path: Path) -> FileWriter:
        """Return what writes a file of csv."""
        from runtime.connectors.line_formats import CsvFormat
        from runtime.connectors.result_files import LinesWriter

        return LinesWriter(CsvFormat(result, options), path)

    def schema(self, path: Path, options: CsvOptions) -> pa.Schema | None:
        """Return the columns that Arrow guesses from the beginning of a file; without a header, `_c0`, `_c1`, .."""
        import pyarrow as pa
        from pyarrow import csv

        read = csv.ReadOptions(autogenerate_column_names=not options.header, block_size=1 << 20)
        parse = csv.ParseOptions(delimiter=options.sep)
        with csv.open_csv(path, read_options=read, parse_options=parse) as reader:
            fields = [(f.name, pa.string() if pa.types.is_time(f.type) else f.type) for f in reader.schema]
        return pa.schema(fields if options.header else [(f"_c{at}", each) for at, (_, each) in enumerate(fields)])
