"""What expressions are bound to: types, `!` where they are never NULL, and what is refused.

Columns with a letter can be NULL, those with the letter doubled cannot: y BYTE, i INT, j BIGINT,
d DECIMAL(10,2), x DOUBLE, s STRING, f BOOLEAN, m TIMESTAMP. An expression is total: where it has no value (an
overflow, a division by zero, a text that is no number) it is NULL, so that arithmetic on whole numbers and
decimals can always be NULL.
"""

from decimal import Decimal

import pytest

from cql import Catalog, bound
from cql.binder import expressions as expression_binder
from cql.functions.aggregates import AGGREGATES
from cql.functions.scalars import CALLABLE, SCALARS
from tests.binding import bind, problems, types

COLUMNS = {
    "y": "BYTE",
    "i": "INT",
    "j": "BIGINT",
    "d": "DECIMAL(10,2)",
    "x": "DOUBLE",
    "s": "STRING",
    "f": "BOOLEAN",
}
COLUMNS |= {"m": "TIMESTAMP"}


@pytest.fixture(scope="module")
def values() -> Catalog:
    catalog = Catalog()
    nullable = [f"{name} {column}" for name, column in COLUMNS.items()]
    never_null = [f"{2 * name} {column} NOT NULL" for name, column in COLUMNS.items()]
    catalog.execute(f"CREATE STREAM V ({', '.join(nullable + never_null)}, at TIMESTAMP) TIMESTAMP BY at")

    @catalog.function(arguments=["BIGINT", "STRING"], returns="DECIMAL(10,2)")
    def rate(amount: int, currency: str) -> Decimal:
        return Decimal(amount)

    @catalog.aggregate(arguments=["DOUBLE"], returns="DOUBLE")
    class Spread:
        def add(self, value: float) -> None: ...
        def result(self) -> float:
            return 0.0

    return catalog


