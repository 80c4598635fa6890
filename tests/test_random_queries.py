"""The generator of cases itself: what it makes binds, means something, and covers the language."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

import cql
from cql.bound import Rel, RelationScan, StreamScan, inputs
from tests.definition import evaluate
from tests.random_data import Row
from tests.random_queries import CATALOG, FEATURES, Data, catalog, random_case, random_data, random_query
from tests.strategies import inputs_to_try

WORDS = [
    "[Now]", "[Rows", "Range", "Slide", "Partition", "Unbounded", "Istream", "Dstream", "Rstream", "DISTINCT",
    "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "ALL", "LEFT", "RIGHT", "FULL",
    "CROSS", "JOIN", "WITH", "EXISTS", "IN", "CASE", "FILTER", "ROW_NUMBER", "BETWEEN", "LIKE", "NULL",
    "TIMESTAMP", "INTERVAL", "COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST", "stddev", "variance",
    "arg_min", "arg_max", "approx_count_distinct", "coalesce", "nullif", "CAST", "EXTRACT", "S1", "S2", "S3",
    "N1", "P1", "P2", "R1", "D1", "V1", "V2", "T1", "T2", "RT", "VT",
]  # fmt: skip


@pytest.mark.fuzz
def test_random_queries_bind() -> None:
    for seed in range(inputs_to_try(1000)):
        query = random_query(random.Random(seed))
        try:
            cql.bind(query, catalog())
        except cql.CqlError as error:
            pytest.fail(f"seed {seed}: {error.render()}", pytrace=False)


def test_random_queries_cover_the_language() -> None:
    found: Counter[str] = Counter()
    for seed in range(3000):
        query = random_query(random.Random(seed))
        found.update(word for word in WORDS if word in query)
    assert [word for word in WORDS if found[word] < 5] == []


@pytest.mark.parametrize(("feature", "words"), [
    ("aggregate", ["GROUP BY"]), ("case", ["CASE"]), ("cte", ["WITH"]), ("decimal", ["DECIMAL"]),
    ("distinct", ["SELECT DISTINCT"]), ("dstream", ["Dstream"]), ("exists", ["EXISTS"]), ("filter", ["FILTER"]),
    ("functions", ["coalesce", "upper"]), ("having", ["HAVING"]), ("in", [" IN (SELECT"]), ("inexact", ["variance"]),
    ("istream", ["Istream"]), ("join", ["JOIN"]), ("now", ["[Now]"]), ("outer_join", ["LEFT", "RIGHT", "FULL"]),
    ("partition", ["[Partition"]), ("relation", ["R1", " RT"]), ("row_number", ["ROW_NUMBER"]), ("rows", ["[Rows 2"]),
    ("rstream", ["Rstream"]), ("set", ["UNION", "EXCEPT", "INTERSECT"]), ("slide", ["Slide"]), ("static", ["D1"]),
    ("time", ["T1", "T2", " RT", "VT"]), ("top_n", ["LIMIT"]), ("unbounded", ["Unbounded"]), ("view", ["V1", "V2"]),
])  # fmt: skip
def test_a_feature_can_be_left_out(feature: str, words: list[str]) -> None:
    features = FEATURES - {feature, "scalar"} if feature == "aggregate" else FEATURES - {feature}
    for seed in range(150):
        query = random_query(random.Random(seed), features=features)
        cql.bind(query, catalog())
        assert not [word for word in words if word in query], query


def test_most_random_cases_have_a_result() -> None:
    empty = 0
    for seed in range(400):
        case = random_case(random.Random(seed))
        empty += not evaluate(cql.bind(case.query, case.catalog), case.data).changes
    assert empty < 180


def test_random_data_fits_its_tables() -> None:
    known = catalog()
    for seed in range(300):
        data = random_data(random.Random(seed), known)
        assert set(data) == {"S1", "S2", "S3", "N1", "P1", "P2", "T1", "T2", "R1", "RT", "D1"}
        for name, elements in data.items():
            table = known.table(name)
            scan = table.scan()  # type: ignore[union-attr]
            for instant, row, _ in elements:
                assert len(row) == len(scan.schema)
                assert all(value is not None or field.nullable for value, field in zip(row, scan.schema, strict=True))
                if isinstance(scan, StreamScan) and scan.timestamp is not None:
                    assert row[scan.timestamp] == instant
            assert [e[0] for e in elements] == sorted(e[0] for e in elements)
            _deletes_only_what_is_there(elements)


def _deletes_only_what_is_there(elements: Sequence[tuple[int, Row, int]]) -> None:
    held: Counter[str] = Counter()
    for _, row, sign in elements:
        held[repr(row)] += sign
        assert held[repr(row)] >= 0


def test_random_data_has_empty_streams_bursts_repeats_and_nulls() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        data: Data = random_data(random.Random(seed), catalog())
        for elements in data.values():
            instants = [instant for instant, _, _ in elements]
            seen["empty"] += not elements
            seen["burst"] += len(instants) - len(set(instants)) >= 3
            seen["equal rows"] += len({repr(row) for _, row, _ in elements}) < len(elements)
            seen["null"] += any(None in row for _, row, _ in elements)
            seen["deletes"] += any(sign < 0 for _, _, sign in elements)
            seen["before 0"] += any(instant < 0 for instant in instants)
            seen["far off"] += any(abs(instant) > 10**6 for instant in instants)
    assert all(seen[what] > 20 for what in ("empty", "burst", "equal rows", "null", "deletes", "before 0", "far off"))


def test_the_same_seed_is_the_same_case() -> None:
    for seed in range(50):
        one, other = random_case(random.Random(seed)), random_case(random.Random(seed))
        assert (one.query, repr(one.data)) == (other.query, repr(other.data))


def test_a_case_has_data_for_what_its_query_reads() -> None:
    def scans(rel: Rel) -> set[str]:
        own = {rel.name} if isinstance(rel, StreamScan | RelationScan) else set()
        return own.union(*(scans(below) for below in inputs(rel)))

    for seed in range(300):
        case = random_case(random.Random(seed))
        assert scans(cql.bind(case.query, case.catalog)) <= set(case.data)
        assert "CREATE" in CATALOG
