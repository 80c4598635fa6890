"""The definitional evaluator on hand-worked tables: the vectors of `../shared/papers/stream-cql.md`, its
rules and counterexamples, and every operator at the instants where it matters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from types import ModuleType
from typing import get_args

import pytest

from cql import bind, bound
from cql.bound import expressions, relations
from cql.bound.relations import expressions as own_expressions
from tests.definition import Element, evaluate
from tests.definition.evaluator import Bag
from tests.definition.notation import catalog, changes, contents, elements, run, sorted_words

STREAM_RULES = catalog(empty_aggregate="stream")
CLOSED = catalog(range_bounds="closed")
ELEMENT_CLOCK = catalog(rstream_clock="element")

KEYED = "a1@1 b2@2 a3@2 b4@5 b5@7 z0@9"
"""The stream of section 2.3; the last element lets time go on to 8."""


def at_instants(row: str) -> dict[int, str]:
    """Return a table row `x y | - | z` as contents by instant, from 0."""
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    return sorted_words({time: "" if cell == "-" else cell for time, cell in enumerate(cells)})


# Section 1: the motivating example


@pytest.mark.parametrize(("bounds", "expiry"), [("half_open", (600, 610)), ("closed", (601, 611))])
def test_network_monitoring(bounds: str, expiry: tuple[int, int]) -> None:
    rules = catalog(empty_aggregate="stream", range_bounds=bounds)
    rules.execute("REGISTER STREAM C (pid int, size int)")
    rules.execute("REGISTER STREAM B (pid int); REGISTER STREAM O (pid int)")
    query = """Select sum(C.size) From C [Range 10 minutes], B [Range 10 minutes], O [Range 10 minutes]
               Where C.pid = B.pid and B.pid = O.pid"""
    first, second = expiry
    assert changes(query, rules, C="1,100@0 2,50@10", B="1@5 2@12", O="1@8 2@20 3@700") == {
        8: "+100",
        20: "+150 -100",
        first: "+50 -150",
        second: "-50",
    }


# Section 2.3: windows

WINDOWS = {
    # instant              0   1    2          3          4          5          6    7          8
    "Range 3":            "- | a1 | a1 b2 a3 | a1 b2 a3 | b2 a3    | b4       | b4 | b4 b5    | b5",
    "Now":                "- | a1 | b2 a3    | -        | -        | b4       | -  | b5       | -",
    "Rows 2":             "- | a1 | b2 a3    | b2 a3    | b2 a3    | a3 b4    | a3 b4 | b4 b5 | b4 b5",
    "Partition By k Rows 1":
                          "- | a1 | b2 a3    | b2 a3    | b2 a3    | a3 b4    | a3 b4 | a3 b5 | a3 b5",
    "Partition By k Rows 1 Range 3":
                          "- | a1 | b2 a3    | b2 a3    | b2 a3    | b4       | b4 | b5       | b5",
    "Partition By k Rows 2 Range 5":
                          "- | a1 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 b4 | b2 a3 b4 | b4 b5 | b4 b5",
    "Range 4 Slide 2":    "- | -  | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 | b4 | b4       | b4 b5",
    "Range 2 Slide 2":    "- | -  | a1 b2 a3 | a1 b2 a3 | -        | -        | b4 | b4       | b5",
    "Range Unbounded":    "- | a1 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 b4 | a1 b2 a3 b4 |"
                          " a1 b2 a3 b4 b5 | a1 b2 a3 b4 b5",
}  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
def test_window_contents(window: str) -> None:
    # Wrapped so that the unbounded window yields a relation too.
    query = f"SELECT k, v FROM K [{window}] EXCEPT ALL SELECT k, v FROM K [Now] WHERE v < 0"
    assert contents(query, range(9), K=KEYED) == at_instants(WINDOWS[window])


def test_closed_range() -> None:
    expected = "- | a1 | a1 b2 a3 | a1 b2 a3 | a1 b2 a3 | b2 a3 b4 | b4 | b4 b5 | b4 b5"
    assert contents("SELECT * FROM K [Range 3]", range(9), CLOSED, K=KEYED) == at_instants(expected)


def test_slides_fall_on_multiples_also_before_zero() -> None:
    # At -4 the window ends at -4, at -3 still; 0 is a multiple too.
    assert changes("SELECT * FROM S [Range 4 Slide 2]", S="1@-5 2@-3 3@1") == {-4: "+1", -2: "+2", 0: "-1"}


def test_no_time_passes_after_the_last_element_of_any_input() -> None:
    assert changes("SELECT * FROM S [Range 3]", S="1@1 2@3") == {1: "+1", 3: "+2"}
    joined = "SELECT S.A FROM S [Range 3] LEFT JOIN T [Now] ON S.A = T.A"
    assert changes(joined, S="1@1 2@3", T="9@5") == {1: "+1", 3: "+2", 4: "-1"}


def test_rows_breaks_ties_by_source_order_and_sorts_disorder_by_instant() -> None:
    assert contents("SELECT * FROM S [Rows 2]", [1], S="3@1 1@1 2@1") == {1: "1 2"}
    assert contents("SELECT * FROM S [Rows 2]", [1, 2], S="3@2 1@1 2@1") == {1: "1 2", 2: "2 3"}


# Section 2.4: relation to stream

GROWING_AND_SHRINKING = "+1@1 +1@1 +1@2 +2@2 -1@3 -1@3 -2@3"


def test_istream_and_dstream_are_bag_differences() -> None:
    assert changes("Istream(R)", R=GROWING_AND_SHRINKING) == {1: "1 1", 2: "1 2"}
    assert changes("Dstream(R)", R=GROWING_AND_SHRINKING) == {3: "1 1 2"}
    assert changes("Rstream(R)", R=GROWING_AND_SHRINKING) == {1: "1 1", 2: "1 1 1 2", 3: "1"}


def test_relation_to_stream_over_rows_2() -> None:
    def until_8(query: str) -> dict[int, str]:
        return {time: text for time, text in changes(query, K=KEYED).items() if time < 9}

    rows = "(SELECT * FROM K [Rows 2])"
    assert until_8(f"Istream{rows}") == sorted_words({1: "a1", 2: "b2 a3", 5: "b4", 7: "b5"})
    assert until_8(f"Dstream{rows}") == {2: "a1", 5: "b2", 7: "a3"}
    everything = at_instants(WINDOWS["Rows 2"])
    assert until_8(f"Rstream{rows}") == {time: text for time, text in everything.items() if text}


def test_a_relation_is_its_istream_minus_its_dstream() -> None:
    for data in random_data(50):
        relation = run("SELECT * FROM S [Rows 2]", S=data["S"])
        inserted, deleted = (run(f"{x}(SELECT * FROM S [Rows 2])", S=data["S"]) for x in ("Istream", "Dstream"))
        assert relation.changes == minus(inserted.changes, deleted.changes)


def test_a_growing_query_is_the_stream_of_its_inserts() -> None:
    assert bind("SELECT * FROM S WHERE A > 1", catalog()).is_stream
    assert changes("SELECT * FROM S WHERE A > 1", S="1@1 2@2 2@2 3@5") == {2: "2 2", 5: "3"}


# Rstream clocks


def test_rstream_speaks_at_every_tick_of_integer_time() -> None:
    assert changes("Rstream(SELECT * FROM S [Range 3])", S="1@1 2@6") == {1: "1", 2: "1", 3: "1", 6: "2"}


def test_rstream_on_the_element_clock_speaks_where_a_window_has_an_element() -> None:
    query = "Rstream(SELECT S.A FROM S [Rows 1], T [Rows 1])"
    assert changes(query, ELEMENT_CLOCK, S="1@1 2@6", T="1@3 1@4 1@8") == {3: "1", 4: "1", 6: "2", 8: "2"}


def test_rstream_on_the_element_clock_speaks_at_slides_even_when_nothing_changes() -> None:
    query = "Rstream(SELECT * FROM S [Range 8 Slide 2])"
    assert changes(query, ELEMENT_CLOCK, S="1@1 2@9") == {2: "1", 4: "1", 6: "1", 8: "1"}
    mixed = "Rstream(SELECT S.A FROM S [Range 4 Slide 4], T [Now])"
    assert changes(mixed, ELEMENT_CLOCK, S="1@1", T="5@5 6@6 9@9") == {5: "1", 6: "1"}


def test_rstream_on_the_element_clock_hears_windows_in_subqueries_and_changes_of_relations() -> None:
    query = "Rstream(SELECT * FROM R WHERE EXISTS (SELECT * FROM S [Rows 1]))"
    assert changes(query, ELEMENT_CLOCK, R="+1@2 +2@5", S="0@3 0@7") == {3: "1", 5: "1 2", 7: "1 2"}


def test_rstream_over_timestamps_has_the_element_clock() -> None:
    query = "SELECT Rstream(v) FROM E [Range 2 Seconds]"
    second = 1_000_000
    data: list[Element] = [(second * t, (v, second * t), 1) for t, v in ((1, 1), (2, 2), (9, 3))]
    tree = bind(query, catalog())
    found = evaluate(tree, {"E": data}).changes
    assert found == {second: Counter([(1,)]), 2 * second: Counter([(1,), (2,)]), 9 * second: Counter([(3,)])}


# Nested streams and their order


def test_windows_on_derived_streams() -> None:
    query = "SELECT * FROM Dstream(SELECT * FROM S [Range 2]) [Range 3]"
    assert changes(query, S="1@1 2@4 9@9") == {3: "+1", 6: "+2 -1", 9: "-2"}
    counted = "SELECT * FROM Rstream(SELECT COUNT(*) AS n FROM S [Range 2]) [Rows 1]"
    assert changes(counted, S="1@1 2@2 9@9") == {1: "+1", 2: "+2 -1", 3: "+1 -2", 4: "+0 -1", 9: "+1 -0"}


def test_filters_and_projections_keep_the_order_of_the_stream() -> None:
    derived = "SELECT * FROM Istream(SELECT A * 2 FROM S WHERE A > 0) [Rows 2]"
    assert contents(derived, [1], S="3@1 1@1 2@1 0@1") == {1: "2 4"}


def test_otherwise_elements_of_an_instant_are_ordered_by_value() -> None:
    derived = "SELECT * FROM Istream(SELECT DISTINCT A FROM S) [Rows 2]"
    assert contents(derived, [1], S="3@1 1@1 NULL@1 2@1") == {1: "2 3"}


def test_among_equal_rows_the_newest_are_the_inserted_and_the_oldest_the_deleted_ones() -> None:
    # At 2 one of the two 5s of [Rows 2] is new: the last one, so it comes after 6.
    inserted = "SELECT * FROM Istream(SELECT * FROM S [Rows 3]) [Rows 1]"
    assert contents(inserted, [2], S="5@1 6@2 5@2") == {2: "5"}
    deleted = "SELECT * FROM Dstream(SELECT * FROM S [Rows 1]) [Rows 1]"
    assert contents(deleted, [2], S="5@1 6@1 5@1 7@2 8@2") == {2: "5"}


# Aggregates


def test_groups_appear_change_and_disappear() -> None:
    query = "SELECT k, SUM(v), COUNT(*), MIN(v), MAX(v) FROM K [Range 3] GROUP BY k"
    assert changes(query, K="a1@1 a5@2 b2@3 z0@9") == {
        1: "+a,1,1,1,1",
        2: "+a,6,2,1,5 -a,1,1,1,1",
        3: "+b,2,1,2,2",
        4: "+a,5,1,5,5 -a,6,2,1,5",
        5: "-a,5,1,5,5",
        6: "-b,2,1,2,2",
        9: "+z,0,1,0,0",
    }


def test_a_group_that_stays_the_same_does_not_change() -> None:
    assert changes("SELECT MAX(A) FROM S [Rows 2]", S="5@1 3@2 5@3 5@4") == {1: "+5"}


def test_nulls_form_a_group_and_are_left_out_of_aggregates() -> None:
    query = "SELECT a, COUNT(*), COUNT(b), SUM(b), AVG(b), MIN(b) FROM P [Rows 9] GROUP BY a"
    assert changes(query, P="NULL,1@1 NULL,NULL@1 2,NULL@1") == {1: "+2,1,0,NULL,NULL,NULL +NULL,2,1,1,1.0,1"}


EMPTY = "SELECT COUNT(*), SUM(A) FROM S [Range 2]"


def test_an_aggregate_over_nothing_has_a_row_once_an_element_was_seen() -> None:
    assert changes(f"{EMPTY} UNION ALL SELECT A, A FROM T [Now]", S="7@3 8@9", T="1@1 1@7") == {
        1: "+1,1",
        2: "-1,1",
        3: "+1,7",
        5: "+0,NULL -1,7",
        7: "+1,1",
        8: "-1,1",
        9: "+1,8 -0,NULL",
    }


def test_an_element_is_seen_when_it_comes_not_when_its_window_slides() -> None:
    assert changes("SELECT COUNT(*) FROM S [Range 4 Slide 4]", S="7@3 8@5") == {3: "+0", 4: "+1 -0"}


def test_an_aggregate_over_nothing_has_no_row_under_the_rules_of_stream() -> None:
    assert changes(EMPTY, STREAM_RULES, S="7@3 8@9") == {3: "+1,7", 5: "-1,7", 9: "+1,8"}


def test_the_value_of_an_aggregate_over_nothing_in_a_subquery() -> None:
    query = "SELECT A, (SELECT COUNT(*) FROM S) FROM T [Rows 1]"
    assert changes(query, T="5@1", S="1@3") == {1: "+5,0", 3: "+5,1 -5,0"}
    assert changes(query, STREAM_RULES, T="5@1", S="1@3") == {1: "+5,NULL", 3: "+5,1 -5,NULL"}


def test_a_static_relation_has_been_seen_from_the_beginning() -> None:
    query = "SELECT COUNT(*) FROM Fixed, S [Now] WHERE Fixed.a = S.A"
    assert changes(query, Fixed="", S="1@4") == {4: "+0"}
    assert changes("SELECT COUNT(*) FROM Fixed", Fixed="1,1@77 1,2@5") == {0: "+2"}


AGGREGATES = {
    "COUNT(*)": "5",
    "COUNT(b)": "4",
    "COUNT(DISTINCT b)": "3",
    "SUM(b)": "8",
    "SUM(DISTINCT b)": "7",
    "SUM(b * 1.5)": "12",
    "AVG(b)": "2.0",
    "AVG(b / 3.0)": "0.6666665",  # of 0.333333 twice, 0.666667 and 1.333333, as DECIMALs have six digits
    "MIN(b)": "1",
    "MAX(b)": "4",
    "VARIANCE(b)": "2.0",
    "STDDEV(b)": "1.4142135623730951",
    "VARIANCE(b) FILTER (WHERE b = 4)": "NULL",
    "ARG_MIN(a, b)": "1",
    "ARG_MAX(a, b)": "4",
    "ARG_MIN(b, a)": "NULL",
    "ARG_MAX(b, a)": "4",
    "ARG_MAX(b, a % 2)": "2",
    "APPROX_COUNT_DISTINCT(b)": "3",
    "SUM(b) FILTER (WHERE a > 1)": "7",
    "COUNT(*) FILTER (WHERE b > 9)": "0",
    "SUM(b) FILTER (WHERE b > 9)": "NULL",
    "SUM(CAST(b AS BIGINT) * 4000000000000000000)": "NULL",
    "MAX(CAST('NaN' AS DOUBLE))": "nan",
    "SUM(CASE WHEN b = 1 THEN 1e308 ELSE -1e308 END)": "-1e+308",
    "AVG(CASE WHEN b = 1 THEN CAST('inf' AS DOUBLE) ELSE 1e0 END)": "inf",
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregate(aggregate: str) -> None:
    found = changes(f"SELECT {aggregate} FROM P [Rows 9]", P="0,NULL@1 1,1@1 2,1@1 3,2@1 4,4@1")
    assert found == {1: f"+{AGGREGATES[aggregate]}"}


def test_arg_min_and_arg_max_break_ties_by_value_and_ignore_rows_without_an_order() -> None:
    query = "SELECT ARG_MIN(a, b), ARG_MAX(a, b) FROM P [Rows 9]"
    assert changes(query, P="3,1@1 2,1@1 9,NULL@1") == {1: "+2,3"}
    assert changes(query, P="3,1@1 NULL,1@1") == {1: "+NULL,3"}
    assert changes(query, P="9,NULL@1") == {1: "+NULL,NULL"}


def test_first_and_last_go_by_the_timestamp() -> None:
    made = catalog()
    made.execute("CREATE STREAM timed (v INT, t INT) TIMESTAMP BY t")
    query = "SELECT FIRST(v), LAST(v) FROM timed [Rows 3]"
    assert changes(query, made, timed="5,1@1 4,1@1 6,2@2 7,3@3") == {
        1: "+4,5",
        2: "+4,6 -4,5",
        3: "+4,7 -4,6",
    }


def test_aggregates_of_the_user() -> None:
    class Trace:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def add(self, value: object) -> None:
            self.seen.append(value)

        def result(self) -> str:
            return "".join(str(value) for value in self.seen)

    made = catalog()
    made.aggregate(Trace, name="trace", arguments=["INT"], returns="STRING")
    query = "SELECT trace(A), trace(DISTINCT A), trace(A) FILTER (WHERE A > 9) FROM S [Rows 9]"
    assert changes(query, made, S="3@1 NULL@1 1@1 3@1") == {1: "+None133,None13,NULL"}


def test_having() -> None:
    query = "SELECT k FROM K [Range 3] GROUP BY k HAVING COUNT(*) > 1"
    assert changes(query, K="a1@1 a5@2 b2@3 z0@9") == {2: "+a", 4: "-a"}


# Relation to relation


def test_distinct_follows_multiplicities() -> None:
    assert changes("SELECT DISTINCT A FROM R", R="+1@1 +1@2 -1@3 -1@4") == {1: "+1", 4: "-1"}


SET_OPERATIONS = {
    "UNION": "1 2 3 4",
    "UNION ALL": "1 1 1 2 2 2 3 4",
    "EXCEPT": "4",
    "EXCEPT ALL": "1 4",
    "INTERSECT": "1 2",
    "INTERSECT ALL": "1 2",
}


@pytest.mark.parametrize("operator", SET_OPERATIONS)
def test_set_operation(operator: str) -> None:
    query = f"SELECT A FROM R {operator} SELECT A FROM S [Rows 9]"
    assert contents(query, [1], R="+1@1 +1@1 +2@1 +4@1", S="1@1 2@1 2@1 3@1") == {1: SET_OPERATIONS[operator]}


def test_except_all_counts_below_zero() -> None:
    # Two on the right outweigh two on the left; one that goes uncovers one.
    query = "SELECT A FROM R EXCEPT ALL SELECT A FROM S [Range 3]"
    assert changes(query, R="+1@2 +1@2 +1@9", S="1@1 1@1 1@2") == {4: "+1", 5: "+1", 9: "+1"}


def test_intersect_all_takes_the_smaller_count() -> None:
    query = "SELECT A FROM R INTERSECT ALL SELECT A FROM S [Range 3]"
    assert changes(query, R="+1@1 +1@4 -1@5", S="1@2 1@3 1@3 7@9") == {2: "+1", 4: "+1", 5: "-1", 6: "-1"}


JOINS = {
    "JOIN": "1,1,1,2",
    "LEFT JOIN": "1,1,1,2 2,2,NULL,NULL NULL,3,NULL,NULL",
    "RIGHT JOIN": "1,1,1,2 NULL,NULL,3,3 NULL,NULL,NULL,4",
    "FULL JOIN": "1,1,1,2 2,2,NULL,NULL NULL,3,NULL,NULL NULL,NULL,3,3 NULL,NULL,NULL,4",
}


@pytest.mark.parametrize("join", JOINS)
def test_join(join: str) -> None:
    query = f"SELECT * FROM P [Rows 9] {join} Q [Rows 9] ON P.a = Q.a"
    expected = sorted_words({1: JOINS[join]})
    assert contents(query, [1], P="1,1@1 2,2@1 NULL,3@1", Q="1,2@1 3,3@1 NULL,4@1") == expected


def test_an_outer_join_takes_back_its_unmatched_row() -> None:
    query = "SELECT P.b, Q.b FROM P LEFT JOIN Q [Range 2] ON P.a = Q.a"
    assert changes(query, P="1,5@1 0,0@9", Q="1,6@3") == {
        1: "+5,NULL",
        3: "+5,6 -5,NULL",
        5: "+5,NULL -5,6",
        9: "+0,NULL",
    }


def test_a_join_of_three_and_a_self_join() -> None:
    query = "SELECT x.A, y.A FROM S [Rows 2] AS x, S [Now] AS y, T [Rows 1] WHERE x.A < y.A"
    assert changes(query, S="1@1 2@2 3@3", T="0@1") == {2: "+1,2", 3: "+2,3 -1,2"}


def test_top_n_is_a_function_of_the_relation() -> None:
    query = "SELECT a, b FROM P [Range 3] ORDER BY b DESC LIMIT 2"
    assert changes(query, P="3,1@1 1,1@1 2,1@1 9,2@2 0,0@9") == {
        1: "+1,1 +2,1",
        2: "+9,2 -2,1",
        4: "-1,1",
        5: "-9,2",
        9: "+0,0",
    }


ORDERS = {"b": "NULL 1", "b DESC": "3 2", "b NULLS LAST": "1 2", "b DESC NULLS FIRST": "NULL 3"}


@pytest.mark.parametrize("order", ORDERS)
def test_top_n_order(order: str) -> None:
    query = f"SELECT b FROM P [Rows 9] ORDER BY {order} LIMIT 2"
    assert contents(query, [1], P="0,2@1 0,NULL@1 0,3@1 0,1@1") == sorted_words({1: ORDERS[order]})


def test_top_n_keeps_duplicates_and_sorts_nan_last() -> None:
    query = "SELECT b FROM P [Rows 9] ORDER BY b LIMIT 3"
    assert contents(query, [1], P="0,1@1 0,1@1 0,1@1 0,1@1") == {1: "1 1 1"}
    query = """SELECT CASE WHEN b = 1 THEN CAST('NaN' AS DOUBLE) ELSE 1e300 END
               FROM P [Rows 9] ORDER BY 1 DESC LIMIT 1"""
    assert contents(query, [1], P="0,1@1 0,2@1") == {1: "nan"}


def test_row_number() -> None:
    query = """SELECT k, v, n FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n
                                    FROM K [Range 3]) WHERE n <= 2"""
    assert changes(query, K="a1@1 a1@1 a5@2 b7@2 z0@9") == {
        1: "+a,1,1 +a,1,2",
        2: "+a,5,1 +b,7,1 -a,1,1",
        4: "-a,1,2",
        5: "-a,5,1 -b,7,1",
        9: "+z,0,1",
    }


# Subqueries

IN_LISTS = {
    # the subquery's values: rows of S for which IN, for which NOT IN is true
    "": ("", "1 2 NULL"),
    "1@1": ("1", "2"),
    "1@1 NULL@1": ("1", ""),
    "NULL@1": ("", ""),
}


@pytest.mark.parametrize("values", IN_LISTS)
def test_in_and_not_in_with_nulls(values: str) -> None:
    for word, expected in zip(("IN", "NOT IN"), IN_LISTS[values], strict=True):
        query = f"SELECT A FROM S [Rows 9] WHERE A {word} (SELECT A FROM T [Rows 9])"
        assert contents(query, [1], S="1@1 2@1 NULL@1", T=values) == sorted_words({1: expected})


def test_a_row_in_a_subquery_is_unknown_only_if_the_rest_matches() -> None:
    query = "SELECT * FROM P [Rows 9] WHERE P NOT IN (SELECT a, b FROM Q [Rows 9])"
    assert contents(query, [1], P="1,1@1 2,1@1 2,2@1", Q="1,NULL@1 2,2@1") == {1: "2,1"}


def test_a_filter_with_a_subquery_changes_when_the_subquery_does() -> None:
    query = "SELECT A FROM S [Rows 9] WHERE A > (SELECT MAX(A) FROM T [Range 2])"
    assert changes(query, S="1@1 5@1 0@9", T="3@2 7@3") == {2: "+5", 3: "-5"}


def test_correlated_exists() -> None:
    query = "SELECT A FROM S [Rows 9] WHERE NOT EXISTS (SELECT * FROM T [Range 2] WHERE T.A = S.A)"
    assert changes(query, S="1@1 2@1 3@9", T="1@3") == {1: "+1 +2", 3: "-1", 5: "+1", 9: "+3"}


def test_correlated_scalar_subquery() -> None:
    query = "SELECT A, (SELECT SUM(b) FROM P [Rows 2] WHERE P.a = S.A) FROM S [Rows 9]"
    assert changes(query, S="1@1 2@1", P="1,5@2 1,6@3 2,7@4") == {
        1: "+1,NULL +2,NULL",
        2: "+1,5 -1,NULL",
        3: "+1,11 -1,5",
        4: "+1,6 +2,7 -1,11 -2,NULL",
    }


def test_correlation_through_two_levels_and_a_subquery_in_from() -> None:
    query = """SELECT A FROM S [Rows 9] WHERE EXISTS (
                 SELECT * FROM (SELECT a, b FROM P [Rows 9] WHERE P.a = S.A) AS p
                 WHERE p.b = (SELECT MAX(q.b) FROM Q [Rows 9] AS q WHERE q.a = p.a AND q.a = S.A))"""
    assert contents(query, [1], S="1@1 2@1", P="1,3@1 2,3@1", Q="1,3@1 1,2@1 2,4@1") == {1: "1"}


def test_a_stream_inside_a_correlated_subquery_belongs_to_its_row() -> None:
    query = """SELECT A FROM S [Rows 9] WHERE EXISTS (
                 SELECT * FROM Istream(SELECT b FROM P WHERE P.a = S.A) [Rows 1] AS last WHERE last.b = 1)"""
    assert changes(query, S="1@1 2@1", P="1,1@2 2,0@3 1,0@4 2,1@4") == {2: "+1", 4: "+2 -1"}


def test_aggregates_over_subqueries_and_groups_in_subqueries() -> None:
    query = """SELECT k, SUM(v) FROM K [Rows 9] AS g GROUP BY k
               HAVING SUM(v) > (SELECT COUNT(*) FROM K [Rows 9] AS h WHERE h.k = g.k)"""
    assert contents(query, [1], K="a1@1 a1@1 b2@1") == {1: "b2"}


# Inputs


def test_a_query_over_static_relations_happens_at_instant_0() -> None:
    assert changes("SELECT SUM(b) FROM Fixed", Fixed="1,2@5 1,3@9") == {0: "+5"}


def test_a_static_relation_is_there_from_the_first_instant() -> None:
    assert changes("SELECT S.A, b FROM S [Now] LEFT JOIN Fixed ON S.A = Fixed.a", S="1@3 2@4", Fixed="1,7@99") == {
        3: "+1,7",
        4: "+2,NULL -1,7",
    }


def test_a_run_without_elements_yields_nothing() -> None:
    assert changes("SELECT COUNT(*) FROM S", S="") == {}
    assert changes("SELECT (SELECT COUNT(*) FROM S) FROM Fixed", S="", Fixed="1,1@0") == {}


def test_a_removal_of_what_is_not_there_after_its_instant_is_left_out() -> None:
    assert changes("SELECT * FROM R", R="-1@1 +1@1 +2@2") == {2: "+2"}
    assert changes("SELECT * FROM R", R="+1@1 -1@2 -1@2 +1@3") == {1: "+1", 2: "-1", 3: "+1"}


# Section 11: what rewrite rules may do, on random streams


def random_data(trials: int, seed: str = "") -> Iterator[dict[str, str]]:
    """Yield small random inputs: up to 7 elements with values 0 and 1 at 9 instants."""
    chance = random.Random(f"definition {seed}")
    shapes = {"S": 1, "T": 1, "P": 2, "Q": 2}
    for _ in range(trials):
        data = {}
        for name, width in shapes.items():
            rows = [[str(chance.randint(0, 1)) for _ in range(width)] for _ in range(chance.randint(0, 7))]
            data[name] = " ".join(f"{','.join(row)}@{chance.randint(0, 8)}" for row in rows)
        data["K"] = " ".join(word.replace("0,", "a", 1).replace("1,", "b", 1) for word in data["P"].split())
        data["R"] = " ".join(_random_log(chance, 1))
        data["W"] = " ".join(_random_log(chance, 2))
        data["Fixed"] = data["Q"]
        yield data


def _random_log(chance: random.Random, width: int) -> Iterator[str]:
    present: list[str] = []
    for time in range(9):
        if present and chance.random() < 0.3:
            yield f"-{present.pop(chance.randrange(len(present)))}@{time}"
        if chance.random() < 0.5:
            present.append(",".join(str(chance.randint(0, 1)) for _ in range(width)))
            yield f"+{present[-1]}@{time}"


def minus(left: dict[int, Bag], right: dict[int, Bag]) -> dict[int, Bag]:
    """Return the difference of two signed logs."""
    result = {}
    for time in sorted(left.keys() | right.keys()):
        bag = Counter(left.get(time, Counter()))
        bag.subtract(right.get(time, Counter()))
        if bag := Counter({row: count for row, count in bag.items() if count}):
            result[time] = bag
    return result


def filtered(window: str) -> tuple[str, str]:
    """Return a filter on b above a window and below it."""
    above = f"SELECT * FROM P [{window}] WHERE b = 1"
    return above, f"SELECT * FROM Istream(SELECT * FROM P WHERE b = 1) [{window}]"


def projected(window: str) -> tuple[str, str]:
    return f"SELECT a FROM P [{window}]", f"SELECT * FROM Istream(SELECT a FROM P) [{window}]"


TRIALS = 100
TIME_WINDOWS = ("Range 3", "Now", "Range Unbounded", "Range 4 Slide 2")
VALID = {
    **{f"V1 sigma and {w}": filtered(w) for w in TIME_WINDOWS},
    "V2 sigma on the key of a partition": (
        "SELECT * FROM P [Partition By a Rows 2] WHERE a = 1",
        "SELECT * FROM Istream(SELECT * FROM P WHERE a = 1) [Partition By a Rows 2]",
    ),
    **{f"V3 pi and {w}": projected(w) for w in (*TIME_WINDOWS, "Rows 2", "Partition By a Rows 2")},
    "V5 window reduction": (
        "Istream(SELECT a FROM P [Range Unbounded] WHERE b = 1)",
        "Rstream(SELECT a FROM P [Now] WHERE b = 1)",
    ),
    **{
        f"V9 sigma and {x}": (
            f"{x}(SELECT * FROM P [Rows 2] WHERE b = 1)",
            f"Rstream(SELECT * FROM {x}(SELECT * FROM P [Rows 2]) [Now] WHERE b = 1)",
        )
        for x in ("Istream", "Dstream", "Rstream")
    },
    "V9 pi and Rstream": (
        "Rstream(SELECT a FROM P [Rows 2])",
        "Rstream(SELECT a FROM Rstream(SELECT * FROM P [Rows 2]) [Now])",
    ),
    "V9 union and Rstream": (
        "Rstream(SELECT * FROM S [Rows 2] UNION ALL SELECT * FROM T [Rows 2])",
        "Rstream(SELECT * FROM Rstream(S [Rows 2]) [Now] UNION ALL SELECT * FROM Rstream(T [Rows 2]) [Now])",
    ),
    "V10 sigma and join": (
        "SELECT * FROM P [Rows 2], Q [Range 3] WHERE P.a = Q.a AND P.a = 1 AND P.b = 0",
        """SELECT * FROM (SELECT * FROM P [Rows 2] WHERE a = 1 AND b = 0) AS p,
                         (SELECT * FROM Q [Range 3] WHERE a = 1) AS q WHERE p.a = q.a""",
    ),
    "V11 sigma and except, both sides": (
        "SELECT * FROM (P [Rows 3] EXCEPT ALL Q [Range 3]) WHERE b = 1",
        "SELECT * FROM P [Rows 3] WHERE b = 1 EXCEPT ALL SELECT * FROM Q [Range 3] WHERE b = 1",
    ),
    "V11 sigma and except, the left side": (
        "SELECT * FROM (P [Rows 3] EXCEPT ALL Q [Range 3]) WHERE b = 1",
        "SELECT * FROM P [Rows 3] WHERE b = 1 EXCEPT ALL SELECT * FROM Q [Range 3]",
    ),
    "V11 sigma and intersect, one side": (
        "SELECT * FROM (P [Rows 3] INTERSECT ALL Q [Range 3]) WHERE b = 1",
        "SELECT * FROM P [Rows 3] INTERSECT ALL SELECT * FROM Q [Range 3] WHERE b = 1",
    ),
    **{
        f"V12 union and {w}": (
            f"SELECT * FROM S [{w}] UNION ALL SELECT * FROM T [{w}]",
            f"SELECT * FROM Istream(SELECT * FROM S UNION ALL SELECT * FROM T) [{w}]",
        )
        for w in TIME_WINDOWS
    },
    "V13 filter on group attributes": (
        "SELECT a, SUM(b) FROM P [Rows 3] GROUP BY a HAVING a = 1",
        "SELECT a, SUM(b) FROM P [Rows 3] WHERE a = 1 GROUP BY a",
    ),
    "V14 distinct and union": (
        "SELECT DISTINCT * FROM (SELECT A FROM S [Rows 2] UNION ALL SELECT A FROM T [Range 3])",
        """SELECT DISTINCT * FROM (SELECT DISTINCT A FROM S [Rows 2]
                                   UNION ALL SELECT DISTINCT A FROM T [Range 3])""",
    ),
    "intersect as two differences": (
        "S [Rows 3] INTERSECT ALL T [Range 3]",
        "S [Rows 3] EXCEPT ALL (S [Rows 3] EXCEPT ALL T [Range 3])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", VALID)
def test_valid_rule(rule: str) -> None:
    before, after = (bind(query, catalog()) for query in VALID[rule])
    for data in random_data(TRIALS, rule):
        assert run(before, **data).changes == run(after, **data).changes, data


def test_v4_a_stream_is_the_istream_of_everything_and_the_rstream_of_now() -> None:
    everything_so_far, now = (bind(q, catalog()) for q in ("Istream(P [Range Unbounded])", "Rstream(P [Now])"))
    for data in random_data(TRIALS, "V4"):
        stream: dict[int, Bag] = {}
        for time, row, _ in sorted(elements(data["P"])):
            stream.setdefault(time, Counter())[tuple(row)] += 1
        assert run(everything_so_far, P=data["P"]).changes == stream
        assert run(now, P=data["P"]).changes == stream


def test_v6_the_istream_of_distinct_is_the_first_occurrences() -> None:
    tree = bind("Istream(SELECT DISTINCT * FROM P)", catalog())
    for data in random_data(TRIALS, "V6"):
        first: dict[int, Bag] = {}
        for row in {tuple(row) for _, row, _ in elements(data["P"])}:
            time = min(time for time, other, _ in elements(data["P"]) if other == row)
            first.setdefault(time, Counter())[row] += 1
        assert run(tree, P=data["P"]).changes == dict(sorted(first.items()))


def test_v7_a_join_of_now_and_a_relation_probes_it_once_for_each_element() -> None:
    # The subquery brings the clock of S along.
    whole = bind("SELECT a, b FROM W WHERE 1 = 1 OR EXISTS (SELECT * FROM S)", catalog())
    stream_join = bind("Rstream(SELECT W.a, W.b FROM S [Now], W WHERE S.A = W.a)", catalog())
    for data in random_data(TRIALS, "V7"):
        relation = run(whole, S=data["S"], W=data["W"])
        probed: dict[int, Bag] = {}
        for time, (a,), _ in sorted(elements(data["S"])):
            matches = [row for row in relation.relation_at(time).elements() if row[0] == a]
            if matches:
                probed.setdefault(time, Counter()).update(matches)
        assert run(stream_join, S=data["S"], W=data["W"]).changes == probed


def test_v8_the_symmetric_hash_join() -> None:
    def joined(kind: str, left: str, right: str) -> bound.Rel:
        return bind(f"{kind}(SELECT P.b, Q.b FROM P [{left}], Q [{right}] WHERE P.a = Q.a)", catalog())

    whole = joined("Istream", "Range Unbounded", "Range Unbounded")
    left, right, both = (
        joined("Rstream", *windows)
        for windows in (("Now", "Range Unbounded"), ("Range Unbounded", "Now"), ("Now", "Now"))
    )
    for data in random_data(TRIALS, "V8"):
        overcounted = minus(run(left, **data).changes, minus({}, run(right, **data).changes))
        assert run(whole, **data).changes == minus(overcounted, run(both, **data).changes)


def test_v15_windows_that_are_the_same() -> None:
    def windowed(spec: bound.WindowSpec) -> bound.Rel:
        tree = bind("SELECT * FROM P [Range 3]", catalog())
        assert isinstance(tree, bound.Project) and isinstance(tree.input, bound.Window)
        return replace(tree, input=replace(tree.input, spec=spec))

    same = [
        (windowed(bound.RangeSpec(3, 1)), windowed(bound.RangeSpec(3))),
        (windowed(bound.PartitionRowsSpec((), 2)), windowed(bound.RowsSpec(2))),
        (bind("SELECT * FROM P [Range 3]", CLOSED), bind("SELECT * FROM P [Range 4]", catalog())),
    ]
    for data in random_data(TRIALS, "V15"):
        for one, other in same:
            assert run(one, **data).changes == run(other, **data).changes


# Section 11: what rewrite rules may not do. Each line: a counterexample, and what the two sides yield on it.

INVALID = {
    "N1 sigma below Rows": (
        {"P": "0,1@1 0,0@2"},
        ("SELECT * FROM P [Rows 1] WHERE b = 1", {1: "+0,1", 2: "-0,1"}),
        ("SELECT * FROM Istream(SELECT * FROM P WHERE b = 1) [Rows 1]", {1: "+0,1"}),
    ),
    "N2 sigma on another attribute below Partition": (
        {"P": "0,1@5 0,0@5"},
        ("SELECT * FROM P [Partition By a Rows 1] WHERE b = 1", {}),
        ("SELECT * FROM Istream(SELECT * FROM P WHERE b = 1) [Partition By a Rows 1]", {5: "+0,1"}),
    ),
    "N3 Istream of Now is the stream": (
        {"S": "1@0 1@1"},
        ("Istream(S [Now])", {0: "1"}),
        ("Istream(S)", {0: "1", 1: "1"}),
    ),
    "N4 Istream of Range is the stream": (
        {"S": "1@4 1@7"},
        ("Istream(S [Range 3])", {4: "1"}),
        ("Istream(S)", {4: "1", 7: "1"}),
    ),
    "N5 Istream of Rows is the stream": (
        {"S": "1@5 1@6 1@7"},
        ("Istream(S [Rows 2])", {5: "1", 6: "1"}),
        ("Istream(S)", {5: "1", 6: "1", 7: "1"}),
    ),
    "N6 pi and Istream": (
        {"P": "0,0@1 0,0@4 0,1@6"},
        ("Istream(SELECT a FROM P [Rows 2])", {1: "0", 4: "0"}),
        ("Rstream(SELECT a FROM Istream(P [Rows 2]) [Now])", {1: "0", 4: "0", 6: "0"}),
    ),
    "N7 union and Istream": (
        {"S": "1@1", "T": "1@4"},
        ("Istream(S [Range 3] UNION ALL T [Range 3])", {1: "1"}),
        (
            "Istream(SELECT * FROM Istream(S [Range 3]) UNION ALL SELECT * FROM Istream(T [Range 3]))",
            {1: "1", 4: "1"},
        ),
    ),
    "N8 pi and except": (
        {"P": "1,0@1", "Q": "1,1@1"},
        ("SELECT a FROM (P [Rows 9] EXCEPT ALL Q [Rows 9])", {1: "+1"}),
        ("SELECT a FROM P [Rows 9] EXCEPT ALL SELECT a FROM Q [Rows 9]", {}),
    ),
    "N9 union and Rows": (
        {"S": "1@1", "T": "2@2"},
        ("S [Rows 1] UNION ALL T [Rows 1]", {1: "+1", 2: "+2"}),
        ("SELECT * FROM Istream(SELECT * FROM S UNION ALL SELECT * FROM T) [Rows 1]", {1: "+1", 2: "+2 -1"}),
    ),
    "N10 distinct below Range": (
        {"S": "1@1 1@8"},
        ("SELECT DISTINCT * FROM S [Range 3]", {1: "+1", 4: "-1", 8: "+1"}),
        ("SELECT * FROM Istream(SELECT DISTINCT * FROM S) [Range 3]", {1: "+1", 4: "-1"}),
    ),
    "N11 the key predicate of an equi-join below Rows": (
        {"P": "1,1@5", "Q": "1,0@0 0,1@6 1,1@7"},
        ("SELECT Q.* FROM P, Q [Rows 2] WHERE P.a = Q.a AND P.a = 1", {5: "+1,0", 7: "+1,1 -1,0"}),
        (
            """SELECT q.* FROM P, Istream(SELECT * FROM Q WHERE a = 1) [Rows 2] AS q
               WHERE P.a = q.a AND P.a = 1""",
            {5: "+1,0", 7: "+1,1"},
        ),
    ),
    "N12 removing Rstream and Now through distinct": (
        {"S": "1@1 1@4"},
        ("Rstream(SELECT DISTINCT A FROM S [Now])", {1: "1", 4: "1"}),
        ("Istream(SELECT DISTINCT A FROM S)", {1: "1"}),
    ),
    "N12 removing Rstream and Now through an aggregate": (
        {"S": "1@1 1@4"},
        ("Rstream(SELECT A, COUNT(*) FROM S [Now] GROUP BY A)", {1: "1,1", 4: "1,1"}),
        ("Istream(SELECT A, COUNT(*) FROM S GROUP BY A)", {1: "1,1", 4: "1,2"}),
    ),
    "N13 Istream for Rstream over a join of Now windows": (
        {"S": "1@1 1@2", "T": "1@1 1@2"},
        ("Rstream(SELECT S.A FROM S [Now], T [Now] WHERE S.A = T.A)", {1: "1", 2: "1"}),
        ("Istream(SELECT S.A FROM S [Now], T [Now] WHERE S.A = T.A)", {1: "1"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", INVALID)
def test_counterexample(rule: str) -> None:
    data, (query, expected), (tempting, wrong) = INVALID[rule]
    assert changes(query, **data) == sorted_words(expected)
    assert changes(tempting, **data) == sorted_words(wrong)
    assert expected != wrong


def test_n4_the_dstream_of_a_range_is_not_the_stream_shifted() -> None:
    # Shifted by 3 it would be 1 at 7 and 1 at 10.
    assert changes("Dstream(S [Range 3])", S="1@4 1@7 2@10") == {10: "1"}


# Completeness: instants, and node classes

EVERYTHING = """
SELECT * FROM S [Range 3]
SELECT * FROM S [Range 3] AS x TABLESAMPLE (50 PERCENT)
SELECT * FROM P [Range 5 Slide 3]
SELECT * FROM P [Partition By a Rows 1 Range 3]
SELECT a FROM P [Partition By a Rows 2]
SELECT * FROM S [Rows 2] UNION SELECT * FROM T [Now]
SELECT * FROM S [Range 3] UNION ALL SELECT * FROM R
SELECT * FROM R EXCEPT SELECT * FROM S [Range 2]
SELECT * FROM R EXCEPT ALL SELECT * FROM S [Range 2]
SELECT * FROM R INTERSECT SELECT * FROM S [Range 2]
SELECT * FROM R INTERSECT ALL SELECT * FROM S [Range 4 Slide 2]
SELECT DISTINCT b FROM P [Range 2]
SELECT * FROM P [Range 3], Q [Rows 1] WHERE P.a = Q.b
SELECT * FROM P [Range 3] LEFT JOIN Q [Now] ON P.a = Q.b
SELECT * FROM P [Range 3] RIGHT JOIN Fixed ON P.a = Fixed.b
SELECT * FROM W FULL JOIN Q [Range 3 Slide 3] ON W.a = Q.b AND Q.a = 1
SELECT a, COUNT(*), SUM(b) FROM P [Range 3 Slide 2] GROUP BY a
SELECT COUNT(*), MAX(b) FROM P [Range 2]
SELECT COUNT(*) FROM P [Range 4 Slide 4]
SELECT COUNT(*) FROM P [Range 2], Fixed
SELECT a, b FROM W ORDER BY b DESC, a LIMIT 2
SELECT * FROM (SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) AS n FROM P [Range 3])
SELECT A + 1 FROM S [Range 3] WHERE A IN (SELECT A FROM T [Range 2])
SELECT A FROM S WHERE A NOT IN (SELECT A FROM T [Range 2 Slide 2])
SELECT A, (SELECT COUNT(*) FROM P [Range 3] WHERE P.a = S.A) FROM S [Rows 2]
SELECT A FROM S [Rows 3] WHERE EXISTS (SELECT * FROM T [Range 2] WHERE T.A = S.A)
SELECT CASE WHEN A = 1 THEN CAST(A AS STRING) ELSE 'none' END FROM S [Range 2]
SELECT own(A) FROM S [Now]
SELECT * FROM Istream(SELECT a FROM P [Range 2] WHERE b = 1) [Range 3]
SELECT * FROM Dstream(SELECT a FROM P [Range 2]) [Rows 2]
SELECT * FROM Rstream(SELECT a FROM P [Range 4 Slide 2]) [Range 2 Slide 2]
SELECT COUNT(*) FROM Rstream(SELECT DISTINCT a FROM P [Range 2]) [Rows 3]
SELECT * FROM Istream(SELECT COUNT(*) FROM P [Range 2]) [Partition By "COUNT(*)" Rows 1]
Istream(SELECT a, SUM(b) FROM P [Range 3] GROUP BY a)
Dstream(SELECT a, SUM(b) FROM P [Range 3] GROUP BY a)
Rstream(SELECT a, SUM(b) FROM P [Range 3] GROUP BY a)
Rstream(SELECT S.A FROM S [Range 3 Slide 3], T [Rows 1])
Rstream(SELECT A FROM R WHERE A = (SELECT MIN(A) FROM S [Range 3]))
""".strip().splitlines()


def everything() -> Iterator[bound.Rel]:
    for settings in ({}, {"rstream_clock": "element", "empty_aggregate": "stream"}):
        made = catalog(**settings)
        made.function(lambda a: a, name="own", arguments=["INT"], returns="INT")
        yield from (bind(query, made) for query in EVERYTHING)


def test_nothing_changes_between_the_instants_that_are_looked_at() -> None:
    made = catalog()
    made.function(lambda a: a, name="own", arguments=["INT"], returns="INT")
    for tree in everything():
        for data in random_data(8, "ticks"):
            assert run(tree, made, **data).changes == run(tree, made, every_tick=True, **data).changes, tree


def test_everything_that_can_be_bound_has_a_meaning() -> None:
    """All node classes, window specifications and kinds of operators occur in the queries above."""
    met: set[object] = set()

    def visit(rel: bound.Rel) -> None:
        met.add(type(rel))
        met.update(value for value in vars_of(rel) if isinstance(value, Enum))
        met.update(type(value) for value in vars_of(rel) if isinstance(value, get_args(bound.WindowSpec)))
        for expression in own_expressions(rel):
            met.update(type(part) for part in bound.walk(expression))
        for below in bound.inputs(rel):
            visit(below)

    for tree in everything():
        visit(tree)
    nodes = classes(relations, bound.Rel) | classes(expressions, bound.Expr)
    kinds = {*bound.EmptyRow, *bound.JoinKind, *bound.SetKind, *bound.RelToStreamKind}
    assert met >= nodes | kinds | set(get_args(bound.WindowSpec))


def vars_of(rel: bound.Rel) -> list[object]:
    return [getattr(rel, name) for name in type(rel).__match_args__]


def classes(module: ModuleType, base: type) -> set[object]:
    return {each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)} - {base}
