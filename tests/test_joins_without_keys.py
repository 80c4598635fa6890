"""Joins without equal keys: what conditions indexes can help with, and that they lose nothing."""

from __future__ import annotations

import math
from decimal import Decimal
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from cql.bound import ColumnRef, RangeSpec
from cql.catalog import Catalog
from cql.types import DOUBLE, STRING
from planner import operators as op
from planner.conditions import Band, Overlap, condition_text, index_condition
from runtime.columns import row_codes as rows
from runtime.columns.batch import BLOCK_ROWS, Columns
from runtime.joins.candidates import Lookup, ProbeRanges, candidate_pairs
from runtime.joins.prefilter import Floats, prefilter
from runtime.state.store import RangeEnds, Store
from shedding.insert_drops import plan_of
from tests.definition.evaluator import Element, evaluate
from tests.engine_cases import Case, Setup, check, clashing_codes, marked_codes, small_limits
from tests.shedding_runs import run_shed
from tests.test_shedding_choices import at_random, is_part

COLUMNS = "(x INT, b BIGINT, d DOUBLE, m DECIMAL(20, 3), w STRING, at TIMESTAMP, t INT) TIMESTAMP BY t"
STREAMS = f"CREATE STREAM s {COLUMNS}; CREATE STREAM r {COLUMNS}; CREATE STREAM q {COLUMNS};"
BIG = 2**63 - 1


def joined(condition: str, left: str = "Range 9", right: str = "Range 5") -> str:
    return f"SELECT s.x, s.d, s.w, r.x AS y, r.d AS e, r.t FROM s [{left}], r [{right}] WHERE {condition}"


def planned(query: str, options: str = "") -> Catalog:
    catalog = Catalog()
    catalog.execute(f"{STREAMS} REGISTER QUERY q AS {query} {options};")
    return catalog


def condition_of(query: str) -> Band | Overlap | None:
    join = next(each for each in plan_of(planned(query)).operators if isinstance(each, op.BinaryJoin))
    return index_condition(join.residual, 7)


# What is recognised


@pytest.mark.parametrize(
    ("condition", "left", "right"),
    [
        ("abs(s.x - r.x) < 5", "x within 5", "x within 5"),
        ("5.5 >= abs(r.x - s.d)", "d within 5.5", "x within 5.5"),
        ("abs(s.x - r.x + 2) <= 5", "x within -7 and 3", "x within -3 and 7"),
        ("s.x BETWEEN r.b - 5 AND r.b + 3", "x within -5 and 3", "b within -3 and 5"),
        ("r.m >= s.x - 1 AND s.x - r.m > -2", "x within -2 and 1", "m within -1 and 2"),
        ("s.d BETWEEN r.x - 5 AND r.x + 5", "d within 5", "x within 5"),
        ("s.d - r.d BETWEEN -1 AND 1", "d within 1", "d within 1"),
        ("-s.x + r.x <= 4 AND NOT s.x > r.x AND s.b > r.b", "x within -4 and 0", "x within 0 and 4"),
        (
            "s.at BETWEEN r.at - INTERVAL '5 seconds' AND r.at",
            "at within -5 seconds and 0",
            "at within 0 and 5 seconds",
        ),
        ("abs(s.x * 2 - abs(r.x)) <= 0", "x * 2 within 0", "abs(x) within 0"),
        ("overlap(s.w, r.w) >= 2", "words of w", "words of w"),
        ("1 < overlap(upper(r.w), s.w) AND abs(s.x - r.x) < 9", "words of w", "words of upper(w)"),
        ("overlap(s.w, r.w) = 1", "words of w", "words of w"),
    ],
)
def test_conditions_that_an_index_can_help_with(condition: str, left: str, right: str) -> None:
    found = condition_of(joined(condition))
    assert found is not None
    names = ["x", "b", "d", "m", "w", "at", "t"]
    assert [condition_text(found, at, names) for at in (0, 1)] == [left, right]
    shown = plan_of(planned(joined(condition))).explain()
    assert f", index on {left};" in shown and f", index on {right};" in shown


