"""Syntax nodes of value expressions and predicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cql.ast.node import Name, Node
from cql.intervals import Interval

if TYPE_CHECKING:
    from cql.ast.queries import Query, Star


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """Anything with a value."""


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A numeric literal, unsigned, as written: `7`, `0.908`, `1e6`."""

    text: str


@dataclass(frozen=True, slots=True)
class String(Expression):
    value: str


@dataclass(frozen=True, slots=True)
class Boolean(Expression):
    value: bool


@dataclass(frozen=True, slots=True)
class Null(Expression):
    pass


@dataclass(frozen=True, slots=True)
class TimestampLiteral(Expression):
    """`TIMESTAMP '2026-01-31 12:00:00'`; the text is checked by the binder."""

    text: str


@dataclass(frozen=True, slots=True)
class IntervalLiteral(Expression):
    """`INTERVAL '5 seconds'`, and every length of time in windows and DELAY."""

    interval: Interval


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A column, or, where a row is expected, an input by its name."""

    name: Name
    qualifier: Name | None = None


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """`-`, `+` or `NOT` before an operand."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """Arithmetic (`+ - * / %`), `||`, comparison (`= <> < <= > >=`) and `IS [NOT] DISTINCT FROM`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    """`AND` or `OR` of two or more operands: chains are one node, so that long ones stay shallow."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Between(Expression):
    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InList(Expression):
    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InQuery(Expression):
    """`x IN (query)`; the operand may be a `Row`, or a `Column` that names a whole input."""

    operand: Expression
    query: Query
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expression):
    """A query in parentheses used as a value: one column, at most one row."""

    query: Query


@dataclass(frozen=True, slots=True)
class Row(Expression):
    """`(a, b)` on the left of IN."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like(Expression):
    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """`CASE [operand] WHEN .. THEN .. [ELSE ..] END`."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


@dataclass(frozen=True, slots=True)
class TypeName(Node):
    """A type as written: a word and its parameters."""

    word: str
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    operand: Expression
    target: TypeName


@dataclass(frozen=True, slots=True)
class Extract(Expression):
    """`EXTRACT(field FROM operand)`."""

    field: Name
    operand: Expression


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A scalar function or an aggregate; `COUNT(*)` has a `Star` as its only argument."""

    function: Name
    arguments: tuple[Expression | Star, ...]
    distinct: bool = False
    filter: Expression | None = None


@dataclass(frozen=True, slots=True)
class SortKey(Node):
    """One ORDER BY item; `nulls_first` is None where the default of the direction applies."""

    expression: Expression
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class WindowCall(Expression):
    """`ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..)`."""

    call: Call
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
