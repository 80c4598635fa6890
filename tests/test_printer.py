"""The printer: printing and then parsing gives back the tree, and each thing has one spelling."""

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cql import ast, printer
from cql.parsing import parse_expression, parse_query, parse_statement
from cql.printer import to_text
from tests import strategies

EXAMPLES = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


# ---------------------------------------------------------------------------------------------------- the laws


@EXAMPLES
@given(strategies.statements())
def test_printing_then_parsing_is_the_identity_on_statements(statement: ast.Statement) -> None:
    assert parse_statement(to_text(statement)) == statement


@EXAMPLES
@given(strategies.queries())
def test_printing_then_parsing_is_the_identity_on_queries(query: ast.Query) -> None:
    assert parse_query(to_text(query)) == query


@EXAMPLES
@given(strategies.expressions())
def test_printing_then_parsing_is_the_identity_on_expressions(expression: ast.Expression) -> None:
    assert parse_expression(to_text(expression)) == expression
