"""Logical plans: the bound algebra, and the operators that rewrite rules turn it into.

A logical plan is a tree of `cql.bound` nodes and of the nodes here. Rules (`planner/rules/`) map plans
to plans with the same meaning; the driver is `planner/rewriting.py`. Nothing here knows about
operators' state, sharing or Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from cql.bound import Expr, Field, Rel, Schema, SortKey
from cql.bound.relations import Names
from cql.bound.text import all_keys_text, keys_text, sort_text
from cql.types import BIGINT


class JoinType(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class KeyedJoin(Rel):
    """A join of two relations that knows its equality keys.

    Rows match where all keys are equal (NULL equals nothing) and `residual`, over the columns of both
    inputs, is true. A semi-join keeps the left rows with a match, an antijoin those without one.
    """

    kind: JoinType
    left: Rel
    right: Rel
    left_keys: tuple[Expr, ...] = ()
    right_keys: tuple[Expr, ...] = ()
    residual: Expr | None = None

    @property
    def schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if self.kind in (JoinType.SEMI, JoinType.ANTI):
            return left
        if self.kind in (JoinType.RIGHT, JoinType.FULL):
            left = tuple(replace(f, nullable=True) for f in left)
        if self.kind in (JoinType.LEFT, JoinType.FULL):
            right = tuple(replace(f, nullable=True) for f in right)
        return left + right

    @property
    def grows(self) -> bool:
        return self.kind in (JoinType.INNER, JoinType.SEMI) and self.left.grows and self.right.grows

    def headline(self, inputs: Names) -> str:
        pairs = list(zip(self.left_keys, self.right_keys, strict=True))
        return f"{self.kind.value} join" + keys_text(pairs, self.residual, *inputs)


@dataclass(frozen=True, slots=True)
class MultiJoin(Rel):
    """An inner join of three or more relations on one list of keys that all of them share.

    `keys[i]` are the key expressions over input i; `residual` is over the columns of all inputs in order.
    """

    relations: tuple[Rel, ...]
    keys: tuple[tuple[Expr, ...], ...]
    residual: Expr | None = None

    @property
    def schema(self) -> Schema:
        return tuple(f for relation in self.relations for f in relation.schema)

    @property
    def grows(self) -> bool:
        return all(relation.grows for relation in self.relations)

    def headline(self, inputs: Names) -> str:
        return f"multiway join on {all_keys_text(self.keys, self.residual, inputs)}"


@dataclass(frozen=True, slots=True)
class StreamJoin(Rel):
    """A stream whose elements are joined with a relation as it is at their instant: Rstream(S [Now] ⋈ R)."""

    stream: Rel
    relation: Rel
    left_keys: tuple[Expr, ...] = ()
    right_keys: tuple[Expr, ...] = ()
    residual: Expr | None = None

    @property
    def schema(self) -> Schema:
        return self.stream.schema + self.relation.schema

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def grows(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        pairs = list(zip(self.left_keys, self.right_keys, strict=True))
        return "stream join" + keys_text(pairs, self.residual, *inputs)


@dataclass(frozen=True, slots=True)
class GroupTopN(Rel):
    """The first `limit` rows of each partition by the keys; ties fall to the other columns as in `TopN`.

    With a name for it, the row's number in its partition is the last column.
    """

    input: Rel
    partition: tuple[int, ...]
    keys: tuple[SortKey, ...]
    limit: int
    number: str | None = None

    @property
    def schema(self) -> Schema:
        if self.number is None:
            return self.input.schema
        return (*self.input.schema, Field(self.number, BIGINT, False))

    def headline(self, inputs: Names) -> str:
        within = ", ".join(inputs[0][at] for at in self.partition)
        number = f" numbered as {self.number}" if self.number else ""
        return f"top {self.limit} of each ({within}) by {sort_text(self.keys, inputs[0])}{number}"
