"""Something that is sent to tasks, and unpacked by those that need it, once in a process.

Spark hands its functions, with all that they refer to, to every task anew, and to a process that only asks about the
state of an operator. Nothing else is imported here, so that the latter is done soon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import cloudpickle

Content = TypeVar("Content")

MOST_KNOWN = 16

_known: dict[str, Any] = {}
"""What this process has unpacked, by name."""


@dataclass(frozen=True)
class Sent(Generic[Content]):
    """Something packed; the name is that of its content."""

    name: str
    packed: bytes

    @classmethod
    def of(cls, name: str, content: Content) -> Sent[Content]:
        """Return something packed."""
        return cls(name, cloudpickle.dumps(content))

    def get(self) -> Content:
        """Return what was packed; the same object every time in a process."""
        if self.name not in _known:
            while len(_known) >= MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[self.name] = cloudpickle.loads(self.packed)
        found: Content = _known[self.name]
        return found
