"""What all tasks of a network need to know, sent to them with the code.

Spark hands it to every task anew. A process that has had it before keeps it, and whatever was made from it, under the
name of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark import cloudpickle

from runtime.failures import Places
from runtime.fragments.layout import Layout

Made = TypeVar("Made")

_known: dict[str, Task] = {}
"""The tasks that this process has seen, by network."""

MOST_KNOWN = 16


@dataclass(frozen=True)
class Task:
    """A network as its tasks see it."""

    network: str
    layout: Layout
    functions: Mapping[str, Any]
    callers: Mapping[str, Sequence[str]]
    """The queries that call each function of the user."""
    places: Places
    static: Mapping[str, Mapping[int, bytes]]
    labels: Mapping[tuple[str, int], int]
    """What Spark groups the pieces of each bucket by."""
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def made(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """Return what this process has under a name for this network, made if it is not there yet."""
        if name not in self._made:
            self._made[name] = make()
        found: Made = self._made[name]
        return found

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        fields = (self.layout, self.functions, self.callers, dict(self.places), self.static, self.labels)
        return _received, (self.network, cloudpickle.dumps(fields))


def _received(network: str, fields: bytes) -> Task:
    if network not in _known:
        while len(_known) >= MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[network] = Task(network, *cloudpickle.loads(fields))
    return _known[network]