@pytest.mark.parametrize(("condition", "least"), [("> 1.5", 2), (">= 1.5", 2), ("> 2", 3), ("= 4", 4)])
def test_so_many_words_are_in_common(condition: str, least: int) -> None:
    found = condition_of(joined(f"overlap(s.w, r.w) {condition}"))
    assert isinstance(found, Overlap) and found.least == least


@pytest.mark.parametrize(
    "condition",
    [
        "s.x < r.x",
        "s.x < r.x AND s.b > r.b",
        "s.x + r.x BETWEEN 1 AND 2",
        "abs(s.x - r.x) > 5",
        "abs(s.x - r.x) < s.b",
        "abs(s.x - r.x) < -1",
        "abs(s.x - r.x) < 5 OR s.b < r.b",
        "abs(s.d - r.d) < CAST('NaN' AS DOUBLE)",
        "abs(s.d - r.d) < 1e300",
        "s.w BETWEEN r.w AND r.w || 'a'",
        "overlap(s.w, r.w) >= 0",
        "overlap(s.w, r.w) < 2",
        "overlap(s.w, r.w || s.w) > 2",
        "overlap(s.w, 'a b') > overlap(r.w, 'a')",
        "s.d - r.d >= -1 AND r.d - s.d >= -1",
        "s.d - r.d >= -1 AND s.d <= r.d + 1",
    ],
)
def test_conditions_that_no_index_helps_with(condition: str) -> None:
    assert condition_of(joined(condition)) is None


def test_sums_of_decimals_that_lose_digits_are_left_alone() -> None:
    catalog = Catalog()
    wide = "CREATE STREAM {} (m DECIMAL(38, {}), t INT) TIMESTAMP BY t;"
    catalog.execute(wide.format("a", 30) + wide.format("b", 0))
    catalog.execute("REGISTER QUERY q AS SELECT a.m FROM a [Range 3], b [Range 3] WHERE abs(a.m - b.m) < 1;")
    join = next(each for each in plan_of(catalog).operators if isinstance(each, op.BinaryJoin))
    assert index_condition(join.residual, 2) is None


# Nothing is lost

NUMBERS = (-BIG - 1, -(2**53) - 1, -(2**53), -1000, -3, -2, -1, 0, 1, 2, 3, 4, 7, 1000, 2**53, 2**53 + 1, BIG - 2, BIG)
DOUBLES = (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 0.3, 0.30000000000000004, 1.7e308, -1.7e308, 5e-324)
DOUBLES += (1e16, 1e16 + 2, -1e16, 2.0**50, 2.0**50 + 0.25, 2.0**51 - 1, 1.5, 2.5, -1.5, -2.5)
WORDS = ("a", "b", "c", "d", "ab", "longer than eight", "é")


def double(rng: Random) -> float:
    if rng.random() < 0.25:
        return rng.choice(DOUBLES[:3])
    return rng.choice(DOUBLES) if rng.random() < 0.5 else rng.randint(-20, 20) / 10


def element(rng: Random, at: int) -> Element:
    values: list[Any] = [
        rng.randint(-4, 8) if rng.random() < 0.8 else rng.choice((-(2**31), 2**31 - 1)),
        rng.choice(NUMBERS),
        double(rng),
        Decimal(rng.randint(-5000, 5000)).scaleb(-3) if rng.random() < 0.8 else Decimal("99999999999999999.999"),
        rng.choice((" ", "\t")).join(rng.choice(WORDS) for _ in range(rng.randint(0, 5))),
        rng.randint(-8, 8) * 1_000_000,
    ]
    return at, (*(None if rng.random() < 0.1 else value for value in values), at), 1


