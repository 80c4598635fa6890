"""Something that is sent to tasks, and unpacked by those that need it, once in a process.

Spark hands its functions, with all that they refer to, to every task anew, and to a process that only asks about the
state of an operator. Nothing else is imported here, so that the latter is done soon.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark import cloudpickle

Content = TypeVar("Content")

MOST_KNOWN = 16

SAFE_PATH = "PYTHONSAFEPATH"
"""In the environment of a Python that puts no folder before the modules that are installed."""

_known: dict[str, Any] = {}
"""What this process has unpacked, by name."""


@dataclass(frozen=True)
class Sent(Generic[Content]):
    """Something packed; the name is that of its content."""

    name: str
    packed: bytes
    folder: str
    """Where the modules are that lie beside the user's program; it comes after all others."""

    @classmethod
    def of(cls, name: str, content: Content) -> Sent[Content]:
        """Return something packed."""
        return cls(name, cloudpickle.dumps(content), folder_of_program())

    def get(self) -> Content:
        """Return what was packed; the same object every time in a process."""
        if self.name not in _known:
            while len(_known) >= MOST_KNOWN:
                del _known[next(iter(_known))]
            if self.folder and self.folder not in sys.path:
                sys.path.append(self.folder)
            _known[self.name] = cloudpickle.loads(self.packed)
        found: Content = _known[self.name]
        return found


def folder_of_program() -> str:
    """Return the folder from which the user's program imports its own modules; empty if it imports from none."""
    main = sys.modules["__main__"]
    file = None if getattr(main, "__spec__", None) else getattr(main, "__file__", None)
    folder = os.getcwd() if file is None else os.path.dirname(os.path.abspath(file))
    return folder if folder in map(os.path.abspath, sys.path) else ""
