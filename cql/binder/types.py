"""Type names as written, to types."""

from __future__ import annotations

from cql import ast
from cql.errors import Code, fail, nearest
from cql.types import TYPE_NAMES, DataType, type_from_words

# What other systems call the types of CQL.
_ELSEWHERE = {
    "TEXT": ("STRING",),
    "LONG": ("BIGINT",),
    "INT8": ("BIGINT",),
    "SHORT": ("INT",),
    "SMALLINT": ("INT",),
    "TINYINT": ("BYTE",),
    "NUMBER": ("DECIMAL", "DOUBLE"),
    "DATE": ("TIMESTAMP",),
    "DATETIME": ("TIMESTAMP",),
    "TIME": ("TIMESTAMP",),
}


def resolve_type(name: ast.TypeName) -> DataType:
    """Return the type that a type name means; raises with the nearest names otherwise."""
    try:
        return type_from_words(name.word, list(name.parameters))
    except LookupError as error:
        known = [*TYPE_NAMES, "DECIMAL"]
        candidates = _ELSEWHERE.get(name.word) or nearest(name.word, known)
        raise fail(
            Code.UNKNOWN_TYPE,
            str(error),
            name.span,
            hint=None if candidates else "types are " + ", ".join(known),
            candidates=candidates,
        ) from None
    except ValueError as error:
        raise fail(Code.UNKNOWN_TYPE, str(error), name.span) from None