def random_data(rng: Random, rows: int = 40) -> dict[str, list[Element]]:
    data: dict[str, list[Element]] = {}
    for name in ("s", "r", "q"):
        at, elements = rng.randint(-3, 3), []
        for _ in range(rng.choice((0, 20, 30, rows))):
            at += rng.choice((0, 0, 1, 2))
            elements.append(element(rng, at))
        data[name] = elements
    return data


CONDITIONS = (
    "abs(s.x - r.x) < 2",
    "abs(s.b - r.b) <= 2",
    "abs(s.d - r.d) <= 0.2",
    "abs(s.d - r.d) <= 0",
    "s.d BETWEEN r.d - 0.3 AND r.d + 0.1",
    "s.d >= r.d - 1e15 AND s.d - r.d < 1",
    "s.d - 1e16 BETWEEN r.d - 1e16 - 1 AND r.d - 1e16 + 1",
    "s.b BETWEEN r.d - 1 AND r.d + 1",
    "s.b <= r.b + 1 AND s.b >= r.b - 9223372036854775807",
    "abs(s.m - r.x) < 1.5 AND s.x < r.x",
    "s.at BETWEEN r.at - INTERVAL '1 second' AND r.at + INTERVAL '2 seconds'",
    "overlap(s.w, r.w) >= 1",
    "overlap(s.w, r.w) >= 2 AND s.x <> r.x",
    "overlap(r.w, s.w) = 3",
)
WINDOWS = (("Range 9", "Range 5"), ("Rows 7", "Range 6"), ("Range 8 Slide 3", "Rows 4"), ("Range Unbounded", "Now"))
OTHERS = (
    "SELECT a.x, b.x AS y FROM s [Range 9] AS a, s [Range 6] AS b WHERE abs(a.x - b.x) <= 1",
    "SELECT a.w, b.w AS v FROM s [Rows 9] AS a, s [Range 6] AS b WHERE overlap(a.w, b.w) > 1",
    "SELECT s.x, r.x AS y, q.x AS z FROM s [Range 9], r [Range 6], q [Rows 5] "
    "WHERE abs(s.x - r.x) < 2 AND abs(r.x - q.x) < 2",
    "SELECT s.w, r.w AS v, q.d FROM s [Range 9], r [Range 6], q [Rows 5] "
    "WHERE overlap(s.w, r.w) >= 2 AND abs(r.d - q.d) < 1",
    "SELECT s.x, r.x AS y FROM s [Range 6] LEFT JOIN r [Range 7] ON abs(s.x - r.x) < 2",
    "SELECT s.w, r.w AS v FROM s [Rows 6] FULL JOIN r [Range 7] ON overlap(s.w, r.w) > 1",
    "SELECT s.x, s.t FROM s [Range 6] WHERE NOT EXISTS (SELECT * FROM r [Range 5] WHERE abs(s.x - r.x) < 2)",
    "SELECT Rstream(s.x, r.x AS y) FROM s [Now], r [Rows 9] WHERE s.x BETWEEN r.x - 1 AND r.x + 2",
)
QUERIES = [joined(condition, *WINDOWS[at % 4]) for at, condition in enumerate(CONDITIONS)] + list(OTHERS)
LIMITS = ("usual", "small", "clashing", "marked")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_that_of_the_definition(query: str, seed: int) -> None:
    rng = Random(f"{query}{seed}")
    tree = planned(query).queries["q"].tree
    case = Case({"q": query}, {"q": tree}, random_data(rng), 0)
    pushed, block = rng.choice(((3, 9), (100,))), rng.choice((4, BLOCK_ROWS))
    check(case, Setup(rng.randrange(2**32), True, "fifo", 65_536, pushed, LIMITS[seed], block))


SELECTIVE = [joined(condition) for condition in CONDITIONS if "abs" in condition or "overlap" in condition]


