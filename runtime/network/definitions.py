"""What is to be run: queries, the tables that they read, and what was given for tables that have no source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.source import NO_SPAN, Span
from runtime.connectors import SourceRows
from runtime.connectors.python_data import Callback
from runtime.connectors.registry import connector
from runtime.user_errors import NOWHERE, Places

Table = StreamDef | RelationDef


class Given(Protocol):
    """Where a host finds the rows of a table that has no source: rows that are pushed, a frame of Spark."""

    @property
    def is_endless(self) -> bool:
        """Whether it has no end that could be read to."""

    @property
    def runs_dry(self) -> bool:
        """Whether it has so much now and no more until somebody adds to it."""


@dataclass(frozen=True)
class Definitions:
    """What is to be run: queries, and the tables that they read.

    Of tables that have no source, by their names in lower case, `given` says where the host finds their rows, and
    `data` has all of them. `callbacks` are functions that take results, by query.
    """

    catalog: Catalog
    queries: Sequence[QueryDef]
    given: Mapping[str, Given] = field(default_factory=dict)
    data: Mapping[str, Sequence[SourceRows]] = field(default_factory=dict)
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    places: Places = field(default_factory=lambda: NOWHERE)

    def place(self, kind: str, name: str) -> Span:
        """Return where in a script a table or query is defined."""
        return self.places.get((kind, name.casefold()), NO_SPAN)

    def table(self, name: str) -> Table:
        """Return the definition of a table."""
        return self.catalog.as_read(name)

    def is_endless(self, name: str) -> bool:
        """Tell whether a table has no end that could be read to."""
        table, given = self.table(name), self.given.get(name.casefold())
        if given is not None:
            return given.is_endless
        if table.source is None or table.time is None:
            return False
        return not connector(table.source.format).is_bounded or self.catalog.settings.files == "follow"

    def runs_dry(self, name: str) -> bool:
        """Tell whether a table has so much now and no more until somebody adds to it: files, and pushed rows."""
        source, given = self.table(name).source, self.given.get(name.casefold())
        if given is not None:
            return given.runs_dry
        return source is None or connector(source.format).is_bounded
