"""The definitional evaluator on inputs and answers that this project did not write: `../shared/corpora`.

STREAM's answers are compared netted per instant; its last instant may be missing, since nothing closes it
there. The evaluator recomputes everything at every instant, so of the long cases only the beginning is run:
what comes later cannot change it.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from cql import Catalog, bind, bound
from cql.binder.literals import timestamp_microseconds
from cql.types import DataType, Kind
from tests.definition import Element, Row, Value, evaluate
from tests.definition.evaluator import Bag

ROOT = Path(__file__).parent.parent
CORPORA = ROOT.parent / "shared" / "corpora"
NEXMARK_QUERIES = ROOT / "tests" / "corpus" / "nexmark"


@pytest.fixture(autouse=True)
def corpora_are_there() -> None:
    if CORPORA.is_dir():
        return
    if "CI" in os.environ:
        pytest.fail(f"the corpora are missing: {CORPORA} is not a folder", pytrace=False)
    pytest.skip(f"the corpora are not here: {CORPORA} is not a folder")


def read(text: str, data_type: DataType) -> Value:
    """Return a value of a data file."""
    match data_type.kind:
        case Kind.TIMESTAMP:
            return timestamp_microseconds(text)
        case Kind.DOUBLE:
            return float(text)
        case Kind.DECIMAL:
            return Decimal(text)
        case Kind.STRING:
            return text
    return int(text)


def read_row(texts: list[str], schema: bound.Schema) -> Row:
    return tuple(read(text, column.type) for text, column in zip(texts, schema, strict=True))


# STREAM: tables with their files, query, answer, and how many instants are run

STREAM_CASES = {
    1: (
        "REGISTER STREAM S (A int, B float, C byte, D char(4))",
        {"S": "S3.dat"},
        "SELECT * FROM S",
        10_000,
    ),
    3: (
        "REGISTER STREAM S1 (A int); REGISTER STREAM S2 (A int)",
        {"S1": "S1.dat", "S2": "S1.dat"},
        "SELECT * FROM S1, S2 WHERE S1.A = S2.A",
        50,
    ),
    5: (
        "REGISTER STREAM S (G int, A int)",
        {"S": "S2.dat"},
        "SELECT G, SUM(A), COUNT(A), MAX(A), MIN(A) FROM S GROUP BY G",
        150,
    ),
    7: ("REGISTER STREAM S (A int)", {"S": "S1.dat"}, "SELECT * FROM S [Rows 2]", 300),
    9: ("REGISTER RELATION R (A int)", {"R": "R1.dat"}, "SELECT * FROM R", 300),
}


def stream_elements(scan: bound.StreamScan | bound.RelationScan, file: str, until: int) -> Iterator[Element]:
    """Yield the elements of a data file of STREAM: instant, sign of a relation, columns."""
    with open(CORPORA / "stream" / file, encoding="ascii") as lines:
        next(lines)
        for line in lines:
            instant, *texts = line.strip().split(",")
            sign = "-" if isinstance(scan, bound.RelationScan) and texts.pop(0) == "-" else "+"
            if int(instant) <= until:
                yield int(instant), read_row(texts, scan.schema), int(f"{sign}1")


def stream_answer(case: int, schema: bound.Schema, until: int) -> dict[int, Bag]:
    """Return what STREAM wrote, netted per instant."""
    answer: dict[int, Bag] = {}
    for line in (CORPORA / "stream" / "expected" / f"test{case}.out").read_text("ascii").splitlines():
        instant, sign, row = re.fullmatch(r"\[(\d+)\]:([+-]):(.*)", line).groups()  # type: ignore[union-attr]
        if int(instant) <= until:
            bag = answer.setdefault(int(instant), Counter())
            bag[read_row(row.split(", "), schema)] += int(f"{sign}1")
    netted = {time: Counter({row: n for row, n in bag.items() if n}) for time, bag in answer.items()}
    return {time: bag for time, bag in netted.items() if bag}


@pytest.mark.parametrize("case", STREAM_CASES)
def test_stream_case(case: int) -> None:
    tables, files, query, instants = STREAM_CASES[case]
    catalog = Catalog()
    catalog.execute(tables)
    tree = bind(query, catalog)
    data = {scan.name: list(stream_elements(scan, files[scan.name], instants)) for scan in bound.scans(tree)}
    found = evaluate(tree, data).changes
    expected = stream_answer(case, tree.schema, instants)
    last = max(instant for elements in data.values() for instant, _, _ in elements)
    if last not in expected:
        found.pop(last, None)
    assert found == expected


# NEXMark


def nexmark_elements(scan: bound.StreamScan | bound.RelationScan) -> list[Element]:
    assert isinstance(scan, bound.StreamScan) and scan.timestamp is not None
    with open(CORPORA / "nexmark" / f"{scan.name}.csv", encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == [column.name for column in scan.schema]
    rows = [read_row(line, scan.schema) for line in lines]
    return [(int(row[scan.timestamp]), row, +1) for row in rows]  # type: ignore[arg-type]


def nexmark_answer(query: str, schema: bound.Schema) -> Bag:
    lines = (CORPORA / "nexmark" / "expected" / f"{query}.txt").read_text("utf-8").splitlines()
    return Counter(
        read_row(line.split("\t") if "\t" in line else line.split(), schema) for line in lines if line.strip()
    )


def nexmark_query(file: str, name: str) -> bound.Rel:
    catalog = Catalog()
    catalog.execute((NEXMARK_QUERIES / f"{file}.cql").read_text("utf-8"))
    return catalog.queries[name].tree


@pytest.mark.parametrize("name", ["q0", "q1", "q2", "q3", "q4", "q5"])
def test_nexmark_query(name: str) -> None:
    tree = nexmark_query(name, name)
    data = {scan.name: nexmark_elements(scan) for scan in bound.scans(tree)}
    assert evaluate(tree, data).final() == nexmark_answer(name, tree.schema)


def test_nexmark_q5_by_a_sliding_window_lacks_only_the_windows_after_the_end_of_the_input() -> None:
    """The last bid is at 25 s, and no time passes after it: windows that end at 26, 28, .. 34 s stay open.

    One more bid at 35 s, which no window up to 34 s holds, closes them; then the answer is the expected one.
    """
    catalog = Catalog()
    catalog.execute((NEXMARK_QUERIES / "q5.cql").read_text("utf-8"))
    counted = "SELECT auction, COUNT(*) AS num FROM bid [Range 10 Seconds Slide 2 Seconds] GROUP BY auction"
    tree = bind(
        f"Rstream(WITH c AS ({counted}) SELECT auction, num FROM c WHERE num >= (SELECT MAX(num) FROM c))",
        catalog,
    )
    bids = nexmark_elements(next(iter(bound.scans(tree))))
    expected = nexmark_answer("q5", tree.schema)
    assert expected - evaluate(tree, {"bid": bids}).final() == Counter({(1000, 4): 4, (1000, 2): 1})
    _, last, _ = bids[-1]
    later = timestamp_microseconds("2015-07-15 00:00:35")
    assert later is not None
    assert evaluate(tree, {"bid": [*bids, (later, last, +1)]}).final() == expected
