"""LIKE and regular expressions take time in proportion to the text, whatever pattern and text are."""

from __future__ import annotations

from random import Random
from time import process_time

import pyarrow as pa
import pytest

from cql import Catalog, CqlError, bind
from cql import types as t
from cql.bound import Expr
from runtime.expressions import compile_expression, plain
from tests.definition import scalars as definition
from tests.test_engine_expressions import call, column, literal

LENGTH = 50_000
ALMOST = "a" * LENGTH + "b"
REGEXES = ("^(a+)+$", "(a|a)*c", "(a*)*c", "a*a*a*a*c", "(.*)(.*)(.*)(.*)c", "a?" * 30 + "c$", "(?:a{0,30}){0,30}c")
LIKES = ("%a%a%a%a%a%c", "%a_a%a_a%c", "a%a%a%a%c%", "%" + "a%" * 300 + "c")
SECONDS = 20
"""Far more than any of these takes, and far less than trying all ways does."""


def value(expression: Expr, *texts: pa.Array) -> list[object]:
    """Return the values of an expression, within the time that no search in all ways would meet."""
    start = process_time()
    found = compile_expression(expression)(texts, len(texts[0])).to_pylist()
    assert process_time() - start < SECONDS
    return found


@pytest.mark.parametrize("regex", REGEXES, ids=len)
def test_no_regular_expression_takes_for_ever(regex: str) -> None:
    text, pattern = column(0, t.STRING), literal(regex, t.STRING)
    texts = pa.array([ALMOST])
    assert value(call("regexp_like", t.BOOLEAN, text, pattern), texts) == [False]
    assert value(call("regexp_extract", t.STRING, text, pattern), texts) == [""]


@pytest.mark.parametrize("pattern", LIKES, ids=len)
def test_no_pattern_of_like_takes_for_ever(pattern: str) -> None:
    texts, patterns = pa.array([ALMOST] * 3), pa.array([pattern, None, "%b"])
    constant = call("like", t.BOOLEAN, column(0, t.STRING), literal(pattern, t.STRING))
    assert value(constant, texts) == [False] * 3
    varying = call("like", t.BOOLEAN, column(0, t.STRING), column(1, t.STRING))
    assert value(varying, texts, patterns) == [False, None, True]
    assert value(call("like", t.BOOLEAN, literal(ALMOST, t.STRING), column(0, t.STRING)), patterns) == [
        False,
        None,
        True,
    ]
    assert not plain.like(ALMOST, pattern)


def test_a_pattern_that_is_too_large_for_the_machine_of_expressions() -> None:
    """RE2 compiles a pattern in eight megabytes; what does not fit is matched piece by piece."""
    large = "%" + "_x" * 80_000 + "%y"
    texts = pa.array(["ax" * 80_000 + "y", "ax" * 80_000, None])
    pattern = call("like", t.BOOLEAN, column(0, t.STRING), literal(large, t.STRING))
    assert value(pattern, texts) == [True, False, None]


def test_random_patterns_of_like_agree_with_the_definition() -> None:
    """In groups by pattern, each as a constant, and piece by piece as for those that RE2 refuses."""
    rng = Random(20)

    def made(letters: str, most: int) -> str:
        return "".join(rng.choices(letters, k=rng.randint(0, most)))

    for _ in range(40):
        patterns = [made("aab%%__\\\nä!", 7) if rng.random() < 0.9 else None for _ in range(40)]
        rows = [
            (None if rng.random() < 0.1 else made("aaabA\nä%\\😀", 8), rng.choice(patterns[:8] + patterns))
            for _ in range(60)
        ]
        escape = rng.choice(("\\", "!", "%"))
        texts, given = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
        wanted = [
            None if None in row else definition.call("like", (*row, escape), t.BOOLEAN)  # type: ignore[arg-type]
            for row in rows
        ]
        expression = call("like", t.BOOLEAN, column(0, t.STRING), column(1, t.STRING), literal(escape, t.STRING))
        assert value(expression, texts, given) == wanted
        for (text, pattern), want in zip(rows, wanted, strict=True):
            if want is not None:
                assert plain.like(text or "", pattern or "", escape) is want, (text, pattern, escape)


def test_random_regular_expressions_agree_with_the_definition() -> None:
    rng = Random(21)
    items = ("a", "b", "ä", ".", "[ab]", r"[^a\s]", r"\s", r"\S", r"\d", r"\W", "[]a]", r"\\", r"\(", "[(]")

    def made(levels: int) -> str:
        parts = []
        for _ in range(rng.randint(1, 3)):
            part = rng.choice(items)
            if levels and rng.random() < 0.4:
                inside = made(levels - 1)
                part = f"({inside})" if rng.random() < 0.7 else f"(?:{inside})"
            elif rng.random() < 0.4:
                part += rng.choice(("*", "+", "?", "*?", "{1,2}"))
            parts.append(part)
        text = "".join(parts) + rng.choice(("", "", "", "$"))
        return f"{text}|{made(0)}" if rng.random() < 0.2 else text

    texts = ["".join(rng.choices("aabä 1\n\v\\(:[]", k=rng.randint(0, 8))) for _ in range(40)]
    for _ in range(120):
        regex = rng.choice(("", "", "^")) + made(2)
        for group in (0, 1, 2, 9):
            arguments = (literal(regex, t.STRING), literal(group, t.INT))
            found = value(call("regexp_extract", t.STRING, column(0, t.STRING), *arguments), pa.array(texts))
            wanted = [definition.call("regexp_extract", (text, regex, group), t.STRING) for text in texts]
            assert found == wanted, (regex, group)
        like = call("regexp_like", t.BOOLEAN, column(0, t.STRING), arguments[0])
        assert value(like, pa.array(texts)) == [
            definition.call("regexp_like", (text, regex), t.BOOLEAN) for text in texts
        ]


def test_the_group_of_each_row() -> None:
    expression = call(
        "regexp_extract", t.STRING, column(0, t.STRING), literal("(?P<k>a)(?i:B)(?<n>c)", t.STRING), column(1, t.INT)
    )
    texts, groups = pa.array(["abc", "aBc", None, "x", "abc"]), pa.array([1, 2, 1, 0, None], pa.int32())
    assert value(expression, texts, groups) == ["a", "c", None, "", None]


@pytest.mark.parametrize(
    "regex", ["(", r"(a)\1", "(?=a)", "(?<!a)b", "a{1001}", "a++", r"a\Z", "x" * 1_000_000], ids=len
)
def test_what_re2_refuses_is_said_where_it_stands(regex: str) -> None:
    catalog = Catalog()
    catalog.execute("CREATE STREAM s (k STRING, at INT) TIMESTAMP BY at")
    with pytest.raises(CqlError) as caught:
        bind(f"SELECT k FROM s WHERE regexp_like(k, '{regex}')", catalog)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code.name == "BAD_ARGUMENTS"
    assert diagnostic.span is not None and diagnostic.span.start == len("SELECT k FROM s WHERE regexp_like(k, ")