# By the function that an expression is bound to: expressions and their types.
TYPED: dict[str, dict[str, str]] = {
    "add": {
        "i + 1": "INT",
        "ii + ii": "INT",
        "yy + yy": "BYTE",
        "y + i": "INT",
        "ii + j": "BIGINT",
        "i + NULL": "INT",
        "x + 1": "DOUBLE",
        "xx + ii": "DOUBLE!",
        "xx + 0.5": "DOUBLE!",
        "d + 1": "DECIMAL(11,2)",
        "d + 100000000": "DECIMAL(12,2)",
        "dd + ii": "DECIMAL(13,2)",
        "d + NULL": "DECIMAL(11,2)",
        "m + INTERVAL '1 day'": "TIMESTAMP",
        "INTERVAL '1 day' + mm": "TIMESTAMP",
        "INTERVAL '1 day' + INTERVAL '1 hour'": "INTERVAL",
        "m + NULL": "TIMESTAMP",
        "NULL + INTERVAL '1 day'": "TIMESTAMP",
    },
    "subtract": {
        "i - 1": "INT",
        "xx - ii": "DOUBLE!",
        "d - 0.5": "DECIMAL(11,2)",
        "mm - INTERVAL '1 day'": "TIMESTAMP",
        "mm - mm": "INTERVAL",
        "INTERVAL '1 day' - INTERVAL '1 hour'": "INTERVAL",
        "NULL - INTERVAL '1 day'": "TIMESTAMP",
        "INTERVAL '1 day' - NULL": "INTERVAL",
        "m - NULL": "TIMESTAMP",
        "NULL - m": "INTERVAL",
    },
    "multiply": {
        "ii * ii": "INT",
        "xx * xx": "DOUBLE!",
        "d * d": "DECIMAL(21,4)",
        "2 * d": "DECIMAL(12,2)",
        "(mm - mm) * 2": "INTERVAL",
        "2 * INTERVAL '1 hour'": "INTERVAL",
        "INTERVAL '1 hour' * NULL": "INTERVAL",
    },
    "divide": {
        "ii / ii": "INT",
        "jj / ii": "BIGINT",
        "xx / xx": "DOUBLE",
        "dd / dd": "DECIMAL(23,13)",
        "d / 3": "DECIMAL(14,6)",
        "1 / 3": "INT",
    },
    "mod": {"ii % 2": "INT", "mod(jj, 2)": "BIGINT", "xx % 2": "DOUBLE", "mod(d, 3)": "DECIMAL(3,2)"},
    "negate": {
        "-ii": "INT",
        "-xx": "DOUBLE!",
        "-d": "DECIMAL(10,2)",
        "-INTERVAL '1 day'": "INTERVAL",
        "-NULL": "INT",
    },
    "eq": {
        "ii = 1": "BOOLEAN!",
        "i = 1": "BOOLEAN",
        "yy = dd": "BOOLEAN!",
        "ss = 'a'": "BOOLEAN!",
        "ff = TRUE": "BOOLEAN!",
        "mm = '2026-01-31'": "BOOLEAN!",
        "ii = NULL": "BOOLEAN",
        "NULL = NULL": "BOOLEAN",
    },
    "ne": {"ii <> 1": "BOOLEAN!", "i != 1": "BOOLEAN"},
    "lt": {"ii < xx": "BOOLEAN!", "'2026-01-31 12:00:00' < m": "BOOLEAN", "ff < TRUE": "BOOLEAN!"},
    "le": {"dd <= 1": "BOOLEAN!", "mm - mm <= INTERVAL '1 hour'": "BOOLEAN"},
    "gt": {"ss > 'a'": "BOOLEAN!"},
    "ge": {"y >= j": "BOOLEAN", "ii BETWEEN 1 AND 2": "BOOLEAN!", "ii NOT BETWEEN i AND 2": "BOOLEAN"},
    "is_distinct": {"i IS DISTINCT FROM NULL": "BOOLEAN!", "i IS NOT DISTINCT FROM x": "BOOLEAN!"},
    "and": {"ff AND ii = 1": "BOOLEAN!", "ff AND f": "BOOLEAN", "NULL AND ff": "BOOLEAN"},
    "or": {"ff OR ii = 1": "BOOLEAN!", "f OR TRUE": "BOOLEAN"},
    "not": {"NOT ff": "BOOLEAN!", "NOT f": "BOOLEAN", "NOT NULL": "BOOLEAN"},
    "is_null": {"i IS NULL": "BOOLEAN!", "s IS NOT NULL": "BOOLEAN!", "NULL IS NULL": "BOOLEAN!"},
    "in": {
        "ii IN (1, 2)": "BOOLEAN!",
        "ii IN (1, NULL)": "BOOLEAN",
        "ii NOT IN (j, x)": "BOOLEAN",
        "mm IN ('2026-01-31')": "BOOLEAN!",
    },
    "like": {"ss LIKE 'a%'": "BOOLEAN!", "s NOT LIKE 'a!%' ESCAPE '!'": "BOOLEAN", "ss LIKE NULL": "BOOLEAN"},
    "abs": {"abs(xx)": "DOUBLE!", "abs(ii)": "INT", "abs(d)": "DECIMAL(10,2)", "abs(NULL)": "INT"},
    "round": {
        "round(xx)": "DOUBLE!",
        "round(x, 2)": "DOUBLE",
        "round(i)": "INT",
        "round(d)": "DECIMAL(9,0)",
        "round(d, 1)": "DECIMAL(10,1)",
        "round(d, 5)": "DECIMAL(11,2)",
        "round(d, -1)": "DECIMAL(9,0)",
        "round(d, -20)": "DECIMAL(21,0)",
        "round(9.96, 1)": "DECIMAL(3,1)",
        "round(12345678901234567890123456789012345678, -99)": "DECIMAL(38,0)",
    },
    "floor": {
        "floor(xx)": "BIGINT",
        "floor(ii)": "BIGINT!",
        "floor(dd)": "DECIMAL(9,0)!",
        "floor(NULL)": "BIGINT",
    },
    "ceil": {
        "ceil(x)": "BIGINT",
        "ceiling(dd)": "DECIMAL(9,0)!",
        "ceil(99999999999999999999)": "DECIMAL(20,0)!",
        "ceil(0.5)": "DECIMAL(1,0)!",
    },
    "power": {"power(xx, 2)": "DOUBLE!", "pow(i, d)": "DOUBLE"},
    "sqrt": {"sqrt(ii)": "DOUBLE!"},
    "ln": {"ln(xx)": "DOUBLE"},
    "exp": {"exp(dd)": "DOUBLE!", "exp(NULL)": "DOUBLE"},
    "least": {"least(i, ii)": "INT!", "least(i, x)": "DOUBLE", "least(m, '2026-01-31')": "TIMESTAMP!"},
    "greatest": {"greatest(y, j, dd)": "DECIMAL(22,2)!", "greatest(s, NULL)": "STRING"},
    "coalesce": {
        "coalesce(i, 0)": "INT!",
        "coalesce(i, j)": "BIGINT",
        "coalesce(d, 0)": "DECIMAL(12,2)!",
        "coalesce(NULL, s)": "STRING",
        "coalesce(ii)": "INT!",
    },
    "nullif": {
        "nullif(ii, 0)": "INT",
        "nullif(d, 0)": "DECIMAL(10,2)",
        "nullif(y, 1.5)": "BYTE",
        "nullif(m, '2026-01-31')": "TIMESTAMP",
    },
    "upper": {"upper(ss)": "STRING!", "upper(NULL)": "STRING"},
    "lower": {"lower(s)": "STRING"},
    "length": {"length(ss)": "INT!", "char_length(s)": "INT"},
    "substr": {"substr(ss, 2)": "STRING!", "substr(ss, 2, i)": "STRING", "substring(ss, yy)": "STRING!"},
    "trim": {"trim(ss)": "STRING!"},
    "replace": {"replace(ss, 'a', 'b')": "STRING!", "replace(ss, 'a', s)": "STRING"},
    "concat": {
        "ss || 'a'": "STRING!",
        "concat(ss, s)": "STRING",
        "concat('a')": "STRING!",
        "NULL || NULL": "STRING",
    },
    "split_part": {"split_part(ss, ',', 2)": "STRING"},
    "overlap": {"overlap(ss, 'a b')": "BIGINT!", "OVERLAP(ss, s)": "BIGINT", "overlap(NULL, ss)": "BIGINT"},
    "inner_product": {"inner_product(ss, 'a:2 b')": "DOUBLE"},
    "regexp_like": {"regexp_like(ss, '^a+$')": "BOOLEAN!", "regexp_like(ss, '[[a]')": "BOOLEAN!"},
    "regexp_extract": {"regexp_extract(ss, '(a)')": "STRING!", "regexp_extract(s, '(a)', 1)": "STRING"},
    "extract": {
        "EXTRACT(year FROM mm)": "INT!",
        "EXTRACT(second FROM m)": "DECIMAL(8,6)",
        "EXTRACT(day FROM NULL)": "INT",
    },
    "date_format": {"date_format(mm, 'yyyy-MM-dd ''at'' HH:mm')": "STRING!"},
    "date_trunc": {"date_trunc('hour', mm)": "TIMESTAMP!", "date_trunc('WEEK', m)": "TIMESTAMP"},
    "epoch": {"epoch(mm)": "BIGINT!", "EXTRACT(epoch FROM m)": "BIGINT"},
}

