"""Readers and writers of the local engine: files in, rows out; changes in, files out."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import Catalog, CqlError
from cql import types as t
from cql.catalog import External, QueryDef, RelationDef, StreamDef
from cql.intervals import TimeDomain
from cql.settings import OnBadRow
from cql.types import DataType
from runtime.columns.arrow_types import arrow_type
from runtime.columns.batch import BEGINNING, ChangeBatch
from runtime.connectors import SourceReader, SourceRows, open_sink, open_source
from runtime.connectors import text_files as text_files_module
from runtime.connectors.keeping import KeptResults
from runtime.connectors.tables import Screen
from runtime.connectors.values import from_text
from runtime.expressions.plain import from_text as from_text_of_cast
from tests.definition.scalars import cast

ROOT = Path(__file__).parent.parent
CORPORA = ROOT.parent / "shared" / "corpora"
CASES = int(os.environ.get("CQL_FUZZ", "300"))
"""How many random files are tried."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(statement: str) -> StreamDef | RelationDef:
    """Return the stream or relation that a statement defines."""
    catalog = Catalog()
    catalog.execute(statement)
    (found,) = catalog.tables()
    assert isinstance(found, StreamDef | RelationDef)
    return found


def static(columns: str, source: str) -> RelationDef:
    found = table(f"CREATE RELATION r ({columns}) FROM {source}")
    assert isinstance(found, RelationDef)
    return found


