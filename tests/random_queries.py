"""Random CQL queries as text, and random finite data for their inputs.

Property tests of the rules, the planner, the engine and the Spark runtime draw their cases here. Everything
comes from a `random.Random`, so a seed is a case. The generator knows the types of what it writes, so a query
binds; what the language refuses all the same is counted by the tests and has to stay rare.

    rng = random.Random(7)
    query = random_query(rng)
    data = random_data(rng, catalog(), tables_of(query))

A query is small (one to three inputs) and mostly has a result: values, keys and instants are few, so that matches,
ties, duplicates and expiries at the same instant abound. `size` is how many inputs a query may have, `features`
what it may contain (see `FEATURES`): engines that lack something leave its feature out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import TypeVar

from cql import Catalog
from cql.catalog import RelationDef, StreamDef, ViewDef
from cql.intervals import TimeDomain
from cql.types import DataType, Kind
from tests.random_data import Data, minimise, random_data, report

__all__ = [
    "CATALOG",
    "FEATURES",
    "SETTINGS",
    "Data",
    "catalog",
    "minimise",
    "random_data",
    "random_query",
    "report",
    "tables_of",
]

T = TypeVar("T")

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
    ("rstream_clock", "tick"),
    ("range_bounds", "closed"),
)
"""Settings under which a query means something else than by default. Under `tick` only integer time is bearable."""

FEATURES = frozenset({
    "aggregate", "case", "correlated", "cte", "decimal", "distinct", "distinct_aggregate", "dstream", "exists",
    "expressions", "filter", "functions", "grouping_expressions", "having", "in", "inexact", "istream", "join",
    "nested_stream", "non_equi", "not_in", "now", "or_subquery", "outer_join", "partition", "partition_range",
    "relation", "row_number", "rows", "rstream", "scalar", "select_subquery", "self_join", "set", "set_all", "slide",
    "static", "subquery", "time", "top_n", "unbounded", "view",
})  # fmt: skip
"""What queries may contain. `inexact` are functions whose last digit depends on who computes them; `time` is
TIMESTAMP time; the others say what they are."""


@cache
def catalog(*settings: tuple[str, str], text: str = CATALOG) -> Catalog:
    """Return a catalog for the queries, under some settings."""
    made = Catalog()
    for key, value in settings:
        made.set(key, value)
    made.execute(text)
    return made


def random_query(
    rng: Random, size: int = 3, features: Iterable[str] = FEATURES, over: Catalog | None = None
) -> str:
    """Return a query of at most about `size` inputs."""
    tables = _tables(over or catalog())
    return _Maker(rng, frozenset(features), tables, size).whole_query()


def tables_of(query: str, over: Catalog | None = None) -> list[str]:
    """Return the streams and relations that a query's text mentions, those below views included."""
    known = over or catalog()
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


# ------------------------------------------------------------------------------------------------- what there is

NUMBERS = ("int", "dbl", "dec")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream or relation: its name and what kind of value it has. `dull` ones hold instants."""

    name: str
    kind: str
    dull: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What FROM can name."""

    name: str
    columns: tuple[Column, ...]
    is_stream: bool
    stamped: bool = False
    """Whether it is a registered stream with a timestamp column: FIRST and LAST go by that."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that expressions can start from: how to write it here, and inside a subquery if that is possible."""

    text: str
    kind: str
    inside: str | None = None
    dull: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A query: its text, its columns, whether it is a stream, and whether it needs parentheses inside another."""

    text: str
    columns: tuple[Column, ...]
    is_stream: bool = False
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """How one of the two clocks writes lengths of time, and the tables that live on it."""

    lengths: tuple[str, ...]
    slides: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a catalog by clock; static relations go with both."""

    integer: tuple[Table, ...]
    time: tuple[Table, ...]


_KINDS = {
    Kind.BYTE: "int", Kind.INT: "int", Kind.BIGINT: "int", Kind.DOUBLE: "dbl", Kind.DECIMAL: "dec",
    Kind.STRING: "str", Kind.BOOLEAN: "bool", Kind.TIMESTAMP: "time", Kind.INTERVAL: "span",
}  # fmt: skip

_INTEGER_LENGTHS = ("1", "2", "3", "3 Seconds", "4", "5", "INTERVAL '2' SECOND", "'6 seconds'", "1 Minute")
_INTEGER_SLIDES = (
    ("2", "1"), ("2", "2"), ("3", "2"), ("3", "3"), ("4", "2"), ("4 Seconds", "3 Seconds"), ("5", "4"), ("6", "2"),
    ("1 Minute", "5 Seconds"),
)  # fmt: skip
_TIME_LENGTHS = (
    "1 Second", "2 Seconds", "1500 Milliseconds", "'2 seconds 500 ms'", "3", "1 us", "INTERVAL '4' SECOND", "1 Minute",
)  # fmt: skip
_TIME_SLIDES = (
    ("2 Seconds", "1 Second"), ("2 Seconds", "2 Seconds"), ("3 Seconds", "2 Seconds"),
    ("1500 ms", "500 ms"), ("1 Minute", "10 Seconds"), ("3", "1500 Milliseconds"),
)  # fmt: skip

STRINGS = ("a", "b", "ab", "")


def _kind(data_type: DataType) -> str:
    return _KINDS[data_type.kind]


@cache
def _cached_tables(identity: int, known: Catalog) -> Tables:
    integer, time = [], []
    for table in known.tables():
        match table:
            case StreamDef():
                columns = tuple(
                    Column(c.name, _kind(c.type), c.name == table.timestamp) for c in table.columns
                )
                made, clock = Table(table.name, columns, True, table.timestamp is not None), table.time
            case RelationDef():
                columns = tuple(Column(c.name, _kind(c.type)) for c in table.columns)
                made, clock = Table(table.name, columns, False), table.time
            case ViewDef():
                columns = tuple(Column(f.name, _kind(f.type)) for f in table.tree.schema)
                made, clock = Table(table.name, columns, table.tree.is_stream), table.tree.time
        if clock is not TimeDomain.TIMESTAMP:
            integer.append(made)
        if clock is not TimeDomain.INTEGER:
            time.append(made)
    return Tables(tuple(integer), tuple(time))


class _ByIdentity:
    """A catalog as a key of a cache."""


def _tables(known: Catalog) -> Tables:
    return _TABLES.setdefault(id(known), _read_tables(known)) if id(known) not in _TABLES else _TABLES[id(known)]
