"""Reads scripts: from a file, or from standard input under the name `-`.

What cannot be read, or is no text, is an error of the user like any other, with a place as far as there is one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cql.errors import Code, CqlError, Diagnostic, fail, nearest
from cql.source import NO_SPAN, SourceText, Span


def read_source(name: str) -> SourceText:
    """Return the text of a file, or of standard input for `-`."""
    shown = shown_name(name)
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise _unreadable(name, f"there is no file '{name}'", candidates=_similar_files(name)) from None
    except IsADirectoryError:
        raise _unreadable(name, f"'{name}' is a folder", "name a script inside it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unreadable(name, f"'{name}' cannot be read: {reason}") from None
    try:
        if b"\0" in data:
            raise fail(
                Code.ENCODING,
                "this is not a text file",
                hint="a script is UTF-8 text; a text saved as UTF-16 has to be saved as UTF-8",
            ).within(SourceText(shown, ""))
        return SourceText(shown, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_utf8(shown, data, error.start) from None


def _unreadable(name: str, message: str, hint: str | None = None, candidates: Sequence[str] = ()) -> CqlError:
    return CqlError(
        [Diagnostic(Code.NO_FILE, message, NO_SPAN, hint, tuple(candidates))], SourceText(shown_name(name), "")
    )


def _not_utf8(shown: str, data: bytes, at: int) -> CqlError:
    """Return the error for a byte that is no UTF-8, pointing at it."""
    before = data[:at].decode("utf-8-sig")
    source = SourceText(shown, before + data[at:].decode("utf-8", errors="replace"))
    place = Span(len(before), len(before) + 1)
    message = f"the byte 0x{data[at]:02X} is not UTF-8 text"
    return fail(Code.ENCODING, message, place, hint="save the file as UTF-8").within(source)


def _similar_files(name: str) -> list[str]:
    path = Path(name)
    try:
        return [str(path.with_name(near)) for near in nearest(path.name, sorted(os.listdir(path.parent)), most=1)]
    except OSError:
        return []


def shown_name(name: str) -> str:
    """Return how messages call a file."""
    return "<stdin>" if name == "-" else name
