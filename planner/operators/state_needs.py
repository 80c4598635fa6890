"""What an operator says of its state and of what it puts out, before there are any stores.

Growth says what a size depends on; facts are what is known of a relation; a need is a synopsis that an operator wants.
Which store stands behind it is decided for a whole query (`planner/state.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cql.bound import Expr

Growth = Literal["constant", "relation", "window", "keys", "stream"]
"""What the size of some state depends on, from the tamest to the wildest: a number in the query, a given
relation, the elements of a stretch of time, how many different keys there are, the length of a stream."""

_WILDNESS: tuple[Growth, ...] = ("constant", "relation", "window", "keys", "stream")


def wildest(growths: Sequence[Growth]) -> Growth:
    """Return the growth that dominates."""
    return max(growths, key=_WILDNESS.index, default="constant")


def by_keys(growth: Growth) -> Growth:
    """Return what the number of different rows depends on, given what the number of rows depends on."""
    return "keys" if growth == "stream" else growth


class Facts(NamedTuple):
    """What is known of the relation that an operator puts out (of a stream: of all its elements together)."""

    growth: Growth
    only_inserts: bool


def all_rows_of(below: Sequence[Facts]) -> Facts:
    """Return what is known of rows that are there as long as those that they are made of."""
    return Facts(wildest([facts.growth for facts in below]), all(facts.only_inserts for facts in below))


class OwnState(NamedTuple):
    """State that belongs to one operator: what it holds, when that leaves, how it grows."""

    role: str
    input: int
    holds: str
    expiry: str
    growth: Growth
    keys: tuple[Expr, ...] = ()


class InputRows(NamedTuple):
    """The rows of an input, which other readers of the same relation can share; `holds` says in which order."""

    role: str
    input: int
    keys: tuple[Expr, ...] = ()
    holds: str | None = None


class WindowLog(NamedTuple):
    """The elements of a stream as a window counts them, which other windows over the same stream can share."""

    role: str
    input: int
    holds: str


SynopsisNeed = OwnState | InputRows | WindowLog
