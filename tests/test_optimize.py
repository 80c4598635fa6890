"""The pipeline as a whole: one plan for all ways to write a query, a plan that stays as it is, and a driver that
names the culprit."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import cql
from cql.bound import Filter, Literal, Project, Rel, Window
from cql.types import BOOLEAN
from planner.optimize import optimize
from planner.rewriting import Rewriter, RuleError, Stage
from planner.text import plan_text
from tests.corpus_catalog import corpus_catalog
from tests.test_corpus import FILES
from tests.test_rules import FOLDER

TABLES = (
    (FOLDER / "catalog.cql").read_text(encoding="utf-8")
    + """
CREATE VIEW V AS Select A, B From S [Range 10];
CREATE VIEW J AS Select S1.A, S1.B, S2.C From S1 [Rows 9], S2 [Range 5] Where S1.A = S2.A;
"""
)


@pytest.fixture(scope="module")
def plan() -> Callable[[str], Rel]:
    catalog = cql.Catalog()
    catalog.execute(TABLES)
    return lambda query: optimize(cql.bind(query, catalog))[0]


# One plan for all ways to write a query


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            "Select * From S [Rows 9] Where A > 1 and B = 2",
            "Select * From S [Rows 9] Where 2 = B and not A <= 1",
            id="the order of conjuncts and of operands",
        ),
        pytest.param(
            "Select A From S [Rows 9] Where A between 1 and 3",
            "Select A From S [Rows 9] Where A <= 3 and A >= 1",
            id="BETWEEN",
        ),
        pytest.param(
            "Select S1.A From S1 [Rows 9], S2 [Range 5] Where S1.A = S2.A and S1.B > 1",
            "Select S1.A From S1 [Rows 9] Join S2 [Range 5] On S2.A = S1.A and S1.B > 1",
            id="comma join and JOIN ON",
        ),
        pytest.param(
            "Select S1.A From S1 [Rows 9], S2 [Range 5] Where S1.A = S2.A and S1.B > 1",
            "Select S1.A From (Select * From S1 [Rows 9] Where B > 1) As S1, S2 [Range 5] Where S1.A = S2.A",
            id="a filter above and below a join",
        ),
        pytest.param(
            "Select S1.A From S1 [Rows 9] Left Join S2 [Rows 9] On S1.A = S2.A Where S1.B > 1",
            "Select X.A From (Select A From S1 [Rows 9] Where B > 1) As X Left Join S2 [Rows 9] On X.A = S2.A",
            id="a filter above and below an outer join",
        ),
        pytest.param(
            "Select S1.A, S2.B From S1 [Rows 9], S2 [Rows 9] Where S1.A = S2.A and S2.A > 1",
            "Select S1.A, S2.B From S1 [Rows 9], S2 [Rows 9] Where S1.A = S2.A and S1.A > 1",
            id="a filter on one key or on the other",
        ),
        pytest.param(
            "Select A From V Where B > 1",
            "Select A From S [Range 10] Where B > 1",
            id="a view",
        ),
        pytest.param(
            "Select A, C From J Where B > 1",
            "Select S1.A, S2.C From S1 [Rows 9] Join S2 [Range 5] On S1.A = S2.A Where S1.B > 1",
            id="a view with a join",
        ),
        pytest.param(
            "Select J.A, S3.B From J, S3 [Rows 2] Where J.A = S3.A",
            "Select S1.A, S3.B From S1 [Rows 9], S2 [Range 5], S3 [Rows 2] Where S1.A = S2.A and S1.A = S3.A",
            id="a view below a multiway join",
        ),
        pytest.param(
            "Select S1.A From S1 [Rows 9], S2 [Rows 9], S3 [Rows 9] Where S1.A = S2.A and S2.A = S3.A and S1.A > 1",
            "Select S1.A From S1 [Rows 9], S2 [Rows 9], S3 [Rows 9] Where S3.A > 1 and S3.A = S1.A and S3.A = S2.A",
            id="equalities that say the same",
        ),
        pytest.param(
            "Select A, Count(*) From V Group By A Having A > 1",
            "Select A, Count(*) From S [Range 10] Where A > 1 Group By A",
            id="HAVING and WHERE (V13)",
        ),
        pytest.param(
            "Select Distinct A From S [Rows 9]",
            "Select A From S [Rows 9] Group By A",
            id="DISTINCT and GROUP BY",
        ),
        pytest.param(
            "Select * From S [Rows 9] Where A in (Select A From R)",
            "Select * From S [Rows 9] Where exists (Select * From R Where R.A = S.A)",
            id="IN and EXISTS",
        ),
        pytest.param(
            "Select A From (Select A, B From S1 [Rows 9] Union All Select A, B From S2 [Rows 9]) As U Where A > 1",
            "Select A From S1 [Rows 9] Where A > 1 Union All Select A From S2 [Rows 9] Where A > 1",
            id="a filter above and below UNION ALL",
        ),
        pytest.param(
            "Select * From S [Range 10] Where A > 5",
            "Select * From (Select Istream(*) From S Where A > 5) [Range 10] As F",
            id="a filter above and below a window (V1)",
        ),
        pytest.param(
            "Select * From S [Partition By A Rows 3] Where A > 5",
            "Select * From (Select Istream(*) From S Where A > 5) [Partition By A Rows 3] As F",
            id="a filter above and below a partitioned window (V2)",
        ),
        pytest.param(
            "Select B From S [Rows 4]",
            "Select B From (Select Istream(B) From S) [Rows 4] As P",
            id="a projection above and below a window (V3)",
        ),
        pytest.param(
            "Select Istream(A, B + 1) From S [Rows Unbounded] Where B > 5",
            "Select Rstream(A, B + 1) From S [Now] Where B > 5",
            id="two ways from a stream to itself (V5)",
        ),
        pytest.param(
            "Rstream(Select S.A, R.B From S [Now], R Where S.A = R.A and S.B > 1)",
            "Rstream(Select S.A, R.B From (Select A From S [Now] Where B > 1) As S Join R On S.A = R.A)",
            id="a stream join (V7)",
        ),
    ],
)  # fmt: skip
def test_queries_that_differ_in_their_writing_have_one_plan(one: str, other: str, plan: Callable[[str], Rel]) -> None:
    assert plan_text(plan(one)) == plan_text(plan(other))
    assert plan(one) == plan(other)


def test_names_of_results_are_kept(plan: Callable[[str], Rel]) -> None:
    result = plan("Select A As x, B, C, T From (Select * From S [Rows 9]) As V")
    assert [column.name for column in result.schema] == ["x", "B", "C", "T"]


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".cql"], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_plan_of_the_corpus_stays_as_it_is(path) -> None:  # type: ignore[no-untyped-def]
    for query in corpus_catalog(path).queries.values():
        try:
            once, _ = optimize(query.tree)
        except cql.CqlError:
            continue
        again, _ = optimize(once)
        assert plan_text(again) == plan_text(once), query.name
        assert again == once, query.name


# However large


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            "Select * From S [Range 9] Where " + " and ".join(f"A <> {at}" for at in range(2000)),
            id="conjuncts",
        ),
        pytest.param(
            "Select * From S [Range 9] Where " + " or ".join(f"A = {at} and B > {at}" for at in range(1000)),
            id="disjuncts",
        ),
        pytest.param(
            "Select X0.A From "
            + ", ".join(f"S1 [Rows 9] As X{at}" for at in range(15))
            + " Where X3.A > 5"
            + "".join(f" and X0.A = X{at}.A and X0.B = X{at}.B" for at in range(1, 15)),
            id="joins",
        ),
        pytest.param(
            "Select x From " + "(Select x + x As x From " * 30 + "(Select A As x From S [Rows 9]) As X)"
            + " As X)" * 28 + " As X) As X Where x > 1",
            id="a column that doubles with every view",
        ),
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_large_queries_are_planned_in_no_time(query: str, plan: Callable[[str], Rel]) -> None:
    plan(query)


# The driver


def _drop_a_column(node: Rel) -> Rel | None:
    if isinstance(node, Project) and len(node.items) > 1:
        return replace(node, items=node.items[:1], names=node.names[:1])
    return None


def _remove_windows(node: Rel) -> Rel | None:
    return node.input if isinstance(node, Window) else None


def _grow(node: Rel) -> Rel | None:
    if isinstance(node, Window | Filter) and not node.is_stream:
        return Filter(node, Literal(True, type=BOOLEAN, nullable=False))
    return None


def _flip(node: Rel) -> Rel | None:
    return Project(node.input, node.items[::-1], node.names) if isinstance(node, Project) else None


def _bound(query: str) -> Rel:
    catalog = cql.Catalog()
    catalog.execute(TABLES)
    return cql.bind(query, catalog)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (_drop_a_column, "rule _drop_a_column changed the schema"),
        (_remove_windows, "rule _remove_windows turned a relation into the other kind"),
        (_grow, "rule _grow does not come to an end"),
        (_flip, "rule _flip does not come to an end"),
    ],
)
def test_a_rule_that_breaks_a_plan_is_named(rule: Callable[[Rel], Rel | None], complaint: str) -> None:
    tree = _bound("Select * From S [Rows 9]" if rule is not _remove_windows else "Select A From S [Rows 9]")
    with pytest.raises(RuleError, match=complaint):
        Rewriter([Stage("broken", (rule,))]).rewrite(tree)


def test_the_invariants_are_checked_after_each_rule() -> None:
    def complain(plan: Rel) -> None:
        raise AssertionError("no plan is good enough")

    with pytest.raises(RuleError, match="broke an invariant: no plan is good enough"):
        optimize(_bound("Select * From S [Range 9] Where A > 1"), verify=complain)


def test_a_plan_in_which_a_rule_finds_nothing_is_the_same_object() -> None:
    tree = _bound("Select A, Count(*) From S [Rows 9] Where exists (Select * From R) Group By A")
    assert Rewriter([Stage("idle", (lambda node: None,))]).rewrite(tree) is tree


def test_the_driver_walks_into_subqueries() -> None:
    seen: list[str] = []

    def look(node: Rel) -> None:
        seen.append(type(node).__name__)

    tree = _bound("Select A From S [Rows 9] Where exists (Select Distinct A From R)")
    Rewriter([Stage("look", (look,))]).rewrite(tree)
    assert seen == ["StreamScan", "Window", "RelationScan", "Project", "Distinct", "Filter", "Project"]


def test_a_rule_that_is_switched_off_does_nothing() -> None:
    tree = _bound("Select * From S [Range 9] Where A > 1")
    with_rule, steps = optimize(tree)
    without, fewer = optimize(tree, frozenset({"push_filter_below_window"}))
    assert "push_filter_below_window" in {step.rule for step in steps}
    assert "push_filter_below_window" not in {step.rule for step in fewer}
    assert without != with_rule
