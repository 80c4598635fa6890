"""Syntax nodes of statements."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cql.ast.expressions import Expression, IntervalLiteral, TypeName
from cql.ast.node import Name, Node
from cql.ast.queries import Query
from cql.secrets import MASK, is_secret, without_secrets


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """Anything that ends with a semicolon."""


@dataclass(frozen=True, slots=True)
class ColumnDef(Node):
    name: Name
    type: TypeName
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class Option(Node):
    """A key and its value; keys may be dotted. A bare word as value is a `Column` without qualifier."""

    key: Name
    value: Expression

    def __repr__(self) -> str:
        value = MASK if is_secret(self.key.text) else without_secrets(repr(self.value))
        return f"Option(key={self.key!r}, value={value})"


@dataclass(frozen=True, slots=True)
class SourceSpec(Node):
    format: Name
    options: tuple[Option, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class SinkSpec(Node):
    format: Name
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    name: Name
    columns: tuple[ColumnDef, ...]
    timestamp: Name
    delay: IntervalLiteral | None = None
    source: SourceSpec | None = None


@dataclass(frozen=True, slots=True)
class CreateRelation(Statement):
    """A signed log of changes, or, without timestamp and sign, a static table."""

    name: Name
    columns: tuple[ColumnDef, ...]
    timestamp: Name | None = None
    sign: Name | None = None
    source: SourceSpec | None = None


class ObjectKind(Enum):
    STREAM = "STREAM"
    RELATION = "RELATION"
    VIEW = "VIEW"
    QUERY = "QUERY"


@dataclass(frozen=True, slots=True)
class RegisterTable(Statement):
    """STREAM's form: the timestamp (and a relation's sign) come first in the source, unnamed."""

    kind: ObjectKind
    name: Name
    columns: tuple[ColumnDef, ...]
    source: SourceSpec | None = None


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """A query under a name. STREAM scripts also declare what it yields: its kind and its columns' types."""

    name: Name
    columns: tuple[Name, ...]
    query: Query
    kind: ObjectKind | None = None
    types: tuple[TypeName, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterQuery(Statement):
    name: Name
    query: Query
    options: tuple[Option, ...] = ()
    sink: SinkSpec | None = None


@dataclass(frozen=True, slots=True)
class QueryStatement(Statement):
    """A bare query; a script registers it under a name of its own."""

    query: Query


@dataclass(frozen=True, slots=True)
class Try(Statement):
    """A query to be run once, over the first rows of its tables, and not to be registered."""

    query: Query


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    kind: ObjectKind
    name: Name


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """`form` is TEXT, JSON, DOT, MERMAID or RULES; the target a query, a query's name, or None for all."""

    form: str
    target: Query | Name | None


@dataclass(frozen=True, slots=True)
class Show(Statement):
    what: str


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    name: Name


@dataclass(frozen=True, slots=True)
class SetSetting(Statement):
    key: Name
    value: Expression


@dataclass(frozen=True, slots=True)
class Start(Statement):
    pass


@dataclass(frozen=True, slots=True)
class Stop(Statement):
    pass
