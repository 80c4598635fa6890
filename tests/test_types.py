"""Types and the rules that combine them. What the tables say about DECIMAL was compared with Spark SQL 4."""

import pytest

from cql import types as t
from cql.types import parse_type

NAMES = ["BOOLEAN", "BYTE", "INT", "BIGINT", "DECIMAL(10,2)", "DOUBLE", "STRING", "TIMESTAMP"]


def named(text: str) -> t.DataType:
    return {"NULL": t.NULL, "INTERVAL": t.INTERVAL}.get(text) or parse_type(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", "INT"),
        ("INTEGER", "INT"),
        ("bigint", "BIGINT"),
        ("byte", "BYTE"),
        ("float", "DOUBLE"),
        ("real", "DOUBLE"),
        ("double", "DOUBLE"),
        ("varchar", "STRING"),
        ("VARCHAR(20)", "STRING"),
        ("char(1)", "STRING"),
        ("  timestamp  ", "TIMESTAMP"),
        ("decimal", "DECIMAL(10,0)"),
        ("numeric(7)", "DECIMAL(7,0)"),
        ("Decimal( 38 , 38 )", "DECIMAL(38,38)"),
    ],
)
def test_a_text_names_a_type(text: str, expected: str) -> None:
    assert str(parse_type(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "FOO",
            "INT(3)",
            "DECIMAL(0,0)",
            "DECIMAL(39,1)",
            "DECIMAL(3,4)",
            "DECIMAL(1,1,1)",
            "CHAR(1,2)",
        ),
        *("TIMESTAMP(3)", "NULL", "INTERVAL", "DECIMAL(99999,1)", "INT INT", "größe"),
    ],
)
def test_a_text_that_names_no_type_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_type(text)


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_written_as_it_is_read(name: str) -> None:
    assert str(parse_type(name)) == name


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("BYTE", "INT", "INT"),
        ("INT", "BIGINT", "BIGINT"),
        ("BIGINT", "DOUBLE", "DOUBLE"),
        ("DECIMAL(38,10)", "DOUBLE", "DOUBLE"),
        ("BYTE", "DECIMAL(4,2)", "DECIMAL(5,2)"),
        ("INT", "DECIMAL(5,2)", "DECIMAL(12,2)"),
        ("BIGINT", "DECIMAL(5,2)", "DECIMAL(22,2)"),
        ("DECIMAL(10,2)", "DECIMAL(5,4)", "DECIMAL(12,4)"),
        # Where digits do not fit, those after the point give way.
        ("DECIMAL(38,10)", "DECIMAL(38,0)", "DECIMAL(38,0)"),
        ("DECIMAL(38,10)", "DECIMAL(38,20)", "DECIMAL(38,10)"),
        ("DECIMAL(38,38)", "BIGINT", "DECIMAL(38,18)"),
        ("NULL", "STRING", "STRING"),
        ("NULL", "NULL", "NULL"),
        ("STRING", "INT", None),
        ("BOOLEAN", "INT", None),
        ("TIMESTAMP", "STRING", None),
        ("TIMESTAMP", "BIGINT", None),
        ("INTERVAL", "INT", None),
    ],
)
def test_common_type(left: str, right: str, expected: str | None) -> None:
    for one, other in ((left, right), (right, left)):
        found = t.common_type(named(one), named(other))
        assert (found and str(found)) == expected


@pytest.mark.parametrize("name", [*NAMES, "NULL", "INTERVAL"])
def test_a_type_is_its_own_common_type(name: str) -> None:
    assert t.common_type(named(name), named(name)) == named(name)


