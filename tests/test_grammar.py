"""The grammar: free of conflicts, in step with the builder, and sparing with reserved words."""

import pytest
from lark import Lark
from lark.grammar import Rule

from cql import ast
from cql.parsing import parse_expression, parse_query, parse_statement
from cql.parsing.builder import AstBuilder
from cql.parsing.parser import Dialect, _lark
from tests.strategies import KEYWORDS

# Words that have a meaning inside windows and statements only.
FREE_WORDS = (
    *("range", "rows", "now", "slide", "partition", "unbounded", "by", "sign", "delay", "options", "outer"),
    *("stream", "relation", "view", "schema", "inferred", "nulls", "first", "last"),
    *("s", "ms", "d", "h", "second", "minutes"),
)


@pytest.mark.parametrize("dialect", Dialect)
def test_the_grammar_has_no_conflicts(dialect: Dialect) -> None:
    """Lark's strict mode fails on shift/reduce conflicts and on terminals that it could not tell apart."""
    parser = _lark(dialect)
    Lark(parser.source_grammar, parser="lalr", lexer="contextual", start=parser.options.start, strict=True)


def rule_name(rule: Rule) -> str:
    return str(rule.alias or rule.origin.name)


def is_inlined(rule: Rule) -> bool:
    """Whether a rule leaves no node of its own: helpers of `*` and `+`, and `?rule` with one child."""
    return rule.origin.name.startswith("_") or (rule.options.expand1 and not rule.alias)


def test_every_rule_has_a_method_of_the_builder() -> None:
    rules = {rule_name(rule) for rule in _lark(Dialect.CQL).rules if not is_inlined(rule)}
    methods = {name for name in vars(AstBuilder) if not name.startswith("_")} - {"build"}
    assert rules == methods


@pytest.mark.parametrize("word", FREE_WORDS)
def test_window_words_are_names_elsewhere(word: str) -> None:
    name = ast.Name(word)
    column, qualified = ast.Column(name), ast.Column(name, name)
    assert parse_expression(f"{word} + {word}.{word}") == ast.Binary("+", column, qualified)
    assert parse_expression(f"{word}({word})") == ast.Call(name, (column,))
    assert parse_query(f"SELECT {word}, a {word}, b AS {word} FROM {word}, S {word} [NOW] WHERE {word} = 1") == (
        ast.Select(
            (
                ast.SelectItem(column),
                ast.SelectItem(ast.Column(ast.Name("a")), name),
                ast.SelectItem(ast.Column(ast.Name("b")), name),
            ),
            (ast.NamedInput(name), ast.NamedInput(ast.Name("S"), ast.NowWindow(), name)),
            ast.Binary("=", column, ast.Number("1")),
        )
    )


@pytest.mark.parametrize("word", FREE_WORDS)
def test_window_words_are_names_next_to_windows(word: str) -> None:
    name = ast.Name(word)
    window = ast.PartitionWindow(((name, name), (None, name)), 5)
    text = f"SELECT * FROM {word} [PARTITION BY {word}.{word}, {word} ROWS 5] {word}"
    assert parse_query(text) == ast.Select((ast.Star(),), (ast.NamedInput(name, window, name),))


@pytest.mark.parametrize("word", KEYWORDS)
def test_every_word_can_name_a_column_of_a_stream(word: str) -> None:
    statement = parse_statement(f"CREATE STREAM s ({word} INT, x STRING) TIMESTAMP BY {word}")
    assert isinstance(statement, ast.CreateStream)
    assert statement.columns[0].name == statement.timestamp == ast.Name(word)


@pytest.mark.parametrize("word", ["timestamp", "interval", "extract"])
def test_words_that_start_a_literal_can_be_columns(word: str) -> None:
    assert parse_expression(word) == ast.Column(ast.Name(word))
    assert parse_expression(f"{word} + 1").left == ast.Column(ast.Name(word))
    assert parse_expression(f"x.{word}") == ast.Column(ast.Name(word), ast.Name("x"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a UNİON b", "a UNION b"),
        ("İſtream(ſelect DİſTİNCT a from b)", "ISTREAM(SELECT DISTINCT a FROM b)"),
        ("ſelect a from b order by a deſc lımıt 1", "SELECT a FROM b ORDER BY a DESC LIMIT 1"),
    ],
)
def test_letters_that_only_ignoring_case_are_ascii_spell_keywords_too(text: str, expected: str) -> None:
    assert parse_query(text) == parse_query(expected)