# The same for calls that are refused, with the text that is marked.
REFUSED: dict[str, dict[str, tuple[str, str]]] = {
    "add": {
        "s + 1": ("TYPE_MISMATCH", "s + 1"),
        "1 + '2'": ("TYPE_MISMATCH", "1 + '2'"),
        "f + f": ("TYPE_MISMATCH", "f + f"),
        "m + 1": ("TYPE_MISMATCH", "m + 1"),
        "m + m": ("TYPE_MISMATCH", "m + m"),
    },
    "subtract": {
        "INTERVAL '1 day' - m": ("TYPE_MISMATCH", "INTERVAL '1 day' - m"),
        "m - 1": ("TYPE_MISMATCH", "m - 1"),
    },
    "multiply": {
        "s * 2": ("TYPE_MISMATCH", "s * 2"),
        "INTERVAL '1 day' * 1.5": ("TYPE_MISMATCH", "INTERVAL '1 day' * 1.5"),
    },
    "divide": {
        "s / 2": ("TYPE_MISMATCH", "s / 2"),
        "INTERVAL '1 day' / 2": ("TYPE_MISMATCH", "INTERVAL '1 day' / 2"),
    },
    "mod": {"f % 2": ("TYPE_MISMATCH", "f % 2"), "mod(1)": ("BAD_ARGUMENTS", "mod(1)")},
    "negate": {"-s": ("TYPE_MISMATCH", "-s"), "+f": ("TYPE_MISMATCH", "+f"), "-m": ("TYPE_MISMATCH", "-m")},
    "eq": {"s = 1": ("TYPE_MISMATCH", "s = 1"), "m = 'soon'": ("BAD_LITERAL", "'soon'")},
    "ne": {"f <> 1": ("TYPE_MISMATCH", "f <> 1")},
    "lt": {"m < 1": ("TYPE_MISMATCH", "m < 1")},
    "le": {"m - m <= 5": ("TYPE_MISMATCH", "m - m <= 5")},
    "gt": {"s > m": ("TYPE_MISMATCH", "s > m")},
    "ge": {"s BETWEEN 1 AND 2": ("TYPE_MISMATCH", "s BETWEEN 1 AND 2")},
    "is_distinct": {"s IS DISTINCT FROM 1": ("TYPE_MISMATCH", "s IS DISTINCT FROM 1")},
    "and": {"f AND i": ("TYPE_MISMATCH", "i")},
    "or": {"'a' OR f": ("TYPE_MISMATCH", "'a'")},
    "not": {"NOT i": ("TYPE_MISMATCH", "i")},
    "in": {
        "i IN (1, 'a')": ("TYPE_MISMATCH", "i IN (1, 'a')"),
        "(i, j) IN ((1, 2))": ("BAD_SUBQUERY", "(i, j)"),
    },
    "like": {
        "i LIKE 'a'": ("TYPE_MISMATCH", "i LIKE 'a'"),
        "s LIKE 'a' ESCAPE 'ab'": ("BAD_ARGUMENTS", "'ab'"),
    },
    "abs": {"abs(s)": ("BAD_ARGUMENTS", "abs(s)"), "abs()": ("BAD_ARGUMENTS", "abs()")},
    "round": {
        "round(s)": ("BAD_ARGUMENTS", "round(s)"),
        "round(x, i)": ("BAD_ARGUMENTS", "i"),
        "round(x, NULL)": ("BAD_ARGUMENTS", "NULL"),
        "round(x, 1.5)": ("BAD_ARGUMENTS", "1.5"),
        "round(x, 99999999999)": ("BAD_ARGUMENTS", "round(x, 99999999999)"),
        "round(x, 1, 2)": ("BAD_ARGUMENTS", "round(x, 1, 2)"),
    },
    "floor": {"floor(m)": ("BAD_ARGUMENTS", "floor(m)")},
    "ceil": {"ceiling(f)": ("BAD_ARGUMENTS", "ceiling(f)"), "ceil(1, 2)": ("BAD_ARGUMENTS", "ceil(1, 2)")},
    "power": {"pow(2)": ("BAD_ARGUMENTS", "pow(2)"), "power(s, 2)": ("BAD_ARGUMENTS", "power(s, 2)")},
    "sqrt": {"sqrt('4')": ("BAD_ARGUMENTS", "sqrt('4')")},
    "ln": {"ln(f)": ("BAD_ARGUMENTS", "ln(f)")},
    "exp": {"exp()": ("BAD_ARGUMENTS", "exp()")},
    "least": {"least(1)": ("BAD_ARGUMENTS", "least(1)"), "least(1, 'a')": ("BAD_ARGUMENTS", "least(1, 'a')")},
    "greatest": {"greatest(m, 1)": ("BAD_ARGUMENTS", "greatest(m, 1)")},
    "coalesce": {
        "coalesce()": ("BAD_ARGUMENTS", "coalesce()"),
        "coalesce(i, s)": ("BAD_ARGUMENTS", "coalesce(i, s)"),
    },
    "nullif": {
        "nullif(i)": ("BAD_ARGUMENTS", "nullif(i)"),
        "nullif(i, s)": ("BAD_ARGUMENTS", "nullif(i, s)"),
    },
    "upper": {"upper(1)": ("BAD_ARGUMENTS", "upper(1)")},
    "lower": {"lower(s, s)": ("BAD_ARGUMENTS", "lower(s, s)")},
    "length": {
        "length(1)": ("BAD_ARGUMENTS", "length(1)"),
        "char_length()": ("BAD_ARGUMENTS", "char_length()"),
    },
    "substr": {
        "substr(s)": ("BAD_ARGUMENTS", "substr(s)"),
        "substring(s, 'a')": ("BAD_ARGUMENTS", "substring(s, 'a')"),
        "substr(s, j)": ("BAD_ARGUMENTS", "substr(s, j)"),
    },
    "trim": {"trim(m)": ("BAD_ARGUMENTS", "trim(m)")},
    "replace": {"replace(s, 'a')": ("BAD_ARGUMENTS", "replace(s, 'a')")},
    "concat": {"concat()": ("BAD_ARGUMENTS", "concat()"), "s || 1": ("TYPE_MISMATCH", "s || 1")},
    "split_part": {"split_part(s, 1, 1)": ("BAD_ARGUMENTS", "split_part(s, 1, 1)")},
    "overlap": {"overlap(s)": ("BAD_ARGUMENTS", "overlap(s)"), "overlap(s, 1)": ("BAD_ARGUMENTS", "overlap(s, 1)")},
    "inner_product": {"inner_product(s, m)": ("BAD_ARGUMENTS", "inner_product(s, m)")},
    "regexp_like": {
        "regexp_like(s, '(')": ("BAD_ARGUMENTS", "'('"),
        "regexp_like(s, s)": ("BAD_ARGUMENTS", "s"),
        "regexp_like(s, 'a{1001}')": ("BAD_ARGUMENTS", "'a{1001}'"),
    },
    "regexp_extract": {"regexp_extract(s, 'a', 'b')": ("BAD_ARGUMENTS", "regexp_extract(s, 'a', 'b')")},
    "extract": {
        "EXTRACT(yaer FROM m)": ("BAD_ARGUMENTS", "yaer"),
        "EXTRACT(year FROM s)": ("TYPE_MISMATCH", "EXTRACT(year FROM s)"),
    },
    "date_format": {
        "date_format(m, s)": ("BAD_ARGUMENTS", "s"),
        "date_format(m, 'yyyyQ')": ("BAD_ARGUMENTS", "'yyyyQ'"),
        "date_format(m, 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyQ')": (
            "BAD_ARGUMENTS",
            "'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyQ'",
        ),
    },
    "date_trunc": {
        "date_trunc('fortnight', m)": ("BAD_ARGUMENTS", "'fortnight'"),
        "date_trunc(s, m)": ("BAD_ARGUMENTS", "s"),
        "date_trunc('hour', 1)": ("BAD_ARGUMENTS", "date_trunc('hour', 1)"),
    },
    "epoch": {
        "epoch(1)": ("BAD_ARGUMENTS", "epoch(1)"),
        "EXTRACT(epoch FROM 1)": ("BAD_ARGUMENTS", "EXTRACT(epoch FROM 1)"),
    },
}

