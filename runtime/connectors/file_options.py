"""The options that formats of files share, and those that only say how Spark is to look for files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from runtime.connectors.format_options import BOTH, FormatOptions, OptionNote, Truth
from runtime.connectors.paths import Place, is_remote

PACE = frozenset({"maxFilesPerTrigger", "maxBytesPerTrigger"})
"""How much a micro-batch on Spark takes; Spark is told whoever reads the files."""

PASSED_OVER = PACE | {
    *("maxFileAge", "maxCachedFiles", "discardCachedInputRatio"),
    *("inferSchema", "samplingRatio", "enforceSchema", "mergeSchema"),
}
"""Options of Spark that change no row: how it looks for files, and how it finds out types, which are declared here."""

SPARK_FILES = PASSED_OVER - {"inferSchema", "samplingRatio", "enforceSchema", "mergeSchema"} | {
    *("latestFirst", "fileNameOnly", "cleanSource", "sourceArchiveDir", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles"),
}
"""What Spark has beside our options for files of any format."""

SPARK_TEXTS = frozenset(
    [
        "mode",
        "columnNameOfCorruptRecord",
        "dateFormat",
        "timestampFormat",
        "timestampNTZFormat",
        "enableDateTimeParsingFallback",
        "multiLine",
        "lineSep",
        "samplingRatio",
        "locale",
        "timeZone",
    ]
)
"""What Spark has beside our options for csv and json."""


def is_utf8(encoding: str) -> bool:
    """Tell whether what is written in an encoding is UTF-8."""
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8", "us-ascii", "ascii")


def _local(path: Any) -> str:
    if is_remote(path):
        raise ValueError("it takes a path of this machine; Spark can read from URLs")
    return str(path).removeprefix("file:")


def _utf8(encoding: Any) -> str:
    if not is_utf8(encoding):
        raise ValueError("the local engine reads UTF-8")
    return str(encoding)


Encoding = Annotated[str, BeforeValidator(_utf8)]


class FileOptions(FormatOptions):
    """Files on this machine, or on a file system that is mounted here."""

    path: Annotated[
        str,
        BeforeValidator(_local),
        OptionNote(
            "a file, a folder or a glob, relative to the working directory; of a sink, where it writes", uses=BOTH
        ),
    ]

    def place(self) -> Place:
        """Return where the files of a source are."""
        return Place(self.path)


class FolderOptions(FileOptions):
    """Files in folders."""

    path_glob_filter: Annotated[
        str, OptionNote("of the files in a folder, those whose names match", name="pathGlobFilter")
    ] = "*"
    recursive_file_lookup: Annotated[
        Truth, OptionNote("`true`: folders in a folder are looked into", name="recursiveFileLookup")
    ] = False

    def place(self) -> Place:
        """Return where the files of a source are."""
        return Place(self.path, self.path_glob_filter, self.recursive_file_lookup)
