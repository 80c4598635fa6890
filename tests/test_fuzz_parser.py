"""Nothing that can be typed makes the front end fail: it returns statements and well-placed diagnostics.

Most inputs come from plain seeded generators, which are quick and the same on every run; hypothesis adds a
few that it can shrink. `make fuzz FUZZ=200000` (or the variable CQL_FUZZ) sets how many inputs each
generator makes. A failure ends with the text that caused it.
"""

import random
import re
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cql.catalog import Catalog
from cql.errors import render
from cql.parsing import ParsedScript, parse_script, parse_statement
from cql.parsing.stream_script import is_stream_script
from cql.printer import to_text
from cql.session import Session
from cql.source import SourceText, Span
from tests import strategies
from tests.strategies import KEYWORDS

pytestmark = pytest.mark.fuzz

SECONDS = 5.0
"""What one input may take: far more than any does, so that only a blow-up exceeds it on a busy machine."""

QUERIES = """
Select * From S;
Select Istream(a, b As c) From S [Range 10 Seconds Slide 2 Seconds] As X, R Where X.a = R.a And b > 1.5e3;
Istream(Select Distinct S.a From S [Now], T [Rows 5] Where S.a = T.a Or Not S.b Is Null);
Select Count(*), Avg(price) From bid [Partition By auction Rows 10] Group By auction Having Count(*) > 1;
Rstream(Select item, Max(price) m From bid [Range 1 Minute] Group By item Order By m Desc Limit 3);
Select a From S Where a In (Select b From T) And Exists (Select * From U Where U.x = S.a);
Select Case When a Between 1 And 2 Then 'x' Else Cast(b As Varchar(10)) End From S x Left Join T y On x.a = 1;
S1 [Range 5 Seconds] Union All S2 [Range 5 Seconds] Except (Select 1 From T);
With v (x) As (Select a From S) Select x From v, (Select "o n" From T) [Now] t Where x Like 'a' Escape 'b';
Select Row_Number() Over (Partition By a Order By b Desc Nulls Last), Sum(x) Filter (Where x <> 0) From S;
Select Extract(hour From ts), ts - Interval '1 hour 30 minutes', Timestamp '2026-01-01 00:00:00' From S;
Create Stream bid (auction Bigint Not Null, price Decimal(10, 2), ts Timestamp) Timestamp By ts
  Delay 5 Seconds From csv Options (path 'bid.csv', header 'true', max.files 10);
Create Relation person (id Int, at Int, sg String) Timestamp By at Sign By sg From json;
Create View v (a, b) As Select * From S Full Outer Join (T Cross Join U) On S.a = T.a;
Register Query hot As Select * From v With (mode = 'append', n = 1 + 1) Into csv Options (path 'out');
Register Stream S (a Integer, b Char(8)); Drop View v; Explain Json Query hot; Show Streams; Describe S;
Try Select a From S [Rows 2]; Set shedding.policy = 'random'; Start; Stop; -- the end
"""
SCRIPTS = (
    "table : register stream S (a integer, b char(8));\nsource : data/S.dat\n",
    '#n\ntable : register relation R (a integer);\nsource : "R.dat"\nquery : select * from R;\ndest : out\n',
    "vquery : select a from S union R;\nvtable : register relation V (a integer);\nquery : select * from V;",
)
MARKS = (
    *"()[],.;*+-/%=<>:!?@#$&|\\^~{}'\"`",
    *("<>", "<=", ">=", "!=", "||", "--", "/*", "*/", "==", "::", "''", '""'),
    *("\n", "\t", "\r\n", " ", "\ufeff"),
)
LITERALS = (
    *("0", "7", "1.5", ".5", "5.", "1e6", "1e", "12345678901234567890"),
    *("'x'", "'it''s'", "'5 seconds'", "''", '"q n"', "`k`"),
    *("a", "b", "S", "x", "größe", "数", "İn", "ſ", "seconds", "ms", "count", "table :", "query:"),
    *("\0", "\u2028", "\u200b", "\xa0", "\ud800", "\U0001f600", "e\u0301", "-- c\n", "/* c */", "# c\n"),
)
TOKENS = (*KEYWORDS, *(word.lower() for word in KEYWORDS), *MARKS * 3, *LITERALS * 2)


# ------------------------------------------------------------------------------------ the function under test


def run_front_end(text: str) -> ParsedScript:
    """Do all that is done with a text before it is run, and check what every text has to keep."""
    started = time.process_time()
    source = SourceText("f", text)
    script = parse_script(source)
    for diagnostic in script.diagnostics:
        assert lies_within(diagnostic.span, text), diagnostic
        assert render(diagnostic, source)
    for statement in script.statements:
        assert lies_within(statement.span, text), statement
    for diagnostic in Session(Catalog()).run_script(source)[1]:
        assert lies_within(diagnostic.span, text), diagnostic
        assert render(diagnostic, source)
    taken = time.process_time() - started
    assert taken < SECONDS, f"it took {taken:.1f} s"
    return script


def lies_within(span: Span, text: str) -> bool:
    return 0 <= span.start <= span.end <= len(text)


def check_canonical_text(script: ParsedScript) -> None:
    """What was read can be printed and read again. (STREAM scripts mean things that CQL has no words for.)"""
    if not is_stream_script(script.source.text):
        for statement in script.statements:
            assert parse_statement(to_text(statement)) == statement


