"""Text as a terminal may be given it: what it would obey, or nobody would see, is spelled out.

Names of files and columns, lines of scripts and values of data can hold anything, also what moves the cursor, changes
the title or the clipboard, or turns the order of letters around. Whatever is printed for people goes through here; what
looks harmless stays as it is. The spelling is that of JSON, so that JSON with it in its strings still means the same.
"""

from __future__ import annotations

import re

# Control characters, marks of the direction of text, ends of lines that are no line feed, halves of characters.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile(_OBEYED.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

OBEYED_BYTES = re.compile(
    rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2(?:\x80[\x8e\x8f\xa8-\xae]|\x81[\xa6-\xa9])|\xed[\xa0-\xbf]"
)
"""What `visible` spells out, in text that is encoded in UTF-8."""

_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def visible(text: str) -> str:
    r"""Return a text that stays within its line and does nothing to a terminal.

    >>> print(visible("a\x1b[31mb\n"))
    a\u001b[31mb\n
    """
    return _OBEYED.sub(_spelled, text)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines that does nothing to a terminal; line feeds and tabs stay.

    >>> print(visible_lines("a\n\x9b2Jb"))
    a
    \u009b2Jb
    """
    return _OBEYED_IN_LINES.sub(_spelled, text)


def _spelled(character: re.Match[str]) -> str:
    return _SHORT.get(character[0], f"\\u{ord(character[0]):04x}")