AGGREGATES_TYPED: dict[str, dict[str, str]] = {
    "count": {
        "COUNT(*)": "BIGINT!",
        "COUNT(i)": "BIGINT!",
        "COUNT(DISTINCT s)": "BIGINT!",
        "COUNT(NULL)": "BIGINT!",
    },
    "sum": {
        "SUM(yy)": "BIGINT",
        "SUM(ii)": "BIGINT",
        "SUM(DISTINCT jj)": "BIGINT",
        "SUM(dd)": "DECIMAL(20,2)",
        "SUM(xx)": "DOUBLE",
        "SUM(CAST(d AS DECIMAL(38,2)))": "DECIMAL(38,2)",
        "SUM(NULL)": "BIGINT",
        "1 + SUM(ii) FILTER (WHERE f)": "BIGINT",
    },
    "avg": {
        "AVG(ii)": "DOUBLE",
        "AVG(dd)": "DECIMAL(14,6)",
        "AVG(CAST(d AS DECIMAL(38,37)))": "DECIMAL(38,38)",
    },
    "min": {"MIN(ss)": "STRING", "MIN(mm)": "TIMESTAMP", "MIN(ff)": "BOOLEAN"},
    "max": {"MAX(dd)": "DECIMAL(10,2)", "MAX(mm - mm)": "INTERVAL", "MAX(DISTINCT i)": "INT"},
    "stddev": {"STDDEV(ii)": "DOUBLE", "STDDEV(d)": "DOUBLE"},
    "variance": {"VARIANCE(xx)": "DOUBLE", "VARIANCE(NULL)": "DOUBLE"},
    "arg_min": {"ARG_MIN(ss, ii)": "STRING"},
    "arg_max": {"ARG_MAX(dd, mm)": "DECIMAL(10,2)"},
    "first": {"FIRST(ii)": "INT"},
    "last": {"LAST(ss) || 'a'": "STRING"},
    "approx_count_distinct": {"APPROX_COUNT_DISTINCT(s)": "BIGINT!"},
}

