"""Random syntax trees: hypothesis strategies for everything that the grammar can yield, and only that.

The trees are in the forms that the parser builds. `x IN ((query))` is an `InQuery` and never an `InList` of
one scalar query; a chain of AND or OR has two operands or more; a name alone is a query only as an operand of
a set operation or under ORDER BY and LIMIT; and so on. `depth` bounds how deep nodes nest.
"""

import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from cql import ast
from cql.intervals import Interval, Unit
from cql.parsing.parser import Dialect, _lark

T = TypeVar("T")

KEYWORDS = tuple(
    sorted(
        terminal.pattern.value.upper()
        for terminal in _lark(Dialect.CQL).terminals
        if terminal.pattern.type == "str" and terminal.pattern.value.isalpha()
    )
)
# Words of terminals that are not plain keywords.
WORDS = (
    "SCHEMA",
    "INFERRED",
    "NULLS",
    "FIRST",
    "LAST",
    "s",
    "ms",
    "us",
    "d",
    "h",
    "Seconds",
    "minute",
    "DAYS",
)
DEPTH = 3


def some(elements: SearchStrategy, least: int = 1, most: int = 3) -> SearchStrategy:
    """A tuple of a few elements."""
    return st.lists(elements, min_size=least, max_size=most).map(tuple)


def choice(*strategies: SearchStrategy) -> SearchStrategy:
    """One of some strategies, each as likely as another, which `st.one_of` does not give."""
    return st.sampled_from(range(len(strategies))).flatmap(strategies.__getitem__)


def maybe(strategy: SearchStrategy) -> SearchStrategy:
    return st.none() | strategy


# ----------------------------------------------------------------------------------------- names and literals

identifiers = st.one_of(
    st.sampled_from(["a", "b", "S", "bid", "price", "_x1", "größe", "数量", "aſ", "K"]),
    st.sampled_from(KEYWORDS + WORDS).flatmap(lambda word: st.sampled_from([word, word.lower(), word.capitalize()])),
    st.sampled_from(["ſELECT", "İN", "lımıt", "li\u212ae", "ORDERS", "selected", "x²"]),
    st.from_regex(r"[^\W\d]\w{0,4}", fullmatch=True),
)
odd_texts = st.one_of(
    st.sampled_from(['"', "`", "'", "a b", "1st", "--", "/*", "a.b", ";", "[", "a\nb", "\ufeff", "select *"]),
    st.text(max_size=5),
)
name_texts = st.one_of(identifiers, identifiers, odd_texts.filter(bool))
names = st.builds(ast.Name, name_texts)
# The key of an option: words with dots, or any string.
keys = st.builds(ast.Name, some(identifiers, most=2).map(".".join) | odd_texts)

counts = st.integers(0, 30) | st.integers(0, 10**18 - 1)
number_texts = st.sampled_from(["0", "1", "42", "007", "0.908", "5.", ".5", "1e6", "2.5E-3", "9" * 40]) | (
    st.from_regex(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", fullmatch=True)
)
numbers = st.builds(ast.Number, number_texts)
strings = st.builds(ast.String, odd_texts)
booleans = st.builds(ast.Boolean, st.booleans())

amounts = st.sampled_from(["1", "10", "0", "1.5", "5.", ".5", "007", "-1", "+2", "-.5", "٣"]) | st.from_regex(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", fullmatch=True
)
intervals = st.builds(Interval, some(st.tuples(amounts, st.sampled_from(Unit))))
interval_literals = st.builds(ast.IntervalLiteral, intervals)

type_words = st.one_of(
    st.sampled_from(["INT", "VARCHAR", "DECIMAL", "größe", "ΐ", "timeﬆamp"]),
    st.sampled_from(KEYWORDS),
    st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True),
).filter(lambda word: word != "TIMESTAMP")
types = st.just(ast.TypeName("TIMESTAMP")) | st.builds(ast.TypeName, type_words, some(counts, 0, 2))


# ------------------------------------------------------------------------------------------------ expressions

columns = st.builds(ast.Column, names, maybe(names))
literals = st.one_of(
    numbers,
    strings,
    booleans,
    st.just(ast.Null()),
    st.builds(ast.TimestampLiteral, odd_texts),
    interval_literals,
)

