"""What column names mean at a place: the inputs of a block, and those of the blocks around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cql import ast, bound
from cql.errors import Code, CqlError, fail, nearest


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM: its name, its columns, and where they start in the joined row."""

    name: str | None
    fields: bound.Schema
    start: int
    timestamp: int | None = None
    hidden: tuple[str, ...] = ()


@dataclass(slots=True)
class Scope:
    """The inputs of a block; `outer` is the scope of the query around it, if it may refer to that."""

    inputs: list[FromItem] = field(default_factory=list)
    outer: Scope | None = None

    @property
    def nested(self) -> bool:
        """Tell whether this block is part of a subquery's value."""
        return self.outer is not None

    def resolve(self, column: ast.Column) -> bound.ColumnRef:
        """Return what a column name refers to, looking outwards; raises if nothing or too much."""
        scope: Scope | None = self
        depth = 0
        while scope is not None:
            found = list(scope._matches(column))
            if len(found) > 1:
                raise _ambiguous(column, found)
            if found:
                owner, at = found[0]
                column_field = owner.fields[at]
                return bound.ColumnRef(
                    owner.start + at,
                    depth,
                    column_field.name,
                    type=column_field.type,
                    nullable=column_field.nullable,
                    span=column.span,
                )
            scope, depth = scope.outer, depth + 1
        raise self._unknown(column)

    def row(self, name: ast.Name) -> list[bound.Expr] | None:
        """Return the columns of the input of this name, or None."""
        for owner in self.inputs:
            if owner.name is not None and owner.name.casefold() == name.key:
                return list(self.columns_of(owner))
        return None

    def columns_of(self, owner: FromItem) -> Iterator[bound.ColumnRef]:
        """Yield references to all columns of an input."""
        for at, column_field in enumerate(owner.fields):
            yield bound.ColumnRef(
                owner.start + at, 0, column_field.name, type=column_field.type, nullable=column_field.nullable
            )

    def timestamps(self) -> list[int]:
        """Return the positions of the timestamp columns of the block's streams."""
        return [owner.start + owner.timestamp for owner in self.inputs if owner.timestamp is not None]

    def input(self, name: ast.Name) -> FromItem:
        """Return the input of a name; raises with the nearest names otherwise."""
        for owner in self.inputs:
            if owner.name is not None and owner.name.casefold() == name.key:
                return owner
        known = [owner.name for owner in self.inputs if owner.name]
        raise fail(
            Code.UNKNOWN_TABLE,
            f"there is no input '{name.text}' in FROM",
            name.span,
            hint=f"FROM has {', '.join(known)}" if known else None,
            candidates=nearest(name.text, known),
        )

    def _matches(self, column: ast.Column) -> Iterator[tuple[FromItem, int]]:
        for owner in self.inputs:
            if column.qualifier and (owner.name is None or owner.name.casefold() != column.qualifier.key):
                continue
            for at, column_field in enumerate(owner.fields):
                if column_field.name.casefold() == column.name.key:
                    yield owner, at

    def _unknown(self, column: ast.Column) -> CqlError:
        visible = [owner for scope in self._outwards() for owner in scope.inputs]
        if column.qualifier:
            owners = [o for o in visible if o.name and o.name.casefold() == column.qualifier.key]
            if not owners:
                return _unknown_input(column.qualifier, visible)
            visible = owners
        wanted = column.name.text
        if any(name.casefold() == column.name.key for owner in visible for name in owner.hidden):
            return fail(
                Code.UNKNOWN_COLUMN,
                f"'{wanted}' says when or how the relation changes and is not a column of it",
                column.span,
            )
        known = list(dict.fromkeys(f.name for owner in visible for f in owner.fields))
        hint, candidates = self._advice(column, known)
        where = f" in '{column.qualifier.text}'" if column.qualifier else ""
        return fail(Code.UNKNOWN_COLUMN, f"there is no column '{wanted}'{where}", column.span, hint, candidates)

    def _advice(self, column: ast.Column, known: Sequence[str]) -> tuple[str | None, Sequence[str]]:
        """Return a hint about a column that is not there, and what may have been meant."""
        wanted = column.name.text
        candidates = nearest(wanted, known)
        if column.span.end - column.span.start == len(wanted) + 2 and not column.qualifier:
            return f"a string is written in single quotes: '{wanted}'", candidates
        if column.qualifier and (elsewhere := self._elsewhere(column)):
            return None, elsewhere
        return (columns_are(known) if not candidates and known else None), candidates

    def _elsewhere(self, column: ast.Column) -> tuple[str, ...]:
        """Return where else in FROM a qualified column is found."""
        found = (owner for owner in self.inputs for f in owner.fields if f.name.casefold() == column.name.key)
        return tuple(f"{owner.name}.{column.name.text}" for owner in found if owner.name)

    def _outwards(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer


def _unknown_input(qualifier: ast.Name, visible: Sequence[FromItem]) -> CqlError:
    known = [owner.name for owner in visible if owner.name]
    return fail(
        Code.UNKNOWN_TABLE,
        f"there is no input '{qualifier.text}' in FROM",
        qualifier.span,
        hint=f"FROM has {', '.join(known)}" if known else None,
        candidates=nearest(qualifier.text, known),
    )


def columns_are(names: Sequence[str]) -> str:
    """Return advice that lists columns.

    >>> columns_are(["a", "b"])
    'the columns are a, b'
    """
    if len(names) == 1:
        return f"the only column is {names[0]}"
    return "the columns are " + ", ".join(names[:10]) + (", .." if len(names) > 10 else "")


def _ambiguous(column: ast.Column, found: list[tuple[FromItem, int]]) -> CqlError:
    owners = [owner.name for owner, _ in found if owner.name]
    name = column.name.text
    if column.qualifier or len(owners) < 2:
        return fail(
            Code.AMBIGUOUS_COLUMN,
            f"there are several columns '{name}'",
            column.span,
            hint="give them different names with AS in the subquery",
        )
    return fail(
        Code.AMBIGUOUS_COLUMN,
        f"'{name}' is a column of {' and of '.join(owners)}",
        column.span,
        candidates=tuple(f"{owner}.{name}" for owner in owners),
    )