AGGREGATES_REFUSED: dict[str, dict[str, tuple[str, str]]] = {
    "count": {
        "COUNT()": ("BAD_ARGUMENTS", "COUNT()"),
        "COUNT(i, j)": ("BAD_ARGUMENTS", "COUNT(i, j)"),
        "COUNT(DISTINCT *)": ("BAD_ARGUMENTS", "COUNT(DISTINCT *)"),
        "COUNT(*) FILTER (WHERE i)": ("TYPE_MISMATCH", "i"),
    },
    "sum": {
        "SUM(s)": ("BAD_ARGUMENTS", "SUM(s)"),
        "SUM(*)": ("BAD_ARGUMENTS", "SUM(*)"),
        "SUM(SUM(i))": ("AGGREGATE_NOT_ALLOWED", "SUM(i)"),
        "SUM(i) FILTER (WHERE COUNT(*) > 1)": ("AGGREGATE_NOT_ALLOWED", "COUNT(*)"),
    },
    "avg": {"AVG(m)": ("BAD_ARGUMENTS", "AVG(m)")},
    "min": {"MIN(i, j)": ("BAD_ARGUMENTS", "MIN(i, j)")},
    "max": {"MAX()": ("BAD_ARGUMENTS", "MAX()")},
    "stddev": {
        "STDDEV(f)": ("BAD_ARGUMENTS", "STDDEV(f)"),
        "STDDEV(DISTINCT i)": ("BAD_ARGUMENTS", "STDDEV(DISTINCT i)"),
    },
    "variance": {"VARIANCE(s)": ("BAD_ARGUMENTS", "VARIANCE(s)")},
    "arg_min": {"ARG_MIN(i)": ("BAD_ARGUMENTS", "ARG_MIN(i)")},
    "arg_max": {"ARG_MAX(i, j, x)": ("BAD_ARGUMENTS", "ARG_MAX(i, j, x)")},
    "first": {"FIRST(DISTINCT i)": ("BAD_ARGUMENTS", "FIRST(DISTINCT i)")},
    "last": {"LAST(i, j)": ("BAD_ARGUMENTS", "LAST(i, j)")},
    "approx_count_distinct": {
        "APPROX_COUNT_DISTINCT(DISTINCT i)": ("BAD_ARGUMENTS", "APPROX_COUNT_DISTINCT(DISTINCT i)")
    },
}