def values(reader: SourceReader | list[SourceRows]) -> list[tuple[Any, ...]]:
    """Return the rows of a source as tuples of values."""
    return [row for rows in reader for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def read(definition: StreamDef | RelationDef, on_bad_row: OnBadRow = "fail") -> list[tuple[Any, ...]]:
    """Return the rows of a source, all columns checked to be of the declared types."""
    chunks = list(open_source(definition, on_bad_row))
    for rows in chunks:
        assert [c.type for c in rows.columns] == [arrow_type(c.type) for c in definition.columns]
        assert rows.instants.dtype == np.int64
    return values(chunks)


def refused(definition: StreamDef | RelationDef) -> tuple[str, str]:
    """Return the code of the error that reading gives, and its message and hint."""
    with pytest.raises(CqlError) as caught:
        list(open_source(definition))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.advice(), "an error says what to do"
    return diagnostic.code.name, f"{diagnostic.message}; {diagnostic.advice()}"


def csv(text: str | bytes, columns: str, more: str = "") -> RelationDef:
    """Write a file and return a static relation over it."""
    Path("r.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return static(columns, f"csv OPTIONS (path 'r.csv'{', ' + more if more else ''})")


# csv


def test_csv_gives_the_declared_types() -> None:
    text = "true,1,2,3,1.5,2.50,x,2026-01-31 12:00:00\nFALSE,-1,+2, 3 ,1e3,2.505,y z,2026-01-31T12:00:00.5Z\n"
    columns = "a BOOLEAN, b BYTE, c INT, d BIGINT, e DOUBLE, f DECIMAL(5,2), g STRING, h TIMESTAMP"
    noon = datetime(2026, 1, 31, 12)
    assert read(csv(text, columns)) == [
        (True, 1, 2, 3, 1.5, Decimal("2.50"), "x", noon),
        (False, -1, 2, 3, 1000.0, Decimal("2.51"), "y z", noon.replace(microsecond=500_000)),
    ]


def test_csv_empty_fields_are_null() -> None:
    assert read(csv(',1,\n"",2,""\n', "a STRING, b INT, c DOUBLE")) == [(None, 1, None), (None, 2, None)]


def test_csv_another_null_value_as_in_spark() -> None:
    """Then an empty text can be written, between quotes."""
    text = 'NA,1\n"NA",2\n,3\n"",4\nNAN,5\n'
    expected = [(None, 1), (None, 2), (None, 3), ("", 4), ("NAN", 5)]
    assert read(csv(text, "a STRING, b INT", "nullValue 'NA'")) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ('"x,y"', "x,y"),
        ('"a""b"', 'a"b'),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"a\\"', "a\\"),
        (r'"a\tb"', r"a\tb"),
        (r"C:\temp", r"C:\temp"),
        (r"a\"b", r"a\"b"),
        (" y ", " y "),
        ("'x'", "'x'"),
        ("żółw", "żółw"),
    ],
)
def test_csv_quotes_and_escapes(field: str, value: str) -> None:
    assert read(csv(f"1,{field}\n2,\n", "a INT, b STRING")) == [(1, value), (2, None)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_line_ends_and_empty_lines(end: str) -> None:
    text = end.join(["a,b", "1,x", "", "2,y", "   ", "3,z"])
    assert read(csv(text, "a INT, b STRING", "header 'true'")) == [(1, "x"), (2, "y"), (3, "z")]


def test_csv_separator_quote_byte_order_mark_and_compression() -> None:
    assert read(csv("\ufeff1;'a;b'\n", "a INT, b STRING", "sep ';', quote ''''")) == [(1, "a;b")]
    assert read(csv("1\tx\n", "a INT, b STRING", r"delimiter '\t'")) == [(1, "x")]
    Path("z.csv.gz").write_bytes(gzip.compress(b"1,x\n"))
    assert read(static("a INT, b STRING", "csv OPTIONS (path 'z.csv.gz')")) == [(1, "x")]


def test_csv_nothing_in_a_file_is_no_row() -> None:
    for text in ("", "\n", "\n\n", "a,b", "a,b\n"):
        assert read(csv(text, "a INT, b STRING", "header 'true'")) == []


def test_doubles_have_one_zero_and_one_nan() -> None:
    (rows,) = open_source(csv("-0.0\nnan\nNaN\n-inf\n1\n\n", "a DOUBLE"))
    bits = np.asarray(rows.columns[0]).view(np.uint64).tolist()
    expected = np.array([0.0, np.nan, np.nan, -np.inf, 1.0]).view(np.uint64).tolist()
    assert bits == expected


BAD_CSV = [
    ("1,x\ny,z\n", "r.csv, line 2: the column 'a' is INT, and 'y' is not"),
    ("1,x\n\n2147483648,z\n", "r.csv, line 3: the column 'a' is INT, and '2147483648' is not"),
    ("1.5,x\n", "r.csv, line 1: the column 'a' is INT, and '1.5' is not"),
    ("0x1F,x\n", "r.csv, line 1: the column 'a' is INT, and '0x1F' is not"),
    ("1,x\n2\n", "r.csv, line 2: 2 columns are declared, and the line has 1"),
    ("1,x\n\n2,y,z\n3\n", "r.csv, line 3: 2 columns are declared, and the line has 3"),
    ('1,x\n2,"y\n3,z\n', "r.csv, line 2: a quote is opened and not closed in the line"),
    ("1,x\n2", "r.csv, line 2: 2 columns are declared, and the line has 1; the file seems to be cut off"),
    (b"1,x\n2,\xff\n", "r.csv, line 2: the column 'b' is STRING, and '\ufffd' is not"),
]


@pytest.mark.parametrize(("text", "message"), BAD_CSV)
def test_csv_a_bad_row_is_named(text: str | bytes, message: str) -> None:
    code, found = refused(csv(text, "a INT, b STRING"))
    assert code == "BAD_DATA"
    assert found.startswith(message)
    assert found.endswith("or leave bad rows out: SET on_bad_row = skip")


@pytest.mark.parametrize(("text", "message"), BAD_CSV)
def test_csv_bad_rows_are_left_out_and_counted(text: str | bytes, message: str) -> None:
    definition = csv(text, "a INT, b STRING")
    reader = open_source(definition, "skip")
    kept = [a for a, _ in values(reader)]
    lines = [line for line in Path("r.csv").read_bytes().splitlines() if line]
    assert reader.skipped >= 1
    assert len(kept) + reader.skipped == len(lines)


def test_not_null_columns_have_no_null() -> None:
    assert refused(csv("1,\n", "a INT, b STRING NOT NULL"))[1].startswith("r.csv, line 1: the column 'b' is NULL")


def test_line_numbers_count_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_BLOCK", "_SMALLEST_BLOCK", "_LARGEST_BLOCK"):
        monkeypatch.setattr(text_files_module, name, 16)
    lines = [f"{n},x" for n in range(100)]
    assert read(csv("\n".join(lines), "a INT, b STRING")) == [(n, "x") for n in range(100)]
    lines[70] = "x,x"
    assert "line 71: " in refused(csv("\r\n".join(lines), "a INT, b STRING"))[1]
    Path("r.json").write_text("".join(f'{{"a": {n}}}\n' for n in range(50)) + '{"a": true}\n')
    assert "line 51: " in refused(static("a INT", "json OPTIONS (path 'r.json')"))[1]


VALUES = {t.BOOLEAN: "true", t.INT: "1", t.DOUBLE: "1.5", t.decimal(4, 1): "1.5", t.TIMESTAMP: "2026-01-31"}


@pytest.mark.parametrize("data_type", VALUES, ids=str)
def test_only_white_space_may_stand_around_a_value(data_type: DataType) -> None:
    """What else does not print, a NUL before all, is damage: a bad row, whichever way a column is read."""
    for mark in (*map(chr, range(33)), "\x7f", "\x85", "\xa0", "\u2028"):
        for text in (VALUES[data_type] + mark, mark + VALUES[data_type]):
            _, bad = from_text(pa.array([VALUES[data_type], text]), data_type)
            assert (bad is None) == (mark in " \t\n\v\f\r"), (data_type, text)


def test_a_control_character_in_a_file_makes_a_bad_row() -> None:
    definition = csv(b"1\x00,x\n2,y\x00\n\x003,z\n 4\t,w\n", "a INT, b STRING")
    assert refused(definition)[1].startswith("r.csv, line 1: ")
    reader = open_source(definition, "skip")
    assert values(reader) == [(2, "y\0"), (4, "w")]
    assert reader.skipped == 2
    Path("r.json").write_bytes(b'{"a": 1\0}\n{"a": 2}\n{"a": 3}\0\n{"t": "2026-01-31\\u0000"}\n')
    reader = open_source(static("a INT, t TIMESTAMP", "json OPTIONS (path 'r.json')"), "skip")
    assert values(reader) == [(2, None)]
    assert reader.skipped == 3


def test_a_long_text_that_is_no_number_is_found_out_in_one_pass() -> None:
    """Of 50,000 digits and a letter an expression that may end them anywhere would try each place, a billion steps."""
    text = "1" * 50_000 + "x"
    for data_type in (t.DOUBLE, t.decimal(38, 2), t.BIGINT):
        assert from_text(pa.array([text]), data_type)[0].to_pylist() == [None]
        assert from_text_of_cast(text, data_type) is None


TEXTS = {
    t.INT: [
        "1",
        "-1",
        "+1",
        " 1",
        "1 ",
        "01",
        "0x10",
        "1e2",
        "1.0",
        "",
        "2147483647",
        "2147483648",
        "-2147483648",
        "x",
    ],
    t.BYTE: ["127", "128", "-128", "-129"],
    t.BIGINT: ["9223372036854775807", "9223372036854775808", "١"],
    t.DOUBLE: [
        "1",
        "-.5",
        "1.",
        ".",
        "1e5",
        "+1",
        "1e999",
        "1e-999",
        "nan",
        "-nan",
        "NaN",
        "inf",
        "-Infinity",
        "1d",
        "0x1p3",
    ],
    t.decimal(5, 2): [
        "1.005",
        "1.004",
        "-1.005",
        "999.995",
        "1000",
        "1e2",
        "1e-9",
        "1e999",
        "x",
        "nan",
    ],
    t.BOOLEAN: ["true", "FALSE", "t", "y", "0", "1", "2", "no", " yes "],
    t.TIMESTAMP: [
        "2026-01-31",
        "2026-01-31 12",
        "2026-01-31 12:00",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00:00.123456",
        "2026-01-31 12:00:00.1234567",
        "2026-01-31 12:00:00Z",
        "2026-01-31 12:00:00+02:00",
        "2026-01-31 12:00+0230",
        "2026-01-31Z",
        "2026-02-30",
        "2026-01-31 24:00:00",
        "2026-01-31 23:59:60",
        "0000-01-01",
        "0001-01-01",
        "0001-01-01 00:00+14:00",
        "9999-12-31 23:59:59.999999",
        " 2026-01-31 ",
        "26-01-31",
        "2026-01-31t12:00:00",
    ],
}


def agrees(texts: Sequence[str], data_type: DataType) -> bool:
    """Return whether texts are read as CAST defines, and exactly those are bad that have no value."""
    found, bad = from_text(pa.array(texts, pa.string()), data_type)
    expected = [cast(text, t.STRING, data_type) for text in texts]
    if data_type == t.TIMESTAMP:
        found = found.view(pa.int64())
    marks = [False] * len(texts) if bad is None else bad.tolist()
    is_same = found.to_pylist() == expected or (data_type == t.DOUBLE and repr(found.to_pylist()) == repr(expected))
    return is_same and marks == [value is None for value in expected]


@pytest.mark.parametrize("data_type", TEXTS, ids=str)
def test_a_text_is_read_as_cast_reads_it(data_type: DataType) -> None:
    for text in TEXTS[data_type]:
        assert agrees([text], data_type), text
    assert agrees(TEXTS[data_type], data_type)


@pytest.mark.fuzz
@pytest.mark.parametrize("data_type", TEXTS, ids=str)
def test_mixed_texts_are_read_as_cast_reads_them(data_type: DataType) -> None:
    rng = random.Random(str(data_type))
    alphabet = "0123456789+-.: eExTZ"
    for _ in range(CASES):
        texts = rng.choices(TEXTS[data_type], k=rng.randint(1, 4))
        at = rng.randrange(len(texts))
        cut = rng.randrange(len(texts[at]) + 1)
        texts[at] = texts[at][:cut] + rng.choice(alphabet) + texts[at][cut + rng.randint(0, 1) :]
        assert agrees(texts, data_type), texts


# Streams, logs of relations, static relations


def test_the_timestamp_of_a_stream_is_its_instant_and_stays_a_column() -> None:
    Path("s.csv").write_text("7,x\n8,y\n")
    (rows,) = open_source(table("CREATE STREAM s (t INT, k STRING) TIMESTAMP BY t FROM csv OPTIONS (path 's.csv')"))
    assert rows.instants.tolist() == [7, 8]
    assert values([rows]) == [(7, "x"), (8, "y")]
    assert rows.signs is None


def test_timestamps_are_microseconds() -> None:
    Path("s.csv").write_text("1970-01-01 00:00:01\n")
    (rows,) = open_source(table("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t FROM csv OPTIONS (path 's.csv')"))
    assert rows.instants.tolist() == [1_000_000]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("", "the column 't' is NULL, and a row needs its instant"),
        ("x", "the column 't' is BIGINT, and 'x' is not"),
        ("-9223372036854775808", "the column 't' is '-9223372036854775808', which no instant can be"),
        ("9223372036854775807", "the column 't' is '9223372036854775807', which no instant can be"),
    ],
)
def test_a_row_without_an_instant_is_bad(field: str, message: str) -> None:
    Path("s.csv").write_text(f"1,x\n{field},y\n")
    definition = table("CREATE STREAM s (t BIGINT, k STRING) TIMESTAMP BY t FROM csv OPTIONS (path 's.csv')")
    assert refused(definition)[1].startswith(f"s.csv, line 2: {message};")
    reader = open_source(definition, "skip")
    assert values(reader) == [(1, "x")]
    assert reader.skipped == 1


