"""The pieces of operators' state in words: what is kept, the names of its values, what makes values of codes.

Pieces are those of `Operator.delta`; who lists the state of a network gets their descriptions from the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cql.bound.text import expression_text
from planner import operators as op

Decode = Callable[[Sequence[pa.Array]], Sequence[pa.Array]]

_PARTS = {
    "agenda": "changes to come",
    "groups": "counts",
    "keys": "keys",
    "rows": "rows",
    "key rows": "keys that are there",
    "waiting": "elements that wait for the relation",
}
_EVICTING = {
    "left": "left rows",
    "right": "right rows",
    "left missed": "left rows given up",
    "right missed": "right rows given up",
    "learned": "how often keys come",
}
_MISSED = ("code", "end", "weight", "likely")
_MATCHES = {"first": "rows", "second": "matches"}


class InputColumns(NamedTuple):
    """The columns of the inputs of an operator."""

    names: Sequence[Sequence[str]]
    types: Sequence[tuple[pa.DataType, ...]]


@dataclass(frozen=True, slots=True)
class StatePiece:
    """What a piece of an operator's state is.

    `values` are the names of its values, of which the first `keys` tell groups apart; `lane_name` gives the names of
    lanes, None for those that say nothing; `decode` makes values of codes. Where rows have the slot of a group,
    `groups` is the piece that has these groups.
    """

    what: str
    values: tuple[str, ...] = ()
    keys: int = 0
    lane_name: Callable[[str], str | None] = str
    groups: str | None = None
    decode: Decode | None = None


def words_of(piece: str) -> str:
    """Return in words which part of an operator's state a piece is.

    >>> words_of("unmatched0/agenda")
    'changes to come'
    """
    return _PARTS.get(piece.rpartition("/")[2], piece)


def plain_piece(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what rows are that an operator will put out or has put out."""
    return StatePiece(words_of(piece), tuple(op.output_names(node)))


def piece_of_input(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what rows of the first input are."""
    return StatePiece(words_of(piece), tuple(inputs.names[0]))


def counted_piece(piece: str, names: Sequence[str], lanes: Mapping[str, str] | None = None) -> StatePiece:
    """Return what rows with counts over time are, or the changes to come of their counts."""
    owner, slash, last = piece.rpartition("/")
    groups = f"{owner}{slash}groups" if last == "agenda" else None
    lane_name = (lanes or {"first": "count"}).get
    return StatePiece(words_of(piece), () if groups else tuple(names), len(names), lane_name, groups)


def half_piece(node: op.HalfJoin, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of a semijoin or an antijoin is: left rows, or the keys on the right."""
    if piece.startswith("rows"):
        return counted_piece(piece, inputs.names[0], _MATCHES)
    return counted_piece(piece, [expression_text(key, inputs.names[1]) for key in node.right_keys])


def outer_piece(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of an outer join is: the rows of one input, with their matches."""
    return counted_piece(piece, inputs.names[int(piece.removeprefix("unmatched")[0])], _MATCHES)


def evicting_piece(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of a join with too little memory is."""
    left, right = inputs.names
    values = {"left": left, "right": right, "learned": ["learned"]}.get(piece, _MISSED)
    return StatePiece(_EVICTING[piece], tuple(values))


def skipping_piece(node: op.Operator, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what a piece of the state of a join is in which some rows do not look for others."""
    return StatePiece(f"{piece.removeprefix('skipped ')} rows that do not look for others", ("row",))


def codes(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return columns of codes as those who made the codes take them."""
    return [column if pa.types.is_string(column.type) else np.asarray(column) for column in columns]
