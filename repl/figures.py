"""Numbers for people: counts, sizes, times and small curves, each in a few characters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*#@"
CURVE = 16
"""How many characters a curve has."""


def count(number: float) -> str:
    """Return a count.

    >>> count(7), count(0.25), count(12345), count(1234567), count(12345678)
    ('7', '0.2', '12,345', '1.23M', '12.3M')
    """
    if number >= 1e6:
        return f"{number / 1e6:.3g}M" if number < 1e9 else f"{number / 1e9:.3g}G"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def size(nbytes: float) -> str:
    """Return a number of bytes.

    >>> size(512), size(2048), size(5 << 20)
    ('512 B', '2.0 kB', '5.0 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1024 or unit == "GB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError("the last unit has no end")


def duration(seconds: float) -> str:
    """Return a length of time.

    >>> duration(0.0123), duration(1.25), duration(75), duration(7300)
    ('12 ms', '1.2 s', '1:15 min', '2:01 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    large, unit = (60, "min") if seconds < 3600 else (3600, "h")
    return f"{int(seconds // large)}:{int(seconds % large * 60 // large):02} {unit}"


def sparkline(values: Sequence[float], most: int = CURVE) -> str:
    """Return the course of some values as a curve; nothing of less than two.

    >>> sparkline([0, 1, 2, 4])
    '▁▂▄█'
    """
    shown = list(values)[-most:]
    if len(shown) < 2 or max(shown) <= 0:
        return ""
    bars = _BARS if _encoding().startswith("utf") else _PLAIN_BARS
    return "".join(bars[min(len(bars) - 1, int(value / max(shown) * (len(bars) - 1)))] for value in shown)


def _encoding() -> str:
    """Return the encoding of standard output, also while something else stands in for it."""
    streams = (sys.stdout, sys.__stdout__)
    return next((each.encoding.lower() for each in streams if each is not None and each.encoding), "")
