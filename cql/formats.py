"""The door from the language to the connectors, which are a part of the runtime: what follows FROM and INTO.

The language knows no format by itself. What it asks here (names, options, secrets, the columns of a source) connectors
answer without loading what reads and writes; they are loaded when the first of these questions comes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.connectors.connector import Connector


def connector(format_name: str) -> Connector:
    """Return the connector of a format, that for formats of Spark if no other has the name."""
    from runtime.connectors import registry

    return registry.connector(format_name)


def canonical(word: str) -> str:
    """Return the name of a format; names that are known are so in any case."""
    from runtime.connectors import registry

    return registry.canonical(word)


def secret_options(format_name: str | None) -> frozenset[str]:
    """Return the options of a format, or of any format, that its connector marks as secret, in lower case."""
    from runtime.connectors import registry

    return registry.secret_options(format_name)
