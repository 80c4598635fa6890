"""Syntax nodes of queries, their inputs and windows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cql.ast.expressions import Expression, IntervalLiteral, Number, SortKey
from cql.ast.node import Name, Node


@dataclass(frozen=True, slots=True)
class Window(Node):
    """What is written in brackets after a stream."""


@dataclass(frozen=True, slots=True)
class RangeWindow(Window):
    """`[Range d [Slide s]]`; no duration means unbounded."""

    duration: IntervalLiteral | None
    slide: IntervalLiteral | None = None


@dataclass(frozen=True, slots=True)
class NowWindow(Window):
    pass


@dataclass(frozen=True, slots=True)
class RowsWindow(Window):
    """`[Rows n]`; no count means unbounded."""

    count: int | None


@dataclass(frozen=True, slots=True)
class PartitionWindow(Window):
    """`[Partition By a, b Rows n [Range d]]`; a column may carry the input's alias."""

    columns: tuple[tuple[Name | None, Name], ...]
    count: int
    duration: IntervalLiteral | None = None


@dataclass(frozen=True, slots=True)
class Query(Node):
    """Anything that yields a stream or a relation."""


@dataclass(frozen=True, slots=True)
class TableRef(Node):
    """An item of FROM."""


@dataclass(frozen=True, slots=True)
class NamedInput(TableRef, Query):
    """A stream, relation or view by name; as a `Query` it is an operand of a set operation."""

    name: Name
    window: Window | None = None
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class SubqueryInput(TableRef):
    query: Query
    window: Window | None = None
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class SampledInput(TableRef):
    """`input TABLESAMPLE (percent PERCENT)`."""

    input: TableRef
    percent: Number


class JoinKind(Enum):
    INNER = "JOIN"
    LEFT = "LEFT JOIN"
    RIGHT = "RIGHT JOIN"
    FULL = "FULL JOIN"
    CROSS = "CROSS JOIN"


@dataclass(frozen=True, slots=True)
class Join(TableRef):
    kind: JoinKind
    left: TableRef
    right: TableRef
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `name.*`."""

    qualifier: Name | None = None


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    expression: Expression
    alias: Name | None = None


@dataclass(frozen=True, slots=True)
class Select(Query):
    """One block. `inputs` are joined by comma."""

    items: tuple[SelectItem | Star, ...]
    inputs: tuple[TableRef, ...]
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    distinct: bool = False


class SetKind(Enum):
    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True, slots=True)
class SetOperation(Query):
    """With `all` a bag operation, without a set operation."""

    kind: SetKind
    all: bool
    left: Query
    right: Query


class RelToStreamKind(Enum):
    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


@dataclass(frozen=True, slots=True)
class RelToStream(Query):
    kind: RelToStreamKind
    query: Query


@dataclass(frozen=True, slots=True)
class TopN(Query):
    """`query ORDER BY keys LIMIT limit`; the binder asks for both clauses."""

    query: Query
    keys: tuple[SortKey, ...]
    limit: int | None


@dataclass(frozen=True, slots=True)
class Cte(Node):
    name: Name
    columns: tuple[Name, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class With(Query):
    """`WITH name AS (query), .. query`: views that live for one query."""

    definitions: tuple[Cte, ...]
    query: Query