# Constants, CASE, CAST and the functions of the user.
OTHERS_TYPED = {
    "7": "INT!",
    "2147483648": "BIGINT!",
    "-2147483648": "INT!",
    "-9223372036854775808": "BIGINT!",
    "9223372036854775808": "DECIMAL(19,0)!",
    "0.908": "DECIMAL(3,3)!",
    "00.50": "DECIMAL(2,2)!",
    "12.": "DECIMAL(2,0)!",
    ".5": "DECIMAL(1,1)!",
    "1e6": "DOUBLE!",
    "0e0": "DOUBLE!",
    "1e-999": "DOUBLE!",
    "0" * 5000: "INT!",
    "1234567890123456789012345678901234.5678": "DECIMAL(38,4)!",
    "'text'": "STRING!",
    "TRUE": "BOOLEAN!",
    "NULL": "STRING",
    "TIMESTAMP '2026-01-31 12:00:00.5Z'": "TIMESTAMP!",
    "INTERVAL '1 hour 30 minutes'": "INTERVAL!",
    "+ii": "INT!",
    "- -5": "INT",
    "CASE WHEN ff THEN 1 ELSE 2 END": "INT!",
    "CASE WHEN ff THEN 1 END": "INT",
    "CASE WHEN f THEN ii ELSE dd END": "DECIMAL(12,2)!",
    "CASE ii WHEN 1 THEN 'a' WHEN 2 THEN NULL ELSE 'b' END": "STRING",
    "CASE ii WHEN 1.5 THEN m ELSE '2026-01-31' END": "TIMESTAMP",
    "CASE WHEN NULL THEN NULL END": "STRING",
    "CAST(ii AS BIGINT)": "BIGINT!",
    "CAST(ii AS DOUBLE)": "DOUBLE!",
    "CAST(ii AS DECIMAL(12,2))": "DECIMAL(12,2)!",
    "CAST(ii AS DECIMAL(11,2))": "DECIMAL(11,2)",
    "CAST(jj AS INT)": "INT",
    "CAST(ss AS INT)": "INT",
    "CAST(ii AS STRING)": "STRING!",
    "CAST(mm AS VARCHAR(3))": "STRING!",
    "CAST(mm AS BIGINT)": "BIGINT",
    "CAST(ii AS BOOLEAN)": "BOOLEAN",
    "CAST(ii AS INT)": "INT!",
    "CAST(NULL AS TIMESTAMP)": "TIMESTAMP",
    "CAST(mm - mm AS STRING)": "STRING",
    "rate(ii, ss)": "DECIMAL(10,2)",
    "RATE(y, NULL)": "DECIMAL(10,2)",
    "SPREAD(ii)": "DOUBLE",
    "spread(DISTINCT d) FILTER (WHERE f)": "DOUBLE",
}