ARITHMETIC = [
    # The operands, then the types of + - * / %.
    ("BYTE", "BYTE", "BYTE", "BYTE", "BYTE", "BYTE", "BYTE"),
    ("BYTE", "INT", "INT", "INT", "INT", "INT", "INT"),
    ("INT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT"),
    ("BIGINT", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE"),
    ("DECIMAL(10,2)", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE", "DOUBLE"),
    (
        *("DECIMAL(10,2)", "DECIMAL(10,2)"),
        *("DECIMAL(11,2)", "DECIMAL(11,2)", "DECIMAL(21,4)", "DECIMAL(23,13)", "DECIMAL(10,2)"),
    ),
    (
        *("DECIMAL(10,2)", "INT"),
        *("DECIMAL(13,2)", "DECIMAL(13,2)", "DECIMAL(21,2)", "DECIMAL(21,13)", "DECIMAL(10,2)"),
    ),
    (
        *("BYTE", "DECIMAL(5,5)"),
        *("DECIMAL(9,5)", "DECIMAL(9,5)", "DECIMAL(9,5)", "DECIMAL(14,6)", "DECIMAL(5,5)"),
    ),
    (
        *("DECIMAL(38,10)", "DECIMAL(10,2)"),
        *("DECIMAL(38,9)", "DECIMAL(38,9)", "DECIMAL(38,6)", "DECIMAL(38,8)", "DECIMAL(18,10)"),
    ),
    (
        *("DECIMAL(38,10)", "DECIMAL(38,10)"),
        *("DECIMAL(38,9)", "DECIMAL(38,9)", "DECIMAL(38,6)", "DECIMAL(38,6)", "DECIMAL(38,10)"),
    ),
    (
        *("DECIMAL(38,0)", "DECIMAL(5,5)"),
        *("DECIMAL(38,5)", "DECIMAL(38,5)", "DECIMAL(38,5)", "DECIMAL(38,6)", "DECIMAL(5,5)"),
    ),
    (
        "NULL",
        "DECIMAL(10,2)",
        "DECIMAL(11,2)",
        "DECIMAL(11,2)",
        "DECIMAL(21,4)",
        "DECIMAL(23,13)",
        "DECIMAL(10,2)",
    ),
    ("NULL", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT"),
    ("NULL", "NULL", "INT", "INT", "INT", "INT", "INT"),
    ("STRING", "INT", None, None, None, None, None),
    ("TIMESTAMP", "INT", None, None, None, None, None),
    ("BOOLEAN", "BOOLEAN", None, None, None, None, None),
]


@pytest.mark.parametrize("row", ARITHMETIC, ids=lambda row: f"{row[0]} {row[1]}")
def test_arithmetic_type(row: tuple[str | None, ...]) -> None:
    left, right, *expected = row
    assert left and right
    found = [t.arithmetic_type(operator, named(left), named(right)) for operator in "+-*/%"]
    assert [each and str(each) for each in found] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "INT"),
        (2**31 - 1, "INT"),
        (2**31, "BIGINT"),
        (-(2**31), "INT"),
        (-(2**31) - 1, "BIGINT"),
        (2**63 - 1, "BIGINT"),
        (2**63, "DECIMAL(19,0)"),
        (-(2**63), "BIGINT"),
        (-(2**63) - 1, "DECIMAL(19,0)"),
        (10**38 - 1, "DECIMAL(38,0)"),
    ],
)
def test_type_of_a_whole_number(value: int, expected: str) -> None:
    assert str(t.literal_integer_type(value)) == expected


CASTABLE = {
    "BOOLEAN": "BOOLEAN BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING",
    "INT": "BOOLEAN BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING TIMESTAMP",
    "DECIMAL(10,2)": "BOOLEAN BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING TIMESTAMP",
    "DOUBLE": "BOOLEAN BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING TIMESTAMP",
    "STRING": "BOOLEAN BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING TIMESTAMP",
    "TIMESTAMP": "BYTE INT BIGINT DECIMAL(10,2) DOUBLE STRING TIMESTAMP",
    "INTERVAL": "STRING",
    "NULL": " ".join(NAMES),
}


@pytest.mark.parametrize("source", CASTABLE)
def test_castable(source: str) -> None:
    assert [name for name in NAMES if t.castable(named(source), named(name))] == CASTABLE[source].split()


def test_only_numbers_are_numeric_and_only_whole_ones_integers() -> None:
    assert [name for name in NAMES if named(name).is_numeric] == NAMES[1:6]
    assert [name for name in NAMES if named(name).is_integer] == NAMES[1:4]
