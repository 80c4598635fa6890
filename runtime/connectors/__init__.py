"""Where rows come from and where results go: files, generators, data in Python, the screen.

`registry.py` knows the connectors, one in each file; `connector.py` says what one is. `open_source` gives all the rows
of files, `open_sink` takes the changes of a query. All speak columns; none knows of operators, plans or hosts.
Imports `columns` and `state`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.connectors.intake import SourceRows
    from runtime.connectors.results import Writer
    from runtime.connectors.sinks import open_sink
    from runtime.connectors.sources import FileSource, SourceReader, open_source

__all__ = ["FileSource", "SourceReader", "SourceRows", "Writer", "open_sink", "open_source"]

_HOMES = {
    "FileSource": "sources",
    "SourceRows": "intake",
    "SourceReader": "sources",
    "Writer": "results",
    "open_sink": "sinks",
    "open_source": "sources",
}


def __getattr__(name: str) -> object:
    """Load what reads and writes when it is asked for: who checks a script needs to know formats only."""
    if name not in _HOMES:
        raise AttributeError(f"module 'runtime.connectors' has no attribute '{name}'")
    return getattr(import_module(f"runtime.connectors.{_HOMES[name]}"), name)
