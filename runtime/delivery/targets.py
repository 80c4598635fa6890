"""Where the results of one query go, and the sink that takes them there.

What a batch does to each sink, and what is left of that after a crash, is said in `runtime/delivery/delivery.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cql.catalog import QueryDef
from cql.errors import Code, fail
from cql.intervals import TimeDomain
from cql.query import MOST_KEPT
from cql.source import NO_SPAN, Span
from runtime.columns.batch import ChangeBatch
from runtime.connectors.batch_sinks import Sink
from runtime.connectors.claims import Owner
from runtime.connectors.connector import SinkSettings
from runtime.connectors.python_data import Callback, called, changes_table
from runtime.connectors.results import Result, ResultColumn
from runtime.connectors.sinks import Output, sink_of
from runtime.connectors.tables import Screen
from runtime.user_errors import placed


@dataclass(frozen=True)
class Target:
    """A query and the shape of its results; with a callback they go there, otherwise to its sink."""

    query: QueryDef
    columns: Sequence[ResultColumn]
    is_stream: bool
    time: TimeDomain | None
    callback: Callback | None = None
    place: Span = NO_SPAN
    """Where in a script it is said where the results go."""
    keep: int = MOST_KEPT
    """How many rows of changes are kept, if they are kept in memory."""


class CallbackSink(Sink):
    """A function of the user."""

    name = "function"

    def __init__(self, target: Target, callback: Callback) -> None:
        self._target = target
        self.callback = callback

    def put(self, batch_id: int, batches: Iterable[ChangeBatch]) -> None:
        """Call the function with the changes of a batch."""
        target = self._target
        names = [column.name for column in target.columns]
        table = changes_table(list(batches), names, [column.type for column in target.columns], target.time)
        called(target.query.name, self.callback, table, batch_id)


def opened(target: Target, output: Output, screen: Screen, owner: Owner | None = None) -> Sink:
    """Return the sink of a query, whose place is to be an owner's; raises if it cannot be opened."""
    query = target.query
    if target.callback is not None:
        return CallbackSink(target, target.callback)
    result = Result(query.name, tuple(target.columns), target.is_stream, target.time)
    return sink_of(query, result, SinkSettings(output, screen, owner, target.keep))


def check_targets(targets: Sequence[Target], output: Output, screen: Screen) -> None:
    """Raise if the sinks of some queries cannot be opened together; nothing is written."""
    check_apart(targets)
    for target in targets:
        with placed(target.place):
            opened(target, output, screen)


def check_apart(targets: Sequence[Target]) -> None:
    """Raise if two queries write to one path: of two results, one would be lost."""
    seen: dict[str, str] = {}
    for query, place in ((t.query, t.place) for t in targets if t.callback is None and t.query.sink):
        path = {key.casefold(): text for key, text in query.sink.options.items()}.get("path") if query.sink else None
        other = seen.setdefault(os.path.abspath(path), query.name) if path else query.name
        if other != query.name:
            message = f"the queries '{other}' and '{query.name}' both write to '{path}'"
            raise fail(Code.CANNOT_WRITE, message, place, hint="give each a path of its own")
