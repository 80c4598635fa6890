"""Queries without a plan: people read what is wrong, where, why, and what to write instead."""

from pathlib import Path

import pytest

from cql import Catalog, bind
from cql.errors import CqlError
from planner.optimize import optimize

CATALOG = Path(__file__).parent / "fixtures" / "rules" / "catalog.cql"

NUMBERED = "(Select A, B, Row_Number() Over (Partition By A Order By B) As n From S [Range 5]) As X"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    made = Catalog()
    made.execute(CATALOG.read_text())
    return made


def refused(query: str, catalog: Catalog) -> tuple[str, str, str, str]:
    """Return code, message and hint of what is wrong with a query, and the text that it points to."""
    with pytest.raises(CqlError) as error:
        optimize(bind(query, catalog))
    found = error.value.diagnostics[0]
    assert found.hint
    return found.code.text, query[found.span.start : found.span.end], found.message, found.hint


@pytest.mark.parametrize(
    ("query", "pointed_to", "message", "hint"),
    [
        (
            "Select A, (Select Max(B) From R Where R.A < S.A) As x From S [Range 5]",
            "S.A", "below an aggregate, and not in a comparison with =", "aggregate there",
        ),
        (
            "Select A, (Select Sum(R.B * S.B) From R Where R.A = S.A) As x From S [Range 5]",
            "S.B", "inside an aggregate", "join the two in FROM",
        ),
        (
            "Select A, (Select B From R Where R.A < S.A Order By B Limit 1) As x From S [Range 5]",
            "S.A", "below ORDER BY .. LIMIT, and not in a comparison with =", "compare with =",
        ),
        (
            "Select A, (Select coalesce(R.B, S.B) From R Where R.A = S.A Order By R.B Limit 1) As x From S [Range 5]",
            "S.B", "below ORDER BY .. LIMIT", "in a query around that one",
        ),
        (
            "Select A, (Select Max(X.A) From (Select Distinct A From R Where R.B < S.B) As X) As m From S [Range 5]",
            "S.B", "below DISTINCT", "compare with =",
        ),
        (
            "Select * From S [Range 5] Where Exists (Select A From R Where R.A = S.A Union All Select A From D)",
            "S.A", "in a part of UNION", "a subquery for each part",
        ),
        (
            "Select * From S [Range 5] Where Exists (Select * From R Left Join D On R.A = D.A and R.B = S.B)",
            "S.B", "outer join", "WHERE",
        ),
        (
            "Select * From S [Range 5] "
            "Where Exists (Select * From (Istream(Select * From R Where R.A = S.A)) [Range 5] As X)",
            "S.A", "below a window", "what the window yields",
        ),
        (
            "Select * From S [Range 5] "
            "Where Exists (Select * From R Where Not Exists (Select * From D Where D.A = R.B and D.A = S.B))",
            "S.B", "two subqueries further in", "directly around it",
        ),
        (
            "Select * From S [Range 5] "
            "Where Exists (Select Count(*) From R Where R.A = S.A Having Count(*) > (Select Count(*) From D))",
            "S.A", "below an aggregate without GROUP BY", "join the two in FROM",
        ),
        (
            "Select S1.A From S1 [Rows 3] Left Join S2 [Rows 3] On (S1.A, S2.B) In (Select A, B From R)",
            "(S1.A, S2.B) In (Select A, B From R)", "both sides of the outer join", "one side",
        ),
    ],
)  # fmt: skip
def test_a_subquery_that_is_no_join(query: str, pointed_to: str, message: str, hint: str, catalog: Catalog) -> None:
    code, text, reason, advice = refused(query, catalog)
    assert (code, text) == ("E601", pointed_to)
    assert message in reason
    assert hint in advice


@pytest.mark.parametrize("condition", ["n > 1", "n <= A", "n <= 2 or B = 1"])
def test_row_numbers_without_a_limit(condition: str, catalog: Catalog) -> None:
    code, text, reason, advice = refused(f"Select * From {NUMBERED} Where {condition}", catalog)
    assert (code, text) == ("E602", "Row_Number() Over (Partition By A Order By B)")
    assert "no limit" in reason
    assert "n <= 10" in advice


@pytest.mark.parametrize("condition", ["n <= 2", "3 > n and B > 0", "n = 1", "n Between 1 and 2", "n In (1, 2)"])
def test_row_numbers_with_a_limit(condition: str, catalog: Catalog) -> None:
    optimize(bind(f"Select * From {NUMBERED} Where {condition}", catalog))
