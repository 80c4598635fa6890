"""What all tasks of a network need to know, wherever they run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from runtime.network.layout import NetworkLayout
from runtime.user_errors import Places

Made = TypeVar("Made")


@dataclass(frozen=True)
class Task:
    """A network as its tasks see it."""

    layout: NetworkLayout
    functions: Mapping[str, Any]
    callers: Mapping[str, Sequence[str]]
    """The queries that call each function of the user."""
    places: Places
    static: Mapping[str, Mapping[int, bytes]]
    policy: str
    """The scheduling policy of every bucket."""
    max_bytes: int | None
    """How much memory a bucket may keep."""
    overflow: Path
    """Where what a bucket sends goes, if it is a lot."""
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def made(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """Return what this process has under a name for this network, made if it is not there yet."""
        if name not in self._made:
            self._made[name] = make()
        found: Made = self._made[name]
        return found
