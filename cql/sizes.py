"""Sizes of memory as people write them: `64 MB`."""

from __future__ import annotations

import re

_UNITS = {"b": 1, "bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


class BadSize(ValueError):
    """A text that is not a size."""


def parse_size(text: str) -> int:
    """Return the bytes that a text stands for.

    >>> parse_size("64 MB"), parse_size("1.5kb"), parse_size("4096")
    (67108864, 1536, 4096)
    """
    found = _SIZE.fullmatch(text)
    unit = found[2].lower() or "bytes" if found else ""
    if found is None or unit not in _UNITS:
        raise BadSize("write a number and a unit, such as '64 MB'; units are bytes, KB, MB, GB and TB")
    size = int(float(found[1]) * _UNITS[unit])
    if size <= 0:
        raise BadSize("it is more than nothing")
    return size


def size_text(size: int) -> str:
    """Return a size for people to read, exactly.

    >>> size_text(67108864), size_text(1536), size_text(1 << 10)
    ('64 MB', '1536 bytes', '1 KB')
    """
    for unit in ("TB", "GB", "MB", "KB"):
        if size % _UNITS[unit.lower()] == 0:
            return f"{size // _UNITS[unit.lower()]} {unit}"
    return f"{size} bytes"