@pytest.mark.parametrize("query", [*SELECTIVE, joined("abs(s.x - r.x) < 2", "Range 6 Slide 2", "Range 8"), *OTHERS[:1]])
@pytest.mark.parametrize("limits", [small_limits, clashing_codes, marked_codes])
def test_joins_with_too_little_time_find_a_part(query: str, limits: Any) -> None:
    rng = Random(f"{query}")
    catalog, data = planned(query, "WITH (shedding = 'selective')"), random_data(rng)
    plan, tree = plan_of(catalog), catalog.queries["q"].tree
    assert any(isinstance(each, op.SelectiveJoin) for each in plan.operators)
    exact = evaluate(tree, data)
    with limits():
        every, _ = run_shed(plan, data, rng, lambda executor: None)
        some, _ = run_shed(plan, data, rng, at_random(rng))
    assert every["q"] == exact
    assert is_part(some["q"], exact, tree.is_stream)


# What is looked at


def first_column(columns: Columns, length: int) -> Columns:
    return columns[:1]


def test_each_row_takes_the_cheaper_way() -> None:
    rng = np.random.default_rng(1)
    values = np.append(rng.random(1000) * 1000, np.full(1500, 5000.0))
    found, scanned = run_band(values, np.array([500.0, 5000.0, np.nan]))
    near = [[at for at in range(2500) if abs(values[at] - each) <= 2] for each in (500, 5000)]
    assert set(near[0]) <= set(found[0]) and len(found[0]) < 3 * len(near[0]) + 10
    assert found[1] == list(range(2500)) and found[2] == []
    assert scanned == [1]


def test_many_rows_compare_marks_instead_of_pairs() -> None:
    values = np.append(np.arange(200.0), np.full(1500, 5000.0))
    found, scanned = run_band(values, np.array([100.0, *[5000.0] * 20]))
    assert set(range(98, 103)) <= set(found[0]) and len(found[0]) < 10
    assert found[1:] == [list(range(200, 1700))] * 20
    assert scanned == []


def run_band(values: Floats, sought: Floats) -> tuple[list[list[int]], list[int]]:
    """Return which values those within 2 of some others are looked for among, and which of these looked at all."""
    column = ColumnRef(0, type=DOUBLE)
    codes = prefilter(Band(column, column, -2, 2, 0), [first_column, first_column])
    store = Store([pa.float64()], is_log=True)
    store.stub(RangeEnds(RangeSpec(5000, None)))
    store.index(codes.names[1], codes.stored[1])
    store.append((pa.array(values),), np.arange(len(values)), None, None)
    lookup = Lookup(store, codes.names[1], lambda: codes.sought[0]((pa.array(sought),), len(sought)), len(sought), 1)
    every = np.arange(len(sought))
    look = ProbeRanges(every, np.zeros(len(sought), np.int64), np.full(len(sought), len(values)))
    scanned: list[int] = []
    pairs = ProbeRanges.pairs
    with patch.object(ProbeRanges, "pairs", lambda self: (scanned.extend(self.rows.tolist()), pairs(self))[1]):
        pieces = list(candidate_pairs([look], lookup, 4))
    owner, positions = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return [sorted(positions[owner == row].tolist()) for row in every], scanned


COLUMN = ColumnRef(0, type=STRING)


def words_lookup(texts: pa.Array, least: int) -> Lookup:
    """Return what texts look for among themselves."""
    codes = prefilter(Overlap(COLUMN, COLUMN, least), [first_column, first_column])
    store = Store([pa.string()], is_log=True)
    store.index(codes.names[0], codes.stored[0])
    store.append((texts,), np.arange(len(texts)), None, None)
    return Lookup(store, codes.names[0], lambda: codes.sought[1]((texts,), len(texts)), len(texts), codes.least)