def test_a_static_relation_is_there_from_the_beginning() -> None:
    (rows,) = open_source(csv("1\n2\n", "a INT"))
    assert rows.instants.tolist() == [BEGINNING, BEGINNING]
    assert rows.signs is None


@pytest.mark.parametrize("sign_type", ["STRING", "INT"])
def test_a_log_has_instants_and_signs_beside_its_columns(sign_type: str) -> None:
    Path("r.json").write_text(
        '{"at": 1, "k": "x", "sign": "+"}\n{"at": 2, "k": "x", "sign": "-"}\n'
        if sign_type == "STRING"
        else '{"at": 1, "k": "x", "sign": 1}\n{"at": 2, "k": "x", "sign": -1}\n'
    )
    (rows,) = open_source(
        table(
            f"CREATE RELATION r (k STRING, at INT, sign {sign_type}) TIMESTAMP BY at SIGN BY sign "
            "FROM json OPTIONS (path 'r.json')"
        )
    )
    assert rows.instants.tolist() == [1, 2]
    assert rows.signs is not None and rows.signs.tolist() == [1, -1]
    assert values([rows]) == [("x",), ("x",)]


def test_the_columns_of_a_log_go_in_the_order_in_which_they_are_declared() -> None:
    Path("r.csv").write_text("x,5,-,7\n")
    (rows,) = open_source(
        table(
            "CREATE RELATION r (k STRING, at INT, sign STRING, v INT) TIMESTAMP BY at SIGN BY sign "
            "FROM csv OPTIONS (path 'r.csv')"
        )
    )
    assert rows.signs is not None
    assert (rows.instants.tolist(), rows.signs.tolist(), values([rows])) == ([5], [-1], [("x", 7)])


@pytest.mark.parametrize(
    ("sign", "weight"),
    [("+", 1), ("-", -1), ("1", 1), ("-1", -1), ("true", None), ("0", None), ("", None), ("2", None), ("+1", None)],
)
def test_signs(sign: str, weight: int | None) -> None:
    Path("r.dat").write_text(f"i,b,i\n5,{sign},7\n")
    definition = table("REGISTER RELATION R (A integer) FROM stream OPTIONS (path 'r.dat')")
    if weight is None:
        message = f"r.dat, line 2: column 2, the sign is '{sign}', and a sign is +, -, 1 or -1"
        assert refused(definition)[1].startswith(message)
    else:
        (rows,) = open_source(definition)
        assert rows.signs is not None and rows.signs.tolist() == [weight]


