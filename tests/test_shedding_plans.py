"""The shedder pass: where drop operators stand, which units queries have in common, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cql
from cql.catalog import Catalog
from planner import operators as op
from planner.network import compile_definition
from planner.plan import Plan, QueryPlan, combine
from shedding.insert_drops import compile_all, compile_registered, plan_of, units_of_query

FIXTURES = sorted((Path(__file__).parent / "fixtures" / "shedding").glob("*.cql"))
STREAMS = """
CREATE STREAM s (k INT, v INT, t INT) TIMESTAMP BY t;
CREATE STREAM r (k INT, w INT, t TIMESTAMP) TIMESTAMP BY t;
CREATE RELATION names (k INT, n STRING);
"""
SUMS = "SELECT k, SUM(v) FROM s [Range {size} Seconds Slide {slide} Seconds] GROUP BY k"


def catalog_of(**queries: str) -> Catalog:
    catalog = Catalog()
    catalog.execute(STREAMS)
    for name, text in queries.items():
        catalog.execute(f"REGISTER QUERY {name} AS {text}")
    return catalog


def shed(size: int, slide: int, gap: int) -> str:
    return f"{SUMS.format(size=size, slide=slide)} WITH (shedding = 'window', max_gap = {gap})"


def ids(plan: QueryPlan) -> list[str]:
    return [operator.id for operator in plan.operators]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_plan_of_a_network_that_sheds(path: Path, golden: Callable[[str, str], None]) -> None:
    catalog = Catalog()
    catalog.execute(path.read_text(encoding="utf-8"), path.name)
    plan = plan_of(catalog)
    golden(f"plans/shedding/{path.stem}.txt", plan.explain())
    assert Plan.from_json(plan.to_json()) == plan


def test_a_query_that_does_not_ask_is_compiled_as_ever() -> None:
    catalog = catalog_of(plain=SUMS.format(size=4, slide=2), shed=shed(4, 2, 3))
    plain = catalog.queries["plain"]
    compiled, _ = compile_all(catalog.queries.values())
    assert compiled == compile_definition(plain) == compile_registered(plain)
    plan = plan_of(catalog)
    assert not any(isinstance(o, op.WindowDrop | op.Hold) for o in plan.below(plan.output("plain")))


def test_a_drop_operator_stands_right_above_the_source_and_a_filter_of_units_below_the_output() -> None:
    plan = plan_of(catalog_of(q=shed(4, 2, 3)))
    kinds = [operator.kind for operator in plan.operators]
    assert kinds == ["source", "window-drop", "seq-window", "aggregate", "hold", "output"]
    assert plan.operators[1].placement == "source"
    assert plan.operators[-2].fragment == plan.operators[-1].fragment == plan.operators[-3].fragment


def test_ids_do_not_change_when_a_query_is_compiled_again_or_others_come() -> None:
    one, two = catalog_of(a=shed(4, 2, 3)), catalog_of(a=shed(4, 2, 3), b=shed(9, 3, 5))
    first = compile_registered(one.queries["a"])
    assert ids(first) == ids(compile_registered(two.queries["a"]))
    known = [units for query in ("a",) if (units := units_of_query(combine([first]), query))]
    added = compile_registered(two.queries["b"], known=known)
    assert ids(compile_registered(two.queries["a"], known=known)) == ids(first)
    assert units_of_query(combine([first, added]), "a") == known[0]


def test_queries_that_start_together_agree_on_units() -> None:
    plan = plan_of(catalog_of(a=shed(3, 2, 9), b=shed(3, 3, 4)))
    units = units_of_query(plan, "a")
    assert units is not None and units == units_of_query(plan, "b")
    assert (units.length, units.batch) == (6, 2)
    (drop,) = (operator for operator in plan.operators if isinstance(operator, op.WindowDrop))
    assert (drop.size, plan.users[drop.id]) == (7, ("a", "b"))


def test_a_query_that_stays_alone_keeps_the_units_that_it_agreed_on() -> None:
    catalog = catalog_of(a=shed(3, 2, 9), b=shed(3, 3, 4))
    together, _ = compile_all(catalog.queries.values())
    units = units_of_query(plan_of(catalog), "a")
    assert units is not None
    assert ids(compile_registered(catalog.queries["a"], known=[units])) == ids(together)
    assert ids(compile_registered(catalog.queries["a"])) != ids(together)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param((3, 2, 2), (3, 3, 4), id="a gap is shorter than the common unit"),
        pytest.param((40, 4, 11), (6, 6, 2), id="no row would be dropped early"),
    ],
)
def test_queries_keep_their_own_units_where_common_ones_are_no_use(
    a: tuple[int, int, int], b: tuple[int, int, int]
) -> None:
    plan = plan_of(catalog_of(a=shed(*a), b=shed(*b)))
    lengths = [units.length for query in "ab" if (units := units_of_query(plan, query))]
    assert lengths == [a[1], b[1]]
    assert len([operator for operator in plan.operators if isinstance(operator, op.WindowDrop)]) == 2


def test_a_query_that_comes_later_takes_over_units_that_fit() -> None:
    first = plan_of(catalog_of(a=shed(12, 6, 2)))
    units = units_of_query(first, "a")
    assert units is not None
    fits, too_long = (catalog_of(b=shed(6, 3, gap)).queries["b"] for gap in (4, 3))
    assert units_of_query(combine([compile_registered(fits, known=[units])]), "b") == units
    assert units_of_query(combine([compile_registered(too_long, known=[units])]), "b") != units


def test_queries_with_equal_units_share_windows_and_aggregates() -> None:
    plan = plan_of(
        catalog_of(
            a=shed(4, 2, 3), b=shed(4, 2, 3).replace("SELECT k", "SELECT Rstream(k").replace("SUM(v)", "SUM(v))")
        )
    )
    shared = {operator.kind for operator in plan.operators if len(plan.users[operator.id]) == 2}
    assert shared == {"source", "window-drop", "seq-window", "aggregate"}


def test_without_sharing_nothing_is_shared() -> None:
    catalog = catalog_of(a=shed(4, 2, 3), b=shed(4, 2, 3))
    plan = combine(compile_all(catalog.queries.values(), share=False))
    assert [operator.kind for operator in plan.operators if len(plan.users[operator.id]) == 2] == []
    assert units_of_query(plan, "a") == units_of_query(plan, "b")


def test_a_stream_whose_rows_are_counted_loses_none_while_the_other_does() -> None:
    text = "SELECT x.v, y.v FROM s [Rows 2] AS x, u [Range 4 Seconds Slide 2 Seconds] AS y WHERE x.k = y.k"
    catalog = catalog_of()
    catalog.execute("CREATE STREAM u (k INT, v INT, t INT) TIMESTAMP BY t")
    catalog.execute(f"REGISTER QUERY q AS {text} WITH (shedding = 'window')")
    plan = plan_of(catalog)
    (drop,) = (operator for operator in plan.operators if isinstance(operator, op.WindowDrop))
    source = plan.by_id[drop.inputs[0].operator]
    assert isinstance(source, op.Source) and source.table == "u"


WINDOW, RANDOM = "WITH (shedding = 'window')", "WITH (shedding = 'random')"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (f"SELECT k FROM s WHERE v > 1 {WINDOW}", "the query 'q' has no window that could be lost", "'random'"),
        (f"SELECT k, COUNT(*) FROM s GROUP BY k {WINDOW}", "'q' needs every row for ever, for: aggregate count(*)", ""),
        (
            f"SELECT k, MAX(v) FROM s [Rows 5] GROUP BY k {WINDOW}",
            "needs every row for ever, for: seq-window [Rows 5]",
            "'random'",
        ),
        (f"SELECT MAX(v) FROM s [Partition By k Rows 5] {WINDOW}", "for: seq-window [Partition By k Rows 5]", ""),
        (
            f"SELECT COUNT(*) FROM s [Range 5 Seconds] {RANDOM}",
            "'q' would get wrong answers, not only fewer, if rows were lost below: aggregate count(*)",
            "'window'",
        ),
        (f"SELECT DISTINCT k FROM s [Range 5 Seconds] {RANDOM}", "below: duplicate-eliminate", "'approximate'"),
        (f"SELECT Istream(k) FROM s [Range 5 Seconds] {RANDOM}", "below: i-stream", ""),
        (f"SELECT s.k FROM s [Now] LEFT JOIN names ON s.k = names.k {RANDOM}", "below: left binary-join", ""),
        (f"SELECT k FROM s [Rows 5] {RANDOM}", "below: seq-window [Rows 5]", ""),
        (f"SELECT k FROM s [Now] EXCEPT ALL SELECT k FROM names {RANDOM}", "below: except", ""),
        (f"SELECT n FROM names {RANDOM}", "'q' reads no stream", "'none'"),
    ],
)
def test_a_policy_that_does_not_fit_the_query_is_refused(text: str, message: str, hint: str) -> None:
    catalog = catalog_of(q=text)
    with pytest.raises(cql.CqlError) as caught:
        plan_of(catalog)
    (problem,) = caught.value.diagnostics
    assert problem.code is cql.Code.CANNOT_SHED
    assert message in problem.message
    assert "'none' loses nothing" in (problem.hint or "") and hint in (problem.hint or "")


def test_who_accepts_wrong_answers_may_lose_rows_anywhere() -> None:
    plan = plan_of(catalog_of(q="SELECT COUNT(*) FROM s [Rows 5] WITH (shedding = 'random', accept = 'approximate')"))
    assert [operator.kind for operator in plan.operators][:2] == ["source", "random-drop"]


def test_settings_are_the_defaults_of_queries_that_come_after_them() -> None:
    catalog = catalog_of(before=SUMS.format(size=4, slide=2))
    catalog.execute(f"SET shedding = window; SET max_gap = 7; REGISTER QUERY after AS {SUMS.format(size=4, slide=2)};")
    catalog.execute(f"REGISTER QUERY not_me AS {SUMS.format(size=4, slide=2)} WITH (shedding = none)")
    plan = plan_of(catalog)
    units = units_of_query(plan, "after")
    assert units is not None and units.batch == 7
    assert units_of_query(plan, "before") is units_of_query(plan, "not_me") is None


def test_in_timestamp_time_a_window_without_a_slide_has_units_of_its_own_length() -> None:
    plan = plan_of(
        catalog_of(
            q=f"SELECT COUNT(*) FROM r [Range 30 Seconds] {WINDOW}",
            now=f"SELECT k, COUNT(*) FROM r [Now] GROUP BY k {WINDOW}",
        )
    )
    assert [units.length for query in ("q", "now") if (units := units_of_query(plan, query))] == [30_000_000, 1_000_000]