OTHERS_REFUSED = {
    "9" * 39: ("BAD_LITERAL", "9" * 39),
    "0." + "0" * 38 + "1": ("BAD_LITERAL", "0." + "0" * 38 + "1"),
    "1e999": ("BAD_LITERAL", "1e999"),
    "-1e999": ("BAD_LITERAL", "1e999"),
    "TIMESTAMP '2026-02-30'": ("BAD_LITERAL", "TIMESTAMP '2026-02-30'"),
    "TIMESTAMP '٢٠٢٦-٠١-٠١'": ("BAD_LITERAL", "TIMESTAMP '٢٠٢٦-٠١-٠١'"),
    "INTERVAL '0.5 us'": ("BAD_LITERAL", "INTERVAL '0.5 us'"),
    "CASE WHEN i THEN 1 END": ("TYPE_MISMATCH", "i"),
    "CASE i WHEN 'a' THEN 1 END": ("TYPE_MISMATCH", "'a'"),
    "CASE WHEN f THEN 1 ELSE 'a' END": ("TYPE_MISMATCH", "CASE WHEN f THEN 1 ELSE 'a' END"),
    "CAST(m AS BOOLEAN)": ("TYPE_MISMATCH", "CAST(m AS BOOLEAN)"),
    "CAST(f AS TIMESTAMP)": ("TYPE_MISMATCH", "CAST(f AS TIMESTAMP)"),
    "CAST(i AS FOO)": ("UNKNOWN_TYPE", "FOO"),
    "CAST(i AS DECIMAL(50,2))": ("UNKNOWN_TYPE", "DECIMAL(50,2)"),
    "rate(i)": ("BAD_ARGUMENTS", "rate(i)"),
    "rate(x, s)": ("BAD_ARGUMENTS", "x"),
    "rate(DISTINCT i, s)": ("BAD_ARGUMENTS", "rate(DISTINCT i, s)"),
    "upper(*)": ("BAD_ARGUMENTS", "upper(*)"),
    "spread(s)": ("BAD_ARGUMENTS", "s"),
    "nonsense(i)": ("UNKNOWN_FUNCTION", "nonsense"),
    "(i, j)": ("BAD_SUBQUERY", "(i, j)"),
    "V": ("TYPE_MISMATCH", "V"),
    "ROW_NUMBER() OVER (ORDER BY i)": ("BAD_ROW_NUMBER", "ROW_NUMBER() OVER (ORDER BY i)"),
    "SUM(i) OVER (ORDER BY i)": ("BAD_ROW_NUMBER", "SUM(i) OVER (ORDER BY i)"),
}


def cases(table: dict[str, dict[str, object]]) -> list[tuple[str, str, object]]:
    return [(function, text, expected) for function, each in table.items() for text, expected in each.items()]


def short(value: object) -> str | None:
    return value[:40] if isinstance(value, str) else None


@pytest.mark.parametrize(("function", "text", "expected"), cases(TYPED), ids=short)  # type: ignore[arg-type]
def test_a_function_has_the_type_and_nullability(values: Catalog, function: str, text: str, expected: str) -> None:
    tree = bind(f"SELECT {text} FROM V", values)
    assert types(tree) == expected
    item = next(iter(bound.expressions(bound.direct_inputs(tree)[0])))
    called = {part.function for part in bound.walk(item) if isinstance(part, bound.Call)}
    assert function in called or isinstance(item, bound.Case), f"{text} is bound to {called}"


@pytest.mark.parametrize(("function", "text", "expected"), cases(REFUSED), ids=short)  # type: ignore[arg-type]
def test_a_function_refuses_what_it_does_not_take(
    values: Catalog, function: str, text: str, expected: tuple[str, str]
) -> None:
    assert problems(f"SELECT {text} FROM V", values) == [expected]


@pytest.mark.parametrize(("function", "text", "expected"), cases(AGGREGATES_TYPED), ids=short)  # type: ignore[arg-type]
def test_an_aggregate_has_the_type_and_nullability(values: Catalog, function: str, text: str, expected: str) -> None:
    grouped = bind(f"SELECT {text} FROM V GROUP BY i", values)
    assert types(grouped) == types(bind(f"SELECT {text} FROM V", values)) == expected


@pytest.mark.parametrize(("function", "text", "expected"), cases(AGGREGATES_REFUSED), ids=short)  # type: ignore[arg-type]
def test_an_aggregate_refuses_what_it_does_not_take(
    values: Catalog, function: str, text: str, expected: tuple[str, str]
) -> None:
    assert problems(f"SELECT {text} FROM V", values) == [expected]


@pytest.mark.parametrize("text", OTHERS_TYPED, ids=short)
def test_type_and_nullability(values: Catalog, text: str) -> None:
    assert types(bind(f"SELECT {text} FROM V", values)) == OTHERS_TYPED[text]


@pytest.mark.parametrize("text", OTHERS_REFUSED, ids=short)
def test_what_is_refused(values: Catalog, text: str) -> None:
    assert problems(f"SELECT {text} FROM V", values) == [OTHERS_REFUSED[text]]


# That nothing is forgotten


@pytest.mark.parametrize("name", SCALARS)
def test_every_operator_and_function_has_cases(name: str) -> None:
    assert name in TYPED
    assert name in REFUSED or name == "is_null", "IS NULL takes everything"


@pytest.mark.parametrize("name", CALLABLE)
def test_every_spelling_is_called_in_a_case_and_refused_in_one(name: str) -> None:
    for table in (TYPED, REFUSED):
        assert any(f"{name}(" in text for each in table.values() for text in each)


