"""Rstream of a Now window is the stream itself."""

from __future__ import annotations

from dataclasses import replace

from cql.ast import RelToStreamKind
from cql.bound import Filter, Project, RangeSpec, Rel, RelToStream, Window, expressions, has_subquery
from planner.clocks import speaks_at_elements_of


def remove_rstream_of_now(node: Rel) -> Rel | None:
    """Turn `Rstream(π σ S [Now])` into `π σ S`.

        Rstream(Select A From S [Now] Where B > 1)   ->   Select A From S Where B > 1, as a stream

    Law V4/V5: what is in S [Now] at an instant is what arrives at it. The Rstream has to speak at every
    instant at which something arrives (`planner/clocks.py`). Only filters and projections may lie between
    (N12): a distinct or an aggregate would change from one instant's elements to all elements, a subquery is a
    relation of its own.
    """
    if not isinstance(node, RelToStream) or node.kind is not RelToStreamKind.RSTREAM:
        return None
    return _as_stream(node.input, node)


def _as_stream(relation: Rel, rstream: RelToStream) -> Rel | None:
    if isinstance(relation, Window) and relation.spec == RangeSpec(1):
        return relation.input if speaks_at_elements_of(rstream, relation.input) else None
    if isinstance(relation, Filter | Project) and not any(has_subquery(e) for e in expressions(relation)):
        stream = _as_stream(relation.input, rstream)
        return None if stream is None else replace(relation, input=stream)
    return None
