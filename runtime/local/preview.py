"""TRY: a query run at once, in this process, over the first rows of its tables.

What it yields is the beginning of what the registered query would yield: of a stream of which only the first rows are
read, nothing is known beyond them, so instants that they leave open stay open. Only if that leaves nothing to show is
the rest closed, as if the streams had ended there. Static relations are read whole: they are what others look up in.
Files are those that there are now, whatever the setting `files` says.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, fail, one_of
from cql.visible import visible
from planner.network import compile_definition
from runtime.columns.batch import ChangeBatch, concat
from runtime.connectors import SourceRows, open_source
from runtime.connectors.registry import read_by_engine
from runtime.connectors.results import Result, repeated
from runtime.connectors.tables import Screen, TableWriter
from runtime.local.run import NO_DATA, LocalRun

MOST_ROWS = 1000
"""How many rows of a stream, or changes of a relation, are read."""

MOST_SHOWN = 50
"""How many changes of the result are printed."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a query yielded, and from what: the tables of which only the first rows were read."""

    query: QueryDef
    changes: ChangeBatch | None
    cut: tuple[str, ...]
    is_closed: bool
    """Whether the result is what it would be if all tables ended where they were cut."""
    losses: tuple[str, ...]

    def print(self, out: TextIO) -> None:
        """Print the first changes as a table, and what they are."""
        tree = self.query.tree
        writer = TableWriter(Result(self.query.name, tree.schema, tree.is_stream, tree.time), Screen(out))
        count = 0 if self.changes is None else len(self.changes)
        if self.changes is not None:
            writer.write(self.changes.slice(0, MOST_SHOWN))
        writer.close()
        out.writelines(f"{visible(note)}\n" for note in self._notes(count))

    def text(self) -> str:
        """Return what `print` prints."""
        out = io.StringIO()
        self.print(out)
        return out.getvalue()

    def _notes(self, count: int) -> Iterable[str]:
        if count > MOST_SHOWN:
            yield f".. and {count - MOST_SHOWN:,} more changes"
        if self.cut:
            where = "as if they ended there" if self.is_closed else "up to the last instant that they complete"
            yield f"over the first {MOST_ROWS:,} rows of {' and '.join(self.cut)}, {where}"
        yield from self.losses


def try_query(catalog: Catalog, data: Mapping[str, Sequence[SourceRows]] = NO_DATA) -> Trial:
    """Run the only query of a catalog over the first rows of its tables; `data` are rows of those without a source."""
    (query,) = catalog.queries.values()
    catalog = catalog.copy_for_trial()
    catalog.settings = catalog.settings.changed("files", "drain")
    whole: dict[str, Sequence[SourceRows]] = dict(data)
    cut: dict[str, Sequence[SourceRows]] = {}
    for table in _timed_tables(query, catalog):
        key = table.name.casefold()
        given = data[key] if key in data else _opened(table, catalog)
        first = _first_rows(given)
        if first is not None:
            cut[key] = first
            whole.pop(key, None)
            catalog.define(table.model_copy(update={"source": None}))
    run = LocalRun(catalog, [query], data=whole, live=True)
    is_closed = False
    try:
        run.begin()
        for key, parts in cut.items():
            for rows in parts:
                run.push(key, rows)
        found = run.results[query.name]
        if not cut or not any(map(len, found.batches)):
            run.finish()
            is_closed = True
        batches = [batch for batch in found.batches if len(batch)]
        losses = tuple(run.losses())
    finally:
        run.abort()
    changes = repeated(concat(batches)) if batches else None
    return Trial(query, changes, tuple(catalog.table(key).name for key in cut), is_closed, losses)


def _timed_tables(query: QueryDef, catalog: Catalog) -> list[StreamDef | RelationDef]:
    """Return the tables that a query reads and that change."""
    found: dict[str, StreamDef | RelationDef] = {}
    for source in compile_definition(query).sources:
        if source.time is not None:
            table = catalog.as_read(source.table)
            found[table.name] = table
    return list(found.values())


def _opened(table: StreamDef | RelationDef, catalog: Catalog) -> Iterable[SourceRows]:
    if table.source is not None and table.source.format in read_by_engine():
        return open_source(table, catalog.settings.on_bad_row)
    code, what = Code.BAD_DEFINITION, "nothing says where its rows come from"
    if table.source is not None:
        code, what = Code.NOT_AVAILABLE, f"{table.source.format} has no first rows that could be read once more"
    raise fail(
        code,
        f"'{table.name}' cannot be tried: {what}",
        hint=f"TRY reads {one_of(sorted(read_by_engine()))} files; to run the query as it is, register it and START",
    )


def _first_rows(given: Iterable[SourceRows]) -> list[SourceRows] | None:
    """Return the first rows, or None if there are no more than those."""
    parts: list[SourceRows] = []
    left = MOST_ROWS
    for rows in given:
        if len(rows) > left:
            signs = None if rows.signs is None else rows.signs[:left]
            columns = tuple(column.slice(0, left) for column in rows.columns)
            return [*parts, SourceRows(columns, rows.instants[:left], signs)]
        parts.append(rows)
        left -= len(rows)
    return None