@pytest.mark.parametrize("name", AGGREGATES)
def test_every_aggregate_has_cases(name: str) -> None:
    assert name in AGGREGATES_TYPED
    assert name in AGGREGATES_REFUSED


def test_every_kind_of_syntax_node_has_a_handler() -> None:
    from cql import ast

    kinds = {kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.Expression)}
    assert set(expression_binder._HANDLERS) == kinds - {ast.Expression}


# Constants


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", Decimal(2**63)),
        ("-12345678901234567890123456789012345678", Decimal("-12345678901234567890123456789012345678")),
        ("-0.12345678901234567890123456789012345678", Decimal("-0.12345678901234567890123456789012345678")),
        ("-1.50", Decimal("-1.50")),
        ("-1e3", -1000.0),
        ("1e-999", 0.0),
        ("'it''s'", "it's"),
        ("TIMESTAMP '1970-01-01T00:00:01.5+00:00'", 1_500_000),
        ("TIMESTAMP '1969-12-31 23:59:59.999999'", -1),
        ("TIMESTAMP '1970-01-01 02:00:00 +02:00'", 0),
        ("INTERVAL '1 minute'", 60_000_000),
    ],
)
def test_a_constant_keeps_its_value(values: Catalog, text: str, value: object) -> None:
    (literal,) = _items(f"SELECT {text} FROM V", values)
    assert isinstance(literal, bound.Literal)
    assert literal.value == value
    assert type(literal.value) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = 3", 3.0),
        ("d = 3", Decimal("3.00")),
        ("j = 3", 3),
        ("m = '1970-01-01 00:00:01'", 1_000_000),
        ("s = NULL", None),
        # The two sides meet in DECIMAL(38,0): digits after the point are rounded, halves away from zero.
        ("CAST(d AS DECIMAL(38,0)) = 0.5", Decimal("1")),
        ("CAST(d AS DECIMAL(38,0)) = -2.5", Decimal("-3")),
        ("d < 12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    ],
)
def test_constants_are_converted_when_a_query_is_bound(values: Catalog, text: str, value: object) -> None:
    (comparison,) = _items(f"SELECT {text} FROM V", values)
    constant = bound.children(comparison)[1]
    assert isinstance(constant, bound.Literal)
    assert constant.value == value
    assert type(constant.value) is type(value)


def test_long_conditions_stay_flat(values: Catalog) -> None:
    (condition,) = _items("SELECT i = 1 AND (j = 2 AND (x = 3 AND f)) FROM V", values)
    assert len(bound.children(condition)) == 4


def _items(query: str, catalog: Catalog) -> tuple[bound.Expr, ...]:
    tree = bind(query, catalog)
    return bound.expressions(bound.direct_inputs(tree)[0])


def test_only_aggregates_take_filter(values: Catalog) -> None:
    ((code, _),) = problems("SELECT upper(s) FILTER (WHERE f) FROM V", values)
    assert code == "BAD_ARGUMENTS"


# Odd inputs


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["i"] * 5000),
        " || ".join(["s"] * 5000),
        " + ".join(["i"] * 240),
        "- " * 400 + "i",
        "NOT " * 300 + "f",
        "CASE WHEN f THEN " * 200 + "1" + " END" * 200,
        "(" * 200 + "i" + ")" * 200,
        # What is compared several times doubles at every level.
        "(" * 60 + "f" + " BETWEEN f AND f)" * 60,
        "CASE " * 60 + "i" + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 60,
        "nullif(" * 60 + "y" + ", 1.5)" * 60,
        "EXISTS (SELECT 1 FROM V GROUP BY ff HAVING ff AND (" * 20 + "ff" + ") BETWEEN ff AND ff)" * 20,
    ],
    ids=short,
)
def test_deep_nesting_is_an_error_and_no_traceback(values: Catalog, text: str) -> None:
    ((code, _),) = problems(f"SELECT {text} FROM V", values)
    assert code in ("TOO_DEEP", "UNCLOSED")


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"i <> {n}" for n in range(2000)),
        f"i IN ({', '.join(str(n) for n in range(2000))})",
        f"coalesce({', '.join(['i'] * 1000)})",
        "CASE " + " ".join(f"WHEN i = {n} THEN {n}" for n in range(1000)) + " END",
        " + ".join(["i"] * 100),
        "'" + "😀\u0000\ud7ff\u202e" * 100 + "'",
        f"'{'a' * 100_000}'",
    ],
    ids=short,
)
def test_long_expressions_are_fine(values: Catalog, text: str) -> None:
    bind(f"SELECT {text} FROM V", values)
