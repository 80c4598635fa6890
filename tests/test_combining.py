"""Property: combining rows where they are read changes no answer, and no row that is late counts because of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from cql.catalog import Catalog
from planner.plan import Plan, combine, compile_query
from runtime.network import partial_aggregates as combining
from runtime.network.layout import NetworkLayout
from runtime.network.messages import Piece
from runtime.network.partial_aggregates import Combiner, combinations
from runtime.network.reports import complete_after
from runtime.network.source_stage import FeedReader
from tests.agreement import disagreement
from tests.definition import evaluate
from tests.definition.evaluator import Element
from tests.fragment_runs import Cluster, _netted, _read, reports_of, run_fragments

STREAMS = (
    "CREATE STREAM s (k INT, w STRING, x INT, b BIGINT, d DOUBLE, m DECIMAL(30, 2), at TIMESTAMP, t INT)"
    "  TIMESTAMP BY t;"
    "CREATE STREAM r (k INT, x INT, t INT) TIMESTAMP BY t;"
)
ALL = (
    "COUNT(*) AS a, COUNT(x) AS b, SUM(x) AS c, SUM(b) AS d, AVG(d) AS e, SUM(m) AS f, AVG(m) AS g, VARIANCE(d) AS h, "
    "STDDEV(x) AS i, MIN(d) AS j, MAX(w) AS k2, MIN(m) AS l, MAX(at) AS n, ARG_MIN(w, x) AS o, ARG_MAX(x, d) AS p, "
    "SUM(x) FILTER (WHERE x > 2) AS q, MAX(b) FILTER (WHERE d > 0) AS r2"
)
TOGETHER = [
    ["SELECT k, COUNT(*) AS n, SUM(d) AS s FROM s [Range 4 Slide 2] GROUP BY k"],
    [f"SELECT k, {ALL} FROM s [Range 6 Slide 3] GROUP BY k"],
    [f"SELECT {ALL} FROM s [Range 5 Slide 5]"],
    [f"SELECT w, k, {ALL} FROM s [Range 7 Slide 3] WHERE x <> 1 GROUP BY w, k"],
    ["SELECT Rstream(k % 2 AS p, SUM(x) AS s) FROM s [Range 6 Slide 2] GROUP BY k % 2"],
    ["SELECT Istream(d, MAX(x) AS m) FROM s [Range 3] GROUP BY d HAVING COUNT(*) > 1"],
    [
        "SELECT k, SUM(d) AS s FROM s [Range 4 Slide 2] GROUP BY k",
        "SELECT k, AVG(d) AS m, MIN(w) AS w FROM s [Range 8 Slide 4] GROUP BY k",
        "SELECT k, w, COUNT(*) AS n FROM s [Range 6 Slide 2] GROUP BY k, w",
        "SELECT k, x FROM s [Now] WHERE x > 7",
    ],
    [
        "SELECT a.k, n, v FROM (SELECT k, COUNT(*) AS n FROM s [Range 4 Slide 2] GROUP BY k) AS a, "
        "(SELECT k, SUM(x) AS v FROM r [Range 6 Slide 3] GROUP BY k) AS b WHERE a.k = b.k"
    ],
]
NOT = [
    "SELECT k, COUNT(DISTINCT x) AS n FROM s [Range 4 Slide 2] GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM s [Rows 4] GROUP BY k",
    "SELECT k, x FROM s [Range 4 Slide 2]",
    "SELECT a.k, a.x FROM s [Range 4 Slide 2] AS a, r [Range 2] AS b WHERE a.k = b.k",
]
DOUBLES = (0.1, 0.2, 1e300, -1e300, 1e-300, math.nan, math.inf, -math.inf, -0.0, 0.0, 3.5, -2.25)


def planned(queries: list[str]) -> tuple[Catalog, Plan]:
    catalog = Catalog()
    catalog.execute(STREAMS + "".join(f"REGISTER QUERY q{n} AS {text};" for n, text in enumerate(queries)))
    return catalog, combine([compile_query(name, each.tree) for name, each in catalog.queries.items()])


def element(rng: Random, at: int) -> Element:
    values: list[Any] = [
        rng.randint(0, 3),
        rng.choice(("a", "b", "long enough a word", "")),
        rng.choice((1, 2, 3, 9, -(2**31), 2**31 - 1)),
        rng.choice((5, -5, 2**63 - 1, -(2**63), 2**40)),
        rng.choice(DOUBLES),
        rng.choice((Decimal("0.10"), Decimal("-7.25"), Decimal(10) ** 27)),
        rng.randint(0, 5) * 1_000_000,
    ]
    return at, (*(None if rng.random() < 0.1 else value for value in values), at), 1


def random_data(rng: Random, rows: int = 60) -> dict[str, list[Element]]:
    at, data = 0, []
    for _ in range(rows):
        at += rng.choice((0, 0, 0, 1, 1, 5))
        data.append(element(rng, at))
    others = [(rng.randint(0, at), (rng.randint(0, 3), rng.randint(0, 9), 0), 1) for _ in range(rows // 2)]
    return {"s": data, "r": [(t, (k, x, t), n) for t, (k, x, _), n in others]}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the rows that are combined, and what is sent instead of them."""
    counts: Counter[str] = Counter()
    combined = Combiner.combined

    def counting(self: Combiner, batch: Any, router: Any) -> Any:
        found = combined(self, batch, router)
        counts["rows"] += len(batch) if found is not None else 0
        counts["sent"] += sum(count for _, count, _ in found or ())
        return found

    with patch.object(Combiner, "combined", counting):
        yield counts


