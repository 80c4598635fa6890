"""Typed expressions. Operands have the types their operator takes: conversions are explicit casts.

Every expression is total: where it has no value (a division by zero, an overflow, a text that is
not a number) it is NULL. That is what makes it safe for the planner to move expressions around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from cql.source import NO_SPAN, Span
from cql.types import BOOLEAN, DataType

if TYPE_CHECKING:
    from cql.bound.relations import Rel


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """Anything with a value: its type, and whether it can be NULL."""

    type: DataType
    nullable: bool = True
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnRef(Expr):
    """A column by its position in the input. `depth` counts the queries between here and its owner."""

    index: int
    depth: int = 0
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant. TIMESTAMP and INTERVAL values are integers of microseconds."""

    value: bool | int | float | Decimal | str | None


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """An operator or built-in function of `cql.functions.scalars`, by its name there."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class UserCall(Expr):
    """A function that the user registered, by its name in the catalog."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """The operand as a value of this expression's type, or NULL."""

    operand: Expr


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """The value of the first branch whose condition is true."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class InSubquery(Expr):
    """SQL's IN with three-valued logic; the operands match the columns of the query."""

    operands: tuple[Expr, ...]
    query: Rel


@dataclass(frozen=True, slots=True)
class Exists(Expr):
    query: Rel


@dataclass(frozen=True, slots=True)
class ScalarSubquery(Expr):
    """The only value of a query of one column and at most one row; NULL without a row."""

    query: Rel


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate over the rows of a group: `COUNT(*)` has no arguments."""

    function: str
    arguments: tuple[Expr, ...]
    type: DataType
    nullable: bool
    distinct: bool = False
    filter: Expr | None = None
    user_defined: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


def children(expression: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression; subqueries are not looked into."""
    match expression:
        case Call() | UserCall():
            return expression.arguments
        case Cast():
            return (expression.operand,)
        case Case():
            return (*(part for branch in expression.branches for part in branch), expression.otherwise)
        case InSubquery():
            return expression.operands
    return ()


def walk(expression: Expr) -> Iterator[Expr]:
    """Yield an expression and everything below it, subqueries themselves included, their insides not."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def has_subquery(expression: Expr) -> bool:
    """Tell whether evaluating an expression needs another query's result."""
    return any(isinstance(part, InSubquery | Exists | ScalarSubquery) for part in walk(expression))


def with_children(expression: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with its operands changed; subqueries stay as they are."""
    match expression:
        case Call() | UserCall():
            return replace(expression, arguments=tuple(change(a) for a in expression.arguments))
        case Cast():
            return replace(expression, operand=change(expression.operand))
        case Case():
            branches = tuple((change(when), change(then)) for when, then in expression.branches)
            return replace(expression, branches=branches, otherwise=change(expression.otherwise))
        case InSubquery():
            return replace(expression, operands=tuple(change(o) for o in expression.operands))
    return expression


def conjunction(terms: list[Expr]) -> Expr:
    """Return the AND of some predicates; of none, TRUE."""
    if not terms:
        return Literal(True, type=BOOLEAN, nullable=False)
    if len(terms) == 1:
        return terms[0]
    return Call("and", tuple(terms), type=BOOLEAN, nullable=any(term.nullable for term in terms))


def conjuncts(predicate: Expr) -> list[Expr]:
    """Return the operands of an AND, flattened; anything else is its own only conjunct."""
    if isinstance(predicate, Call) and predicate.function == "and":
        return [term for argument in predicate.arguments for term in conjuncts(argument)]
    return [predicate]