def check(text: str) -> ParsedScript:
    try:
        script = run_front_end(text)
        check_canonical_text(script)
    except Exception as error:
        error.add_note(f"the input was {text!r}")
        raise
    return script


# ------------------------------------------------------------------------------------------------- generators


def bytes_as_text(rng: random.Random) -> str:
    data = rng.randbytes(rng.randrange(60))
    if rng.random() < 0.5:  # mostly printable, so that some of it gets past the first character
        data = bytes(byte % 96 + 32 for byte in data)
    return data.decode(rng.choice(["latin-1", "utf-8"]), errors="replace")


def token_soup(rng: random.Random) -> str:
    separator = rng.choice([" ", " ", " ", ""])
    return separator.join(rng.choices(TOKENS, k=rng.randrange(1, 15)))


TOKEN = re.compile(r"\w+|\s+|'[^']*'|\"[^\"]*\"|.", re.DOTALL)


def mutations(seeds: list[str]) -> Callable[[random.Random], str]:
    """Return a generator of texts that were right until one to three of their tokens were changed."""

    def mutated(rng: random.Random) -> str:
        text = rng.choice(seeds)
        tokens = TOKEN.findall(text) if rng.random() < 0.7 else list(text)
        for _ in range(rng.choice([1, 1, 2, 3])):
            rng.choice(CHANGES)(rng, tokens)
        return "".join(tokens)

    return mutated


def delete(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        del tokens[rng.randrange(len(tokens))]


def duplicate(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        at = rng.randrange(len(tokens))
        tokens.insert(at, tokens[at])


def swap(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]


def insert(rng: random.Random, tokens: list[str]) -> None:
    tokens.insert(rng.randrange(len(tokens) + 1), rng.choice(TOKENS))


def replace(rng: random.Random, tokens: list[str]) -> None:
    if tokens:
        tokens[rng.randrange(len(tokens))] = rng.choice(TOKENS)


def cut_off(rng: random.Random, tokens: list[str]) -> None:
    del tokens[rng.randrange(len(tokens) + 1) :]


CHANGES = (delete, duplicate, swap, insert, replace, cut_off)


def generated(generate: Callable[[random.Random], str], usually: int) -> Iterator[str]:
    rng = random.Random(generate.__name__)
    return (generate(rng) for _ in range(strategies.inputs_to_try(usually)))


# ------------------------------------------------------------------------------------------------------ tests


def test_bytes_end_in_diagnostics() -> None:
    for text in generated(bytes_as_text, 8_000):
        check(text)


def test_token_soup_ends_in_diagnostics() -> None:
    for text in generated(token_soup, 10_000):
        check(text)


def test_mutated_queries_end_in_statements_or_diagnostics() -> None:
    seeds = [*QUERIES.strip().split(";\n"), *SCRIPTS]
    for text in seeds:
        assert not check(text).diagnostics
    outcomes = [bool(check(text).diagnostics) for text in generated(mutations(seeds), 7_000)]
    assert 0.05 < outcomes.count(False) / len(outcomes) < 0.95, "the mutations are too mild or too wild"


def test_mutated_random_trees_end_in_statements_or_diagnostics() -> None:
    trees = strategies.sample(strategies.statements(2), 300)
    seeds = [text for text in map(to_text, trees) if len(text) < 300]
    for text in generated(mutations(seeds), 5_000):
        check(text)


@settings(max_examples=strategies.trees_to_try(150))
@given(st.text() | st.lists(st.sampled_from(TOKENS)).map(" ".join) | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_ends_in_statements_or_diagnostics(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " " * 100_000,
        ";" * 100_000,
        "(" * 100_000,
        ")" * 100_000,
        "[" * 100_000,
        "'" * 100_001,
        '"' * 100_001,
        "/*" * 50_000,
        "--" * 50_000,
        "'\n" * 10_001,
        "\"'`\n" * 10_000,
        "a" * 100_000,
        "9" * 100_000,
        "select " * 10_000,
        "select a, " * 3_000,
        "select " + "a, " * 10_000 + "b from s",
        "select " + "(" * 99 + "a" + ")" * 99 + " from s",
        "select " + "(" * 101 + "a" + ")" * 101 + " from s",
        "select a from s where " + "not " * 10_000 + "a",
        "select a from s where " + "- " * 10_000 + "a",
        "select a" + " + a" * 10_000 + " from s",
        "select a from s where a" + " and a" * 10_000,
        "select case when " * 1_000,
        "a" + " union a" * 10_000,
        "select * from a" + " cross join a" * 10_000,
        "select " + "(select a from s where b = " * 99 + "1" + ")" * 99 + " from s",
        "select a from s limit " + "9" * 10_000,
        "select a from s [range " + "9" * 10_000 + " days]",
        "select a from s [range '" + "1 day " * 10_000 + "']",
        "select a from s [range '" + "1" * 10_000 + "']",
        "table : " * 10_000,
        "table : register stream S (a int);\nsource : x\n" * 1_000,
    ],
    ids=lambda text: f"{text[:20]!r} of {len(text)}",
)
def test_extreme_texts_end_in_statements_or_diagnostics(text: str) -> None:
    check(text)
