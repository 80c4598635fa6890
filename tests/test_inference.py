"""FROM csv, json, parquet SCHEMA INFERRED: columns that are found by looking into files."""

import datetime
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cql import Catalog, CqlError
from tests.binding import marked, schema


def inferred(source: str, columns: str = "") -> str:
    """Return the columns of a static relation whose source is looked into."""
    catalog = Catalog()
    catalog.execute(f"CREATE RELATION z {columns} FROM {source}")
    return schema(catalog.relations["z"].scan())


def refused(source: str, columns: str = "") -> tuple[str, str]:
    text = f"CREATE RELATION z {columns} FROM {source}"
    catalog = Catalog()
    with pytest.raises(CqlError) as caught:
        catalog.execute(text)
    assert not catalog.relations
    ((code, place),) = marked(caught.value, text)
    return code, place


def csv(path: Path, more: str = "header 'true'") -> str:
    return f"csv SCHEMA INFERRED OPTIONS (path '{path}'{', ' + more if more else ''})"


# CSV

CSV = """\
id,price,name,ok,at,day,clock,empty
1,2.5,ann,true,2026-01-31 12:00:00,2026-01-31,12:00:00,
2,3,bob,false,2026-01-31T12:00:01,2026-02-01,12:30:00,
"""


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    path = tmp_path / "z.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def test_csv_with_a_header(csv_file: Path) -> None:
    assert inferred(csv(csv_file)) == (
        "id BIGINT, price DOUBLE, name STRING, ok BOOLEAN, at TIMESTAMP, day TIMESTAMP, clock STRING, empty STRING"
    )


def test_csv_without_a_header_has_the_names_that_spark_gives(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("1,a\n2,b\n")
    assert inferred(csv(tmp_path / "z.csv", "")) == "_c0 BIGINT, _c1 STRING"
    assert inferred(csv(tmp_path / "z.csv", "header 'FALSE'")) == "_c0 BIGINT, _c1 STRING"


@pytest.mark.parametrize(("separator", "option"), [("\t", "\\t"), ("\t", "\t"), (";", ";"), ("|", "|")])
def test_csv_with_another_separator(tmp_path: Path, separator: str, option: str) -> None:
    (tmp_path / "z.csv").write_text(f"a{separator}b\n1{separator}x\n")
    for name in ("sep", "DELIMITER"):
        assert inferred(csv(tmp_path / "z.csv", f"header 'true', {name} '{option}'")) == "a BIGINT, b STRING"


def test_csv_that_seems_to_have_another_separator(tmp_path: Path) -> None:
    path = tmp_path / "z.csv"
    path.write_text("day;degrees\nmonday;1,5\n")
    with pytest.raises(CqlError) as caught:
        inferred(csv(path))
    assert "sep ';'" in (caught.value.diagnostics[0].hint or "")


def test_csv_that_is_compressed(tmp_path: Path) -> None:
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n"))
    assert inferred(csv(tmp_path / "z.csv.gz")) == "a BIGINT, b STRING"


def test_declared_columns_override_what_is_found(csv_file: Path) -> None:
    found = inferred(csv(csv_file), "(PRICE DECIMAL(10,2) NOT NULL, id INT)")
    assert found.startswith("id INT, PRICE DECIMAL(10,2)!, name STRING")
    assert refused(csv(csv_file), "(prize INT)") == ("UNKNOWN_COLUMN", "prize")


def test_a_stream_has_its_timestamp_among_the_columns_found(csv_file: Path) -> None:
    catalog = Catalog()
    catalog.execute(f"CREATE STREAM z TIMESTAMP BY at DELAY 5 SECONDS FROM {csv(csv_file)}")
    assert catalog.streams["z"].time.name == "TIMESTAMP"
    assert "at TIMESTAMP!" in schema(catalog.streams["z"].scan())
    with pytest.raises(CqlError, match="E408"):
        catalog.execute(f"CREATE STREAM y TIMESTAMP BY name FROM {csv(csv_file)}")
    with pytest.raises(CqlError, match="E202"):
        catalog.execute(f"CREATE STREAM y TIMESTAMP BY att FROM {csv(csv_file)}")


# JSON


def json_source(path: Path) -> str:
    return f"json SCHEMA INFERRED OPTIONS (path '{path}')"


def test_json(tmp_path: Path) -> None:
    lines = ['{"a": 1, "b": "x", "c": 1.5, "d": true, "e": null}', '{"a": 2, "b": null, "f": "2026-01-31 12:00:00"}']
    (tmp_path / "z.json").write_text("\n".join(lines))
    expected = "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e STRING, f TIMESTAMP"
    assert inferred(json_source(tmp_path / "z.json")) == expected


def test_only_the_beginning_of_a_long_json_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "z.json").write_text('{"a": 1}\n' * 150_000 + '{"a": "no number"}\n')
    assert inferred(json_source(tmp_path / "z.json")) == "a BIGINT"


# Parquet