def test_pairs_that_share_too_few_codes_are_left_out() -> None:
    texts = pa.array(["a b c", "a b", "c c c", None, "", "c b a d"])
    lookup, look = words_lookup(texts, 2), ProbeRanges(np.arange(6), np.zeros(6, np.int64), np.full(6, 6))
    marks = lookup.marks(10**6)
    assert marks is not None
    for pieces in ([lookup.pairs(look)], list(lookup.scanned(marks, look))):
        pairs = [pair for owner, positions in pieces for pair in zip(owner.tolist(), positions.tolist(), strict=True)]
        assert sorted(pairs) == [(one, other) for one in (0, 1, 5) for other in (0, 1, 5)]


@pytest.mark.parametrize("words", [3, 60, 64, 65, 200, 900])
def test_marks_find_what_sets_have_in_common(words: int) -> None:
    rng = Random(words)
    sets = [rng.sample(range(words), rng.randint(0, 3)) for _ in range(50)]
    lookup = words_lookup(pa.array([" ".join(map(str, each)) for each in sets]), 2)
    looking = np.array(rng.sample(range(50), 40))
    first = np.array([rng.randint(0, 50) for _ in looking])
    last = np.minimum(first + [rng.randint(0, 40) for _ in looking], 50)
    among = np.array(sorted(rng.sample(range(50), 30)))
    marks = lookup.marks(10**6)
    assert marks is not None and marks.words == -(-len({word for each in sets for word in each}) // 64)
    for some, counting in ((None, set(range(50))), (among, set(among.tolist()))):
        found = [
            pair
            for owner, positions in lookup.scanned(marks, ProbeRanges(looking, first, last, some))
            for pair in zip(owner.tolist(), positions.tolist(), strict=True)
        ]
        assert sorted(found) == sorted(
            (row, at)
            for row, begin, end in zip(looking.tolist(), first.tolist(), last.tolist(), strict=True)
            for at in range(begin, end)
            if at in counting and len({*sets[row]} & {*sets[at]}) >= 2
        )


def test_what_marks_cannot_tell_has_none() -> None:
    assert words_lookup(pa.array(["", None]), 1).marks(10**6) is None
    assert words_lookup(pa.array([" ".join(map(str, range(300)))] * 2), 1).marks(10**6) is None
    many = pa.array([" ".join(map(str, range(n, n + 200))) for n in range(0, 5000, 100)])
    assert words_lookup(many, 1).marks(10**6) is None
    with patch.object(rows, "_column_codes", lambda column: np.zeros(len(column), np.uint64)):
        assert words_lookup(pa.array(["a b", "a b"]), 2).marks(10**6) is None


def test_marks_follow_their_store() -> None:
    """Rows come and go, some before anybody asks; codes come, until there are too many, and go."""
    rng = Random(7)
    store = Store([pa.string()], is_log=True)
    stub = store.stub(RangeEnds(RangeSpec(50, None)))
    words = prefilter(Overlap(COLUMN, COLUMN, 1), [first_column, first_column]).stored[0]
    store.index("words", words)
    asked = given = 0
    for step in range(300):
        most = 3000 if 120 <= step < 180 else 40
        texts = pa.array([" ".join(str(rng.randrange(most) + step) for _ in range(4)) for _ in range(20)])
        store.append((texts,), np.full(20, step), None, None)
        stub.seen = store.length
        stub.forget_before(step - 30)
        if rng.random() < 0.4:
            continue
        marks, live = store.marks("words"), store.rows_since(store.base)[0].to_pylist()
        asked, given = asked + 1, given + (marks is not None)
        if marks is None:
            continue
        entries = words((texts,), 20)
        beside = marks.beside(entries.codes, entries.rows, 20)
        assert beside is not None and len(marks) == len(live)
        row = rng.randrange(20)
        found = list(beside.with_common(np.array([row]), np.array([0]), np.array([len(live)]), None, 2))
        sought = {*texts[row].as_py().split()}
        wanted = [at for at, text in enumerate(live) if len(sought & {*text.split()}) >= 2]
        assert [at for _, places in found for at in places.tolist()] == wanted
    assert 0.4 < given / asked < 0.9
