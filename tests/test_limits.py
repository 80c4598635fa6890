"""Whatever is long or deep either runs, and its plan goes through all that writes it, or is E106 when it is checked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from pyspark import cloudpickle

import cql
from cql.errors import Code
from planner.explain import FORMS
from planner.plan import Plan

STREAM = "CREATE STREAM s (k STRING, a INT, d DOUBLE, m DECIMAL(10, 2), at INT) TIMESTAMP BY at"
WINDOW = "s [Range 10]"


def chain(separator: str, term: str) -> Callable[[int], str]:
    return lambda n: f"SELECT {separator.join([term] * n)} AS x FROM {WINDOW}"


def nested(opening: str, closing: str) -> Callable[[int], str]:
    return lambda n: f"SELECT {opening * n}a{closing * n} AS x FROM {WINDOW}"


def terms(separator: str, term: str) -> Callable[[int], str]:
    return lambda n: f"SELECT a FROM {WINDOW} WHERE " + separator.join(term.format(i) for i in range(n))


def selects(operation: str) -> Callable[[int], str]:
    return lambda n: f" {operation} ".join(f"SELECT a FROM s [Range {i + 1}]" for i in range(n))


SHAPES: dict[str, Callable[[int], str]] = {
    "||": chain(" || ", "k"),
    "+ of integers": chain(" + ", "a"),
    "+ of doubles": chain(" + ", "d"),
    "+ of decimals": chain(" + ", "m"),
    "+ and -": chain(" + 1 - ", "a"),
    "* of doubles": chain(" * ", "d"),
    "CASE in ELSE": nested("CASE WHEN a = 2 THEN d + 1 ELSE ", " END"),
    "CASE in WHEN": nested("CASE WHEN a = ", " THEN 1 ELSE 2 END"),
    "parentheses": nested("(", ")"),
    "+ to the right": nested("a + (", ")"),
    "-": nested("- ", ""),
    "functions": nested("abs(", ")"),
    "casts": nested("CAST(CAST(", " AS STRING) AS INT)"),
    "nullif": nested("nullif(", ", 2)"),
    "NOT": lambda n: f"SELECT a FROM {WINDOW} WHERE {'NOT ' * n} a = 1",
    "AND": terms(" AND ", "a <> {}"),
    "OR": terms(" OR ", "a = {}"),
    "AND in OR": lambda n: f"SELECT a FROM {WINDOW} WHERE " + "a = 1 AND (d = 1 OR " * n + "a = 2" + ")" * n,
    "IN": lambda n: f"SELECT a FROM {WINDOW} WHERE a IN ({', '.join(map(str, range(n)))})",
    "aggregates": lambda n: f"SELECT {' + '.join(f'SUM(a + {i})' for i in range(n))} AS x FROM {WINDOW} GROUP BY k",
    "columns": lambda n: f"SELECT {', '.join(f'a + {i} AS x{i}' for i in range(n))} FROM {WINDOW}",
    "queries in FROM": lambda n: "SELECT a FROM (" * n + f"SELECT a FROM {WINDOW}" + ")" * n,
    "queries in WHERE": lambda n: f"SELECT a FROM {WINDOW} WHERE a IN (" * n + "1" + ")" * n,
    "UNION": selects("UNION"),
    "UNION ALL": selects("UNION ALL"),
    "EXCEPT": selects("EXCEPT"),
    "joins": lambda n: (
        f"SELECT s0.a FROM {', '.join(f'{WINDOW} AS s{i}' for i in range(n))} WHERE "
        + " AND ".join(f"s{i}.a = s{i + 1}.a" for i in range(n - 1))
    ),
    "outer joins": lambda n: (
        f"SELECT s0.a FROM {WINDOW} AS s0"
        + "".join(f" LEFT JOIN {WINDOW} AS s{i} ON s{i - 1}.a = s{i}.a" for i in range(1, n))
    ),
}
LONG = {"AND", "OR", "IN", "columns"}
"""What does not nest has no limit here."""

WIDE = {"joins", "outer joins", "UNION", "UNION ALL", "EXCEPT"}
"""What takes long to plan, and longer to run."""

SIZES = (24, 70, 130, 150, 500)
ROW = ("x", 1, 1.0, Decimal("1.00"), 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_passes_the_check_runs(shape: str) -> None:
    for size in SIZES if shape not in WIDE else (24, 60, 200):
        text = SHAPES[shape](size)
        catalog = cql.Catalog()
        catalog.execute(STREAM)
        try:
            cql.bind(text, catalog)
        except cql.CqlError as error:
            (diagnostic,) = error.diagnostics
            assert diagnostic.code is Code.TOO_DEEP and diagnostic.span is not None and diagnostic.advice()
            assert size > 24 and shape not in LONG
            continue
        plan = cql.compile(text, catalog)
        assert cloudpickle.loads(cloudpickle.dumps(plan)) == plan
        assert Plan.from_json(plan.to_json()) == plan
        assert all(draw(plan) for draw in FORMS.values())
        if size <= 24 or shape not in WIDE:
            run(text)


def run(text: str) -> None:
    with cql.Engine(local=True) as engine:
        engine.execute(STREAM)
        query = engine.register("q", text)
        engine.push("s", [ROW])
    list(query.changes())


@pytest.mark.parametrize(("shape", "size"), [("||", 65), ("+ of integers", 130), ("CASE in ELSE", 85)])
def test_chains_of_some_length_run(shape: str, size: int) -> None:
    run(SHAPES[shape](size))


def test_deep_expressions_keep_their_value() -> None:
    with cql.Engine(local=True) as engine:
        engine.execute(STREAM)
        total = engine.register("total", "SELECT Istream(" + " + ".join(["a"] * 130) + " AS x) FROM s [Now]")
        text = engine.register("text", "SELECT Istream(" + " || ".join(["k"] * 130) + " AS x) FROM s [Now]")
        engine.push("s", [ROW])
    assert [change.row for change in total.changes()] == [{"x": 130}]
    assert [change.row for change in text.changes()] == [{"x": "x" * 130}]