def parquet_source(path: Path) -> str:
    return f"parquet SCHEMA INFERRED OPTIONS (path '{path}')"


def write(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def test_parquet(tmp_path: Path) -> None:
    path = write(
        tmp_path / "z.parquet",
        y=pa.array([1], pa.int8()),
        h=pa.array([1], pa.int16()),
        i=pa.array([1], pa.int32()),
        j=pa.array([1], pa.int64()),
        u=pa.array([1], pa.uint32()),
        x=pa.array([1], pa.float32()),
        d=pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        s=pa.array(["a"], pa.large_string()),
        c=pa.array(["a"]).dictionary_encode(),
        f=pa.array([True]),
        m=pa.array([datetime.datetime(2026, 1, 31)], pa.timestamp("us")),
        n=pa.array([datetime.date(2026, 1, 31)]),
    )
    assert inferred(parquet_source(path)) == (
        "y BYTE, h INT, i INT, j BIGINT, u BIGINT, x DOUBLE, d DECIMAL(10,2), s STRING, c STRING, f BOOLEAN, "
        "m TIMESTAMP, n TIMESTAMP"
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([b"a"]),
        pa.array([Decimal(1)], pa.decimal256(50, 2)),
        pa.array([datetime.time(12)]),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_cql_does_not_have(tmp_path: Path, column: Any) -> None:
    path = write(tmp_path / "z.parquet", a=column)
    assert refused(parquet_source(path)) == ("CANNOT_INFER", f"'{path}'")


# Where files are


def test_a_folder_or_a_glob_stands_for_its_first_file(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("hidden\n1\n")
    (folder / "b.csv").write_text("b\n1\n")
    (folder / "a.csv").write_text("a\nx\n")
    assert inferred(csv(folder)) == "a STRING"
    assert inferred(csv(folder / "*.csv")) == "a STRING"
    assert inferred(csv(folder / "b*")) == "b BIGINT"
    assert inferred(csv(tmp_path / "d*")) == "a STRING"


def test_a_path_is_relative_to_the_working_directory(csv_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(csv_file.parent)
    assert inferred(csv(Path("z.csv"))).startswith("id BIGINT")


def test_a_name_with_the_marks_of_a_glob_is_found(tmp_path: Path) -> None:
    (tmp_path / "z[1].csv").write_text("a\n1\n")
    assert inferred(csv(tmp_path / "z[1].csv")) == "a BIGINT"


def test_a_rate_source_has_two_columns() -> None:
    assert inferred("rate SCHEMA INFERRED") == "timestamp TIMESTAMP, value BIGINT"


# What goes wrong


@pytest.mark.parametrize(
    "path", ["nowhere.csv", "", "a\0b", "\ud800", "x" * 5000, "nowhere/*.csv", "/dev/null/x", "[", "~nobody/x"]
)
def test_no_file(path: str) -> None:
    code, place = refused(f"csv SCHEMA INFERRED OPTIONS (path '{path}')")
    assert code in ("NO_FILE", "CANNOT_INFER") or (path, code) == ("", "BAD_DEFINITION")
    assert place == f"'{path}'"


def test_an_empty_folder(tmp_path: Path) -> None:
    assert refused(csv(tmp_path))[0] == "NO_FILE"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("z.csv", b""),
        ("z.csv", b"a,b\n1\n"),
        ("z.csv", b"a,A\n1,2\n"),
        ("z.csv", b"a,,b\n1,2,3\n"),
        ("z.csv", b"a\n\xff\xfe\xfa\n"),
        ("z.json", b""),
        ("z.json", b"{}"),
        ("z.json", b"nonsense"),
        ("z.json", b'{"a": [1, 2]}'),
        ("z.json", b'{"a": 1, "a": 2}'),
        ("z.json", b'{"a": 1}\n{"a": "x"}'),
        ("z.json", b"[1, 2]"),
        ("z.parquet", b"nonsense"),
        ("z.parquet", b""),
    ],
    ids=str,
)
def test_a_file_without_columns_to_find(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    options = ", header 'true'" if name == "z.csv" else ""
    source = f"{path.suffix[1:]} SCHEMA INFERRED OPTIONS (path '{path}'{options})"
    assert refused(source) == ("CANNOT_INFER", f"'{path}'")


@pytest.mark.parametrize("separator", ["", "ab", "é", "\n"])
def test_a_separator_that_cannot_be_one(csv_file: Path, separator: str) -> None:
    assert refused(csv(csv_file, f"sep '{separator}'"))[0] == "BAD_OPTION_VALUE"


@pytest.mark.parametrize("source", ["socket SCHEMA INFERRED OPTIONS (host 'h', port 1)", "mine SCHEMA INFERRED"])
def test_sources_that_cannot_be_looked_into(source: str) -> None:
    assert refused(source)[0] == "CANNOT_INFER"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "z.json").write_text('{"a": 1}')

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert refused(json_source(tmp_path / "z.json"))[0] == "NO_FILE"
