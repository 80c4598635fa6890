"""What random queries read: a small catalog, and its tables as the generator of queries sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from cql import Catalog
from cql.catalog import RelationDef, StreamDef, ViewDef
from cql.intervals import TimeDomain
from cql.types import Kind

CATALOG = """
CREATE STREAM S1 (k INT, v INT, s STRING, d DOUBLE, t INT) TIMESTAMP BY t;
CREATE STREAM S2 (k INT, v INT, s STRING, d DOUBLE, t INT) TIMESTAMP BY t;
CREATE STREAM S3 (k INT, v INT, s STRING, d DOUBLE, t INT) TIMESTAMP BY t;
CREATE STREAM N1 (k INT NOT NULL, v INT NOT NULL, s STRING NOT NULL, d DOUBLE NOT NULL, t INT) TIMESTAMP BY t;
-- Without a timestamp column rows repeat: arrivals and expiries of equal rows can cancel.
REGISTER STREAM P1 (k INT, v INT);
REGISTER STREAM P2 (k INT, v INT);
CREATE RELATION R1 (k INT, v INT, s STRING, at INT, sign INT) TIMESTAMP BY at SIGN BY sign;
CREATE RELATION D1 (k INT, v INT, name STRING NOT NULL);
CREATE VIEW V1 AS SELECT k, COUNT(*) AS n, MAX(v) AS v FROM S1 [Range 4] GROUP BY k;
CREATE VIEW V2 AS Istream(SELECT k, v, s FROM S2 [Rows 3] WHERE v <> 2);

CREATE STREAM T1 (k INT, v INT, s STRING, d DOUBLE, t TIMESTAMP) TIMESTAMP BY t;
CREATE STREAM T2 (k INT, v INT, s STRING, d DOUBLE, t TIMESTAMP) TIMESTAMP BY t;
CREATE RELATION RT (k INT, v INT, t TIMESTAMP, at TIMESTAMP, sign STRING) TIMESTAMP BY at SIGN BY sign;
CREATE VIEW VT AS SELECT k, MIN(v) AS v, MAX(t) AS t FROM T1 [Range 3 Seconds] GROUP BY k;
"""

SETTINGS: tuple[tuple[str, str], ...] = (
    ("empty_aggregate", "stream"),
    ("rstream_clock", "element"),
    ("range_bounds", "closed"),
)
"""Settings under which queries mean something else than by default."""


@cache
def catalog(*settings: tuple[str, str]) -> Catalog:
    """Return a catalog of `CATALOG` under some settings."""
    made = Catalog()
    for key, value in settings:
        made.set(key, value)
    made.execute(CATALOG)
    return made


def tables_of(query: str, known: Catalog | None = None) -> list[str]:
    """Return the streams and relations that a query's text mentions, those below views included."""
    known = known or catalog()
    words = {word.casefold() for word in re.findall(r"\w+", query)}
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        table = known.find(name)
        if isinstance(table, ViewDef):
            for below in table.depends_on:
                visit(below)
        elif table is not None:
            found[table.name] = None

    for table in known.tables():
        if table.name.casefold() in words:
            visit(table.name)
    return list(found)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name and the kind of its values. `dull` ones hold instants, which seldom equal anything."""

    name: str
    kind: str
    dull: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A stream, relation or view. `feature` is what it needs, `stamped` a registered stream that FIRST goes by."""

    name: str
    columns: tuple[Column, ...]
    is_stream: bool
    feature: str = ""
    stamped: bool = False


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a catalog by clock; static relations go with both."""

    integer: tuple[Table, ...]
    time: tuple[Table, ...]

    @classmethod
    def of(cls, known: Catalog) -> Tables:
        """Read the tables of a catalog."""
        by_clock: dict[TimeDomain, list[Table]] = {TimeDomain.INTEGER: [], TimeDomain.TIMESTAMP: []}
        clock: TimeDomain | None
        for table in known.tables():
            match table:
                case StreamDef():
                    schema, clock, feature = table.scan().schema, table.time, ""
                case RelationDef():
                    schema, clock, feature = table.scan().schema, table.time, "relation" if table.time else "static"
                case ViewDef():
                    schema, clock, feature = table.tree.schema, table.tree.time, "view"
            stamp = table.timestamp if isinstance(table, StreamDef) else None
            columns = tuple(Column(f.name, KINDS[f.type.kind], f.name == stamp) for f in schema)
            is_stream = isinstance(table, StreamDef) or (isinstance(table, ViewDef) and table.tree.is_stream)
            for domain, home in by_clock.items():
                if clock in (None, domain):
                    home.append(Table(table.name, columns, is_stream, feature, stamp is not None))
        return cls(tuple(by_clock[TimeDomain.INTEGER]), tuple(by_clock[TimeDomain.TIMESTAMP]))


KINDS = {
    Kind.BYTE: "int",
    Kind.INT: "int",
    Kind.BIGINT: "int",
    Kind.DOUBLE: "dbl",
    Kind.DECIMAL: "dec",
    Kind.STRING: "str",
    Kind.BOOLEAN: "bool",
    Kind.TIMESTAMP: "time",
}


@cache
def own_tables() -> Tables:
    """Return the tables of `CATALOG`."""
    return Tables.of(catalog())


@dataclass(frozen=True, slots=True)
class Lengths:
    """How windows on one of the clocks are long, and with which slides."""

    ranges: tuple[str, ...]
    slides: tuple[tuple[str, str], ...]


INTEGER_LENGTHS = Lengths(
    ("1", "2", "2 Seconds", "3", "3", "4", "5", "INTERVAL '2' SECOND", "'6 seconds'", "1 Minute"),
    (
        ("2", "1"),
        ("2", "2"),
        ("3", "2"),
        ("3", "3"),
        ("4", "2"),
        ("4 Seconds", "3 Seconds"),
        ("6", "4"),
        ("1 Minute", "5"),
    ),
)
TIME_LENGTHS = Lengths(
    (
        "1 Second",
        "2 Seconds",
        "1500 Milliseconds",
        "'2 seconds 500 ms'",
        "3",
        "1 us",
        "INTERVAL '4' SECOND",
        "1 Minute",
    ),
    (
        ("2 Seconds", "1 Second"),
        ("2 s", "2 s"),
        ("3 Seconds", "2 Seconds"),
        ("1500 ms", "500 ms"),
        ("1 Minute", "10 s"),
    ),
)
