"""Lengths of time: unit words, interval texts, and their conversion to clock ticks.

Two clocks exist: integer time ticks in seconds, TIMESTAMP time in microseconds. An `Interval` keeps
the amounts as they were written, so that the printer can give them back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from functools import reduce


class Unit(Enum):
    """A unit of time and its length in microseconds."""

    MICROSECOND = 1
    MILLISECOND = 1_000
    SECOND = 1_000_000
    MINUTE = 60_000_000
    HOUR = 3_600_000_000
    DAY = 86_400_000_000


UNIT_WORDS: dict[str, Unit] = {
    word: unit
    for unit, words in {
        Unit.MICROSECOND: ("microsecond", "microseconds", "us"),
        Unit.MILLISECOND: ("millisecond", "milliseconds", "ms"),
        Unit.SECOND: ("second", "seconds", "sec", "secs", "s"),
        Unit.MINUTE: ("minute", "minutes", "min", "mins"),
        Unit.HOUR: ("hour", "hours", "h"),
        Unit.DAY: ("day", "days", "d"),
    }.items()
    for word in words
}


class TimeDomain(Enum):
    """The clock of a stream: the type of its timestamps and the length of a tick."""

    INTEGER = "integer seconds"
    TIMESTAMP = "timestamps"

    @property
    def microseconds_per_tick(self) -> int:
        return 1_000_000 if self is TimeDomain.INTEGER else 1


_EXACT = Context(prec=1000, traps=[Inexact])


class BadInterval(ValueError):
    """A text that is not an interval; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A sum of amounts of units, `1 HOUR 30 MINUTES`; amounts are kept as written."""

    parts: tuple[tuple[str, Unit], ...]

    def microseconds(self) -> int:
        """Return the length; an amount finer than a microsecond is an error.

        >>> Interval((("1.5", Unit.SECOND),)).microseconds()
        1500000
        """
        try:
            parts = [_EXACT.multiply(Decimal(amount), unit.value) for amount, unit in self.parts]
            total = reduce(_EXACT.add, parts, Decimal(0))
            whole = total == total.to_integral_value()
        except Inexact:
            whole = False
        if not whole:
            raise BadInterval("an interval is a whole number of microseconds")
        if abs(total) >= 2**63:
            raise BadInterval("an interval is shorter than 292,000 years")
        return int(total)

    def ticks(self, domain: TimeDomain) -> int:
        """Return the length in ticks of a clock; a part of a tick is an error."""
        whole, rest = divmod(self.microseconds(), domain.microseconds_per_tick)
        if rest:
            raise BadInterval("integer time ticks in whole seconds")
        return whole

    def __str__(self) -> str:
        return " ".join(f"{amount} {unit.name}{'' if amount == '1' else 'S'}" for amount, unit in self.parts)


_PART = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([A-Za-z]+)\s*,?")


def parse_interval(text: str) -> Interval:
    """Return the interval that a text such as `1 hour 30 minutes` or `5s` means.

    >>> str(parse_interval("1 hour 30 min"))
    '1 HOUR 30 MINUTES'
    """
    parts: list[tuple[str, Unit]] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _PART.match(stripped, at)
        if not match:
            raise BadInterval(f"'{text}' is not an interval; write '5 seconds' or '1 hour 30 minutes'")
        parts.append(interval_part(match[1], match[2]))
        at = match.end()
    if not parts:
        raise BadInterval("an interval needs an amount and a unit, such as '5 seconds'")
    return Interval(tuple(parts))


def interval_part(amount: str, unit: str) -> tuple[str, Unit]:
    """Return one amount with its unit, checked."""
    found = UNIT_WORDS.get(unit.lower())
    if found is None:
        raise BadInterval(
            f"'{unit}' is not a unit of time; use microseconds, milliseconds, seconds, minutes, hours or days"
        )
    try:
        Decimal(amount)
    except InvalidOperation:
        raise BadInterval(f"'{amount}' is not a number") from None
    return amount, found


def duration_text(ticks: int, time: TimeDomain | None) -> str:
    """Return a length of time in the largest unit that goes into it.

    >>> duration_text(90_000_000, TimeDomain.TIMESTAMP), duration_text(7200, TimeDomain.INTEGER)
    ('90 seconds', '2 hours')
    >>> duration_text(0, TimeDomain.TIMESTAMP)
    '0 seconds'
    """
    length = ticks * (time or TimeDomain.INTEGER).microseconds_per_tick
    unit = next(unit for unit in reversed(Unit) if length % unit.value == 0) if length else Unit.SECOND
    amount = length // unit.value
    return f"{amount:,} {unit.name.lower()}{'' if abs(amount) == 1 else 's'}"