@pytest.mark.parametrize("queries", TOGETHER)
def test_combined_rows_change_no_answer(queries: list[str]) -> None:
    catalog, plan = planned(queries)
    with counted() as counts:
        for seed in range(8):
            rng = Random(f"{queries}{seed}")
            data = random_data(rng)
            found = run_fragments(plan, data, rng, rng.choice((1, 2, 3)))
            for name, each in catalog.queries.items():
                difference = disagreement(evaluate(each.tree, data), found[name])
                assert difference is None, f"{each.text}, seed {seed}: {difference}\n{data}"
    assert 0 < counts["sent"] < counts["rows"]


@pytest.mark.parametrize("query", NOT)
def test_what_has_to_be_seen_row_by_row_is_not_combined(query: str) -> None:
    layout = NetworkLayout(planned([query])[1])
    assert not any(combinations(layout, edge) for edge in layout.edges if edge.source and "s" in edge.source)


def test_an_edge_that_anybody_else_reads_is_not_combined() -> None:
    aggregate = "SELECT k, SUM(x) AS n FROM s [Range 4 Slide 2] GROUP BY k"
    layout = NetworkLayout(planned([aggregate])[1])
    assert all(combinations(layout, edge) for edge in layout.edges)
    layout = NetworkLayout(planned([aggregate, "SELECT k, COUNT(*) AS n FROM s [Partition By k Rows 2] GROUP BY k"])[1])
    assert not any(combinations(layout, edge) for edge in layout.edges)


def test_panes_are_as_long_as_all_windows_allow() -> None:
    def pane(*windows: str) -> int:
        layout = NetworkLayout(planned([f"SELECT k, SUM(x) AS n FROM s [{each}] GROUP BY k" for each in windows])[1])
        (found,) = (each for edge in layout.edges for each in combinations(layout, edge))
        return found.pane

    assert pane("Range 6 Slide 6") == 6
    assert pane("Range 6 Slide 4") == 2
    assert pane("Range 12 Slide 4", "Range 6 Slide 6") == 2
    assert pane("Range 6 Slide 6", "Range 6") == 1


def test_aggregates_of_the_same_values_share_what_is_combined() -> None:
    queries = [
        "SELECT k, SUM(d) AS a, COUNT(*) AS n FROM s [Range 6 Slide 2] GROUP BY k",
        "SELECT k, AVG(d) AS a, COUNT(*) AS n, STDDEV(d) AS s, VARIANCE(d) AS v FROM s [Range 4 Slide 2] GROUP BY k",
    ]
    layout = NetworkLayout(planned(queries)[1])
    (found,) = (each for edge in layout.edges for each in combinations(layout, edge))
    assert [call.function for call in found.calls] == ["sum", "count", "variance"]


def test_few_rows_for_a_group_are_sent_as_they_are() -> None:
    _, plan = planned(["SELECT k, SUM(x) AS n FROM s [Range 4 Slide 4] GROUP BY k"])
    for groups, is_combined in ((2, True), (30, False)):
        data: list[Element] = [(1, (number % groups, *[None] * 6, 1), 1) for number in range(60)]
        reader = FeedReader(NetworkLayout(plan), "s", {})
        reader.complete_until({edge.key: 0 for edge in NetworkLayout(plan).edges})
        with counted() as counts:
            _read(reader, plan.sources[0], data, 0)
        assert (counts["rows"] > 0) == is_combined


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_late_do_not_count(seed: int) -> None:
    """Rows come out of order, some of them too late; who reads knows how far edges are complete, or not."""
    rng = Random(seed)
    _, plan = planned([f"SELECT k, {ALL} FROM s [Range 6 Slide 3] GROUP BY k"])
    elements = [element(rng, max(0, number // 3 + rng.choice((0, 0, 0, -1, -4, -9)))) for number in range(90)]
    batches, left = [], elements
    while left:
        size = rng.randint(1, 30)
        batches.append(left[:size])
        left = left[size:]
    buckets = rng.choice((1, 3))
    outcomes = [_with_late(plan, batches, buckets, Random(seed), knows) for knows in (False, True)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] > 0


def _with_late(
    plan: Plan, batches: list[list[Element]], buckets: int, rng: Random, knows: bool
) -> tuple[dict[int, Counter[Any]], int]:
    """Return the results of micro-batches, and how many rows were late."""
    (source,) = plan.sources
    layout = NetworkLayout(plan, buckets, {source.id: 2})
    cluster, reader = Cluster(layout, {}, {}, rng), FeedReader(layout, source.feed, {})
    pieces: list[Piece] = []
    with patch.object(combining, "FEWEST_ROWS", 0), counted() as counts:
        for number, batch in enumerate(batches):
            made = cluster.run(_read(reader, source, batch, number))
            pieces += made
            reports = reports_of(made)
            if knows:
                reader.complete_until(complete_after(reports))
    assert (counts["rows"] > 0) == knows
    return _netted(pieces, "q0"), sum(sum(report.late.values()) for report in reports)