# STREAM's files


def stream_file(text: str, columns: str = "A integer", kind: str = "STREAM") -> StreamDef | RelationDef:
    Path("s.dat").write_text(text)
    return table(f"REGISTER {kind} S ({columns}) FROM stream OPTIONS (path 's.dat')")


def test_a_data_file_of_stream() -> None:
    definition = stream_file("i,i,f,b,c4\n1,1,1.1,a,abc\n2,2,2.2,b,", "A int, B float, C byte, D char(4)")
    (rows,) = open_source(definition)
    assert rows.instants.tolist() == [1, 2]
    assert values([rows]) == [(1, 1.1, "a", "abc"), (2, 2.2, "b", "")]


def test_quotes_mean_nothing_to_stream() -> None:
    assert read(stream_file('i,c9\n1,"x\n2,a"b\n', "A char(9)")) == [('"x',), ('a"b',)]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            "1,1\n",
            "BAD_FILE",
            "'s.dat' starts with '1,1'; the first line gives the types of its columns: i, f, b or cN",
        ),
        ("i,i,i\n", "BAD_FILE", "'s.dat' has 3 columns by its first line 'i,i,i', and S needs 2; "),
        ("i,i\n1,\n", "BAD_DATA", "s.dat, line 2: the column 'A' is INT, and '' is not; "),
        ("i,i\n1\n2,2\n", "BAD_DATA", "s.dat, line 2: 2 columns are declared, and the line has 1; "),
        ("i,i\nx,1\n", "BAD_DATA", "s.dat, line 2: column 1, the timestamp is BIGINT, and 'x' is not; "),
    ],
)
def test_a_data_file_of_stream_that_does_not_fit(text: str, code: str, message: str) -> None:
    found_code, found = refused(stream_file(text))
    assert found_code == code
    assert found.startswith(message)


@pytest.fixture
def corpora() -> Path:
    if not CORPORA.is_dir():
        if "CI" in os.environ:
            pytest.fail(f"the corpora are missing: {CORPORA} is not a folder", pytrace=False)
        pytest.skip(f"the corpora are not here: {CORPORA} is not a folder")
    return CORPORA


def test_what_is_read_from_a_corpus_is_written_as_stream_wrote_it(corpora: Path) -> None:
    for file, kind, columns, answer in [
        ("S3.dat", "STREAM", "A int, B float, C byte, D char(4)", "test1.out"),
        ("R1.dat", "RELATION", "A int", "test9.out"),
    ]:
        definition = table(f"REGISTER {kind} T ({columns}) FROM stream OPTIONS (path '{corpora}/stream/{file}')")
        with open_sink(query("stream", path="t.out"), definition.columns, True, TimeDomain.INTEGER) as writer:
            for rows in open_source(definition):
                writer.write(ChangeBatch(rows.columns, rows.instants, None, rows.signs, 0))
        found = Path("t.out").read_text().splitlines()
        expected = (corpora / "stream" / "expected" / answer).read_text().splitlines()
        assert found[: len(expected)] == expected
        assert len(found) - len(expected) <= 1, "STREAM never closes the last instant"


@pytest.mark.parametrize(("name", "count"), [("person", 20), ("auction", 40), ("bid", 50)])
def test_nexmark_is_read_whole(corpora: Path, name: str, count: int) -> None:
    path = corpora / "nexmark" / f"{name}.csv"
    names = path.read_text().splitlines()[0].split(",")
    columns = ", ".join(f"{n} {'TIMESTAMP' if n in ('date_time', 'expires') else 'STRING'}" for n in names)
    definition = table(
        f"CREATE STREAM s ({columns}) TIMESTAMP BY date_time FROM csv OPTIONS (path '{path}', header 'true')"
    )
    assert len(read(definition)) == count


# json


