"""A join with what arrives now, spoken as it happens, is a join of a stream with a relation."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import RelToStreamKind
from cql.bound import (
    Filter,
    Join,
    JoinKind,
    Project,
    RangeSpec,
    Rel,
    RelToStream,
    Window,
    expressions,
    has_subquery,
)
from planner.clocks import speaks_at_elements_of
from planner.expressions import moved
from planner.logical import JoinType, KeyedJoin, StreamJoin
from planner.subquery_columns import chosen_columns


def now_join_to_stream_join(node: Rel) -> Rel | None:
    """Turn `Rstream(π σ (S [Now] ⋈ R))` into `π σ (S ⋈ R)`, a join of the stream S with the relation R.

        Rstream(Select S.A, R.B From S [Now], R Where S.A = R.A)
        ->  every element of S probes R, as it is at the element's instant, once

    Law V7, given that the Rstream speaks whenever S has an element (`planner/clocks.py`). Only inner joins,
    filters and projections may lie between (N12), and none with a subquery: each row then stems from one
    element of S. Of two Now windows the left one becomes the stream; with more than one join the stream joins
    one relation after the other.
    """
    if not isinstance(node, RelToStream) or node.kind is not RelToStreamKind.RSTREAM:
        return None
    stream = _as_stream(node.input, node)
    return stream if stream is not None and _joins(node.input) else None


def _joins(relation: Rel) -> bool:
    """Tell whether there is a join above the Now window: without one `remove_rstream_of_now` applies."""
    while isinstance(relation, Filter | Project):
        relation = relation.input
    return isinstance(relation, Join | KeyedJoin)


def _as_stream(relation: Rel, rstream: RelToStream) -> Rel | None:
    """Return a stream that has, at every instant, the rows of a relation as its elements."""
    if any(has_subquery(expression) for expression in expressions(relation)):
        return None
    match relation:
        case Window(spec=RangeSpec(ticks=1, slide=None)):
            return relation.input if speaks_at_elements_of(rstream, relation.input) else None
        case Filter() | Project():
            stream = _as_stream(relation.input, rstream)
            return None if stream is None else replace(relation, input=stream)
        case Join(kind=JoinKind.INNER) | KeyedJoin(kind=JoinType.INNER):
            left = _as_stream(relation.left, rstream)
            if left is not None:
                return _stream_join(relation, left, relation.right)
            right = _as_stream(relation.right, rstream)
            return None if right is None else _turned_stream_join(relation, right)
    return None


def _stream_join(join: Join | KeyedJoin, stream: Rel, relation: Rel) -> StreamJoin:
    if isinstance(join, Join):
        return StreamJoin(stream, relation, residual=join.condition, span=join.span)
    return StreamJoin(stream, relation, join.left_keys, join.right_keys, join.residual, span=join.span)


def _turned_stream_join(join: Join | KeyedJoin, stream: Rel) -> Rel:
    """Return the stream join of the right side with the left one, columns back in the order of the join."""
    start, width = len(join.left.schema), len(stream.schema)
    made = _stream_join(join, stream, join.left)

    def place(at: int) -> int:
        return at - start if at >= start else at + width

    residual = None if made.residual is None else moved(made.residual, made, place)
    made = replace(made, left_keys=made.right_keys, right_keys=made.left_keys, residual=residual)
    return chosen_columns(made, (place(at) for at in range(start + width)))