OPERATORS = (
    *("+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">="),
    *("IS DISTINCT FROM", "IS NOT DISTINCT FROM"),
)


@cache
def expressions(depth: int = DEPTH) -> SearchStrategy[ast.Expression]:
    leaves = columns | literals
    if depth == 0:
        return leaves
    inner = expressions(depth - 1)
    query = st.deferred(lambda: queries(depth - 1))
    return choice(
        leaves,
        st.builds(ast.Unary, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds(ast.Binary, st.sampled_from(OPERATORS), inner, inner),
        st.builds(ast.Logical, st.sampled_from(["AND", "OR"]), some(inner, 2)),
        st.builds(ast.Between, inner, inner, inner, st.booleans()),
        st.builds(ast.InList, inner, some(inner).filter(is_list), st.booleans()),
        st.builds(ast.InQuery, inner, query, st.booleans()),
        st.builds(ast.Like, inner, inner, maybe(inner), st.booleans()),
        st.builds(ast.IsNull, inner, st.booleans()),
        st.builds(ast.Exists, query),
        st.builds(ast.ScalarQuery, query),
        st.builds(ast.Row, some(inner, 2)),
        st.builds(ast.Case, maybe(inner), some(st.tuples(inner, inner), most=2), maybe(inner)),
        st.builds(ast.Cast, inner, types),
        st.builds(ast.Extract, names, inner),
        calls(depth),
        st.builds(ast.WindowCall, calls(depth), some(inner, 0, 2), some(sort_keys(depth - 1), 0, 2)),
    )


def is_list(items: tuple[ast.Expression, ...]) -> bool:
    """Whether the items of IN are not one query in parentheses, which is a query and no list."""
    return len(items) > 1 or not isinstance(items[0], ast.ScalarQuery)


@cache
def calls(depth: int) -> SearchStrategy[ast.Call]:
    inner = expressions(depth - 1)
    arguments = some(inner, 0, 2) | st.just((ast.Star(),))
    return st.builds(ast.Call, names, arguments, st.booleans(), maybe(inner))


@cache
def sort_keys(depth: int) -> SearchStrategy[ast.SortKey]:
    return st.builds(ast.SortKey, expressions(depth), st.booleans(), maybe(st.booleans()))


# ----------------------------------------------------------------------------------------------------- inputs

windows = st.one_of(
    st.builds(ast.RangeWindow, interval_literals, maybe(interval_literals)),
    st.just(ast.RangeWindow(None)),
    st.builds(ast.RowsWindow, maybe(counts)),
    st.just(ast.NowWindow()),
    st.builds(ast.PartitionWindow, some(st.tuples(maybe(names), names)), counts, maybe(interval_literals)),
)
named_inputs = st.builds(ast.NamedInput, names, maybe(windows), maybe(names))
named_operands = st.builds(ast.NamedInput, names, maybe(windows))


@cache
def inputs(depth: int = DEPTH) -> SearchStrategy[ast.TableRef]:
    if depth == 0:
        return named_inputs
    inner = inputs(depth - 1)
    conditional = st.sampled_from([kind for kind in ast.JoinKind if kind is not ast.JoinKind.CROSS])
    return choice(
        named_inputs,
        st.builds(ast.SubqueryInput, queries(depth - 1), maybe(windows), maybe(names)),
        st.builds(ast.Join, conditional, inner, inner, expressions(depth - 1)),
        st.builds(ast.SampledInput, named_inputs, st.builds(ast.Number, st.sampled_from(["0", "12.5", "1e1", "100"]))),
        st.builds(ast.Join, st.just(ast.JoinKind.CROSS), inner, inner, st.none()),
    )


# ---------------------------------------------------------------------------------------------------- queries


@cache
def selects(depth: int) -> SearchStrategy[ast.Select]:
    inner = expressions(depth)
    items = st.builds(ast.SelectItem, inner, maybe(names)) | st.builds(ast.Star, maybe(names))
    return st.builds(
        ast.Select,
        some(items),
        some(inputs(depth)),
        maybe(inner),
        some(inner, 0, 2),
        maybe(inner),
        st.booleans(),
    )


@cache
def queries(depth: int = DEPTH) -> SearchStrategy[ast.Query]:
    if depth == 0:
        return selects(0)
    inner = queries(depth - 1)
    operands = named_operands | inner
    definitions = st.builds(ast.Cte, names, some(names, 0, 2), inner)
    ordered = some(sort_keys(depth - 1))
    return choice(
        selects(depth - 1),
        st.builds(ast.RelToStream, st.sampled_from(ast.RelToStreamKind), inner),
        st.builds(ast.SetOperation, st.sampled_from(ast.SetKind), st.booleans(), operands, operands),
        st.builds(ast.TopN, operands, ordered, maybe(counts)),
        st.builds(ast.TopN, operands, st.just(()), counts),
        st.builds(ast.With, some(definitions, most=2), inner),
    )


# ------------------------------------------------------------------------------------------------- statements

column_defs = some(st.builds(ast.ColumnDef, names, types, st.booleans()))
plain_values = numbers | strings | booleans | st.builds(ast.Unary, st.just("-"), numbers)
options = some(st.builds(ast.Option, keys, plain_values), 0)
sources = st.builds(ast.SourceSpec, names, options, st.booleans())
sinks = st.builds(ast.SinkSpec, names, options)
table_kinds = st.sampled_from([ast.ObjectKind.STREAM, ast.ObjectKind.RELATION])


@cache
def statements(depth: int = DEPTH) -> SearchStrategy[ast.Statement]:
    settings = st.builds(ast.Option, keys, expressions(depth - 1))
    targets = st.one_of(st.none(), names, queries(depth - 1))
    return choice(
        st.builds(ast.QueryStatement, queries(depth)),
        st.builds(
            ast.CreateStream,
            names,
            st.just(()) | column_defs,
            names,
            maybe(interval_literals),
            maybe(sources),
        ),
        st.builds(ast.CreateRelation, names, st.just(()) | column_defs, source=maybe(sources)),
        st.builds(ast.CreateRelation, names, st.just(()) | column_defs, names, names, maybe(sources)),
        st.builds(ast.RegisterTable, table_kinds, names, column_defs, maybe(sources)),
        st.builds(ast.CreateView, names, some(names, 0), queries(depth)),
        st.builds(ast.RegisterQuery, names, queries(depth), some(settings, 0, 2), maybe(sinks)),
        st.builds(ast.Try, queries(depth)),
        st.builds(ast.Drop, st.sampled_from(ast.ObjectKind), names),
        st.builds(ast.Explain, st.sampled_from(["TEXT", "JSON", "DOT", "MERMAID", "RULES"]), targets),
        st.builds(ast.Show, name_texts.map(str.upper)),
        st.builds(ast.Describe, names),
        st.builds(ast.SetSetting, keys, expressions(depth)),
        st.just(ast.Start()),
        st.just(ast.Stop()),
    )


# ----------------------------------------------------------------------------------------------- use in tests


def inputs_to_try(usually: int) -> int:
    """How many inputs a randomised test tries: the usual number, or as many as CQL_FUZZ says."""
    return int(os.environ.get("CQL_FUZZ") or usually)


def trees_to_try(usually: int) -> int:
    """How many trees a test with hypothesis tries; they take long to make, so a hundredth of CQL_FUZZ."""
    return max(usually, inputs_to_try(0) // 100)


def sample(strategy: SearchStrategy[T], count: int) -> list[T]:
    """The same few values of a strategy on every run."""
    values: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values


def node_classes() -> set[type[ast.Node]]:
    """The classes that syntax trees are made of: those of `cql.ast` that are no bases of others."""
    exported = (getattr(ast, name) for name in ast.__all__)
    classes = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, ast.Node)}
    bases = {base for kind in classes for base in kind.__mro__[1:]}
    return classes - bases


def nodes(value: object) -> Iterator[ast.Node]:
    """All nodes of a tree."""
    if isinstance(value, ast.Node):
        yield value
        for field in fields(value):
            yield from nodes(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from nodes(item)