def from_json(text: str | bytes, columns: str) -> RelationDef:
    Path("r.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return static(columns, "json OPTIONS (path 'r.json')")


def test_json_gives_the_declared_types_and_null_for_what_is_missing() -> None:
    text = (
        '{"a": true, "b": 1, "c": 2.5, "d": 1.25, "e": "x", "f": "2026-01-31T12:00:00Z", "more": {"x": [1]}}\n'
        '\n{"b": null, "c": 2, "d": 7}\n{}'
    )
    columns = "a BOOLEAN, b BIGINT, c DOUBLE, d DECIMAL(5,2), e STRING, f TIMESTAMP"
    assert read(from_json(text, columns)) == [
        (True, 1, 2.5, Decimal("1.25"), "x", datetime(2026, 1, 31, 12)),
        (None, None, 2.0, Decimal("7.00"), None, None),
        (None, None, None, None, None, None),
    ]


BAD_JSON = [
    ('{"a": "1"}', "INT", "the column 'a' is INT, and '1' is not"),
    ('{"a": 1.0}', "INT", "the column 'a' is INT, and '\"1.0\"' is not"),
    ('{"a": 3000000000}', "INT", "the column 'a' is INT, and '3000000000' is not"),
    ('{"a": 1}', "STRING", "the column 'a' is STRING, and '1' is not"),
    ('{"a": 1}', "BOOLEAN", "the column 'a' is BOOLEAN, and '1' is not"),
    ('{"a": true}', "DOUBLE", "the column 'a' is DOUBLE, and 'true' is not"),
    ('{"a": [1]}', "INT", "the column 'a' is INT, and '[1]' is not"),
    ('{"a": {"b": 1}}', "STRING", "the column 'a' is STRING, and '{\"b\": 1}' is not"),
    ('{"a": 1234}', "DECIMAL(5,2)", "the column 'a' is DECIMAL(5,2), and '1234' is not"),
    ('{"a": "noon"}', "TIMESTAMP", "the column 'a' is TIMESTAMP, and 'noon' is not"),
    ('{"a": 5}', "TIMESTAMP", "the column 'a' is TIMESTAMP, and '5' is not"),
    ('{"a": 1} {"a": 2}', "INT", "the line is not JSON"),
    ("[1]", "INT", "the line is JSON, and no object"),
    ("x", "INT", "the line is not JSON"),
    ('{"a": "\\ud800"}', "STRING", "the column 'a' is STRING, and "),
]


@pytest.mark.parametrize(("line", "data_type", "message"), BAD_JSON)
def test_json_a_bad_row_is_named_or_left_out(line: str, data_type: str, message: str) -> None:
    definition = from_json(f"{{}}\n\n{line}\n{{}}\n", f"a {data_type}")
    code, found = refused(definition)
    assert (code, found.split(";")[0].startswith(f"r.json, line 3: {message}")) == ("BAD_DATA", True), found
    reader = open_source(definition, "skip")
    assert values(reader) == [(None,), (None,)]
    assert reader.skipped == 1


def test_json_half_a_line_and_what_is_not_utf8() -> None:
    found = refused(from_json('{"a": 1}\n{"a": ', "a INT"))[1]
    assert found.startswith("r.json, line 2: the line is not JSON; the file seems to be cut off")
    assert "line 1: the line is not UTF-8" in refused(from_json(b'{"a": "\xff"}\n', "a STRING"))[1]


def test_json_numbers_in_a_block_that_is_read_line_by_line_are_the_same() -> None:
    text = '{"a": 1, "b": 0.1, "c": 1.005}\n{"a": -0, "b": -0.0, "c": "3.1"}\n{"a": 2, "b": 1e400, "c": 1e1}\n'
    definition = from_json(text + '{"a": true}\n', "a INT, b DOUBLE, c DECIMAL(5,2)")
    expected = "[(1, 0.1, Decimal('1.01')), (0, 0.0, Decimal('3.10')), (2, inf, Decimal('10.00'))]"
    assert repr(read(definition, "skip")) == expected
    assert repr(read(from_json(text, "a INT, b DOUBLE, c DECIMAL(5,2)"))) == expected


# parquet


def from_parquet(columns: str, **arrays: pa.Array) -> RelationDef:
    parquet.write_table(pa.table(arrays), "r.parquet")
    return static(columns, "parquet OPTIONS (path 'r.parquet')")


def test_parquet_goes_by_name_and_widens_types() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 5)
    definition = from_parquet(
        "f STRING, a BIGINT, B DOUBLE, c DECIMAL(7,3), d TIMESTAMP, e TIMESTAMP, g BOOLEAN, h TIMESTAMP",
        a=pa.array([1, None], pa.int16()),
        b=pa.array([-0.0, 2.5], pa.float32()),
        c=pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        d=pa.array([moment.replace(tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        e=pa.array([date(2026, 1, 31), None]),
        f=pa.array(["x", None]).dictionary_encode(),
        g=pa.array([True, None]),
        h=pa.array([1999, None], pa.timestamp("ns")),
        other=pa.array([[1], []]),
    )
    assert repr(read(definition)[0]) == repr(
        ("x", 1, 0.0, Decimal("1.250"), moment, datetime(2026, 1, 31), True, datetime(1970, 1, 1, 0, 0, 0, 1))
    )
    assert read(definition)[1] == (None, None, 2.5, None, None, None, None, None)


def test_parquet_values_out_of_range_are_bad_rows() -> None:
    definition = from_parquet("a BYTE", a=pa.array([1, 200, None, -129]))
    assert refused(definition)[1].startswith("r.parquet, row 2: the column 'a' is BYTE, and '200' is not")
    reader = open_source(definition, "skip")
    assert (values(reader), reader.skipped) == ([(1,), (None,)], 2)
    far = from_parquet("a TIMESTAMP", a=pa.array([0, 10**12, None], pa.timestamp("s")))
    assert len(read(far, "skip")) == 2
    decimals = from_parquet("a DECIMAL(3,1)", a=pa.array([Decimal("1.25"), Decimal("123.00")]))
    assert read(decimals, "skip") == [(Decimal("1.3"),)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("prise INT", "'r.parquet' has no column 'prise'; did you mean price?"),
        ("zzz INT", "'r.parquet' has no column 'zzz'; its columns are price, name"),
        ("name INT", "'r.parquet' has string in the column 'name', which is declared INT; declare the column as"),
        (
            "price STRING",
            "'r.parquet' has int64 in the column 'price', which is declared STRING; declare the column as",
        ),
    ],
)
def test_parquet_columns_that_are_missing_or_of_another_type(columns: str, message: str) -> None:
    code, found = refused(from_parquet(columns, price=pa.array([1]), name=pa.array(["x"])))
    assert code == "BAD_FILE"
    assert found.startswith(message)


def test_parquet_files_that_are_none_or_cut_off() -> None:
    definition = from_parquet("a INT", a=pa.array(range(1000)))
    whole = Path("r.parquet").read_bytes()
    for content in (b"", b"a,b\n1,2\n", whole[:-4], whole[: len(whole) // 2]):
        Path("r.parquet").write_bytes(content)
        code, found = refused(definition)
        assert code == "BAD_FILE"
        assert found.endswith("it may be damaged or cut off; write it again")


# Paths and options


def test_a_path_is_a_file_a_folder_or_a_glob_and_files_come_in_the_order_of_their_names() -> None:
    folder = Path("in")
    folder.mkdir()
    for name, text in {"b.csv": "2\n", "a.csv": "1\n", "_c.csv": "x\n", ".d.csv": "x\n", "e.txt": "3\n"}.items():
        (folder / name).write_text(text)
    (folder / "sub").mkdir()
    for path, expected in {"in": [1, 2, 3], "in/*.csv": [1, 2], "in/b.csv": [2], "i*": [1, 2, 3]}.items():
        assert read(static("a INT", f"csv OPTIONS (path '{path}')")) == [(value,) for value in expected]
    Path("odd[1].csv").write_text("9\n")
    assert read(static("a INT", "csv OPTIONS (path 'odd[1].csv')")) == [(9,)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.csv", "there is no file 'none.csv'; paths are relative to the working directory, "),
        ("none/*.csv", "no file matches 'none/*.csv'; paths are relative to the working directory, "),
        ("empty", "there are no files in the folder 'empty'; "),
    ],
)
def test_paths_that_lead_nowhere(path: str, message: str) -> None:
    Path("empty").mkdir()
    code, found = refused(static("a INT", f"csv OPTIONS (path '{path}')"))
    assert code == "NO_FILE"
    assert found.startswith(message)


def test_a_compressed_file_that_is_cut_off() -> None:
    Path("z.csv.gz").write_bytes(gzip.compress(random.Random(1).randbytes(5000).hex().encode())[:-3000])
    assert refused(static("a STRING", "csv OPTIONS (path 'z.csv.gz')"))[0] == "BAD_FILE"


@pytest.mark.parametrize(
    ("source", "options", "code", "message"),
    [
        ("rate", {}, "NOT_AVAILABLE", "the local engine does not read the format rate; it reads csv, json, parquet or"),
        ("kafka", {"x": "y"}, "NOT_AVAILABLE", "the local engine does not read the format kafka; it reads csv, json"),
        ("csv", {"path": "x", "heade": "true"}, "UNKNOWN_OPTION", "the format csv has no option 'heade'; did you mean"),
        (
            "csv",
            {"path": "x", "multiLine": "true"},
            "NOT_AVAILABLE",
            "the local engine does not have the option 'multiL",
        ),
        ("csv", {"path": "x", "header": "yes"}, "BAD_OPTION_VALUE", "the option 'header' of csv cannot be 'yes'; it "),
        ("csv", {"path": "x", "sep": "||"}, "BAD_OPTION_VALUE", "the option 'sep' of csv cannot be '||'; it takes one"),
        ("csv", {"path": "x", "encoding": "utf-16"}, "BAD_OPTION_VALUE", "the option 'encoding' of csv cannot be "),
        ("csv", {}, "BAD_DEFINITION", "the format csv needs the option 'path'; write csv OPTIONS (path '..')"),
        (None, {}, "BAD_DEFINITION", "nothing says where the rows of 'r' come from; add FROM csv"),
    ],
)
def test_formats_and_options_that_the_local_engine_does_not_have(
    source: str | None, options: dict[str, str], code: str, message: str
) -> None:
    external = External(format=source, options=options) if source else None
    definition = static("a INT", "csv OPTIONS (path 'x')").model_copy(update={"source": external})
    found_code, found = refused(definition)
    assert found_code == code
    assert found.startswith(message)


def test_options_go_without_regard_to_case_and_those_about_speed_have_no_effect() -> None:
    assert read(csv("a\n1\n", "a INT", "HEADER 'TRUE', maxFilesPerTrigger '1'")) == [(1,)]


def test_unnamed_timestamps_cannot_be_found_by_name() -> None:
    definition = table("REGISTER STREAM S (A int) FROM json OPTIONS (path 'x')")
    assert refused(definition)[1].startswith("the timestamp of 'S' has no name, and columns of json are found by name")


# Writers


@dataclass(frozen=True)
class Column:
    name: str
    type: DataType


ALL = (
    Column("a", t.BOOLEAN),
    Column("b", t.INT),
    Column("c", t.DOUBLE),
    Column("d", t.decimal(20, 9)),
    Column("e", t.STRING),
    Column("f", t.TIMESTAMP),
)
ROWS: list[tuple[Any, ...]] = [
    (True, 1, 1.5, Decimal("1.250000000"), "x", datetime(2026, 1, 31, 12)),
    (False, -2, 3.0, Decimal("0.000000001"), 'a "b"\\\n\t\x00 ż', datetime(1, 1, 1)),
    (None, None, None, None, None, None),
    (True, 3, float("nan"), Decimal("-7.000000000"), "", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (True, 3, float("-inf"), Decimal("12345678901.000000000"), "c,d", datetime(1970, 1, 1, 0, 0, 0, 1)),
]


def query(format_name: str | None = None, **options: str) -> QueryDef:
    sink = External(format=format_name, options=options) if format_name else None
    return QueryDef(name="q1", text="SELECT 1", sink=sink)


def changes(
    columns: Sequence[Column], rows: Sequence[tuple[Any, ...]], instants: Sequence[int], weights: Sequence[int]
) -> ChangeBatch:
    """Return signed changes."""
    by_column = zip(*rows, strict=True)
    arrays = tuple(pa.array(v, arrow_type(c.type)) for c, v in zip(columns, by_column, strict=True))
    return ChangeBatch(arrays, np.array(instants, np.int64), None, np.array(weights, np.int64), 0)


KV = (Column("k", t.STRING), Column("v", t.INT))
SOME = changes(KV, [("x", 1), ("y", None), ("x", 1)], [1, 2, 2], [1, 2, -1])


def printed(
    batches: Sequence[ChangeBatch],
    columns: Sequence[Column] = KV,
    time: TimeDomain = TimeDomain.INTEGER,
    output: Any = "jsonl",
) -> str:
    """Return what a query without a sink prints."""
    out = io.StringIO()
    with open_sink(query(), columns, True, time, output, Screen(out)) as writer:
        for batch in batches:
            writer.write(batch)
    return out.getvalue()


def test_json_lines_have_the_form_that_scripts_rely_on() -> None:
    columns = (Column("k", t.INT), Column("total", t.DOUBLE))
    assert printed([changes(columns, [(1, 3.5)], [17], [1])], columns) == (
        '{"query": "q1", "ts": 17, "op": "+", "row": {"k": 1, "total": 3.5}}\n'
    )


def test_a_weight_beyond_one_repeats_the_line() -> None:
    found = [json.loads(line) for line in printed([SOME]).splitlines()]
    assert [(line["ts"], line["op"], line["row"]["k"]) for line in found] == [
        (1, "+", "x"),
        (2, "+", "y"),
        (2, "+", "y"),
        (2, "-", "x"),
    ]


def test_json_lines_hold_every_value() -> None:
    batch = changes(ALL, ROWS, [5, 6, 7, 8, 9], [1] * 5)
    lines = printed([batch], ALL, TimeDomain.TIMESTAMP).splitlines()
    found = [json.loads(line, parse_float=Decimal) for line in lines]
    assert found[0]["ts"] == "1970-01-01T00:00:00.000005Z"
    assert [list(line["row"].values()) for line in found] == [
        [True, 1, Decimal("1.5"), Decimal("1.25"), "x", "2026-01-31T12:00:00.000000Z"],
        [False, -2, Decimal("3.0"), Decimal("0.000000001"), 'a "b"\\\n\t\x00 ż', "0001-01-01T00:00:00.000000Z"],
        [None] * 6,
        [True, 3, "NaN", Decimal("-7"), "", "9999-12-31T23:59:59.999999Z"],
        [True, 3, "-Infinity", Decimal("12345678901"), "c,d", "1970-01-01T00:00:00.000001Z"],
    ]


def test_json_lines_of_slices_and_of_what_was_there_before_all_instants() -> None:
    batch = changes(KV, [("x", 1), ('"', 2), ("z", 3)], [BEGINNING, 4, 5], [1, 1, 1])
    found = [
        json.loads(line) for line in printed([batch.slice(0, 2), batch.slice(2, 3), batch.slice(3, 3)]).splitlines()
    ]
    assert [(line["ts"], line["row"]["k"]) for line in found] == [(None, "x"), (4, '"'), (5, "z")]


def test_a_name_of_a_column_or_query_is_escaped() -> None:
    columns = (Column('a "b"', t.INT),)
    assert json.loads(printed([changes(columns, [(1,)], [1], [1])], columns))["row"] == {'a "b"': 1}


def test_tables_are_aligned() -> None:
    assert printed([SOME], output="table").splitlines() == [
        "q1 (stream)",
        "ts     k     v",
        " 1  +  x     1",
        " 2  +  y  NULL",
        " 2  +  y  NULL",
        " 2  -  x     1",
    ]
    assert printed([], output="table") == "q1 (no results)\n"


def test_tables_are_aligned_where_characters_are_wide_or_not_printed() -> None:
    columns = (Column("v", t.INT), Column("名前", t.STRING), Column("w", t.INT))
    batch = changes(columns, [(1, "日本", 5), (2, "a\nb", 6)], [1, 2], [1, -1])
    assert printed([batch], columns, output="table").splitlines() == [
        "q1 (stream)",
        "ts     v  名前  w",
        " 1  +  1  日本  5",
        " 2  -  2  a\\nb  6",
    ]


def test_queries_that_print_tables_take_turns_under_headings() -> None:
    out = io.StringIO()
    screen = Screen(out)
    first, second = (open_sink(query(), KV, False, TimeDomain.INTEGER, "table", screen) for _ in range(2))
    many = changes(KV, [("x", 1)] * 1000, [1] * 1000, [1] * 1000)
    for writer in (first, first, second):
        writer.write(many)
    first.close()
    second.close()
    text = out.getvalue()
    assert text.count("q1 (relation)") == 2
    assert len(text.splitlines()) == 3000 + 2 * 2 + 1


def test_on_a_terminal_marks_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed([SOME], output="table")
    assert "\x1b[32m+\x1b[0m" in text and "\x1b[31m-\x1b[0m" in text


def test_stream_output_has_streams_form() -> None:
    columns = (Column("A", t.INT), Column("B", t.DOUBLE), Column("C", t.STRING))
    batch = changes(columns, [(1, 1.1, "x"), (2, 10 / 3, None), (3, 1e7, "y, z")], [1, 2, 3], [1, -1, 2])
    with open_sink(query("stream", path="new/out.txt"), columns, False, TimeDomain.INTEGER) as writer:
        writer.write(batch)
    assert Path("new/out.txt").read_text() == (
        "[1]:+:1, 1.1, x\n[2]:-:2, 3.33333, NULL\n[3]:+:3, 1e+07, y, z\n[3]:+:3, 1e+07, y, z\n"
    )


FOLDERS = {"csv": {"nullValue": "\\N"}, "json": {}, "parquet": {}}


@pytest.mark.parametrize("format_name", FOLDERS)
def test_what_is_written_can_be_read_as_a_relation(format_name: str) -> None:
    rows = [row for row in ROWS if format_name != "csv" or "\n" not in (row[4] or "")]
    if format_name == "json":
        rows = [row for row in rows if row[2] is None or abs(row[2]) < 10]
    instants = list(range(1, len(rows) + 1))
    batch = changes(ALL, rows, instants, [1, -1, 2, 1, 1][: len(rows)])
    options = {"path": "out/q", **FOLDERS[format_name]}
    with open_sink(query(format_name, **options), ALL, False, TimeDomain.TIMESTAMP) as writer:
        writer.write(batch.slice(0, 2))
        writer.write(batch.slice(2, len(batch)))
    assert [path.name for path in Path("out/q").iterdir()] == [f"part-00000.{format_name}"]
    columns = ", ".join(f"{column.name} {column.type}" for column in ALL)
    given = ", ".join(f"{key} '{value}'" for key, value in options.items())
    log = table(
        f"CREATE RELATION r (ts TIMESTAMP, op STRING, {columns}) TIMESTAMP BY ts SIGN BY op "
        f"FROM {format_name} OPTIONS ({given})"
    )
    (found,) = open_source(log)
    times = [abs(weight) for weight in batch.weights]
    assert found.instants.tolist() == np.repeat(instants, times).tolist()
    assert found.signs is not None and found.signs.tolist() == np.repeat(np.sign(batch.weights), times).tolist()
    assert repr(values([found])) == repr([row for row, n in zip(rows, times, strict=True) for _ in range(n)])


def test_columns_of_a_row_keep_their_names_beside_instant_and_mark() -> None:
    columns = (Column("ts", t.INT), Column("OP", t.INT))
    batch = changes(columns, [(5, 6)], [1], [1])
    for format_name, expected in {"json": '{"_ts": 1, "_op": "+", "ts": 5, "OP": 6}', "csv": "_ts,_op,ts,OP"}.items():
        options = {"header": "true"} if format_name == "csv" else {}
        with open_sink(query(format_name, path="o", **options), columns, True, TimeDomain.INTEGER) as writer:
            writer.write(batch)
        assert Path(f"o/part-00000.{format_name}").read_text().splitlines()[0] == expected


def test_csv_as_spark_writes_it() -> None:
    columns = (Column("a", t.STRING),)
    texts = ['a"b', "c,d", "", "\\x", None, 'a\\"b']
    with open_sink(query("csv", path="o"), columns, True, TimeDomain.INTEGER) as writer:
        writer.write(changes(columns, [(text,) for text in texts], range(6), [1] * 6))
    lines = Path("o/part-00000.csv").read_text().splitlines()
    assert [line.split(",", 2)[2] for line in lines] == [r'"a\"b"', '"c,d"', '""', r"\x", "", r'"a\\\"b"']


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize("format_name", ["stream", "csv", "json", "parquet"])
def test_a_result_appears_when_it_is_complete_and_not_before(format_name: str) -> None:
    writer = open_sink(query(format_name, path="a/b"), KV, False, TimeDomain.INTEGER)
    writer.write(SOME)
    assert all(Path(name).is_dir() or Path(name).name.startswith(".") for name in files())
    writer.close()
    assert not [name for name in files() if Path(name).name.startswith(".")]


@pytest.mark.parametrize("format_name", ["stream", "csv", "json", "parquet"])
def test_a_result_that_is_given_up_leaves_nothing_and_keeps_what_was_there(format_name: str) -> None:
    def fail_while_writing() -> None:
        with open_sink(query(format_name, path="a/b"), KV, False, TimeDomain.INTEGER) as writer:
            writer.write(SOME)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_writing()
    assert files() == []
    with open_sink(query(format_name, path="a/b"), KV, False, TimeDomain.INTEGER) as writer:
        writer.write(SOME)
    before = {name: Path(name).read_bytes() for name in files() if Path(name).is_file()}
    with pytest.raises(ZeroDivisionError):
        fail_while_writing()
    assert {name: Path(name).read_bytes() for name in files() if Path(name).is_file()} == before


def test_a_write_that_fails_leaves_nothing() -> None:
    writer = open_sink(query("parquet", path="o"), KV, False, TimeDomain.INTEGER)
    with pytest.raises(CqlError, match=r"'o/part-00000.parquet' cannot be written"):
        writer.write(changes((Column("k", t.INT), Column("v", t.STRING)), [(1, "x")], [1], [1]))
    assert files() == []


def test_results_are_kept_in_memory() -> None:
    writer = open_sink(query("memory"), KV, False, TimeDomain.INTEGER)
    assert isinstance(writer, KeptResults)
    writer.write(SOME)
    assert [batch.weights.tolist() for batch in writer.batches] == [[1, 2, -1]]


def occupied_by_a_folder() -> None:
    Path("o").mkdir()


def occupied_by_a_file() -> None:
    Path("o").touch()


@pytest.mark.parametrize(
    ("prepare", "sink", "code", "message"),
    [
        (
            occupied_by_a_folder,
            query("stream", path="o"),
            "CANNOT_WRITE",
            "'o' is a folder, and a file is to be written",
        ),
        (
            occupied_by_a_file,
            query("csv", path="o"),
            "CANNOT_WRITE",
            "'o' is a file, and a folder of csv files is to be",
        ),
        (
            occupied_by_a_file,
            query("json", path="o/x"),
            "CANNOT_WRITE",
            "'o/x/part-00000.json' cannot be written: Not a ",
        ),
        (None, query("kafka"), "NOT_AVAILABLE", "this version does not write the format kafka, on Spark or in this"),
        (None, query("csv", pat="o"), "UNKNOWN_OPTION", "the format csv has no option 'pat'; did you mean path?"),
        (None, query("csv"), "BAD_DEFINITION", "the format csv needs the option 'path'; write csv OPTIONS (path '..')"),
        (None, query("parquet", path="o", compression="x"), "BAD_OPTION_VALUE", "the option 'compression' of parquet"),
    ],
)
def test_sinks_that_cannot_be_opened(
    prepare: Callable[[], None] | None, sink: QueryDef, code: str, message: str
) -> None:
    if prepare:
        prepare()
    with pytest.raises(CqlError) as caught:
        open_sink(sink, KV, False, TimeDomain.INTEGER)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code.name == code
    assert f"{diagnostic.message}; {diagnostic.advice()}".startswith(message)


# Random files


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(5))
def test_lines_are_rows_whatever_the_blocks(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random lines, bad ones among them, give the same rows and count of bad ones in one block and in many."""
    pieces = ["1", "22", "x", '"', '""', '"a,b"', "\\", '\\"', ",", ",", "\r", " ", "ż", ""]
    for seed in range(part * CASES // 5, (part + 1) * CASES // 5):
        rng = random.Random(seed)
        text = "\n".join("".join(rng.choices(pieces, k=rng.randint(0, 6))) for _ in range(rng.randint(0, 12)))
        found = []
        for size in (1 << 20, 5):
            for name in ("_FIRST_BLOCK", "_SMALLEST_BLOCK", "_LARGEST_BLOCK"):
                monkeypatch.setattr(text_files_module, name, size)
            reader = open_source(csv(text, "a STRING, b INT"), "skip")
            found.append((values(reader), reader.skipped))
        assert found[0] == found[1], f"seed {seed}: {text!r}"
        lines = [line for line in re.split(r"\r\n|\r|\n", text) if line.strip(" \t\x0b\x0c")]
        assert len(found[0][0]) + found[0][1] == len(lines), f"seed {seed}: {text!r}"
