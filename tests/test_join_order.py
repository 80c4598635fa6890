"""The order in which joins are made follows the conditions, not FROM: the same answers from the same work."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

import cql
from cql.bound import Rel, direct_inputs
from planner.logical import KeyedJoin
from planner.optimize import optimize

TABLES = """
    CREATE STREAM R (a INT, at INT) TIMESTAMP BY at;
    CREATE STREAM S (a INT, b INT, at INT) TIMESTAMP BY at;
    CREATE STREAM T (b INT, at INT) TIMESTAMP BY at;
"""
ROWS = 60


def query(order: tuple[str, ...]) -> str:
    tables = ", ".join(f"{name} [Range 1 Second]" for name in order)
    return f"SELECT Istream(R.a, T.b, S.b AS c) FROM {tables} WHERE R.a = S.a AND S.b = T.b"


def joins_without_keys(rel: Rel) -> int:
    own = isinstance(rel, KeyedJoin) and not rel.left_keys
    return own + sum(joins_without_keys(below) for below in direct_inputs(rel))


@pytest.mark.parametrize("order", list(permutations("RST")), ids="".join)
def test_every_order_of_from_has_the_same_answers_and_no_cross_product(order: tuple[str, ...]) -> None:
    catalog = cql.Catalog()
    catalog.execute(TABLES)
    tree = cql.bind(query(order), catalog)
    assert not joins_without_keys(optimize(tree)[0])
    with cql.Engine(local=True) as engine:
        engine.execute(TABLES)
        found = engine.register("q", query(order))
        engine.push("R", [(n, 1) for n in range(ROWS)])
        engine.push("T", [(n, 1) for n in range(ROWS)])
        engine.push("S", [(n, (n + 1) % ROWS, 1) for n in range(ROWS)])
    rows = Counter(tuple(change.row.values()) for change in found.changes())
    assert rows == Counter((n, (n + 1) % ROWS, (n + 1) % ROWS) for n in range(ROWS))
