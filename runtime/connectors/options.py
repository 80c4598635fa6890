"""The options of the formats that the local engine reads and writes: those of Spark, as far as it knows them.

An option that only says how Spark should read (how many files at a time) changes nothing here and is let through.
Every other option that would be ignored is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cql.catalog import External
from cql.errors import Code, fail, nearest, one_of
from cql.options import SOURCE_OPTIONS
from runtime.connectors.paths import Place, is_remote

_PLACE = ("path", "pathGlobFilter", "recursiveFileLookup")
READS: dict[str, frozenset[str]] = {
    "csv": frozenset({*_PLACE, "header", "sep", "delimiter", "quote", "escape", "nullValue", "encoding", "charset"}),
    "json": frozenset({*_PLACE, "encoding", "charset"}),
    "parquet": frozenset(_PLACE),
    "stream": frozenset({"path"}),
}
WRITES: dict[str, frozenset[str]] = {
    "csv": frozenset({"path", "header", "sep", "delimiter", "nullValue"}),
    "json": frozenset({"path"}),
    "parquet": frozenset({"path", "compression"}),
    "stream": frozenset({"path"}),
    "console": frozenset(),
    "memory": frozenset(),
}
_NO_EFFECT = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "maxCachedFiles", "discardCachedInputRatio"),
    *("checkpointLocation", "inferSchema", "samplingRatio", "enforceSchema", "mergeSchema"),
)
_TRUTHS = {"true": True, "false": False}


class Options:
    """The options of a source or sink by name, without regard to case."""

    def __init__(self, external: External, known: Mapping[str, frozenset[str]], verb: str) -> None:
        self.format = external.format
        self._verb = verb
        self._values = {key.casefold(): value for key, value in external.options.items()}
        if external.format not in known:
            listed = f"it {verb}s {one_of(sorted(known))}"
            if verb == "write":
                message = f"this version does not write the format {external.format}, on Spark or in this process"
                raise fail(Code.NOT_AVAILABLE, message, hint=f"{listed}; in Python, a function can take results")
            message = f"the local engine does not read the format {external.format}"
            raise fail(Code.NOT_AVAILABLE, message, hint=f"{listed}; Spark may read others: --engine spark")
        for key in external.options:
            self._check(key, known[external.format], SOURCE_OPTIONS.get(external.format, ()))

    def _check(self, key: str, known: Iterable[str], of_spark: Iterable[str]) -> None:
        if key.casefold() in map(str.casefold, (*known, *_NO_EFFECT)):
            return
        listed = f"its options are {', '.join(sorted(known))}" if known else "it has none"
        if self._verb == "read" and key.casefold() in map(str.casefold, of_spark):
            message = f"the local engine does not have the option '{key}' of {self.format}"
            raise fail(Code.NOT_AVAILABLE, message, hint=f"{listed}; Spark has it: --engine spark")
        guesses = nearest(key, known)
        message = f"the format {self.format} has no option '{key}'"
        raise fail(Code.UNKNOWN_OPTION, message, hint=None if guesses else listed, candidates=guesses)

    def text(self, *names: str, default: str) -> str:
        """Return the value of an option that has one or several names."""
        given = (self._values[name.casefold()] for name in names if name.casefold() in self._values)
        return next(given, default)

    def truth(self, name: str, default: bool = False) -> bool:
        """Return the value of an option that is true or false."""
        text = self.text(name, default=str(default))
        if text.lower() not in _TRUTHS:
            raise self.refusal(name, text, "it takes true or false")
        return _TRUTHS[text.lower()]

    def character(self, *names: str, default: str) -> str:
        """Return the value of an option that is one character of ASCII."""
        text = self.text(*names, default=default)
        character = {"\\t": "\t"}.get(text, text)
        if len(character) != 1 or not character.isascii() or character in "\r\n":
            raise self.refusal(names[0], text, "it takes one character; a tab is '\\t'")
        return character

    def path(self) -> str:
        """Return where the files are: on this machine, or on a file system that is mounted here."""
        path = self.text("path", default="")
        if not path:
            message = f"the format {self.format} needs the option 'path'"
            raise fail(Code.BAD_DEFINITION, message, hint=f"write {self.format} OPTIONS (path '..')")
        if is_remote(path):
            raise self.refusal("path", path, "it takes a path of this machine; Spark can read from URLs")
        return path.removeprefix("file:")

    def place(self) -> Place:
        """Return where the files of a source are."""
        return Place(self.path(), self.text("pathGlobFilter", default="*"), self.truth("recursiveFileLookup"))

    def check_encoding(self) -> None:
        """Raise if the files are said to be something else than UTF-8."""
        text = self.text("encoding", "charset", default="utf-8")
        if text.lower().replace("_", "-") not in ("utf-8", "utf8", "us-ascii", "ascii"):
            raise self.refusal("encoding", text, "the local engine reads UTF-8")

    def refusal(self, name: str, text: str, hint: str) -> Exception:
        """Return the error that an option cannot have its value."""
        return fail(Code.BAD_OPTION_VALUE, f"the option '{name}' of {self.format} cannot be '{text}'", hint=hint)
