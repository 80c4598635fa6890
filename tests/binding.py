"""Short ways to say what a query is bound to, for tests that read as tables.

A column is written `name TYPE`, with `!` where it is never NULL; a problem is its code's name and the marked
text. Whatever binds here has been checked for the invariants of bound trees.
"""

from __future__ import annotations

from collections.abc import Iterator

import cql
from cql import Catalog, CqlError
from cql.bound import Rel, inputs
from cql.bound.check import check

TABLES = """
CREATE STREAM S (a INT, b BIGINT NOT NULL, x DOUBLE, s STRING, f BOOLEAN, t INT) TIMESTAMP BY t;
CREATE STREAM U (a INT, c STRING, t INT) TIMESTAMP BY t;
CREATE STREAM E (a INT, n INT NOT NULL, ts TIMESTAMP) TIMESTAMP BY ts;
CREATE RELATION R (a INT NOT NULL, r STRING);
CREATE RELATION L (a INT, l STRING, at INT, sign STRING) TIMESTAMP BY at SIGN BY sign;
REGISTER STREAM O (a INT, b INT);
"""
"""Streams on integer time (S, U) and on TIMESTAMP time (E), STREAM's form (O); a static table and a log."""


def tables(more: str = "") -> Catalog:
    """Return a catalog with the tables of all tests, and more statements run on it."""
    catalog = Catalog()
    catalog.execute(TABLES + more)
    return catalog


def bind(query: str, catalog: Catalog | None = None) -> Rel:
    """Return a bound query that satisfies all invariants."""
    tree = cql.bind(query, catalog or tables())
    check(tree)
    return tree


def schema(tree: Rel) -> str:
    """Return the columns of a bound query, `!` marking those that are never NULL."""
    return ", ".join(f"{column.name} {column.type}{'' if column.nullable else '!'}" for column in tree.schema)


def types(tree: Rel) -> str:
    """Return the types of the columns of a bound query."""
    return ", ".join(f"{column.type}{'' if column.nullable else '!'}" for column in tree.schema)


def kind(tree: Rel) -> str:
    """Return what a bound query yields."""
    return "stream" if tree.is_stream else "relation"


def problems(query: str, catalog: Catalog | None = None) -> list[tuple[str, str]]:
    """Return what is wrong with a query: the names of the codes and the marked texts."""
    try:
        cql.bind(query, catalog or tables())
    except CqlError as error:
        return marked(error, query)
    raise AssertionError(f"this binds: {query}")


def marked(error: CqlError, text: str) -> list[tuple[str, str]]:
    """Return the names of an error's codes and the texts that it marks."""
    for diagnostic in error.diagnostics:
        start, end = diagnostic.span
        assert 0 <= start <= end <= len(text), f"the mark {diagnostic.span} lies outside the text"
    return [(d.code.name, text[d.span.start : d.span.end]) for d in error.diagnostics]


def nodes(tree: Rel) -> Iterator[Rel]:
    """Yield all nodes of a tree, those of subqueries included, from the top down."""
    yield tree
    for below in inputs(tree):
        yield from nodes(below)


def only(tree: Rel, wanted: type) -> Rel:
    """Return the one node of a class in a tree."""
    (found,) = [node for node in nodes(tree) if isinstance(node, wanted)]
    return found
